"""``cbm table`` and ``report``: significance tables, and one page of everything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cbm_cli.cli.options import Target, command, output, results_and
from cbm_cli.cli.output import note

if TYPE_CHECKING:
    from cbm_cli.results import Results
    from cbm_cli.statistics import ResultsTable

_OF_CELLS = ("select", "choose", "by", "metric", "statistic")
OPTIONS = (*_OF_CELLS, "rows", "columns", "test", "alpha", "correction")


@command("format", *OPTIONS)
@results_and("[EXPERIMENT]...")
def table(target: Target, format_: str, **choices: Any) -> None:
    """Print a table of means with significance marks.

    A cell shows mean ± standard deviation (mean of the final values) of the log-likelihood over trials, at
    the best validation value or the maximum. For the cost of auto encoders, the epoch is in parentheses.

    Bold: best of the row, or not significantly different from the best (Wilcoxon test). Underlined: best of a
    row with too few trials to claim significance.

    --statistic: the value at the best validation value (best-valid), the best over training (max), the last
    one (final), or the one where the mean over trials is best (max-of-mean).
    """
    for one in tables(target.results(), target.names, **choices):
        click.echo(one.sheet().render(format_), nl=False)


def tables(results: Results, experiments: Sequence[str], **choices: Any) -> Iterator[ResultsTable]:
    """Yield the tables of experiments, by the options of ``cbm table``."""
    from cbm_cli.results.selection import read_cells
    from cbm_cli.statistics import build_table

    which = {name: choices.pop(name) for name in _OF_CELLS if name in choices}
    given = ((axis, choices.pop(axis, None)) for axis in ("rows", "columns", "groups"))
    axes = {axis: names for axis, names in given if names is not None}
    with results.readable(experiments) as stores:
        for cells in read_cells(stores, **which):
            yield build_table(cells, axes=axes, **choices)


@command()
@output("FILE.html|.htm", "The HTML file; it needs no other file and no network.", default="report.html")
@results_and("[EXPERIMENT]...")
def report(target: Target, output: Path) -> None:
    """Write one HTML page of results.

    It shows tables, which a click on a head sorts, curves, settings, versions, unfinished trials, and why
    trials failed.
    """
    from cbm_cli.report.page import write_report

    results = target.results()
    with results.readable(target.names) as stores:
        write_report(results, stores, output)
        note(f"wrote {output} ({output.stat().st_size / 1e3:,.0f} kB)")
