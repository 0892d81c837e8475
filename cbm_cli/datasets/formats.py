"""Files of rows, whose formats are known by their content."""

import gzip
import io
import re
import struct
import zlib
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.io import loadmat, whosmat
from scipy.sparse import csr_array

from cbm_cli.arrays import (
    MOST_BYTES,
    check_size,
    content_of,
    located,
    npz_headers,
    read_npy,
    read_npz,
)
from cbm_cli.datasets.columns import Columns
from cbm_cli.datasets.dataset import PARTS, Names
from cbm_cli.datasets.delimited import Rows, read_text
from cbm_cli.datasets.published import near
from cbm_cli.datasets.tables import (
    ALL,
    SHOWN,
    Table,
    as_numbers,
    given_values,
    rows_of,
    table_of,
    table_of_rows,
)
from cbm_cli.errors import CbmError, FieldError
from cbm_cli.text import harmless, shortened

# names of the arrays that are parts
_PART = re.compile("(?:[xX]_)?(train|test|(val)(?:id|idation)?)(?:_data)?")
# columns of a LIBSVM file; a larger index is a damaged file, and would not fit in
# memory
_WIDEST = 1_000_000
# no two parts of it can take the same characters, so that it reads a line once
_LIBSVM = re.compile(
    rb"^[ \t]*(?:[^\s:,;#]+[ \t]+)?\d+:[^\s,;]*(?:[ \t]+[^\s:]*:\S*)*[ \t]*(?:#.*)?$",
    re.MULTILINE,
)
# elements of a MAT file: of numbers and text, and of arrays
_MAT_TYPES = {1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 14, 16, 17, 18}
_MAT_ARRAY, _MAT_PACKED = 14, 15
_MAT_SPARSE = 5  # a class of arrays; those below it hold other arrays
_MAT_COMPLEX = 0x800  # a flag of arrays


@contextmanager
def reading(where: Path | str, field: str | None = None) -> Iterator[None]:
    """Turn every error into one FieldError of one line that begins with ``where``.

    Parameters
    ----------
    where : path or str
        The file, or what else messages call it.
    field : str, optional
        The field of a grid that names it, for errors without a field of their own.

    Examples
    --------
    >>> with reading("rows.csv"):
    ...     raise OSError(5, "Input/output error")
    Traceback (most recent call last):
    cbm_cli.errors.FieldError: rows.csv: cannot be read: Input/output error
    """
    try:
        with located(where, "data"):
            yield
    except CbmError as error:
        cause = getattr(error.__context__, "field", "")
        raise FieldError(harmless(str(error), kept=""), cause or field or "") from None


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
    r"""Return tables with some columns, one under the name ``""`` or one per part.

    Parameters
    ----------
    data : Any
        The content of a file, in bytes, or what `table_of` takes.
    columns : Columns
        Those that are units.
    header : bool, optional
        Of text: whether its first line holds names.

    Examples
    --------
    >>> tables_in(b"a,b\n0,1\n1,0\n")[""].values.tolist()
    [[0, 1], [1, 0]]
    """
    arrays = _arrays_in(data) if isinstance(data, bytes) else {"": data}
    if arrays:
        return {part: table_of(array, columns) for part, array in arrays.items()}
    text = _text_of(data)
    if _LIBSVM.search(text):
        return {"": _libsvm(text, columns)}
    rows = read_text(text, header, columns.units)
    return {"": replace(table_of_rows(rows, columns), is_text=True)}


def read_given(path: Path, names: Names = ()) -> NDArray[np.float64]:
    """Return the rows of a file, NaN for unknown units.

    Parameters
    ----------
    path : Path
        Text (a gap is empty or ``?``), NPY or NPZ (a gap is NaN).
    names : tuple of str
        Names of a machine's units: the columns with these names are taken.
    """
    with reading(path):
        content = unpacked(path)
        arrays = _arrays_in(content)
        if len(arrays) > 1:
            raise FieldError(f"holds {', '.join(arrays)}; one array is needed")
        if arrays:
            (array,) = arrays.values()
            rows = rows_of(array)
        else:
            rows = _given_text(_text_of(content), names)
        return given_values(rows, names)


