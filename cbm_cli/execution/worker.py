"""What runs on a worker of a Dask cluster: one stretch of a trial, with reports and a flag that stops it."""

import time
from functools import cache
from pathlib import Path
from typing import Any

from distributed import get_worker

import cbm_cli
from cbm_cli.datasets import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.grid.settings import Trial
from cbm_cli.kernels import KERNEL_VERSION, source_hash
from cbm_cli.results import Outcome, Progress
from cbm_cli.trial.loop import run_trial
from cbm_cli.trial.own_recorders import compiled

REPORT_EVERY = 1.0  # seconds
STRETCH = 30.0  # seconds after which a trial comes back to be saved
_stopped: set[str] = set()


def stop(token: str) -> None:
    """Stop the trials of a run on this worker, at their next look up."""
    _stopped.add(token)


@cache
def version() -> str:
    """Return what a worker and the coordinator must share: versions, and a hash of all sources."""
    sources = source_hash(Path(cbm_cli.__file__).parent)
    return f"cbm {cbm_cli.__version__}, kernel version {KERNEL_VERSION}, sources {sources}"


def work(expected: str, *facts: Any) -> Outcome | Progress:
    """Run a stretch of a trial; ``facts`` are the arguments of `advance`, which may differ between versions.

    Raises
    ------
    CbmError
        When this worker is not of the ``expected`` version, the coordinator's: its numbers would differ.
    """
    if version() != expected:
        raise CbmError(
            f"worker {get_worker().address} has {version()}; this run needs {expected}: install the same cbm "
            "there, or stop that worker, and run again"
        )
    return advance(*facts)


def advance(
    trial: Trial, run_id: str, data: Dataset, since: Progress | None, token: str, sources: dict[str, str]
) -> Outcome | Progress:
    """Run a stretch of a trial; tell the coordinator about it, at most once a second, under ``token``."""
    worker, began = get_worker(), time.monotonic()
    reported = began

    def report(update: int, log_likelihood: float) -> None:
        nonlocal reported
        if time.monotonic() - reported >= REPORT_EVERY:
            reported = time.monotonic()
            worker.log_event(token, (run_id, trial.number, update, log_likelihood))

    def should_stop() -> bool:
        return token in _stopped

    def should_pause() -> bool:
        return should_stop() or time.monotonic() - began > STRETCH

    return run_trial(trial, data, since, report, should_pause, compiled(sources), should_stop)
