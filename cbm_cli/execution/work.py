"""Work of a worker: packets of tasks, in this process, on a worker of this computer or
of Dask.
"""

import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.execution import HELD
from cbm_cli.grid.settings import Trial
from cbm_cli.kernels import KERNEL_VERSION, source_hash
from cbm_cli.machines.estimates import ShouldStop, Stopped
from cbm_cli.machines.threads import one_thread_for_good
from cbm_cli.results import Outcome, Progress
from cbm_cli.trial.loop import run_trial
from cbm_cli.trial.own_recorders import compile_recorder
from cbm_cli.version import __version__

PACKET = 0.25  # seconds after which no further task of a packet begins
STRETCH = (
    10.0  # seconds after which a long task comes back, to be shown, saved and continued
)

_flags: list[Any] = []  # of the run that this worker process belongs to
_kept: dict[str, Dataset] = {}  # data sets that this worker process was sent, by digest
_stopped: set[str] = set()  # runs that this worker of Dask was asked to stop


@dataclass(frozen=True)
class Failure:
    """A task that failed: a message for the user, and the traceback if there is one."""

    message: str
    details: str = ""


# What a task does: work(given, since, data, should_pause, should_stop); a Progress is
# continued later
Work = Callable[[Any, Any, Dataset, ShouldStop, ShouldStop], Any]
# The work; of each task what is given, since when (or an error), and the digest of its
# data; when to stop
Packet = tuple[Work, Sequence[tuple[Any, Any, str]], ShouldStop]


def train(
    given: tuple[Trial, dict[str, str]],
    since: Progress | None,
    data: Dataset,
    should_pause: ShouldStop,
    should_stop: ShouldStop,
) -> Outcome | Progress:
    """Train for a stretch; ``given`` are a trial and the texts of a user's own
    recorders, by name.
    """
    trial, sources = given
    recorders = {
        name: compile_recorder(name, source) for name, source in sources.items()
    }
    return run_trial(trial, data, since, should_pause, recorders, should_stop)


def run_packet(packet: Packet, *datasets: Dataset) -> tuple[float, list[Any]]:
    """Do tasks for PACKET seconds, or STRETCH of the first; return the seconds, and the
    results so far.

    Each result is what the work returns, a Progress to be continued, or a Failure. Data
    sets that were sent to this process before are not sent again.
    """
    (work, tasks, stopped), began, results = packet, time.monotonic(), list[Any]()
    _kept.update({data.digest: data for data in datasets})

    def should_pause() -> bool:
        return stopped() or time.monotonic() - began > (PACKET if results else STRETCH)

    for given, since, digest in tasks:
        try:
            if isinstance(since, CbmError):
                raise since
            results.append(work(given, since, _kept[digest], should_pause, stopped))
        except KeyboardInterrupt:
            raise
        except Stopped:
            break
        except BaseException as error:  # a user's recorder may call sys.exit
            told = (
                str(error)
                if isinstance(error, CbmError)
                else f"{type(error).__name__}: {error}"
            )
            results.append(Failure(told, "".join(traceback.format_exception(error))))
        if should_pause():
            break
    return time.monotonic() - began, results


def begin(flag: Any) -> None:
    """Begin the life of a worker process of this computer, which ends with that of the
    coordinator.
    """
    _flags.append(flag)
    one_thread_for_good()
    for number in HELD:
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)

    def end_with(coordinator: Any) -> None:
        coordinator.join()
        os._exit(1)

    threading.Thread(target=end_with, args=(parent_process(),), daemon=True).start()


def is_flagged() -> bool:
    """Whether the run of this worker process is to stop."""
    return bool(_flags[-1].value)


def on_cluster(
    packet: bytes, expected: str, *datasets: Dataset
) -> tuple[float, list[Any]]:
    """Run a packet on a worker of Dask; RuntimeError if its numbers could be others
    than here.
    """
    if (there := environment()) != expected:
        raise RuntimeError(f"this worker has {there}")
    # one packet follows the other: none of them needs to change the number of threads
    one_thread_for_good()
    return run_packet(pickle.loads(packet), *datasets)


def stop(run: str) -> None:
    """Stop the tasks of a run on this worker of Dask."""
    _stopped.add(run)


def is_stopped(run: str) -> bool:
    """Whether a run is to stop on this worker of Dask."""
    return run in _stopped


@cache
def environment() -> str:
    """Return what worker and coordinator must share: code, and how objects travel and
    numbers are kept.
    """
    sources, python = (
        source_hash(Path(__file__).parents[1]),
        ".".join(map(str, sys.version_info[:2])),
    )
    code = f"cbm {__version__}, kernel version {KERNEL_VERSION}, sources {sources}"
    return f"{code}, Python {python}, {sys.byteorder}-endian"
