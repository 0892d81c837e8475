"""Where trials run: in this process, or on worker processes of this computer.

Every engine, like `cluster.on_cluster`, is a generator of (job, result): an Outcome at the end of a trial, a
Failure, or the Progress of a trial that is saved and continues. The coordinator writes, workers only compute.
Once ``stopping`` is set, running trials return their progress and no other starts.
"""

import contextlib
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait

from cbm_cli.execution.jobs import Job
from cbm_cli.execution.worker import Failure, Result, serve, stretch
from cbm_cli.results import Progress

Listener = Callable[[str, int, int, float], None]  # run-id, trial number, update, latest value
PATIENCE = 4.0  # seconds that stopped trials have to return


def in_process(
    jobs: Sequence[Job], listen: Listener, stopping: threading.Event
) -> Iterator[tuple[Job, Result]]:
    """Run the trials one after the other in this process: for debugging, and on computers with one core."""
    for job in jobs:
        result: Result | None = job.since()
        while not stopping.is_set():
            report = lambda *news, job=job: listen(*job.key, *news)  # noqa: E731
            result = stretch(job.trial, job.data, result, job.sources, report, stopping.is_set)
            yield job, result
            if not isinstance(result, Progress):
                break


def on_local_workers(
    jobs: Sequence[Job], listen: Listener, stopping: threading.Event, workers: int
) -> Iterator[tuple[Job, Result]]:
    """Run the trials on worker processes of this computer, one thread each."""
    waiting, told, deadline = iter(jobs), False, 0.0
    idle: list[_Worker] = []
    busy: dict[Connection, _Worker] = {}

    def start_next() -> None:
        job = None if stopping.is_set() else next(waiting, None)
        if job is not None:
            worker = idle.pop() if idle else _Worker()
            busy[worker.connection] = worker
            worker.start(job)

    try:
        for _ in range(workers):
            start_next()
        while busy and not (told and time.monotonic() > deadline):
            if stopping.is_set() and not told:
                told, deadline = True, time.monotonic() + PATIENCE
                for worker in busy.values():
                    worker.tell(None)
            for connection in wait([*busy], timeout=0.1):
                worker = busy[connection]
                job, message = worker.job, worker.answer()
                if isinstance(message, tuple):
                    listen(*job.key, *message)
                    continue
                if told or not isinstance(message, Progress):
                    del busy[connection]
                    if not worker.died:
                        idle.append(worker)
                    start_next()
                yield job, message
    finally:
        for worker in idle:
            worker.tell(None)
        for worker in busy.values():  # after an error here, or without an answer in time
            worker.process.kill()


class _Worker:
    """A worker process, and the trial that it runs."""

    def __init__(self) -> None:
        context = _context()
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.known: set[str] = set()  # digests of the data sets that it has
        self.died = False

    def start(self, job: Job) -> None:
        """Send a trial, with its data if this worker does not have them."""
        self.job, digest = job, job.data.digest
        data = None if digest in self.known else job.data
        self.known.add(digest)
        self.tell((job.trial, digest, data, job.since(), job.sources))

    def tell(self, message: object) -> None:
        """Send a message; the death of a worker shows when its answer is read."""
        with contextlib.suppress(OSError):
            self.connection.send(message)

    def answer(self) -> Result | tuple[int, float]:
        """Receive a result or a report; a Failure if the worker has died."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            self.died = True
            return Failure("its worker died (out of memory?)")


def _context() -> multiprocessing.context.BaseContext:
    """Fork processes from a server that has imported the package already, where the system can."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([serve.__module__])
    return context
