"""Rows of which some entries are given and the others are to be sampled."""

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cbm_cli.datasets.dataset import DataError
from cbm_cli.datasets.formats import arrays_of, unpacked

_OPEN = ("", "?", "nan")  # entries that are not given


def read_given(path: Path) -> NDArray[np.float64]:
    """Return the rows of a file, NaN where nothing is given: text (empty entries, ``?``), NPY or NPZ (NaN).

    Commas, semicolons, tabs, bars or blanks separate entries of text; a first line without numbers is left
    out.
    """
    content = unpacked(path)
    arrays = arrays_of(path, content)
    if arrays is not None:
        if len(arrays) > 1 or next(iter(arrays.values())).dtype.kind not in "buif":
            raise DataError(
                f"{path}: holds {', '.join(arrays)}; one array of numbers is needed", None, "missing"
            )
        return next(iter(arrays.values())).astype(np.float64)
    lines = [
        re.split("[,;\t|]", line) if re.search("[,;\t|]", line) else line.split()
        for line in content.decode("utf-8-sig", "replace").splitlines()
        if line.strip()
    ]
    rows = [[_entry(text.strip()) for text in line] for line in lines]
    if rows and all(value is None for value in rows[0]) and {*map(str.strip, lines[0])} - {*_OPEN}:
        del rows[0], lines[0]
    for number, (row, line) in enumerate(zip(rows, lines, strict=True), 1):
        for column, value in enumerate(row):
            if value is None:
                told = f"{line[column].strip()!r} is no number; leave it empty, and it is sampled"
                raise DataError(f"{path}: row {number}, column {column + 1}: {told}")
        if len(row) != len(rows[0]):
            raise DataError(
                f"{path}: row {number} has {len(row)} entries, the first one {len(rows[0])}", None, "conflict"
            )
    if not rows:
        raise DataError(f"{path}: holds no rows", None, "missing")
    return np.array(rows, np.float64)


def _entry(text: str) -> float | None:
    """Return the number that a text says, NaN of an open entry, None of another text."""
    try:
        return float("nan" if text.lower() in _OPEN else text)
    except ValueError:
        return None
