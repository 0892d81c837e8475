"""One experiment's folder of results, as any number of processes may read it."""

import math
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from importlib.metadata import version
from pathlib import Path
from re import ASCII, compile
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from cbm_cli.arrays import MOST_BYTES
from cbm_cli.errors import CbmError, DamagedError, IncompleteError
from cbm_cli.kernels import KERNEL_VERSION
from cbm_cli.results.columns import Row
from cbm_cli.results.journal import (
    FORMAT,
    Journal,
    Line,
    LineHead,
    Manifest,
    Stamp,
    Table,
    TrialKey,
    unsealed,
)
from cbm_cli.results.outcome import MachineArrays
from cbm_cli.results.states import named, read_checked, read_sealed_npz
from cbm_cli.version import __version__

if TYPE_CHECKING:
    import pandas as pd

WHOLE = ("update", "epoch")  # columns of whole numbers, where they are whole
HASH_DIGITS = 10  # of the end of a run-id
MACHINES = ("machine", "best")  # kinds: the final one, and the best-valid one
KEYS = ["experiment", "run_id", "trial", "seed"]  # the first columns of tables
_NOT_FINITE = {"nan": None, "inf": math.inf, "-inf": -math.inf}  # which JSON lacks
_STATE = compile(r"trial-(\d{3,})-([0-9a-f]{10})\.npz", ASCII)


class SavedState(NamedTuple):
    """A state from which a training continues: in the middle, or at the end of a long
    one.
    """

    path: Path
    course: str  # the name that shorter and longer trainings share
    run_id: str
    trial: int


