"""``cbm data``: which data sets there are, whether their files are right, and fetching
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from cbm_cli.cli.output import note, print_list
from cbm_cli.errors import CbmError
from cbm_cli.text import did_you_mean

if TYPE_CHECKING:
    from cbm_cli.datasets.fetch import Listing
    from cbm_cli.datasets.published import DataSource


@click.group()
def data() -> None:
    """List, check and download data sets."""


@data.command("list")
@click.argument("names", nargs=-1, metavar="[NAME]...")
def list_(names: tuple[str, ...]) -> None:
    """List the data sets, or describe those that are named.

    The state says whether they are here. Toy data sets are generated, and shown with
    the sizes of the paper. `flip: true` exchanges the zeros and ones of any of them.
    Files are looked for in the folder named by the environment variable CBM_DATA_DIR,
    then in the user's cache, and compared with their checksums. The exit code is 1 if
    one is wrong.
    """
    from cbm_cli.datasets.fetch import catalogue

    entries = catalogue(*[_source(name).name for name in names])
    if names:
        for entry in entries:
            _describe(entry)
    else:
        _list(entries)
    if any(entry.state == "damaged" for entry in entries):
        raise SystemExit(1)


def _list(entries: Sequence[Listing]) -> None:
    """Print a line for each data set, then what is damaged or missing."""
    rows = []
    for entry in entries:
        source = entry.source
        sizes = " + ".join(f"{rows:,}" for rows in source.rows.values())
        ones = "?" if source.ones is None else f"{source.ones:.1%}"
        size = f"{sizes} x {source.width}"
        place = _place_of(entry)
        rows.append((source.written, size, ones, place, source.description))
    print_list(("write in a grid", "rows x width", "ones", "where", "about"), rows)
    for entry in entries:
        if entry.state == "damaged":
            for file in entry.files:
                if file.verdict != "ok":
                    note(f"\n{entry.source.name}: {file.path}: {file.verdict}")
    missing = [entry.source.name for entry in entries if entry.state == "missing"]
    if missing:
        remedy = "`cbm data fetch NAME` gets one, `cbm data list NAME` says more."
        note(f"\nMissing: {' '.join(missing)}. {remedy}")


def _place_of(entry: Listing) -> str:
    """Return the folder of a data set that is here, or its state."""
    if entry.state == "ok" and entry.files and entry.files[0].path:
        return str(entry.files[0].path.parent)
    return entry.state


def _describe(entry: Listing) -> None:
    """Print the record of a data set, a line for each field."""
    source = entry.source
    lines = [("about", source.description), ("in a grid", f"data: {source.written}")]
    for part, rows in source.rows.items():
        lines.append((part, f"{rows:,} rows of {source.width}"))
    if source.ones is None:
        lines.append(("ones", "not known without the files"))
    else:
        lines.append(("ones", f"{source.ones:.2%}"))
    fields = ["source"]
    if source.forms:
        fields += ["home", "cite", "licence", "remark"]
    for field in fields:
        if getattr(source, field):
            lines.append((field, getattr(source, field)))
    lines.append(("state", entry.state))
    for file in entry.files:
        lines.append(("file", f"{file.path or file.stem}: {file.verdict}"))
    if entry.state == "missing":
        lines.append(("looked in", ", ".join(map(str, source.folders))))
    print_list(("name", source.name), lines)


@data.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME|all...")
def fetch(names: tuple[str, ...]) -> None:
    """Download published data sets.

    Files that are here and right are not downloaded again. Files go to the folder named
    by the environment variable CBM_DATA_DIR, or to the user's cache. An interrupted
    download starts again; complete files stay.
    """
    from cbm_cli.datasets.fetch import fetch

    problems = []
    for name in _with_downloads(names):  # a failed one does not stop the others
        try:
            folder, is_new = fetch(name, note)
        except CbmError as error:
            problems.append(str(error))
            continue
        state = "fetched into" if is_new else "is here already:"
        note(f"{name}: {state} {folder}")
    if problems:
        raise CbmError("\n".join(problems))


def _with_downloads(names: Iterable[str]) -> list[str]:
    """Return the data sets with these names, each once; CbmError without files."""
    from cbm_cli.datasets.published import SOURCES

    wanted: dict[str, None] = {}
    for name in names:
        if name == "all":
            every = [key for key, source in SOURCES.items() if source.downloads]
            wanted |= dict.fromkeys(every)
        else:
            wanted[name] = None
    for name in wanted:
        if not _source(name).forms:
            raise CbmError(f"{name} is generated; it has no files")
    return list(wanted)


def _source(name: str) -> DataSource:
    """Return a data set's record; CbmError, with a hint, if the set is unknown."""
    from cbm_cli.datasets.published import SOURCES

    if name not in SOURCES:
        raise CbmError(f"data set {name!r} is unknown{did_you_mean(name, SOURCES)}")
    return SOURCES[name]
