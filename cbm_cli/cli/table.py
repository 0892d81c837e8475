"""``cbm table``: means over trials with significance marks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from cbm_cli.choices import FORMATS
from cbm_cli.cli import options
from cbm_cli.cli.options import command, settings
from cbm_cli.cli.output import say_text
from cbm_cli.cli.target import Target, results_and

if TYPE_CHECKING:
    from cbm_cli.results import Results
    from cbm_cli.statistics import ResultsTable

_OF_CELLS = ("select", "choose", "by", "metric", "statistic")


@command
@click.option(
    "-f",
    "--format",
    "format_",
    type=click.Choice(FORMATS),
    default="text",
    help="How it is written.",
)
@options.select
@options.choose
@options.by
@options.metric
@options.statistic
@settings("--rows", "Settings shown as rows, such as sampler,hidden.")
@settings("--columns", "Settings shown as columns.")
@click.option(
    "--test",
    type=click.Choice(["signed-rank", "rank-sum"]),
    default="signed-rank",
    help="Wilcoxon test.",
)
@click.option(
    "--alpha",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.05,
    help="Level of significance.",
)
@click.option(
    "--correction", type=click.Choice(["holm"]), help="Correct p-values of a row."
)
@results_and("[EXPERIMENT]...")
def table(target: Target, format_: str, **choices: Any) -> None:
    """Print a table of means with significance marks.

    A cell shows mean ± standard deviation (mean of the final values) of the
    log-likelihood over trials, at the best validation value or the maximum. For the
    cost of auto encoders, the epoch is in parentheses.

    Bold: best of the row, or not significantly different from the best (Wilcoxon test).
    Underlined: best of a row with too few trials to claim significance.

    --statistic: the value at the best validation value (best-valid), the best over
    training (max), the last one (final), or the one where the mean over trials is best
    (max-of-mean).
    """
    for results_table in tables(target.results(), target.names, **choices):
        say_text(results_table.sheet().render(format_))


def tables(
    results: Results, experiments: Sequence[str], **choices: Any
) -> Iterator[ResultsTable]:
    """Yield the tables of experiments, by the options of ``cbm table``."""
    from cbm_cli.results.selection import read_cells
    from cbm_cli.statistics import build_table

    which, axes = {}, {}
    for name in _OF_CELLS:
        if name in choices:
            which[name] = choices.pop(name)
    for axis in ("rows", "columns", "groups"):
        names = choices.pop(axis, None)
        if names is not None:
            axes[axis] = names
    with results.readable(experiments) as stores:
        for cells in read_cells(stores, **which):
            yield build_table(cells, axes=axes, **choices)
