"""A file of JSON lines that grows while a run lasts: one sealed record a line, the last one of a key counts.

A line begins with its key and ends with a checksum of what is before it. Lines are appended and flushed to
disk once a second; a line that a kill or a damaged disk has changed is found by its checksum, and no other
line is lost with it.
"""

import gzip
import hashlib
import io
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple

from cbm_cli.arrays import MOST_BYTES, check_size, located
from cbm_cli.errors import CbmError
from cbm_cli.results.writing import cannot_write, flush_folder, replacing

FLUSH_EVERY = 1.0  # seconds
_LARGEST = 1 << 24  # bytes that wait in memory
_LAST_TRIES = 3  # more attempts, a second apart, to write what waits when a run ends
_TAIL = 1024  # bytes that hold the last line, if it is short
_NAME = rb'[^"\\/\x00-\x1f\x7f-\xff.][^"\\/\x00-\x1f\x7f-\xff]{0,254}'  # none leads out of a folder
_TRIAL = re.compile(
    rb'\{"run_id": "(' + _NAME + rb')", "trial": (\d{1,16}), "state": "(finished|failed)", '
    rb'"seconds": (\d+\.\d+(?:e[+-]?\d+)?), "files": (\{[^{}]*\})'
)
_FACT = re.compile(rb'\{"(cell|made)": "(' + _NAME + rb')"')
_SEAL = b', "seal": "'
_DIGITS = 16  # of the SHA-256, which tell any damage; all 64 would be a third of the bytes of small trials
_SEALED = len(_SEAL) + _DIGITS + len(b'"}\n')  # bytes of the end of a line

Trial = tuple[str, int]  # run-id and number


class Line(NamedTuple):
    """Where a record is, and what its beginning says."""

    start: int
    size: int
    finished: bool = True
    seconds: float = 0.0
    files: bytes = b"{}"  # JSON: the SHA-256 of files beside the journal


@dataclass
class Index:
    """Where the records of a journal are."""

    runs: dict[str, dict[int, Line]] = field(default_factory=dict)  # newest records of trials
    facts: dict[tuple[str, str], Line] = field(default_factory=dict)  # cells and computers
    damaged: dict[int, Trial | None] = field(default_factory=dict)  # by line; whose it is, if that is known
    lines: int = 0  # that are whole
    size: int = 0  # bytes of these
    end: bytes = b""  # of the last one of them

    def copy(self) -> "Index":
        """Return a copy that can grow while other threads read the original."""
        runs = {run_id: {**lines} for run_id, lines in self.runs.items()}
        return replace(self, runs=runs, facts={**self.facts}, damaged={**self.damaged})


def sealed(record: Mapping[str, Any], indent: int | None = None) -> bytes:
    """Return the JSON of a record that ends with a part of the SHA-256 of everything before it."""
    content = json.dumps(record, indent=indent).encode().removesuffix(b"}").rstrip()
    return content + _SEAL + _digest(content) + b'"}'


def is_sound(line: bytes) -> bool:
    """Whether sealed JSON, with a line end, is what was written."""
    return line[-_SEALED:] == _SEAL + _digest(memoryview(line)[:-_SEALED]) + b'"}\n'


def _digest(content: bytes | memoryview) -> bytes:
    return hashlib.sha256(content).hexdigest()[:_DIGITS].encode()


def unsealed(content: bytes) -> dict[str, Any]:
    """Return the record in sealed JSON; ValueError if it has changed."""
    if not is_sound(content.rstrip(b"\n") + b"\n"):
        raise ValueError
    record = json.loads(content)
    del record["seal"]
    return record


