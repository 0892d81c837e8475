"""How far the trials of an experiment are, looked at again and again while a run writes them."""

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cbm_cli.arrays import read_npz
from cbm_cli.errors import CbmError
from cbm_cli.results.inventory import axes_of
from cbm_cli.results.store import Store
from cbm_cli.text import text_of


class CellActivity(NamedTuple):
    """How far the trials of a cell are."""

    title: str  # the settings that tell it from other cells
    finished: int
    diverged: int
    failed: int
    running: int  # trials with a progress that was saved since the run began
    changed: int  # when something of it was last written, in nanoseconds
    trial: int  # its newest one
    curve: Sequence[float]  # first metric of this trial, one value per evaluation
    update: int  # which the curve has reached
    shares: float  # of the running trials that are done, summed
    made: float  # trials that this run has made, running ones in part


@dataclass(frozen=True)
class Activity:
    """How far an experiment is."""

    experiment: str
    planned: int  # trials of each cell
    metric: str  # of the curves; empty until a trial is finished
    cells: list[CellActivity]

    @property
    def finished(self) -> int:
        """Finished trials of all cells."""
        return sum(cell.finished for cell in self.cells)

    @property
    def made(self) -> float:
        """Trials that this run has made, running ones in part."""
        return sum(cell.made for cell in self.cells)

    @property
    def left(self) -> float:
        """Trials that this run still has to make."""
        return max(self.trials - sum(cell.finished + cell.failed + cell.shares for cell in self.cells), 0)

    @property
    def trials(self) -> int:
        """Planned trials of all cells."""
        return self.planned * len(self.cells)


@dataclass
class Watched:
    """An experiment that is looked at repeatedly: what does not change any more is read once."""

    store: Store
    _diverged: dict[tuple[str, int], bool] = field(default_factory=dict)  # of finished trials
    _curves: dict[tuple[str, int], list[list[float]]] = field(default_factory=dict)  # update, value
    _metric: str = ""

    def look(self, since: int) -> Activity:
        """Return how far the experiment is; ``since``: when the run began, in nanoseconds."""
        manifest = self.store.manifest()
        axes = axes_of(manifest)
        cells = [
            self._cell(cell, " ".join(text_of(cell.get(axis)) or "-" for axis in axes), since)
            for cell in {cell["run_id"]: cell for cell in manifest["cells"]}.values()
        ]
        return Activity(self.store.experiment, manifest["trials"], self._metric, cells)

    def _cell(self, cell: dict[str, Any], title: str, since: int) -> CellActivity:
        """Return how far a cell is."""
        run_id, store, elapsed = cell["run_id"], self.store, (time.time_ns() - since) / 1e9
        finished, (interrupted, failed) = store.finished(run_id), store.unfinished(run_id)
        curve, shares, running, changed = [], 0.0, 0, store.changed(run_id) if finished else 0
        newest = max(finished, default=0)
        made = float(len(store.finished_since(run_id, since)))
        if finished:
            curve = self._finished_curve(run_id, newest)
        for number in sorted(interrupted):
            path = store.state_path(run_id, number)
            try:
                written = path.stat().st_mtime_ns
                state = read_npz(path, {"update", "curve", "seconds"})
            except (OSError, CbmError):  # it has just finished
                continue
            if written >= since:
                rows = state["curve"]
                share = 0.0  # in pre-training, before the first evaluation
                if rows.size and cell.get("updates"):
                    share = min(int(state["update"]) / cell["updates"], 1)
                elif rows.size:
                    share = min(float(rows[-1, 1]) / cell["epochs"], 1)
                shares, running, changed = shares + share, running + 1, max(changed, written)
                # The progress that is older than this run was made by earlier ones.
                made += share * min(1, elapsed / max(float(state["seconds"]), 1e-9))
                if rows.size and rows.shape[1] > 2:
                    newest, curve = number, rows[:, [0, 2]].tolist()
        diverged = sum(self._has_diverged(run_id, number) for number in finished)
        counts = len(finished), diverged, len(failed), running
        updates, values = zip(*curve, strict=True) if curve else ((0,), ())
        return CellActivity(title, *counts, changed, newest, values, int(updates[-1]), shares, made)

    def _has_diverged(self, run_id: str, number: int) -> bool:
        if (run_id, number) not in self._diverged:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a damaged record; cbm run tells
                row = self.store.row(run_id, number) or {}
            self._diverged[run_id, number] = row.get("diverged") is not None
        return self._diverged[run_id, number]

    def _finished_curve(self, run_id: str, number: int) -> list[list[float]]:
        """Return update and first metric of each evaluation of a finished trial."""
        if (run_id, number) not in self._curves:
            try:
                frame = self.store.curve(run_id, number)
            except CbmError:  # damaged
                return []
            self._metric = self._metric or next(iter(frame.columns[2:]), "")
            self._curves[run_id, number] = (
                frame.iloc[:, [0, 2]].values.tolist() if len(frame.columns) > 2 else []
            )
        return self._curves[run_id, number]
