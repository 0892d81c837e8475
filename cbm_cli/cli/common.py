"""What commands share: arguments, notes, lists, and how a user can run cbm again."""

import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import click

results_argument: Callable = click.argument(
    "results", default="results/", type=click.Path(path_type=Path), metavar="[RESULTS]"
)
json_option: Callable = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def note(message: str) -> None:
    """Print something that is not data, to stderr."""
    click.echo(message, err=True)


def print_list(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table to stdout: drawn on a terminal, else columns separated by spaces."""
    rows = [*rows]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        table = Table(*heads)
        for row in rows:
            table.add_row(*map(escape, row))
        Console().print(table)
        return
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for line in (heads, *rows):
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def program() -> str:
    """Return how the user can run this cbm: ``cbm`` if the shell finds it, else the path that was typed."""
    from shutil import which

    typed, found = Path(sys.argv[0]), which("cbm")
    if typed.name == "__main__.py" and typed.parent.name == "cli":
        return f"{shlex.quote(sys.executable)} -m cbm_cli.cli"
    if typed.name != "cbm" or (found and typed.exists() and typed.samefile(found)):
        return "cbm"
    return shlex.quote(str(typed))


def note_activation() -> None:
    """Say how to make the shell find cbm, if it does not."""
    script = Path(sys.argv[0]).parent / "activate"
    if program() != "cbm" and script.is_file():
        note(f"To write just cbm, first run: source {shlex.quote(str(script))}")
