"""Where trials run: in this process, or on worker processes of this computer.

Every engine, like `cluster.on_cluster`, is a generator of (job, result): an Outcome at the end of a trial, a
Failure, or the Progress of a trial that is saved and continues. The coordinator writes, workers only compute.
Once ``stopping`` is set, running trials return their progress and no other starts.
"""

import contextlib
import math
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from cbm_cli.execution.jobs import Job, Key
from cbm_cli.execution.observe import Observer
from cbm_cli.execution.worker import GROUP, HELD, Failure, Result, Task, serve, stretch
from cbm_cli.results import Progress
from cbm_cli.text import duration

PATIENCE = 4.0  # seconds that stopped trials have to return
STALL = 600.0  # seconds without an answer after which a worker is given up
MOST = 200  # trials of a packet
PAUSE = 2.0  # seconds between two looks at the workers that show that this process was paused (Ctrl-Z)
TRIES = 3  # workers that may be lost during a trial before it fails


def in_process(
    jobs: Sequence[Job], observer: Observer, stopping: threading.Event
) -> Iterator[tuple[Job, Result]]:
    """Run the trials one after the other in this process: for debugging, and on computers with one core."""
    for job in jobs:
        since = job.since()
        while not stopping.is_set():
            report = lambda *news, job=job: observer.progress(*job.key, *news)  # noqa: E731
            result = stretch(job.trial, job.data, since, job.sources, report, stopping.is_set)
            yield job, result
            if not isinstance(result, Progress):
                break
            since = result


class Packet:
    """Trials that go to a worker in one message."""

    def __init__(self, jobs: Iterable[Job], progress: dict[Key, Progress]) -> None:
        self.open = {job.key: job for job in jobs}  # those without an answer
        self.tasks: list[Task] = []
        for job in self.open.values():
            since = progress.pop(job.key, None) or job.since()
            self.tasks.append((job.trial, job.run_id, job.data.digest, since, job.sources))
        self.sent = self.heard = time.monotonic()


class Backlog:
    """The trials that wait for a worker.

    Short trials go in packets of about GROUP seconds. A trial whose worker was lost goes to another one,
    where it runs alone: then it is known which trial is to blame if that one is lost, too.
    """

    def __init__(self, jobs: Iterable[Job], tries: int = TRIES) -> None:
        self.waiting, self.tries = deque(jobs), tries
        self.suspects: deque[Job] = deque()
        self.losses: Counter[Key] = Counter()
        self.progress: dict[Key, Progress] = {}  # of waiting trials that came back
        self.seconds = GROUP  # of a trial, lately
        self.looked = time.monotonic()

    def __len__(self) -> int:
        return len(self.waiting) + len(self.suspects)

    def take(self, free: bool, threads: int) -> Packet | None:
        """Return the next trials for a worker, or None.

        ``free`` if nothing runs on it. All ``threads`` of the workers shall finish together: packets become
        smaller towards the end.
        """
        if self.suspects:
            return Packet([self.suspects.popleft()], self.progress) if free else None
        share = math.ceil(len(self.waiting) / (2 * max(threads, 1)))
        size = min(share, MOST, max(1, int(GROUP / self.seconds)))
        jobs = [self.waiting.popleft() for _ in range(size)]
        return Packet(jobs, self.progress) if jobs else None

    def answer(self, packet: Packet, key: Key, result: Result) -> tuple[Job, Result]:
        """Take a trial's result out of a packet; one that only made progress waits again, at the front."""
        job = packet.open.pop(key)
        if isinstance(result, Progress):
            self.progress[key] = result
            self.waiting.appendleft(job)
        return job, result

    def close(self, packet: Packet, seconds: float) -> None:
        """End a packet that a worker ran for some seconds; trials that it did not begin wait again."""
        if answered := len(packet.tasks) - len(packet.open):
            self.seconds = max(GROUP / MOST, 0.5 * (self.seconds + seconds / answered))
        self.waiting.extendleft(reversed(packet.open.values()))

    def lose(self, packet: Packet, running: int, why: str) -> Iterator[tuple[Job, Result]]:
        """End a packet whose worker is lost; the first ``running`` open trials were perhaps to blame."""
        for place, job in enumerate(packet.open.values()):
            self.losses[job.key] += place < running
            if place >= running:
                self.waiting.appendleft(job)
            elif self.losses[job.key] < self.tries:
                self.suspects.append(job)
            else:
                told = f"{why}, {self.tries} times (out of memory? give each worker more)"
                yield job, Failure(told)

    def silent(self, packets: Iterable[Packet], stall: float) -> Iterator[Packet]:
        """Find packets without an answer for ``stall`` seconds; pauses of this process do not count."""
        now = time.monotonic()
        pause, self.looked = now - self.looked, now
        for packet in packets:
            if pause > PAUSE:
                packet.heard = min(now, packet.heard + pause)
            if now - packet.heard > stall:
                yield packet


