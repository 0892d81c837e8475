"""The one loop of every run: tasks go in packets to this process, to processes of this
computer, or to Dask, and their results come back.
"""

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
from cbm_cli.execution.cluster import Cluster
from cbm_cli.execution.fork_server import HELD
from cbm_cli.execution.pools import Here, Pool, Processes
from cbm_cli.execution.work import PACKET, Failure, Packet, Say, Work, run_packet
from cbm_cli.results import Progress
from cbm_cli.text import count

PATIENCE = 4.0  # seconds that tasks have to return when a run is stopped
# Seconds after Ctrl-C in which a task in this process, or a scheduler, has to answer
LAST_CALL = 6.5
MOST = 200  # tasks of a packet


@dataclass(eq=False)
class Task:
    """Something to do: ``work(content, since(), data, ...)``."""

    about: Any  # whose task it is
    content: Any  # what its work is told
    data: Dataset
    # Called when a worker is free; CbmError if it cannot begin
    since: Callable[[], Any] = lambda: None
    progress: Progress | None = None  # of a task that came back
    deaths: int = 0  # of its workers, since it last came back
    last: bool = False  # the run ends with this progress

    def begin(self) -> Any:
        """Return where it goes on, or why it cannot."""
        if self.progress is not None:
            return self.progress
        try:
            return self.since()
        except CbmError as error:
            return error


def spread(
    work: Work,
    waves: Iterable[Iterable[Task]],
    say: Say,
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
        pool: Pool
        if scheduler:
            pool = Cluster(scheduler, say)
        elif workers:
            pool = Processes(workers)
        else:
            pool = Here(stopping)
        if not isinstance(pool, Here):
            last_call.cancel()
        with pool:
            for tasks in waves:
                queue = _Queue(pool, work, deque(tasks), say)
                yield from _done(queue, stopping)
                for task in queue.left():
                    if task.progress is not None:
                        task.last = True
                        yield task, task.progress
    if stopping.is_set():
        raise KeyboardInterrupt


def _done(queue: "_Queue", stopping: threading.Event) -> Iterator[tuple[Task, Any]]:
    """Yield results until no tasks are left, or, once the run is stopped, no
    answer for PATIENCE seconds.
    """
    deadline = math.inf
    while not queue.is_empty() and time.monotonic() < deadline:
        if not stopping.is_set():
            queue.send()
        elif not queue.open:
            break
        elif deadline == math.inf:
            queue.pool.stop()
            deadline = time.monotonic() + PATIENCE
        for future in wait(queue.open, 0.1, FIRST_COMPLETED).done:
            yield from queue.take(future)
            if deadline < math.inf:
                deadline = time.monotonic() + PATIENCE


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
        pool: Pool,
        work: Work,
        waiting: deque[Task],
        say: Say,
    ) -> None:
        self.pool = pool
        self.work = work
        self.waiting = waiting
        self.say = say
        self.suspects: deque[Task] = deque()  # in whose packet a worker died
        self.open: dict[Future, list[Task]] = {}
        self.seconds = PACKET  # of a task, lately

    def is_empty(self) -> bool:
        """Whether all tasks are done."""
        return not (self.waiting or self.suspects or self.open)

    def left(self) -> Iterator[Task]:
        """Return the tasks that are not done."""
        return chain(self.waiting, self.suspects, *self.open.values())

    def send(self) -> None:
        """Keep every thread of the pool busy, and towards the end all of them equally
        long.
        """
        self.pool.look()
        threads = self.pool.threads
        most = threads * self.pool.ahead if self.seconds < 1 else threads
        while len(self.open) < most:
            tasks = self._next(threads)
            if not tasks:
                return
            packet = Packet(
                work=self.work,
                tasks=[
                    (task.content, task.begin(), task.data.digest) for task in tasks
                ],
                should_stop=self.pool.stopped,
            )
            datasets = {task.data.digest: task.data for task in tasks}
            future = self.pool.submit(run_packet, packet, *datasets.values())
            self.open[future] = tasks

    def _next(self, threads: int) -> list[Task]:
        """Take the tasks of the next packet."""
        if self.suspects:
            if self.open and not self.pool.apart:
                return []
            return [self.suspects.popleft()]
        share = math.ceil(len(self.waiting) / (2 * threads))
        quick = max(1, int(PACKET / self.seconds))
        return [self.waiting.popleft() for _ in range(min(share, MOST, quick))]

    def take(self, future: Future) -> Iterator[tuple[Task, Any]]:
        """Take the results of a packet, or say why there are none."""
        tasks = self.open.pop(future)
        try:
            seconds, results = future.result()
        except CancelledError:  # a scheduler that was away for a while
            seconds, results = 0.0, []
        except Exception as error:
            # Of the pool: a worker died, or cannot even read its tasks
            yield from self._lose(tasks, self.pool.explain(error))
            return
        if results:
            mean = 0.5 * (self.seconds + seconds / len(results))
            self.seconds = max(PACKET / MOST, mean)
        again = tasks[len(results) :]
        for task, result in zip(tasks, results, strict=False):
            if isinstance(result, Progress):
                task.progress = result
                task.deaths = 0
                again.insert(0, task)
            yield task, result
        self.waiting.extendleft(reversed(again))

    def _lose(self, tasks: list[Task], why: str) -> Iterator[tuple[Task, Any]]:
        """Do the tasks of a packet again, each alone, or let those fail that have lost
        too many workers.
        """
        why = why.partition("\n")[0][:200]
        runs_again = False
        for task in tasks:
            task.deaths += 1
            if task.deaths < self.pool.deaths:
                self.suspects.append(task)
                runs_again = True
            else:
                yield task, Failure(f"{why}, {task.deaths} times")
        if runs_again:
            self.say(f"{why}; its {count(len(tasks), 'trial')} will run again")