def _given_text(text: bytes, names: Names) -> Rows:
    """Return the rows of text, whose values are 0, 1 and gaps: a first line of other
    numbers without a gap holds names.
    """
    try:
        return read_text(text, expected=names)
    except FieldError as doubt:
        if doubt.field != "header":
            raise
    rows = read_text(text, header=False)
    first = as_numbers(rows.frame.iloc[0].astype(object))
    is_row = first.isna().any() or first.isin([0, 1]).all()
    return rows if is_row else read_text(text, header=True)


def _arrays_in(content: bytes) -> dict[str, Any]:
    """Return arrays or data frames of a binary file by part, ``""`` for the only one;
    none of text.
    """
    for start, read in _READERS.items():
        if content.startswith(start):
            arrays = read(content)
            return arrays if isinstance(arrays, dict) else {"": arrays}
    return {}


def _text_of(content: bytes) -> bytes:
    r"""Return text in UTF-8 with ``\n`` at the ends of lines, without a byte order
    mark.
    """
    try:
        if b"\0" in content:
            raise ValueError
        content.decode()
    except ValueError:
        raise FieldError(
            "is neither text in UTF-8 nor NPY, NPZ, MAT (up to -v7), IDX or Parquet; "
            "save it as CSV in UTF-8, or as NPY"
        ) from None
    content = content.removeprefix(b"\xef\xbb\xbf")
    if b"\r" in content:
        content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return content


def _idx(content: bytes) -> NDArray:
    """Return the array of an IDX file: two zeros, 8 (bytes), number of dimensions,
    sizes, values.
    """
    _, _, kind, dimensions = content[:4]
    if kind != 8:
        raise ValueError("IDX of other values than unsigned bytes")
    start = 4 + 4 * dimensions
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _npz(content: bytes) -> Mapping[str, Any]:
    """Return the parts of an NPZ file, with its array ``names`` as names of columns."""
    headers = npz_headers(io.BytesIO(content))
    if not headers:
        raise FieldError(
            "is a ZIP archive without arrays, as Excel's are; save its rows as CSV or "
            "NPY"
        )
    shapes = {}
    for name, header in headers.items():
        if header.dtype.kind in "buif":
            shapes[name] = header.shape
    parts = _parts(shapes)
    arrays = read_npz(io.BytesIO(content), {*parts.values(), "names"})
    if "names" not in arrays:
        return {part: arrays[name] for part, name in parts.items()}
    names = arrays["names"].ravel().tolist()
    tables = {}
    for part, name in parts.items():
        rows = arrays[name]
        if rows.shape[1:] != (len(names),):
            raise FieldError(
                f"has {len(names):,} names of columns, and {name} has the shape "
                f"{rows.shape}; correct or remove its array names"
            )
        tables[part] = pd.DataFrame(rows, columns=names)
    return tables


def _mat(content: bytes) -> dict[str, NDArray]:
    """Return the parts of a MAT file of versions 4 to 7; version 5 packs each of its
    variables by zlib.
    """
    if content.startswith(b"MATLAB 5"):
        content = _unpacked_mat(content)
    stream = io.BytesIO(content)
    numeric = re.compile(r"double|single|logical|sparse|u?int\d+")
    shapes = {
        name: shape for name, shape, kind in whosmat(stream) if numeric.fullmatch(kind)
    }
    parts = _parts(shapes)
    check_size(sum(8 * prod(shapes[name]) for name in parts.values()))
    if any(len(shapes[name]) > 2 for name in parts.values()):
        # MATLAB counts pictures last
        raise FieldError("holds pictures; in MATLAB make them rows: reshape(x, [], n)'")
    arrays = loadmat(stream, variable_names=list(parts.values()))
    return {part: arrays[name] for part, name in parts.items()}


