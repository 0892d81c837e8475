"""Tables of numbers in the formats that people keep data in, told apart by what the files hold.

Text (CSV, AMAT), LIBSVM, NPY, NPZ, MAT and IDX, each gzipped or not.
"""

import io
import re
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cbm_cli.datasets import idx
from cbm_cli.datasets.dataset import Image
from cbm_cli.datasets.packing import unpacked
from cbm_cli.errors import CbmError

_PART_NAMES = {
    "train": ("train", "train_data"),
    "valid": ("valid", "val", "valid_data", "val_data"),
    "test": ("test", "test_data"),
}
_WIDEST = 1_000_000  # columns; an index beyond is a damaged file, and would not fit in memory
_LARGEST = 2**31  # values


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of numbers.

    Attributes
    ----------
    values : numpy.ndarray
        (rows, width), finite: uint8 where all are whole numbers from 0 to 255, float64 otherwise.
    sparse : bool
        Whether columns of zeros may follow: a LIBSVM file is as wide as its largest index.
    image : Image or None
        How to draw a row, where the file says.
    """

    values: np.ndarray
    sparse: bool = False
    image: Image | None = None


def read(path: Path) -> dict[str, Table]:
    """Return the tables of a file: one under the name ``""``, or those of its parts by name.

    Raises
    ------
    CbmError
        The file cannot be read, is of no known format, cut short, or holds no rows of finite numbers.
    """
    content = unpacked(path)
    if not content:
        raise CbmError(f"{path}: is empty")
    return next(reader for start, reader in _READERS if content.startswith(start))(path, content)


def widened(table: Table, width: int) -> Table:
    """Return a sparse table with columns of zeros up to ``width``; any other as it is."""
    missing = width - table.values.shape[1]
    if not table.sparse or missing <= 0:
        return table
    return Table(np.pad(table.values, ((0, 0), (0, missing))), sparse=True)


def table_of(where: Path | str, values: np.ndarray, **about: Any) -> Table:
    """Return a table of an array; CbmError, naming ``where``, unless it holds rows of finite numbers."""
    if not values.size:
        raise CbmError(f"{where}: holds no rows")
    if values.ndim != 2:
        raise CbmError(f"{where}: holds an array of shape {values.shape}; expected rows and columns")
    if values.dtype.kind not in "buif":
        raise CbmError(f"{where}: holds an array of {values.dtype}; expected numbers")
    if values.dtype == np.uint8:
        return Table(np.ascontiguousarray(values), **about)
    odd = ~np.isfinite(values)
    if odd.any():
        row, column = np.argwhere(odd)[0]
        raise CbmError(f"{where}: row {row + 1}, column {column + 1} is {values[row, column]}, no number")
    with np.errstate(invalid="ignore"):
        whole = values.astype(np.uint8)
    if np.array_equal(whole, values):
        return Table(np.ascontiguousarray(whole), **about)
    return Table(np.ascontiguousarray(values, np.float64), **about)


# Arrays


def _npy(path: Path, content: bytes) -> dict[str, Table]:
    return {"": table_of(path, _loaded(path, content))}


def _npz(path: Path, content: bytes) -> dict[str, Table]:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {name.removesuffix(".npy"): archive.read(name) for name in archive.namelist()}
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise CbmError(f"{path}: cannot be read: it is a damaged NPZ file ({error})") from None
    return _named(path, {name: _loaded(path, member) for name, member in members.items()})


def _loaded(path: Path, content: bytes) -> np.ndarray:
    try:
        return np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise CbmError(f"{path}: cannot be read as NumPy's arrays of numbers: {error}") from None


def _mat(path: Path, content: bytes) -> dict[str, Table]:
    from scipy.io import loadmat
    from scipy.sparse import issparse

    try:
        variables = loadmat(io.BytesIO(content))
    except Exception as error:  # whatever SciPy meets in a damaged file
        raise CbmError(f"{path}: cannot be read: it is a damaged MAT file ({error})") from None
    arrays = {name: value for name, value in variables.items() if not name.startswith("__")}
    return _named(path, {name: a.toarray() if issparse(a) else a for name, a in arrays.items()})


def _hdf5(path: Path, content: bytes) -> dict[str, Table]:
    raise CbmError(f"{path}: is an HDF5 file, as MATLAB's version 7.3; save it with -v7, or as NPZ")


def _named(path: Path, arrays: Mapping[str, np.ndarray]) -> dict[str, Table]:
    """Return the parts among the arrays of a file, or its only array of several columns."""
    found = {part: name for part, names in _PART_NAMES.items() for name in names if name in arrays}
    if found:
        return {part: table_of(path, arrays[name]) for part, name in found.items()}
    tables = [a for a in arrays.values() if a.ndim == 2 and a.shape[1] > 1 and a.dtype.kind in "buif"]
    if len(tables) == 1:
        return {"": table_of(path, tables[0])}
    there = ", ".join(f"{name} {' x '.join(map(str, a.shape)) or 'scalar'}" for name, a in arrays.items())
    raise CbmError(
        f"{path}: holds {there or 'no array'}; expected train, valid, test (or train_data, val_data, "
        "test_data), or one array of rows"
    )


def _idx(path: Path, content: bytes) -> dict[str, Table]:
    _, *image = idx.read_shape(path)
    return {"": Table(idx.read_images(path), image=Image(*image) if len(image) == 2 else None)}


# Text


def _text(path: Path, content: bytes) -> dict[str, Table]:
    bits = _single_digits(content)
    if bits is not None:
        return {"": Table(bits)}
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise CbmError(f"{path}: is neither text nor NPY, NPZ, MAT or IDX")
    if re.search("^[^#\n]*:", text, re.MULTILINE):
        return {"": _libsvm(path, text)}
    return {"": table_of(path, _columns(path, text))}


def _single_digits(content: bytes) -> np.ndarray | None:
    """Return the values of text whose lines are zeros and ones, parted alike; None for any other text.

    Most files of binary data are of this form, and it is read a hundred times faster than numbers are.
    """
    content += b"" if content.endswith(b"\n") else b"\n"
    stride = content.find(b"\n") + 1
    if stride % 2 or len(content) % stride:
        return None
    lines = np.frombuffer(content, np.uint8).reshape(-1, stride)
    parted = (lines[:, 1:-1:2] == lines[0, 1]).all() and (lines[:, -1] == ord("\n")).all()
    values = lines[:, ::2] - np.uint8(ord("0"))
    if lines[0, 1] not in b",;\t \n" or not parted or values.max() > 1:
        return None
    return np.ascontiguousarray(values)


def _columns(path: Path, text: str) -> np.ndarray:
    first = text.lstrip().partition("\n")[0]
    delimiter = next((mark for mark in ",;" if mark in first), None)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # no rows: `table_of` says so
            return np.loadtxt(io.StringIO(text), delimiter=delimiter, ndmin=2)
    except ValueError:
        raise CbmError(f"{path}: {_flaw(text, delimiter)}") from None


def _flaw(text: str, delimiter: str | None) -> str:
    """Return what is wrong with text that is no table of numbers."""
    width = 0
    for number, line in _lines(text):
        fields = line.split(delimiter)
        for column, field in enumerate(fields, 1):
            if not re.fullmatch(
                r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|nan)\w*", field.strip(), re.I
            ):
                what = f"line {number}, column {column} is {field.strip()[:40] or 'empty'}"
                return f"{what}, neither a number nor of another format; column names are not read"
        width = width or len(fields)
        if len(fields) != width:
            return f"line {number} has {len(fields)} columns, those before it have {width}; is it cut short?"
    return "is no table of numbers"


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that hold something, numbered from 1 and without comments."""
    for number, line in enumerate(text.splitlines(), 1):
        if line := line.partition("#")[0].strip():
            yield number, line


