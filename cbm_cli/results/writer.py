"""The one who may change a results folder: its lock, and what creates, replaces or
removes files there.
"""

import csv
import hashlib
import io
import math
import os
import platform
import socket
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from itertools import count, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout
from msgspec.structs import replace

from cbm_cli.arrays import npz_of
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.results.checked import CheckedMachines
from cbm_cli.results.columns import Columns, Row
from cbm_cli.results.journal import (
    FORMAT,
    WRITER,
    JournalWriter,
    Line,
    Manifest,
    Run,
    Table,
    TrialKey,
    sealed,
)
from cbm_cli.results.outcome import MachineArrays, Outcome, Progress
from cbm_cli.results.reader import KEYS, WHOLE, Store, check_format, versions
from cbm_cli.results.states import state_file
from cbm_cli.results.writing import (
    cannot_write,
    write_atomically,
    write_if_changed,
)
from cbm_cli.text import not_computed

if TYPE_CHECKING:
    from cbm_cli.grid.settings import Data, Experiment, Trial

FOLDERS = ("machines", "checkpoints")  # folders of files of trials
EXPORTS = {"curves": "curve", "records": "records"}  # what is in folders of tables
SMALL = 1 << 16  # bytes of a machine that still goes into a line
_LOCK = ".cbm-lock"
_SOFT_LOCK = ".cbm-lock-held"
_HOLDER = ".cbm-writer"
_PART = f".cbm-{WRITER}-*.part"  # what is being written; nobody else has such names


# One writer at a time


class Lock:
    """The right to change a results folder, as long as `locked` lasts.

    Attributes
    ----------
    checked : CheckedMachines, optional
        Machines that need not be read at the next start.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.is_held = True
        self.checked: CheckedMachines | None = None
        self._writers: dict[str, Writer] = {}

    def writer(self, experiment: str) -> "Writer":
        """Return the writer of an experiment, always the same one."""
        if experiment not in self._writers:
            self._writers[experiment] = Writer(self, experiment)
        return self._writers[experiment]

    def require(self) -> None:
        """Raise RuntimeError once the lock is gone."""
        if not self.is_held:
            raise RuntimeError(f"{self.folder}: written to without its lock")

    def write(self, path: Path, content: bytes) -> None:
        """Write a file."""
        self.require()
        write_atomically(path, content, writer=WRITER)

    def write_if_changed(
        self, path: Path, content: bytes, at_once: bool = True
    ) -> None:
        """Write a file, unless it has this content; ``at_once`` as of `replacing`."""
        self.require()
        write_if_changed(path, content, at_once, writer=WRITER)

    def set_aside(self, path: Path) -> Path:
        """Rename a file whose checksum has failed; return its new name."""
        self.require()
        for number in count(1):
            aside = path.with_name(f"{path.name}.damaged-{number}")
            if not aside.exists():
                break
        try:
            path.rename(aside)
        except OSError as error:
            raise cannot_write(path, error) from error
        return aside

    def release(self) -> None:
        """Let nothing be written from now on."""
        if self.checked and self.checked.checks:
            with suppress(CbmError):  # then the next start reads machines again
                self.write_if_changed(self.checked.path, self.checked.content())
        for writer in self._writers.values():
            writer.journal.close()
        self.is_held = False


@contextmanager
def locked(folder: Path) -> Iterator[Lock]:
    """Be the only one who writes into a results folder; CbmError that names another
    one.

    The lock belongs to the process: it ends with it, however it ends. If the disk has
    no such locks, a file names the holder instead. Temporary files that an earlier
    writer left behind are removed, and so is a new folder in which nothing was written.
    """
    is_new = not folder.exists()
    holder = folder / _HOLDER
    try:
        system_lock = _acquired(folder.absolute())
    except Timeout:
        name = "another cbm"
        if holder.exists():
            name = holder.read_text("utf-8", "replace")
        raise CbmError(
            f"{folder}: {name} is writing here; wait until it has ended, or use "
            "another folder"
        ) from None
    except OSError as error:
        raise cannot_write(folder, error) from error
    lock = Lock(folder)
    try:
        _remove_parts(folder)
        writer = f"process {os.getpid()} on {socket.gethostname()}"
        lock.write(holder, writer.encode())
        yield lock
    finally:
        lock.release()
        with suppress(OSError):
            holder.unlink(missing_ok=True)
        is_empty = {path.name for path in folder.iterdir()} <= {_LOCK, _SOFT_LOCK}
        if is_new and is_empty:
            (folder / _LOCK).unlink(missing_ok=True)
        system_lock.release()
        if is_new and is_empty:
            with suppress(OSError):  # another cbm has begun to use the folder
                folder.rmdir()


def _acquired(folder: Path, tries: int = 3) -> BaseFileLock:
    """Return the lock of a folder, which is made if it is missing.

    Raises Timeout if another process has it, and OSError if there cannot be one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    system_lock: BaseFileLock = FileLock(folder / _LOCK)
    try:
        system_lock.acquire(timeout=0)
    except Timeout:
        raise
    except FileNotFoundError:  # the folder was new to another cbm, which has left it
        if not tries:
            raise
        return _acquired(folder, tries - 1)
    except OSError:  # as on some network disks
        system_lock = SoftFileLock(folder / _SOFT_LOCK)
        system_lock.acquire(timeout=0)
    return system_lock


