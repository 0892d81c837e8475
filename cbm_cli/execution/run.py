"""Running an agenda: tasks are spread, results written, exports kept current; how far a
run is.
"""

import contextlib
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from cbm_cli.errors import CbmError
from cbm_cli.execution.agenda import Agenda, Job, TrialKey
from cbm_cli.execution.pool import Task, spread
from cbm_cli.execution.work import Failure, train
from cbm_cli.results import Outcome, Progress
from cbm_cli.text import duration

SAVE_EVERY = 30.0  # seconds of a trial between two states on disk
SHOWN = 4  # running trials shown at a time
EXPORT_EVERY = 60.0  # seconds between two exports of results, more if they take long


class RunProgress:
    """How far a run is, and how long it may take; ``message`` gets what the user should
    know at once.
    """

    def __init__(self, agenda: Agenda) -> None:
        self.message: Callable[[str], None] = lambda text: None
        self.total, self.done, self.failures = len(agenda.jobs), 0, 0
        self.running: dict[
            TrialKey, tuple[float, str]
        ] = {}  # shares that are made, and a description
        self.before = (
            0.0  # trials that were made before this run: shares of those that resume
        )
        self.latest, self.started = "", time.monotonic()

    def progress(self, job: Job, progress: Progress) -> None:
        """Note how far a running trial is."""
        share = job.share(progress)
        self.before += share if job.state and job.key not in self.running else 0.0
        before = "pre-training, " * (progress.stage < job.stages)
        self.running[job.key] = (
            share,
            f"{job.title}: {before}update {progress.update:,} ({share:.0%})",
        )

    def finished(self, job: Job, outcome: Outcome) -> None:
        """Note a finished trial, and the first value of its last evaluation."""
        self.done += 1
        self.latest = job.title
        if outcome.diverged is not None:
            self.latest += f": diverged at update {outcome.diverged:,}"
        elif outcome.columns[2:]:
            name, value = outcome.columns[2].replace("_", " "), outcome.curve[-1, 2]
            self.latest += f": {name} {value:.2f} per row"
        self.running.pop(job.key, None)

    def failed(self, job: Job, failure: Failure) -> None:
        """Note a failed trial, and say why at once."""
        self.failures += 1
        self.message(f"failed: {job.title}: {failure.message}")
        self.running.pop(job.key, None)

    def share(self) -> float:
        """Return how much of the run is made, with the shares of running trials."""
        running = sum(
            share for share, _ in [*self.running.values()]
        )  # which another thread changes
        return (self.done + self.failures + running) / max(self.total, 1)

    def words(self) -> list[str]:
        """Return what is done, the time left if trials take as long as they did, and
        running trials.
        """
        elapsed, shown = (
            time.monotonic() - self.started,
            [words for _, words in [*self.running.values()]],
        )
        words = f"{self.done:,} of {self.total:,} trials, {duration(elapsed)}"
        gained = self.share() * self.total - self.failures - self.before
        if gained > 0.005 * self.total:
            words += (
                f", {duration(elapsed / gained * self.total * (1 - self.share()))} left"
            )
        latest = self.latest or next(iter(shown), "")
        return [f"{words}; {latest}".rstrip("; "), *shown[-SHOWN:]]


@dataclass
class Ending:
    """How a run ended."""

    failed: list[tuple[Job, Failure]] = field(default_factory=list)
    flawed: Counter[str] = field(
        default_factory=Counter
    )  # trials in which a recorder of the user failed
    flaws: dict[str, str] = field(default_factory=dict)  # the first error of each
    saved: dict[TrialKey, float] = field(
        default_factory=dict
    )  # seconds of trials when they were last saved


def run_agenda(
    agenda: Agenda,
    observer: RunProgress,
    *,
    workers: int,
    scheduler: str | None = None,
    fail_fast: bool = False,
) -> Ending:
    """Run every job of the agenda and write its outcome.

    Trials run on ``workers`` processes (0: in this one), or on the cluster of a Dask
    scheduler. Ctrl-C raises KeyboardInterrupt once trials and progress are written. The
    first failure ends the run if ``fail_fast``.
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
        return [
            Task(job, (job.trial, job.sources), job.data, job.since) for job in wave
        ]

    where = min(workers, len(agenda.jobs)), scheduler if agenda.jobs else None, stopping
    try:
        for task, result in spread(
            train, map(tasks, agenda.waves()), observer.message, *where
        ):
            _keep(task.about, result, ending, observer, task.last)
            if fail_fast and ending.failed:
                stopping.set()
            if (now := time.monotonic()) > due:
                with contextlib.suppress(CbmError):  # at the end of the run it is not
                    for store in stores:
                        store.export()
                due = time.monotonic() + max(
                    EXPORT_EVERY, 20 * (time.monotonic() - now)
                )
    except KeyboardInterrupt:
        if not (fail_fast and ending.failed):
            raise
    finally:
        with contextlib.ExitStack() as all_of_them:  # also if it fails for one of them
            for store in stores:
                all_of_them.callback(store.finish)
    return ending


def _keep(
    job: Job, result: Any, ending: Ending, observer: RunProgress, is_last: bool
) -> None:
    """Write what a trial returned, and tell it."""
    if job.pretraining and not isinstance(result, Failure):
        layers = (
            result.pretrained
            if isinstance(result, Outcome) or result.stage == job.stages
            else {}
        )
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
                observer.message(
                    f"{told}; the trial is kept without what this recorder returns"
                )
            ending.flawed[name] += 1
        observer.finished(job, result)


def seconds_to_do(agenda: Agenda, workers: int) -> float | None:
    """Return the seconds until all jobs are done if each takes as long as finished
    trials of its cell.

    Cells without finished trials count like those of the other jobs; None without any.
    """
    lines = [store.lines() for store in agenda.stores.values()]
    known = dict[str, float]()
    for run_id in {job.run_id for job in agenda.jobs}:
        if past := [
            it.seconds
            for of in lines
            for it in of.get(run_id, {}).values()
            if it.finished
        ]:
            known[run_id] = fmean(past)
    if not known:
        return None
    mean = fmean(known.get(job.run_id, fmean(known.values())) for job in agenda.jobs)
    return mean * math.ceil(len(agenda.jobs) / max(workers, 1))
