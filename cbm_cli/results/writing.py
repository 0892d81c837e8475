"""Writing: whole files or none."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EACCES, EDQUOT, EFBIG, ENOSPC, EPERM, EROFS
from io import BufferedRandom
from pathlib import Path

from cbm_cli.errors import CbmError

_REMEDIES = {
    **dict.fromkeys((ENOSPC, EDQUOT, EFBIG), "make room"),
    **dict.fromkeys((EACCES, EPERM, EROFS), "check its permissions"),
}


def cannot_write(path: Path, error: OSError) -> CbmError:
    """Return the error for a file that the disk refuses.

    >>> from errno import EACCES
    >>> print(cannot_write(Path("out/x.csv"), OSError(EACCES, "Permission denied")))
    out/x.csv: cannot write: Permission denied; check its permissions, or write \
elsewhere (by -o, if the command has it)
    """
    reason = error.strerror or str(error) or type(error).__name__
    remedy = _REMEDIES.get(error.errno or 0, "check the disk")
    return CbmError(
        f"{path}: cannot write: {reason}; {remedy}, or write elsewhere (by -o, if "
        "the command has it)"
    )


@contextmanager
def replacing(
    path: Path, at_once: bool = True, writer: str = "output"
) -> Iterator[BufferedRandom]:
    """Open a file that takes the place of ``path`` at the end; CbmError if that fails.

    Parameters
    ----------
    at_once : bool
        Whether it is on disk at the end. What can be made again need not be: then it
        survives a kill, but perhaps no power failure.
    writer : str
        A part of the name of the temporary file: the next writer of the same name in
        this folder may remove what a kill has left.
    """
    name = f".cbm-{writer}-{os.getpid()}-{secrets.token_hex(6)}.part"
    temporary = path.parent / name
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


def write_atomically(
    path: Path, content: bytes, at_once: bool = True, writer: str = "output"
) -> None:
    """Write to a temporary name next to ``path`` and rename, as `replacing` does."""
    with replacing(path, at_once, writer) as stream:
        stream.write(content)


def write_if_changed(
    path: Path, content: bytes, at_once: bool = True, writer: str = "output"
) -> None:
    """Write atomically, unless the file already has this content."""
    with suppress(OSError):
        if path.read_bytes() == content:
            return
    write_atomically(path, content, at_once, writer)