@dataclass(frozen=True)
class Store:
    """The folder ``results/<experiment>/``, and the names and formats of its files.

    It reads alone: files are made and changed by a `Writer`, which only the process has
    that holds the lock of the results folder.
    """

    folder: Path

    @cached_property
    def journal(self) -> Journal:
        """The lines of the trials."""
        return Journal(self.folder / "trials.jsonl")

    @property
    def experiment(self) -> str:
        """Name of the experiment."""
        return self.folder.name

    # The grid

    @property
    def manifest_path(self) -> Path:
        """The file of the grid that was last run."""
        return self.folder / "manifest.json"

    def manifest(self) -> Manifest:
        """Return the grid that was last run.

        Raises DamagedError if its file is missing or damaged, and CbmError if it cannot
        be read for another reason.
        """
        path = self.manifest_path
        try:
            with named(path):
                return _manifest_of(path, Stamp.of(path.stat()))
        except (DamagedError, ValueError, TypeError):
            raise DamagedError(
                f"{path}: missing or damaged; cbm run with its grid writes it again "
                "and keeps finished trials"
            ) from None

    def manifest_if_sound(self) -> Manifest | None:
        """Return the grid that was last run; None if its file is missing or damaged."""
        try:
            return self.manifest()
        except DamagedError:
            return None

    def runs(self) -> set[str]:
        """Return the run-ids with a line, with the state of an unfinished trial, or of
        the grid last run.
        """
        runs = {*self.lines(), *(state.run_id for state in self.states())}
        manifest = self.manifest_if_sound()
        if manifest:
            runs.update(run.run_id for run in manifest.cells)
        return runs

    # Tables

    def summary(self) -> "pd.DataFrame":
        """Return one row per finished trial of the grid that was last run, in the
        grid's order.
        """
        import pandas as pd

        cells = {run.run_id: run.settings.row() for run in self.manifest().cells}
        for problem in self.damaged().values():
            warnings.warn(f"{problem}; cbm run repeats what is lost", stacklevel=2)
        rows = [*self.rows(cells)]
        if not rows:
            return pd.DataFrame(columns=KEYS)
        trials = pd.DataFrame(rows)
        settings = pd.DataFrame([*cells.values()], [*cells]).loc[trials["run_id"]]
        keys, values = trials[KEYS], trials.drop(columns=KEYS)
        frame = pd.concat([keys, settings.set_index(trials.index), values], axis=1)
        is_empty = frame.isna().all()
        return frame.astype(dict.fromkeys(frame.columns[is_empty], float))

    def rows(self, runs: Iterable[str]) -> Iterator[Row]:
        """Yield the rows of the finished trials of runs, but for their settings."""
        lines = self.lines()
        for run_id, number in self.finished_keys(runs):
            line = lines[run_id][number]
            keys = self.experiment, run_id, number, line.seed
            row: Row = dict(zip(KEYS, keys, strict=True))
            for name, value in line.row.items():
                row[name] = _NOT_FINITE.get(value, value)
            row["seconds"] = line.seconds
            for name in versions():
                row[f"{name}_version"] = str(line.made.get(name, ""))
            yield row

    def nothing_yet(self) -> IncompleteError:
        """Return the error that no trial is finished."""
        words = "no trial is finished yet;"
        curves = (self.folder / "curves").glob("*.csv")
        if not self.journal.path.exists() and any(curves):
            words = "trials.jsonl is missing; restore it, or"
        return IncompleteError(f"{self.folder}: {words} start with: cbm run")

    # Trials

    def lines(self) -> Mapping[str, Mapping[int, LineHead]]:
        """Return the facts of trials by run-id and number, without the rest of their
        lines.
        """
        return self.journal.read().runs

    def finished(self, run_id: str) -> frozenset[int]:
        """Return the numbers of the finished trials of a run."""
        return frozenset(number for _, number in self.finished_keys([run_id]))

    def finished_keys(self, runs: Iterable[str]) -> list[TrialKey]:
        """Return the finished trials of runs, run after run in the order of their
        numbers.
        """
        lines = self.lines()
        keys: list[TrialKey] = []
        for run_id in runs:
            heads = sorted(lines.get(run_id, {}).items())
            keys += [(run_id, number) for number, head in heads if head.finished]
        return keys

    def failed(self, run_id: str) -> frozenset[int]:
        """Return the numbers of the failed trials of a run."""
        return frozenset(self.lines().get(run_id, {})) - self.finished(run_id)

    def interrupted(self) -> set[TrialKey]:
        """Return the trials that have a state and are not finished."""
        states = {(state.run_id, state.trial) for state in self.states()}
        return states.difference(self.finished_keys({run for run, _ in states}))

    def failure(self, run_id: str, number: int) -> str:
        """Return what went wrong in a failed trial."""
        return next(self.journal.lines([(run_id, number)])).details

    def damaged(self) -> Mapping[TrialKey, str]:
        """Return what lines are damaged, by trial or, where that is unknown, by ``""``
        and number.
        """
        return self.journal.read().damaged

    def line(self, run_id: str, number: int) -> Line:
        """Return the line of a finished trial; DamagedError if it is missing or
        damaged.
        """
        for line in self.journal.lines([(run_id, number)]):
            if line.finished:
                return line
        raise DamagedError(
            f"{self.journal.path}: trial {number} of {run_id} is damaged or missing; "
            "cbm run repeats it"
        )

    def curves(self, run_id: str, numbers: Iterable[int]) -> "list[pd.DataFrame]":
        """Return the curves of trials of a run: update, epoch, <part>_<metric>, in nats
        per sample.
        """
        curves = self._frames("curve", run_id, numbers)
        if any(curve.empty for curve in curves):
            raise IncompleteError(
                f"{self.folder}: keeps no curves of {run_id}; repeat it in another "
                "folder"
            )
        return curves

    def records(self, run_id: str, numbers: Iterable[int]) -> "list[pd.DataFrame]":
        """Return what was recorded of trials of a run: update, then the columns of its
        recorders, if any.
        """
        return self._frames("records", run_id, numbers)

    def _frames(
        self, kind: str, run_id: str, numbers: Iterable[int]
    ) -> "list[pd.DataFrame]":
        lines = [self.line(run_id, int(number)) for number in numbers]
        return [_frame(getattr(line, kind) or {"update": []}) for line in lines]

    # Machines

    def machine(
        self, run_id: str, number: int, best: bool = False
    ) -> tuple[Path, bytes]:
        """Return the name and the NPZ file of a trial's machine, final or best-valid;
        CbmError without it.
        """
        line = self.line(run_id, number)
        kind, ending = "machine", ""
        if best:
            kind, ending = "best", ":best"
        name = self.folder.parent / f"{run_id}:{number}{ending}"
        if kind not in self.machines_in(line):
            raise CbmError(f"{name}: {self.folder} does not keep this machine")
        if kind in line.files:
            name = self.machine_path(run_id, number, kind)
        return name, self.machine_of(line, kind)

    def machine_of(self, line: LineHead, kind: str) -> bytes:
        """Return a machine of a line, or of the file that it names.

        Raises DamagedError if that file is missing or has changed, and CbmError if it
        cannot be read for another reason.
        """
        path = self.machine_path(line.run_id, line.trial, kind)
        if kind in line.files:
            return read_checked(path, line.files[kind])
        unpacking = zlib.decompressobj()
        try:
            with named(path):
                content = unpacking.decompress(getattr(line, kind), MOST_BYTES)
        except zlib.error:
            content = b""
        if not unpacking.eof:
            raise DamagedError(f"{path}: cannot be unpacked; is the file damaged?")
        return content

    def machines_in(self, line: Line) -> list[str]:
        """Return which machines of a trial are kept: the final ``machine``, and the
        ``best``-valid one.
        """
        return [kind for kind in MACHINES if kind in line.files or getattr(line, kind)]

    def damage(self, line: LineHead) -> str:
        """Return what is damaged of the files of a finished trial, or nothing.

        Raises CbmError for a file that cannot be read for another reason.
        """
        try:
            for kind in line.files:
                self.machine_of(line, kind)
        except DamagedError as error:
            return str(error)
        return ""

    def machine_path(self, run_id: str, number: int, kind: str) -> Path:
        """Return the path of a machine that is too large for a line."""
        ending = ".best.npz" if kind == "best" else ".npz"
        return self.folder / "machines" / run_id / f"trial-{number:03d}{ending}"

    # Where trainings go on

    def state_path(self, course: str, run_id: str, number: int) -> Path:
        """Return the path of the state of a trial: of an unfinished one, or at the end
        of a long one.
        """
        name = f"trial-{number:03d}-{run_id[-HASH_DIGITS:]}.npz"
        return self.folder / "checkpoints" / course / name

    def layers_path(self, pretraining: str, number: int) -> Path:
        """Return the path of pre-trained layers, which trials share."""
        return self.folder / "checkpoints" / pretraining / f"trial-{number:03d}.npz"

    def states(self) -> list[SavedState]:
        """Return the states that there are."""
        states = []
        for path in sorted((self.folder / "checkpoints").glob("*/trial-*.npz")):
            match = _STATE.fullmatch(path.name)
            if match:
                course = path.parent.name
                run_id = course[:-HASH_DIGITS] + match[2]
                states.append(SavedState(path, course, run_id, trial=int(match[1])))
        return states

    def pretrained(self, pretraining: str, number: int) -> MachineArrays:
        """Return the layers that a trial with the same pre-training has written; none
        if there are none.

        Raises DamagedError for a damaged file.
        """
        path = self.layers_path(pretraining, number)
        return read_sealed_npz(path) if path.is_file() else {}


@lru_cache(maxsize=1024)
def _manifest_of(path: Path, stamp: Stamp) -> Manifest:
    """Return the manifest in a file with this stamp."""
    check_format(path)
    return unsealed(path.read_bytes(), Manifest)


def check_format(path: Path) -> None:
    """Refuse the manifest of results that another version of cbm wrote in another form,
    but no damaged one; CbmError.
    """
    try:
        manifest = msgspec.json.decode(path.read_bytes())
        has_other_form = manifest["format"] != FORMAT
        writer = manifest["versions"]["cbm"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return
    if has_other_form:
        raise CbmError(
            f"{path.parent}: was written by cbm {writer} in another form; use that "
            "version, or run the grid again into another folder with -o"
        )


@cache
def versions() -> dict[str, Any]:
    """Return the versions that decide what a trial results in."""
    return {
        "cbm": __version__,
        "kernel": KERNEL_VERSION,
        "numpy": version("numpy"),
        "numba": version("numba"),
    }


def _frame(table: Table) -> "pd.DataFrame":
    import pandas as pd

    columns = {}
    for name, values in table.items():
        columns[name] = np.array(values, dtype=None if name in WHOLE else float)
    return pd.DataFrame(columns)
