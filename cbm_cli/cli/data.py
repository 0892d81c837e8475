"""``cbm data``: which data sets there are, fetching them, and whether their files are right."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cbm_cli.cli.common import note
from cbm_cli.errors import CbmError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.progress import Progress

    from cbm_cli.datasets import Checked, Entry

_COLUMNS = ("write in a grid", "rows x width", "ones", "where", "about")


@click.group()
def data() -> None:
    """Look at the data sets, and get them."""


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
    _print_table(_COLUMNS, (_row(entry) for entry in entries))
    missing = [entry for entry in entries if entry.problem and not entry.folder]
    for entry in entries:
        if entry.problem and entry.folder:
            note(f"\n{entry.problem}")
    if missing:
        names = " ".join(entry.name for entry in missing)
        note(f"\nMissing: {names}. `cbm data fetch NAME` gets them; `cbm data info NAME` says more.")


@data.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def info(name: str, as_json: bool) -> None:
    """Say what a data set is, whom to cite, which files it is read from and where they are."""
    from cbm_cli.datasets import catalogue, check_files

    _check_name(name)
    entry = next(entry for entry in catalogue() if entry.name == name)
    files = check_files(name) if entry.looked_in else []
    record = _record(entry) | _about(name) | {"files": [_file_record(file) for file in files]}
    if as_json:
        click.echo(json.dumps(record, indent=2))
        return
    for label, text in _lines(record):
        click.echo(f"{label:<12}{text}")


@data.command()
@click.argument("name", required=False)
def verify(name: str | None) -> None:
    """Compare the files that are here with their published checksums; exit 1 if one is wrong.

    Of a data set that is named, all files must be here.
    """
    from cbm_cli.datasets import PUBLISHED, check_files

    if name:
        _check_published(name)
    files = [(one, file) for one in ([name] if name else PUBLISHED) for file in check_files(one)]
    wrong = False
    for one, file in files:
        if name or file.path:
            click.echo(f"{one}: {file.path or file.stem}: {_verdict(file)}")
            wrong |= not file.good
    if wrong:
        raise SystemExit(1)


@data.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME|all...")
@click.option("--to", type=click.Path(path_type=Path), metavar="DIR", help="Folder of data to put it into.")
def fetch(names: tuple[str, ...], to: Path | None) -> None:
    """Get published data sets; what is here and right is not fetched again.

    Files go to the folder named by the environment variable CBM_DATA_DIR, or to the user's cache. What
    breaks off goes on when the command is run again. CBM_DATA_MIRROR names the address of a folder with
    the files, to use in place of the published ones.
    """
    from cbm_cli.datasets import fetchable

    wanted = list(dict.fromkeys(one for name in names for one in (fetchable() if name == "all" else [name])))
    for name in wanted:
        _check_published(name)
    problems = _fetch_all(wanted, to)
    if problems:
        raise CbmError("\n".join(problems))
    if to:
        note(f"To use them: export CBM_DATA_DIR={to}")


def _fetch_all(names: Sequence[str], to: Path | None) -> list[str]:
    """Fetch data sets and return what went wrong; one that fails does not keep the others from coming."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from cbm_cli.datasets import fetch

    problems = []
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress:
        for name in names:
            try:
                folder, fetched = fetch(name, to, lambda file: _Bar(progress, file))
                text = f"{name}: {'fetched into' if fetched else 'is here already:'} {folder}"
                progress.console.print(text, markup=False, highlight=False, soft_wrap=True)
            except CbmError as error:
                problems.append(str(error))
    return problems


class _Bar:
    """A file's progress, in the form that pooch tells it in."""

    def __init__(self, progress: Progress, name: str) -> None:
        self.progress = progress
        self.task = progress.add_task(name, total=None)

    @property
    def total(self) -> float | None:
        return self.progress.tasks[self.task].total

    @total.setter
    def total(self, size: int) -> None:
        self.progress.update(self.task, total=size or None)

    def update(self, size: int) -> None:
        self.progress.advance(self.task, size)

    def reset(self) -> None:
        self.progress.update(self.task, completed=0)

    def close(self) -> None:
        self.progress.stop_task(self.task)


def _check_name(name: str) -> None:
    """Raise CbmError, with a hint, unless there is such a data set."""
    from difflib import get_close_matches

    from cbm_cli.datasets import names

    if name not in names():
        close = get_close_matches(name, names(), n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(names())}"
        raise CbmError(f"data set {name!r} is unknown; {hint}")


def _check_published(name: str) -> None:
    from cbm_cli.datasets import PUBLISHED

    _check_name(name)
    if name not in PUBLISHED:
        raise CbmError(f"{name} is generated; it has no files")


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


def _about(name: str) -> dict:
    from cbm_cli.datasets import PUBLISHED

    known = PUBLISHED.get(name)
    fields = ("home", "cite", "licence", "remark")
    return {field: getattr(known, field) for field in fields} if known else {}


def _file_record(file: Checked) -> dict:
    return {
        "name": file.stem,
        "path": file.path and str(file.path),
        "expected": file.expected,
        "verdict": _verdict(file),
    }


def _verdict(file: Checked) -> str:
    if file.path is None:
        return "missing"
    return "ok" if file.good else file.problem or f"wrong: expected {file.expected}, found {file.found}"


def _lines(record: dict) -> Iterable[tuple[str, str]]:
    """Yield what `cbm data info` prints, as label and text."""
    yield "name", record["name"]
    yield "about", record["description"]
    yield "in a grid", f"data: {_written(record['example'])}"
    for part, rows in record["rows"].items():
        yield part, f"{rows:,} rows of {record['width']}"
    yield "ones", "not known without the files" if record["ones"] is None else f"{record['ones']:.2%}"
    for label in ("source", "home", "cite", "licence", "remark"):
        if record.get(label):
            yield label, record[label]
    for file in record["files"]:
        yield "file", f"{file['path'] or file['name']}: {file['verdict']}"
    if record["looked_in"] and not record["present"]:
        yield "looked in", ", ".join(record["looked_in"])


def _row(entry: Entry) -> tuple[str, ...]:
    rows = " + ".join(f"{count:,}" for count in entry.rows.values())
    ones = "?" if entry.ones is None else f"{entry.ones:.1%}"
    return _written(entry.example), f"{rows} x {entry.width}", ones, _where(entry), entry.description


def _written(example: dict) -> str:
    name, *options = (f"{key}: {value}" for key, value in example.items())
    return f"{{{', '.join((name, *options))}}}" if options else example["name"]


def _where(entry: Entry) -> str:
    if not entry.looked_in:
        return "generated"
    if entry.present:
        return str(entry.folder)
    return "damaged" if entry.folder else "missing"


def _print_table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    """Print a table to stdout: drawn where it is a terminal, columns parted by spaces elsewhere."""
    rows = [*rows]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        table = Table(*columns)
        for row in rows:
            table.add_row(*map(escape, row))
        Console().print(table)
        return
    widths = [max(len(line[column]) for line in (columns, *rows)) for column in range(len(columns))]
    for line in (columns, *rows):
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(cells).rstrip())
