"""Arrays in NPY and NPZ files, which may be hostile: damaged, huge and pickled ones are
refused.

Only the requested arrays of an NPZ file are read, and a copy of the largest of them.
They have at most `MOST_BYTES`, and so has a file.
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
from typing import IO, Any, BinaryIO, NamedTuple

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
    """Return the arrays of an NPZ file by name.

    Parameters
    ----------
    source : Path or binary file
        The file.
    names : collection of str, optional
        Only those of these names that are there.
    where : str
        What messages begin with.

    Raises
    ------
    CbmError
        The file is missing, damaged, holds anything but plain arrays among those that
        are asked for, or more of them than `MOST_BYTES`.

    Examples
    --------
    >>> file = io.BytesIO(npz_of({"x": np.arange(3), "y": np.zeros(2)}))
    >>> read_npz(file, ["x"])
    {'x': array([0, 1, 2])}
    """
    with located(where, "NPZ"):
        if isinstance(source, Path):
            _check_file(source)
        with zipfile.ZipFile(source) as archive:
            members = _members(archive)
            if names is not None:
                members = {name: members[name] for name in members if name in names}
            check_size(sum(member.file_size for member in members.values()))
            arrays = {}
            for name, member in members.items():
                with located(member.filename, "NPY"):
                    arrays[name] = read_npy(archive.read(member))
    return arrays


def npz_of(arrays: Mapping[str, NDArray]) -> bytes:
    """Return an NPZ file like that of `numpy.savez`, which takes twice as long for
    small arrays.

    Examples
    --------
    >>> len(npz_of({"x": np.arange(3)}))
    260
    """
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            # of 1980, so that the same arrays are the same bytes
            entry = zipfile.ZipInfo(f"{name}.npy")
            entry.external_attr = 0o600 << 16  # who may read the unpacked file
            header = _header_of(array.dtype, array.shape)
            archive.writestr(entry, header + array.tobytes())
    return stream.getvalue()


@lru_cache
def _header_of(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    """The header of an NPY file of an array in C's order."""
    header = {
        "descr": npy.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": shape,
    }
    stream = io.BytesIO()
    npy.write_array_header_1_0(stream, header)
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
            "holds pickled objects; save plain arrays, since reading objects can run "
            "code"
        )
    values = memoryview(content)[stream.tell() :]
    size = prod(header.shape) * header.dtype.itemsize
    if len(values) != size:
        raise ValueError(f"{len(values):,} bytes of the {size:,} in its header")
    if header.dtype.kind == "U":
        letters = np.frombuffer(values, f"{header.dtype.str[0]}u4")
        if (letters > maxunicode).any():
            raise ValueError("text of characters that do not exist")
    order: Any = "F" if header.by_columns else "C"
    return np.ndarray(header.shape, header.dtype, values, order=order).copy("K")


def content_of(path: Path) -> bytes:
    """Return the bytes of a file; OSError also for huge ones, and for pipes, which may
    have no end.
    """
    _check_file(path)
    return path.read_bytes()


def _check_file(path: Path) -> None:
    """Raise OSError for what is not a plain file, and for a huge one."""
    status = path.stat()
    if not S_ISREG(status.st_mode):
        raise OSError(EINVAL, "Is not a plain file")
    if status.st_size > MOST_BYTES:
        size = f"{status.st_size:,}"
        raise OSError(EFBIG, f"Has {size} bytes; the limit is {MOST_BYTES:,}")


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
        limit = f"the limit is {MOST_BYTES:,}; use fewer rows or columns"
        raise CbmError(f"unpacks to {size:,} bytes; {limit}")


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the members of an archive that are arrays, by name."""
    members = {}
    for member in archive.infolist():
        if member.filename.endswith(".npy"):
            members[member.filename.removesuffix(".npy")] = member
    return members


def _header(stream: IO[bytes]) -> Header:
    version = npy.read_magic(stream)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    return Header(*read(stream, max_header_size=_LONGEST_HEADER))
