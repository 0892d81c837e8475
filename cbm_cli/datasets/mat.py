"""MAT files of versions 4 to 7: their numeric, sparse and text arrays.

SciPy's reader believes what a file says of itself, and damaged files crash its process.
"""

import zlib
from collections.abc import Iterator
from math import prod
from struct import unpack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbm_cli.arrays import MOST_BYTES, check_size

_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_TEXTS = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
_BYTE, _MATRIX, _COMPRESSED = 2, 14, 15  # types of elements
_CHAR, _SPARSE, _NUMERIC, _COMPLEX = 4, 5, range(6, 16), 0x800  # classes of arrays, and a flag
_VERSION_4 = ("f8", "f4", "i4", "i2", "u2", "u1")


def read_mat(content: bytes) -> dict[str, NDArray]:
    """Return the numeric, sparse (filled up) and text arrays by name; ValueError or CbmError for damage."""
    if content.startswith(b"\0\0\0\0"):
        return dict(_version_4(content))
    found: dict[str, NDArray] = {}
    order = {b"IM": "<", b"MI": ">"}[content[126:128]]
    for kind, data in _elements(memoryview(content)[128:], order):
        if kind == _COMPRESSED:
            room = MOST_BYTES - sum(array.nbytes for array in found.values())
            ((kind, data),) = _elements(_inflated(data, room), order)
        if kind == _MATRIX:
            found |= _variable(data, order)
            check_size(sum(array.nbytes for array in found.values()))
    return found


def _inflated(packed: memoryview, room: int) -> memoryview:
    stream = zlib.decompressobj()
    content = stream.decompress(packed, room + 1)
    if len(content) > room:
        check_size(MOST_BYTES + 1)
    if not stream.eof:
        raise ValueError("truncated")
    return memoryview(content)


def _elements(content: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Yield the type and the bytes of each element; a small one is in the eight bytes of its tag."""
    at = 0
    while at < len(content):
        kind, size = unpack(f"{order}2I", content[at : at + 8])
        start, room = at + 8, size if kind == _COMPRESSED else -(-size // 8) * 8
        if kind >> 16:
            start, room, kind, size = at + 4, 4, kind & 0xFFFF, kind >> 16
        if size > room or start + size > len(content):
            raise ValueError("truncated")
        yield kind, content[start : start + size]
        at = start + room


def _variable(content: memoryview, order: str) -> dict[str, NDArray]:
    """Return the array of a matrix element by its name; nothing for structures, cells and complex numbers."""
    elements = _elements(content, order)
    flags, _ = unpack(f"{order}2I", next(elements)[1])
    kind = flags & 0xFF
    if flags & _COMPLEX or kind not in (_CHAR, _SPARSE, *_NUMERIC):
        return {}
    shape = tuple(_numbers(*next(elements), order).tolist())
    name = bytes(next(elements)[1]).decode("utf-8", "replace")
    check_size(8 * prod(shape))
    if min(shape, default=0) < 0 or len(shape) < 2:
        raise ValueError(f"{name}: shape {shape}")
    if kind == _SPARSE:
        rows, starts = (_numbers(*next(elements), order) for _ in range(2))
        stored, data = next(elements)
        stored = _BYTE if len(data) == starts[-1] else stored  # of logical values, whatever the file says
        return {name: _filled(shape, rows, starts, _numbers(stored, data, order))}
    if kind == _CHAR:
        return {name: _texts(shape, *next(elements), order)}
    return {name: _numbers(*next(elements), order).reshape(shape, order="F")}


def _numbers(kind: int, data: memoryview, order: str) -> NDArray:
    return np.frombuffer(data, f"{order}{_NUMBERS[kind]}")


def _texts(shape: tuple[int, ...], kind: int, data: memoryview, order: str) -> NDArray:
    """Return the rows of characters as texts."""
    wide = _TEXTS[kind] not in ("latin-1", "utf-8")
    code = f"{_TEXTS[kind]}-{'le' if order == '<' else 'be'}" if wide else _TEXTS[kind]
    letters = np.array([*bytes(data).decode(code, "replace")], "U1").reshape(shape, order="F")
    return np.array(["".join(row) for row in letters.reshape(-1, shape[-1])]) if letters.size else letters


def _filled(shape: tuple[int, ...], rows: NDArray, starts: NDArray, values: NDArray) -> NDArray:
    """Return a sparse array with its zeros: the rows of its values, and where each column starts."""
    counts: NDArray[Any] = np.diff(starts.astype(np.int64))
    used = int(starts[-1])
    sizes = len(shape) == 2 and len(counts) == shape[1] and starts[0] == 0 and (counts >= 0).all()
    if not sizes or used > min(len(rows), len(values)) or not ((rows >= 0) & (rows < shape[0])).all():
        raise ValueError("sparse array with values outside of it")
    array = np.zeros(shape, values.dtype)
    array[rows[:used], np.repeat(np.arange(shape[1]), counts)] = values[:used]
    return array


def _version_4(content: bytes) -> Iterator[tuple[str, NDArray]]:
    """Yield the full arrays of a file of version 4 with its bytes in little-endian order."""
    at = 0
    while at < len(content):
        kind, rows, columns, complex_, length = unpack("<5i", content[at : at + 20])
        dtype = np.dtype(f"<{_VERSION_4[kind // 10]}")
        start = at + 20 + length
        at = start + rows * columns * dtype.itemsize * (1 + bool(complex_))
        if min(kind, rows, columns, length) < 0 or at > len(content):
            raise ValueError("truncated")
        if not complex_ and kind % 10 == 0:
            array = np.frombuffer(content, dtype, rows * columns, start).reshape(rows, columns, order="F")
            yield content[start - length : start].rstrip(b"\0").decode("latin-1"), array
