"""Trials on a Dask cluster: packets of trials are futures, and lost workers are the business of Dask."""

import asyncio
import logging
import math
import os
import pickle
import threading
import time
import uuid
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any

from distributed import Client, Future
from distributed.scheduler import KilledWorker

from cbm_cli.errors import CbmError
from cbm_cli.execution import dask_worker, worker
from cbm_cli.execution.engines import PATIENCE, Backlog, Packet
from cbm_cli.execution.jobs import Job
from cbm_cli.execution.observe import Observer
from cbm_cli.execution.worker import Result
from cbm_cli.text import duration

# An expression that any Python can evaluate: a worker may have another one, another cbm or none.
_ENVIRONMENT = (
    "(lambda cbm: getattr(cbm, 'environment', lambda: 'another version of cbm')())"
    "(__import__('importlib').import_module('cbm_cli.execution.worker'))"
)
_CONNECTING = 10.0  # seconds for which a scheduler is tried at the start
_LONGEST_LOSS = 60.0  # seconds for which a scheduler that was lost is tried again, at most
_LOOK_EVERY = 0.5  # seconds between two looks at which workers there are
_SHORT = 10.0  # seconds of a trial; after longer ones a worker may well wait for the next packet
_LOSSES = 2  # times that Dask gives a packet up, after several lost workers, before its trial fails


def on_cluster(
    jobs: Sequence[Job], observer: Observer, stopping: threading.Event, scheduler: str
) -> Iterator[tuple[Job, Result]]:
    """Run the trials on all workers that a Dask cluster has at any time.

    Raises CbmError if the scheduler cannot be reached.
    """
    if os.environ.get("CBM_DEBUG", "0") in ("", "0"):
        silence_dask()
    with _connected(scheduler, stopping) as client:
        if client is not None:
            yield from _Session(client, scheduler, Backlog(jobs, _LOSSES), observer).run(stopping)


@contextmanager
def _connected(scheduler: str, stopping: threading.Event) -> Iterator[Client | None]:
    """Connect to the scheduler, also after it was lost for a while; None if the run is stopped."""
    how = {"set_as_default": False}
    began, problem = time.monotonic(), ""
    while not stopping.is_set():
        try:
            Client(scheduler, timeout=2, **how).close()
            client = Client(scheduler, timeout=_LONGEST_LOSS, **how)
            break
        except (ValueError, TypeError) as error:
            remedy = "write tcp://HOST:PORT, or tls:// with the files of distributed.comm.tls"
            raise CbmError(f"--scheduler {scheduler}: {error}; {remedy}") from None
        except FileNotFoundError:
            words = "a certificate or key that Dask is configured with is not there (distributed.comm.tls)"
            raise CbmError(f"--scheduler {scheduler}: {words}", "missing") from None
        except Exception as error:
            problem = str(error.__cause__ or error).rpartition(">: ")[2]  # without the object that failed
        if time.monotonic() - began > _CONNECTING:
            raise _lost(scheduler, _CONNECTING, problem)
        stopping.wait(0.2)
    else:
        yield None
        return
    try:
        yield client
    finally:
        with suppress(Exception):
            client.close(timeout=1)


