"""Data sets by name: what there is, which options each takes, and loading one."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from math import prod
from pathlib import Path

import numpy as np

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.datasets.idx import read_shape
from cbm_cli.datasets.mnist import SHAPES, image_files, mnist
from cbm_cli.datasets.places import folders
from cbm_cli.datasets.toys import bars_and_stripes, shifting_bar
from cbm_cli.errors import CbmError

_DEFAULTS = {"size": None, "bar": None, "binarise": "threshold", "threshold": 0.5}


@dataclass(frozen=True)
class _Source:
    """How a data set comes into being: generated, or made from ``files``."""

    make: Callable[..., Dataset]
    description: str
    source: str
    required: dict[str, int]  # options without a default, with the paper's values
    optional: tuple[str, ...] = ()
    files: Callable[[str | Path | None], dict[str, Path]] | None = None  # data_dir -> file of each part
    shapes: dict[str, tuple[int, int]] | None = None  # (rows, width) of the published files
    ones: float | None = None  # share in the published files

    @property
    def options(self) -> tuple[str, ...]:
        return (*self.required, *self.optional)


_SOURCES = {
    "bars-and-stripes": _Source(
        bars_and_stripes,
        "Squares whose rows, or whose columns, are uniform: 2^(size+1) rows, the uniform ones twice",
        "MacKay 2003",
        {"size": 3},
    ),
    "shifting-bar": _Source(
        shifting_bar,
        "A bar of `bar` pixels at each of `size` places, wrapping around",
        "Melchior, Fischer & Wiskott 2016",
        {"size": 9, "bar": 1},
    ),
    "mnist": _Source(
        mnist,
        "Handwritten digits, 28 x 28 pixels",
        "LeCun, Cortes & Burges 1998",
        {},
        ("binarise", "threshold"),
        files=image_files,
        shapes=SHAPES,
        ones=0.13254,  # train 0.13226, test 0.13423, at threshold 0.5
    ),
}


@dataclass(frozen=True)
class Entry:
    """One data set of the catalogue, as the paper uses it.

    Attributes
    ----------
    name, description, source : str
        What a grid calls it, what it is, and where it comes from.
    options : tuple of str
        Fields of ``data:`` that it takes beside ``name`` and ``flip``.
    example : dict
        What to write under ``data:`` in a grid.
    rows : dict
        Number of rows by part.
    width : int
        Visible units.
    ones : float or None
        Share of ones in all parts; None where it is not known without reading the files.
    folder : pathlib.Path or None
        Where its files are; None for a generated or a missing data set.
    looked_in : tuple of pathlib.Path
        Folders in which its files are looked for; empty for a generated data set.
    problem : str or None
        Why it cannot be loaded here; None if it can.
    """

    name: str
    description: str
    source: str
    options: tuple[str, ...]
    example: dict[str, str | int]
    rows: dict[str, int]
    width: int
    ones: float | None
    folder: Path | None = None
    looked_in: tuple[Path, ...] = ()
    problem: str | None = None

    @property
    def present(self) -> bool:
        """Whether it can be loaded here and now."""
        return self.problem is None


def names() -> list[str]:
    """Return the names that ``load`` knows."""
    return list(_SOURCES)


def check(
    name: str,
    *,
    size: int | None = None,
    bar: int | None = None,
    binarise: str = "threshold",
    threshold: float = 0.5,
) -> None:
    """Raise CbmError unless there is such a data set and the options are those that it takes.

    Reads no file; the values of the options are checked where they are used, by `load`.
    """
    if name not in _SOURCES:
        close = get_close_matches(name, _SOURCES, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(_SOURCES)}"
        raise CbmError(f"data set {name!r} is unknown; {hint}")
    source = _SOURCES[name]
    given = {"size": size, "bar": bar, "binarise": binarise, "threshold": threshold}
    for option, value in given.items():
        if value is None and option in source.required:
            raise CbmError(f"{name} needs a {option}; write {_written(name)}")
        if value != _DEFAULTS[option] and option not in source.options:
            takes = ", ".join((*source.options, "flip"))
            raise CbmError(f"{name} has no option {option}; it takes {takes}")
    if binarise != "threshold" and threshold != _DEFAULTS["threshold"]:
        raise CbmError(f"{name}: threshold says nothing where binarise is {binarise}; leave one of them out")


def load(
    name: str,
    *,
    size: int | None = None,
    bar: int | None = None,
    flip: bool = False,
    binarise: str = "threshold",
    threshold: float = 0.5,
    data_dir: str | Path | None = None,
) -> Dataset:
    """Return a data set by name.

    Parameters
    ----------
    name : str
        One of `names`.
    size, bar : int, optional
        Bars & Stripes: ``size`` is the side. Shifting Bar: ``size`` pixels of which ``bar`` are on.
    flip : bool
        Exchange zeros and ones (a probability becomes its complement), row by row.
    binarise, threshold
        What becomes of grey values; see `cbm_cli.datasets.mnist.mnist`.
    data_dir : path, optional
        Folder to look for files in, before the environment's ``CBM_DATA_DIR`` and the user's cache.

    Raises
    ------
    CbmError
        Unknown name, options that do not fit, files that are missing or damaged.
    """
    given = {"size": size, "bar": bar, "binarise": binarise, "threshold": threshold}
    check(name, **given)
    source = _SOURCES[name]
    options = {option: given[option] for option in source.options}
    if source.files:
        options["data_dir"] = data_dir
    dataset = source.make(**options)
    return flipped(dataset) if flip else dataset


def flipped(dataset: Dataset) -> Dataset:
    """Return the data set with zeros and ones exchanged; what a model can reach stays the same."""
    parts = {name: dataset.levels - part for name, part in dataset.parts.items()}
    return replace(dataset, name=f"flipped-{dataset.name}", **parts)


def catalogue(data_dir: str | Path | None = None) -> list[Entry]:
    """Return what there is to know about every data set without unpacking a file."""
    return [_entry(name, source, data_dir) for name, source in _SOURCES.items()]


def _entry(name: str, source: _Source, data_dir: str | Path | None) -> Entry:
    about = (name, source.description, source.source, (*source.options, "flip"), _example(name))
    if source.files is None:
        dataset = source.make(**source.required)
        rows = {part: len(values) for part, values in dataset.parts.items()}
        return Entry(*about, rows, dataset.width, float(np.mean(dataset.train)))
    folder, shapes, problem = None, source.shapes, None
    try:
        files = source.files(data_dir)
        folder = files["train"].parent
        shapes = {part: _rows_and_width(file) for part, file in files.items()}
    except CbmError as error:
        problem = str(error)
    rows = {part: shape[0] for part, shape in shapes.items()}
    ones = source.ones if shapes == source.shapes else None
    looked_in = tuple(folders(name, data_dir))
    return Entry(*about, rows, shapes["train"][1], ones, folder, looked_in, problem)


def _rows_and_width(file: Path) -> tuple[int, int]:
    rows, *image = read_shape(file)
    return rows, prod(image)


def _example(name: str) -> dict[str, str | int]:
    return {"name": name, **_SOURCES[name].required}


def _written(name: str) -> str:
    return "{" + ", ".join(f"{option}: {value}" for option, value in _example(name).items()) + "}"
