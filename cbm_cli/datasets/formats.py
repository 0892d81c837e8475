"""Files of rows and of labels in the formats that people keep data in, recognised by their content.

Text (CSV, AMAT), LIBSVM, NPY, NPZ, MAT and IDX, each gzipped or not.
"""

import gzip
import io
import re
import struct
import warnings
import zlib
from collections.abc import Iterator, Mapping
from itertools import islice
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cbm_cli.datasets.dataset import DataError, Image

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
_LARGEST = 2**31  # values, and bytes of an unpacked file
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf(inity)?|nan)", re.IGNORECASE)
_FEWEST_NUMBERED = 8  # columns from which on a first line 0, 1, 2, ... is taken as column names

_Arrays = dict[str, np.ndarray]


class FileRows(NamedTuple):
    """Rows of finite numbers."""

    values: np.ndarray  # (rows, width): uint8 if all are whole numbers from 0 to 255, else float64
    sparse: bool = False  # columns of zeros may follow: a LIBSVM file is as wide as its largest index
    image: Image | None = None  # how to draw a row, where the file says so


def unpacked(path: Path) -> bytes:
    """Return the content of a file, after gunzip where it is packed; DataError if it cannot be read."""
    try:
        content = path.read_bytes()
        if not content.startswith(b"\x1f\x8b"):
            return content
        with gzip.open(io.BytesIO(content)) as stream:
            content = b"".join(islice(iter(lambda: stream.read(1 << 20), b""), _LARGEST >> 20))
            if not stream.read(1):
                return content
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} cannot be read: damaged gzip file ({error}); get the file again") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    raise DataError(f"{path} cannot be read: it unpacks to more than {_LARGEST:,} bytes")


def read_tables(path: Path) -> dict[str, FileRows]:
    """Return the tables of a file, one under the name ``""`` or one per part."""
    content = unpacked(path)
    if not content:
        raise DataError(f"{path}: is empty")
    arrays = _arrays(path, content)
    if arrays is None:
        return {"": _text(path, content)}
    if "" not in arrays:
        return {part: table_of(path, array) for part, array in _parts(path, arrays).items()}
    array = arrays[""]
    if content.startswith(b"\0\0") and array.ndim > 1:  # IDX
        image = Image(*array.shape[1:]) if array.ndim == 3 else None
        return {"": table_of(path, array.reshape(len(array), -1) if array.size else array, image=image)}
    return {"": table_of(path, array)}


def read_labels(path: Path) -> _Arrays:
    """Return the labels (n,) of a file, of any type: under the name ``""``, or by part."""
    content = unpacked(path)
    arrays = _arrays(path, content)
    if arrays is None:
        arrays = {"": _lines_of_labels(path, content)}
    elif "" not in arrays:
        found = {part: [arrays[name] for name in names if name in arrays] for part, names in _LABELS.items()}
        arrays = {part: some[0] for part, some in found.items() if some}
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


def _arrays(path: Path, content: bytes) -> _Arrays | None:
    """Return the arrays of a binary file by name, ``""`` for the only one; None for text."""
    if content.startswith((b"\x89HDF", b"MATLAB 7.3")):
        raise DataError(f"{path}: is an HDF5 file, as MATLAB's version 7.3; save it with -v7, or as NPZ")
    starts = {b"\x93NUMPY": "NPY", b"PK": "NPZ", b"MATLAB": "MAT", b"\0\0\0\0": "MAT", b"\0\0": "IDX"}
    kind = next((kind for start, kind in starts.items() if content.startswith(start)), None)
    if kind is None:
        return None
    try:
        if kind == "IDX":
            return {"": _idx(content)}
        if kind == "MAT":
            return _mat(content)
        loaded = np.load(io.BytesIO(content), allow_pickle=False)
        return {"": loaded} if isinstance(loaded, np.ndarray) else {**loaded}
    except Exception as error:  # NumPy and SciPy raise errors of many types for damaged files
        raise DataError(f"{path}: cannot be read as {kind}: {error}; is the file damaged?") from None


def _mat(content: bytes) -> _Arrays:
    from scipy.io import loadmat
    from scipy.sparse import issparse

    found = {name: array for name, array in loadmat(io.BytesIO(content)).items() if not name.startswith("__")}
    return {name: array.toarray() if issparse(array) else array for name, array in found.items()}


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


