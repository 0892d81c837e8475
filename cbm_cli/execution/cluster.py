"""Trials on the workers of a running Dask cluster."""

import asyncio
import contextlib
import itertools
import math
import pickle
import queue
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from typing import Any

from distributed import Client, Future
from distributed.scheduler import KilledWorker
from distributed.security import Security

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.execution import dask_worker, worker
from cbm_cli.execution.engines import PATIENCE, Backlog, Cluster, Listener, Packet, Say
from cbm_cli.execution.jobs import Job
from cbm_cli.execution.silent import silence_dask
from cbm_cli.execution.worker import Result, failure_of
from cbm_cli.text import duration

# An expression that any Python can evaluate: a worker may have another one, another cbm or none.
_ENVIRONMENT = (
    "(lambda cbm: getattr(cbm, 'environment', lambda: 'another version of cbm')())"
    "(__import__('importlib').import_module('cbm_cli.execution.worker'))"
)
_CONNECTING = 10.0  # seconds for which a scheduler is tried at the start
_GONE = CancelledError, asyncio.CancelledError, KilledWorker  # what waiting for a lost worker ends in
_SILENCE = 60.0  # seconds without an answer after which the scheduler is taken for lost
_LOOK_EVERY = 1.0  # seconds between two looks at which workers there are


def on_cluster(
    jobs: Sequence[Job],
    listen: Listener,
    stopping: threading.Event,
    cluster: Cluster,
    say: Say = lambda message: None,
) -> Iterator[tuple[Job, Result]]:
    """Run the trials on all workers that a Dask cluster has at any time; ``say`` gets messages for the user.

    Raises CbmError if the scheduler cannot be reached, or if there are no workers for too long.
    """
    if not cluster.debug:
        silence_dask()
    backlog, limit = Backlog(jobs), _CONNECTING
    while backlog and not stopping.is_set():
        client = _connect(cluster, limit, stopping)
        if client is None:
            return
        session = _Session(client, cluster, backlog, listen, say)
        try:
            yield from session.run(stopping)
        except _ConnectionLost:
            limit = min(cluster.wait, _SILENCE)
            say(f"{cluster.address}: the connection is lost; trying again for {duration(limit)}")
            backlog.waiting.extendleft(job for packet in session.open for job in packet.open.values())
        finally:
            session.end()


def _connect(cluster: Cluster, limit: float, stopping: threading.Event) -> Client | None:
    """Connect to the scheduler; None if the run is stopped. CbmError after ``limit`` seconds."""
    security = cluster.security
    if cluster.tls:
        security = Security(**cluster.tls, require_encryption=True)
    began, problem = time.monotonic(), None
    while not stopping.is_set():
        try:
            return Client(cluster.address, timeout=2, set_as_default=False, security=security)
        except (ValueError, TypeError) as error:
            raise CbmError(f"--scheduler {cluster.address}: {error}; write tcp://HOST:PORT") from None
        except Exception as error:
            problem = str(error.__cause__ or error).rpartition(">: ")[2]  # without the object that failed
        if time.monotonic() - began > limit:
            raise CbmError(
                f"--scheduler {cluster.address}: no Dask scheduler answered in {duration(limit)} "
                f"({problem}); check the address and that `dask scheduler` runs there. Finished trials are "
                "kept: the same command runs the others",
                "system",
            )
        stopping.wait(0.2)
    return None


class _ConnectionLost(Exception):
    """The scheduler does not answer any more."""


@dataclass(eq=False)
class _Hand:
    """A worker of the cluster."""

    address: str
    threads: int
    usable: bool = False  # it has the same versions, answers, and does not end
    ends: bool = False
    known: set[str] = field(default_factory=set)  # digests of the data sets that it has
    errands: dict[int, "_Errand"] = field(default_factory=dict)  # what it runs, by number

    def has_room(self) -> bool:
        """Whether it can run another packet; one that runs alone takes all threads."""
        alone = any(errand.packet and errand.packet.alone for errand in self.errands.values())
        return self.usable and not alone and len(self.errands) < self.threads


@dataclass(eq=False)
class _Errand:
    """A packet that was sent to a worker."""

    hand: _Hand
    packet: Packet | None  # None once it is answered or given up
    future: Any = None  # a Future as soon as it is sent


