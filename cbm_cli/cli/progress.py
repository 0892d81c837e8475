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
from cbm_cli.text import duration, harmless

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
        self.running: dict[tuple[str, int], tuple[int, str]] = {}  # update, and a description
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

    def listen(self, run_id: str, number: int, update: int, value: float) -> None:
        """Note the update of a running trial, and the first value of its latest evaluation."""
        words = self._value(self.jobs[run_id, number], value)
        self.running[run_id, number] = update, f"update {update:,}" + (f", {words}" if words else "")
        self._print_now_and_then()

    def finished(self, job: Job, outcome: Outcome) -> None:
        """Note a finished trial."""
        self.done += 1
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
        return f"{part} {Metric(metric).name} {value:.2f}"

    def _print_now_and_then(self) -> None:
        if not self.console.is_terminal and time.monotonic() - self.printed > PLAIN_EVERY:
            self.printed = time.monotonic()
            self.console.print(self._status(), highlight=False, soft_wrap=True)

    def _share(self) -> float:
        """Share of the work that is done; running trials count by their updates."""
        parts = (min(where[0] / self.jobs[key].updates, 1) for key, where in list(self.running.items()))
        return (self.done + sum(parts)) / max(self.total, 1)

    def _status(self) -> str:
        elapsed, share = time.monotonic() - self.started, self._share()
        ahead = f", {duration(elapsed / share * (1 - share))} left" if share > 0.005 else ""
        latest = self.latest or next((self._running(key) for key in list(self.running)), "")
        done = f"{self.done:,} of {self.total:,} trials, {duration(elapsed)}{ahead}"
        return harmless(f"{done}; {latest}".rstrip("; "))

    def _running(self, key: tuple[str, int]) -> str:
        return harmless(f"{self.jobs[key].title}: {self.running[key][1]}")

    def _lines(self) -> Group:
        head = Table.grid(padding=(0, 1))
        head.add_row(ProgressBar(1.0, self._share(), width=30), self._status())
        running = (Text(f"  {self._running(key)}", no_wrap=True) for key in [*self.running][-SHOWN:])
        return Group(head, *running)
