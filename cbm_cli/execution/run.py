"""Running an agenda: tasks are spread, results written, exports kept current."""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from cbm_cli.errors import CbmError
from cbm_cli.execution.agenda import Agenda, Job, TrialKey
from cbm_cli.execution.progress import RunProgress
from cbm_cli.execution.spread import Task, spread
from cbm_cli.execution.work import Failure, train
from cbm_cli.results import Outcome, Progress

SAVE_EVERY = 30.0  # seconds of a trial between two states on disk
EXPORT_EVERY = 60.0  # seconds between two exports of results, more if they take long


@dataclass
class Ending:
    """How a run ended."""

    failed: list[tuple[Job, Failure]] = field(default_factory=list)
    flawed: Counter[str] = field(default_factory=Counter)  # trials in which a recorder of the user failed
    flaws: dict[str, str] = field(default_factory=dict)  # the first error of each
    saved: dict[TrialKey, float] = field(default_factory=dict)  # seconds of trials when they were last saved


def run_agenda(
    agenda: Agenda,
    observer: RunProgress,
    *,
    workers: int,
    scheduler: str | None = None,
    fail_fast: bool = False,
) -> Ending:
    """Run every job of the agenda and write its outcome.

    Trials run on ``workers`` processes (0: in this one), or on the cluster of a Dask scheduler. Ctrl-C raises
    KeyboardInterrupt once trials and progress are written. The first failure ends the run if ``fail_fast``.
    """
    ending, due = Ending(), time.monotonic() + EXPORT_EVERY
    stores, stopping = agenda.stores.values(), threading.Event()
    for experiment in agenda.experiments:
        store, run_ids = agenda.stores[experiment.name], agenda.run_ids[experiment.name]
        store.journal.say = observer.message
        store.write_manifest(experiment, run_ids, agenda.datasets, agenda.folder)

    def tasks(wave: Iterable[Job]) -> list[Task]:
        for store in stores:  # this wave may read what the last one wrote
            store.flush()
        return [Task(job, (job.trial, job.sources), job.data, job.since) for job in wave]

    where = min(workers, len(agenda.jobs)), scheduler if agenda.jobs else None, stopping
    try:
        for task, result in spread(train, map(tasks, agenda.waves()), observer.message, *where):
            _keep(task.about, result, ending, observer, task.last)
            if fail_fast and ending.failed:
                stopping.set()
            if (now := time.monotonic()) > due:
                with contextlib.suppress(CbmError):  # at the end of the run it is not
                    for store in stores:
                        store.export()
                due = time.monotonic() + max(EXPORT_EVERY, 20 * (time.monotonic() - now))
    except KeyboardInterrupt:
        if not (fail_fast and ending.failed):
            raise
    finally:
        with contextlib.ExitStack() as all_of_them:  # also if it fails for one of them
            for store in stores:
                all_of_them.callback(store.finish)
    return ending


def _keep(job: Job, result: Any, ending: Ending, observer: RunProgress, is_last: bool) -> None:
    """Write what a trial returned, and tell it."""
    if job.pretraining and not isinstance(result, Failure):
        layers = result.pretrained if isinstance(result, Outcome) or result.stage == job.stages else {}
        for store in job.stores:
            store.write_pretrained(job.pretraining, job.trial.number, layers)
    if isinstance(result, Progress):
        is_due = is_last or result.seconds > ending.saved.get(job.key, 0.0) + SAVE_EVERY
        if is_due and (result.update or result.stage):
            ending.saved[job.key] = result.seconds
            job.stores[0].write_progress(*job.key, result, job.course, job.digest)
        observer.progress(job, result)
    elif isinstance(result, Failure):
        ending.failed.append((job, result))
        for store in job.stores:
            store.write_failure(*job.key, result.details or result.message)
        observer.failed(job, result)
    else:
        for store in job.stores:
            store.write(job.run_id, job.trial, result, job.course, job.digest)
        for name, flaw in result.flaws.items():
            if name not in ending.flaws:
                told = ending.flaws[name] = f"{job.title}: {flaw}"
                observer.message(f"{told}; the trial is kept without what this recorder returns")
            ending.flawed[name] += 1
        observer.finished(job, result)
