"""The data sets that cbm knows, read from published.yaml, and where the files of
published ones are.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from difflib import get_close_matches
from os.path import expanduser
from pathlib import Path

import msgspec
from platformdirs import user_cache_path

from cbm_cli.datasets.dataset import Image

VARIABLE = "CBM_DATA_DIR"  # environment variable: a folder of data

_ELSEWHERE: ContextVar[Path | None] = ContextVar("elsewhere", default=None)


@contextmanager
def data_in(folder: Path | None) -> Iterator[None]:
    """Look for the files of all data sets in a folder, as where results are read on
    another computer.

    A user's own files are there under the path that the grid gives, if it is relative,
    or under their name.
    """
    before = _ELSEWHERE.set(folder)
    try:
        yield
    finally:
        _ELSEWHERE.reset(before)


def own_file(folder: str | Path, name: str) -> Path:
    """Return where a file of a user's own is: below the folder of its grid, or as
    `data_in` says.
    """
    elsewhere, path = _ELSEWHERE.get(), Path(folder, expanduser(name))
    if elsewhere is None:
        return path
    below = elsewhere / name
    if below.is_file() and not Path(name).is_absolute():
        return below
    return elsewhere / path.name


def near(path: Path) -> str:
    """Return ``; did you mean NAME?`` for a file that is not there, if its folder has
    one like it.
    """
    names = [file.name for file in path.parent.glob("*")]
    close = get_close_matches(path.name, names, 1)
    return f"; did you mean {path.with_name(close[0])}?" if close else ""


@dataclass(frozen=True)
class File:
    """A published file, plain or gzipped."""

    stem: str  # its name without .gz
    part: str = ""  # the part it holds; empty: all of them
    checksums: tuple[str, ...] = ()  # of the content after gunzip; any one is right
    urls: tuple[str, ...] = ()


@dataclass(frozen=True)
class DataSource:
    """The record of a data set; see the head of published.yaml."""

    name: str
    description: str
    source: str
    # toy sets: example, least and most
    options: dict[str, dict[str, int]] = field(default_factory=dict)
    grey: bool = False  # takes binarise and threshold
    rows: dict[str, int] = field(default_factory=dict)
    width: int = 0
    ones: float | None = None
    image: Image | None = None
    folder: str = ""
    forms: tuple[tuple[File, ...], ...] = ()
    divide: str = ""
    shuffle: int | None = None
    home: str = ""
    cite: str = ""
    licence: str = "none stated"
    remark: str = ""

    @property
    def downloads(self) -> tuple[tuple[File, ...], ...]:
        """The forms that have addresses."""
        return tuple(form for form in self.forms if all(file.urls for file in form))

    @property
    def written(self) -> str:
        """What to write under ``data:`` in a grid: ``mnist``, or ``{name:
        bars-and-stripes, size: 3}``.
        """
        if not self.options:
            return self.name
        fields = [f"name: {self.name}"]
        for option, limits in self.options.items():
            fields.append(f"{option}: {limits['example']}")
        return f"{{{', '.join(fields)}}}"

    @property
    def folders(self) -> list[Path]:
        """Folders in which the files are looked for, first choice first.

        ``CBM_DATA_DIR`` and the user's cache count three times each: a folder with the
        set's name, the folder that `cbm data fetch` fills, and the folder itself.
        """
        candidates = (
            _ELSEWHERE.get(),
            os.environ.get(VARIABLE),
            user_cache_path("cbm") / "data",
        )
        folders = list[Path]()
        for root in candidates:
            if not root:
                continue
            place = Path(expanduser(root))
            folders += [place / self.name, place / self.folder, place]
        return list(dict.fromkeys(folders))

    def locate(self) -> dict[File, Path | None]:
        """Return where the files of a form are: of the first form that is complete,
        else of the first one; no files of a set that is generated.
        """
        forms = []
        for form in self.forms:
            paths = {file: find(self.folders, file.stem) for file in form}
            if all(paths.values()):
                return paths
            forms.append(paths)
        return forms[0] if forms else {}

    def lacking(self) -> str:
        """Return why the data set cannot be loaded; else ``""``."""
        stems = [file.stem for file, path in self.locate().items() if not path]
        if not stems:
            return ""
        folders = ", ".join(str(folder) for folder in self.folders)
        return (
            f"{self.name}: none of the folders {folders} holds {', '.join(stems)} (or "
            f".gz); `cbm data fetch {self.name}` gets it; or put it there, or name its "
            f"folder in {VARIABLE}"
        )


def find(folders: Iterable[Path], stem: str) -> Path | None:
    """Return the first file ``stem`` or ``stem.gz`` in folders, the plain one first;
    None without either.
    """
    for folder in folders:
        for name in (stem, f"{stem}.gz"):
            if (folder / name).is_file():
                return folder / name
    return None


_ENTRIES = msgspec.yaml.decode(Path(__file__).with_suffix(".yaml").read_bytes())
SOURCES = {
    name: msgspec.convert({"name": name} | entry, DataSource)
    for name, entry in _ENTRIES.items()
}
