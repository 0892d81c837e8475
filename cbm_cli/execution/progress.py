"""Progress and events of a run, for its display."""

import math
import time
from collections.abc import Callable
from statistics import fmean

from cbm_cli.execution.agenda import Agenda, Job, TrialKey
from cbm_cli.execution.work import Failure
from cbm_cli.results import Outcome, Progress
from cbm_cli.text import duration

SHOWN = 4  # running trials shown at a time


class RunProgress:
    """How far a run is, and how long it may take; ``message`` gets what the user should know at once."""

    def __init__(self, agenda: Agenda) -> None:
        self.message: Callable[[str], None] = lambda text: None
        self.total, self.done, self.failures = len(agenda.jobs), 0, 0
        self.running: dict[TrialKey, tuple[float, str]] = {}  # shares that are made, and a description
        self.before = 0.0  # trials that were made before this run: shares of those that resume
        self.latest, self.started = "", time.monotonic()

    def progress(self, job: Job, progress: Progress) -> None:
        """Note how far a running trial is."""
        share = job.share(progress)
        self.before += share if job.state and job.key not in self.running else 0.0
        before = "pre-training, " * (progress.stage < job.stages)
        self.running[job.key] = share, f"{job.title}: {before}update {progress.update:,} ({share:.0%})"

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
        running = sum(share for share, _ in [*self.running.values()])  # which another thread changes
        return (self.done + self.failures + running) / max(self.total, 1)

    def words(self) -> list[str]:
        """Return what is done, the time left if trials take as long as they did, and running trials."""
        elapsed, shown = time.monotonic() - self.started, [words for _, words in [*self.running.values()]]
        words = f"{self.done:,} of {self.total:,} trials, {duration(elapsed)}"
        gained = self.share() * self.total - self.failures - self.before
        if gained > 0.005 * self.total:
            words += f", {duration(elapsed / gained * self.total * (1 - self.share()))} left"
        latest = self.latest or next(iter(shown), "")
        return [f"{words}; {latest}".rstrip("; "), *shown[-SHOWN:]]


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
