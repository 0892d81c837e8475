"""``cbm table``: significance tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cbm_cli.cli.common import results_argument

if TYPE_CHECKING:
    from cbm_cli.results import Results

FORMATS = ["text", "markdown", "latex", "csv", "html", "json"]


@click.command()
@results_argument
@click.argument("experiments", nargs=-1, metavar="[EXPERIMENT]...")
@click.option("-f", "--format", "format_", type=click.Choice(FORMATS), default="text", show_default=True)
@click.option("--rows", metavar="COLUMNS", help="Settings that make the rows, parted by commas.")
@click.option("--columns", metavar="COLUMNS", help="Settings that make the columns.")
@click.option("--groups", metavar="COLUMNS", help="Settings that part the table.")
@click.option("--metric", help="What the cells show, such as test_log_likelihood, test_cost or weight_norm.")
@click.option(
    "--statistic",
    type=click.Choice(["max", "final", "best-valid"]),
    help="Best value over training (max, the default), last value, or value at the best validation.",
)
@click.option(
    "--test", type=click.Choice(["signed-rank", "rank-sum"]), default="signed-rank", show_default=True
)
@click.option(
    "--alpha", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.05, show_default=True
)
@click.option("--correction", type=click.Choice(["holm"]), help="Correct for the comparisons in a row.")
def table(
    results: Path,
    experiments: tuple[str, ...],
    format_: str,
    rows: str | None,
    columns: str | None,
    groups: str | None,
    **choices: Any,
) -> None:
    """Print maximum ± standard deviation (final) of the log-likelihood over trials.

    Of the cost of auto encoders: minimum ± standard deviation (epochs to convergence).

    Bold: the best of a row and all that a Wilcoxon test cannot tell from it; underlined: the best where
    there are too few trials to claim anything.
    """
    from cbm_cli.results import Results

    folder = Results(results)
    layout = {"rows": _names(rows), "columns": _names(columns), "groups": _names(groups)}
    for experiment in experiments or folder.require_experiments():
        print_table(folder, experiment, format_, **layout, **choices)


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def print_table(results: Results, experiment: str, format_: str, **choices: Any) -> None:
    """Print the table of one experiment to stdout."""
    from rich.console import Console

    from cbm_cli.statistics import build_table, render

    store = results.store(experiment)
    built = build_table(store.summary(), store.manifest(), **choices)
    console = Console()
    text = render(built, format_, console if console.is_terminal else None)
    click.echo(text.rstrip("\n"))
