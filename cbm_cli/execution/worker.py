"""What runs beside the data of a trial: its stretches, in this process or on a worker."""

import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.grid.settings import Trial
from cbm_cli.kernels import KERNEL_VERSION, source_hash
from cbm_cli.machines.estimates import Stopped
from cbm_cli.machines.threads import use_cores, using_cores
from cbm_cli.results import Outcome, Progress
from cbm_cli.trial.loop import run_trial
from cbm_cli.trial.own_recorders import compiled
from cbm_cli.version import __version__

STRETCH = 30.0  # seconds after which a trial comes back to be saved
GROUP = 0.5  # seconds after which a worker begins no further trial of a packet
REPORT_EVERY = 1.0  # seconds between two reports of a trial
HELD = (signal.SIGINT, signal.SIGTERM)  # of a terminal or system, to all processes, while workers start
ALIVE_EVERY = 20.0  # seconds between two signs of life of a worker that has nothing to report


@dataclass(frozen=True)
class Failure:
    """A trial that failed: a message for the user, and the traceback if there is one."""

    message: str
    details: str = ""


class Errand(Protocol):
    """Other work on a finished trial than its training, which a worker does in the same way."""

    number: int  # of the trial

    def run(self, data: Dataset, machine: Any, should_stop: Callable[[], bool]) -> Any:
        """Return what comes of it; raises Stopped."""


Result = Outcome | Progress | Failure
Report = Callable[[int, float], None]  # called with the updates made and the latest value of a trial
# A trial, its run-id, the digest of its data, its progress so far, and texts of a user's own recorders
Task = tuple[Trial | Errand, str, str, Progress | None, dict[str, str]]


def stretch(
    trial: Trial | Errand,
    data: Dataset,
    since: Progress | None,
    sources: dict[str, str],
    report: Report,
    should_stop: Callable[[], bool],
    cores: int = 1,
) -> Result:
    """Run a trial to its end, for STRETCH seconds, or until it should stop; ``sources`` as in Job."""
    began = time.monotonic()

    def should_pause() -> bool:
        return should_stop() or time.monotonic() - began > STRETCH

    try:
        if not isinstance(trial, Trial):
            with using_cores(cores):
                return trial.run(data, since, should_stop)
        return run_trial(trial, data, since, report, should_pause, compiled(sources), should_stop)
    except KeyboardInterrupt:
        raise
    except Stopped:
        return Progress(None)
    except BaseException as error:  # a user's recorder may call sys.exit
        message = str(error) if isinstance(error, CbmError) else f"{type(error).__name__}: {error}"
        return Failure(message, "".join(traceback.format_exception(error)))


def run_packet(
    tasks: Sequence[Task],
    datasets: Mapping[str, Dataset],
    tell: Callable[..., None],
    stopped: Callable[[], bool],
    cores: int = 1,
) -> Iterator[tuple[tuple[str, int], Result]]:
    """Run trials for about GROUP seconds, at least a stretch of the first; yield their keys and results.

    Each uses up to ``cores`` threads.
    ``tell`` gets the reports: run-id, trial number, updates made and value, or nothing as a sign of life.
    Trials that are not yielded were not begun.
    """
    began, alive = time.monotonic(), now_and_then(tell, ALIVE_EVERY)

    def should_stop() -> bool:
        alive()
        return stopped()

    for trial, run_id, digest, since, sources in tasks:
        key = run_id, trial.number
        report = now_and_then(lambda *news, key=key: tell(*key, *news), REPORT_EVERY)
        yield key, stretch(trial, datasets[digest], since, sources, report, should_stop, cores)
        if stopped() or time.monotonic() - began > GROUP:
            return


def now_and_then(call: Callable[..., None], every: float) -> Callable[..., None]:
    """Return a function that passes at most one of its calls in ``every`` seconds on."""
    called = time.monotonic()

    def calling(*arguments: Any) -> None:
        nonlocal called
        if time.monotonic() - called >= every:
            called = time.monotonic()
            call(*arguments)

    return calling


def serve(connection: Connection) -> None:
    """Run the packets that arrive on a connection; the life of a worker process of this computer.

    It sends reports (``tell`` of `run_packet`) as tuples, each key with its result, and after each packet
    whether it leaves. None or the end of the connection, also during a packet, ends it, and so does SIGTERM.
    A number tells how many cores the running trial may use from now on.
    """
    leaving: list[int] = []
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the coordinator decides when to stop
    signal.signal(signal.SIGTERM, lambda number, frame: leaving.append(number))
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)
    datasets: dict[str, Dataset] = {}

    def stopped() -> bool:
        while not leaving and connection.poll():
            if (cores := connection.recv()) is None:
                leaving.append(0)
            else:
                use_cores(cores)
        return bool(leaving)

    try:
        while not leaving and (message := connection.recv()) is not None:
            if isinstance(message, int):  # for a packet that has ended
                continue
            tasks, new, cores = message
            datasets |= new
            for answer in run_packet(tasks, datasets, lambda *news: connection.send(news), stopped, cores):
                connection.send([answer])
            connection.send(bool(leaving))
    except (EOFError, OSError):  # the coordinator is gone
        pass


@cache
def environment() -> str:
    """Return what worker and coordinator must share: code, and how objects travel and numbers are kept."""
    sources, python = source_hash(Path(__file__).parents[1]), ".".join(map(str, sys.version_info[:2]))
    code = f"cbm {__version__}, kernel version {KERNEL_VERSION}, sources {sources}"
    return f"{code}, Python {python}, {sys.byteorder}-endian"
