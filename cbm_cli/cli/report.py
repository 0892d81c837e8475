"""``cbm report``: one page of results."""

from __future__ import annotations

from pathlib import Path

import click

from cbm_cli.cli.common import Target, check_file, note
from cbm_cli.cli.options import results_and


@click.command()
@results_and("[EXPERIMENT]...")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default="report.html",
    show_default=True,
    help="The HTML file; it needs no other file and no network.",
)
def report(target: Target, output: Path) -> None:
    """Write one HTML page of results.

    It has tables, which a click on a head sorts, curves, settings and versions, and says what is not finished
    and why trials failed.
    """
    check_file("-o", output, [".html", ".htm"])
    from cbm_cli.report.page import write_report

    write_report(target.results(), target.names, output)
    note(f"wrote {output} ({output.stat().st_size / 1e3:,.0f} kB)")
