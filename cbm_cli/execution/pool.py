"""The one loop of every run: tasks go in packets to this process, to processes of this
computer, or to Dask.

All three are executors. Results come back to be written.
"""

import logging
import math
import os
import pickle
import signal
import threading
import time
import uuid
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.execution import HELD, fork_server, work
from cbm_cli.execution.work import PACKET, Failure, Work, run_packet
from cbm_cli.results import Progress
from cbm_cli.text import count

PATIENCE = 4.0  # seconds that tasks have to return when a run is stopped
# seconds after Ctrl-C in which a task in this process, or a scheduler, has to answer
LAST_CALL = 6.5
MOST = 200  # tasks of a packet
LOOK_EVERY = 0.5  # seconds between two looks at which workers a cluster has
# An expression that any Python can evaluate: a scheduler lacks cbm, and a worker may
# have another one or none
_CALL = f"__import__({work.__name__!r}, fromlist=['']).{{}}"


# Where packets run


class Pool(Executor):
    """What the loop in `spread` needs of a place where packets run.

    Attributes
    ----------
    threads : int
        How many packets run at once.
    ahead : int
        Short packets that each thread gets.
    apart : bool
        Whether a lost worker takes nothing with it but its own packet.
    deaths : int
        A task fails once so many packets with it were lost.
    stopped : callable
        What tasks ask, where they run, whether to return what they have.
    """

    ahead, apart, deaths = 1, True, 1
    stopped: Callable[[], bool]

    def stop(self) -> None:
        """Let `stopped` be true from now on."""

    def explain(self, error: Exception) -> str:
        """Return why a packet was lost; CbmError if the whole run must end."""
        if isinstance(error, BrokenProcessPool):
            return "a worker process died (out of memory? -j gives fewer processes)"
        return f"{type(error).__name__}: {error}"


class Here(Pool):
    """This process: for debugging, and on computers with one core."""

    threads = 1

    def __init__(self, stopping: threading.Event) -> None:
        self.stopped = stopping.is_set

    def submit(self, function: Callable, /, *arguments: Any, **_: Any) -> Future:
        """Call a function at once."""
        (future := Future[Any]()).set_result(function(*arguments))
        return future


