"""One writer at a time in a results folder; readers never wait and never make writers wait."""

import contextlib
import errno
import os
import re
import socket
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from cbm_cli.errors import CbmError
from cbm_cli.results.writing import cannot_write, left_behind, part_beside


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        return None


fcntl, msvcrt = _module("fcntl"), _module("msvcrt")  # Windows has the second one, all others the first
_BUSY = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK)  # someone else has the lock
_FAR = 1 << 30  # the byte of a lock file that Windows locks, behind its text, which others read
_TRIES = 10  # who asks for the writer (`writer_of`) has the lock for an instant


class Writer(NamedTuple):
    """The run that writes into a results folder, or that was killed while it did."""

    name: str  # process and computer
    began: int  # nanoseconds
    alive: bool | None  # None: it ran on another computer, whose locks may not be seen from here
    command: str  # that resumes it


@contextlib.contextmanager
def locked(folder: Path, command: str = "") -> Iterator[None]:
    """Be the only one who writes into a results folder; CbmError that names another one.

    The lock belongs to the process: it ends with it, however it ends. Where the disk has no such locks, a
    file names the holder instead; if its process is gone, the next one on the same computer takes over.
    ``command`` is what resumes the writer. Temporary files that an earlier writer left behind are removed.
    """
    path, soft = folder / ".cbm-lock", folder / ".cbm-lock-held"
    me, is_new = f"process {os.getpid()} on {socket.gethostname()}", not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise cannot_write(path, error) from error
    with stream:
        native = _lock(stream, path)
        if native is None:
            _lock_softly(soft, me)
        elif not native:
            raise _busy(folder, _text_of(path).partition("\n")[0])
        stream.truncate(0)
        stream.write(f"{me}\n{command}")
        stream.flush()
        for left in left_behind(folder):
            with contextlib.suppress(OSError):  # gone, or a folder of this name
                left.unlink()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                if native is None:
                    soft.unlink()
                if not fcntl:  # Windows does not remove open files
                    stream.close()
                path.unlink()
                if is_new:
                    folder.rmdir()  # if nothing else was written


def writer_of(folder: Path) -> Writer | None:
    """Return the last run that began to write into a results folder, or None if it has ended by itself."""
    path, soft = folder / ".cbm-lock", folder / ".cbm-lock-held"
    try:
        began = path.stat().st_mtime_ns
        with path.open("r+" if os.access(path, os.W_OK) else "r", encoding="utf-8") as stream:
            free = _try_lock(stream)
    except OSError:
        return None
    name, _, command = _text_of(path)[:2000].partition("\n")
    alive: bool | None = soft.exists() and not _is_gone(_text_of(soft)) if free is None else not free
    if not alive and not name.endswith(f" on {socket.gethostname()}"):
        alive = None
    return Writer(name.strip() or "another cbm", began, alive, command)


def _lock(stream: TextIO, path: Path) -> bool | None:
    """Lock a file: whether that succeeds, or None where there are no such locks."""
    for turn in range(_TRIES):
        native = _try_lock(stream)
        if native is not False:
            break
        time.sleep(0.02 * (turn < _TRIES - 1))
    try:
        if native and not os.path.samestat(path.stat(), os.fstat(stream.fileno())):
            return False  # its last holder has just removed it
    except OSError:
        return False
    return native


def _try_lock(stream: TextIO) -> bool | None:
    try:
        if fcntl:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        elif msvcrt:
            os.lseek(stream.fileno(), _FAR, os.SEEK_SET)
            msvcrt.locking(stream.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            return None
    except OSError as error:
        return False if error.errno in _BUSY else None
    return True


def _lock_softly(path: Path, me: str) -> None:
    """Create a file that names the holder; CbmError if another one has."""
    try:
        holder = _text_of(path)
        if _is_gone(holder):
            taken = part_beside(path)
            path.rename(taken)
            if _text_of(taken) != holder:  # someone else has just taken over
                taken.rename(path)
            taken.unlink(missing_ok=True)
        with path.open("x", encoding="utf-8") as stream:
            stream.write(me)
    except FileExistsError:
        remedy = f"; if this process does not run any more, remove {path}"
        raise _busy(path.parent, _text_of(path), remedy) from None
    except OSError as error:
        path.unlink(missing_ok=True)
        raise cannot_write(path, error) from error


def _is_gone(holder: str) -> bool:
    """Whether the process that a lock file names has run on this computer and does not run any more."""
    found = re.fullmatch(r"process (\d+) on (.*)", holder)
    if not found or found[2] != socket.gethostname() or os.name == "nt":
        return False
    try:
        os.kill(int(found[1]), 0)
    except ProcessLookupError:
        return True
    except OSError:  # another user's
        pass
    return False


def _busy(folder: Path, holder: str, more: str = "") -> CbmError:
    remedy = f"wait until it has ended, or choose another folder with -o{more}"
    return CbmError(f"{folder}: {holder.strip() or 'another cbm'} is writing here; {remedy}", "system")


def _text_of(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
