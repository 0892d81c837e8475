"""Where packets of tasks run: in this process, or in worker processes of this computer.

All such places are executors; that of a Dask cluster is in a module of its own.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from cbm_cli.errors import CbmError
from cbm_cli.execution import shared_rows, work
from cbm_cli.execution.fork_server import fork_server
from cbm_cli.execution.shared_rows import SharedDataset


class Pool(Executor):
    """What `spread` needs of a place where packets run.

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

    threads: int
    ahead, apart, deaths = 1, True, 1
    stopped: Callable[[], bool]

    def look(self) -> None:
        """Find out how many threads there are now; CbmError if the run must end."""

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
        future: Future[Any] = Future()
        future.set_result(function(*arguments))
        return future


class Processes(Pool):
    """Worker processes of this computer.

    Each is a pool of its own, so that one that dies breaks no other.
    """

    deaths, stopped = 3, staticmethod(work.is_flagged)

    def __init__(self, workers: int) -> None:
        self.threads = workers
        self.flag = fork_server().RawValue("b", 0)
        # What each worker was last asked for
        self.last: dict[ProcessPoolExecutor, Future] = {}
        # What is sent of data sets, by digest
        self.sent: dict[str, Any] = {}

    def submit(self, function: Callable, /, *arguments: Any, **_: Any) -> Future:
        """Let an idle worker call a function of a packet and its data sets, a new one
        if there is none.
        """
        packet, *datasets = arguments
        for data in datasets:
            if data.digest not in self.sent:
                self.sent[data.digest] = shared_rows.shared(data)
        contents = [self.sent[data.digest] for data in datasets]
        idle = [pool for pool, future in self.last.items() if future.done()]
        for _try in range(len(idle) + self.deaths):
            pool = idle.pop() if idle else self._new_worker()
            try:
                self.last[pool] = pool.submit(function, packet, *contents)
            except (BrokenProcessPool, EOFError, ConnectionError):
                # It died while it was idle, or the fork server did
                self.last.pop(pool, None)
                continue
            return self.last[pool]
        raise CbmError(
            "worker processes die when they start (out of memory?); -j 0 does without "
            "them"
        )

    def _new_worker(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            max_workers=1,
            mp_context=fork_server(),
            initializer=work.begin,
            initargs=(self.flag,),
        )

    def stop(self) -> None:
        """Ask all workers to return."""
        self.flag.value = 1

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all workers, those that work (after an error, or without an answer in
        time) at once.
        """
        for pool, future in self.last.items():
            if not future.done():
                for process in [*pool._processes.values()]:
                    process.kill()
            pool.shutdown(wait, cancel_futures=cancel_futures)
        for data in self.sent.values():
            if isinstance(data, SharedDataset):
                shared_rows.remove(data)