def _unpacked_mat(content: bytes) -> bytes:
    """Return a MAT file of version 5 with its variables unpacked, each of which was
    checked.
    """
    order = "<" if content[126:128] == b"IM" else ">"
    variables, place, left = [content[:128]], 128, MOST_BYTES
    while place < len(content):
        kind, size = struct.unpack(f"{order}II", content[place : place + 8])
        end = place + 8 + size
        variable, place = content[place:end], end
        if kind == _MAT_PACKED:
            unpacker = zlib.decompressobj()
            variable = unpacker.decompress(variable[8:], left + 1)
            check_size(MOST_BYTES - left + len(variable))
            if not unpacker.eof:
                raise ValueError("a variable is cut short")
        left -= len(variable)
        _check_elements(variable, order)
        variables.append(variable)
    return b"".join(variables)


def _check_elements(variable: bytes, order: str) -> None:
    """Refuse a variable of a MAT file whose elements are unknown, too few or without
    end: SciPy crashes.
    """
    kind, size = struct.unpack(f"{order}II", variable[:8])
    (flags,) = struct.unpack(f"{order}I", variable[16:20])
    array_class = flags & 0xFF
    place, elements = 8, 0
    while place < len(variable) and kind == _MAT_ARRAY:
        word, length = struct.unpack(f"{order}II", variable[place : place + 8])
        if word >> 16:  # of at most four bytes, within its own head
            word, length = word & 0xFFFF, 0
        # only cells and structs hold arrays
        if word not in _MAT_TYPES or (word == _MAT_ARRAY and array_class > 3):
            raise ValueError(f"an element of the type {word}")
        place += 8 + -(-length // 8) * 8
        elements += 1
    needed = 6 if array_class == _MAT_SPARSE else 4
    if flags & _MAT_COMPLEX:
        needed += 1
    too_few = array_class > 3 and elements < needed
    if kind != _MAT_ARRAY or not size + 8 == place == len(variable) or too_few:
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
    names = defaultdict[str, list[str]](list)
    for name in shapes:
        match = _PART.fullmatch(name)
        if match:
            names["valid" if match[2] else match[1]].append(name)
    if not names:
        names[""] = [name for name, shape in shapes.items() if prod(shape[1:]) > 1]
    if any(len(of_part) != 1 for of_part in names.values()):
        listed = [f"{name} {shape}" for name, shape in shapes.items()][:SHOWN]
        raise FieldError(
            f"holds {', '.join(listed) or 'no numbers'}; expected train, valid, test, "
            "or one array of rows, alone"
        )
    return {part: names[part][0] for part in ("", *PARTS) if part in names}


def _libsvm(content: bytes, columns: Columns) -> Table:
    """Return rows of ``label index:value ...``, indices from 1, filled up with
    zeros.
    """
    if columns.chosen or columns.dropped:
        field = "drop" if columns.dropped else "columns"
        raise FieldError(
            f"LIBSVM keeps labels apart from the columns; remove {field}", field
        )
    check_size(16 * content.count(b":"))
    places, values, ends = array("q"), array("d"), array("q", [0])
    for number, line in enumerate(io.BytesIO(content), 1):
        items = line.decode().partition("#")[0].split()
        if not items:
            continue
        row = _libsvm_row(items, number)
        places.extend(index - 1 for index in row)
        values.extend(row.values())
        ends.append(len(values))
    shape = len(ends) - 1, max(places, default=-1) + 1
    matrix = csr_array((np.array(values), places, ends), shape)
    return replace(table_of(matrix), sparse=True)


def _libsvm_row(items: list[str], number: int) -> dict[int, float]:
    """Return the values of a line by index."""
    if ":" not in items[0]:  # the label
        items = items[1:]
    row: dict[int, float] = {}
    with suppress(ValueError):
        for item in items:
            index, _, value = item.partition(":")
            row[int(index)] = float(value)
    if len(row) < len(items) or not all(1 <= index <= _WIDEST for index in row):
        raise FieldError(
            f"line {number}: {shortened(' '.join(items))} is not index:value ..., with "
            f"different indices from 1 to {_WIDEST:,}"
        )
    return row


_READERS: dict[bytes, Callable[[bytes], Any]] = {  # by how the content begins
    b"\x93NUMPY": read_npy,
    b"PK": _npz,
    b"PAR1": _parquet,
    b"MATLAB 5": _mat,
    b"\0\0\0\0": _mat,
    b"\0\0": _idx,
}
