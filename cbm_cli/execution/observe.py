"""What a run tells while it goes on."""

import math
import time
from contextlib import AbstractContextManager
from statistics import fmean

from cbm_cli.execution.jobs import Agenda, Job
from cbm_cli.execution.worker import Failure
from cbm_cli.results import Metric, Outcome
from cbm_cli.text import decimal


class Observer:
    """Is told what happens in a run; this one takes no notice."""

    def progress(self, run_id: str, number: int, made: int, value: float) -> None:
        """A running trial has made so many updates; the first value of its latest evaluation, or NaN."""

    def message(self, text: str) -> None:
        """The user should know this."""

    def finished(self, job: Job, outcome: Outcome) -> None:
        """A trial is finished, and written."""

    def failed(self, job: Job, failure: Failure) -> None:
        """A trial has failed."""


class RunProgress(Observer, AbstractContextManager):
    """How far a run is, and how long it may take."""

    def __init__(self, agenda: Agenda) -> None:
        self.jobs = {job.key: job for job in agenda.jobs}
        self.scales = {experiment.name: experiment.table.scale for experiment in agenda.experiments}
        self.total, self.done, self.failures = len(agenda.jobs), 0, 0
        self.before = sum(_share(job, job.begun) for job in agenda.jobs)  # of earlier runs, in trials
        self.gained = 0.0  # of finished trials, in this run
        self.marks = [(0.0, 0.0)]  # seconds and work of this run, now and then
        self.running: dict[tuple[str, int], tuple[int, str]] = {}  # updates made, and a description
        self.latest = ""
        self.started = time.monotonic()

    def __exit__(self, *error: object) -> None:
        """End showing it."""

    def progress(self, run_id: str, number: int, made: int, value: float) -> None:
        """Note the updates of a running trial, and the first value of its latest evaluation."""
        job = self.jobs[run_id, number]
        before, words = job.pretraining_updates, self._value(job, value)
        where = f"update {made - before:,}" if made >= before else f"pre-training, update {made:,}"
        self.running[run_id, number] = made, where + (f", {words}" if words else "")
        self.changed()

    def finished(self, job: Job, outcome: Outcome) -> None:
        """Note a finished trial."""
        self.done += 1
        self.gained += 1 - _share(job, job.begun)
        self.running.pop(job.key, None)
        words = self._value(job, outcome.curve[-1, 2] if outcome.curve.shape[1] > 2 else math.nan)
        if outcome.diverged is not None:
            words = f"diverged at update {outcome.diverged:,}"
        self.latest = f"{job.title}: {words}" if words else job.title
        self.changed()

    def failed(self, job: Job, failure: Failure) -> None:
        """Note a failed trial."""
        self.failures += 1
        self.running.pop(job.key, None)
        self.changed()

    def changed(self) -> None:
        """Show what has changed."""

    def of_running(self, key: tuple[str, int]) -> str:
        """Return a line about a running trial."""
        return f"{self.jobs[key].title}: {self.running[key][1]}"

    def work(self) -> tuple[float, float]:
        """Return the work of this run, and what is left, in trials; running ones count by their updates."""
        running = [(self.jobs[key], made) for key, (made, _) in list(self.running.items())]
        gained = self.gained + sum(_share(job, made) - _share(job, job.begun) for job, made in running)
        return gained, self.total - self.failures - self.before - gained

    def seconds_left(self, elapsed: float) -> float | None:
        """Return the time left at the rate of the second half of the time, as later work may be slower."""
        gained, left = self.work()
        if elapsed > 1.01 * self.marks[-1][0]:
            self.marks.append((elapsed, gained))
        while self.marks[1:] and self.marks[1][0] <= elapsed / 2:
            del self.marks[0]
        then, before = self.marks[0]
        known = gained > max(before, 0.005 * (gained + left))
        return (elapsed - then) / (gained - before) * left if known else None

    def _value(self, job: Job, value: float) -> str:
        """The first value of an evaluation, such as ``train cost 54.32``, in the scale of the table."""
        how = job.trial.settings
        if how.evaluation == "none" or math.isnan(value):
            return ""
        bounded = how.evaluation == "ais" and how.model.kind == "dbm"
        names = {"cost": "cost", "pseudo": "pseudo_likelihood"}
        metric = "lower_bound" if bounded else names.get(how.evaluation, "log_likelihood")
        chosen, rows = (how.evaluate.parts or "train").split("+"), job.data.parts
        part = next(part for part in ("train", "valid", "test") if part in chosen and part in rows)
        total = job.stores and self.scales.get(job.stores[0].experiment) == "total"
        value *= len(rows[part]) if total else 1
        unit = Metric(f"{part}_{metric}").unit("total" if total else "per-sample", [len(rows[part])])
        return f"{part} {Metric(metric).name} {decimal(value, '.2f')} {unit}"


def _share(job: Job, made: int) -> float:
    """Share of a trial's updates, those of pre-training included, that are made."""
    return min(made / (job.pretraining_updates + job.updates), 1)


def seconds_to_do(agenda: Agenda) -> float | None:
    """Return the seconds of all jobs together if each takes as long as finished trials of its cell.

    Cells without finished trials count like those of the other jobs; None without any.
    """
    past = next((job.stores[0].seconds() for job in agenda.jobs), {})
    known = {job.run_id: fmean(past[job.run_id]) for job in agenda.jobs if past.get(job.run_id)}
    return sum(known.get(job.run_id, fmean(known.values())) for job in agenda.jobs) if known else None
