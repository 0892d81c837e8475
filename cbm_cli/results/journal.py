"""The sealed JSON of an experiment: its manifest, and the journal of its trials.

A journal is a file of lines that grows while a run lasts; the last sound line of a
trial counts. A line ends with a checksum of what is before it. Lines are appended and
flushed to disk once a second; a line that a kill or a damaged disk has changed is found
by its checksum, and no other line is lost with it.
"""

import hashlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, NamedTuple

import msgspec

from cbm_cli.errors import CbmError, DamagedError
from cbm_cli.grid.settings import Settings, TableSpec
from cbm_cli.results.columns import Columns, Row
from cbm_cli.results.writing import cannot_write, flush_folder, replacing

WRITER = "run"  # in the names of temporary files of the one who may write
FORMAT = 5  # of all files of results; others are refused
FLUSH_EVERY = 1.0  # seconds
_SEAL = b',"seal":"'
# of the SHA-256, which tell any damage; 64 would be a third of the bytes of a small
# trial
_SEAL_DIGITS = 16
_SEALED = len(_SEAL) + _SEAL_DIGITS + len(b'"}\n')  # bytes of the end of a line
_KEY = re.compile(rb'\{"run_id":"([^"/\\]+)","trial":(\d{1,16}),')  # of a damaged line

# A name that leads out of no folder
Name = Annotated[
    str, msgspec.Meta(pattern=r"\A[^./\\\x00-\x1f][^/\\\x00-\x1f]{0,254}\Z")
]
TrialKey = tuple[str, int]  # run-id and number
# A curve or records, by column; numbers that are not finite, which JSON lacks, are text
Table = dict[str, list]


class Run(msgspec.Struct, frozen=True, dict=True, omit_defaults=True):
    """A cell of a grid, and the name of its trials."""

    run_id: str
    settings: Settings
    experiment: str = ""  # where runs of several are shown together

    @cached_property
    def row(self) -> Row:
        """Every setting, by column of ``summary.csv``: the same columns for all
        runs.
        """
        return {"experiment": self.experiment, **self.settings.row()}


class Manifest(msgspec.Struct, frozen=True):
    """The grid of an experiment that was last run, and what it ran on."""

    format: int
    versions: dict[str, str | int]
    experiment: str
    description: str
    trials: int
    seed: int
    table: TableSpec
    cells: list[Run]
    others: list[Run]  # kept runs that earlier grids asked for
    courses: dict[Name, str]  # names that shorter and longer trainings share, by run-id
    upper_bounds: dict[str, float]  # of the log-likelihood, by title of the data
    digests: dict[str, list[str]]  # of the rows, by title of the data
    grid_folder: str
    machine: dict[str, str]

    @property
    def columns(self) -> Columns:
        """The columns of its cells."""
        return Columns([run.row for run in self.cells])

    @property
    def axes(self) -> list[str]:
        """The settings that tell its cells apart, those of its table first."""
        return self.columns.axes(self.table)

    def row_of(self, run_id: str) -> Row:
        """Return the settings of a run, also of an earlier grid; none where they are
        not known.
        """
        for run in (*self.cells, *self.others):
            if run.run_id == run_id:
                return run.settings.row()
        return {}

    def with_cells(self, cells: Iterable[Run]) -> "Manifest":
        """Return the manifest with other cells."""
        return msgspec.structs.replace(self, cells=[*cells])


class LineHead(msgspec.Struct, omit_defaults=True):
    """The facts of every trial, and what tables show of it."""

    run_id: Name
    trial: Annotated[int, msgspec.Meta(ge=0)]
    state: Literal["finished", "failed"]
    seconds: float = 0.0
    files: dict[str, str] = {}  # the SHA-256 of machines next to the journal
    seed: int = 0
    made: dict[str, str | int] = {}  # the versions and the computer that ran it
    row: Row = {}

    @property
    def finished(self) -> bool:
        """Whether it is finished, and has not failed."""
        return self.state == "finished"


class Line(LineHead):
    """All of a trial."""

    start: str = ""  # the SHA-256 of the machine file that it started from
    curve: Table = {}
    records: Table = {}
    machine: bytes = b""  # a compressed NPZ file; large ones are files
    best: bytes = b""
    details: str = ""  # why it failed