def _remove_parts(folder: Path) -> None:
    """Remove what a kill has left of files that were being written."""
    parts = [*folder.glob(_PART), *folder.glob(f"*/{_PART}")]
    for manifest in folder.glob("*/manifest.json"):
        parts += manifest.parent.rglob(_PART)
    for part in parts:
        with suppress(OSError):  # gone, or a folder of this name
            part.unlink()


# Writing


class Writer:
    """What creates, replaces and removes the files of an experiment.

    Attributes
    ----------
    store : Store
        The same folder for readers.
    journal : JournalWriter
        The lines of the trials.
    """

    def __init__(self, lock: Lock, experiment: str) -> None:
        self.lock = lock
        self.store = Store(lock.folder / experiment)
        self.journal = JournalWriter(self.store.journal)

    def write(
        self,
        run_id: str,
        trial: "Trial",
        outcome: Outcome,
        course: str = "",
        start: str = "",
    ) -> None:
        """Write a finished trial.

        Parameters
        ----------
        course : str
            The run-id without the length of training, under which longer trainings find
            the end of this one.
        start : str
            The SHA-256 of the machine file that the trial started from.
        """
        row: Row = {f"n_{part}": n for part, n in outcome.rows.items()}
        row |= outcome.summary()
        row["diverged"] = outcome.diverged
        row["epochs_to_convergence"] = outcome.converged
        line = Line(
            run_id,
            trial.number,
            "finished",
            seconds=round(outcome.seconds, 3),
            seed=trial.seed,
            made=versions() | outcome.computer,
            row={name: _as_json(value) for name, value in row.items()},
            start=start,
            curve=by_column(outcome.columns, outcome.curve),
            records=by_column(outcome.recorded, outcome.records),
        )
        self._write_machine(line, "machine", outcome.machine)
        self._write_machine(line, "best", outcome.best_machine)
        state = self.store.state_path(course, run_id, trial.number)
        end = outcome.end if course else None
        if end:
            arrays = replace(end, seconds=0.0).arrays(start)
            self.lock.write(state, state_file(arrays, small=True))
        self.journal.append(line)
        if not end and state.exists():
            # A finished trial needs no state, once it is on disk. If that fails now, it
            # is tried again later, and the state stays.
            with suppress(CbmError, OSError):
                self.journal.flush()
                state.unlink()

    def _write_machine(
        self, line: Line, kind: str, machine: MachineArrays | None
    ) -> None:
        """Put a machine into its line, or a large one into a file."""
        if not machine:
            return
        content = npz_of(machine)
        if len(content) < SMALL:
            setattr(line, kind, zlib.compress(content))
            return
        self.lock.write(self.store.machine_path(line.run_id, line.trial, kind), content)
        line.files[kind] = hashlib.sha256(content).hexdigest()
        if self.lock.checked:
            self.lock.checked.note(self.store, line)

    def replace_columns(
        self, run_id: str, number: int, new: Row, old: Iterable[str] = ()
    ) -> None:
        """Add columns to the row of a finished trial, in place of ``old`` ones."""
        line = self.store.line(run_id, number)
        for name in old:
            line.row.pop(name, None)
        for name, value in new.items():
            line.row[name] = _as_json(value)
        self.journal.append(line)

    def write_failure(self, run_id: str, number: int, details: str) -> None:
        """Write what went wrong in a trial."""
        self.journal.append(Line(run_id, number, "failed", details=details))

    def write_progress(
        self, run_id: str, number: int, progress: Progress, course: str, start: str = ""
    ) -> None:
        """Write the state of an unfinished trial; ``course`` and ``start`` as for
        `write`.
        """
        path = self.store.state_path(course, run_id, number)
        self.lock.write(path, state_file(progress.arrays(start)))

    def write_pretrained(
        self, pretraining: str, number: int, machine: MachineArrays
    ) -> None:
        """Write the layers that a trial has pre-trained, for all trials that share
        them.
        """
        path = self.store.layers_path(pretraining, number)
        if machine and not path.is_file():
            self.lock.write(path, state_file(machine))

    def write_manifest(
        self,
        experiment: "Experiment",
        run_ids: Mapping[str, str],
        datasets: Mapping["Data", Dataset],
        folder: Path = Path(),
    ) -> None:
        """Write the resolved grid and its folder, the versions and the computer.

        Parameters
        ----------
        run_ids : mapping of str to str
            The run-ids of the cells, with their courses.
        datasets : mapping of Data to Dataset
            At least those of the cells.
        """
        from cbm_cli.kernels.computer import computer

        before = self.store.manifest_if_sound()
        others: list[Run] = []
        courses = dict(run_ids)
        if before:
            kept = self.store.lines().keys() - run_ids.keys()
            runs = (*before.others, *before.cells)
            others = [run for run in runs if run.run_id in kept]
            for run_id, course in before.courses.items():
                if run_id in kept:
                    courses[run_id] = course
        bounds: dict[str, set[float]] = defaultdict(set)
        digests: dict[str, set[str]] = defaultdict(set)
        for spec in dict.fromkeys(cell.data for cell in experiment.cells):
            # Sizes of one set share a title
            bounds[spec.title].add(datasets[spec].upper_bound or 0.0)
            digests[spec.title].add(datasets[spec].digest)
        upper_bounds = {}
        for title, values in bounds.items():
            if len(values) == 1 and any(values):
                upper_bounds[title] = max(values)
        manifest = Manifest(
            format=FORMAT,
            versions=versions() | {"scipy": version("scipy")},
            experiment=experiment.name,
            description=experiment.description,
            trials=experiment.trials,
            seed=experiment.seed,
            table=experiment.table,
            cells=[*map(Run, run_ids, experiment.cells)],
            others=others,
            courses=courses,
            upper_bounds=upper_bounds,
            digests={title: sorted(some) for title, some in digests.items()},
            grid_folder=str(folder.resolve()),
            machine={"system": platform.platform(), "python": platform.python_version()}
            | computer(),
        )
        self.lock.write_if_changed(self.store.manifest_path, sealed(manifest, indent=1))

    def export(self) -> None:
        """Write ``summary.csv``, and the curves and records of each run, for others to
        read.
        """
        self.journal.flush()
        if self._is_exported():
            return
        for run_id in self.store.lines():
            self._export_run(run_id)
        self._export_summary()

    def _is_exported(self) -> bool:
        """Whether the exports are newer than the trials, and none of them is gone."""
        folder = self.store.folder
        summary = folder / "summary.csv"
        sources = self.store.manifest_path, self.store.journal.path
        if _changed(summary) <= max(map(_changed, sources)):
            return False
        paths = [folder / "curves" / f"{run_id}.csv" for run_id in self.store.lines()]
        for run in self.store.manifest().cells:
            if run.row["record_what"]:
                paths.append(folder / "records" / f"{run.run_id}.csv")
        return all(path.exists() and path.stat().st_size for path in paths)

    def _export_run(self, run_id: str) -> None:
        """Write the curves and the records of a run."""
        keys = self.store.finished_keys([run_id])
        lines = [*self.store.journal.lines(keys)]
        for folder, kind in EXPORTS.items():
            names: dict[str, None] = {"trial": None}
            for line in lines:
                names |= dict.fromkeys(getattr(line, kind))
            rows: list[tuple] = []
            for line in lines:
                if getattr(line, kind):
                    table: dict[str, Any] = {"trial": repeat(line.trial)}
                    table |= getattr(line, kind)
                    columns = [table.get(name, repeat("")) for name in names]
                    rows += zip(*columns, strict=False)
            if rows:
                path = self.store.folder / folder / f"{run_id}.csv"
                content = _csv_of(names, rows)
                self.lock.write_if_changed(path, content, at_once=False)

    def _export_summary(self) -> None:
        cells = {run.run_id: run.row for run in self.store.manifest().cells}
        rows = [*self.store.rows(cells)]
        names = dict.fromkeys([*KEYS, *Columns([*cells.values()]).varying()])
        for row in rows:
            names |= dict.fromkeys(row)
        lines = []
        for row in rows:
            values = cells[row["run_id"]] | row
            lines.append([not_computed(values.get(name)) for name in names])
        self.lock.write(self.store.folder / "summary.csv", _csv_of(names, lines))

    def finish(self) -> None:
        """Write the exports, and the journal in the grid's order, without lines that no
        longer count.
        """
        self.journal.flush(tries=3)
        lines = self.store.lines()
        in_grid = [run.run_id for run in self.store.manifest().cells]
        keys: list[TrialKey] = []
        for run_id in dict.fromkeys([*in_grid, *sorted(lines)]):
            keys += [(run_id, number) for number in sorted(lines.get(run_id, ()))]
        self.journal.rewrite(keys)
        self.export()


def check_place(store: Store) -> None:
    """Raise CbmError where something else is than results of this cbm."""
    check_format(store.manifest_path)
    for name in (*FOLDERS, *EXPORTS):
        path = store.folder / name
        if path.exists() and not path.is_dir():
            raise CbmError(
                f"{path}: is a file where results need a folder; move it away"
            )


def _changed(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


def _as_json(value: Any) -> Any:
    """A value as JSON can hold it."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def by_column(columns: Sequence[str], rows: np.ndarray | None) -> Table:
    """Return the rows of a curve or of records by column, as a line holds them; nothing
    without rows.

    >>> by_column(["update", "norm"], np.array([[0, 1.5], [20, np.inf]]))
    {'update': [0, 20], 'norm': [1.5, 'inf']}
    """
    if rows is None:
        return {}
    table = {}
    for name, column in zip(columns, rows.T.tolist(), strict=True):
        if name in WHOLE:
            column = [int(x) if x % 1 == 0 else x for x in column]
        table[name] = [_as_json(value) for value in column]
    return table


def _csv_of(names: Iterable[str], rows: Iterable[Iterable[Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    return text.getvalue().encode()
