"""``cbm data``: which data sets there are, whether their files are right, and fetching
them.
"""

from __future__ import annotations

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

    entries, rows, damaged = (
        catalogue(*[_source(name).name for name in names]),
        [],
        list[str](),
    )
    for entry in entries:
        if names:
            _describe(entry)
        source, file = entry.source, next(iter(entry.files), None)
        sizes = " + ".join(f"{count:,}" for count in source.rows.values())
        ones = "?" if source.ones is None else f"{source.ones:.1%}"
        where = (
            str(file.path.parent)
            if entry.state == "ok" and file and file.path
            else entry.state
        )
        rows.append(
            (
                source.written,
                f"{sizes} x {source.width}",
                ones,
                where,
                source.description,
            )
        )
        if entry.state == "damaged":
            damaged += [
                f"{source.name}: {it.path}: {it.verdict}"
                for it in entry.files
                if it.verdict != "ok"
            ]
    missing = [entry.source.name for entry in entries if entry.state == "missing"]
    if not names:
        print_list(("write in a grid", "rows x width", "ones", "where", "about"), rows)
        for problem in damaged:
            note(f"\n{problem}")
        if missing:
            more = "`cbm data fetch NAME` gets one, `cbm data list NAME` says more."
            note(f"\nMissing: {' '.join(missing)}. {more}")
    if damaged:
        raise SystemExit(1)


def _describe(entry: Listing) -> None:
    """Print the record of a data set, a line for each field."""
    source = entry.source
    lines = [("about", source.description), ("in a grid", f"data: {source.written}")]
    lines += [
        (part, f"{rows:,} rows of {source.width}") for part, rows in source.rows.items()
    ]
    lines.append(
        (
            "ones",
            "not known without the files"
            if source.ones is None
            else f"{source.ones:.2%}",
        )
    )
    words = (
        ("source", "home", "cite", "licence", "remark") if source.forms else ("source",)
    )
    lines += [(word, getattr(source, word)) for word in words if getattr(source, word)]
    lines.append(("state", entry.state))
    lines += [
        ("file", f"{file.path or file.stem}: {file.verdict}") for file in entry.files
    ]
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
    from cbm_cli.datasets.published import SOURCES

    every = [name for name, source in SOURCES.items() if source.downloads]
    wanted = list(
        dict.fromkeys(
            one for name in names for one in (every if name == "all" else [name])
        )
    )
    for name in wanted:
        if not _source(name).forms:
            raise CbmError(f"{name} is generated; it has no files")
    problems = []
    for name in wanted:  # one that fails does not stop the others
        try:
            folder, fetched = fetch(name, note)
            note(
                f"{name}: {'fetched into' if fetched else 'is here already:'} {folder}"
            )
        except CbmError as error:
            problems.append(error)
    if problems:
        raise CbmError("\n".join(map(str, problems)))


def _source(name: str) -> DataSource:
    """Return a data set's record; CbmError, with a hint, if the set is unknown."""
    from cbm_cli.datasets.published import SOURCES

    if name not in SOURCES:
        raise CbmError(f"data set {name!r} is unknown{did_you_mean(name, SOURCES)}")
    return SOURCES[name]
