"""Writing: whole files or none, and one writer at a time in a results folder; readers
never wait.
"""

import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedRandom
from pathlib import Path

from filelock import FileLock, SoftFileLock, Timeout

from cbm_cli.errors import CbmError

FOLDERS = ("machines", "checkpoints")  # folders of files of trials
EXPORTS = {
    "curves": "curve",
    "records": "records",
}  # folders with a table for each run, and what is in it
PART = (
    ".cbm-*.part"  # names of files that are being written; nobody else uses such names
)
_LOCK, _WRITER = ".cbm-lock", ".cbm-writer"


def cannot_write(path: Path, error: OSError) -> CbmError:
    """Return the error for a file that the disk refuses."""
    told = f"{path}: cannot write: {error.strerror}"
    return CbmError(
        f"{told}; make room, or write elsewhere (by -o, if the command has it)"
    )


@contextmanager
def replacing(path: Path, at_once: bool = True) -> Iterator[BufferedRandom]:
    """Open a file that takes the place of ``path`` at the end; CbmError if that fails.

    It is on disk then, unless it need not be ``at_once``: what can be made again
    survives a kill, but perhaps no power failure.
    """
    temporary = path.parent / f".cbm-{os.getpid()}-{secrets.token_hex(6)}.part"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("x+b") as stream:
            yield stream
            if at_once:
                stream.flush()
                os.fsync(stream.fileno())
        os.replace(temporary, path)
        if at_once:
            flush_folder(path.parent)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise cannot_write(path, error) from error
        raise


def flush_folder(folder: Path) -> None:
    """Put the names in a folder on disk, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_atomically(path: Path, content: bytes, at_once: bool = True) -> None:
    """Write to a temporary name next to ``path`` and rename, as `replacing` does."""
    with replacing(path, at_once) as stream:
        stream.write(content)


def write_if_changed(path: Path, content: bytes, at_once: bool = True) -> None:
    """Write atomically, unless the file already has this content."""
    if not path.is_file() or path.read_bytes() != content:
        write_atomically(path, content, at_once)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Be the only one who writes into a results folder; CbmError that names another
    one.

    The lock belongs to the process: it ends with it, however it ends. If the disk has
    no such locks, a file names the holder instead. Temporary files that an earlier
    writer left behind are removed.
    """
    is_new, path, writer = not folder.exists(), folder / _LOCK, folder / _WRITER
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock = FileLock(path).acquire(timeout=0)
        except Timeout:
            raise
        except OSError:  # as on some network disks
            lock = SoftFileLock(f"{path}-held").acquire(timeout=0)
    except Timeout:
        name = (
            writer.read_text("utf-8", "replace") if writer.exists() else "another cbm"
        )
        told = f"{name} is writing here; wait until it has ended, or use another folder"
        raise CbmError(f"{folder}: {told}") from None
    except OSError as error:
        raise cannot_write(path, error) from error
    try:
        with lock:
            own = [path.parent for path in folder.glob("*/manifest.json")]
            for left in (
                *folder.glob(PART),
                *(path for place in own for path in place.rglob(PART)),
            ):
                with suppress(OSError):  # gone, or a folder of this name
                    left.unlink()
            write_atomically(
                writer, f"process {os.getpid()} on {socket.gethostname()}".encode()
            )
            try:
                yield
            finally:
                writer.unlink(missing_ok=True)
    finally:
        if is_new and {*folder.iterdir()} <= {path}:  # nothing was written
            path.unlink(missing_ok=True)
            folder.rmdir()
