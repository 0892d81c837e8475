"""``cbm data``: which data sets there are, and where their files are looked for."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cbm_cli.datasets import Entry

_COLUMNS = ("write in a grid", "rows x width", "ones", "where", "about")


@click.group()
def data() -> None:
    """Look at the data sets."""


@data.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(as_json: bool) -> None:
    """List the data sets: size, share of ones, and whether they are here.

    Toy data sets are generated, and shown with the sizes of the paper. `flip: true` exchanges the zeros
    and ones of any of them. Files are looked for in the folder named by the environment variable
    CBM_DATA_DIR, then in the user's cache.
    """
    from cbm_cli.datasets import catalogue

    entries = catalogue()
    if as_json:
        click.echo(json.dumps([_record(entry) for entry in entries], indent=2))
        return
    _print_table(_row(entry) for entry in entries)
    for entry in entries:
        if entry.problem:
            click.echo(f"\n{entry.problem}", err=True)


def _record(entry: Entry) -> dict:
    return {
        "name": entry.name,
        "description": entry.description,
        "source": entry.source,
        "options": entry.options,
        "example": entry.example,
        "rows": entry.rows,
        "width": entry.width,
        "ones": entry.ones,
        "present": entry.present,
        "folder": entry.folder and str(entry.folder),
        "looked_in": [str(folder) for folder in entry.looked_in],
        "problem": entry.problem,
    }


def _row(entry: Entry) -> tuple[str, ...]:
    name, *options = (f"{key}: {value}" for key, value in entry.example.items())
    write = f"{{{', '.join((name, *options))}}}" if options else entry.name
    rows = " + ".join(f"{count:,}" for count in entry.rows.values())
    ones = "?" if entry.ones is None else f"{entry.ones:.1%}"
    return write, f"{rows} x {entry.width}", ones, _where(entry), entry.description


def _where(entry: Entry) -> str:
    if not entry.looked_in:
        return "generated"
    if entry.present:
        return str(entry.folder)
    return "damaged" if entry.folder else "missing"


def _print_table(rows: Iterable[tuple[str, ...]]) -> None:
    """Print a table to stdout: drawn where it is a terminal, columns parted by spaces elsewhere."""
    rows = [*rows]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        table = Table(*_COLUMNS)
        for row in rows:
            table.add_row(*map(escape, row))
        Console().print(table)
        return
    widths = [max(len(line[column]) for line in (_COLUMNS, *rows)) for column in range(len(_COLUMNS))]
    for line in (_COLUMNS, *rows):
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(cells).rstrip())
