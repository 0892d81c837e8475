"""Files of rows and of labels in the formats that people keep data in, recognised by their content.

Text (CSV, AMAT), LIBSVM, NPY, NPZ, MAT and IDX, each gzipped or not.
"""

import gzip
import io
import re
import struct
import warnings
import zlib
from array import array as numbers
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import NamedTuple

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
from cbm_cli.datasets.dataset import DataError, Image
from cbm_cli.datasets.mat import read_mat
from cbm_cli.errors import CbmError

_ROWS = {
    "train": ("train", "train_data"),
    "valid": ("valid", "val", "valid_data", "val_data"),
    "test": ("test", "test_data"),
}
_LABELS = {
    "train": ("train_labels", "train"),
    "valid": ("valid_labels", "val_labels", "valid"),
    "test": ("test_labels", "test"),
}
_WIDEST = 1_000_000  # columns of a LIBSVM file; a larger index is a damaged file, and would not fit in memory
_LONGEST_LINE = 10_000_000  # characters of text
_LONGEST_LABEL = 100
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf(inity)?|nan)", re.IGNORECASE)
_FEWEST_NUMBERED = 8  # columns from which on a first line 0, 1, 2, ... is taken as column names

_Arrays = dict[str, np.ndarray]
_Choose = Callable[[Mapping[str, np.ndarray | Header]], dict[str, str]]  # from arrays to names by part


class FileRows(NamedTuple):
    """Rows of finite numbers."""

    values: np.ndarray  # (rows, width): uint8 if all are whole numbers from 0 to 255, else float64
    sparse: bool = False  # columns of zeros may follow: a LIBSVM file is as wide as its largest index
    image: Image | None = None  # how to draw a row, where the file says so


@contextmanager
def reading(path: Path | str, kind: str) -> Iterator[None]:
    """Turn every error of reading a file into one DataError that names it."""
    try:
        with located(path, kind):
            yield
    except CbmError as error:
        raise DataError(str(error)) from None


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
            raise CbmError(f"cannot be read: damaged gzip file ({error}); get the file again") from None
        check_size(len(content))
        return content


def read_tables(path: Path) -> dict[str, FileRows]:
    """Return the tables of a file, one under the name ``""`` or one per part."""
    content = unpacked(path)
    if not content:
        raise DataError(f"{path}: is empty")
    arrays = _arrays(path, content, _parts)
    if arrays is None:
        return {"": _text(path, content)}
    array = arrays.get("", np.empty(0))
    if content.startswith(b"\0\0") and array.ndim > 1 and array.dtype == np.uint8:  # IDX
        image = Image(*array.shape[1:]) if array.ndim == 3 else None
        return {"": table_of(path, array.reshape(len(array), -1) if array.size else array, image=image)}
    return {part: table_of(path, array) for part, array in arrays.items()}