class Processes(Pool):
    """Worker processes of this computer: a pool for each, so that one that dies breaks
    no other.
    """

    deaths, stopped = 3, staticmethod(work.is_flagged)

    def __init__(self, workers: int) -> None:
        self.threads, self.flag = workers, fork_server().RawValue("b", 0)
        self.last: dict[
            ProcessPoolExecutor, Future
        ] = {}  # what each worker was last asked for
        self.known: dict[
            ProcessPoolExecutor, set[str]
        ] = {}  # digests of the data sets that each has

    def submit(self, function: Callable, /, *arguments: Any, **_: Any) -> Future:
        """Let an idle worker call a function of a packet and its data sets, a new one
        if there is none.
        """
        packet, *datasets = arguments
        idle = [pool for pool, last in self.last.items() if last.done()]
        for _try in range(len(idle) + self.deaths):
            pool = (
                idle.pop()
                if idle
                else ProcessPoolExecutor(1, fork_server(), work.begin, (self.flag,))
            )
            known = self.known.setdefault(pool, set())
            sent = [data for data in datasets if data.digest not in known]
            try:
                self.last[pool] = pool.submit(function, packet, *sent)
                known |= {data.digest for data in datasets}
                return self.last[pool]
            except (
                BrokenProcessPool,
                EOFError,
                ConnectionError,
            ):  # it died idle, or the fork server did
                self.last.pop(pool, None)
        raise CbmError(
            "worker processes die when they start (out of memory?); -j 0 does "
            "without "
            "them"
        )

    def stop(self) -> None:
        """Ask all workers to return."""
        self.flag.value = 1

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all workers, those that work (after an error, or without an answer in
        time) at once.
        """
        for pool, last in self.last.items():
            for process in [] if last.done() else [*pool._processes.values()]:
                process.kill()
            pool.shutdown(wait, cancel_futures=cancel_futures)


class Cluster(Pool):
    """All workers that a Dask cluster has at any time; lost ones are the business of
    Dask.
    """

    ahead, apart, deaths = 2, False, 2

    def __init__(self, address: str, say: Callable[[str], None]) -> None:
        from distributed import Client

        if os.environ.get("CBM_DEBUG", "0") in ("", "0"):
            silence_dask()
        self.address, self.say, self.run = address, say, uuid.uuid4().hex
        self.stopped = partial(work.is_stopped, self.run)
        self.sent: dict[str, Any] = {}  # data sets that are there, by digest
        self.workers: dict[str, int] = {}  # threads by address
        self.looked, self.served = (
            0.0,
            time.monotonic(),
        )  # when workers were looked for, and last seen
        try:
            self.client = Client(address, set_as_default=False)
        except Exception as error:
            raise self._lost(error) from None
        self.executor = self.client.get_executor(pure=False)

    def _lost(self, error: Exception) -> CbmError:
        why = str(error.__cause__ or error).rpartition(">: ")[2] or type(error).__name__
        told = (
            f"no Dask scheduler answers ({why}); check that `dask scheduler` runs "
            "there, and the address"
        )
        remedy = "such as tcp://HOST:PORT; finished trials are kept"
        return CbmError(f"--scheduler {self.address}: {told}, {remedy}")

    @property
    def threads(self) -> int:
        """Threads of all workers, about now; one without workers, so that the scheduler
        knows of work.
        """
        if time.monotonic() - self.looked > LOOK_EVERY:
            workers = self.workers
            try:
                workers = self.client.nthreads(callback_timeout=5)
            except (
                Exception
            ) as error:  # it may come back: Dask tries as long as it is configured to
                if self.client.status == "closed":
                    raise self._lost(error) from None
            if new := [*workers.keys() - self.workers.keys()]:
                self._check(new)
            for worker in self.workers.keys() - workers.keys():
                self.say(f"worker {worker} is gone; its trials run elsewhere")
            self.workers, self.looked = dict(workers), time.monotonic()
        if self.workers:
            self.served = time.monotonic()
        elif time.monotonic() - self.served > 2:
            self.say(
                f"{self.address} has no worker; waiting for one to join (Ctrl-C "
                "ends "
                "the run)"
            )
            self.served = float("inf")
        return max(sum(self.workers.values()), 1)

    def submit(self, function: Callable, /, *arguments: Any, **_: Any) -> Future:
        """Let any worker run a packet, the one function that is called here."""
        packet, *datasets = arguments
        for data in datasets:  # futures, which Dask makes again where they are lost
            known = self.sent.get(data.digest)
            if known is None or known.status not in ("pending", "finished"):
                pickled = pickle.dumps(data)
                self.sent[data.digest] = self.client.submit(
                    pickle.loads, pickled, pure=False
                )
        given = (
            pickle.dumps(packet),
            work.environment(),
            *(self.sent[data.digest] for data in datasets),
        )
        try:
            return self.executor.submit(
                eval, _CALL.format("on_cluster(*given)"), {"given": given}
            )
        except Exception as error:  # the connection is closed
            raise self._lost(error) from None

    def stop(self) -> None:
        """Ask all workers to return, without waiting for those that do not answer."""

        def ask() -> None:
            with suppress(Exception):  # a worker or the scheduler is gone already
                self.client.run(
                    eval, _CALL.format(f"stop({self.run!r})"), on_error="ignore"
                )

        threading.Thread(target=ask, daemon=True).start()

    def explain(self, error: Exception) -> str:
        """Return why a packet was lost; CbmError if a worker lacks this very cbm."""
        from distributed.scheduler import KilledWorker

        if isinstance(error, KilledWorker):
            return f"{error.allowed_failures + 1} workers died (out of memory?)"
        self._check()
        return super().explain(error)

    def _check(self, workers: list[str] | None = None) -> None:
        """Raise CbmError for workers, by default all, whose trials could have other
        bytes.
        """
        ours, there = work.environment(), dict[str, Any]()
        with suppress(Exception):  # the scheduler is away
            there = self.client.run(
                eval, _CALL.format("environment()"), workers=workers, on_error="return"
            )
        # an OSError is of a worker that has left since
        if others := [
            it
            for it, has in there.items()
            if has != ours and not isinstance(has, OSError)
        ]:
            told = (
                f"--scheduler: worker {one} has {there[one]}; this run needs {ours}"
                for one in others
            )
            raise CbmError("\n".join(told))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster, and what runs there."""
        with suppress(Exception):
            self.executor.shutdown(wait=False)
            self.client.close(timeout=1)


