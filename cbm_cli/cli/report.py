"""``cbm report``: one page of everything."""

from __future__ import annotations

from pathlib import Path

from cbm_cli.cli.options import command, output
from cbm_cli.cli.output import note
from cbm_cli.cli.target import Target, results_and


@command
@output(
    "FILE.html|.htm",
    "The HTML file; it needs no other file and no network.",
    default="report.html",
)
@results_and("[EXPERIMENT]...")
def report(target: Target, output: Path) -> None:
    """Write one HTML page of results.

    It shows sortable tables, curves, settings, versions,
    unfinished trials, and why trials failed.
    """
    from cbm_cli.report.page import write_report

    results = target.results()
    with results.readable(target.names) as stores:
        write_report(results, stores, output)
        note(f"wrote {output} ({output.stat().st_size / 1e3:,.0f} kB)")
