"""Files of rows in the formats that people keep data in, recognised by their content.

Text (CSV, AMAT), LIBSVM, NPY, NPZ (also SciPy's sparse ones), MAT, IDX and Parquet, each gzipped or not; and
data frames of pandas.
"""

import csv
import gzip
import io
import re
import struct
import warnings
import zlib
from array import array as numbers
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cbm_cli.arrays import (
    MOST_BYTES,
    Header,
    check_size,
    content_of,
    located,
    npz_headers,
    read_npy,
    read_npz,
)
from cbm_cli.datasets.columns import ALL, Columns, as_line
from cbm_cli.datasets.dataset import DataError, Image
from cbm_cli.datasets.foreign import converted, filled, refuse_encoding, refuse_foreign
from cbm_cli.datasets.mat import read_mat
from cbm_cli.errors import CbmError
from cbm_cli.text import shortened

if TYPE_CHECKING:
    import pandas as pd

_ROWS = {
    part: tuple(form.format(name) for form in ("{}", "{}_data", "x_{}", "X_{}") for name in names)
    for part, names in {"train": ["train"], "valid": ["valid", "validation", "val"], "test": ["test"]}.items()
}
_WIDEST = 1_000_000  # columns of a LIBSVM file; a larger index is a damaged file, and would not fit in memory
_LONGEST_LINE = 10_000_000  # characters of text
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf(inity)?|nan)", re.IGNORECASE)
NOISE = 1e-6  # share of the scale that a value may be beyond its ends, by errors of rounding
_LIBSVM = re.compile(rb"^[^#\n,;]*?(?<!\S)\d+:[^\s,;]*(?=\s|$)", re.MULTILINE)  # an index with its value
_VALUE = re.compile(f"{_NUMBER.pattern}|true|false", re.IGNORECASE)
_TRUTH = re.compile(rb"(?i)(?<![^\s,;\"])(true|false)(?![^\s,;\"])")
_CELL, _GAP = r"[+-]?\d+(?:,\d+)?", r"(?:\s*;\s*|\s+)"
_DECIMAL_COMMAS = re.compile(rf"\s*(?=[^,]*\d,\d){_CELL}(?:{_GAP}{_CELL})+\s*")
_MISSING = ("", "na", "n/a", "nan", "null", "none", "?", "-", ".")
_FILL = "fill the gap, or leave out such rows, as pandas.DataFrame.dropna does"
_UNEVEN = "line {} has {} columns, the lines before it {}; is it cut short?"
_FEWEST_NUMBERED = 8  # columns from which on a first line 0, 1, 2, ... is taken as column names

_Arrays = dict[str, np.ndarray]


class FileRows(NamedTuple):
    """Rows of finite numbers."""

    values: np.ndarray  # (rows, width): uint8 if all are whole numbers from 0 to 255, else float64
    sparse: bool = False  # columns of zeros may follow: a LIBSVM file is as wide as its largest index
    image: Image | None = None  # how to draw a row, where the file says so
    names: tuple[str, ...] = ()  # of the columns, if the file has some


@contextmanager
def reading(path: Path | str, kind: str) -> Iterator[None]:
    """Turn every error of reading a file into one DataError that names it."""
    try:
        with located(path, kind):
            yield
    except CbmError as error:
        raise DataError(str(error), None, *error.kinds) from None


