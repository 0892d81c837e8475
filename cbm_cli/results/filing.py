"""The files of an experiment: on their own or, where they are small and many, in archives.

A file such as trials/RUN/trial-007.csv is written on its own, or goes with all others of about a second into
one *recent* file in recent/. When a run begins and ends, recent files are packed into trials/RUN.zip, so
that the bytes of an archive depend on nothing but its members.
"""

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from sys import intern
from types import MappingProxyType

from cbm_cli.archives import Archive, forget_archives, numbers_of, open_archive, trials_in, write_archive
from cbm_cli.errors import CbmError
from cbm_cli.results.writing import KINDS, PART, replacing, write_atomically

SMALL = 1 << 16  # bytes of a trial's files that still go into an archive
_FLUSH_EVERY = 1.0  # seconds
_TICK = 50_000_000  # nanoseconds in which a folder may change again without another time
_LARGEST = 1 << 24  # bytes that wait in memory
_LAST_TRIES = 3  # more attempts, a second apart, to write what waits when a run ends

# The names that cbm gives to files and folders; what else is there belongs to others, and is left alone.
_OF_A_CELL = re.compile(r"(rbm|dbm|auto-encoder)-.+_[0-9a-f]{10}")
_RUNS = {"trials": _OF_A_CELL, "ends": _OF_A_CELL, "pretrained": re.compile(r"[0-9-]+_[0-9a-f]{10}")}
_FILE = re.compile(
    r"trial-(\d{3}|[1-9]\d{3,})(-\d+\.npz|(\.best|\.state)?\.npz|(\.records)?\.csv|\.json|\.error\.txt)",
    re.ASCII,
)
_RECENT = re.compile(r"\d{6,}-[0-9a-f]{8}", re.ASCII)

Place = tuple[Path, int, int]  # a file in a recent file: its path, where it starts, bytes


