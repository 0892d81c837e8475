"""``cbm plot``: pictures of results."""

from pathlib import Path

import click

from cbm_cli.cli.common import note, results_argument
from cbm_cli.errors import CbmError


@click.command()
@results_argument
@click.argument("kind", type=click.Choice(["curves"]))
@click.argument("experiment", required=False)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="File: .png, .pdf or .svg."
)
@click.option("--select", multiple=True, metavar="COLUMN=VALUE", help="Only cells with this value.")
def plot(results: Path, kind: str, experiment: str | None, output: Path, select: tuple[str, ...]) -> None:
    """Draw learning curves: the mean of each scheme with a band over trials, a panel a sampler."""
    from cbm_cli.report import plot_curves
    from cbm_cli.results import Results

    for choice in select:
        if "=" not in choice:
            raise CbmError(f"--select {choice}: write COLUMN=VALUE, such as --select learning_rate=0.05")
    folder = Results(results)
    plot_curves(
        folder, folder.only(experiment), output, select=dict(choice.split("=", 1) for choice in select)
    )
    note(f"wrote {output}")
