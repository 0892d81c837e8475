"""ZIP archives of many small files, and paths that lead into them."""

import hashlib
import mmap
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO

_DATE = (1980, 1, 1, 0, 0, 0)  # the same for all members, so that the same content gives the same bytes
_LOCAL = struct.Struct("<4s5H3L2H")  # the header before each member of a ZIP file
_COMMENT = re.compile(rb"trials ([0-9,-]*) sha256 ([0-9a-f]{64})\Z")
_UNREADABLE = (OSError, ValueError, KeyError, EOFError, NotImplementedError, RuntimeError, zlib.error)


class Archive:
    """A ZIP archive, open for reading.

    The comment at the end of an archive holds the numbers of the trials in it, and the SHA-256 of everything
    before that checksum.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stream = path.open("rb")
        size = os.fstat(self._stream.fileno()).st_size
        self._content = mmap.mmap(self._stream.fileno(), 0, access=mmap.ACCESS_READ) if size else b""

    @cached_property
    def _seal(self) -> re.Match[bytes] | None:
        """The comment at the end, if the archive has not changed since it was written."""
        found = _COMMENT.search(self._content, max(0, len(self._content) - 0xFFFF))
        with memoryview(self._content)[: found and found.start(2)] as before:
            return found if found and hashlib.sha256(before).hexdigest().encode() == found[2] else None

    @property
    def is_sound(self) -> bool:
        """Whether the archive has not changed since it was written."""
        return self._seal is not None

    @cached_property
    def trials(self) -> frozenset[int]:
        """Numbers of the trials with a curve in it."""
        if self._seal is None:
            return numbers_of(self.names, ".csv")
        ends = (part.partition("-") for part in self._seal[1].decode().split(",") if part)
        return frozenset(n for low, _, high in ends for n in range(int(low), int(high or low) + 1))

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of the members."""
        return frozenset([*(self._file.namelist() if self._file else ()), *self._saved])

    @cached_property
    def _file(self) -> zipfile.ZipFile | None:
        """The archive, or None if its directory cannot be read."""
        try:
            return zipfile.ZipFile(self._stream)
        except (*_UNREADABLE, zipfile.BadZipFile):
            return None

    @cached_property
    def _saved(self) -> dict[str, tuple[int, int]]:
        """Where the members of a damaged archive start and end: each has a header of its own."""
        found, content, start = {}, self._content, 0
        while not self.is_sound and (start := content.find(b"PK\x03\x04", start)) >= 0:
            first = start + _LOCAL.size
            if first > len(content):
                break
            header = _LOCAL.unpack_from(content, start)
            method, crc, size, name, extra = header[3], header[6], header[8], header[9], header[10]
            end = first + name + extra + size
            member, title = content[end - size : end], content[first : first + name]
            if title.startswith(b"trial-") and method == zipfile.ZIP_STORED and zlib.crc32(member) == crc:
                found[title.decode(errors="replace")] = end - size, end
                start = end
            else:
                start += 4
        return found

    def read(self, name: str) -> bytes:
        """Return a member; FileNotFoundError without it, ValueError if it is damaged."""
        if name not in self.names:
            raise FileNotFoundError(2, "no such file in the archive", f"{self.path}/{name}")
        if self._file is None or name in self._saved:
            return self._content[slice(*self._saved[name])]
        try:
            return self._file.read(name)
        except (*_UNREADABLE, zipfile.BadZipFile) as error:
            raise ValueError(f"{self.path}/{name}: damaged ({error})") from None


def numbers_of(names: Iterable[str], suffix: str) -> frozenset[int]:
    """Return the numbers in names such as trial-007.csv."""
    pattern = re.compile(rf"trial-(\d{{3}}|[1-9]\d{{3,}}){re.escape(suffix)}", re.ASCII)
    found = map(pattern.fullmatch, names)
    return frozenset(int(match[1]) for match in found if match)  # not of trial-007.records.csv


def write_archive(stream: BinaryIO, names: Iterable[str], read: Callable[[str], bytes]) -> None:
    """Write an archive to a stream that can also be read; the same members give the same bytes."""
    names = sorted(names)
    with zipfile.ZipFile(stream, "w") as file:
        for name in names:
            info = zipfile.ZipInfo(name, _DATE)
            info.create_system, info.external_attr = 3, 0o644 << 16
            file.writestr(info, read(name))
        ranges = _ranges(sorted(numbers_of(names, ".csv")))
        file.comment = f"trials {ranges} sha256 {'0' * 64}".encode()
    stream.seek(0)
    digest = hashlib.sha256()
    size = stream.seek(-64, os.SEEK_END)
    stream.seek(0)
    while size:
        size -= len(part := stream.read(min(size, 1 << 20)))
        digest.update(part)
    stream.write(digest.hexdigest().encode())


def _ranges(numbers: list[int]) -> str:
    """Sorted numbers as text, such as 0-24,26."""
    breaks = [i for i, (one, two) in enumerate(pairwise(numbers), 1) if two > one + 1]
    parts = (numbers[low:high] for low, high in pairwise([0, *breaks, len(numbers)]))
    return ",".join(f"{part[0]}-{part[-1]}" for part in parts if part)


def open_archive(path: Path) -> Archive | None:
    """Return the archive of this path, or None without one; it stays open for a while."""
    version = _version(path)
    return version and _opened(path, version)


def trials_in(path: Path) -> tuple[bool, frozenset[int]]:
    """Return whether an archive is there and sound, and its trials; kept in memory until it changes."""
    version = _version(path)
    return _trials(path, version) if version else (False, frozenset())


def _version(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    if not S_ISREG(status.st_mode):  # a folder of that name
        return None
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=8)
def _opened(path: Path, version: tuple[int, int]) -> Archive:
    return Archive(path)


@lru_cache(maxsize=1 << 16)
def _trials(path: Path, version: tuple[int, int]) -> tuple[bool, frozenset[int]]:
    archive = _opened(path, version)
    return archive.is_sound, archive.trials


def forget_archives() -> None:
    """Close all archives, so that their files can be replaced."""
    _opened.cache_clear()


def _archive_of(path: Path) -> tuple[Archive, str] | None:
    """The archive that a path such as trials/RUN.zip/trial-007.npz leads into, and the member's name."""
    for folder in path.parents:
        if folder.suffix == ".zip" and folder.is_file() and (archive := open_archive(folder)):
            return archive, path.relative_to(folder).as_posix()
    return None


def read_bytes(path: Path) -> bytes:
    """Return the content of a file, which may be in an archive; ValueError if the archive is damaged."""
    found = _archive_of(path)
    return path.read_bytes() if found is None else found[0].read(found[1])


def is_file(path: Path) -> bool:
    """Whether there is such a file, perhaps in an archive."""
    found = _archive_of(path)
    return path.is_file() if found is None else found[1] in found[0].names
