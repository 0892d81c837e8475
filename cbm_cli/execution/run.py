"""Running an agenda: tasks are spread, and results written; how far a run is."""

import math
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from cbm_cli.execution.agenda import Agenda, Job, TrialKey
from cbm_cli.execution.spread import Task, spread
from cbm_cli.execution.work import Failure, Say, train
from cbm_cli.results import Outcome, Progress
from cbm_cli.results.writer import Lock, Writer
from cbm_cli.text import duration

SAVE_EVERY = 30.0  # seconds of a trial between two states on disk
SHOWN = 4  # running trials shown at a time


class RunProgress:
    """How far a run is, and how long it may take; ``message`` gets what the user should
    know at once.
    """

    def __init__(self, agenda: Agenda) -> None:
        self.message: Say = print
        self.total = len(agenda.jobs)
        self.done = 0
        self.failures = 0
        # Shares that are made, and a description
        self.running: dict[TrialKey, tuple[float, str]] = {}
        # Trials that were made before this run: shares of those that resume
        self.before = 0.0
        self.latest = ""
        self.started = time.monotonic()

    def progress(self, job: Job, progress: Progress) -> None:
        """Note how far a running trial is."""
        share = job.share(progress)
        if job.state and job.key not in self.running:
            self.before += share
        stage = "pre-training, " if progress.stage < job.stages else ""
        words = f"{job.title}: {stage}update {progress.update:,} ({share:.0%})"
        self.running[job.key] = share, words

    def finished(self, job: Job, outcome: Outcome) -> None:
        """Note a finished trial, and the first value of its last evaluation."""
        self.done += 1
        self.latest = job.title
        if outcome.diverged is not None:
            self.latest += f": diverged at update {outcome.diverged:,}"
        elif outcome.columns[2:]:
            name = outcome.columns[2].replace("_", " ")
            self.latest += f": {name} {outcome.curve[-1, 2]:.2f} per row"
        self.running.pop(job.key, None)

    def failed(self, job: Job, failure: Failure) -> None:
        """Note a failed trial, and say why at once."""
        self.failures += 1
        self.message(f"failed: {job.title}: {failure.message}")
        self.running.pop(job.key, None)

    def share(self) -> float:
        """Return how much of the run is made, with the shares of running trials."""
        running = sum(share for share, _ in self.running.copy().values())
        return (self.done + self.failures + running) / max(self.total, 1)

    def seconds_left(self) -> float | None:
        """Return the seconds until the end if trials take as long as they did.

        None where that is not known: at the beginning, and while only evaluations
        remain, which no share of updates counts.
        """
        share = self.share()
        gained = share * self.total - self.failures - self.before
        if gained <= 0.005 * self.total:
            return None
        elapsed = time.monotonic() - self.started
        left = elapsed / gained * self.total * (1 - share)
        return left if left >= 0.5 else None

    def words(self) -> list[str]:
        """Return what is done, the time left, and running trials."""
        # Another thread changes what is running
        running = [words for _, words in self.running.copy().values()]
        elapsed = duration(time.monotonic() - self.started)
        words = f"{self.done:,} of {self.total:,} trials, {elapsed}"
        left = self.seconds_left()
        if left is not None:
            words += f", {duration(left)} left"
        latest = self.latest or next(iter(running), "")
        return [f"{words}; {latest}".rstrip("; "), *running[-SHOWN:]]


@dataclass
class Ending:
    """How a run ended."""

    failed: list[tuple[Job, Failure]] = field(default_factory=list)
    # Errors of recorders of the user that failed, by their name: one for each trial
    flaws: dict[str, list[str]] = field(default_factory=dict)
    # Seconds of trials when they were last saved
    saved: dict[TrialKey, float] = field(default_factory=dict)