def silence_dask() -> None:
    """Keep Dask's own messages from the terminal; what matters to the user is said in other words."""
    names = [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]
    for name in (*names, "distributed", "tornado", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", module="distributed")


def _lost(scheduler: str, limit: float, problem: str) -> CbmError:
    return CbmError(
        f"--scheduler {scheduler}: no Dask scheduler answered in {duration(limit)} "
        f"({problem}); check the address and that `dask scheduler` runs there. Finished trials are "
        "kept: the same command runs the others",
        "system",
    )


class _Session:
    """A run on a cluster: which workers may be used, and the packets that are under way."""

    def __init__(self, client: Any, scheduler: str, backlog: Backlog, observer: Observer) -> None:
        self.client, self.scheduler, self.backlog, self.observer = client, scheduler, backlog, observer
        self.token = f"cbm-{uuid.uuid4().hex[:12]}"  # of this run, and the topic of its events
        self.there: set[str] = set()  # addresses of all workers
        self.threads: dict[str, int] = {}  # of those that may be used
        self.refused: list[str] = []
        self.data: dict[str, Future] = {}  # data sets on the cluster, by digest
        self.open: dict[Future, Packet] = {}
        self.bound: dict[Future, set[str]] = {}  # workers that alone may run what is open
        self.answers: SimpleQueue[tuple[Future, Any]] = SimpleQueue()
        self.served, self.told = time.monotonic(), False  # a worker was last there; it was said that none is

    def run(self, stopping: threading.Event) -> Iterator[tuple[Job, Result]]:
        """Run all trials of the backlog, until asked to stop."""
        deadline = math.inf
        lost = _lost(self.scheduler, _LONGEST_LOSS, "the connection is lost")
        self.client.subscribe_topic(self.token, lambda event: self.observer.progress(*event[1]))
        self.client.loop.add_callback(self._admit_workers)
        try:
            while (self.backlog or self.open) and time.monotonic() < deadline:
                if self.client.status == "closed":
                    raise lost
                if not stopping.is_set():
                    try:
                        self._submit_packets()
                    except Exception:
                        if self.client.status == "closed":  # by now
                            raise lost from None
                        raise
                    self._check_workers()
                elif not self.open:
                    return
                elif deadline == math.inf:
                    self._stop()
                    deadline = time.monotonic() + PATIENCE
                time.sleep(0.02 if self.answers.empty() else 0)
                for _ in range(self.answers.qsize()):
                    future, answer = self.answers.get()
                    self.bound.pop(future, None)
                    yield from self._take(self.open.pop(future), answer)
                    deadline = math.inf if deadline == math.inf else time.monotonic() + PATIENCE
        finally:
            if self.open and self.client.status == "running":
                self._stop()
                self.client.cancel([*self.open])

    def _stop(self) -> None:
        """Ask all trials of this run to return, without waiting for workers that do not answer."""

        def ask() -> None:
            with suppress(Exception):  # a worker or the scheduler is gone already
                self.client.run(dask_worker.stop, self.token, on_error="ignore")

        threading.Thread(target=ask, daemon=True).start()

    async def _admit_workers(self) -> None:
        """Find out which workers can be used, those that join late, too."""
        known: set[str] = set()
        while self.client.status != "closed":
            with suppress(Exception):  # without a connection
                threads = dict(await asyncio.wait_for(self.client.nthreads(asynchronous=True), 10))
                self.there = {*threads}
                self.threads = {one: self.threads[one] for one in self.threads if one in threads}
                for address in threads.keys() - known:
                    self.client.loop.add_callback(self._admit, address, threads[address])
                known = {*threads}
            await asyncio.sleep(_LOOK_EVERY)

    async def _admit(self, address: str, threads: int) -> None:
        """Use a worker, or refuse it by name."""
        there = {"workers": [address], "on_error": "return", "asynchronous": True}
        theirs = (await self.client.run(eval, _ENVIRONMENT, **there)).get(address, "no answer")
        if isinstance(theirs, BaseException):
            theirs = f"no cbm that can be used ({type(theirs).__name__}: {theirs})"
        if theirs == (ours := worker.environment()):
            self.threads[address] = threads  # and give it the data, or others get all packets that need them
            await self.client.replicate([*self.data.values()], workers=[address], asynchronous=True)
            return
        needs = f"it has {theirs}; this run needs {ours}: install the same there"
        self.refused.append(f"worker {address} is not used: {needs}")
        self.observer.message(self.refused[-1])

    def _check_workers(self) -> None:
        """Say that there are no workers."""
        if self.threads:
            self.served, self.told = time.monotonic(), False
        elif not self.told and time.monotonic() - self.served > 2:
            self.told = True
            self.observer.message(f"{self.scheduler}: no usable worker; waiting for one to join")

    def _submit_packets(self) -> None:
        """Keep a packet under way for each thread of the workers, and another one waiting if they are short.

        Dask does not bring what is bound to some workers to others if all of these are lost.
        """
        lost = [one for one, workers in self.bound.items() if not workers & self.threads.keys()]
        if stuck := [one for one in lost if one.status != "finished"]:
            self.client.cancel([*stuck, *self.data.values()])
            self.data, self.bound = {}, {one: self.bound[one] for one in self.bound if one not in stuck}
        threads = sum(self.threads.values())
        most = 2 * threads if self.backlog.seconds < _SHORT else threads
        while len(self.open) < most and (packet := self.backlog.take(not self.open, threads)):
            for job in packet.open.values():
                known = self.data.get(job.data.digest)
                if known is None or known.status not in ("pending", "finished"):
                    content = zlib.compress(pickle.dumps(job.data), 1)
                    self.data[job.data.digest] = self._submit(dask_worker.unpacked, content)
            sets = {job.data.digest: self.data[job.data.digest] for job in packet.open.values()}
            message = pickle.dumps(packet.tasks, protocol=pickle.HIGHEST_PROTOCOL)
            alone = len(self.open) + len(self.backlog) < len(self.threads)  # it is the only one on its worker
            cores = min(self.threads.values(), default=1) if alone else 1
            facts = message, self.token, worker.environment(), cores, *sets.values()
            future = self._submit(dask_worker.work, *facts)
            self.open[future] = packet
            self.client.loop.add_callback(self._await, future)

    def _submit(self, function: Callable, *arguments: Any) -> Future:
        """Run a function on one of the workers that may be used; the scheduler need not have cbm."""
        call = f"__import__('importlib').import_module({function.__module__!r}).{function.__name__}(*given)"
        key, allowed = f"{function.__name__}-{uuid.uuid4().hex}", {*self.threads}  # others may join meanwhile
        some = self.there - allowed
        how = {"key": key, "pure": False, "workers": [*allowed] if some else None}
        future = self.client.submit(eval, call, {"given": arguments}, **how)
        if some:
            self.bound[future] = allowed
        return future

    async def _await(self, future: Future) -> None:
        """Bring the answer to a packet, or its error; nothing if it was taken back, or the scheduler is lost.

        Dask's ``as_completed`` never tells of one that was finished, lost with its worker, and then failed.
        """
        try:
            answer = await self.client.gather(future, asynchronous=True)
        except (Exception, asyncio.CancelledError) as error:
            answer = error if future.status == "error" else [0.0]
        self.answers.put((future, answer))

    def _take(self, packet: Packet, answer: Any) -> Iterator[tuple[Job, Result]]:
        """Take the answer to a packet, or why there is none."""
        if isinstance(answer, BaseException):
            died = isinstance(answer, KilledWorker) and f"{answer.allowed_failures + 1} workers died"
            why = died or f"{type(answer).__name__}: {answer}"
            yield from self.backlog.lose(packet, len(packet.open), why)
            return
        seconds, *results = answer
        for key, result in results:
            yield self.backlog.answer(packet, key, result)
        self.backlog.close(packet, seconds)