def _from_json(kind: type, fields: dict[str, Any]) -> Any:
    """Return the settings or the table of a manifest.

    Both were checked when they were written; rules may be newer, and columns those of
    an earlier grid.
    """
    if kind is TableSpec:
        return TableSpec.model_construct(**fields)
    return Settings.from_manifest(fields)


def _as_json(record: Settings | TableSpec) -> dict[str, Any]:
    if isinstance(record, Settings):
        return record.in_manifest()
    return record.model_dump(mode="json")


_decoders: dict[type, Any] = {
    kind: msgspec.json.Decoder(kind, dec_hook=_from_json)
    for kind in (LineHead, Line, Manifest)
}


def sealed(value: Any, indent: int = -1) -> bytes:
    """Return the JSON of a line or a manifest that ends with a part of the SHA-256 of
    what is before.
    """
    content = msgspec.json.encode(value, enc_hook=_as_json)
    content = msgspec.json.format(content, indent=indent).removesuffix(b"}").rstrip()
    return content + _SEAL + _seal_of(content) + b'"}'


def unsealed(content: bytes, kind: type) -> Any:
    """Return what sealed JSON holds; ValueError if it has changed, or is none of this
    kind.
    """
    end = content.rstrip(b"\n") + b"\n"
    if end[-_SEALED:] != _SEAL + _seal_of(memoryview(end)[:-_SEALED]) + b'"}\n':
        raise ValueError("changed")
    return _decoders[kind].decode(content)  # msgspec's errors are ValueErrors


def _seal_of(content: bytes | memoryview) -> bytes:
    return hashlib.sha256(content).hexdigest()[:_SEAL_DIGITS].encode()


class Place(NamedTuple):
    """The place of a line in its file."""

    start: int
    size: int


class Stamp(NamedTuple):
    """Numbers that change whenever a file is written."""

    inode: int
    size: int
    changed: int  # in nanoseconds

    @classmethod
    def of(cls, status: os.stat_result) -> "Stamp":
        """Return the stamp of a file with this status."""
        return cls(inode=status.st_ino, size=status.st_size, changed=status.st_mtime_ns)


class Journal:
    """The lines of an experiment, as any number of processes may read them.

    Attributes
    ----------
    runs : dict
        The heads of trials, by run-id and number, as of the last reading.
    damaged : dict
        What is damaged, by trial or, where that is unknown, by ``""`` and the line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._forget()

    def _forget(self) -> None:
        self.runs: dict[str, dict[int, LineHead]] = {}
        self.damaged: dict[TrialKey, str] = {}
        self.places: dict[TrialKey, Place] = {}  # of the last sound lines
        self._lines = 0  # that were read
        self._size = 0  # bytes of these lines
        self._end = b""  # the last of these bytes
        self._stamp = Stamp(inode=0, size=0, changed=0)

    def read(self) -> "Journal":
        """Read new lines; the file is opened only if it has changed."""
        try:
            if Stamp.of(self.path.stat()) != self._stamp:
                with self.opened():
                    pass
        except FileNotFoundError:
            self._forget()
        return self

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Open the file, and note where the last sound line of each trial is."""
        with self.path.open("rb") as stream:
            self._read_from(stream)
            yield stream

    def _read_from(self, stream: BinaryIO) -> None:
        stamp = Stamp.of(os.fstat(stream.fileno()))
        known = min(self._size, _SEALED)
        stream.seek(self._size - known)
        if stamp.inode != self._stamp.inode or stream.read(known) != self._end:
            self._forget()  # it was written again
            stream.seek(0)
        for line in stream:
            if not line.endswith(b"\n"):  # cut short, or being written
                break
            self._lines += 1
            self._note(line)
            self._size += len(line)
            self._end = line[-_SEALED:]
        self._stamp = stamp

    def _note(self, line: bytes) -> None:
        """Note the trial of a line, or that the line is damaged."""
        try:
            head = unsealed(line, LineHead)
        except ValueError:
            key, words = ("", self._lines), ""
            match = _KEY.match(line)
            if match:
                key = match[1].decode("utf-8", "replace"), int(match[2])
                words = f" (trial {key[1]} of {key[0]})"
            self.damaged[key] = f"{self.path}: line {self._lines}{words}: damaged"
            return
        key = head.run_id, head.trial
        self.runs.setdefault(head.run_id, {})[head.trial] = head
        self.places[key] = Place(start=self._size, size=len(line))
        self.damaged.pop(key, None)

    def lines(self, keys: Iterable[TrialKey]) -> Iterator[Line]:
        """Yield the lines of those trials that there are.

        Raises DamagedError for a line that was changed since it was noted.
        """
        with suppress(FileNotFoundError), self.opened() as stream:
            for key in keys:
                place = self.places.get(key)
                if place is None:
                    continue
                stream.seek(place.start)
                try:
                    line = unsealed(stream.read(place.size), Line)
                except ValueError:
                    raise DamagedError(
                        f"{self.path}: was changed after it was written; cbm run "
                        "repeats what is lost"
                    ) from None
                yield line


