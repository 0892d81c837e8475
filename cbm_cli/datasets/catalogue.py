"""Data sets by name: what there is, which options each takes, and loading one."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from math import prod
from pathlib import Path

import numpy as np

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.datasets.grey import BINARISE
from cbm_cli.datasets.idx import read_shape
from cbm_cli.datasets.mnist import mnist
from cbm_cli.datasets.own import own, title_of
from cbm_cli.datasets.places import folders
from cbm_cli.datasets.published import locate, published, rcv1_valid, web_reshuffled
from cbm_cli.datasets.sources import PUBLISHED
from cbm_cli.datasets.toys import bars_and_stripes, shifting_bar
from cbm_cli.errors import CbmError

_DEFAULTS = {"size": None, "bar": None, "binarise": "threshold", "threshold": 0.5}
_FILE_OPTIONS = ("valid", "test", "drop_last", "binarise", "threshold", "flip")


@dataclass(frozen=True)
class _Source:
    """How a data set comes into being: generated, or read from published files."""

    make: Callable[..., Dataset]
    description: str
    source: str
    required: dict[str, int]  # options without a default, with the paper's values
    optional: tuple[str, ...] = ()

    @property
    def options(self) -> tuple[str, ...]:
        return (*self.required, *self.optional)


def _from_files(name: str, description: str, source: str) -> dict[str, _Source]:
    return {name: _Source(partial(published, name), description, source, {})}


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
    ),
    **_from_files(
        "caltech101-silhouettes", "Outlines of objects, filled, 28 x 28 pixels", "Marlin et al. 2010"
    ),
    **_from_files("adult", "Census records", "UCI Adult; Platt"),
    **_from_files("connect4", "Positions of Connect-4, 42 cells by 3 states", "UCI Connect-4"),
    **_from_files("dna", "Splice junctions, 60 bases by 3 bits", "UCI splice junctions; Statlog"),
    **_from_files("mushrooms", "Descriptions of mushrooms", "UCI Mushroom"),
    **_from_files("nips", "Which of 500 words are in a NIPS paper, volumes 0 to 12", "Roweis"),
    **_from_files("ocr-letters", "Handwritten letters, 16 x 8 pixels", "Kassel; Taskar"),
    **_from_files("rcv1", "Which of 150 words are in a Reuters story", "Lewis et al. 2004"),
    **_from_files("web", "Words of web pages", "Platt"),
    "rcv1-valid": _Source(rcv1_valid, "A part of rcv1 that stands in for it", "Lewis et al. 2004", {}),
    "web-reshuffled": _Source(web_reshuffled, "web, its training part divided anew", "Platt", {}),
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
    name: str | None = None,
    *,
    size: int | None = None,
    bar: int | None = None,
    binarise: str | None = None,
    threshold: float = 0.5,
    path: str | None = None,
    valid: str | None = None,
    test: str | None = None,
    drop_last: bool = False,
) -> None:
    """Raise CbmError unless there is such a data set and the options are those that it takes.

    Reads no file; the values of the options are checked where they are used, by `load`.
    """
    given = {"size": size, "bar": bar, "binarise": binarise or "threshold", "threshold": threshold}
    of_files = {"valid": valid, "test": test, "drop_last": drop_last or None}
    title = name or (title_of(path) if path else "data")
    if path is None:
        _check_named(name, given, of_files)
    else:
        _check_own(title, named=name is not None, size=size, bar=bar)
    effective = _way(binarise, threshold, path)
    if effective != "threshold" and threshold != _DEFAULTS["threshold"]:
        raise CbmError(
            f"{title}: threshold says nothing where binarise is {effective}; leave one of them out"
        )


def _check_named(name: str | None, given: dict, of_files: dict) -> None:
    if name is None:
        raise CbmError("needs the name of a data set, or the path of a file, as in {path: rows.csv}")
    if name not in _SOURCES:
        close = get_close_matches(name, _SOURCES, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(_SOURCES)}"
        hint += f"; for a file write {{path: {name}}}" if Path(name).suffix and not close else ""
        raise CbmError(f"data set {name!r} is unknown; {hint}")
    source = _SOURCES[name]
    for option, value in given.items():
        if value is None and option in source.required:
            raise CbmError(f"{name} needs a {option}; write {_written(name)}")
        if value != _DEFAULTS[option] and option not in source.options:
            raise CbmError(f"{name} has no option {option}; it takes {', '.join((*source.options, 'flip'))}")
    for option, value in of_files.items():
        if value is not None:
            raise CbmError(f"{name} has no option {option}; that is for files of your own, beside path")


def _check_own(title: str, named: bool, **of_toys: int | None) -> None:
    if title in _SOURCES:
        remedy = "choose another name" if named else "add a name of your own, as in name: my-data"
        raise CbmError(f"{title} is the name of a data set that cbm knows; {remedy}")
    for option, value in of_toys.items():
        if value is not None:
            raise CbmError(
                f"{title} is read from a file and has no option {option}; it takes {', '.join(_FILE_OPTIONS)}"
            )


def _way(binarise: str | None, threshold: float, path: str | None) -> str:
    """Return what becomes of grey values: those of a user's own files are refused unless asked otherwise."""
    return binarise or ("threshold" if path is None or threshold != _DEFAULTS["threshold"] else "refuse")


