"""Where packets of tasks run: this process, processes of this computer, a Dask cluster. All are executors."""

import logging
import os
import pickle
import threading
import time
import uuid
import warnings
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from typing import Any

from cbm_cli.errors import CbmError
from cbm_cli.execution import fork_server, work

LOOK_EVERY = 0.5  # seconds between two looks at which workers a cluster has
# An expression that any Python can evaluate: a scheduler lacks cbm, and a worker may have another one or none
_CALL = f"__import__({work.__name__!r}, fromlist=['']).{{}}"


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
    """Worker processes of this computer: a pool for each, so that one that dies breaks no other."""

    deaths, stopped = 3, staticmethod(work.is_flagged)

    def __init__(self, workers: int) -> None:
        self.threads, self.context = workers, fork_server()
        self.flag = self.context.RawValue("b", 0)
        self.last: dict[ProcessPoolExecutor, Future] = {}  # what each worker was last asked for
        self.known: dict[ProcessPoolExecutor, set[str]] = {}  # digests of the data sets that each has

    def submit(self, function: Callable, /, *arguments: Any, **_: Any) -> Future:
        """Let an idle worker call a function of a packet and its data sets, a new one if there is none."""
        packet, *datasets = arguments
        idle = [pool for pool, last in self.last.items() if last.done()]
        while True:
            pool = idle.pop() if idle else ProcessPoolExecutor(1, self.context, work.begin, (self.flag,))
            known = self.known.setdefault(pool, set())
            sent = [data for data in datasets if data.digest not in known]
            try:
                self.last[pool] = pool.submit(function, packet, *sent)
            except BrokenProcessPool:  # it died while it had nothing to do
                del self.last[pool], self.known[pool]
                continue
            known |= {data.digest for data in datasets}
            return self.last[pool]

    def stop(self) -> None:
        """Ask all workers to return."""
        self.flag.value = 1

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all workers, those that work (after an error, or without an answer in time) at once."""
        for pool, last in self.last.items():
            for process in [] if last.done() else [*pool._processes.values()]:
                process.kill()
            pool.shutdown(wait, cancel_futures=cancel_futures)


class Cluster(Pool):
    """All workers that a Dask cluster has at any time; lost ones are the business of Dask."""

    ahead, apart, deaths = 2, False, 2

    def __init__(self, address: str, say: Callable[[str], None]) -> None:
        from distributed import Client

        if os.environ.get("CBM_DEBUG", "0") in ("", "0"):
            silence_dask()
        self.address, self.say, self.run = address, say, uuid.uuid4().hex
        self.stopped = partial(work.is_stopped, self.run)
        self.sent: dict[str, Any] = {}  # data sets that are there, by digest
        self.workers: dict[str, int] = {}  # threads by address
        self.looked, self.served = 0.0, time.monotonic()  # when workers were looked for, and last seen
        try:
            self.client = Client(address, set_as_default=False)
        except Exception as error:
            raise self._lost(error) from None
        self.executor = self.client.get_executor(pure=False)

    def _lost(self, error: Exception) -> CbmError:
        why = str(error.__cause__ or error).rpartition(">: ")[2] or type(error).__name__
        told = f"no Dask scheduler answers ({why}); check that `dask scheduler` runs there, and the address"
        remedy = "such as tcp://HOST:PORT; finished trials are kept"
        return CbmError(f"--scheduler {self.address}: {told}, {remedy}")

    @property
    def threads(self) -> int:
        """Threads of all workers, about now; one without workers, so that the scheduler knows of work."""
        if time.monotonic() - self.looked > LOOK_EVERY:
            workers = self.workers
            try:
                workers = self.client.nthreads(callback_timeout=5)
            except Exception as error:  # it may come back: Dask tries as long as it is configured to
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
            self.say(f"{self.address} has no worker; waiting for one to join (Ctrl-C ends the run)")
            self.served = float("inf")
        return max(sum(self.workers.values()), 1)

    def submit(self, function: Callable, /, *arguments: Any, **_: Any) -> Future:
        """Let any worker run a packet, the one function that is called here."""
        packet, *datasets = arguments
        for data in datasets:  # futures, which Dask makes again where they are lost
            known = self.sent.get(data.digest)
            if known is None or known.status not in ("pending", "finished"):
                pickled = pickle.dumps(data)
                self.sent[data.digest] = self.client.submit(pickle.loads, pickled, pure=False)
        given = pickle.dumps(packet), work.environment(), *(self.sent[data.digest] for data in datasets)
        try:
            return self.executor.submit(eval, _CALL.format("on_cluster(*given)"), {"given": given})
        except Exception as error:  # the connection is closed
            raise self._lost(error) from None

    def stop(self) -> None:
        """Ask all workers to return, without waiting for those that do not answer."""

        def ask() -> None:
            with suppress(Exception):  # a worker or the scheduler is gone already
                self.client.run(eval, _CALL.format(f"stop({self.run!r})"), on_error="ignore")

        threading.Thread(target=ask, daemon=True).start()

    def explain(self, error: Exception) -> str:
        """Return why a packet was lost; CbmError if a worker lacks this very cbm."""
        from distributed.scheduler import KilledWorker

        if isinstance(error, KilledWorker):
            return f"{error.allowed_failures + 1} workers died (out of memory?)"
        self._check()
        return super().explain(error)

    def _check(self, workers: list[str] | None = None) -> None:
        """Raise CbmError for workers, by default all, whose trials could have other bytes."""
        ours, there = work.environment(), dict[str, Any]()
        with suppress(Exception):  # the scheduler is away
            there = self.client.run(eval, _CALL.format("environment()"), workers=workers, on_error="return")
        # an OSError is of a worker that has left since
        if others := [it for it, has in there.items() if has != ours and not isinstance(has, OSError)]:
            told = (f"--scheduler: worker {one} has {there[one]}; this run needs {ours}" for one in others)
            raise CbmError("\n".join(told))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster, and what runs there."""
        with suppress(Exception):
            self.executor.shutdown(wait=False)
            self.client.close(timeout=1)


def silence_dask() -> None:
    """Keep Dask's own messages from the terminal; what matters to the user is said in other words."""
    names = [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]
    for name in (*names, "distributed", "tornado", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", module="distributed")
