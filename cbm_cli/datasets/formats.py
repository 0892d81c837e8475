"""Rows in the forms that people keep them in: files, known by their content, data
frames and arrays.
"""

import gzip
import io
import re
import struct
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from math import prod
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.io import loadmat, whosmat
from scipy.sparse import csr_array, issparse

from cbm_cli.arrays import (
    MOST_BYTES,
    check_size,
    content_of,
    located,
    npz_headers,
    read_npy,
    read_npz,
)
from cbm_cli.datasets.columns import Columns, as_line, written_as
from cbm_cli.datasets.dataset import PARTS, Image, Names
from cbm_cli.datasets.delimited import TRUTH, Rows, read_text
from cbm_cli.datasets.published import near
from cbm_cli.errors import CbmError, FieldError
from cbm_cli.text import count, harmless, shortened

# share of the scale that a value may be beyond its ends, by errors of rounding
NOISE = 1e-6
ALL = Columns()
# columns of a LIBSVM file; a larger index is a damaged file, and would not fit in
# memory
_WIDEST = 1_000_000
_LIBSVM = re.compile(
    rb"^[ \t]*(?:[^\s:,;#]+[ \t]+)?\d+:[^\s,;]*(?:[ \t]+\S*:\S*)*[ \t]*(?:#.*)?$", re.M
)
_MAT_TYPES = {
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    9,
    12,
    13,
    14,
    16,
    17,
    18,
}  # of numbers, text and arrays
_SHOWN = 10  # gaps, or other flaws, that a message lists


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
    where: str = ""  # the file, or what else messages call it


@contextmanager
def reading(where: Path | str, field: str | None = None) -> Iterator[None]:
    """Turn every error into one FieldError of one line that begins with ``where``."""
    try:
        with located(where, "data"):
            yield
    except CbmError as error:
        told = harmless(str(error), kept="")
        raise FieldError(
            told, getattr(error.__context__, "field", "") or field or ""
        ) from None


def unpacked(path: Path) -> bytes:
    """Return the content of a file, after gunzip where it is packed; errors are for
    `reading` to locate.
    """
    if not path.exists():
        raise FieldError(f"no such file{near(path)}")
    content = content_of(path)
    if content.startswith(b"\x1f\x8b"):
        with located("", "gzip"), gzip.open(io.BytesIO(content)) as stream:
            content = stream.read(MOST_BYTES + 1)
        check_size(len(content))
    if not content:
        raise FieldError("is empty")
    return content


def tables_in(
    data: Any, columns: Columns = ALL, header: bool | None = None
) -> dict[str, Table]:
    """Return tables with some columns, one under the name ``""`` or one per part.

    ``data`` is the content of a file, in bytes, or what `table_of` takes.
    """
    if arrays := _arrays_in(data) if isinstance(data, bytes) else {"": data}:
        return {part: table_of(array, columns) for part, array in arrays.items()}
    if _LIBSVM.search(text := _text_of(data)):
        return {"": _libsvm(text, columns)}
    return {"": replace(_table(read_text(text, header), columns), is_text=True)}


def read_given(path: Path, names: Names = (), there: str = "") -> NDArray[np.float64]:
    """Return the rows of a file, NaN for unknown units: text (empty or ``?``), NPY or
    NPZ (NaN).

    Columns with names are put into the order of ``names``, which ``there`` has.
    """
    with reading(path):
        content = unpacked(path)
        if len(arrays := _arrays_in(content)) > 1:
            raise FieldError(f"holds {', '.join(arrays)}; one array is needed")
        try:
            rows = (
                _rows_of(*arrays.values()) if arrays else read_text(_text_of(content))
            )
        except FieldError as doubt:
            if doubt.field != "header":
                raise
            rows = read_text(_text_of(content), header=False)
        values = rows.frame.apply(_numbers)
        for row, column in np.argwhere((values.isna() & rows.frame.notna()).to_numpy())[
            :1
        ].tolist():
            told = (
                f"{rows.at(row)}, column {column + 1}: "
                f"{rows.frame.iat[row, column]} is no number"
            )
            raise FieldError(f"{told}; leave it empty, and it is sampled")
        table = Table(values.to_numpy(np.float64, na_value=np.nan), tuple(rows.names))
        if names and rows.names:
            table = columns_in_order(table, names, len(names), there)
        return table.values


