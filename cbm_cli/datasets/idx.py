"""IDX files, plain or packed by gzip: the format of MNIST.

Big-endian: two zero bytes, a type (8: unsigned byte), the number of dimensions, the dimensions as 32-bit
numbers, then the values row by row (Y. LeCun, "The MNIST database").
"""

import gzip
import struct
import zlib
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import BinaryIO

import numpy as np

from cbm_cli.errors import CbmError

BYTES = b"\0\0\x08"
"""What files of unsigned bytes start with; the number of dimensions follows."""
_IMAGES = 0x0803
_LABELS = 0x0801
_GZIP = b"\x1f\x8b"
_LARGEST = 2**31


def read_shape(path: Path) -> tuple[int, ...]:
    """Return (images, rows, columns), or (rows, columns), of an IDX file from its header alone."""
    with _unpacked(path) as stream:
        return _shape(path, stream)


def read_images(path: Path) -> np.ndarray:
    """Return the images of an IDX file as uint8 (images, rows * columns), one image a row.

    Raises
    ------
    CbmError
        The file cannot be read, is no IDX file of byte images, or is shorter or longer than it says.
    """
    with _unpacked(path) as stream:
        shape = _shape(path, stream)
        expected = prod(shape)
        values = stream.read(expected + 1)  # one more than expected, to notice an over-long file
    if len(values) != expected:
        state = "goes on after" if len(values) > expected else f"is truncated: it holds {len(values)} of"
        raise CbmError(f"{path} {state} the {expected} values that its header promises; get the file again")
    return np.frombuffer(values, np.uint8).reshape(shape[0], -1)


@contextmanager
def _unpacked(path: Path):
    try:
        with path.open("rb") as file:
            yield gzip.GzipFile(fileobj=file) if file.peek(2)[:2] == _GZIP else file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CbmError(f"{path} is a damaged gzip file ({error}); get the file again") from None
    except OSError as error:
        raise CbmError(f"{path} cannot be read: {error.strerror}") from None


def _shape(path: Path, stream: BinaryIO) -> tuple[int, ...]:
    magic = stream.read(4)
    if magic[:3] != BYTES or magic[3:] not in (b"\2", b"\3"):
        labels = int.from_bytes(magic, "big") == _LABELS
        found = "IDX labels" if labels else f"bytes 0x{magic.hex()}" if magic else "nothing"
        raise CbmError(
            f"{path} is not an IDX file of images: it starts with {found}, expected 0x{_IMAGES:08x} "
            "(unsigned bytes, three dimensions)"
        )
    sizes = stream.read(4 * magic[3])
    if len(sizes) < 4 * magic[3]:
        raise CbmError(
            f"{path} is truncated within its header of {4 + 4 * magic[3]} bytes; get the file again"
        )
    rows, *image = struct.unpack(f">{magic[3]}I", sizes)
    if not 0 < rows * prod(image) < _LARGEST:
        size = " x ".join(map(str, image))
        raise CbmError(f"{path} claims to hold {rows} images of {size}; that is no usable data set")
    return rows, *image
