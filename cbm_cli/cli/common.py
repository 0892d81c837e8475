"""Arguments that commands share."""

from collections.abc import Callable
from pathlib import Path

import click

results_argument: Callable = click.argument(
    "results", default="results/", type=click.Path(path_type=Path), metavar="[RESULTS]"
)


def note(message: str) -> None:
    """Say something that is not data: on stderr."""
    click.echo(message, err=True)
