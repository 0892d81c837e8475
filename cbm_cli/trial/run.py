"""The one training loop: a trial is a pure function of its settings, its seed and its data."""

import time
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from cbm_cli.datasets import Dataset
from cbm_cli.grid.settings import Trial
from cbm_cli.kernels.training import train
from cbm_cli.results import Outcome, Progress
from cbm_cli.trial.annealing import LONGEST_CALL, Stopped
from cbm_cli.trial.evaluation import Evaluator
from cbm_cli.trial.start import (
    initial_state,
    machine_arrays,
    make_plan,
    total_updates,
    updates_between_evaluations,
)


def run_trial(
    trial: Trial,
    data: Dataset,
    since: Progress | None = None,
    report: Callable[[int, float], None] = lambda update, log_likelihood: None,
    should_pause: Callable[[], bool] = lambda: False,
) -> Outcome | Progress:
    """Train and evaluate one machine, from where it stands to its end.

    Parameters
    ----------
    trial : Trial
    data : Dataset
    since : Progress, optional
        Where an earlier call left off; by default the trial starts. Changed in place.
    report : callable
        Told the update and the latest log-likelihood (nats per sample) after every call of the kernel.
    should_pause : callable
        Asked between two calls of a kernel, which last at most about half a second.

    Returns
    -------
    Outcome, or Progress where ``should_pause`` said so: a trial that goes on from there, in this process
    or in another, ends in the same bytes as one that was never stopped.
    """
    with threadpool_limits(1):
        return _Course(trial, data).run(since, report, should_pause)


class _Course:
    """The way of one trial: its plan, and the updates at which it is evaluated."""

    def __init__(self, trial: Trial, data: Dataset) -> None:
        self.settings, self.seed, self.data = trial.settings, trial.seed, data
        self.plan = make_plan(self.settings, data, self.seed)
        resolved = {"method": self.settings.evaluation, "temperatures": self.settings.temperatures}
        self.evaluator = Evaluator.of(self.settings.evaluate.model_copy(update=resolved), data, self.seed)
        last = total_updates(self.settings, data)
        every = min(updates_between_evaluations(self.settings, data), last)
        self.stations = [*range(0, last, every), last]
        self.at_once = 1  # updates of one call of the kernel

    def run(
        self, since: Progress | None, report: Callable, should_pause: Callable[[], bool]
    ) -> Outcome | Progress:
        began = time.perf_counter()
        now = since or Progress(initial_state(self.settings, self.data, self.plan, self.seed))
        earlier = now.seconds
        while not should_pause():
            if now.update == self.stations[len(now.curve)]:
                try:
                    finite = self._evaluate(now, should_pause)
                except Stopped:
                    break
                if not finite or len(now.curve) == len(self.stations):
                    now.seconds = earlier + time.perf_counter() - began
                    return self._outcome(now, None if finite else now.update)
            self._train(now)
            report(now.update, now.curve[-1][2] if self.evaluator.columns else np.nan)
        now.seconds = earlier + time.perf_counter() - began
        return now

    def _train(self, now: Progress) -> None:
        """One call of the kernel, towards the next evaluation."""
        stop = min(self.stations[len(now.curve)], now.update + self.at_once)
        began = time.perf_counter()
        train(now.state, self.data.train, self.plan, now.update, stop)
        seconds = time.perf_counter() - began
        if seconds < LONGEST_CALL / 2 and stop - now.update == self.at_once:
            self.at_once *= 2
        elif seconds > LONGEST_CALL and self.at_once > 1:
            self.at_once //= 2
        now.update = stop

    def _evaluate(self, now: Progress, should_pause: Callable[[], bool]) -> bool:
        """Add a row to the curve; whether all parameters are finite."""
        finite = all(np.isfinite(array).all() for array in now.state)
        values = [np.nan] * len(self.evaluator.columns)
        if finite:
            values = self.evaluator(now.state[:3], now.update, should_pause)
        now.curve.append([now.update, now.update / self.plan.batches, *values])
        if finite and self._best_so_far(now):
            now.best_machine = machine_arrays(now.state, self.settings.model.kind)
        return finite

    def _best_so_far(self, now: Progress) -> bool:
        """Whether the last row is the best of the validation part, the start left out."""
        if "valid_log_likelihood" not in self.evaluator.columns or len(now.curve) < 2:
            return False
        values = [row[2 + self.evaluator.columns.index("valid_log_likelihood")] for row in now.curve[1:]]
        return bool(values[-1] > max(values[:-1], default=-np.inf))

    def _outcome(self, now: Progress, diverged: int | None) -> Outcome:
        return Outcome(
            ("update", "epoch", *self.evaluator.columns),
            np.array(now.curve, dtype=np.float64),
            machine_arrays(now.state, self.settings.model.kind),
            diverged,
            now.seconds,
            {split: len(rows) for split, rows in self.data.parts.items()},
            now.best_machine,
        )
