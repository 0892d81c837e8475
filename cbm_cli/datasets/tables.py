"""Rows as numbers: the columns that are units, and entries that are not numbers."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from math import prod
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import issparse

from cbm_cli.arrays import check_size
from cbm_cli.datasets.columns import Columns, as_line, written_as
from cbm_cli.datasets.dataset import Image, Names
from cbm_cli.datasets.delimited import TRUTH, Rows
from cbm_cli.errors import FieldError
from cbm_cli.text import count, shortened

# share of the scale that a value may be beyond its ends, by errors of rounding
NOISE = 1e-6
ALL = Columns()
SHOWN = 10  # gaps, or other flaws, that a message lists
_NUMERIC = "buif"  # kinds of NumPy's types
# Words that are values of units: yes, 0,3 or 1,000 or 10%
_VALUE = re.compile(r"yes|no|[yntf]|on|off|[+-]?[.,]?\d[\d.,' ]*%?", re.IGNORECASE)
_TOTAL = re.compile(
    r"(grand |sub-?)?totals?|sum|mean|average|summe|gesamt", re.IGNORECASE
)


@dataclass(frozen=True)
class Table:
    """Rows of finite numbers."""

    # (rows, width): uint8 if all are whole numbers from 0 to 255, else float64
    values: NDArray
    names: Names = ()
    image: Image | None = None  # how to draw a row, where that is known
    # columns of zeros may follow: a LIBSVM file is as wide as its largest index
    sparse: bool = False
    is_text: bool = False  # of which the first line may hold names
    is_bytes: bool = False  # of uint8, as it was stored
    where: str = ""  # the file, or what else messages call it


def table_of(data: Any, columns: Columns = ALL) -> Table:
    """Return the units of a data frame, a sparse matrix, or an array.

    Arrays may be pictures (n, height, width). Data frames of other libraries turn
    themselves into those of pandas.

    Examples
    --------
    >>> frame = pd.DataFrame({"id": [7, 9], "a": [0, 1], "b": [True, False]})
    >>> table = table_of(frame, Columns(dropped="id"))
    >>> table.names, table.values.tolist()
    (('a', 'b'), [[0, 1], [1, 0]])
    """
    return table_of_rows(rows_of(data), columns)


def rows_of(data: Any) -> Rows:
    """Return the rows of a data frame, a sparse matrix or an array, with gaps and text.

    FieldError for anything else.
    """
    if hasattr(data, "to_pandas"):
        try:
            data = data.to_pandas()
        except ImportError as error:
            raise FieldError(
                f"{error}; pip install pyarrow, or pass a data frame of pandas"
            ) from None
    if isinstance(data, pd.DataFrame):
        return Rows(data, [str(name) for name in data.columns])
    if np.ma.is_masked(data):
        data = data.astype(np.float64).filled(np.nan)
    if issparse(data):
        data = _dense(data)
    array, image = np.asarray(data), None
    if array.ndim == 2 and array.dtype == object:  # as lists with None
        return Rows(pd.DataFrame(array), [])
    sides = [length for length in array.shape[1:] if length > 1]
    if array.ndim > 2 and array.size and len(sides) < 3:  # without channels
        array = array.reshape(len(array), -1)
        if len(sides) == 2:
            image = Image(*sides)
    if array.ndim != 2 or array.dtype.kind not in _NUMERIC:
        kind = type(data).__name__
        raise FieldError(
            f"holds {kind} of {array.dtype} of shape {array.shape}; expected rows and "
            "columns of numbers"
        )
    return Rows(pd.DataFrame(array), [], image)


def rows_in_memory(data: Any) -> Rows:
    """Return rows of a caller; numbers that pandas gives to columns without names are
    no names.

    Examples
    --------
    >>> rows_in_memory([[1, None], [pd.NA, 0]]).frame.isna().to_numpy().tolist()
    [[False, True], [True, False]]
    >>> rows_in_memory(pd.DataFrame([[1, 0]])).names
    []
    """
    rows = rows_of(data)
    numbered = isinstance(getattr(data, "columns", None), pd.RangeIndex)
    return replace(rows, names=[]) if numbered else rows


def units_for(data: Any, names: Names) -> NDArray:
    """Return the columns of a data frame that a machine has, which may have names."""
    return table_of_rows(rows_in_memory(data), Columns("all", units=names)).values


def table_of_rows(rows: Rows, columns: Columns = ALL) -> Table:
    """Return the columns of rows that are units; FieldError for values that are no
    finite numbers.
    """
    frame = rows.frame
    if frame.empty:
        raise FieldError("holds no rows")
    objects = [
        place for place, kind in enumerate(frame.dtypes) if kind.kind not in _NUMERIC
    ]
    numbers = frame.apply(as_numbers) if objects else frame
    _check_last_row(rows, objects)
    filled = np.maximum(frame.count(), 1)
    words = np.flatnonzero(2 * numbers.count() < filled).tolist()
    places = columns.places(
        rows.names,
        frame.shape[1],
        words=words,
        counting=_counting_columns(numbers),
    )
    all_columns = places == list(range(frame.shape[1]))
    units = numbers if all_columns else numbers.iloc[:, places]
    values = units.to_numpy()
    names = tuple(rows.names[place] for place in places) if rows.names else ()
    return Table(
        np.ascontiguousarray(_as_bytes(values, units, rows, places, words)),
        names,
        rows.image if all_columns else None,
        is_bytes=values.dtype == np.uint8,
    )


def given_values(rows: Rows, names: Names) -> NDArray[np.float64]:
    """Return rows whose unknown units are NaN.

    Parameters
    ----------
    rows : Rows
        Rows of numbers and gaps; FieldError for words.
    names : tuple of str
        Names of a machine's units. Columns with names are put into this order; others
        are left out.
    """
    columns = Columns("all", units=names)
    places = columns.places(rows.names, rows.frame.shape[1])
    entries = rows.frame.iloc[:, places]
    values = entries.apply(as_numbers)
    words = np.argwhere((values.isna() & entries.notna()).to_numpy())
    if len(words):
        row, column = words[0]
        raise FieldError(
            f"{rows.at(row)}, column {places[column] + 1}: {entries.iat[row, column]} "
            "is no number; leave it empty, and it is sampled"
        )
    return values.to_numpy(np.float64, na_value=np.nan)


def as_numbers(column: pd.Series) -> pd.Series:
    """Return a column as numbers, NaN where there are none.

    Examples
    --------
    >>> as_numbers(pd.Series(["0.5", True, "x", None])).tolist()
    [0.5, 1.0, nan, nan]
    """
    if column.dtype.kind in _NUMERIC:
        return column
    return pd.to_numeric(column.astype(object).map(_number_in), errors="coerce")


def _number_in(entry: Any) -> Any:
    if isinstance(entry, str):
        return TRUTH.get(entry.lower(), entry)
    if isinstance(entry, Real | Decimal | np.bool_):  # dates are numbers to pandas
        return float(entry)
    return np.nan


def _dense(matrix: Any) -> NDArray:
    """Return a sparse matrix as an array; a damaged one would write to memory that is
    not its own.
    """
    check_size(prod(matrix.shape) * matrix.dtype.itemsize)
    if hasattr(matrix, "check_format"):
        matrix.check_format(full_check=True)
        # which is not checked of matrices that say they are empty
        if (np.diff(matrix.indptr) < 0).any():
            raise ValueError("a sparse matrix whose columns overlap")
    return matrix.toarray()


def _check_last_row(rows: Rows, objects: Sequence[int]) -> None:
    """Raise FieldError if the last row is one of sums, not of data."""
    frame = rows.frame
    last = len(frame) - 1
    for place in objects:
        entry = frame.iat[last, place]
        if not isinstance(entry, str) or not _TOTAL.fullmatch(entry.strip()):
            continue
        if (frame.iloc[:, place] == entry).sum() == 1:
            raise FieldError(
                f"{rows.at(last)} is {entry.strip()}; sums and means of rows are no "
                "row; remove it"
            )


def _counting_columns(numbers: pd.DataFrame) -> list[int]:
    """Return the columns that count the rows, of three rows or more."""
    start = numbers.iloc[:3].to_numpy(np.float64, na_value=np.nan)
    if len(start) < 3:
        return []
    places = np.flatnonzero((np.diff(start, axis=0) == 1).all(axis=0)).tolist()
    return [n for n in places if (np.diff(numbers.iloc[:, n]) == 1).all()]


def _as_bytes(
    values: NDArray,
    units: pd.DataFrame,
    rows: Rows,
    places: Sequence[int],
    words: Collection[int],
) -> NDArray:
    """Return values in uint8 if all are whole numbers from 0 to 255, else in float64;
    FieldError for values that are not finite.
    """
    if values.dtype.kind in "bui" and values.min() >= 0 and values.max() <= 255:
        return values.astype(np.uint8)  # a copy, not the caller's array
    values = units.to_numpy(np.float64, na_value=np.nan)
    finite = np.isfinite(values)
    if not finite.all():
        raise FieldError(_flaws(rows, places, words, finite))
    with np.errstate(invalid="ignore"):
        whole = np.rint(values).astype(np.uint8)
    noise = NOISE * max(1.0, float(whole.max()))
    near_whole = np.abs(values - whole).max() <= noise
    return whole if near_whole else values


def _flaws(
    rows: Rows, places: Sequence[int], words: Collection[int], finite: NDArray
) -> str:
    """Return the first place in each column of what is no finite number, and what to
    do.
    """
    units = rows.frame.iloc[:, list(places)]
    is_gap = units.isna().to_numpy()
    flaws = list[str]()
    for column in np.flatnonzero(~finite.all(axis=0))[:SHOWN].tolist():
        row = int(finite[:, column].argmin())
        entry = shortened(str(units.iat[row, column]))
        if is_gap[row, column]:
            entry = "a gap"
        flaws.append(f"{rows.at(row)}, {_title(rows, places[column])} is {entry}")
    not_units = [
        place for place in places if place in words and _is_no_unit(rows, place)
    ]
    if len(not_units) == len(places):
        not_units = []
    remedies = list[str]()
    if not_units:
        width = rows.frame.shape[1]
        listed = as_line(written_as(place, rows.names, width) for place in not_units)
        remedies.append(f"leave out columns that are not units by drop: [{listed}]")
    is_unit = ~np.isin(places, not_units)
    if (~finite & ~is_gap)[:, is_unit].any():
        remedies.append(
            "write numbers, as 0, 1, 0.3 or 1000, without commas, % or other marks: "
            "0.3 for 0,3, and 1 and 0 for yes and no; remove lines of names (or write "
            "header: true), sums or units of measurement"
        )
    with_gaps = np.count_nonzero(is_gap[:, is_unit].any(axis=1))
    if with_gaps:
        gaps = count(int(is_gap[:, is_unit].sum()), "gap")
        remedies.append(
            f"fill the {gaps}, or leave out the rows that have some ({with_gaps:,} of "
            f"{len(units):,}), as pandas.DataFrame.dropna does"
        )
    return f"no finite numbers: {'; '.join([*flaws, *remedies])}"


def _is_no_unit(rows: Rows, place: int) -> bool:
    """Whether a column of words holds others than values of units."""
    words = rows.frame.iloc[:, place].dropna().unique()
    return not len(words) or not all(_VALUE.fullmatch(str(word)) for word in words)


def _title(rows: Rows, place: int) -> str:
    name = rows.names[place] if rows.names else ""
    return f"column {place + 1} ({name})" if name else f"column {place + 1}"
