"""What runs beside the data of a trial: its stretches, in this process, a worker process or a Dask worker."""

import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import cbm_cli
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.grid.settings import Trial
from cbm_cli.kernels import KERNEL_VERSION, source_hash
from cbm_cli.results import Outcome, Progress
from cbm_cli.trial.loop import run_trial
from cbm_cli.trial.own_recorders import compiled

STRETCH = 30.0  # seconds after which a trial comes back to be saved
REPORT_EVERY = 1.0  # seconds between two reports of a trial
_stopped: set[str] = set()  # runs that a Dask worker was asked to stop


@dataclass(frozen=True)
class Failure:
    """A trial that failed: a message for the user, and the traceback if there is one."""

    message: str
    details: str = ""


Result = Outcome | Progress | Failure
Report = Callable[[int, float], None]  # called with the update and the latest value of a trial


def failure_of(error: Exception) -> Failure:
    """Return what to say of an exception."""
    message = str(error) if isinstance(error, CbmError) else f"{type(error).__name__}: {error}"
    return Failure(message, "".join(traceback.format_exception(error)))


def stretch(
    trial: Trial,
    data: Dataset,
    since: Progress | None,
    sources: dict[str, str],
    report: Report,
    should_stop: Callable[[], bool],
) -> Result:
    """Run a trial to its end, for STRETCH seconds, or until it should stop; ``sources`` as in Job."""
    began = time.monotonic()

    def should_pause() -> bool:
        return should_stop() or time.monotonic() - began > STRETCH

    try:
        return run_trial(trial, data, since, report, should_pause, compiled(sources), should_stop)
    except Exception as error:
        return failure_of(error)


def now_and_then(report: Report) -> Report:
    """Return a report that passes at most one of its calls per REPORT_EVERY seconds on."""
    reported = time.monotonic()

    def reporting(update: int, value: float) -> None:
        nonlocal reported
        if time.monotonic() - reported >= REPORT_EVERY:
            reported = time.monotonic()
            report(update, value)

    return reporting


# A worker process of this computer


def serve(connection: Connection) -> None:
    """Run the trials that arrive on a connection, and send reports (tuples) and results back.

    A message that arrives during a trial, or the end of the connection, stops it; None ends the process.
    """
    for number in (signal.SIGINT, signal.SIGTERM):  # the coordinator decides when to stop
        signal.signal(number, signal.SIG_IGN)
    datasets: dict[str, Dataset] = {}
    try:
        while (task := connection.recv()) is not None:
            trial, digest, data, result, sources = task
            data = datasets.setdefault(digest, data)
            report = now_and_then(lambda *news: connection.send(news))
            while True:
                result = stretch(trial, data, result, sources, report, connection.poll)
                connection.send(result)
                if not isinstance(result, Progress) or connection.poll():
                    break
    except (EOFError, OSError):  # the coordinator is gone
        pass


# A worker of a Dask cluster


def stop(token: str) -> None:
    """Stop the trials of a run on this worker as soon as possible."""
    _stopped.add(token)


@cache
def version() -> str:
    """Return what a worker and the coordinator must share: versions, and a hash of all sources."""
    sources = source_hash(Path(cbm_cli.__file__).parent)
    return f"cbm {cbm_cli.__version__}, kernel version {KERNEL_VERSION}, sources {sources}"


def work(expected: str, *facts: Any) -> Result:
    """Run a stretch of a trial; ``facts`` are the arguments of `advance`, which may differ between versions.

    A worker of another version than the coordinator's is refused: its numbers would differ.
    """
    if version() != expected:
        from distributed import get_worker

        raise CbmError(
            f"worker {get_worker().address} has {version()}; this run needs {expected}: install the same cbm "
            "there, or stop that worker, and run again"
        )
    return advance(*facts)


def advance(
    trial: Trial, run_id: str, data: Dataset, since: Progress | None, token: str, sources: dict[str, str]
) -> Result:
    """Run a stretch of a trial and report to the coordinator under ``token``."""
    from distributed import get_worker

    log = get_worker().log_event
    report = now_and_then(lambda *news: log(token, (run_id, trial.number, *news)))
    return stretch(trial, data, since, sources, report, lambda: token in _stopped)