class _Session:
    """One connection to a scheduler: which workers there are, and what each of them runs."""

    def __init__(self, client: Any, cluster: Cluster, backlog: Backlog, listen: Listener, say: Say) -> None:
        self.client, self.cluster, self.backlog, self.listen, self.say = client, cluster, backlog, listen, say
        self.token = f"cbm-{uuid.uuid4().hex[:12]}"
        self.hands: dict[str, _Hand] = {}  # by address
        self.refused: list[str] = []
        self.errands: dict[int, _Errand] = {}  # by number
        self.numbers = itertools.count()
        self.packed: dict[str, bytes] = {}  # data sets, by digest
        self.served = time.monotonic()  # when a usable worker was last there
        self.told = False  # whether it was said that there is none
        # What threads of the client tell: a method of this class, and its arguments
        self.inbox: queue.SimpleQueue = queue.SimpleQueue()
        client.subscribe_topic(self.token, lambda event: self.inbox.put((self._hear, *event[1])))
        client.loop.add_callback(self._watch)

    def run(self, stopping: threading.Event) -> Iterator[tuple[Job, Result]]:
        """Run all trials of the backlog, until asked to stop; raises _ConnectionLost."""
        deadline = math.inf
        while (self.backlog or self.open) and time.monotonic() < deadline:
            if not stopping.is_set():
                self._assign()
                self._check_hands()
            elif not self.open:
                return
            elif deadline == math.inf:
                deadline = time.monotonic() + PATIENCE
                self._stop()
            with contextlib.suppress(queue.Empty):
                act, *facts = self.inbox.get(timeout=0.1)
                yield from act(*facts) or ()
                if deadline < math.inf and act != self._see:
                    deadline = time.monotonic() + PATIENCE
            yield from self._give_up()

    @property
    def open(self) -> list[Packet]:
        """The packets that wait for an answer."""
        return [errand.packet for errand in self.errands.values() if errand.packet]

    def end(self) -> None:
        """Ask trials that still run to return, and close the connection."""
        if self.open:
            self._stop()
            time.sleep(0.2)
        with contextlib.suppress(Exception):
            self.client.close(timeout=1)

    def _stop(self) -> None:
        """Ask all trials of this run to return, without waiting for workers that do not answer."""
        addresses = list({errand.hand.address for errand in self.errands.values()})

        def ask() -> None:
            with contextlib.suppress(Exception):  # a worker or the scheduler is gone already
                self.client.run(dask_worker.stop, self.token, workers=addresses, on_error="ignore")

        threading.Thread(target=ask, daemon=True).start()

    async def _watch(self) -> None:
        """Tell which workers there are, again and again; then, that the connection is lost."""
        with contextlib.suppress(Exception):
            while self.client.status == "running":
                asked = self.client.nthreads(asynchronous=True)
                self.inbox.put((self._see, dict(await asyncio.wait_for(asked, _SILENCE))))
                await asyncio.sleep(_LOOK_EVERY)
        self.inbox.put((self._lose_connection,))

    def _lose_connection(self) -> None:
        raise _ConnectionLost

    # Workers

    def _see(self, threads: dict[str, int]) -> Iterator[tuple[Job, Result]]:
        """Ask new workers what they are; the trials of those that are gone go elsewhere."""
        for address in self.hands.keys() - threads.keys():
            hand = self.hands.pop(address)
            for number in hand.errands:
                errand = self.errands.pop(number)
                errand.future.release()
                yield from self._lose(errand, "its worker died")
        for address in threads.keys() - self.hands.keys():
            hand = self.hands[address] = _Hand(address, threads[address])
            self._submit(hand, (self._admit, hand), eval, _ENVIRONMENT)

    def _admit(self, hand: _Hand, theirs: str | BaseException) -> None:
        """Use a worker, or refuse it by name."""
        ours = worker.environment()
        if isinstance(theirs, _GONE):
            return
        if isinstance(theirs, BaseException):
            theirs = f"no cbm that can be used ({type(theirs).__name__}: {theirs})"
        hand.usable = theirs == ours
        if not hand.usable:
            self.refused.append(
                f"worker {hand.address} is not used: it has {theirs}; this run needs {ours}: install the "
                "same there"
            )
            self.say(self.refused[-1])

    def _lose(self, errand: _Errand, why: str) -> Iterator[tuple[Job, Result]]:
        """Take the packet of a worker that died or does not answer back."""
        packet, errand.packet = errand.packet, None
        if packet:
            yield from self.backlog.lose(packet, len(packet.open), why)

    def _give_up(self) -> Iterator[tuple[Job, Result]]:
        """Leave workers alone that do not answer; their trials go elsewhere."""
        silence = f"no answer for {duration(self.cluster.stall)}"
        by_packet = {errand.packet: errand for errand in self.errands.values() if errand.packet}
        for packet in self.backlog.silent(by_packet, self.cluster.stall):
            errand = by_packet[packet]
            if errand.hand.usable:
                self.say(f"worker {errand.hand.address}: {silence}; its trials go elsewhere")
            errand.hand.usable = False
            yield from self._lose(errand, silence)

    def _check_hands(self) -> None:
        """Say that there are no workers; after some time end the run."""
        now, wait, address = time.monotonic(), self.cluster.wait, self.cluster.address
        if any(hand.usable for hand in self.hands.values()):
            self.served, self.told = now, False
        elif now - self.served > wait:
            message = f"--scheduler {address}: no usable worker in {duration(wait)}; start some with: "
            message += f"dask worker {address}; --wait SECONDS waits longer. Finished trials are kept"
            raise CbmError("\n".join([message, *self.refused]), "system")
        elif not self.told and now - self.served > 2:
            self.told, limit = True, "" if wait == math.inf else f" up to {duration(wait)} (--wait)"
            self.say(f"{address}: no usable worker; waiting{limit} for one to join")

    # Trials

    def _assign(self) -> None:
        """Send trials to all workers that have room."""
        threads = sum(hand.threads for hand in self.hands.values() if hand.usable)
        for hand in self.hands.values():
            while hand.has_room() and (packet := self.backlog.take(not hand.errands, threads)):
                number, errand = next(self.numbers), _Errand(hand, packet)
                self.errands[number] = hand.errands[number] = errand
                new = {digest: self._packed(data) for digest, data in packet.news_of(hand.known).items()}
                message = worker.packed(packet.tasks, new)
                facts = dask_worker.work, message, self.token, number
                errand.future = self._submit(hand, (self._done, number), *facts)

    def _packed(self, data: Dataset) -> bytes:
        """A data set as bytes; those of black and white rows become much smaller."""
        if data.digest not in self.packed:
            self.packed[data.digest] = zlib.compress(pickle.dumps(data), 1)
        return self.packed[data.digest]

    def _submit(self, hand: _Hand, then: tuple, function: Callable, *arguments: object) -> Future:
        """Run a function on a worker; then call a method with arguments and the answer."""
        future = self.client.submit(
            function,
            *arguments,
            key=f"{self.token}-{uuid.uuid4().hex}",
            workers=[hand.address],
            allow_other_workers=False,
            pure=False,
        )
        self.client.loop.add_callback(self._fetch, future, then)
        return future

    async def _fetch(self, future: Future, then: tuple) -> None:
        """Wait for what a function returns, or the exception that it raises, and tell it."""
        try:
            answer = await self.client.gather(future, asynchronous=True)
        except BaseException as error:
            answer = error
        self.inbox.put((*then, answer))

    def _hear(self, number: int, *news: Any) -> Iterator[tuple[Job, Result]]:
        """Take a report of a packet, a sign of life, or the answer of a worker that ends."""
        errand = self.errands.get(number)
        if not (errand and errand.packet):
            return
        errand.packet.heard = time.monotonic()
        if len(news) == 1:
            errand.hand.usable, errand.hand.ends = False, True
            yield from self._answered(errand, errand.packet, news[0])
        elif news:
            self.listen(*news)

    def _done(self, number: int, answer: bytes | BaseException) -> Iterator[tuple[Job, Result]]:
        """Take the answer to a packet."""
        errand = self.errands.get(number)
        if errand is None:
            return
        if errand.packet and isinstance(answer, CancelledError | asyncio.CancelledError):
            raise _ConnectionLost
        del self.errands[number], errand.hand.errands[number]
        if errand.packet is None:  # it was silent for long, but now it answers; or it ends
            errand.hand.usable = not errand.hand.ends
        elif isinstance(answer, KilledWorker):
            yield from self._lose(errand, "its worker died")
        elif isinstance(answer, BaseException):
            for job in errand.packet.open.values():
                yield job, failure_of(answer)
        else:
            yield from self._answered(errand, errand.packet, answer)

    def _answered(self, errand: _Errand, packet: Packet, answer: bytes) -> Iterator[tuple[Job, Result]]:
        errand.packet = None
        if not answer:  # the worker has forgotten the data, as after a restart
            errand.hand.known.clear()
        for key, result in pickle.loads(answer) if answer else ():
            yield self.backlog.answer(packet, key, result)
        self.backlog.close(packet)