def _libsvm(path: Path, text: str) -> Table:
    rows: list[dict[int, float]] = []
    for number, line in _lines(text):
        label, *items = line.split()
        rows.append(_indexed(f"{path}: line {number}", [label, *items] if ":" in label else items))
    width = max((max(row, default=0) for row in rows), default=0)
    if len(rows) * width > _LARGEST:
        raise CbmError(f"{path}: is {len(rows):,} rows of {width:,}; that does not fit in memory")
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
            raise CbmError(f"{where}: cannot read {item[:40]!r} as index:value (LIBSVM)") from None
        if not 1 <= index <= _WIDEST or index in found:
            told = "is there twice" if index in found else f"is out of range; indices are 1 to {_WIDEST:,}"
            raise CbmError(f"{where}: index {index} {told}")
        found[index] = value
    return found


_Reader = Callable[[Path, bytes], dict[str, Table]]
_READERS: tuple[tuple[bytes, _Reader], ...] = (
    (b"\x93NUMPY", _npy),
    (b"PK", _npz),
    (b"MATLAB 7.3", _hdf5),
    (b"MATLAB", _mat),
    (b"\x89HDF", _hdf5),
    (b"\0\0\0\0", _mat),  # version 4
    (b"\0\0", _idx),
    (b"", _text),
)
