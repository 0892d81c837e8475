"""``cbm report``: one page of results."""

from pathlib import Path
from typing import Any

import click

from cbm_cli.cli.common import Target, check_file, note
from cbm_cli.cli.completion import choose_options, results_and


@click.command()
@results_and("[EXPERIMENT]...")
@choose_options
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default="report.html",
    show_default=True,
    help="The HTML file; it needs no other file and no network.",
)
def report(target: Target, output: Path, **choices: Any) -> None:
    """Write one HTML page of results.

    It has an overview, tables, curves and filters. The page can be filtered by scheme, sampler, data and
    learning rate, sorted, printed and sent as one file. It also shows what is unfinished, what has diverged
    or failed and why, and which versions computed it.
    """
    check_file("-o", output, [".html", ".htm"])
    from cbm_cli.report.chosen import Options
    from cbm_cli.report.page import write_report

    options = Options(**choices)
    for warning in write_report(target.results(), target.names, output, options):
        note(f"warning: {warning}")
    note(f"wrote {output} ({output.stat().st_size / 1e3:,.0f} kB)")
