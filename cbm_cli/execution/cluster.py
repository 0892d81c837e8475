"""Trials on the workers of a running Dask cluster."""

import contextlib
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError

from distributed import Client, Future, as_completed
from distributed.scheduler import KilledWorker

from cbm_cli.errors import CbmError
from cbm_cli.execution import worker
from cbm_cli.execution.engines import PATIENCE, Listener
from cbm_cli.execution.jobs import Job
from cbm_cli.execution.worker import Failure, Result, failure_of
from cbm_cli.results import Progress


def on_cluster(
    jobs: Sequence[Job], listen: Listener, stopping: threading.Event, address: str
) -> Iterator[tuple[Job, Result]]:
    """Run the trials on the workers of the Dask scheduler at ``address`` (such as tcp://host:8786)."""
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
    """One run on a cluster; a window of tasks is kept submitted, so that workers never wait."""

    def __init__(self, client: Client, listen: Listener, stopping: threading.Event) -> None:
        self.client, self.stopping = client, stopping
        self.token = f"cbm-{uuid.uuid4().hex[:12]}"
        self.data: dict[str, Future] = {}
        self.running: dict[Future, Job] = {}
        client.subscribe_topic(self.token, lambda event: listen(*event[1]))
        threading.Thread(target=self._stop_when_asked, daemon=True).start()

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Result]]:
        """Run the jobs; those that were on a worker when it died run again at the end, one by one.

        Only a trial that is alone on the cluster can be blamed for the death of its worker.
        """
        self.client.wait_for_workers(1)
        window = 2 * len(self.client.scheduler_info(n_workers=-1)["workers"])
        suspects = []
        for job, result in self._stream(jobs, window):
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
        waiting, tasks = iter(jobs), as_completed(loop=self.client.loop)

        def submit(job: Job | None, since: Progress | None) -> None:
            if job is not None and not self.stopping.is_set():
                future = self._submit(job, since or job.since())
                self.running[future] = job
                tasks.add(future)

        for _ in range(window):
            submit(next(waiting, None), None)
        while self.running:
            future = next(tasks)
            job, result = self.running.pop(future), _result_of(future)
            if isinstance(result, Progress):
                submit(job, result)
            else:
                submit(next(waiting, None), None)
            if not (result is None and self.stopping.is_set()):
                yield job, result

    def stop(self) -> None:
        """Ask the running trials on every worker to return."""
        with contextlib.suppress(OSError, TimeoutError):  # a worker or the scheduler is gone already
            self.client.run(worker.stop, self.token, on_error="ignore")

    def _stop_when_asked(self) -> None:
        self.stopping.wait()
        self.stop()
        time.sleep(PATIENCE)
        for future in list(self.running):
            with contextlib.suppress(Exception):
                future.cancel(force=True)

    def _submit(self, job: Job, since: Progress | None) -> Future:
        data = self.data.get(job.data.digest)
        if data is None or data.status != "finished":  # first use, or its workers have died
            data = self.client.scatter(job.data, broadcast=True, hash=False)
            self.data[job.data.digest] = data
        facts = job.trial, job.run_id, data, since, self.token, job.sources
        return self.client.submit(worker.work, worker.version(), *facts, pure=False)


def _result_of(future: Future) -> Result | None:
    """What the trial returned, or None if it died with its worker or its data."""
    try:
        return future.result()
    except (KilledWorker, CancelledError):
        return None
    except Exception as error:
        return failure_of(error)
