"""``cbm table``: significance tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from cbm_cli.cli.common import Target, print_document
from cbm_cli.cli.options import choose_options, results_and, setting_names
from cbm_cli.text import FORMATS, STATISTICS

if TYPE_CHECKING:
    from cbm_cli.results import Results


_OF_CELLS = ("metric", "statistic", "select", "choose", "by")


def _axis(name: str, help: str) -> Callable:
    return click.option(f"--{name}", metavar="SETTINGS", callback=setting_names, help=help)


@click.command()
@results_and("[EXPERIMENT]...")
@click.option("-f", "--format", "format_", type=click.Choice(FORMATS), default="text", show_default=True)
@choose_options
@_axis("rows", "Settings shown as rows, comma-separated, such as sampler,learning_rate or hidden.")
@_axis("columns", "Settings shown as columns.")
@click.option(
    "--metric",
    help="What the cells show, such as test_log_likelihood, test_cost or weight_norm.",
)
@click.option(
    "--statistic",
    type=click.Choice(STATISTICS),
    help="Value at the best validation (the default where there is a validation part), best value over "
    "training (max), last value, or value where the mean over trials is best (max-of-mean).",
)
@click.option(
    "--test", type=click.Choice(["signed-rank", "rank-sum"]), default="signed-rank", show_default=True
)
@click.option(
    "--alpha", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.05, show_default=True
)
@click.option("--correction", type=click.Choice(["holm"]), help="Correct p-values within a row.")
def table(target: Target, format_: str, **choices: Any) -> None:
    """Print a table of means with significance marks.

    A cell shows mean ± standard deviation (mean of the final values) of the log-likelihood over trials, at
    the best validation value or the maximum. Of the cost of auto encoders the parentheses hold the epoch.

    Bold: best of the row, or not significantly different from it by a Wilcoxon test. Underlined: best of a
    row with too few trials to claim significance.
    """
    print_tables(target.results(), target.experiments(), format_, **choices)


def print_tables(results: Results, experiments: Sequence[str], format_: str, **choices: Any) -> None:
    """Print the tables of experiments to stdout, by the options of ``cbm table``."""
    from cbm_cli.results.selection import read_cells
    from cbm_cli.statistics import build_table

    which = {name: choices.pop(name) for name in _OF_CELLS if name in choices}
    axes = {name: names for name in ("rows", "columns") if (names := choices.pop(name, None)) is not None}
    for cells in read_cells([results.store(name) for name in experiments], **which):
        print_document(build_table(cells, axes=axes, **choices).document(), format_)
