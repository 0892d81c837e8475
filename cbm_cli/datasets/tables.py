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
_ANSWERS = ({"yes", "no"}, {"y", "n"}, {"t", "f"}, {"on", "off"})
_WITH_MARKS = re.compile(r"[+-]?[.,]?\d[\d.,' ]*%?")  # 0,3 or 1,000 or 10%
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


def units_for(data: Any, names: Names, width: int, there: str) -> Table:
    """Return the columns of a data frame that a machine has.

    Parameters
    ----------
    data : data frame
        If it has names, it may hold other columns too.
    names : tuple of str
        Names of the machine's visible units, if they have some.
    width : int
        The number of visible units.
    there : str
        The machine, for messages.
    """
    rows = rows_in_memory(data)
    columns = Columns("all")
    if names and rows.names:
        columns = Columns(units=names)
    return columns_in_order(table_of_rows(rows, columns), names, width, there)


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
    start = numbers.iloc[:3].to_numpy(np.float64, na_value=np.nan)
    empty = _empty_columns(frame, start)
    words = [*_word_columns(frame, numbers, objects), *empty]
    places = columns.places(
        rows.names,
        frame.shape[1],
        words=words,
        counting=_counting_columns(numbers, start),
        empty=empty,
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
    places = list(range(rows.frame.shape[1]))
    if names and rows.names:
        places = Columns(units=names).places(rows.names, len(places))
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


def columns_in_order(table: Table, wanted: Names, width: int, there: str) -> Table:
    """Return a table with its columns in the order of names; FieldError for other
    columns.

    Parameters
    ----------
    table : Table
        Without names on either side its order stays.
    wanted : tuple of str
        The names.
    width : int
        The number of columns that are needed.
    there : str
        What has the columns that are wanted.

    Examples
    --------
    >>> table = Table(np.array([[1, 2, 3]]), ("c", "a", "b"))
    >>> columns_in_order(table, ("a", "b", "c"), 3, "m.npz").values.tolist()
    [[2, 3, 1]]
    """
    names, columns = table.names, table.values.shape[1]
    if columns != width:
        raise FieldError(
            f"has {columns:,} columns, {there} has {width:,}; the same columns are "
            "needed"
        )
    if not names or not wanted or names == wanted:
        return replace(table, names=names or wanted)
    if sorted(names) != sorted(wanted) or len({*names}) < len(names):
        pairs = zip(names, wanted, strict=True)
        name, other = next((a, b) for a, b in pairs if a != b)
        raise FieldError(
            f"has the column {name} where {there} has {other}; the same columns are "
            "needed"
        )
    order = [names.index(name) for name in wanted]
    values = np.ascontiguousarray(table.values[:, order])
    return replace(table, values=values, names=wanted)


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


def _word_columns(
    frame: pd.DataFrame, numbers: pd.DataFrame, objects: Sequence[int]
) -> list[int]:
    """Return the columns that hold more text than numbers."""
    words = []
    for place in objects:
        known, filled = numbers.iloc[:, place].count(), frame.iloc[:, place].count()
        if 2 * known < filled:
            words.append(place)
    return words


def _empty_columns(frame: pd.DataFrame, start: NDArray) -> list[int]:
    """Return the columns that hold nothing but gaps; ``start`` are the first rows."""
    places = np.flatnonzero(np.isnan(start).all(axis=0)).tolist()
    return [place for place in places if frame.iloc[:, place].isna().all()]


def _counting_columns(numbers: pd.DataFrame, start: NDArray) -> list[int]:
    """Return the columns that count the rows, of three rows or more."""
    if len(start) < 3:
        return []
    steps = np.diff(start, axis=0)
    places = np.flatnonzero((steps == 1).all(axis=0)).tolist()
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
    """Return the places of values that are not finite numbers, and the remedies."""
    units = rows.frame.iloc[:, list(places)]
    lost = units.isna().to_numpy()
    odd = ~finite & ~lost
    titles = [_title(rows, place) for place in places]
    parts = []
    for column in np.flatnonzero(odd.any(axis=0))[:SHOWN].tolist():
        row = int(odd[:, column].argmax())
        entry = shortened(str(units.iat[row, column]))
        parts.append(f"{rows.at(row)}, {titles[column]} is {entry}, no finite number")
    is_word = np.isin(places, list(words))
    if odd[:, ~is_word].any():
        parts.append(
            _remedy_for_lines(rows, units.to_numpy()[:, ~is_word], odd[:, ~is_word])
        )
    if is_word.any():
        parts += _remedies_for_words(rows, places, words)
    gaps = np.argwhere(lost & (~is_word | lost.all(axis=0)))
    if len(gaps):
        shown = [f"{rows.at(row)}, {titles[column]}" for row, column in gaps[:SHOWN]]
        listed = "; ".join(shown)
        if len(gaps) > SHOWN:
            listed += f" and {len(gaps) - SHOWN:,} more"
        with_gaps = len({*gaps[:, 0].tolist()})
        parts.append(f"{count(len(gaps), 'gap')}, in {listed}")
        parts.append(
            f"fill gaps, or leave out the rows that have some ({with_gaps:,} of "
            f"{len(lost):,}), as pandas.DataFrame.dropna does"
        )
    return "; ".join(parts)


def _title(rows: Rows, place: int) -> str:
    name = rows.names[place] if rows.names else ""
    return f"column {place + 1} ({name})" if name else f"column {place + 1}"


def _remedy_for_lines(rows: Rows, entries: NDArray, odd: NDArray) -> str:
    """Return what to do with lines of words or infinite numbers in columns of
    numbers.
    """
    lines = np.flatnonzero(odd.any(axis=1)).tolist()
    if len(lines) > 1:
        return "write numbers there, or remove such lines"
    line = rows.at(lines[0])
    words = "".join(str(entry) for entry in entries[odd])
    if lines != [0] or not line.startswith("line") or re.search(r"\d|inf", words):
        return f"write numbers in {line}, or remove it"
    if rows.names:
        return f"does {line} hold units of measurement? remove it, or write numbers"
    return f"does {line} hold names? write header: true, or remove it"


def _remedies_for_words(
    rows: Rows, places: Sequence[int], words: Collection[int]
) -> list[str]:
    """Return what to do with columns of words among those that are units."""
    width = rows.frame.shape[1]
    answers, figures, others = set[str](), False, list[str]()
    for place in places:
        if place not in words:
            continue
        column = rows.frame.iloc[:, place].dropna().astype(str).str.lower()
        entries = {*column.unique()}
        if entries in _ANSWERS:
            answers |= entries
        elif entries and all(_WITH_MARKS.fullmatch(entry) for entry in entries):
            figures = True
        else:
            others.append(written_as(place, rows.names, width))
    remedies = []
    if others and len(others) < len(places):
        remedies.append(
            f"leave out columns that are not units by drop: [{as_line(others)}]"
        )
    elif others:
        remedies.append("write numbers, as 0 and 1")
    if figures:
        remedies.append(
            "write numbers with a decimal point, as 0.3 or 1000, without commas, % or "
            "other marks"
        )
    if answers:
        remedies.append(f"write numbers, as 0 and 1, for {', '.join(sorted(answers))}")
    return remedies