def columns_in_order(table: Table, wanted: Names, width: int, there: str) -> Table:
    """Return a table with its columns in the order of the names ``wanted``; FieldError
    for other columns.

    Without names on either side the order stays, and the number of columns has to be
    ``width``. ``there`` is what has the columns that are wanted.
    """
    found, differ = table.names, "the same columns are needed"
    if table.values.shape[1] != width:
        raise FieldError(
            f"has {table.values.shape[1]:,} columns, {there} has {width:,}; {differ}"
        )
    if not found or not wanted or found == wanted:
        return replace(table, names=found or wanted)
    if sorted(found) != sorted(wanted) or len({*found}) < len(found):
        mine, other = next((a, b) for a, b in zip(found, wanted, strict=True) if a != b)
        raise FieldError(f"has the column {mine} where {there} has {other}; {differ}")
    order = [found.index(name) for name in wanted]
    return replace(
        table, values=np.ascontiguousarray(table.values[:, order]), names=wanted
    )


def table_of(data: Any, columns: Columns = ALL) -> Table:
    """Return the units of a data frame, a sparse matrix, or an array, also of pictures
    (n, height, width).

    Data frames of other libraries turn themselves into those of pandas.
    """
    return _table(_rows_of(data), columns)


def _rows_of(data: Any) -> Rows:
    if hasattr(data, "to_pandas"):
        try:
            data = data.to_pandas()
        except ImportError as error:
            raise FieldError(
                f"{error}; pip install pyarrow, or pass a data frame of pandas"
            ) from None
    if isinstance(data, pd.DataFrame):
        return Rows(data, [*map(str, data.columns)])
    if np.ma.is_masked(data):
        data = data.astype(np.float64).filled(np.nan)
    if issparse(data):
        check_size(prod(data.shape) * data.dtype.itemsize)
        if hasattr(data, "check_format"):
            data.check_format(
                full_check=True
            )  # damaged ones write to memory that is not their own
            if (
                np.diff(data.indptr) < 0
            ).any():  # which is not checked of matrices that say they are empty
                raise ValueError("a sparse matrix whose columns overlap")
        data = data.toarray()
    array, image = np.asarray(data), None
    if (
        array.ndim > 2 and array.size and sum(n > 1 for n in array.shape[1:]) < 3
    ):  # without channels
        sides = [n for n in array.shape[1:] if n > 1]
        image = Image(*sides) if len(sides) == 2 else None
        array = array.reshape(len(array), -1)
    if array.ndim != 2 or array.dtype.kind not in "buif":
        told = f"holds {type(data).__name__} of {array.dtype} of shape {array.shape}"
        raise FieldError(f"{told}; expected rows and columns of numbers")
    return Rows(pd.DataFrame(array), [], image)


