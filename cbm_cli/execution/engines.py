"""Where trials run: in this process, on local worker processes, or on a running Dask cluster.

Every engine is a generator of (job, result): an Outcome at the end of a trial, a Failure, or the Progress
of a trial that came back to be saved and goes on. The coordinator writes; workers only compute. Once
``stopping`` is set, running trials come back with their progress and no other is begun.
"""

import contextlib
import logging
import signal
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cbm_cli.errors import CbmError
from cbm_cli.execution.jobs import Job
from cbm_cli.results import Outcome, Progress
from cbm_cli.trial.loop import run_trial
from cbm_cli.trial.own_recorders import compiled

if TYPE_CHECKING:
    from distributed import Client, Future

Listener = Callable[[str, int, int, float], None]  # run-id, trial number, update, log-likelihood
STRETCH = 30.0  # seconds after which a trial in this process is saved
PATIENCE = 4.0  # seconds that stopped trials have to come back


@dataclass(frozen=True)
class Failure:
    """A trial that did not end: what to tell, and the traceback if there is one."""

    message: str
    details: str = ""


Result = Outcome | Progress | Failure


def in_process(
    jobs: Sequence[Job], listen: Listener, stopping: threading.Event
) -> Iterator[tuple[Job, Result]]:
    """Run the trials one after the other here: for debugging, and for machines with one core."""
    for job in jobs:
        result: Result | None = job.since()
        while not stopping.is_set():
            began = time.monotonic()
            try:
                result = run_trial(
                    job.trial,
                    job.data,
                    result,
                    lambda *news, job=job: listen(*job.key, *news),
                    lambda began=began: stopping.is_set() or time.monotonic() - began > STRETCH,
                    compiled(job.sources),
                    stopping.is_set,
                )
            except Exception as error:
                result = _failure(error)
            yield job, result
            if not isinstance(result, Progress):
                break


def on_local_workers(
    jobs: Sequence[Job], listen: Listener, stopping: threading.Event, workers: int
) -> Iterator[tuple[Job, Result]]:
    """Run the trials on worker processes of this machine, one thread each, reachable from it alone."""
    import dask
    from distributed import LocalCluster

    settings = {
        "distributed.scheduler.worker-saturation": "inf",
        "distributed.scheduler.allowed-failures": 1,
        "distributed.admin.tick.limit": "1h",
    }
    with dask.config.set(settings), _interrupts_ignored():
        cluster = LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            memory_limit=0,
            silence_logs=logging.CRITICAL,
        )
    try:
        yield from on_cluster(jobs, listen, stopping, cluster.scheduler_address)
    finally:
        with contextlib.suppress(TimeoutError):
            cluster.close(timeout=5)


def on_cluster(
    jobs: Sequence[Job], listen: Listener, stopping: threading.Event, address: str
) -> Iterator[tuple[Job, Result]]:
    """Run the trials on the workers of the Dask scheduler at ``address`` (such as tcp://host:8786).

    Raises
    ------
    CbmError
        When no scheduler answers there.
    """
    from distributed import Client

    try:
        client = Client(address, timeout=5, set_as_default=False)
    except (OSError, ValueError) as error:
        raise CbmError(f"--scheduler {address}: no Dask scheduler answers there ({error})") from None
    conversation = _Conversation(client, listen, stopping)
    try:
        yield from conversation.run(jobs)
    finally:
        conversation.stop()
        client.close(timeout=2)


class _Conversation:
    """One run on a cluster: a window of tasks is kept submitted, so that workers never wait."""

    def __init__(self, client: "Client", listen: Listener, stopping: threading.Event) -> None:
        self.client, self.stopping = client, stopping
        self.token = f"cbm-{uuid.uuid4().hex[:12]}"
        self.data: dict[str, Future] = {}
        self.running: dict[Future, Job] = {}
        client.subscribe_topic(self.token, lambda event: listen(*event[1]))
        threading.Thread(target=self._stop_when_asked, daemon=True).start()

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Result]]:
        """Run the jobs; those that were on a worker when it died run once more at the end, one by one.

        Only a trial that is alone on the cluster can be blamed for the death of its worker.
        """
        suspects = []
        for job, result in self._stream(jobs, self._window()):
            if result is None:
                suspects.append(job)
            else:
                yield job, result
        for suspect in suspects:
            if self.stopping.is_set():
                return
            for job, result in self._stream([suspect], 1):
                yield job, result or Failure("its worker died, more than once (out of memory?)")

    def _stream(self, jobs: Sequence[Job], window: int) -> Iterator[tuple[Job, Result | None]]:
        from distributed import as_completed

        waiting = iter(jobs)
        tasks = as_completed(loop=self.client.loop)

        def submit(job: Job | None, since: Progress | None) -> None:
            if job is not None and not self.stopping.is_set():
                future = self._submit(job, since)
                self.running[future] = job
                tasks.add(future)

        def submit_next() -> None:
            job = next(waiting, None)
            submit(job, job and job.since())

        for _ in range(window):
            submit_next()
        while self.running:
            future = next(tasks)
            job = self.running.pop(future)
            result = self._result(future)
            if isinstance(result, Progress):
                submit(job, result)
            else:
                submit_next()
            if not (result is None and self.stopping.is_set()):
                yield job, result

    def stop(self) -> None:
        """Ask running trials to come back, on every worker."""
        from cbm_cli.execution.worker import stop

        with contextlib.suppress(OSError, TimeoutError):  # a worker or the scheduler is gone already
            self.client.run(stop, self.token, on_error="ignore")

    def _stop_when_asked(self) -> None:
        self.stopping.wait()
        self.stop()
        time.sleep(PATIENCE)
        for future in list(self.running):
            with contextlib.suppress(Exception):
                future.cancel(force=True)

    def _window(self) -> int:
        self.client.wait_for_workers(1)
        return 2 * len(self.client.scheduler_info(n_workers=-1)["workers"])

    def _submit(self, job: Job, since: Progress | None) -> "Future":
        from cbm_cli.execution.worker import version, work

        data = self.data.get(job.data.digest)
        if data is None or data.status != "finished":  # first use, or its workers have died
            data = self.client.scatter(job.data, broadcast=True, hash=False)
            self.data[job.data.digest] = data
        facts = job.trial, job.run_id, data, since, self.token, job.sources
        return self.client.submit(work, version(), *facts, pure=False)

    def _result(self, future: "Future") -> Result | None:
        """What the trial returned; None where it died with its worker or its data."""
        from concurrent.futures import CancelledError

        from distributed.scheduler import KilledWorker

        try:
            return future.result()
        except (KilledWorker, CancelledError):
            return None
        except Exception as error:
            return _failure(error)


def _failure(error: Exception) -> Failure:
    message = str(error) if isinstance(error, CbmError) else f"{type(error).__name__}: {error}"
    return Failure(message, "".join(traceback.format_exception(error)))


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Processes started meanwhile leave Ctrl-C to the coordinator."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
