"""Writing files so that a reader sees either a whole file or none, and one writer at a time."""

import contextlib
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from cbm_cli.errors import CbmError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of ``path`` at the end, once it is on disk; CbmError if that fails."""
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".", suffix=".part", dir=path.parent)
        with os.fdopen(handle, "w+b") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, _MODE)
        os.replace(temporary, path)
        _flush_folder(path.parent)
    except OSError as error:
        raise CbmError(f"{path}: cannot write: {error.strerror}; choose another folder with -o") from error
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def _flush_folder(folder: Path) -> None:
    """Put the names in a folder on disk, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _usual_mode() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


_MODE = _usual_mode()  # of new files, by the user's umask


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a temporary name beside ``path``, flush to disk, rename; raise CbmError if that fails."""
    with replacing(path) as stream:
        stream.write(content)


def write_if_changed(path: Path, content: bytes) -> None:
    """Write atomically, unless the file already has this content."""
    if not path.is_file() or path.read_bytes() != content:
        write_atomically(path, content)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Be the only one who writes into a results folder; CbmError that names another one.

    The lock belongs to the process: it ends with it, however it ends. Temporary files that an earlier writer
    left behind are removed.
    """
    path = folder / ".lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = path.open("a+")
    except OSError as error:
        raise CbmError(f"{path}: cannot write: {error.strerror}; choose another folder with -o") from error
    with stream:
        try:
            if fcntl:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(path.stat(), os.fstat(stream.fileno())):
                raise BlockingIOError  # its last holder has just removed it
        except OSError:
            stream.seek(0)
            holder = stream.read().strip() or "another cbm"
            remedy = "wait until it has ended, or choose another folder with -o"
            raise CbmError(f"{folder}: {holder} is writing here; {remedy}") from None
        stream.truncate(0)
        stream.write(f"process {os.getpid()} on {socket.gethostname()}")
        stream.flush()
        for left in folder.rglob(".*.part"):
            left.unlink(missing_ok=True)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                path.unlink()
                folder.rmdir()  # if nothing else was written