@dataclass
class Journal:
    """The records of an experiment; one process may append to it, any number may read it."""

    path: Path
    say: Callable[[str], None] = field(default=lambda message: None)  # gets messages for the user
    _waiting: list[bytes] = field(default_factory=list)
    _timing: bool = False  # a timer runs
    _failed: bool = False  # the last attempt to write what waits has failed
    _lock: threading.RLock = field(default_factory=threading.RLock)

    # Reading

    @property
    def packed(self) -> Path:
        """The path of a journal that is kept gzipped, for reading only."""
        return self.path.with_name(f"{self.path.name}.gz")

    @contextmanager
    def reading(self) -> Iterator[tuple[IO[bytes], Index]]:
        """Open the journal for reading: the stream, and where the records are in it."""
        try:
            stream = self.path.open("rb")
        except FileNotFoundError:
            content, index = _unpacked(self.packed, _changed(self.packed))
            yield io.BytesIO(content), index
            return
        with stream:
            yield stream, _index(self.path, stream, os.fstat(stream.fileno()))

    def index(self) -> Index:
        """Return where the records are."""
        with self.reading() as (_, found):
            return found

    def records(self, keys: Iterable[Trial]) -> Iterator[dict[str, Any]]:
        """Yield the records of trials; CbmError for one that is damaged, KeyError where there is none."""
        with self.reading() as (stream, index):
            for key in keys:
                yield record_of(stream, index.runs[key[0]][key[1]], self.path)

    def fact(self, kind: str, name: str) -> dict[str, Any]:
        """Return what is known of a cell or a computer, or nothing."""
        with self.reading() as (stream, index):
            line = index.facts.get((kind, name))
            return record_of(stream, line, self.path) if line else {}

    def last(self) -> dict[str, Any]:
        """Return the last record if it is short and sound, or nothing, without reading the others."""
        with suppress(OSError, ValueError), self.path.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _TAIL))
            *_, line = stream.read().splitlines(keepends=True)
            return json.loads(line) if is_sound(line) else {}
        return {}

    # Writing

    def append(self, record: Mapping[str, Any]) -> None:
        """Write a record, together with others, within a second or at the next `flush`."""
        with self._lock:
            self._waiting.append(sealed(record) + b"\n")
            self._flush_soon()
            if sum(map(len, self._waiting)) > _LARGEST:
                self.flush()

    def _flush_soon(self) -> None:
        """Flush in a second, and again each second until it succeeds."""
        if self._waiting and not self._timing:
            self._timing = True
            timer = threading.Timer(FLUSH_EVERY, self._flush_later)
            timer.daemon = True
            timer.start()

    def _flush_later(self) -> None:
        with self._lock:
            self._timing = False
            try:
                self.flush()
            except Exception as error:
                if not self._failed:
                    self._failed = True
                    self.say(f"{error}\nThe run goes on; finished trials wait in memory until writing works")
            self._flush_soon()

    def flush(self) -> None:
        """Write what waits."""
        with self._lock:
            if not self._waiting:
                return
            try:
                self._write(b"".join(self._waiting))
            except OSError as error:
                raise cannot_write(self.path, error) from error
            self._waiting = []
            if self._failed:
                self._failed = False
                self.say(f"{self.path}: writing works again; no finished trial is lost")

    def _write(self, content: bytes) -> None:
        """Append lines; where that fails, nothing of them stays."""
        is_new = not self.path.exists()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b", buffering=0) as stream:
            end = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, end - 1))
            if stream.read(1) not in (b"", b"\n"):  # a line that a kill has cut short
                content = b"\n" + content
            try:
                _write_all(stream, content)
                os.fsync(stream.fileno())
            except OSError:
                with suppress(OSError):
                    stream.truncate(end)
                raise
        if is_new:
            flush_folder(self.path.parent)

    def flush_last(self) -> None:
        """Flush; a disk that fails for a moment gets a few more attempts."""
        for _ in range(_LAST_TRIES):
            with suppress(CbmError):
                return self.flush()
            time.sleep(FLUSH_EVERY)
        return self.flush()

    def rewrite(self, lines: Iterable[Line], last: Mapping[str, Any] | None) -> None:
        """Write the journal anew, with these of its lines, and a last record."""
        with self.reading() as (old, _), replacing(self.path) as new:
            for line in lines:
                new.write(_content(old, line))
            new.write(sealed(last) + b"\n" if last else b"")


def _write_all(stream: io.FileIO, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[stream.write(view) :]


def record_of(stream: IO[bytes], line: Line, path: Path) -> dict[str, Any]:
    """Return a record; CbmError if its line has changed since it was found."""
    try:
        return unsealed(_content(stream, line))
    except ValueError:
        told = "was changed after it was written; cbm run repeats what is lost"
        raise CbmError(f"{path}: {told}", "changed") from None


def _content(stream: IO[bytes], line: Line) -> bytes:
    stream.seek(line.start)
    return stream.read(line.size)


_known: dict[Path, tuple[tuple[int, int, int], Index]] = {}  # of journals, and what they were then


def _index(path: Path, stream: IO[bytes], status: os.stat_result) -> Index:
    """The index of a journal, which is kept; of one that has grown only what is new is read."""
    now = status.st_ino, status.st_size, status.st_mtime_ns
    then, index = _known.get(path, ((0, 0, 0), Index()))
    if now != then:
        stream.seek(max(0, index.size - _SEALED))
        has_grown = now[0] == then[0] and now[1] > then[1] and stream.read(_SEALED) == index.end
        index = _scanned(stream, index.copy() if has_grown else Index())
        _known[path] = now, index
    return index


def _scanned(stream: IO[bytes], found: Index) -> Index:
    """Check the lines that are not in an index yet, and note where the last sound one of each key is."""
    stream.seek(found.size)
    found.damaged.pop(found.lines + 1, None)
    for content in stream:
        head, line = _TRIAL.match(content), Line(found.size, len(content))
        key = head and (head[1].decode(), int(head[2]))
        if not is_sound(content):
            found.damaged[found.lines + 1] = key
        elif head and key:
            found.damaged = {place: whose for place, whose in found.damaged.items() if whose != key}
            found.runs.setdefault(key[0], {})[key[1]] = line._replace(
                finished=head[3] == b"finished", seconds=float(head[4]), files=head[5]
            )
        elif fact := _FACT.match(content):
            found.facts[fact[1].decode(), fact[2].decode()] = line
        if not content.endswith(b"\n"):  # cut short, or being written
            break
        found.lines, found.size, found.end = found.lines + 1, found.size + len(content), content[-_SEALED:]
    return found


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


@lru_cache(maxsize=64)
def _unpacked(path: Path, changed: int) -> tuple[bytes, Index]:
    """A gzipped journal and its index, or nothing without one; CbmError if it is damaged or huge."""
    if not changed:
        return b"", Index()
    with located(path, "gzip"), gzip.open(path) as stream:
        content = stream.read(MOST_BYTES + 1)
        check_size(len(content))
    index = _scanned(io.BytesIO(content), Index())
    for line in index.damaged:  # nothing repeats a trial that is kept
        raise CbmError(f"{path}: line {line} has changed since it was kept; restore it", "changed")
    return content, index
