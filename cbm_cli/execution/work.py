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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing import parent_process
from pathlib import Path
from sysconfig import get_python_version
from typing import Any

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.execution import shared_rows
from cbm_cli.execution.fork_server import HELD
from cbm_cli.execution.shared_rows import SharedDataset
from cbm_cli.grid.settings import Trial
from cbm_cli.kernels import KERNEL_VERSION, source_hash
from cbm_cli.machines.estimates import ShouldStop, Stopped
from cbm_cli.machines.threads import one_thread, one_thread_for_good
from cbm_cli.results import Outcome, Progress
from cbm_cli.trial.loop import run_trial
from cbm_cli.trial.own_recorders import compile_recorder
from cbm_cli.version import __version__

PACKET = 0.25  # seconds after which no further task of a packet begins
# Seconds after which a long task comes back, to be shown, saved and continued
STRETCH = 10.0

_flags: list[Any] = []  # of the run that this worker process belongs to
_datasets: dict[str, Dataset] = {}  # that this worker process was sent, by digest
_stopped: set[str] = set()  # runs that this worker of Dask was asked to stop


@dataclass(frozen=True)
class Failure:
    """A task that failed: a message for the user, and the traceback if there is one."""

    message: str
    details: str = ""


Say = Callable[[str], None]  # prints a message for the user
# What a task does: work(about, since, data, should_pause, should_stop); a Progress is
# continued later
Work = Callable[[Any, Any, Dataset, ShouldStop, ShouldStop], Any]


@dataclass(frozen=True)
class Packet:
    """Tasks that travel together.

    Attributes
    ----------
    work : callable
        What all of them do.
    tasks : sequence
        Of each task what it is about, since when (or an error), and the digest of its
        data.
    should_stop : callable
        When to stop.
    """

    work: Work
    tasks: Sequence[tuple[Any, Any, str]]
    should_stop: ShouldStop


def train(
    about: tuple[Trial, dict[str, str]],
    since: Progress | None,
    data: Dataset,
    should_pause: ShouldStop,
    should_stop: ShouldStop,
) -> Outcome | Progress:
    """Train for a stretch; ``about`` are a trial and the texts of a user's own
    recorders, by name.
    """
    trial, sources = about
    with same_folder():
        recorders = {
            name: compile_recorder(name, source) for name, source in sources.items()
        }
        return run_trial(
            trial,
            data,
            since=since,
            should_pause=should_pause,
            recorders=recorders,
            should_stop=should_stop,
        )


@contextmanager
def same_folder() -> Iterator[None]:
    """Come back to the working folder at the end, if code of the user has left it."""
    try:
        folder = os.open(".", os.O_RDONLY)
    except OSError:  # it was deleted
        yield
        return
    try:
        yield
    finally:
        os.fchdir(folder)
        os.close(folder)


def run_packet(
    packet: Packet, *datasets: Dataset | SharedDataset
) -> tuple[float, list[Any]]:
    """Do tasks for PACKET seconds, or STRETCH of the first; return the seconds, and the
    results so far.

    Each result is what the work returns, a Progress to be continued, or a Failure.
    """
    began = time.monotonic()
    results: list[Any] = []
    for data in datasets:
        if isinstance(data, Dataset):
            _datasets[data.digest] = data
        elif data.digest not in _datasets:
            _datasets[data.digest] = data.opened()

    def should_pause() -> bool:
        limit = PACKET if results else STRETCH
        return packet.should_stop() or time.monotonic() - began > limit

    for about, since, digest in packet.tasks:
        try:
            if isinstance(since, CbmError):
                raise since
            results.append(
                packet.work(
                    about, since, _datasets[digest], should_pause, packet.should_stop
                )
            )
        except KeyboardInterrupt:
            raise
        except Stopped:
            break
        except BaseException as error:  # a user's recorder may call sys.exit
            message = str(error)
            if not isinstance(error, CbmError):
                message = f"{type(error).__name__}: {error}"
            details = "".join(traceback.format_exception(error))
            results.append(Failure(message, details))
        if should_pause():
            break
    return time.monotonic() - began, results


# On this computer


def begin(flag: Any) -> None:
    """Begin the life of a worker process of this computer, which ends with that of the
    coordinator.
    """
    _flags.append(flag)
    one_thread_for_good()
    for number in HELD:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)
    coordinator: Any = parent_process()

    def end_with_coordinator() -> None:
        coordinator.join()
        shared_rows.remove_opened()
        os._exit(1)

    threading.Thread(target=end_with_coordinator, daemon=True).start()


def is_flagged() -> bool:
    """Whether the run of this worker process is to stop."""
    return bool(_flags[-1].value)


# On a worker of Dask


def on_cluster(
    packet: bytes, expected: str, *datasets: Dataset
) -> tuple[float, list[Any]]:
    """Run a packet on a worker of Dask; RuntimeError if its numbers could be others
    than here.
    """
    here = environment()
    if here != expected:
        raise RuntimeError(f"this worker has {here}")
    with one_thread():  # the worker may have other work, too
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
    sources = source_hash(Path(__file__).parents[1])
    return (
        f"cbm {__version__}, kernel version {KERNEL_VERSION}, sources {sources}, "
        f"Python {get_python_version()}, {sys.byteorder}-endian"
    )