def read_labels(path: Path) -> _Arrays:
    """Return the labels (n,) of a file, of any type: under the name ``""``, or by part."""
    content = unpacked(path)
    arrays = _arrays(path, content, _parts_of_labels)
    if arrays is None:
        arrays = {"": _lines_of_labels(path, content)}
    for part, array in arrays.items():
        if array.size != max(array.shape, default=0) or array.dtype.kind not in "biufUS":
            where = f"{path} {part}".strip()
            raise DataError(
                f"{where}: holds {array.dtype} of shape {array.shape}; expected one label per row"
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise DataError(f"{path}: holds NaN or infinite values; expected one label per row")
    return {part: array.ravel() for part, array in arrays.items()}


def table_of(
    where: Path | str, values: np.ndarray, sparse: bool = False, image: Image | None = None
) -> FileRows:
    """Return a table of an array; DataError, naming ``where``, unless it holds rows of finite numbers."""
    if not values.size:
        raise DataError(f"{where}: holds no rows")
    if values.ndim != 2:
        raise DataError(f"{where}: holds an array of shape {values.shape}; expected rows and columns")
    if values.dtype.kind not in "buif":
        raise DataError(f"{where}: holds an array of {values.dtype}; expected numbers")
    if values.dtype == np.uint8:
        return FileRows(np.ascontiguousarray(values), sparse, image)
    odd = ~np.isfinite(values)
    if odd.any():
        row, column = np.argwhere(odd)[0]
        raise DataError(f"{where}: row {row + 1}, column {column + 1} is {values[row, column]}, not a number")
    with np.errstate(invalid="ignore"):
        whole = values.astype(np.uint8)
    values = whole if np.array_equal(whole, values) else values.astype(np.float64)
    return FileRows(np.ascontiguousarray(values), sparse, image)


# Arrays


def _arrays(path: Path, content: bytes, choose: _Choose) -> _Arrays | None:
    """Return the arrays of a binary file by part, ``""`` for the only one; None for text."""
    if content.startswith((b"\x89HDF", b"MATLAB 7.3")):
        raise DataError(f"{path}: is an HDF5 file, as MATLAB's version 7.3; save it with -v7, or as NPZ")
    starts = {b"\x93NUMPY": "NPY", b"PK": "NPZ", b"MATLAB": "MAT", b"\0\0\0\0": "MAT", b"\0\0": "IDX"}
    kind = next((kind for start, kind in starts.items() if content.startswith(start)), None)
    if kind is None:
        return None
    with reading(path, kind):
        if kind in ("NPY", "IDX"):
            return {"": read_npy(content) if kind == "NPY" else _idx(content)}
        if kind == "MAT":
            found = read_mat(content)
            return {part: found[name] for part, name in choose(found).items()}
        names = choose(npz_headers(io.BytesIO(content)))
        found = read_npz(io.BytesIO(content), names.values())
        return {part: found[name] for part, name in names.items()}


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
    names = _names_of_parts(_ROWS, arrays)
    if names:
        return names
    tables = [
        name for name, array in arrays.items()
        if len(array.shape) == 2 and array.shape[1] > 1 and array.dtype.kind in "buif"
    ]  # fmt: skip
    if len(tables) == 1:
        return {"": tables[0]}
    there = [f"{name} {' x '.join(map(str, a.shape)) or 'scalar'}" for name, a in arrays.items()]
    raise CbmError(
        f"holds {', '.join(there[:10]) or 'no array'}; expected train, valid, test (or train_data, val_data, "
        "test_data), or one array of rows"
    )


def _parts_of_labels(arrays: Mapping[str, np.ndarray | Header]) -> dict[str, str]:
    return _names_of_parts(_LABELS, arrays)


def _names_of_parts(known: Mapping[str, tuple[str, ...]], arrays: Mapping) -> dict[str, str]:
    found = {part: [name for name in names if name in arrays] for part, names in known.items()}
    return {part: names[0] for part, names in found.items() if names}


# Text


def _text(path: Path, content: bytes) -> FileRows:
    bits = _single_digits(content)
    if bits is not None:
        return FileRows(bits)
    _check_text(path, content)
    is_libsvm = re.search(b"^[^#\n]*:", content, re.MULTILINE)
    return _libsvm(path, content) if is_libsvm else _columns(path, content)


def _check_text(path: Path, content: bytes) -> None:
    try:
        is_text = b"\0" not in content and bool(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        is_text = False
    if not is_text:
        raise DataError(f"{path}: is neither text nor NPY, NPZ, MAT or IDX")


def _stream(content: bytes) -> io.TextIOWrapper:
    """Return text to read line by line; as a whole it would take several times its size."""
    return io.TextIOWrapper(io.BytesIO(content), "utf-8-sig")


def _lines(path: Path, content: bytes) -> Iterator[tuple[int, str]]:
    """Yield the lines that hold something, numbered from 1 and without comments."""
    for number, line in enumerate(_stream(content), 1):
        if len(line) > _LONGEST_LINE:
            raise DataError(f"{path}: line {number} has more than {_LONGEST_LINE:,} characters; break it")
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


def _columns(path: Path, content: bytes) -> FileRows:
    """Return the numbers of text in columns, without the column names that a first line may have."""
    first, line = next(_lines(path, content), (0, ""))
    delimiter = next((mark for mark in ",;" if mark in line), None)
    fields = line.split(delimiter)
    skipped = first if line and _are_names(path, fields) else 0
    _check_lines(path, content, 8 * len(fields))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # no rows: `table_of` says so
            values = np.loadtxt(_stream(content), delimiter=delimiter, ndmin=2, skiprows=skipped)
    except ValueError:
        raise DataError(f"{path}: {_flaw(path, content, delimiter, skipped)}") from None
    if skipped and not values.size:
        raise DataError(f"{path}: {_flaw(path, content, delimiter, 0)}")
    return table_of(path, values)


def _are_names(path: Path, fields: list[str]) -> bool:
    """Whether the first line of a file has column names: words, or the numbers 0, 1, 2 and so on."""
    names = [field.strip().strip("\"'") for field in fields]
    unnamed, *others = names
    words = all(name and not _NUMBER.fullmatch(name) for name in others)
    numbered = len(others) > 1 and others == [*map(str, range(len(others)))]
    if not unnamed and others and (words or numbered):
        raise DataError(
            f"{path}: line 1, column 1 has no name, as if it numbered the rows; remove this column"
        )
    if _NUMBER.fullmatch(unnamed):
        return len(names) >= _FEWEST_NUMBERED and names == [*map(str, range(len(names)))]
    return bool(unnamed) and words


def _flaw(path: Path, content: bytes, delimiter: str | None, skipped: int) -> str:
    """Return what is wrong with text that is not a table of numbers."""
    width = 0
    for number, line in _lines(path, content):
        fields = line.split(delimiter)
        for column, field in enumerate(fields, 1):
            if number > skipped and not _NUMBER.fullmatch(field.strip()):
                found = field.strip()[:40] or "empty"
                return f"line {number}, column {column} is {found}, neither a number nor a column name"
        width = width or len(fields)
        if len(fields) != width:
            return f"line {number} has {len(fields)} columns, the lines before it {width}; is it cut short?"
    return "is not a table of numbers"


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
        index, _, value = item.partition(":")
        try:
            index, value = int(index), float(value)
        except ValueError:
            raise DataError(f"{where}: cannot read {item[:40]!r} as index:value (LIBSVM)") from None
        if not 1 <= index <= _WIDEST or index in found:
            flaw = "appears twice" if index in found else f"is out of range; indices are 1 to {_WIDEST:,}"
            raise DataError(f"{where}: index {index} {flaw}")
        found[index] = value
    return found


def _lines_of_labels(path: Path, content: bytes) -> np.ndarray:
    """Return one label per line, as numbers where all are; a name above numbers is skipped."""
    _check_text(path, content)
    _check_lines(path, content, 4 * _LONGEST_LABEL)
    lines = [line.strip() for line in _stream(content) if line.strip()]
    for number, line in enumerate(lines, 1):
        if "," in line or ";" in line or len(line) > _LONGEST_LABEL:
            raise DataError(f"{path}: label {number} is {line[:40]!r}; expected one label per row")
    are_numbers = [bool(_NUMBER.fullmatch(line)) for line in lines]
    if len(lines) > 1 and not are_numbers[0] and all(are_numbers[1:]):
        lines, are_numbers = lines[1:], are_numbers[1:]
    return np.array(lines, dtype=np.float64 if all(are_numbers) else None)
