"""Running an agenda: trials are dispatched, results written, exports kept current."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cbm_cli.errors import CbmError
from cbm_cli.execution.engines import STALL, in_process, on_local_workers
from cbm_cli.execution.jobs import Agenda, Job
from cbm_cli.execution.observe import Observer
from cbm_cli.execution.worker import Failure, Result
from cbm_cli.results import Outcome, Progress, Store

EXPORT_EVERY = 60.0  # seconds between two exports of results, more if they take long
LAST_CALL = 6.5  # seconds that everything has to end after Ctrl-C


@dataclass
class Ending:
    """How a run ended."""

    finished: int = 0
    failed: list[tuple[Job, Failure]] = field(default_factory=list)
    flawed: Counter[str] = field(default_factory=Counter)  # trials in which a recorder of the user failed
    flaws: dict[str, str] = field(default_factory=dict)  # the first error of each


def run_agenda(
    agenda: Agenda, observer: Observer, *, workers: int, scheduler: str | None = None, stall: float = STALL
) -> Ending:
    """Run every job of the agenda and write its outcome.

    Trials run on ``workers`` cores, each in a process that may be silent for ``stall`` seconds (0: in this
    one), or on a Dask cluster. Ctrl-C raises KeyboardInterrupt once trials and progress are written.
    """
    ending, stopping, due = Ending(), threading.Event(), time.monotonic() + EXPORT_EVERY
    _write_manifests(agenda, observer)

    def engine(jobs: Sequence[Job]) -> Iterator[tuple[Job, Result]]:
        if scheduler:
            from cbm_cli.execution.cluster import on_cluster

            return on_cluster(jobs, observer, stopping, scheduler)
        if workers:
            return on_local_workers(jobs, observer, stopping, workers, stall)
        return in_process(jobs, observer, stopping)

    try:
        with stopped_by_signals(stopping) as extend:
            for job, result in _dispatch(agenda, engine, stopping):
                extend()
                _keep(job, result, ending, observer)
                if (now := time.monotonic()) > due:
                    with contextlib.suppress(CbmError):  # at the end of the run it is not
                        _with_all(Store.export, agenda)
                    due = time.monotonic() + max(EXPORT_EVERY, 20 * (time.monotonic() - now))
    finally:
        _with_all(Store.finish, agenda)
    if stopping.is_set():
        raise KeyboardInterrupt
    return ending


def _write_manifests(agenda: Agenda, observer: Observer) -> None:
    commit = _git_commit(agenda.folder)
    for experiment in agenda.experiments:
        store = agenda.stores[experiment.name]
        store.journal.say = observer.message
        run_ids, data = agenda.run_ids[experiment.name], agenda.data(experiment)
        store.write_manifest(experiment, run_ids, data, commit, agenda.folder)


def _dispatch(
    agenda: Agenda, engine: Callable[[Sequence[Job]], Iterator[tuple[Job, Result]]], stopping: threading.Event
) -> Iterator[tuple[Job, Result]]:
    for wave in agenda.waves():
        _with_all(Store.flush, agenda)  # this wave may read what the last one wrote
        jobs = []
        for job in wave:
            try:
                if job.start:
                    job.since()  # refuses a machine that has diverged, for instance
                jobs.append(job)
            except CbmError as error:
                yield job, Failure(str(error))
        if jobs:
            yield from engine(jobs)
        if stopping.is_set():
            return


def _with_all(act: Callable[[Store], object], agenda: Agenda) -> None:
    """Call a method of all stores, also if it fails for one of them; then raise the first CbmError."""
    errors = []
    for store in agenda.stores.values():
        try:
            act(store)
        except CbmError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _keep(job: Job, result: Result, ending: Ending, observer: Observer) -> None:
    """Write what a trial returned, and tell it."""
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
        observer.failed(job, result)
    else:
        ending.finished += 1
        for store in job.stores:
            store.write(job.run_id, job.trial, result, job.course, job.digest)
        for name, flaw in result.flaws.items():
            if name not in ending.flaws:
                told = ending.flaws[name] = f"{job.title}: {flaw}"
                observer.message(f"{told}; the trial is kept without what this recorder returns")
            ending.flawed[name] += 1
        observer.finished(job, result)


@contextlib.contextmanager
def stopped_by_signals(stopping: threading.Event) -> Iterator[Callable[[], None]]:
    """The first Ctrl-C or SIGTERM sets ``stopping``, the second ends the process at once.

    Where nothing looks at ``stopping``, as in a recorder that hangs, KeyboardInterrupt is raised LAST_CALL
    seconds later, and if that is not heeded either the process ends. The function that is yielded gives as
    much time again.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    timed = hasattr(signal, "setitimer")

    def extend() -> None:
        if timed and stopping.is_set():
            signal.setitimer(signal.ITIMER_REAL, LAST_CALL)

    def stop(number: int, frame: object) -> None:
        if stopping.is_set():
            os._exit(130)
        stopping.set()
        extend()

    def interrupt(number: int, frame: object) -> None:
        signal.signal(signal.SIGALRM, lambda *_: os._exit(130))
        signal.setitimer(signal.ITIMER_REAL, 2.5)
        raise KeyboardInterrupt

    handlers = {signal.SIGINT: stop, signal.SIGTERM: stop} | ({signal.SIGALRM: interrupt} if timed else {})
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield extend
    finally:
        if timed:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _git_commit(folder: Path) -> str | None:
    """The commit of the repository that the grid is in, if any."""
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
