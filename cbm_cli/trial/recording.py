"""When snapshots are taken in training, and how they become records, in groups of fixed size."""

import numpy as np
from numpy.typing import NDArray

from cbm_cli.datasets import Dataset
from cbm_cli.grid.settings import Settings
from cbm_cli.kernels.machine import State, Trail, empty_trail
from cbm_cli.results import Progress
from cbm_cli.trial.recorders import Context, Recorder, Snapshots, record
from cbm_cli.trial.start import updates_of

_BYTES = 32_000_000  # of the snapshots of a group


class Recording:
    """What is recorded of one trial, and at which updates.

    Snapshots are turned into records in groups of a fixed number: vectorised, and the same bytes wherever
    a trial was stopped.
    """

    def __init__(
        self,
        settings: Settings,
        data: Dataset,
        seed: int,
        own: dict[str, Recorder],
        last: int,
    ) -> None:
        how = settings.record
        self.names, self.own = how.names, own
        self.shape = data.width, settings.model.hidden_layers(data.width)[0]
        self.context = Context(data, settings, how.unit_numbers, seed)
        self.marks = _marks(settings, data, last) if self.names else np.empty(0, np.int64)
        n, m = self.shape
        self.group = max(1, min(1000, _BYTES // (4 * (n + 1) * (m + 1))))

    def trail(self, first: int, last: int) -> tuple[Trail, int]:
        """Room for the snapshots of a stretch, and where the stretch then ends: not beyond a group."""
        start, stop = np.searchsorted(self.marks, (first, last))
        if stop - start > self.group:
            last, stop = int(self.marks[start + self.group]), start + self.group
        return empty_trail(*self.shape, self.marks[start:stop]), last

    def keep(self, now: Progress, trail: Trail) -> None:
        """Add snapshots to those that wait, and compute the records of whole groups."""
        if not len(trail.update):
            return
        parts = trail._asdict()
        if now.pending:
            parts = {name: np.concatenate([now.pending[name], array]) for name, array in parts.items()}
        while len(parts["update"]) >= self.group:
            self._record(now, {name: array[: self.group] for name, array in parts.items()})
            parts = {name: array[self.group :] for name, array in parts.items()}
        now.pending = parts

    def finish(self, now: Progress) -> None:
        """Record the end, if it is asked for, and all that still waits."""
        state: State = now.state
        if len(self.marks) and self.marks[-1] == now.update:
            last = empty_trail(*self.shape, np.array([now.update]))
            for name in ("W", "b", "c", "mu", "lam"):
                getattr(last, name)[0] = getattr(state, name)
            self.keep(now, last)
        if now.pending and len(now.pending["update"]):
            self._record(now, now.pending)
        now.pending = {}

    def _record(self, now: Progress, group: dict[str, NDArray]) -> None:
        found = record(self.names, Snapshots(**group), self.context, self.own)
        now.recorded = tuple(found)
        now.records.append(np.column_stack([group["update"], *found.values()]))


def _marks(settings: Settings, data: Dataset, last: int) -> NDArray[np.int64]:
    """Updates at which a snapshot is taken, in order."""
    every = updates_of(settings.record.every or settings.every, settings, data)
    windows = [np.arange(start, min(stop, last) + 1) for start, stop in settings.record.windows]
    return np.unique(np.concatenate([np.arange(0, last + 1, every), [last], *windows])).astype(np.int64)