def _parts(path: Path, arrays: Mapping[str, np.ndarray]) -> _Arrays:
    """Return the parts among the arrays of a file, or its only array of several columns."""
    found = {part: arrays[name] for part, names in _ROWS.items() for name in names if name in arrays}
    if found:
        return found
    tables = [a for a in arrays.values() if a.ndim == 2 and a.shape[1] > 1 and a.dtype.kind in "buif"]
    if len(tables) == 1:
        return {"": tables[0]}
    there = ", ".join(f"{name} {' x '.join(map(str, a.shape)) or 'scalar'}" for name, a in arrays.items())
    raise DataError(
        f"{path}: holds {there or 'no array'}; expected train, valid, test (or train_data, val_data, "
        "test_data), or one array of rows"
    )


# Text


def _decoded(path: Path, content: bytes) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise DataError(f"{path}: is neither text nor NPY, NPZ, MAT or IDX")
    return text


def _text(path: Path, content: bytes) -> FileRows:
    bits = _single_digits(content)
    if bits is not None:
        return FileRows(bits)
    text = _decoded(path, content)
    return _libsvm(path, text) if re.search("^[^#\n]*:", text, re.MULTILINE) else _columns(path, text)


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


def _columns(path: Path, text: str) -> FileRows:
    """Return the numbers of text in columns, without the column names that a first line may have."""
    first, line = next(_lines(text), (0, ""))
    delimiter = next((mark for mark in ",;" if mark in line), None)
    skipped = first if line and _are_names(path, line.split(delimiter)) else 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # no rows: `table_of` says so
            values = np.loadtxt(io.StringIO(text), delimiter=delimiter, ndmin=2, skiprows=skipped)
    except ValueError:
        raise DataError(f"{path}: {_flaw(text, delimiter, skipped)}") from None
    if skipped and not values.size:
        raise DataError(f"{path}: {_flaw(text, delimiter, 0)}")
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


def _flaw(text: str, delimiter: str | None, skipped: int) -> str:
    """Return what is wrong with text that is not a table of numbers."""
    width = 0
    for number, line in _lines(text):
        fields = line.split(delimiter)
        for column, field in enumerate(fields, 1):
            if number > skipped and not _NUMBER.fullmatch(field.strip()):
                found = field.strip()[:40] or "empty"
                return f"line {number}, column {column} is {found}, neither a number nor a column name"
        width = width or len(fields)
        if len(fields) != width:
            return f"line {number} has {len(fields)} columns, the lines before it {width}; is it cut short?"
    return "is not a table of numbers"


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that hold something, numbered from 1 and without comments."""
    for number, line in enumerate(text.splitlines(), 1):
        if line := line.partition("#")[0].strip():
            yield number, line


def _libsvm(path: Path, text: str) -> FileRows:
    rows: list[dict[int, float]] = []
    for number, line in _lines(text):
        label, *items = line.split()
        rows.append(_indexed(f"{path}: line {number}", [label, *items] if ":" in label else items))
    width = max((max(row, default=0) for row in rows), default=0)
    if len(rows) * width > _LARGEST:
        raise DataError(f"{path}: is {len(rows):,} rows of {width:,}; that does not fit in memory")
    binary = all(value in (0, 1) for row in rows for value in row.values())
    values = np.zeros((len(rows), width), np.uint8 if binary else np.float64)
    for row, found in enumerate(rows):
        values[row, [index - 1 for index in found]] = [*found.values()]
    return table_of(path, values, sparse=True)


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
    lines = [line.strip() for line in _decoded(path, content).splitlines() if line.strip()]
    for number, line in enumerate(lines, 1):
        if "," in line or ";" in line:
            raise DataError(f"{path}: label {number} is {line[:40]!r}; expected one label per row")
    numbers = [bool(_NUMBER.fullmatch(line)) for line in lines]
    if len(lines) > 1 and not numbers[0] and all(numbers[1:]):
        lines, numbers = lines[1:], numbers[1:]
    return np.array(lines, dtype=np.float64 if all(numbers) else None)
