"""``cbm compare``: published beside obtained."""

from pathlib import Path

import click

from cbm_cli.cli.common import print_document, results_argument
from cbm_cli.sheets import FORMATS


@click.command()
@results_argument
@click.option("-f", "--format", "format_", type=click.Choice(FORMATS), default="text", show_default=True)
def compare(results: Path, format_: str) -> None:
    """Compare results with the values that the paper published."""
    from cbm_cli.results import Results
    from cbm_cli.statistics import compare as compare_with_published

    comparison = compare_with_published(Results(results).all_summaries())
    print_document(comparison.document(), format_)
