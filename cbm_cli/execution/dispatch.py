"""Running an agenda: trials are dispatched, results written, summaries kept current."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cbm_cli.errors import CbmError
from cbm_cli.execution.engines import Listener, in_process, on_local_workers
from cbm_cli.execution.jobs import Agenda, Job
from cbm_cli.execution.worker import Failure, Result
from cbm_cli.results import Outcome, Progress

SUMMARY_EVERY = 20.0  # seconds between two updates of the summaries, more if they take long


@dataclass
class Ending:
    """How a run ended."""

    finished: int = 0
    failed: list[tuple[Job, Failure]] = field(default_factory=list)


def run_agenda(
    agenda: Agenda,
    *,
    workers: int,
    scheduler: str | None = None,
    listen: Listener = lambda *news: None,
    on_finished: Callable[[Job, Outcome], None] = lambda job, outcome: None,
) -> Ending:
    """Run every job of the agenda and write its outcome.

    Trials run on ``workers`` processes (0: in this one), or on the Dask cluster of ``scheduler``. Ctrl-C
    raises KeyboardInterrupt once all finished trials and the progress of the others are written.
    """
    ending, stopping, due = Ending(), threading.Event(), time.monotonic() + SUMMARY_EVERY
    commit = _git_commit()
    for experiment in agenda.experiments:
        run_ids, bounds = agenda.run_ids[experiment.name], agenda.upper_bounds(experiment)
        agenda.stores[experiment.name].write_manifest(experiment, run_ids, bounds, commit, agenda.folder)

    def write_summaries() -> float:
        began = time.monotonic()
        for store in agenda.stores.values():
            store.write_summary()
        now = time.monotonic()
        return now + max(SUMMARY_EVERY, 20 * (now - began))

    try:
        with _stopped_by_signals(stopping):
            for job, result in _dispatch(agenda, workers, scheduler, listen, stopping):
                _keep(job, result, ending)
                if isinstance(result, Outcome):
                    on_finished(job, result)
                if time.monotonic() > due:
                    due = write_summaries()
    finally:
        if agenda.jobs:
            _pack(agenda)
        write_summaries()
    if stopping.is_set():
        raise KeyboardInterrupt
    return ending


def _dispatch(
    agenda: Agenda, workers: int, scheduler: str | None, listen: Listener, stopping: threading.Event
) -> Iterator[tuple[Job, Result]]:
    for wave in agenda.waves():
        _pack(agenda)  # this wave may read what the last one wrote
        jobs = []
        for job in wave:
            try:
                if job.start:
                    job.since()  # refuses a machine that has diverged, for instance
                jobs.append(job)
            except CbmError as error:
                yield job, Failure(str(error))
        if scheduler and jobs:
            from cbm_cli.execution.cluster import on_cluster

            yield from on_cluster(jobs, listen, stopping, scheduler)
        elif workers and jobs:
            yield from on_local_workers(jobs, listen, stopping, min(workers, len(jobs)))
        else:
            yield from in_process(jobs, listen, stopping)
        if stopping.is_set():
            return


def _pack(agenda: Agenda) -> None:
    for store in agenda.stores.values():
        store.pack()


def _keep(job: Job, result: Result, ending: Ending) -> None:
    """Write what a trial returned."""
    if job.pretraining and not isinstance(result, Failure):
        layers = result.pretrained if isinstance(result, Outcome) or result.stage == job.stages else {}
        for store in job.stores:
            store.write_pretrained(job.pretraining, job.trial.number, layers)
    if isinstance(result, Progress):
        if result.update or result.stage:
            job.stores[0].write_progress(*job.key, result, job.digest)
    elif isinstance(result, Failure):
        ending.failed.append((job, result))
        for store in job.stores:
            store.write_failure(*job.key, result.details or result.message)
    else:
        ending.finished += 1
        for store in job.stores:
            store.write(job.run_id, job.trial, result, job.course, job.digest)


@contextlib.contextmanager
def _stopped_by_signals(stopping: threading.Event) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM sets ``stopping``, the second ends the process at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        if stopping.is_set():
            os._exit(130)
        stopping.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _git_commit() -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
