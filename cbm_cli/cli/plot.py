"""``cbm plot``: pictures of results."""

from pathlib import Path

import click

from cbm_cli.cli.common import note
from cbm_cli.cli.table import only_one
from cbm_cli.errors import CbmError

KINDS = ("curves",)


@click.command()
@click.argument("words", nargs=-1, metavar="[RESULTS] curves [EXPERIMENT]")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="File: .png, .pdf or .svg."
)
@click.option(
    "--select",
    multiple=True,
    metavar="SETTING=VALUE",
    help="Draw only cells with this value; repeat it for several settings, or for other values of one.",
)
@click.option(
    "--metric",
    multiple=True,
    callback=only_one,
    help="Column of the curves or the records, such as weight_norm; default: the table's metric.",
)
def plot(words: tuple[str, ...], output: Path, select: tuple[str, ...], metric: str | None) -> None:
    """Draw learning curves: the mean of each scheme, with a band over trials.

    Each data set, each sampler and any other setting that varies has its own panel. RESULTS defaults to
    results/.
    """
    from cbm_cli.report import plot_curves
    from cbm_cli.results import Results

    folder, experiment = _parse(words)
    for choice in select:
        if "=" not in choice:
            raise CbmError(f"--select {choice}: write SETTING=VALUE, such as --select learning_rate=0.05")
    results = Results(Path(folder))
    choices = [(name, value) for name, _, value in (choice.partition("=") for choice in select)]
    plot_curves(results, results.only(experiment), output, select=choices, metric=metric)
    note(f"wrote {output}")


def _parse(words: tuple[str, ...]) -> tuple[str, str | None]:
    """Return the results folder and the experiment; the kind of picture stands between them."""
    place = next((place for place, word in enumerate(words[:2]) if word in KINDS), None)
    if place is None or len(words) > place + 2:
        raise CbmError(f"write cbm plot [RESULTS] {'|'.join(KINDS)} [EXPERIMENT] -o FILE.png")
    return (words[0] if place else "results/"), (words[place + 1] if len(words) > place + 1 else None)