def unpacked(path: Path) -> bytes:
    """Return the content of a file, after gunzip where it is packed; DataError if it cannot be read."""
    with reading(path, "data"):
        content = content_of(path)
        if not content.startswith(b"\x1f\x8b"):
            return content
        try:
            with gzip.open(io.BytesIO(content)) as stream:
                content = stream.read(MOST_BYTES + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            message = f"cannot be read: damaged gzip file ({error}); get the file again"
            raise CbmError(message, "unreadable") from None
        check_size(len(content))
        return content


def read_tables(path: Path, columns: Columns = ALL) -> dict[str, FileRows]:
    """Return the tables of a file with some of its columns, one under the name ``""`` or one per part."""
    content = unpacked(path)
    if not content:
        raise DataError(f"{path}: is empty", None, "missing")
    if content.startswith(b"PAR1"):
        return {"": rows_of_frame(path, _parquet(path, content), columns)}
    arrays = arrays_of(path, content)
    if arrays is None:
        return {"": _text(path, content, columns)}
    return {part: rows_of_array(path, array, columns) for part, array in arrays.items()}


def rows_of_array(where: Path | str, array: np.ndarray, columns: Columns = ALL) -> FileRows:
    """Return the units of an array: rows of numbers, or pictures (n, height, width), also of one channel."""
    image, sides = None, [n for n in array.shape[1:] if n > 1]
    if array.ndim > 2 and array.size and len(sides) < 3:  # three sides are a height, a width and channels
        image = Image(*sides) if len(sides) == 2 and not columns else None
        array = array.reshape(len(array), -1)
    places = columns.places(where, (), array.shape[1]) if array.ndim == 2 and array.size else None
    return table_of(where, array if places is None else array[:, places], image=image)


def rows_of_frame(where: Path | str, frame: "pd.DataFrame", columns: Columns = ALL) -> FileRows:
    """Return the units of a data frame, whose columns have names unless they are numbered."""
    named = any(isinstance(name, str) and not name.isdigit() for name in frame.columns)
    names = [str(name) for name in frame.columns] if named else []
    words = [n for n, kind in enumerate(frame.dtypes) if kind.kind not in "buif"]
    places = columns.places(where, names, frame.shape[1], words)
    frame = frame if places is None else frame.iloc[:, places]
    found = []
    for place, (name, column) in zip(places or range(frame.shape[1]), frame.items(), strict=True):
        if (lost := column.isna().to_numpy()).any():
            gap = f"row {lost.argmax() + 1}, column {place + 1} ({name}) is a missing value"
            raise DataError(f"{where}: {gap}; {_FILL}")
        if column.dtype.kind not in "buif":  # categories and objects, which may be numbers
            odd = next(((row, one) for row, one in enumerate(column, 1) if not _is_number(one)), None)
            if odd:
                told = _complaint(str(odd[1]), place, names)
                raise DataError(f"{where}: row {odd[0]}, column {place + 1}{told}")
            column = column.astype(object).astype(float)
        found.append(column.to_numpy())
    values = np.column_stack(found)
    table = table_of(where, values if values.dtype.kind in "buif" else values.astype(np.float64))
    return table._replace(names=_kept(names, places))


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _parquet(path: Path, content: bytes) -> "pd.DataFrame":
    if not find_spec("pyarrow"):
        told = "is a Parquet file, which pyarrow reads: pip install 'cbm-cli[parquet]'"
        raise DataError(f"{path}: {told}", None, "missing")
    from pyarrow import parquet

    with reading(path, "Parquet"):
        file = parquet.ParquetFile(io.BytesIO(content))
        check_size(8 * file.metadata.num_rows * file.metadata.num_columns)
        return file.read().to_pandas()


def table_of(
    where: Path | str, values: np.ndarray, sparse: bool = False, image: Image | None = None
) -> FileRows:
    """Return a table of an array; DataError, naming ``where``, unless it holds rows of finite numbers."""
    if not values.size:
        raise DataError(f"{where}: holds no rows", None, "missing")
    if values.ndim != 2:
        raise DataError(f"{where}: holds an array of shape {values.shape}; expected rows and columns")
    if values.dtype.kind not in "buif":
        raise DataError(f"{where}: holds an array of {values.dtype}; expected numbers")
    if values.dtype == np.uint8:
        return FileRows(np.ascontiguousarray(values), sparse, image)
    odd = ~np.isfinite(values)
    if odd.any():
        row, column = np.argwhere(odd)[0]
        value = values[row, column]
        remedy = f"; {_FILL}" if np.isnan(value) else ""
        raise DataError(f"{where}: row {row + 1}, column {column + 1} is {value}, not a number{remedy}")
    with np.errstate(invalid="ignore"):
        whole = np.rint(values).astype(np.uint8)
    values = whole if _close(values, whole) else values.astype(np.float64)
    return FileRows(np.ascontiguousarray(values), sparse, image)


def _close(values: np.ndarray, whole: np.ndarray) -> bool:
    """Whether values are whole numbers from 0 to 255, but for errors of rounding."""
    if values.dtype.kind != "f":
        return np.array_equal(values, whole)
    return bool(np.abs(values - whole).max() <= NOISE * max(1.0, float(whole.max())))


# Arrays


def arrays_of(path: Path, content: bytes) -> _Arrays | None:
    """Return the arrays of a binary file by part, ``""`` for the only one; None for text."""
    refuse_foreign(path, content)
    starts = {b"\x93NUMPY": "NPY", b"PK": "NPZ", b"MATLAB": "MAT", b"\0\0\0\0": "MAT", b"\0\0": "IDX"}
    kind = next((kind for start, kind in starts.items() if content.startswith(start)), None)
    if kind is None:
        return None
    with reading(path, kind):
        if kind in ("NPY", "IDX"):
            return {"": read_npy(content) if kind == "NPY" else _idx(content)}
        if kind == "MAT":
            found = {
                part: found[name] for found in [read_mat(content)] for part, name in _parts(found).items()
            }
            if any(array.ndim > 2 for array in found.values()):  # MATLAB counts pictures last
                raise CbmError("holds pictures; in MATLAB make them rows: reshape(x, [], n)'", "unsuited")
            return found
        headers = npz_headers(io.BytesIO(content))
        if {"format", "shape", "data"} <= headers.keys():
            return {"": _filled(read_npz(io.BytesIO(content)))}
        names = _parts(headers)
        found = read_npz(io.BytesIO(content), names.values())
        return {part: found[name] for part, name in names.items()}


def _filled(arrays: _Arrays) -> np.ndarray:
    """Return the rows of a sparse matrix of `scipy.sparse.save_npz`, of form CSR, CSC or COO."""
    form, (n, width) = bytes(arrays["format"]).decode(), arrays["shape"].tolist()
    if form not in ("csr", "csc", "coo"):
        raise CbmError(f"holds a sparse matrix of form {form}; save it as CSR: matrix.tocsr()", "unreadable")
    data = arrays["data"]
    check_size(n * width * data.itemsize)
    if form == "coo":
        rows, columns = arrays["row"], arrays["col"]
    else:
        starts, columns = arrays["indptr"], arrays["indices"]
        rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    if form == "csc":
        rows, columns = columns, rows
    if min(rows.min(initial=0), columns.min(initial=0)) < 0:
        raise ValueError("negative indices")
    table = np.zeros((n, width), data.dtype)
    np.add.at(table, (rows, columns), data)
    return table


def _idx(content: bytes) -> np.ndarray:
    """Return the array of an IDX file: two zeros, 8 (bytes), number of dimensions, sizes, values."""
    kind, dimensions = content[2:4].ljust(2, b"\0")
    start = 4 + 4 * dimensions
    if kind != 8 or not 1 <= dimensions <= 3 or len(content) < start:
        raise ValueError("expected unsigned bytes in 1 to 3 dimensions")
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    if len(content) - start != prod(shape):
        state = "truncated" if len(content) - start < prod(shape) else "too long"
        raise ValueError(f"{state}: {len(content) - start} of the {prod(shape)} values in its header")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _parts(arrays: Mapping[str, np.ndarray | Header]) -> dict[str, str]:
    """Return the names of the parts among the arrays of a file, or of its only array of several columns."""
    found = {part: [name for name in names if name in arrays] for part, names in _ROWS.items()}
    names = {part: present[0] for part, present in found.items() if present}
    if names:
        _check_unused(names, arrays)
        return names
    tables = [
        name for name, array in arrays.items()
        if 2 <= len(array.shape) <= 4 and prod(array.shape[1:]) > 1 and array.dtype.kind in "buif"
    ]  # fmt: skip
    if len(tables) == 1:
        return {"": tables[0]}
    there = [f"{name} {' x '.join(map(str, a.shape)) or 'scalar'}" for name, a in arrays.items()]
    raise CbmError(
        f"holds {', '.join(there[:10]) or 'no array'}; expected train, valid, test (or train_data, val_data, "
        "test_data), or one array of rows",
        "missing",
    )


def _check_unused(names: Mapping[str, str], arrays: Mapping[str, np.ndarray | Header]) -> None:
    """Refuse an array that could be a part by its columns and is none by its name."""
    width = prod(next(arrays[name].shape[1:] for name in names.values()))
    for name, array in arrays.items():
        if name not in names.values() and len(array.shape) > 1 and prod(array.shape[1:]) == width > 1:
            size = " x ".join(map(str, array.shape))
            raise CbmError(
                f"holds {', '.join(names.values())}, and {name} ({size}), which is no part by its name; "
                "rename it to train, valid or test, or remove it",
                "unknown",
            )


# Text


def _text(path: Path, content: bytes, columns: Columns) -> FileRows:
    bits = _single_digits(content)
    if bits is not None:
        return rows_of_array(path, bits, columns)
    _check_text(path, content)
    if not _LIBSVM.search(content):
        return _columns(path, content, columns)
    if columns:
        field = "drop_last" if columns.without_last else "drop" if columns.dropped else "columns"
        message = f"{path}: LIBSVM keeps labels apart from the columns; remove {field}"
        raise DataError(message, field, "unsuited")
    return _libsvm(path, content)


def _check_text(path: Path, content: bytes) -> None:
    try:
        is_text = b"\0" not in content and bool(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        is_text = False
    if not is_text:
        refuse_encoding(path, content)


def _stream(content: bytes) -> io.TextIOWrapper:
    """Return text to read line by line; as a whole it would take several times its size."""
    return io.TextIOWrapper(io.BytesIO(content), "utf-8-sig")


def _lines(path: Path, content: bytes) -> Iterator[tuple[int, str]]:
    """Yield the lines that hold something, numbered from 1 and without comments."""
    for number, line in enumerate(_stream(content), 1):
        if len(line) > _LONGEST_LINE:
            message = f"{path}: line {number} has more than {_LONGEST_LINE:,} characters; break it"
            raise DataError(message, None, "limit")
        if line := line.partition("#")[0].strip():
            yield number, line


def _check_lines(path: Path, content: bytes, size: int) -> None:
    """Refuse text that would take too much memory, at ``size`` bytes a line."""
    with reading(path, "text"):
        check_size(size * max(content.count(b"\n"), content.count(b"\r")))


def _single_digits(content: bytes) -> np.ndarray | None:
    """Return the values of text whose lines are zeros and ones with one separator; None for any other text.

    Most files of binary data have this form, and it is read a hundred times faster than other numbers.
    """
    content += b"" if content.endswith(b"\n") else b"\n"
    stride = content.find(b"\n") + 1
    if stride % 2 or len(content) % stride:
        return None
    lines = np.frombuffer(content, np.uint8).reshape(-1, stride)
    separated = (lines[:, 1:-1:2] == lines[0, 1]).all() and (lines[:, -1] == ord("\n")).all()
    values = lines[:, ::2] - np.uint8(ord("0"))
    if lines[0, 1] not in b",;\t \n" or not separated or values.max() > 1:
        return None
    return np.ascontiguousarray(values)


def _columns(path: Path, content: bytes, columns: Columns) -> FileRows:
    """Return the numbers of text in columns, without the column names that a first line may have."""
    lines = _lines(path, content)
    first, line = next(lines, (0, ""))
    if not line:
        raise DataError(f"{path}: holds no rows", None, "missing")
    delimiter = next((mark for mark in ",;|" if mark in line), None)
    fields = _fields(line, delimiter)
    named = _are_names(fields)
    names = fields if named and not (fields[-1].isdigit() and fields[0]) else []  # 0, 1, 2, ... are numbers
    example = _fields(next(lines, (0, ""))[1], delimiter) if names else []
    words = [
        n for n, field in enumerate(example) if not (_VALUE.fullmatch(field) or field.lower() in _MISSING)
    ]
    places, skipped = columns.places(path, names, len(fields), words), first if named else 0
    _check_lines(path, content, 8 * len(places or fields))
    try:
        values = _numbers(content, delimiter, skipped, places)
    except ValueError:
        content = _TRUTH.sub(lambda word: b"1" if word[0].lower() == b"true" else b"0", content)
        try:
            values = _numbers(content, delimiter, skipped, places)
        except ValueError:
            flaw = _flaw(path, content, delimiter, skipped, names, places)
            raise DataError(f"{path}: {flaw}") from None
    if skipped and not values.size:
        raise DataError(f"{path}: holds no rows of numbers, only words: {shortened(line)}", None, "missing")
    if places is not None and delimiter:
        _check_widths(path, content, delimiter, len(fields))
    return table_of(path, values)._replace(names=_kept(names, places))


def _kept(names: list[str], places: list[int] | None) -> tuple[str, ...]:
    return tuple(names if places is None or not names else [names[place] for place in places])


def _numbers(content: bytes, delimiter: str | None, skipped: int, places: list[int] | None) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # no rows: `table_of` says so
        how: dict[str, Any] = {"delimiter": delimiter, "skiprows": skipped, "usecols": places}
        return np.loadtxt(_stream(content), ndmin=2, quotechar='"', **how)


def _fields(line: str, delimiter: str | None) -> list[str]:
    """Return the fields of a line, without quotes."""
    parts = next(csv.reader([line], delimiter=delimiter)) if delimiter else line.split()
    return [part.strip().strip("\"'") for part in parts]


def _check_widths(path: Path, content: bytes, delimiter: str, width: int) -> None:
    """Refuse lines with more or fewer columns than the first, which the reader of some columns takes."""
    for number, line in _lines(path, content):
        if line.count(delimiter) != width - 1 and (found := len(_fields(line, delimiter))) != width:
            raise DataError(f"{path}: {_UNEVEN.format(number, found, width)}")


def _are_names(names: list[str]) -> bool:
    """Whether the first line of a file has column names: words, or the numbers 0, 1, 2 and so on."""
    unnamed, *others = names
    words = all(name and not _VALUE.fullmatch(name) for name in others)
    if not unnamed:
        return bool(others) and (words or (len(others) > 1 and others == [*map(str, range(len(others)))]))
    if _VALUE.fullmatch(unnamed):
        return len(names) >= _FEWEST_NUMBERED and names == [*map(str, range(len(names)))]
    return words


def _flaw(
    path: Path,
    content: bytes,
    delimiter: str | None,
    skipped: int,
    names: list[str],
    places: list[int] | None,
) -> str:
    """Return what is wrong with text that is not a table of numbers."""
    width = 0
    for number, line in _lines(path, content):
        if _DECIMAL_COMMAS.fullmatch(line):
            mark = next((mark for mark in ";\t" if mark in line), "\\s+")
            remedy = converted("pandas.read_csv", f"sep={mark!r}", "decimal=','")
            return f"line {number} has decimal commas; {filled(remedy, path)}"
        fields = _fields(line, delimiter)
        for column, field in enumerate(fields):
            used = number > skipped and (places is None or column in places)
            if used and not _NUMBER.fullmatch(field):
                return f"line {number}, column {column + 1}{_complaint(field, column, names)}"
        width = width or len(fields)
        if len(fields) != width:
            return _UNEVEN.format(number, len(fields), width)
    return "is not a table of numbers"


def _complaint(field: str, column: int, names: list[str]) -> str:
    """Return what is wrong with a field of a column that is no number, and the remedy."""
    name = names[column] if column < len(names) else ""
    if field.lower() in _MISSING:
        wrong = f"is {f'{field}, a missing value' if field else 'empty'}; {_FILL}"
    else:
        wrong = f"is {shortened(field)}, neither a number nor a column name; if the column is no unit, "
        wrong += f"leave it out by drop: [{as_line([name or str(column + 1)])}]"
    return f" ({name}) {wrong}" if name else f" {wrong}"


def _libsvm(path: Path, content: bytes) -> FileRows:
    rows, columns, values = numbers("q"), numbers("q"), numbers("d")
    count = 0
    with reading(path, "LIBSVM"):
        check_size(3 * 8 * content.count(b":"))
    for number, line in _lines(path, content):
        label, *items = line.split()
        found = _indexed(f"{path}: line {number}", [label, *items] if ":" in label else items)
        rows.extend([count] * len(found))
        columns.extend(index - 1 for index in found)
        values.extend(found.values())
        count += 1
    dtype = np.uint8 if all(value in (0, 1) for value in values) else np.float64
    shape = count, max(columns, default=-1) + 1
    with reading(path, "LIBSVM"):
        check_size(prod(shape) * np.dtype(dtype).itemsize)
    table = np.zeros(shape, dtype)
    table[np.array(rows), np.array(columns)] = values
    return table_of(path, table, sparse=True)


def _indexed(where: str, items: list[str]) -> dict[int, float]:
    """Return the values of a LIBSVM line by index."""
    found: dict[int, float] = {}
    for item in items:
        number, _, text = item.partition(":")
        try:
            index, value = int(number), float(text)
        except ValueError:
            raise DataError(f"{where}: cannot read {item[:40]!r} as index:value (LIBSVM)") from None
        if not 1 <= index <= _WIDEST or index in found:
            flaw = "appears twice" if index in found else f"is out of range; indices are 1 to {_WIDEST:,}"
            raise DataError(f"{where}: index {index} {flaw}", None, "conflict" if index in found else "value")
        found[index] = value
    return found
