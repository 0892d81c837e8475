"""What a run tells while it goes on."""

import math
import time
from contextlib import AbstractContextManager
from statistics import fmean

from cbm_cli.execution.plan import Agenda, Job, Key
from cbm_cli.execution.work import Failure
from cbm_cli.results import Outcome, Progress


class RunProgress(AbstractContextManager):
    """How far a run is, and how long it may take; it is told of everything, and shows nothing."""

    def __init__(self, agenda: Agenda) -> None:
        self.total, self.done, self.failures = len(agenda.jobs), 0, 0
        self.first: dict[Key, float] = {}  # shares of running trials that were made when they first came back
        self.running: dict[Key, tuple[float, str]] = {}  # shares that are made, and a description
        self.gained = 0.0  # of finished trials, in this run
        self.latest, self.started = "", time.monotonic()

    def __exit__(self, *error: object) -> None:
        """End: the run has ended."""

    def message(self, text: str) -> None:
        """Tell the user something at once."""

    def changed(self) -> None:
        """Show what has changed."""

    def progress(self, job: Job, progress: Progress) -> None:
        """Note how far a running trial is."""
        share = job.share(progress)
        self.first.setdefault(job.key, share)
        before = "pre-training, " * (progress.stage < job.stages)
        self.running[job.key] = share, f"{job.title}: {before}update {progress.update:,} ({share:.0%})"
        self.changed()

    def finished(self, job: Job, outcome: Outcome) -> None:
        """Note a finished trial, and the first value of its last evaluation."""
        self.done += 1
        self.gained += 1 - self.first.get(job.key, 0.0)
        self.latest = job.title
        if outcome.diverged is not None:
            self.latest += f": diverged at update {outcome.diverged:,}"
        elif outcome.columns[2:]:
            name, value = outcome.columns[2].replace("_", " "), outcome.curve[-1, 2]
            self.latest += f": {name} {value:.2f} per row"
        self._end(job)

    def failed(self, job: Job, failure: Failure) -> None:
        """Note a failed trial, and say why at once."""
        self.failures += 1
        self.message(f"failed: {job.title}: {failure.message}")
        self._end(job)

    def _end(self, job: Job) -> None:
        self.running.pop(job.key, None)
        self.changed()

    def made(self) -> float:
        """Trials that are made, with the shares of running ones."""
        return self.done + self.failures + sum(share for share, _ in self.running.values())

    def seconds_left(self) -> float | None:
        """Return the time left if trials go on to take as long as they do."""
        gained = self.gained + sum(share - self.first[key] for key, (share, _) in self.running.items())
        elapsed = time.monotonic() - self.started
        return elapsed / gained * (self.total - self.made()) if gained > 0.005 * self.total else None


def seconds_to_do(agenda: Agenda, workers: int) -> float | None:
    """Return the seconds until all jobs are done if each takes as long as finished trials of its cell.

    Cells without finished trials count like those of the other jobs; None without any.
    """
    lines = [store.lines() for store in agenda.stores.values()]
    past: dict[str, list[float]] = {}
    for run_id in {job.run_id for job in agenda.jobs}:
        past[run_id] = [it.seconds for of in lines for it in of.get(run_id, {}).values() if it.finished]
    known = {run_id: fmean(seconds) for run_id, seconds in past.items() if seconds}
    if not known:
        return None
    mean = fmean(known.get(job.run_id, fmean(known.values())) for job in agenda.jobs)
    return mean * math.ceil(len(agenda.jobs) / max(workers, 1))
