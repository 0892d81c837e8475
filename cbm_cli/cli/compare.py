"""``cbm compare``: published beside obtained."""

from pathlib import Path

import click

from cbm_cli.cli.common import print_document, results_argument
from cbm_cli.errors import CbmError
from cbm_cli.text import FORMATS


@click.command()
@results_argument
@click.option("-f", "--format", "format_", type=click.Choice(FORMATS), default="text", show_default=True)
@click.option("--scoreboard", is_flag=True, help="Count the values run and agreeing, for all tables.")
@click.option("--findings", is_flag=True, help="Check what the paper states in prose and figures.")
def compare(results: Path, format_: str, scoreboard: bool, findings: bool) -> None:
    """Compare results with what the paper published."""
    from cbm_cli.paper.comparison import compare
    from cbm_cli.paper.findings import check_findings, count_findings, findings_document
    from cbm_cli.paper.scoreboard import scoreboard as count_values
    from cbm_cli.results import Results

    if scoreboard and findings:
        raise CbmError(
            "--scoreboard and --findings: give one of them; the scoreboard counts findings, too", "conflict"
        )
    folder = Results(results)
    judged = check_findings(folder) if scoreboard or findings else []
    if findings:
        print_document(findings_document(judged), format_)
        return
    comparison = compare(folder.all_summaries(), folder.store)
    counted = count_values(comparison, count_findings(judged)) if scoreboard else None
    print_document(counted or comparison.document(), format_)
