"""The content of files, which gzip may have packed, and its checksums."""

import gzip
import hashlib
import zlib
from pathlib import Path

from cbm_cli.errors import CbmError

_GZIP = b"\x1f\x8b"


def unpacked(path: Path) -> bytes:
    """Return the content of a file, unpacked where it starts like gzip; CbmError if it cannot be read."""
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content.startswith(_GZIP) else content
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CbmError(
            f"{path} cannot be read: it is a damaged gzip file ({error}); get the file again"
        ) from None
    except OSError as error:
        raise CbmError(f"{path} cannot be read: {error.strerror}") from None


def checksum(content: bytes, like: str) -> str:
    """Return the checksum of some content, by the algorithm that ``like`` starts with.

    Parameters
    ----------
    like : str
        ``sha256:...``, or ``git:...`` for what git calls the content: SHA-1 of a header and the content.
    """
    algorithm = like.partition(":")[0]
    if algorithm == "git":
        return "git:" + hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    return f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}"
