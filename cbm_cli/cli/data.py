"""``cbm data``: which data sets there are, whether their files are right, and fetching them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from cbm_cli.cli.common import bars, json_option, note, print_list
from cbm_cli.errors import CbmError
from cbm_cli.text import valid_json

if TYPE_CHECKING:
    from rich.progress import Progress

    from cbm_cli.datasets.loading import Entry
    from cbm_cli.datasets.published import DataSource


@click.group()
def data() -> None:
    """List, check and download data sets."""


@data.command("list")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@json_option
def list_(names: tuple[str, ...], as_json: bool) -> None:
    """List the data sets, or describe those that are named.

    The state says whether they are here. Toy data sets are generated, and shown with the sizes of the paper.
    `flip: true` exchanges the zeros and ones of any of them. Files are looked for in the folder named by the
    environment variable CBM_DATA_DIR, then in the user's cache, and compared with their checksums. The exit
    code is 1 if one is wrong.
    """
    from cbm_cli.datasets.loading import catalogue

    for name in names:
        _source(name)
    entries = catalogue(*names)
    if as_json:
        click.echo(valid_json([_record(entry) for entry in entries], indent=2))
    elif names:
        for entry in entries:
            _describe(entry)
    else:
        _print_all(entries)
    if any(entry.state == "damaged" for entry in entries):
        raise SystemExit(1)


def _print_all(entries: Sequence[Entry]) -> None:
    from cbm_cli.datasets.spec import written

    rows = []
    for entry in entries:
        sizes = " + ".join(f"{count:,}" for count in entry.rows.values())
        ones = "?" if entry.ones is None else f"{entry.ones:.1%}"
        where = str(entry.folder) if entry.state == "ok" else entry.state
        source = entry.source
        rows.append((written(source.example), f"{sizes} x {entry.width}", ones, where, source.description))
    print_list(("write in a grid", "rows x width", "ones", "where", "about"), rows)
    for entry in entries:
        if entry.state == "damaged":
            note(f"\n{entry.problem}")
    missing = [entry.source.name for entry in entries if entry.state == "missing"]
    if missing:
        more = "`cbm data fetch NAME` gets one, `cbm data list NAME` says more."
        note(f"\nMissing: {' '.join(missing)}. {more}")


def _describe(entry: Entry) -> None:
    from cbm_cli.datasets.spec import written

    source, record = entry.source, _record(entry)
    lines = [("about", source.description), ("in a grid", f"data: {written(source.example)}")]
    lines += [(part, f"{rows:,} rows of {entry.width}") for part, rows in entry.rows.items()]
    lines.append(("ones", "not known without the files" if entry.ones is None else f"{entry.ones:.2%}"))
    words = ("source", "home", "cite", "licence", "remark", "state")
    lines += [(word, record[word]) for word in words if record.get(word)]
    lines += [("file", f"{file.path or file.stem}: {file.verdict}") for file in entry.files]
    if entry.state == "missing":
        lines.append(("looked in", ", ".join(record["looked_in"])))
    print_list(("name", source.name), lines)


@data.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME|all...")
def fetch(names: tuple[str, ...]) -> None:
    """Download published data sets.

    Files that are here and right are not downloaded again.

    Files go to the folder named by the environment variable CBM_DATA_DIR, or to the user's cache.
    An interrupted download starts again; complete files stay. CBM_DATA_MIRROR names the address of a folder
    with the files, to use instead of the published addresses.
    """
    from cbm_cli.datasets.fetch import fetchable

    wanted = list(dict.fromkeys(one for name in names for one in (fetchable() if name == "all" else [name])))
    for name in wanted:
        if not _source(name).forms:
            raise CbmError(f"{name} is generated; it has no files", "unsuited")
    problems = _fetch_all(wanted)
    if problems:
        raise CbmError("\n".join(map(str, problems)), *(kind for one in problems for kind in one.kinds))


def _fetch_all(names: Sequence[str]) -> list[CbmError]:
    """Download data sets and return what went wrong; one that fails does not stop the others."""
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn

    from cbm_cli.datasets.fetch import fetch

    problems = []
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with bars(*columns) as progress:
        for name in names:
            try:
                folder, fetched = fetch(name, lambda file: _Bar(progress, file))
                text = f"{name}: {'fetched into' if fetched else 'is here already:'} {folder}"
                progress.console.print(text, markup=False, highlight=False, soft_wrap=True)
            except CbmError as error:
                problems.append(error)
    return problems


class _Bar:
    """A progress bar of rich with the attributes that pooch uses."""

    def __init__(self, progress: Progress, file: str) -> None:
        self.total = 0
        self.progress, self.task = progress, progress.add_task(file, total=None)

    def update(self, size: int) -> None:
        self.progress.update(self.task, total=self.total or None, advance=size)

    def reset(self) -> None:
        self.progress.reset(self.task)

    def close(self) -> None:
        pass


def _source(name: str) -> DataSource:
    """Return a data set's record; CbmError, with a hint, if there is no such set."""
    from cbm_cli.datasets.published import SOURCES
    from cbm_cli.text import did_you_mean

    if name not in SOURCES:
        raise CbmError(f"data set {name!r} is unknown{did_you_mean(name, SOURCES)}", "unknown")
    return SOURCES[name]


def _record(entry: Entry) -> dict:
    source = entry.source
    published = ("home", "cite", "licence", "remark") if source.forms else ()
    return {
        "name": source.name,
        "description": source.description,
        "source": source.source,
        "options": (*source.takes, "flip"),
        "example": source.example,
        "rows": entry.rows,
        "width": entry.width,
        "ones": entry.ones,
        "present": entry.problem is None,
        "state": entry.state,
        "folder": entry.folder and str(entry.folder),
        "looked_in": [str(folder) for folder in source.folders],
        "problem": entry.problem,
        **{field: getattr(source, field) for field in published},
        "files": [
            {"name": file.stem, "path": file.path and str(file.path)}
            | {"expected": file.expected, "verdict": file.verdict}
            for file in entry.files
        ],
    }