def silence_dask() -> None:
    """Keep Dask's own messages from the terminal; what matters to the user is said in
    other words.
    """
    names = [
        name
        for name in logging.root.manager.loggerDict
        if name.startswith("distributed")
    ]
    for name in (*names, "distributed", "tornado", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", module="distributed")


# The loop


@dataclass(eq=False)
class Task:
    """Something to do: ``work(given, since(), data, ...)``."""

    about: Any  # whose task it is
    given: Any
    data: Dataset
    since: Callable[[], Any] = lambda: (
        None
    )  # called when a worker is free; CbmError if it cannot begin
    progress: Progress | None = None  # of a task that came back
    deaths: int = 0  # of its workers, since it last came back
    last: bool = False  # the run ends with this progress

    def begin(self) -> Any:
        """Return where it goes on, or why it cannot."""
        try:
            return self.since() if self.progress is None else self.progress
        except CbmError as error:
            return error


def spread(
    work: Work,
    waves: Iterable[Iterable[Task]],
    say: Callable[[str], None],
    workers: int,
    scheduler: str | None = None,
    stopping: threading.Event | None = None,
) -> Iterator[tuple[Task, Any]]:
    """Do all tasks, a wave after the other; yield what comes of each, and of long ones
    every Progress.

    Tasks are done by ``workers`` processes (0: by this one), or by the cluster of a
    Dask scheduler. Short ones go in packets. Those of a worker that died go again, each
    alone: then it is known which one is to blame if that worker dies, too. After
    Ctrl-C, or once ``stopping`` is set, running tasks yield their progress, the
    ``last`` before KeyboardInterrupt.
    """
    stopping = stopping or threading.Event()
    with _stopped_by_signals(stopping) as last_call:
        pool = (
            Cluster(scheduler, say)
            if scheduler
            else Processes(workers)
            if workers
            else Here(stopping)
        )
        if not isinstance(pool, Here):
            last_call.cancel()
        with pool:
            for tasks in waves:
                queue, deadline = _Queue(pool, work, deque(tasks), say), math.inf
                while (
                    queue.waiting or queue.suspects or queue.open
                ) and time.monotonic() < deadline:
                    if not stopping.is_set():
                        queue.send()
                    elif not queue.open:
                        break
                    elif deadline == math.inf:
                        pool.stop()
                        deadline = time.monotonic() + PATIENCE
                    for future in wait(queue.open, 0.1, FIRST_COMPLETED).done:
                        yield from queue.take(future)
                        deadline = (
                            math.inf
                            if deadline == math.inf
                            else time.monotonic() + PATIENCE
                        )
                for task in (
                    *queue.waiting,
                    *queue.suspects,
                    *chain.from_iterable(queue.open.values()),
                ):
                    if task.progress is not None:
                        task.last = True
                        yield task, task.progress
    if stopping.is_set():
        raise KeyboardInterrupt


@contextmanager
def _stopped_by_signals(stopping: threading.Event) -> Iterator[threading.Timer]:
    """The first Ctrl-C or SIGTERM sets ``stopping``, the second raises
    KeyboardInterrupt.

    So does the timer that is yielded, LAST_CALL later, unless it is cancelled: where
    nothing looks at ``stopping``, as in a recorder that hangs in this process.
    """
    last_call = threading.Timer(LAST_CALL, os.kill, (os.getpid(), signal.SIGINT))
    last_call.daemon = True
    if threading.current_thread() is not threading.main_thread():
        yield last_call
        return

    def stop(number: int, frame: object) -> None:
        if stopping.is_set():
            raise KeyboardInterrupt
        stopping.set()
        last_call.start()

    before = {number: signal.signal(number, stop) for number in HELD}
    try:
        yield last_call
    finally:
        last_call.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


class _Queue:
    """Tasks that wait, and packets that are under way."""

    def __init__(
        self,
        pool: Cluster | Processes | Here,
        work: Work,
        waiting: deque[Task],
        say: Callable[[str], None],
    ) -> None:
        self.pool, self.work, self.waiting, self.say = pool, work, waiting, say
        self.suspects = deque[Task]()  # in whose packet a worker died
        self.open: dict[Future, list[Task]] = {}
        self.seconds = PACKET  # of a task, lately

    def send(self) -> None:
        """Keep every thread of the pool busy, and towards the end all of them equally
        long.
        """
        threads = self.pool.threads
        most = threads * (self.pool.ahead if self.seconds < 1 else 1)
        while len(self.open) < most and (packet := self._next(threads)):
            data = {task.data.digest: task.data for task in packet}
            tasks = [(task.given, task.begin(), task.data.digest) for task in packet]
            message = self.work, tasks, self.pool.stopped
            self.open[self.pool.submit(run_packet, message, *data.values())] = packet

    def _next(self, threads: int) -> list[Task]:
        if self.suspects:
            return [self.suspects.popleft()] if self.pool.apart or not self.open else []
        share = math.ceil(len(self.waiting) / (2 * threads))
        return [
            self.waiting.popleft()
            for _ in range(min(share, MOST, max(1, int(PACKET / self.seconds))))
        ]

    def take(self, future: Future) -> Iterator[tuple[Task, Any]]:
        """Take the results of a packet, or say why there are none."""
        packet = self.open.pop(future)
        try:
            seconds, results = future.result()
        except CancelledError:  # a scheduler that was away for a while
            seconds, results = 0.0, []
        except (
            Exception
        ) as error:  # of the pool: a worker died, or cannot even read its tasks
            yield from self._lose(packet, self.pool.explain(error))
            return
        if results:
            self.seconds = max(
                PACKET / MOST, 0.5 * (self.seconds + seconds / len(results))
            )
        again = packet[len(results) :]
        for task, result in zip(packet, results, strict=False):
            if isinstance(result, Progress):
                task.progress, task.deaths = result, 0
                again.insert(0, task)
            yield task, result
        self.waiting.extendleft(reversed(again))

    def _lose(self, packet: list[Task], why: str) -> Iterator[tuple[Task, Any]]:
        """Do the tasks of a packet again, each alone, or let those fail that have lost
        too many workers.
        """
        why = why.partition("\n")[0][:200]
        for task in packet:
            task.deaths += 1
            if task.deaths < self.pool.deaths:
                self.suspects.append(task)
            else:
                yield task, Failure(f"{why}, {task.deaths} times")
        if any(task.deaths < self.pool.deaths for task in packet):
            self.say(f"{why}; its {count(len(packet), 'trial')} will run again")
