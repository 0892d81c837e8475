"""``cbm report``: one page of results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cbm_cli.cli.common import Target, check_file, note
from cbm_cli.cli.options import results_and, select_option

if TYPE_CHECKING:
    from cbm_cli.results.selection import Wanted


@click.command()
@results_and("[EXPERIMENT]...")
@select_option
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default="report.html",
    show_default=True,
    help="The HTML file; it needs no other file and no network.",
)
def report(target: Target, output: Path, select: Wanted) -> None:
    """Write one HTML page of results.

    It has tables, which a click on a head sorts, curves, settings and versions, and says what is not finished
    and why trials failed.
    """
    check_file("-o", output, [".html", ".htm"])
    from cbm_cli.report.page import write_report

    write_report(target.results(), target.names, output, select)
    note(f"wrote {output} ({output.stat().st_size / 1e3:,.0f} kB)")