@dataclass
class Filing:
    """The files below an experiment's folder; names are relative to it."""

    root: Path
    _recent: dict[str, bool] = field(default_factory=dict)  # recent files, and whether they are sound
    _index: dict[str, dict[str, Place]] = field(default_factory=dict)  # what is in them, by folder
    _changed: int = 0  # when recent files last came or went, in nanoseconds
    _waiting: dict[str, bytes] = field(default_factory=dict)
    _timing: bool = False  # a timer runs
    _failed: bool = False  # the last attempt to write what waits has failed
    say: Callable[[str], None] = field(default=lambda message: None)  # gets messages for the user
    _lock: threading.RLock = field(default_factory=threading.RLock)

    # Reading

    def names(self, folder: str) -> set[str]:
        """Return the names of all files in a folder."""
        archive = self.archive(folder)
        packed = filter(_FILE.fullmatch, archive.names) if archive else ()
        return self._alone(folder) | {*self._recently(folder), *packed}

    def trials(self, folder: str) -> frozenset[int]:
        """Return the numbers of the trials with a curve in a folder."""
        others = self._alone(folder) | set(self._recently(folder))
        return numbers_of(others, ".csv") | trials_in(self._zip(folder))[1]

    def trials_since(self, folder: str, since: int) -> frozenset[int]:
        """Return the numbers of the trials whose curves were written since a time, outside of archives."""
        names = [name for name, place in self._recently(folder).items() if _written(place[0]) >= since]
        names += [name for name in self._alone(folder) if _written(self.root / folder / name) >= since]
        return numbers_of(names, ".csv")

    def folders(self, kind: str) -> set[str]:
        """Return the names of the folders in trials, ends or pretrained."""
        found = {path.name.removesuffix(".zip") for path in self.places(kind)}
        self._recently("")
        return found | {name.partition("/")[2] for name in self._index if name.startswith(f"{kind}/")}

    def places(self, kind: str) -> list[Path]:
        """Return the folders and archives of runs in trials, ends or pretrained."""
        paths = sorted((self.root / kind).glob("*"))
        return [path for path in paths if _RUNS[kind].fullmatch(path.name.removesuffix(".zip"))]

    def own(self, place: Path) -> list[Path]:
        """Return the files of cbm in one of the `places`: an archive itself, or what is in a folder."""
        if place.is_dir():
            own = (place / name for name in self._alone(f"{place.parent.name}/{place.name}"))
            return [path for path in (*place.glob(PART), *own) if path.is_file()]
        return [place] if place.is_file() else []

    def read(self, name: str) -> bytes:
        """Return the content of a file; FileNotFoundError without it, ValueError in a damaged archive."""
        folder, _, member = name.rpartition("/")
        place = self._recently(folder).get(member)
        if place:
            with place[0].open("rb") as stream:
                stream.seek(place[1])
                return stream.read(place[2])
        with suppress(FileNotFoundError):
            return (self.root / name).read_bytes()
        archive = self.archive(folder)
        if archive is None:
            raise FileNotFoundError(2, "no such file", str(self.root / name))
        return archive.read(member)

    def path(self, name: str) -> Path:
        """Return the path of a file, which may lead into an archive, or the path to write it to."""
        alone, (folder, _, member) = self.root / name, name.rpartition("/")
        archive = None if alone.exists() else self.archive(folder)
        return archive.path / member if archive and member in archive.names else alone

    def archive(self, folder: str) -> Archive | None:
        """Return the archive of a folder, if there is one."""
        return open_archive(self._zip(folder))

    def _zip(self, folder: str) -> Path:
        return self.root / f"{folder}.zip"

    def is_packed(self, folder: str) -> bool:
        """Whether all files of a folder are in an archive that has not changed since it was written."""
        return trials_in(self._zip(folder))[0] and not self._alone(folder) and not self._recently(folder)

    def changed(self, folder: str) -> int:
        """Return when a file of a folder was last written, in nanoseconds."""
        self._recently(folder)
        times = [self._changed]
        paths: list[Path | os.DirEntry[str]] = [self._zip(folder)]
        with suppress(OSError):
            records = (e for e in os.scandir(self.root / folder) if e.name.endswith(".json"))
            paths += (entry for entry in records if _FILE.fullmatch(entry.name))
        for path in paths:
            with suppress(OSError):
                times.append(path.stat().st_mtime_ns)
        return max(times)

    def _alone(self, folder: str) -> set[str]:
        pattern = _RECENT if folder == "recent" else _FILE
        try:
            return {*filter(pattern.fullmatch, os.listdir(self.root / folder))}
        except (FileNotFoundError, NotADirectoryError):
            return set()

    def _recently(self, folder: str) -> Mapping[str, Place]:
        """The files of a folder in recent files."""
        place = self.root / "recent"
        try:
            changed = place.stat().st_mtime_ns
        except OSError:
            changed = 0
        if changed != self._changed or time.time_ns() - changed < _TICK:
            names, self._changed = sorted(self._alone("recent")), changed
            if not {*self._recent} <= {*names}:
                self._recent, self._index = {}, {}
            for name in (name for name in names if name not in self._recent):
                places = _places(place / name)
                self._recent[name] = bool(places)
                for one, found in places.items():
                    self._index.setdefault(one, {}).update(found)
        return self._index.get(folder, {})

    # Writing

    def write(self, name: str, content: bytes) -> None:
        """Write a file on its own."""
        write_atomically(self.root / name, content)

    def add(self, contents: Mapping[str, bytes]) -> None:
        """Write small files, together with others, within a second or at the next `flush`."""
        with self._lock:
            self._waiting |= contents
            self._flush_soon()
            if sum(map(len, self._waiting.values())) > _LARGEST:
                self.flush()

    def _flush_soon(self) -> None:
        """Flush in a second, and again each second until it succeeds."""
        if self._waiting and not self._timing:
            self._timing = True
            timer = threading.Timer(_FLUSH_EVERY, self._flush_later)
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
            places: dict[str, dict[str, list[int]]] = {}
            start = 0
            for name, content in self._waiting.items():
                folder, _, member = name.rpartition("/")
                places.setdefault(folder, {})[member] = [start, len(content)]
                start += len(content)
            body = b"".join(self._waiting.values())
            digest = hashlib.sha256(body).hexdigest()
            taken = (int(name.partition("-")[0]) for name in self._alone("recent"))
            number = 1 + max(taken, default=0)
            content = json.dumps({"sha256": digest, "files": places}).encode() + b"\n" + body
            write_atomically(self.root / "recent" / f"{number:06d}-{digest[:8]}", content)
            self._waiting = {}
            if self._failed:
                self._failed = False
                self.say(f"{self.root / 'recent'}: writing works again; no finished trial is lost")

    def _flush_last(self) -> None:
        """Flush; a disk that fails for a moment gets a few more attempts."""
        for _ in range(_LAST_TRIES):
            with suppress(CbmError):
                return self.flush()
            time.sleep(_FLUSH_EVERY)
        return self.flush()

    def pack(self, together: bool, lost: Mapping[str, Container[int]] = MappingProxyType({})) -> list[Path]:
        """Pack recent files into archives; also, if ``together``, the small finished trials on their own.

        Archives that have been damaged are written again without the trials that are ``lost``, by folder, and
        members that cannot be read. All damaged files are returned.
        """
        self._flush_last()
        self._recently("")
        recent = [self.root / "recent" / name for name in self._recent]
        moved = self._small_trials() if together else {}
        damaged = self.damaged_archives()
        for folder in {*self._index, *moved, *damaged}:
            names = {*self._recently(folder), *moved.get(folder, ())}
            self._write_archive(folder, names, lost.get(folder, ()))
        found = [self.root / f"{folder}.zip" for folder in damaged]
        found += [self.root / "recent" / name for name, sound in self._recent.items() if not sound]
        for path in [*recent, *(self.root / folder / name for folder in moved for name in moved[folder])]:
            path.unlink(missing_ok=True)
        for folder in {*self._index, *moved, "recent"}:
            with suppress(OSError):  # something else is in it
                (self.root / folder).rmdir()
        return found

    def _write_archive(self, folder: str, names: set[str], lost: Container[int]) -> None:
        """Write the archive of a folder again, with more files and without what cannot be read or is lost."""
        archive = self.archive(folder)
        kept = {name for name in archive.names if _is_readable(archive, name)} if archive else set()
        kept = {name for name in kept if _number(name) not in lost}
        with replacing(self._zip(folder)) as stream:
            write_archive(stream, names | kept, lambda name: self.read(f"{folder}/{name}"))
            forget_archives()

    def damaged_archives(self) -> list[str]:
        """Return the folders whose archives have changed since they were written."""
        paths = [path for kind in KINDS for path in self.places(kind) if path.suffix == ".zip"]
        return [f"{path.parent.name}/{path.stem}" for path in paths if not trials_in(path)[0]]

    def _small_trials(self) -> dict[str, list[str]]:
        """Names of the files of small finished trials on their own, by folder."""
        found: dict[str, list[str]] = {}
        for path in filter(Path.is_dir, self.places("trials")):
            folder = f"trials/{path.name}"
            for number in numbers_of(names := self._alone(folder), ".csv"):
                own = [name for name in names if name.startswith(f"trial-{number:03d}.")]
                if sum((path / name).stat().st_size for name in own) <= SMALL:
                    found.setdefault(folder, []).extend(own)
        return found