def _table(rows: Rows, columns: Columns) -> Table:
    """Return the columns of rows that are units."""
    frame, width = rows.frame, rows.frame.shape[1]
    if frame.empty:
        raise FieldError("holds no rows")
    odd = [n for n, kind in enumerate(frame.dtypes) if kind.kind not in "buif"]
    numbers = (
        frame.apply(_numbers) if odd else frame
    )  # objects and categories may be numbers
    words = [
        n for n in odd if (numbers.iloc[:, n].isna() & frame.iloc[:, n].notna()).any()
    ]
    head = numbers.iloc[:3].to_numpy(np.float64, na_value=np.nan)
    bare = np.flatnonzero(np.isnan(head).all(axis=0)).tolist()
    words += [
        n for n in bare if n not in words and frame.iloc[:, n].isna().all()
    ]  # nothing but gaps
    with np.errstate(invalid="ignore"):
        steady = (np.diff(head, axis=0) == 1).all(axis=0) & (len(head) > 2)
    counting = [
        n
        for n in np.flatnonzero(steady).tolist()
        if (np.diff(numbers.iloc[:, n]) == 1).all()
    ]
    places = columns.places(rows.names, width, words, counting)
    kept = tuple(rows.names[n] for n in places) if rows.names else ()
    used = numbers if places == [*range(width)] else numbers.iloc[:, places]
    values = used.to_numpy()
    if not (values.dtype.kind in "bui" and values.min() >= 0 and values.max() <= 255):
        values = used.to_numpy(np.float64, na_value=np.nan)
        finite = np.isfinite(values)
        if not finite.all():
            raise FieldError(_flaws(rows, places, words, finite))
        with np.errstate(invalid="ignore"):
            whole = np.rint(values).astype(np.uint8)
        near_whole = np.abs(values - whole).max() <= NOISE * max(
            1.0, float(whole.max())
        )
        values = whole if near_whole else values
    values = (
        values if values.dtype == np.float64 else values.astype(np.uint8)
    )  # less memory than floats
    return Table(
        np.ascontiguousarray(values), kept, rows.image if columns == ALL else None
    )


def _numbers(column: pd.Series) -> pd.Series:
    """Return a column as numbers, NaN where there are none."""
    if column.dtype.kind in "buif":
        return column
    kinds = (Real, Decimal, np.bool_)  # dates are numbers to pandas

    def plain(value: Any) -> Any:
        if isinstance(value, str):
            return TRUTH.get(value.lower(), value)
        return float(value) if isinstance(value, kinds) else np.nan

    return pd.to_numeric(column.astype(object).map(plain), errors="coerce")


def _flaws(rows: Rows, places: list[int], words: list[int], finite: NDArray) -> str:
    """Return the places of values that are not finite numbers, and the remedy."""
    frame, names, at = rows.frame, rows.names, rows.at
    lost, told = frame.iloc[:, places].isna().to_numpy(), []
    titles = [
        f"column {n + 1}{f' ({names[n]})' if names and names[n] else ''}"
        for n in places
    ]
    odd, told_of = (
        ~finite & ~lost,
        np.isin(places, words, invert=True) | lost.all(axis=0),
    )
    gaps = np.argwhere(~finite & lost & told_of)
    for column in np.flatnonzero(odd.any(axis=0))[:_SHOWN].tolist():
        row = int(odd[:, column].argmax())
        value = shortened(str(frame.iat[row, places[column]]))
        told.append(f"{at(row)}, {titles[column]} is {value}, no finite number")
    if drop := as_line(
        written_as(n, names, frame.shape[1]) for n in places if n in words
    ):
        left = f"leave out columns that are not units by drop: [{drop}]"
        told.append("write numbers, as 0 and 1" if {*places} <= {*words} else left)
    if len(gaps):
        shown = "; ".join(
            f"{at(row)}, {titles[column]}" for row, column in gaps[:_SHOWN].tolist()
        )
        more = f" and {len(gaps) - _SHOWN:,} more" * (len(gaps) > _SHOWN)
        told.append(f"{count(len(gaps), 'gap')}, in {shown}{more}")
        told.append(
            "fill gaps, or leave out such rows, as pandas.DataFrame.dropna does"
        )
    return "; ".join(told)


# Files


def _arrays_in(content: bytes) -> dict[str, Any]:
    """Return arrays or data frames of a binary file by part, ``""`` for the only one;
    none of text.
    """
    read = next(
        (read for start, read in _READERS.items() if content.startswith(start)), None
    )
    found = read(content) if read else {}
    return found if isinstance(found, dict) else {"": found}


def _text_of(content: bytes) -> bytes:
    """Return text in UTF-8 with ``\\n`` at the ends of lines, without a byte order
    mark.
    """
    try:
        if b"\0" in content:
            raise ValueError
        content.decode()
    except ValueError:
        told = "is neither text in UTF-8 nor NPY, NPZ, MAT (up to -v7), IDX or Parquet"
        raise FieldError(f"{told}; save it as CSV in UTF-8, or as NPY") from None
    content = content.removeprefix(b"\xef\xbb\xbf")
    return (
        content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\r" in content
        else content
    )


