"""``cbm data``: which data sets there are, whether their files are right, and fetching them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cbm_cli.cli.common import note, print_list
from cbm_cli.errors import CbmError

if TYPE_CHECKING:
    from cbm_cli.datasets.loading import Entry
    from cbm_cli.datasets.published import DataSource


@click.group()
def data() -> None:
    """List, check and download data sets."""


@data.command("list")
@click.argument("names", nargs=-1, metavar="[NAME]...")
def list_(names: tuple[str, ...]) -> None:
    """List the data sets, or describe those that are named.

    The state says whether they are here. Toy data sets are generated, and shown with the sizes of the paper.
    `flip: true` exchanges the zeros and ones of any of them. Files are looked for in the folder named by the
    environment variable CBM_DATA_DIR, then in the user's cache, and compared with their checksums. The exit
    code is 1 if one is wrong.
    """
    from cbm_cli.datasets.loading import catalogue
    from cbm_cli.datasets.spec import written

    entries, rows = catalogue(*[_source(name).name for name in names]), []
    for entry in entries if names else ():
        _describe(entry)
    for entry in entries:
        sizes = " + ".join(f"{count:,}" for count in entry.rows.values())
        ones = "?" if entry.ones is None else f"{entry.ones:.1%}"
        where, source = str(entry.folder) if entry.state == "ok" else entry.state, entry.source
        rows.append((written(source.example), f"{sizes} x {entry.width}", ones, where, source.description))
    damaged = [entry.problem for entry in entries if entry.state == "damaged"]
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


def _describe(entry: Entry) -> None:
    """Print what is known of a data set, a line for each word."""
    from cbm_cli.datasets.spec import written

    source = entry.source
    lines = [("about", source.description), ("in a grid", f"data: {written(source.example)}")]
    lines += [(part, f"{rows:,} rows of {entry.width}") for part, rows in entry.rows.items()]
    lines.append(("ones", "not known without the files" if entry.ones is None else f"{entry.ones:.2%}"))
    words = ("source", "home", "cite", "licence", "remark") if source.forms else ("source",)
    lines += [(word, getattr(source, word)) for word in words if getattr(source, word)]
    lines.append(("state", entry.state))
    lines += [("file", f"{file.path or file.stem}: {file.verdict}") for file in entry.files]
    if entry.state == "missing":
        lines.append(("looked in", ", ".join(map(str, source.folders))))
    print_list(("name", source.name), lines)


@data.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME|all...")
def fetch(names: tuple[str, ...]) -> None:
    """Download published data sets.

    Files that are here and right are not downloaded again. Files go to the folder named by the environment
    variable CBM_DATA_DIR, or to the user's cache. An interrupted download starts again; complete files stay.
    """
    from cbm_cli.datasets.fetch import fetch, fetchable

    wanted = list(dict.fromkeys(one for name in names for one in (fetchable() if name == "all" else [name])))
    for name in wanted:
        if not _source(name).forms:
            raise CbmError(f"{name} is generated; it has no files")
    problems = []
    for name in wanted:  # one that fails does not stop the others
        try:
            folder, fetched = fetch(name, note)
            note(f"{name}: {'fetched into' if fetched else 'is here already:'} {folder}")
        except CbmError as error:
            problems.append(error)
    if problems:
        raise CbmError("\n".join(map(str, problems)))


def _source(name: str) -> DataSource:
    """Return a data set's record; CbmError, with a hint, if there is no such set."""
    from cbm_cli.datasets.published import SOURCES
    from cbm_cli.text import did_you_mean

    if name not in SOURCES:
        raise CbmError(f"data set {name!r} is unknown{did_you_mean(name, SOURCES)}")
    return SOURCES[name]
