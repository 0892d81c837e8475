"""Writing files so that a reader sees either a whole file or none."""

import os
import tempfile
from pathlib import Path

from cbm_cli.errors import CbmError


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a temporary name beside ``path``, flush to disk, rename; raise CbmError if that fails."""
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".", suffix=".part", dir=path.parent)
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        raise CbmError(f"{path}: cannot write: {error.strerror}; choose another folder with -o") from error
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def write_if_changed(path: Path, content: bytes) -> None:
    """Write atomically, unless the file already has this content."""
    if not path.is_file() or path.read_bytes() != content:
        write_atomically(path, content)
