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
from cbm_cli.machines.estimates import LONGEST_CALL, Stopped, never
from cbm_cli.machines.threads import one_thread
from cbm_cli.results import Outcome, Progress
from cbm_cli.results.metrics import believed, better, valid_metric
from cbm_cli.results.outcome import LONG
from cbm_cli.trial.learner import Learner
from cbm_cli.trial.pretraining import LayerTraining
from cbm_cli.trial.recorders import Recorder, Recording
from cbm_cli.trial.start import total_updates, updates_of

_RATE = 2_000_000  # products of numbers in a second at least, where kernels are simple
# Of a validation cost, from one evaluation to the next, as the paper reads
_IMPROVEMENT = 1e-5


def run_trial(
    trial: Trial,
    data: Dataset,
    since: Progress | None = None,
    should_pause: Callable[[], bool] = never,
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
    """Number of the evaluation of the lowest cost once a training has converged; None
    before.

    The paper stops "with a look ahead of 5 epochs", when "the cost improvement on the
    validation set was less than 0.00001". Read here, with an evaluation an epoch, as:
    training has converged after evaluation e if none of the evaluations e + 1, ..., e +
    look_ahead costs less than the one before it by more than 0.00001. This is known,
    and training stops, look_ahead evaluations later: more costs do not change the
    answer. Costs are of the evaluations 1, 2, ...; NaN improves on nothing.

    Examples
    --------
    >>> converged([5.0, 4.0, 3.0, 3.1], look_ahead=2) is None
    True
    >>> converged([5.0, 4.0, 3.0, 3.1, 3.2], look_ahead=2)
    3
    """
    values = np.asarray(costs, dtype=np.float64)
    if values.size <= look_ahead:
        return None
    falls = values[:-1] - values[1:] > _IMPROVEMENT
    still = ~sliding_window_view(falls, look_ahead).any(axis=1)
    if not still.any():
        return None
    until_known = values[: int(still.argmax()) + look_ahead + 1]
    rated = np.where(np.isnan(until_known), np.inf, until_known)
    return int(rated.argmin()) + 1


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
        self.pretraining = LayerTraining(self.settings, data, seed)
        self.columns = ("update", "epoch", *self.learner.columns)
        # Empty without a validation part
        self.watched = valid_metric(self.columns) or ""
        # Score of the evaluations after the start, see `_score`
        self.best = -np.inf
        self.last = total_updates(self.settings, data)
        self.every = updates_of(self.settings.every, self.settings, data)
        self.recording = Recording(
            self.settings, data, seed, own=recorders, last=self.last
        )
        # Evaluations that a kernel makes need not end a stretch
        stops_early = self.settings.early_stopping.metric is not None
        self.through = self.learner.exact is not None and not stops_early
        self.at_once = _first_guess(self.learner)  # updates of one call of the kernel

    def run(
        self,
        since: Progress | None,
        should_pause: Callable[[], bool],
        should_stop: Callable[[], bool],
    ) -> Outcome | Progress:
        now = since or Progress(None)
        began = time.perf_counter() - now.seconds
        for row in now.curve[1:]:
            self.best = max(self.best, self._score(row))
        now.computer = combined(now.computer, computer())
        if now.state is None:
            now.state = self._first_state(now)
        while not should_pause():
            if not self.pretraining.is_done(now):
                self._pretrain(now)
                continue
            if now.update == self._next_station(now):
                rounds, best_machine = now.state.rounds.copy(), now.best_machine
                try:
                    finite = self._evaluate(now, should_stop)
                except Stopped:
                    break
                at_end = not finite or now.update == self.last
                if at_end or self._converged(now) is not None:
                    end = now.copy()
                    end.curve.pop()
                    end.best_machine, end.state.rounds[:] = best_machine, rounds
                    self.recording.finish(now)
                    now.seconds = time.perf_counter() - began
                    return self._outcome(now, finite, end)
            self._train(now)
        now.seconds = time.perf_counter() - began
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

    def _pretrain(self, now: Progress) -> None:
        """One call of the kernel that pre-trains a layer."""
        began, updates = time.perf_counter(), self.at_once
        self.pretraining.advance(now, updates)
        self._adapt(updates, time.perf_counter() - began)
        if self.pretraining.is_done(now):
            now.state = self._first_state(now)

    def _train(self, now: Progress) -> None:
        """One call of the kernel: to the next evaluation at most, or through those that
        it can make.
        """
        station = self._next_station(now)
        furthest = max(station, self.last - 1) if self.through else station
        stop = min(now.update + self.at_once, furthest)
        trail, stop = self.recording.trail(now, stop)
        stations = range(0)
        if self.through:
            stations = range(station, min(stop, self.last - 1) + 1, self.every)
        if stations:
            stop = stations[-1]
        began, first = time.perf_counter(), now.update
        now.update, rows = self.learner.advance(
            now.state, trail, first, stop, stations=stations, best=self.best
        )
        self._adapt(stop - first, time.perf_counter() - began)
        for update, row in zip(stations, rows, strict=False):
            now.curve.append([update, update / self.learner.plan.batches, *row])
        kept = np.searchsorted(trail.update, now.update)
        self.recording.keep(now, Trail._make(array[:kept] for array in trail))

    def _adapt(self, updates: int, seconds: float) -> None:
        """Adapt the updates of the next call to the time that this one took."""
        if seconds < LONGEST_CALL / 2 and 2 * updates > self.at_once:
            self.at_once *= 2
        elif seconds > LONGEST_CALL and self.at_once > 1:
            self.at_once //= 2

    def _evaluate(self, now: Progress, should_stop: Callable[[], bool]) -> bool:
        """Add a row to the curve; return whether all parameters and all values of
        metrics are finite.
        """
        names = self.learner.columns
        finite = all(np.isfinite(array).all() for array in now.state.machine)
        values = [np.nan] * len(names)
        if finite:
            measured = self.learner.evaluate(now.state, now.update, should_stop)
            pairs = zip(names, measured, strict=True)
            finite = all(np.isfinite(value) for name, value in pairs if better(name))
            values = measured if finite else values
        epoch = now.update / self.learner.plan.batches
        now.curve.append([now.update, epoch, *values])
        if finite and self.watched and len(now.curve) > 1:
            score = self._score(now.curve[-1])
            if score > self.best or now.best_machine is None:
                self.best = score
                now.best_machine = self.learner.machine(now.state)
        return finite

    def _score(self, row: list[float]) -> float:
        """The validation metric of an evaluation, so that more is better; non-finite
        values are the worst, as are all without a validation part.
        """
        if not self.watched:
            return -np.inf
        by_column = dict(zip(self.columns, row, strict=True))
        value = float(believed(self.watched, by_column))
        return better(self.watched) * value if np.isfinite(value) else -np.inf

    def _converged(self, now: Progress) -> float | None:
        """Epoch of the best validation value once early stopping finds that training
        has converged, whole or not.
        """
        how = self.settings.early_stopping
        stops = self.settings.model.kind == "auto-encoder" or how.metric
        if not stops or not self.watched:
            return None
        newest = max(1, len(now.curve) - how.look_ahead - 1)
        costs = [-self._score(row) for row in now.curve[newest:]]
        # Without an end among the newest evaluations all of them have none.
        if converged(costs, how.look_ahead) is None:
            return None
        costs = [-self._score(row) for row in now.curve[1:]]
        best = converged(costs, how.look_ahead)
        if best is None:
            return None
        epoch = now.curve[best][1]
        return int(epoch) if epoch.is_integer() else epoch

    def _outcome(self, now: Progress, finite: bool, end: Progress) -> Outcome:
        recorded: tuple[str, ...] = ()
        records = None
        if now.records:
            recorded = ("update", *now.recorded)
            records = np.concatenate(now.records)
        return Outcome(
            columns=self.columns,
            curve=np.array(now.curve, dtype=np.float64),
            machine=self.learner.machine(now.state),
            diverged=None if finite else now.update,
            seconds=now.seconds,
            rows={part: len(rows) for part, rows in self.data.parts.items()},
            best_machine=now.best_machine,
            recorded=recorded,
            records=records,
            converged=self._converged(now),
            pretrained=now.pretrained,
            end=end if now.seconds >= LONG else None,
            computer=now.computer,
            flaws=now.flaws,
        )


def _first_guess(learner: Learner) -> int:
    """Updates that take about as long as a call of the kernel may, or 1 where that is
    hard to tell.
    """
    plan = learner.plan
    if learner.direction is not None or plan.exact:
        return 1
    rows = max(plan.batch, plan.rows * plan.temperatures * plan.steps)
    products = rows * sum(n * m for n, m in pairwise(learner.sizes))
    return max(1, int(LONGEST_CALL * _RATE) // products)
