"""Writing files so that a reader sees either a whole file or none."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from io import BufferedRandom
from pathlib import Path

from cbm_cli.errors import CbmError

KINDS = ("machines", "unfinished", "checkpoints", "pretrained")  # folders with a folder for each run
EXPORTS = {"curves": "curve", "records": "records"}  # folders with a table for each run, and what is in it
PART = ".cbm-*.part"  # names of files that are being written; nobody else uses such names


def part_beside(path: Path) -> Path:
    """Return a name beside a file that nobody else uses."""
    return path.parent / f".cbm-{os.getpid()}-{secrets.token_hex(6)}.part"


def cannot_write(path: Path, error: OSError) -> CbmError:
    """Return the error for a file that the disk refuses."""
    return CbmError(f"{path}: cannot write: {error.strerror}; choose another folder with -o", "system")


def left_behind(folder: Path) -> Iterator[Path]:
    """Return files of killed writers: in a results folder and in those of its experiments."""
    yield from folder.glob(PART)
    for manifest in folder.glob("*/manifest.json"):
        for place in ("", *(f"{kind}/" for kind in (*KINDS, *EXPORTS)), *(f"{kind}/*/" for kind in KINDS)):
            yield from manifest.parent.glob(f"{place}{PART}")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BufferedRandom]:
    """Open a file that takes the place of ``path`` at the end, once it is on disk; CbmError if that fails."""
    temporary = part_beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("x+b") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
        flush_folder(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def flush_folder(folder: Path) -> None:
    """Put the names in a folder on disk, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a temporary name beside ``path``, flush to disk, rename; raise CbmError if that fails."""
    with replacing(path) as stream:
        stream.write(content)


def write_if_changed(path: Path, content: bytes) -> None:
    """Write atomically, unless the file already has this content."""
    if not path.is_file() or path.read_bytes() != content:
        write_atomically(path, content)