def run_agenda(
    agenda: Agenda,
    observer: RunProgress,
    lock: Lock,
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
    ending = Ending()
    stopping = threading.Event()
    writers = _begin(agenda, observer, lock)

    def tasks(jobs: Iterable[Job]) -> list[Task]:
        for writer in writers:  # this wave may read what the last one wrote
            writer.journal.flush()
        return [
            Task(job, (job.trial, job.sources), job.data, job.since) for job in jobs
        ]

    results = spread(
        train,
        waves=map(tasks, agenda.waves()),
        say=observer.message,
        workers=min(workers, len(agenda.jobs)),
        scheduler=scheduler if agenda.jobs else None,
        stopping=stopping,
    )
    try:
        for task, result in results:
            _keep(task, result, lock=lock, ending=ending, observer=observer)
            if fail_fast and ending.failed:
                stopping.set()
    except KeyboardInterrupt:
        if not (fail_fast and ending.failed):
            raise
    finally:
        with ExitStack() as stack:  # also if it fails for one of them
            for writer in writers:
                stack.callback(writer.finish)
    return ending


def _begin(agenda: Agenda, observer: RunProgress, lock: Lock) -> list[Writer]:
    """Set damaged states aside and write the manifests; return the writers of all
    experiments.
    """
    for path in agenda.damaged_states:
        observer.message(f"{path}: kept as {lock.set_aside(path).name}")
    lock.checked = agenda.checked
    writers = []
    for experiment in agenda.experiments:
        writer = lock.writer(experiment.name)
        writer.journal.say = observer.message
        writer.write_manifest(
            experiment,
            run_ids=agenda.run_ids[experiment.name],
            datasets=agenda.datasets,
            folder=agenda.folder,
        )
        writers.append(writer)
    return writers


def _keep(
    task: Task, result: Any, lock: Lock, ending: Ending, observer: RunProgress
) -> None:
    """Write what a trial returned, and tell it.

    Finished trials are kept by each experiment that wants them. One copy of a state is
    enough: a run looks for states in all experiments of a results folder.
    """
    job: Job = task.about
    run_id, number = job.key
    writers = [lock.writer(store.experiment) for store in job.stores]
    if isinstance(result, Failure):
        ending.failed.append((job, result))
        for writer in writers:
            writer.write_failure(run_id, number, result.details or result.message)
        observer.failed(job, result)
        return
    if job.pretraining:
        is_pretrained = isinstance(result, Outcome) or result.stage == job.stages
        if is_pretrained:
            for writer in writers:
                writer.write_pretrained(job.pretraining, number, result.pretrained)
    if isinstance(result, Progress):
        seconds = result.seconds - ending.saved.get(job.key, 0.0)
        has_begun = result.update or result.stage
        if has_begun and (task.last or seconds > SAVE_EVERY):
            ending.saved[job.key] = result.seconds
            writers[0].write_progress(
                run_id, number, result, course=job.course, start=job.digest
            )
        observer.progress(job, result)
        return
    for writer in writers:
        writer.write(run_id, job.trial, result, job.course, job.digest)
    for name, flaw in result.flaws.items():
        errors = ending.flaws.setdefault(name, [])
        errors.append(f"{job.title}: {flaw}")
        if len(errors) == 1:
            consequence = "the trial is kept without what this recorder returns"
            observer.message(f"{errors[0]}; {consequence}")
    observer.finished(job, result)


def seconds_to_do(agenda: Agenda, workers: int) -> float | None:
    """Return the seconds until all jobs are done if each takes as long as finished
    trials of its cell.

    Cells without finished trials count like those of the other jobs; None without any.
    """
    runs = [store.lines() for store in agenda.stores.values()]
    means: dict[str, float] = {}
    for run_id in {job.run_id for job in agenda.jobs}:
        seconds = []
        for lines in runs:
            trials = lines.get(run_id, {}).values()
            seconds += [line.seconds for line in trials if line.finished]
        if seconds:
            means[run_id] = fmean(seconds)
    if not means:
        return None
    usual = fmean(means.values())
    mean = fmean(means.get(job.run_id, usual) for job in agenda.jobs)
    return mean * math.ceil(len(agenda.jobs) / max(workers, 1))