def _idx(content: bytes) -> NDArray:
    """Return the array of an IDX file: two zeros, 8 (bytes), number of dimensions,
    sizes, values.
    """
    kind, dimensions = content[2:4].ljust(2, b"\0")
    start = 4 + 4 * dimensions
    if kind != 8 or not 1 <= dimensions <= 3 or len(content) < start:
        raise ValueError("expected IDX with unsigned bytes in 1 to 3 dimensions")
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    if len(content) - start != prod(shape):
        raise ValueError(
            f"IDX with {len(content) - start} of the {prod(shape)} values in its header"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _npz(content: bytes) -> dict[str, Any]:
    """Return the parts of an NPZ file, with its array ``names`` as names of columns."""
    headers = npz_headers(io.BytesIO(content))
    if not headers:
        raise FieldError(
            "is a ZIP archive without arrays, as Excel's are; save its rows as "
            "CSV or "
            "NPY"
        )
    parts = _parts(
        {name: one.shape for name, one in headers.items() if one.dtype.kind in "buif"}
    )
    titles = (
        {"names"}
        if "names" in headers and headers["names"].dtype.kind == "U"
        else set()
    )
    found: dict[str, Any] = read_npz(io.BytesIO(content), {*parts.values(), *titles})
    names = found["names"].ravel().tolist() if titles else []
    for one in parts.values() if titles else ():
        if found[one].shape[1:] != (len(names),):
            told = (
                f"has {len(names):,} names of columns, and {one} has the shape "
                f"{found[one].shape}"
            )
            raise FieldError(f"{told}; correct or remove its array names")
        found[one] = pd.DataFrame(found[one], columns=names)
    return {part: found[one] for part, one in parts.items()}


def _mat(content: bytes) -> dict[str, NDArray]:
    """Return the parts of a MAT file of versions 4 to 7; version 5 packs each of its
    variables by zlib.
    """
    variables, at, left = [content[:128]], 128, MOST_BYTES
    order = "<" if content[126:128] == b"IM" else ">"
    while content.startswith(b"MATLAB 5") and at < len(content):
        kind, size = struct.unpack(f"{order}II", content[at : at + 8])
        one, at = content[at : at + 8 + size], at + 8 + size
        if kind == 15:  # packed
            unpacker = zlib.decompressobj()
            one = unpacker.decompress(one[8:], left + 1)
            check_size(MOST_BYTES - left + len(one))
            if not unpacker.eof:
                raise ValueError("a variable is cut short")
        left -= len(one)
        _check_elements(one, order)
        variables.append(one)
    stream = io.BytesIO(b"".join(variables) if len(variables) > 1 else content)
    numeric = re.compile(r"double|single|logical|sparse|u?int\d+")
    sizes = {
        name: shape for name, shape, kind in whosmat(stream) if numeric.fullmatch(kind)
    }
    parts = _parts(sizes)
    check_size(sum(8 * prod(sizes[name]) for name in parts.values()))
    if any(
        len(sizes[name]) > 2 for name in parts.values()
    ):  # MATLAB counts pictures last
        raise FieldError("holds pictures; in MATLAB make them rows: reshape(x, [], n)'")
    found = loadmat(stream, variable_names=[*parts.values()])
    return {part: found[name] for part, name in parts.items()}


def _check_elements(variable: bytes, order: str) -> None:
    """Refuse a variable of a MAT file whose elements are unknown, too few or without
    end: SciPy crashes.
    """
    (kind, size), at, found = struct.unpack(f"{order}II", variable[:8]), 8, 0
    (flags,) = struct.unpack(f"{order}I", variable[16:20])
    while at < len(variable) and kind == 14:
        word, length = struct.unpack(f"{order}II", variable[at : at + 8])
        if word >> 16:  # of at most four bytes, within its own head
            word, length = word & 0xFFFF, 0
        if word not in _MAT_TYPES or (
            word == 14 and flags & 0xFF > 3
        ):  # only cells and structs hold arrays
            raise ValueError(f"an element of the type {word}")
        at, found = at + 8 + -(-length // 8) * 8, found + 1
    needed = (6 if flags & 0xFF == 5 else 4) + bool(
        flags & 0x800
    )  # of sparse and of complex numbers
    lacking = flags & 0xFF > 3 and found < needed
    if kind != 14 or not size + 8 == at == len(variable) or lacking:
        raise ValueError("a variable has other bytes than its head says")


def _parquet(content: bytes) -> pd.DataFrame:
    try:
        from pyarrow import parquet
    except ImportError:
        raise FieldError(
            "is a Parquet file, which pyarrow reads: pip install pyarrow"
        ) from None
    file = parquet.ParquetFile(io.BytesIO(content))
    check_size(8 * file.metadata.num_rows * file.metadata.num_columns)
    return file.read().to_pandas()


def _parts(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, str]:
    """Return the names of the parts among numeric arrays, or of the only one of several
    columns.
    """
    found: dict[str, str] = {}
    for part in PARTS:
        aliases = (part, "validation", "val") if part == "valid" else (part,)
        names = [
            form.format(one)
            for one in aliases
            for form in ("{}", "{}_data", "x_{}", "X_{}")
        ]
        if present := [name for name in names if name in shapes]:
            found[part] = present[0]
    widths = {
        name: n
        for name, one in shapes.items()
        if len(one) > 1 and (n := prod(one[1:])) > 1
    }
    used = {widths.get(name) for name in found.values()}
    rest = [
        name
        for name, width in widths.items()
        if name not in found.values() and width in used
    ]
    if rest or (not found and len(widths) != 1):
        there = [
            f"{name} {' x '.join(map(str, one)) or 'scalar'}"
            for name, one in shapes.items()
        ]
        told = f"holds {', '.join(there[:_SHOWN]) or 'no numbers'}"
        raise FieldError(
            f"{told}; expected train, valid, test, or one array of rows, alone"
        )
    return found or {"": next(iter(widths))}


def _libsvm(content: bytes, columns: Columns) -> Table:
    """Return rows of ``label index:value ...``, indices from 1, filled up with
    zeros.
    """
    if columns != ALL:
        field = "drop" if columns.dropped else "columns"
        raise FieldError(
            f"LIBSVM keeps labels apart from the columns; remove {field}", field
        )
    check_size(16 * content.count(b":"))
    places, values, ends = array("q"), array("d"), array("q", [0])
    for number, line in enumerate(io.BytesIO(content), 1):
        if not (items := line.decode().partition("#")[0].split()):
            continue
        pairs = [item.partition(":") for item in items[":" not in items[0] :]]
        found: dict[int, float] = {}
        with suppress(ValueError):
            found = {int(index): float(value) for index, _, value in pairs}
        if len(found) < len(pairs) or not all(1 <= index <= _WIDEST for index in found):
            told = (
                f"line {number}: {shortened(line.decode().strip())} is not label "
                "index:value ..., with "
            )
            raise FieldError(f"{told}different indices from 1 to {_WIDEST:,}")
        places.extend(index - 1 for index in found)
        values.extend(found.values())
        ends.append(len(values))
    shape, kind = (
        (len(ends) - 1, max(places, default=-1) + 1),
        np.uint8 if {*values} <= {0, 1} else float,
    )
    return replace(
        table_of(csr_array((np.array(values, kind), places, ends), shape)), sparse=True
    )


_READERS: dict[bytes, Callable[[bytes], Any]] = {  # by how the content begins
    b"\x93NUMPY": read_npy, b"PK": _npz, b"PAR1": _parquet,
    b"MATLAB 5": _mat, b"\0\0\0\0": _mat, b"\0\0": _idx,
}  # fmt: skip
