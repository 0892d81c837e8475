"""A Dask cluster, as a place where packets of tasks run."""

import logging
import os
import pickle
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.execution import work
from cbm_cli.execution.pools import Pool

LOOK_EVERY = 0.5  # seconds between two looks at which workers a cluster has
WORKERLESS = 2.0  # seconds without workers after which this is said
# An expression that any Python can evaluate: a scheduler lacks cbm, and a worker may
# have another one or none
_CALL = f"__import__({work.__name__!r}, fromlist=['']).{{}}"


class Cluster(Pool):
    """All workers that a Dask cluster has at any time; lost ones are the business of
    Dask.
    """

    ahead, apart, deaths = 2, False, 2

    def __init__(self, address: str, say: work.Say) -> None:
        from distributed import Client

        if os.environ.get("CBM_DEBUG", "0") in ("", "0"):
            silence_dask()
        self.address = address
        self.say = say
        self.run = uuid.uuid4().hex
        self.stopped = partial(work.is_stopped, self.run)
        self.threads = 1
        self.workers: dict[str, int] = {}  # threads by address
        self.sent: dict[str, Any] = {}  # data sets that are there, by digest
        self.looked = 0.0  # when workers were looked for
        self.served = time.monotonic()  # when there was one
        try:
            self.client = Client(address, set_as_default=False)
        except Exception as error:
            raise self._lost(error) from None
        self.executor = self.client.get_executor(pure=False)

    def _lost(self, error: Exception) -> CbmError:
        reason = str(error.__cause__ or "") or str(error)
        _, _, reason = reason.rpartition(">: ")
        return CbmError(
            f"--scheduler {self.address}: no Dask scheduler answers "
            f"({reason or type(error).__name__}); check that `dask scheduler` runs "
            "there, and the address, such as tcp://HOST:PORT; finished trials are kept"
        )

    def look(self) -> None:
        """Count the threads of all workers, and name the workers that are gone.

        Without workers there is one thread, so that the scheduler knows of work.
        Raises CbmError if the scheduler is lost, or if a new worker lacks this cbm.
        """
        now = time.monotonic()
        if now - self.looked > LOOK_EVERY:
            self._look_for_workers()
            self.looked = now
        if self.workers:
            self.served = now
        elif now - self.served > WORKERLESS:
            self.say(
                f"{self.address} has no worker; waiting for one to join (Ctrl-C ends "
                "the run)"
            )
            self.served = float("inf")
        self.threads = max(1, sum(self.workers.values()))

    def _look_for_workers(self) -> None:
        try:
            workers = dict(self.client.nthreads(callback_timeout=5))
        except Exception as error:
            if self.client.status == "closed":
                raise self._lost(error) from None
            return  # it may come back: Dask tries as long as it is configured to
        new = workers.keys() - self.workers.keys()
        if new:
            self._check([*new])
        for worker in self.workers.keys() - workers.keys():
            self.say(f"worker {worker} is gone; its trials run elsewhere")
        self.workers = workers

    def submit(self, function: Callable, /, *arguments: Any, **_: Any) -> Future:
        """Let any worker run a packet, the one function that is called here."""
        packet, *datasets = arguments
        content = pickle.dumps(packet), work.environment(), *self._sent(datasets)
        try:
            return self.executor.submit(
                eval, _CALL.format("on_cluster(*content)"), {"content": content}
            )
        except Exception as error:  # the connection is closed
            raise self._lost(error) from None

    def _sent(self, datasets: Iterable[Dataset]) -> list[Any]:
        """Return data sets as futures, which Dask makes again where they are lost."""
        futures = []
        for data in datasets:
            future = self.sent.get(data.digest)
            if future is None or future.status not in ("pending", "finished"):
                content = pickle.dumps(data)
                future = self.client.submit(pickle.loads, content, pure=False)
                self.sent[data.digest] = future
            futures.append(future)
        return futures

    def stop(self) -> None:
        """Ask all workers to return, without waiting for those that do not answer."""

        def ask() -> None:
            call = _CALL.format(f"stop({self.run!r})")
            with suppress(Exception):  # a worker or the scheduler is gone already
                self.client.run(eval, call, on_error="ignore")

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
        environments: dict[str, Any] = {}
        call = _CALL.format("environment()")
        with suppress(Exception):  # the scheduler is away
            environments = self.client.run(
                eval, call, workers=workers, on_error="return"
            )
        problems = []
        for worker, there in environments.items():
            has_left = isinstance(there, OSError)
            if there != work.environment() and not has_left:
                problems.append(
                    f"--scheduler: worker {worker} has {there}; this run needs "
                    f"{work.environment()}"
                )
        if problems:
            raise CbmError("\n".join(problems))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster, and what runs there."""
        with suppress(Exception):
            self.executor.shutdown(wait=False)
            self.client.close(timeout=1)


def silence_dask() -> None:
    """Keep Dask's own messages from the terminal; what matters to the user is said in
    other words.
    """
    loggers = [
        name
        for name in logging.root.manager.loggerDict
        if name.startswith("distributed")
    ]
    for name in (*loggers, "distributed", "tornado", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", module="distributed")