def load(
    name: str | None = None,
    *,
    size: int | None = None,
    bar: int | None = None,
    flip: bool = False,
    binarise: str | None = None,
    threshold: float = 0.5,
    path: str | None = None,
    valid: str | None = None,
    test: str | None = None,
    drop_last: bool = False,
    hold_out: int | None = None,
    width: int | None = None,
    folder: str | Path = "",
    data_dir: str | Path | None = None,
) -> Dataset:
    """Return a data set by name, or one from a user's own files.

    Parameters
    ----------
    name : str, optional
        One of `names`; with ``path``: what to call the data set, by default the file's name.
    size, bar : int, optional
        Bars & Stripes: ``size`` is the side. Shifting Bar: ``size`` pixels of which ``bar`` are on.
    flip : bool
        Exchange zeros and ones (a probability becomes its complement), row by row.
    binarise, threshold
        What becomes of grey values; see `cbm_cli.datasets.grey.binarised`. Default: ``threshold`` for a
        named data set, ``refuse`` for files.
    path, valid, test : str, optional
        Files of the training and other parts, relative to ``folder``; see `cbm_cli.datasets.own.own`.
    drop_last : bool
        Leave the last column of the files out.
    hold_out : int, optional
        The last rows of the training part become the validation part, where there is none.
    width : int, optional
        Columns expected of the files; LIBSVM files may have fewer.
    folder : path
        What the paths are relative to.
    data_dir : path, optional
        Folder to look for files in, before the environment's ``CBM_DATA_DIR`` and the user's cache.

    Raises
    ------
    CbmError
        Unknown name, options that do not fit, files that are missing or damaged.
    """
    files = {"path": path, "valid": valid, "test": test, "drop_last": drop_last}
    check(name, size=size, bar=bar, binarise=binarise, threshold=threshold, **files)
    binarise = _way(binarise, threshold, path)
    if binarise not in BINARISE:
        raise CbmError(f"{name or path}: binarise {binarise!r} is unknown; write {', '.join(BINARISE)}")
    if path is not None:
        places = {"train": path, "valid": valid, "test": test}
        places = {part: Path(folder, place).expanduser() for part, place in places.items() if place}
        how = {"drop_last": drop_last, "binarise": binarise, "threshold": threshold, "width": width}
        dataset = own(places, name or title_of(path), **how)
    else:
        given = {"size": size, "bar": bar, "binarise": binarise, "threshold": threshold}
        options = {option: given[option] for option in _SOURCES[name].options}
        options |= {"data_dir": data_dir} if name in PUBLISHED else {}
        dataset = _SOURCES[name].make(**options)
    if hold_out:
        dataset = _held_out(dataset, hold_out)
    return flipped(dataset) if flip else dataset


def _held_out(dataset: Dataset, rows: int) -> Dataset:
    """The data set with its last training rows as validation part."""
    if dataset.valid is not None:
        raise CbmError(f"{dataset.name}: has a validation part already; leave hold_out away")
    if rows >= len(dataset.train):
        raise CbmError(f"{dataset.name}: has {len(dataset.train)} rows; hold_out must leave some to train on")
    train, valid = np.split(dataset.train, [len(dataset.train) - rows])
    return replace(dataset, train=train, valid=valid)


def flipped(dataset: Dataset) -> Dataset:
    """Return the data set with zeros and ones exchanged; what a model can reach stays the same."""
    parts = {name: dataset.levels - part for name, part in dataset.parts.items()}
    return replace(dataset, name=f"flipped-{dataset.name}", **parts)


def catalogue(data_dir: str | Path | None = None) -> list[Entry]:
    """Return what there is to know about every data set without unpacking a file."""
    return [_entry(name, source, data_dir) for name, source in _SOURCES.items()]


def _entry(name: str, source: _Source, data_dir: str | Path | None) -> Entry:
    about = (name, source.description, source.source, (*source.options, "flip"), _example(name))
    if name not in PUBLISHED:
        dataset = source.make(**source.required)
        rows = {part: len(values) for part, values in dataset.parts.items()}
        return Entry(*about, rows, dataset.width, float(np.mean(dataset.train)))
    known = PUBLISHED[name]
    folder, shapes, problem = None, known.shapes, None
    try:
        files = locate(name, data_dir)
        folder = next(iter(files.values())).parent
        if name == "mnist":
            shapes = {part: _rows_and_width(file) for part, file in files.items()}
    except CbmError as error:
        problem = str(error)
    rows = {part: shape[0] for part, shape in shapes.items()}
    ones = known.ones if shapes == known.shapes else None
    looked_in = tuple(folders(name, data_dir, known.folder))
    return Entry(*about, rows, shapes["train"][1], ones, folder, looked_in, problem)


def _rows_and_width(file: Path) -> tuple[int, int]:
    rows, *image = read_shape(file)
    return rows, prod(image)


def _example(name: str) -> dict[str, str | int]:
    return {"name": name, **_SOURCES[name].required}


def _written(name: str) -> str:
    return "{" + ", ".join(f"{option}: {value}" for option, value in _example(name).items()) + "}"
