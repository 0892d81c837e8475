"""The one loop of every run: tasks go to a pool in packets, and results come back to be written."""

import math
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.execution import HELD
from cbm_cli.execution.pool import Cluster, Here, Processes
from cbm_cli.execution.work import PACKET, Failure, Work, run_packet
from cbm_cli.results import Progress
from cbm_cli.text import count

PATIENCE = 4.0  # seconds that tasks have to return when a run is stopped
LAST_CALL = 6.5  # seconds after Ctrl-C in which a task in this process, or a scheduler, has to answer
MOST = 200  # tasks of a packet


@dataclass(eq=False)
class Task:
    """Something to do: ``work(given, since(), data, ...)``."""

    about: Any  # whose task it is
    given: Any
    data: Dataset
    since: Callable[[], Any] = lambda: None  # called when a worker is free; CbmError if it cannot begin
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
    """Do all tasks, a wave after the other; yield what comes of each, and of long ones every Progress.

    Tasks are done by ``workers`` processes (0: by this one), or by the cluster of a Dask scheduler. Short
    ones go in packets. Those of a worker that died go again, each alone: then it is known which one is to
    blame if that worker dies, too. After Ctrl-C, or once ``stopping`` is set, running tasks yield their
    progress, the ``last`` before KeyboardInterrupt.
    """
    stopping = stopping or threading.Event()
    with _stopped_by_signals(stopping) as last_call:
        pool = Cluster(scheduler, say) if scheduler else Processes(workers) if workers else Here(stopping)
        if not isinstance(pool, Here):
            last_call.cancel()
        with pool:
            for tasks in waves:
                queue, deadline = _Queue(pool, work, deque(tasks), say), math.inf
                while (queue.waiting or queue.suspects or queue.open) and time.monotonic() < deadline:
                    if not stopping.is_set():
                        queue.send()
                    elif not queue.open:
                        break
                    elif deadline == math.inf:
                        pool.stop()
                        deadline = time.monotonic() + PATIENCE
                    for future in wait(queue.open, 0.1, FIRST_COMPLETED).done:
                        yield from queue.take(future)
                        deadline = math.inf if deadline == math.inf else time.monotonic() + PATIENCE
                for task in (*queue.waiting, *queue.suspects, *chain.from_iterable(queue.open.values())):
                    if task.progress is not None:
                        task.last = True
                        yield task, task.progress
    if stopping.is_set():
        raise KeyboardInterrupt


@contextmanager
def _stopped_by_signals(stopping: threading.Event) -> Iterator[threading.Timer]:
    """The first Ctrl-C or SIGTERM sets ``stopping``, the second raises KeyboardInterrupt.

    So does the timer that is yielded, LAST_CALL later, unless it is cancelled: where nothing looks at
    ``stopping``, as in a recorder that hangs in this process.
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
        self, pool: Cluster | Processes | Here, work: Work, waiting: deque[Task], say: Callable[[str], None]
    ) -> None:
        self.pool, self.work, self.waiting, self.say = pool, work, waiting, say
        self.suspects = deque[Task]()  # in whose packet a worker died
        self.open: dict[Future, list[Task]] = {}
        self.seconds = PACKET  # of a task, lately

    def send(self) -> None:
        """Keep every thread of the pool busy, and towards the end all of them equally long."""
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
        return [self.waiting.popleft() for _ in range(min(share, MOST, max(1, int(PACKET / self.seconds))))]

    def take(self, future: Future) -> Iterator[tuple[Task, Any]]:
        """Take the results of a packet, or say why there are none."""
        packet = self.open.pop(future)
        try:
            seconds, results = future.result()
        except CancelledError:  # a scheduler that was away for a while
            seconds, results = 0.0, []
        except Exception as error:  # of the pool: a worker died, or cannot even read its tasks
            yield from self._lose(packet, self.pool.explain(error))
            return
        if results:
            self.seconds = max(PACKET / MOST, 0.5 * (self.seconds + seconds / len(results)))
        again = packet[len(results) :]
        for task, result in zip(packet, results, strict=False):
            if isinstance(result, Progress):
                task.progress, task.deaths = result, 0
                again.insert(0, task)
            yield task, result
        self.waiting.extendleft(reversed(again))

    def _lose(self, packet: list[Task], why: str) -> Iterator[tuple[Task, Any]]:
        """Do the tasks of a packet again, each alone, or let those fail that have lost too many workers."""
        why = why.partition("\n")[0][:200]
        for task in packet:
            task.deaths += 1
            if task.deaths < self.pool.deaths:
                self.suspects.append(task)
            else:
                yield task, Failure(f"{why}, {task.deaths} times")
        if any(task.deaths < self.pool.deaths for task in packet):
            self.say(f"{why}; its {count(len(packet), 'trial')} will run again")
