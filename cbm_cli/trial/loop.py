"""The one training loop: a trial is a pure function of its settings, its seed and its
data.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.grid.settings import Trial
from cbm_cli.kernels.computer import combined, computer
from cbm_cli.kernels.machine import State, Trail
from cbm_cli.machines.estimates import LONGEST_CALL, Stopped
from cbm_cli.machines.threads import one_thread
from cbm_cli.results import Outcome, Progress
from cbm_cli.results.outcome import LONG, believed, better, valid_metric
from cbm_cli.trial.learner import Learner
from cbm_cli.trial.pretraining import LayerTraining
from cbm_cli.trial.recorders import Recorder, Recording
from cbm_cli.trial.start import total_updates, updates_of

_RATE = 2_000_000  # products of numbers in a second at least, where kernels are simple
_IMPROVEMENT = (
    1e-5  # of a validation cost, from one evaluation to the next, as the paper reads
)


def run_trial(
    trial: Trial,
    data: Dataset,
    since: Progress | None = None,
    should_pause: Callable[[], bool] = lambda: False,
    recorders: Mapping[str, Recorder] = MappingProxyType({}),
    should_stop: Callable[[], bool] | None = None,
) -> Outcome | Progress:
    """Train and evaluate one machine to the end of its trial, or until it is paused.

    A trial that resumes from the Progress of a paused call (``since``, changed in
    place), in this process or another, ends in the same bytes as one that was never
    stopped. ``should_pause`` is asked between calls of kernels, about every half
    second; ``should_stop`` (by default the same) within a long evaluation, which starts
    again when the trial resumes. ``recorders`` are the user's, by their names in the
    settings.
    """
    with one_thread():
        return _Course(trial, data, recorders).run(
            since, should_pause, should_stop or should_pause
        )


def converged(costs: Sequence[float], look_ahead: int) -> int | None:
    """Epoch of the lowest cost once a training has converged; None before.

    The paper stops "with a look ahead of 5 epochs", when "the cost improvement on the
    validation set was less than 0.00001". Read here as: training has converged after
    epoch e if none of the epochs e + 1, ..., e + look_ahead costs less than the epoch
    before it by more than 0.00001. This is known, and training stops, look_ahead epochs
    later: more costs do not change the answer. Costs are of the epochs 1, 2, ...; NaN
    improves on nothing.
    """
    values = np.asarray(costs, dtype=np.float64)
    if values.size <= look_ahead:
        return None
    falls = values[:-1] - values[1:] > _IMPROVEMENT  # from each epoch to the next
    still = ~sliding_window_view(falls, look_ahead).any(axis=1)
    if not still.any():
        return None
    known = values[: int(still.argmax()) + look_ahead + 1]
    return int(np.where(np.isnan(known), np.inf, known).argmin()) + 1


class _Course:
    """The course of one trial: pre-training, then updates and the stations at which it
    is evaluated.
    """

    def __init__(
        self, trial: Trial, data: Dataset, recorders: Mapping[str, Recorder]
    ) -> None:
        self.settings, self.data = trial.settings, data
        seed = trial.seed
        self.learner = Learner(self.settings, data, seed)
        self.pretraining, plan = (
            LayerTraining(self.settings, data, seed),
            self.learner.plan,
        )
        self.columns = ("update", "epoch", *self.learner.columns)
        self.watched = (
            valid_metric(self.columns) or ""
        )  # nothing without a validation part
        self.best: float | None = (
            None  # of the evaluations after the start, as `_score` rates them
        )
        self.last = total_updates(self.settings, data)
        self.every = updates_of(self.settings.every, self.settings, data)
        self.recording = Recording(self.settings, data, seed, recorders, self.last)
        rows = max(plan.batch, plan.rows * plan.temperatures * plan.steps)
        products = rows * sum(n * m for n, m in pairwise(self.learner.sizes))
        simple = self.learner.direction is None and not plan.exact
        # Updates of one call of the kernel
        self.at_once = max(1, int(LONGEST_CALL * _RATE) // products) if simple else 1

    def run(
        self,
        since: Progress | None,
        should_pause: Callable[[], bool],
        should_stop: Callable[[], bool],
    ) -> Outcome | Progress:
        began = time.perf_counter()
        now = since or Progress(None)
        if self.watched:
            self.best = max(map(self._score, now.curve[1:]), default=None)
        now.computer = combined(now.computer, computer())
        if now.state is None:
            now.state = self._first_state(now)
        earlier = now.seconds
        while not should_pause():
            if not self.pretraining.is_done(now):
                self._in_time(
                    lambda: self.pretraining.advance(now, self.at_once), self.at_once
                )
                if self.pretraining.is_done(now):
                    now.state = self._first_state(now)
                continue
            if now.update == self._next_station(now):
                rounds, best_machine = now.state.rounds.copy(), now.best_machine
                try:
                    finite = self._evaluate(now, should_stop)
                except Stopped:
                    break
                if (
                    not finite
                    or now.update == self.last
                    or self._converged(now) is not None
                ):
                    before = now.copy()
                    before.curve.pop()
                    before.best_machine, before.state.rounds[:] = best_machine, rounds
                    self.recording.finish(now)
                    now.seconds = earlier + time.perf_counter() - began
                    end = before if now.seconds >= LONG else None
                    return self._outcome(now, None if finite else now.update, end)
            self._train(now)
        now.seconds = earlier + time.perf_counter() - began
        return now

    def _next_station(self, now: Progress) -> int:
        """The update of the next evaluation: at regular intervals, and after the last
        update.
        """
        return min(len(now.curve) * self.every, self.last)

    def _first_state(self, now: Progress) -> State:
        """The state before the first update, of pre-training or after it."""
        if not self.pretraining.is_done(now):
            return self.pretraining.first_state(now)
        if now.pretrained:
            return self.learner.start_from(self.pretraining.machine(now))
        return self.learner.start()

    def _train(self, now: Progress) -> None:
        """One call of the kernel: to the next evaluation at most, or through those that
        it can make.
        """
        may_stop = self.settings.early_stopping.metric is not None
        station, through = (
            self._next_station(now),
            self.learner.exact is not None and not may_stop,
        )
        stop = min(
            now.update + self.at_once,
            max(station, self.last - 1) if through else station,
        )
        trail, stop = self.recording.trail(now, stop)
        stations = (
            min(stop, self.last - 1) // self.every - now.update // self.every
            if through
            else 0
        )
        if stations:
            stop = station + (stations - 1) * self.every
            through_all = range(station, stop + 1, self.every)
            self._in_time(
                lambda: self._train_through(now, trail, through_all), stop - now.update
            )
        else:
            self._in_time(
                lambda: self.learner.advance(now.state, trail, now.update, stop),
                stop - now.update,
            )
            now.update = stop
        made = np.searchsorted(trail.update, now.update)
        self.recording.keep(now, Trail._make(array[:made] for array in trail))

    def _train_through(self, now: Progress, trail: Trail, stations: range) -> None:
        """Add the evaluations at these updates to the curve."""
        best, batches = (
            -np.inf if self.best is None else self.best,
            self.learner.plan.batches,
        )
        rows = self.learner.advance_through(
            now.state, trail, now.update, stations, best
        )
        made = zip(stations, rows, strict=False)  # the last one may be left
        now.curve += [[update, update / batches, *row] for update, row in made]
        now.update = stations[min(len(rows), len(stations) - 1)]

    def _in_time(self, call: Callable[[], None], updates: int) -> None:
        """Make a call of so many updates, and adapt how many updates the next call
        makes.
        """
        began = time.perf_counter()
        call()
        seconds = time.perf_counter() - began
        if seconds < LONGEST_CALL / 2 and 2 * updates > self.at_once:
            self.at_once *= 2
        elif seconds > LONGEST_CALL and self.at_once > 1:
            self.at_once //= 2

    def _evaluate(self, now: Progress, should_stop: Callable[[], bool]) -> bool:
        """Add a row to the curve; return whether all parameters and all values of
        metrics are finite.
        """
        names, values = self.learner.columns, None
        if all(np.isfinite(array).all() for array in now.state.machine):
            values = self.learner.evaluate(now.state, now.update, should_stop)
            if not all(
                np.isfinite(value) or not better(name)
                for name, value in zip(names, values, strict=True)
            ):
                values = None
        finite = values is not None
        now.curve.append(
            [
                now.update,
                now.update / self.learner.plan.batches,
                *(values or [np.nan] * len(names)),
            ]
        )
        if finite and self.watched and len(now.curve) > 1:
            score = self._score(now.curve[-1])
            if self.best is None or score > self.best:
                self.best, now.best_machine = score, self.learner.machine(now.state)
        return finite

    def _score(self, row: list[float]) -> float:
        """The validation metric of an evaluation, so that more is better; non-finite
        values are the worst.
        """
        value = float(believed(self.watched, dict(zip(self.columns, row, strict=True))))
        return better(self.watched) * value if np.isfinite(value) else -np.inf

    def _converged(self, now: Progress) -> int | None:
        """Epoch of the best validation value once early stopping finds that training
        has converged.
        """
        stops = (
            self.settings.model.kind == "auto-encoder"
            or self.settings.early_stopping.metric
        )
        if not (stops and self.watched):
            return None
        how = self.settings.early_stopping
        newest = max(1, len(now.curve) - how.look_ahead - 1)

        def end(first: int) -> int | None:
            costs = [-self._score(row) for row in now.curve[first:]]
            return converged(costs, how.look_ahead)

        # Without an end among the newest epochs all of them have none.
        found = None if end(newest) is None else end(1)
        return None if found is None else round(now.curve[found][1])

    def _outcome(
        self, now: Progress, diverged: int | None, end: Progress | None
    ) -> Outcome:
        return Outcome(
            self.columns,
            np.array(now.curve, dtype=np.float64),
            self.learner.machine(now.state),
            diverged,
            now.seconds,
            {split: len(rows) for split, rows in self.data.parts.items()},
            now.best_machine,
            ("update", *now.recorded) if now.records else (),
            np.concatenate(now.records) if now.records else None,
            self._converged(now),
            now.pretrained,
            end,
            now.computer,
            now.flaws,
        )