def on_local_workers(
    jobs: Sequence[Job],
    observer: Observer,
    stopping: threading.Event,
    cores: int,
    stall: float = STALL,
) -> Iterator[tuple[Job, Result]]:
    """Run the trials on worker processes of this computer, which share so many cores.

    A worker that does not answer for ``stall`` seconds is ended.
    """
    crew, deadline = _Crew(Backlog(jobs, TRIES), observer, cores), math.inf
    try:
        while time.monotonic() < deadline:
            if not stopping.is_set():
                crew.assign()
            elif deadline == math.inf:
                deadline = time.monotonic() + PATIENCE
                for worker in crew.busy.values():
                    worker.tell(None)
            if not crew.busy:
                return
            for connection in wait([*crew.busy], timeout=0.1):
                yield from crew.hear(connection)  # type: ignore[arg-type]  # one of those given
                deadline = max(deadline, time.monotonic() + PATIENCE) if deadline < math.inf else deadline
            yield from crew.give_up(stall)
    finally:
        crew.end()


class _Crew:
    """The worker processes of a run: as many as cores, or as there are trials."""

    def __init__(self, backlog: Backlog, observer: Observer, cores: int) -> None:
        self.backlog, self.observer, self.cores = backlog, observer, cores
        self.size = min(cores, len(backlog))
        self.idle: list[_Worker] = []
        self.busy: dict[Connection, _Worker] = {}

    def assign(self) -> None:
        """Give every worker without trials some; cores that no trial waits for go to those that run."""
        while len(self.busy) < self.size:
            cores = self._next_share()
            if not (packet := self.backlog.take(True, self.size)):
                break
            worker = self.idle.pop() if self.idle else _Worker()
            worker.start(packet, cores)
            self.busy[worker.connection] = worker
        for _ in range(self.cores - sum(worker.cores for worker in self.busy.values()) if self.busy else 0):
            worker = min(self.busy.values(), key=lambda worker: worker.cores)
            worker.cores += 1
            worker.tell(worker.cores)

    def _next_share(self) -> int:
        """Cores of the next trials: an even share of all, and no more than are left to those that begin."""
        begin = max(1, min(self.size - len(self.busy), len(self.backlog)))
        left = self.cores - sum(worker.cores for worker in self.busy.values())
        return max(1, min(left // begin, math.ceil(self.cores / (len(self.busy) + begin))))

    def hear(self, connection: Connection) -> Iterator[tuple[Job, Result]]:
        """Receive a message of a worker."""
        worker = self.busy[connection]
        packet = worker.packet
        packet.heard = time.monotonic()
        try:
            message = connection.recv()
        except (EOFError, OSError):
            del self.busy[connection]
            yield from self.backlog.lose(packet, 1, "its worker died")
            return
        if isinstance(message, bool):
            del self.busy[connection]
            self.backlog.close(packet, packet.heard - packet.sent)
            if not message:
                self.idle.append(worker)
        elif isinstance(message, list):
            for answer in message:
                yield self.backlog.answer(packet, *answer)
        elif message:
            self.observer.progress(*message)

    def give_up(self, stall: float) -> Iterator[tuple[Job, Result]]:
        """End workers that do not answer; their trials go elsewhere."""
        by_packet = {worker.packet: worker for worker in self.busy.values()}
        for packet in self.backlog.silent(by_packet, stall):
            worker = by_packet[packet]
            del self.busy[worker.connection]
            worker.kill()
            silence = f"no answer for {duration(stall)}"
            self.observer.message(f"worker process {worker.process.pid}: {silence}; it was ended")
            yield from self.backlog.lose(packet, 1, silence)

    def end(self) -> None:
        """End all workers: those with trials (after an error, or without an answer in time) at once."""
        for worker in self.idle:
            worker.tell(None)
        for worker in self.busy.values():
            worker.kill()
        deadline = time.monotonic() + 1
        for worker in self.idle:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            worker.kill()


class _Worker:
    """A worker process, and the trials that it runs."""

    def __init__(self) -> None:
        context = _context()
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.known: set[str] = set()  # digests of the data sets that it has

    def start(self, packet: Packet, cores: int) -> None:
        """Send trials and how many cores they may use, with their data if this worker does not have them."""
        self.packet, self.cores = packet, cores
        sets = {job.data.digest: job.data for job in packet.open.values()}
        self.tell((packet.tasks, {name: sets[name] for name in sets.keys() - self.known}, cores))
        self.known |= sets.keys()

    def tell(self, message: object) -> None:
        """Send a message; the death of a worker shows when its answer is read."""
        with contextlib.suppress(OSError):
            self.connection.send(message)

    def kill(self) -> None:
        """End the process, also if it is stopped, or if the server that forked it is gone."""
        if self.process.exitcode in (None, 255):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, getattr(signal, "SIGKILL", signal.SIGTERM))


def _context() -> Any:
    """Fork processes from a server that has imported the package already, where the system can."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    from multiprocessing import forkserver, resource_tracker

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([serve.__module__])
    resource_tracker.ensure_running()  # which unblocks signals
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"  # the server shall not import another cbm from the working folder
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, HELD)  # until a worker of the server can heed them
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before
    return context