class JournalWriter:
    """Lines that are added to a journal, by the one process that may.

    Attributes
    ----------
    say : callable
        Gets messages for the user.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.say: Callable[[str], None] = lambda message: None
        self._path = journal.path.absolute()  # wherever the process is later
        self._waiting = bytearray()
        self._has_failed = False
        self._is_closed = False
        self._lock = threading.RLock()

    def append(self, line: Line) -> None:
        """Write a line, together with others, within a second or at the next
        `flush`.
        """
        with self._lock:
            self._require_open()
            if not self._waiting:
                self._flush_soon()
            self._waiting += sealed(line) + b"\n"

    def close(self) -> None:
        """Write nothing more, from any thread."""
        with self._lock:
            self._is_closed = True

    def _require_open(self) -> None:
        if self._is_closed:
            raise RuntimeError(f"{self._path}: written to without its lock")

    def _flush_soon(self) -> None:
        timer = threading.Timer(FLUSH_EVERY, self._flush_or_wait)
        timer.daemon = True
        timer.start()

    def _flush_or_wait(self) -> None:
        with self._lock:
            if self._is_closed:
                return
            try:
                self.flush()
            except CbmError as error:
                self._flush_soon()
                if not self._has_failed:
                    self.say(
                        f"{error}\nThe run goes on; finished trials wait in memory "
                        "until writing works"
                    )
                self._has_failed = True

    def flush(self, tries: int = 0) -> None:
        """Write waiting lines; if that fails, none of them is on disk, and they still
        wait.

        A disk that fails for a moment may get a few more tries, a second apart.
        """
        for _ in range(tries):
            with suppress(CbmError):
                self.flush()
                return
            time.sleep(FLUSH_EVERY)
        with self._lock:
            self._require_open()
            if not self._waiting:
                return
            try:
                self._write_waiting()
            except OSError as error:
                raise cannot_write(self.journal.path, error) from error
            self._waiting.clear()
            if self._has_failed:
                self._has_failed = False
                self.say(
                    f"{self.journal.path}: writing works again; no finished trial is "
                    "lost"
                )

    def _write_waiting(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a+b", buffering=0) as stream:
            end = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, end - 1))
            last = stream.read(1)
            content = bytes(self._waiting)
            if last not in (b"", b"\n"):  # a kill has cut the last line short
                content = b"\n" + content
            left = memoryview(content)
            try:
                while left:
                    left = left[stream.write(left) :]
                os.fsync(stream.fileno())
            except OSError:
                stream.truncate(end)
                raise
        if not end:
            flush_folder(self._path.parent)

    def rewrite(self, keys: Iterable[TrialKey]) -> None:
        """Write the journal again with the lines of these trials, in this order, if it
        differs.
        """
        with suppress(FileNotFoundError), self.journal.opened() as old:
            places = [self.journal.places[key] for key in keys]
            size = sum(place.size for place in places)
            if places == sorted(places) and size == old.seek(0, os.SEEK_END):
                return
            with replacing(self.journal.path, writer=WRITER) as new:
                for place in places:
                    old.seek(place.start)
                    new.write(old.read(place.size))
