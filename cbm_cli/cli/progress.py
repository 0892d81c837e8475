"""Live progress on stderr: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cbm_cli.results import Metric
from cbm_cli.text import decimal, duration, harmless

if TYPE_CHECKING:
    from cbm_cli.execution import Agenda, Job
    from cbm_cli.results import Outcome

PLAIN_EVERY = 10.0  # seconds between two lines if stderr is not a terminal
SHOWN = 4  # running trials shown at a time


class Display:
    """Finished trials, the latest log-likelihoods, bounds or costs, and the time left."""

    def __init__(self, agenda: Agenda) -> None:
        self.jobs = {job.key: job for job in agenda.jobs}
        self.scales = {experiment.name: experiment.table.scale for experiment in agenda.experiments}
        self.total, self.done = len(agenda.jobs), 0
        self.before = sum(_share(job, job.begun) for job in agenda.jobs)  # of earlier runs, in trials
        self.gained = 0.0  # of finished trials, in this run
        self.marks = [(0.0, 0.0)]  # seconds and work of this run, now and then
        self.running: dict[tuple[str, int], tuple[int, str]] = {}  # updates made, and a description
        self.latest = ""
        self.started = self.printed = time.monotonic()
        self.console = Console(stderr=True, markup=False, emoji=False)
        self.live = Live(
            console=self.console, get_renderable=self._lines, refresh_per_second=4, transient=True
        )

    def __enter__(self) -> Display:
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def listen(self, run_id: str, number: int, made: int, value: float) -> None:
        """Note the updates of a running trial, and the first value of its latest evaluation."""
        job = self.jobs[run_id, number]
        before, words = job.pretraining_updates, self._value(job, value)
        where = f"update {made - before:,}" if made >= before else f"pre-training, update {made:,}"
        self.running[run_id, number] = made, where + (f", {words}" if words else "")
        self._print_now_and_then()

    def finished(self, job: Job, outcome: Outcome) -> None:
        """Note a finished trial."""
        self.done += 1
        self.gained += 1 - _share(job, job.begun)
        self.running.pop(job.key, None)
        words = self._value(job, outcome.curve[-1, 2] if outcome.curve.shape[1] > 2 else math.nan)
        if outcome.diverged is not None:
            words = f"diverged at update {outcome.diverged:,}"
        self.latest = f"{job.title}: {words}" if words else job.title
        self._print_now_and_then()

    def say(self, message: str) -> None:
        """Print a message above the progress."""
        self.console.print(message, markup=False, highlight=False, soft_wrap=True)

    def _value(self, job: Job, value: float) -> str:
        """The first value of an evaluation, such as ``train cost 54.32``, in the scale of the table."""
        how = job.trial.settings
        if how.evaluation == "none" or math.isnan(value):
            return ""
        bounded = how.evaluation == "ais" and how.model.kind == "dbm"
        metric = "lower_bound" if bounded else "cost" if how.evaluation == "cost" else "log_likelihood"
        chosen, rows = (how.evaluate.parts or "train").split("+"), job.data.parts
        part = next(part for part in ("train", "valid", "test") if part in chosen and part in rows)
        total = job.stores and self.scales.get(job.stores[0].experiment) == "total"
        value *= len(rows[part]) if total else 1
        unit = Metric(f"{part}_{metric}").unit("total" if total else "per-sample", [len(rows[part])])
        return f"{part} {Metric(metric).name} {decimal(value, '.2f')} {unit}"

    def _print_now_and_then(self) -> None:
        if not self.console.is_terminal and time.monotonic() - self.printed > PLAIN_EVERY:
            self.printed = time.monotonic()
            self.console.print(self._status(), highlight=False, soft_wrap=True)

    def _work(self) -> tuple[float, float]:
        """The work of this run, and what is left, in trials; running trials count by their updates."""
        running = [(self.jobs[key], made) for key, (made, _) in list(self.running.items())]
        gained = self.gained + sum(_share(job, made) - _share(job, job.begun) for job, made in running)
        return gained, self.total - self.before - gained

    def _seconds_left(self, elapsed: float) -> float | None:
        """Seconds left at the rate of the second half of the time, as later work may be slower."""
        gained, left = self._work()
        if elapsed > 1.01 * self.marks[-1][0]:
            self.marks.append((elapsed, gained))
        while self.marks[1:] and self.marks[1][0] <= elapsed / 2:
            del self.marks[0]
        then, before = self.marks[0]
        known = gained > max(before, 0.005 * (gained + left))
        return (elapsed - then) / (gained - before) * left if known else None

    def _status(self) -> str:
        elapsed = time.monotonic() - self.started
        left = self._seconds_left(elapsed)
        ahead = "" if left is None else f", {duration(left)} left"
        latest = self.latest or next((self._running(key) for key in list(self.running)), "")
        done = f"{self.done:,} of {self.total:,} trials, {duration(elapsed)}{ahead}"
        return harmless(f"{done}; {latest}".rstrip("; "))

    def _running(self, key: tuple[str, int]) -> str:
        return harmless(f"{self.jobs[key].title}: {self.running[key][1]}")

    def _lines(self) -> Group:
        head = Table.grid(padding=(0, 1))
        head.add_row(ProgressBar(max(self.total, 1), self.total - self._work()[1], width=30), self._status())
        running = (Text(f"  {self._running(key)}", no_wrap=True) for key in [*self.running][-SHOWN:])
        return Group(head, *running)


def _share(job: Job, made: int) -> float:
    """Share of a trial's updates, those of pre-training included, that are made."""
    return min(made / (job.pretraining_updates + job.updates), 1)
