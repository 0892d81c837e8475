"""The one training loop: a trial is a pure function of its settings, its seed and its data."""

import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
from threadpoolctl import threadpool_limits

from cbm_cli.datasets import Dataset
from cbm_cli.grid.settings import Trial
from cbm_cli.kernels.state import Plan, State
from cbm_cli.kernels.training import train
from cbm_cli.results import Outcome
from cbm_cli.trial.evaluation import exact_log_likelihoods
from cbm_cli.trial.start import (
    initial_state,
    machine_arrays,
    make_plan,
    total_updates,
    updates_between_evaluations,
)

LONGEST_CALL = 0.5  # seconds that a kernel may run before the loop looks up again


class Stopped(Exception):
    """The trial was asked to stop before its end."""


def run_trial(
    trial: Trial,
    data: Dataset,
    report: Callable[[int, float], None] = lambda update, log_likelihood: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Train and evaluate one machine, from its seed to its last update.

    Parameters
    ----------
    trial : Trial
    data : Dataset
    report : callable
        Told the update and the latest log-likelihood of the training rows (nats per sample) after
        every call of the kernel.
    should_stop : callable
        Asked between two calls of the kernel, which last at most about half a second.

    Raises
    ------
    Stopped
        When ``should_stop`` says so.
    """
    with threadpool_limits(1):
        return _run(trial, data, report, should_stop)


def _run(trial: Trial, data: Dataset, report: Callable, should_stop: Callable) -> Outcome:
    started = time.perf_counter()
    settings = trial.settings
    plan = make_plan(settings, data, trial.seed)
    state = initial_state(settings, data, plan, trial.seed)
    parts = data.parts
    exact = settings.evaluate.method == "exact"
    columns = ("update", "epoch", *(f"{split}_log_likelihood" for split in parts if exact))
    last = total_updates(settings, data)
    every = min(updates_between_evaluations(settings, data), last)
    evaluations = [*range(0, last, every), last]
    curve, diverged = [], None
    for update in _advance(state, data, plan, evaluations):
        if should_stop():
            raise Stopped
        if update == evaluations[len(curve)]:
            finite = all(np.isfinite(array).all() for array in state)
            values = [np.nan] * (len(columns) - 2)
            if exact and finite:
                _, values = exact_log_likelihoods(state.W, state.b, state.c, parts, plan.unit)
            curve.append([update, update / plan.batches, *values])
            if not finite:
                diverged = update
                break
        report(update, curve[-1][2] if exact else np.nan)
    return Outcome(
        columns,
        np.array(curve, dtype=np.float64),
        machine_arrays(state, settings.model.kind),
        diverged,
        time.perf_counter() - started,
        {split: len(rows) for split, rows in parts.items()},
    )


def _advance(state: State, data: Dataset, plan: Plan, stations: list[int]) -> Iterator[int]:
    """Train from station to station in short calls of the kernel; yield the update after each."""
    yield stations[0]
    at_once = 1
    for here, there in pairwise(stations):
        while here < there:
            stop = min(there, here + at_once)
            began = time.perf_counter()
            train(state, data.train, plan, here, stop)
            seconds = time.perf_counter() - began
            if seconds < LONGEST_CALL / 2 and stop - here == at_once:
                at_once *= 2
            elif seconds > LONGEST_CALL and at_once > 1:
                at_once //= 2
            here = stop
            yield here
