"""Arrays in NPY and NPZ files, which may be hostile: damaged, huge and pickled ones are
refused.

A file costs no more memory than the arrays that are asked for, and they no more than
`MOST_BYTES`.
"""

import io
import zipfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from errno import EFBIG, EINVAL
from functools import lru_cache
from math import prod
from pathlib import Path
from stat import S_ISREG
from sys import maxunicode
from typing import IO, BinaryIO, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from cbm_cli.errors import CbmError

MOST_BYTES = 2**30  # of the unpacked content of a file; MNIST has 2**25.5
_LONGEST_HEADER = 1000  # characters; NumPy writes about 120


class Header(NamedTuple):
    """The header of an NPY file: shape and type of its array."""

    shape: tuple[int, ...]
    by_columns: bool  # Fortran's order of the values
    dtype: np.dtype


def read_npz(
    source: Path | BinaryIO, names: Collection[str] | None = None, where: str = ""
) -> dict[str, NDArray]:
    """Return the arrays of an NPZ file by name: all, or those of ``names`` that are
    there.

    Raises CbmError, which begins with ``where`` (default: the path), if the file is
    missing, damaged, holds anything but plain arrays among those that are asked for, or
    more of them than `MOST_BYTES`.
    """
    with located(where or (source if isinstance(source, Path) else ""), "NPZ"):
        archive = zipfile.ZipFile(
            io.BytesIO(content_of(source)) if isinstance(source, Path) else source
        )
        members = {
            name: one
            for name, one in _members(archive).items()
            if names is None or name in names
        }
        check_size(sum(member.file_size for member in members.values()))
        arrays = {}
        for name, member in members.items():
            with located(member.filename, "NPY"):
                arrays[name] = read_npy(archive.read(member))
        return arrays


def npz_of(arrays: Mapping[str, NDArray]) -> bytes:
    """Return an NPZ file like that of `numpy.savez`, which takes twice as long for
    small arrays.
    """
    with zipfile.ZipFile(stream := io.BytesIO(), "w") as archive:
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(
                f"{name}.npy"
            )  # of 1980, so that the same arrays are the same bytes
            entry.external_attr = 0o600 << 16  # who may read the unpacked file
            archive.writestr(
                entry, _header_of(array.dtype, array.shape) + array.tobytes()
            )
    return stream.getvalue()


@lru_cache
def _header_of(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    """The header of an NPY file of an array in C's order."""
    facts = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(stream := io.BytesIO(), facts)
    return stream.getvalue()


def npz_headers(source: BinaryIO) -> dict[str, Header]:
    """Return the headers of the arrays of an NPZ file by name, without reading them;
    raises as `read_npz`.
    """
    headers = {}
    with zipfile.ZipFile(source) as archive:
        for name, member in _members(archive).items():
            with located(name, "NPY"), archive.open(member) as stream:
                headers[name] = _header(stream)
    return headers


def read_npy(content: bytes) -> NDArray:
    """Return the array of an NPY file; ValueError or CbmError, among others, for a
    damaged one.
    """
    stream = io.BytesIO(content)
    header = _header(stream)
    if header.dtype.hasobject:
        raise CbmError(
            "holds pickled objects; save plain arrays, since reading objects can "
            "run "
            "code"
        )
    values, size = (
        memoryview(content)[stream.tell() :],
        prod(header.shape) * header.dtype.itemsize,
    )
    if len(values) != size:
        raise ValueError(f"{len(values):,} bytes of the {size:,} in its header")
    if (
        header.dtype.kind == "U"
        and (np.frombuffer(values, f"{header.dtype.str[0]}u4") > maxunicode).any()
    ):
        raise ValueError("text of characters that do not exist")
    array = np.ndarray(
        header.shape, header.dtype, values, order="F" if header.by_columns else "C"
    )
    return array.copy("K")


def content_of(path: Path) -> bytes:
    """Return the bytes of a file; OSError also for huge ones, and for pipes, which may
    have no end.
    """
    found = path.stat()
    if not S_ISREG(found.st_mode):
        raise OSError(EINVAL, "Is not a plain file")
    if found.st_size > MOST_BYTES:
        raise OSError(
            EFBIG, f"Has {found.st_size:,} bytes; the limit is {MOST_BYTES:,}"
        )
    return path.read_bytes()


@contextmanager
def located(where: object, kind: str) -> Iterator[None]:
    """Turn every error of reading a file into one CbmError that begins with ``where``,
    if it is given.
    """
    place = f"{where}: " if where else ""
    try:
        yield
    except CbmError as error:
        raise CbmError(f"{place}{error}") from None
    except FileNotFoundError:
        raise CbmError(f"{place}no such file") from None
    except Exception as error:  # damaged files cause errors of some twenty types
        if isinstance(error, OSError) and error.strerror:
            raise CbmError(f"{place}cannot be read: {error.strerror}") from None
        reason = (str(error) or type(error).__name__).splitlines()[0][:200]
        raise CbmError(
            f"{place}cannot be read as {kind}: {reason}; is the file damaged?"
        ) from None


def check_size(size: int) -> None:
    """Raise CbmError for more bytes than `MOST_BYTES`."""
    if size > MOST_BYTES:
        told = f"unpacks to {size:,} bytes; the limit is {MOST_BYTES:,}"
        raise CbmError(f"{told}; use fewer rows or columns")


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    names = (
        member for member in archive.infolist() if member.filename.endswith(".npy")
    )
    return {member.filename.removesuffix(".npy"): member for member in names}


def _header(stream: IO[bytes]) -> Header:
    version = npy.read_magic(stream)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    return Header(*read(stream, max_header_size=_LONGEST_HEADER))