def _written(path: Path) -> int:
    """When a file was written, in nanoseconds; 0 if it is gone."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _number(name: str) -> int | None:
    """The number in a name such as trial-007.best.npz."""
    digits = name.removeprefix("trial-").partition(".")[0]
    return int(digits) if digits.isdigit() else None


def _is_readable(archive: Archive, name: str) -> bool:
    if archive.is_sound:
        return True
    with suppress(ValueError):
        return name.startswith("trial-") and archive.read(name) is not None
    return False


def _places(path: Path) -> dict[str, dict[str, Place]]:
    """Where the files in a recent file are; none if it is damaged: its trials run again."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        head, _, body = path.read_bytes().partition(b"\n")
        header = json.loads(head)
        if hashlib.sha256(body).hexdigest() == header["sha256"]:
            first = len(head) + 1
            return {
                folder: {intern(name): (path, first + start, size) for name, (start, size) in its.items()}
                for folder, its in header["files"].items()
                if _is_own(folder, its)
            }
    return {}


def _is_own(folder: str, names: Iterable[str]) -> bool:
    """Whether names are those of a run; others may lead out of the experiment's folder."""
    kind, _, run = folder.partition("/")
    return kind in KINDS and bool(_RUNS[kind].fullmatch(run)) and all(map(_FILE.fullmatch, names))
