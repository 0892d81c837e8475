"""Rows to evaluate a machine on: a named data set, or a file of anyone's."""

from pathlib import Path

import numpy as np

from cbm_cli.datasets.catalogue import load, names
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError


def load_rows(source: str, part: str = "train", width: int | None = None) -> tuple[np.ndarray, float]:
    """Return rows (n, width) uint8 and the value of one of their levels.

    Parameters
    ----------
    source : str
        A data set, as ``mnist`` or ``shifting-bar:size=9,bar=1,flip=true``; or the path of a file of any
        form that a grid takes, as ``rows.csv`` or ``grey.npy:binarise=threshold``.
    part : str
        Part of the data set: train, valid or test. A file of a single array is taken for any of them.
    width : int, optional
        Visible units of the machine; rows of a LIBSVM file are filled up to it.

    Raises
    ------
    CbmError
        When there is no such set, part or file, or the file holds something else than zeros and ones.
    """
    data = load_source(source, width)
    if _file_of(source)[0] and len(data.parts) == 1:
        part = "train"
    if part not in data.parts:
        raise CbmError(f"--data {source}: has no part {part}; it has {', '.join(data.parts)}")
    return data.parts[part], 1 / data.levels


def load_source(source: str, width: int | None = None) -> Dataset:
    """Return the data set that ``source`` names, all parts of it; arguments and errors of `load_rows`."""
    path, options = _file_of(source)
    return load(path=path, width=width, **_options(source, options)) if path else _named(source)


def _file_of(source: str) -> tuple[str, str]:
    """Return the path of a file and the options after it; no path where a data set is named."""
    path, _, options = (source, "", "") if Path(source).is_file() else source.rpartition(":")
    return (path, options) if Path(path).is_file() else ("", "")


def _named(source: str) -> Dataset:
    name, _, options = source.partition(":")
    if name not in names():
        raise CbmError(f"--data {source}: no such file, nor a data set; data sets are {', '.join(names())}")
    return load(name, **_options(source, options))


def _options(source: str, text: str) -> dict:
    kinds = {
        "size": int,
        "bar": int,
        "flip": lambda word: word == "true",
        "binarise": str,
        "threshold": float,
    }
    options = {}
    for item in filter(None, text.split(",")):
        key, _, value = item.partition("=")
        try:
            options[key] = kinds[key](value)
        except (KeyError, ValueError):
            raise CbmError(
                f"--data {source}: cannot read {item!r}; write it as in shifting-bar:size=9,bar=1"
            ) from None
    return options
