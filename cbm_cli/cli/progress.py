"""Live progress on stderr: a line that changes on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

from cbm_cli.results import Metric

if TYPE_CHECKING:
    from cbm_cli.execution import Job
    from cbm_cli.execution.jobs import Agenda
    from cbm_cli.grid.settings import Settings
    from cbm_cli.results import Outcome

PLAIN_EVERY = 10.0  # seconds between two lines where stderr is no terminal
SHOWN = 4  # running trials shown at a time


def duration(seconds: float) -> str:
    """Seconds as people say them: ``2 h 05 min``, ``3 min 20 s``, ``12 s``."""
    if not math.isfinite(seconds):
        return "unknown"
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def first_metric(settings: Settings) -> str:
    """What the first value of an evaluation in training is; empty where nothing is evaluated."""
    if settings.evaluation == "none":
        return ""
    if settings.evaluation == "ais" and settings.model.kind == "dbm":
        return "lower_bound"
    return "cost" if settings.evaluation == "cost" else "log_likelihood"


class Progress:
    """Trials done, the latest log-likelihoods, bounds or costs, and the time left."""

    def __init__(self, agenda: Agenda) -> None:
        self.jobs = {job.key: job for job in agenda.jobs}
        self.summed = {one.name for one in agenda.experiments if one.table.scale == "total"}
        self.total, self.done = len(agenda.jobs), 0
        self.running: dict[tuple[str, int], tuple[int, str]] = {}  # update, and words about it
        self.latest = ""
        self.started = self.printed = time.monotonic()
        self.console = Console(stderr=True)
        self.live = Live(
            console=self.console, get_renderable=self._lines, refresh_per_second=4, transient=True
        )

    def __enter__(self) -> Progress:
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Leave the terminal as it was."""
        self.live.stop()

    def listen(self, run_id: str, number: int, update: int, value: float) -> None:
        """Note where a running trial is, and the first value of its latest evaluation."""
        words = self._words(self.jobs[run_id, number], value)
        self.running[run_id, number] = update, f"update {update}" + (f", {words}" if words else "")
        self._print_now_and_then()

    def finished(self, job: Job, outcome: Outcome) -> None:
        """Note a finished trial."""
        self.done += 1
        self.running.pop(job.key, None)
        value = outcome.curve[-1, 2] if outcome.curve.shape[1] > 2 else math.nan
        words = self._words(job, value)
        if outcome.diverged is not None:
            words = f"diverged at update {outcome.diverged}"
        self.latest = f"{job.title}: {words}" if words else job.title
        self._print_now_and_then()

    def _words(self, job: Job, value: float) -> str:
        """Return the first value of an evaluation, in the scale of the table; empty without one."""
        settings, summed = job.trial.settings, job.trial.experiment in self.summed
        metric = first_metric(settings)
        if not metric or math.isnan(value):
            return ""
        part = (settings.evaluate.parts or "train").partition("+")[0]
        scaled = value * (len(job.data.parts[part]) if summed else 1)
        return f"{Metric(metric).name} {scaled:.2f} {'in total' if summed else 'per sample'}"

    def _print_now_and_then(self) -> None:
        if not self.console.is_terminal and time.monotonic() - self.printed > PLAIN_EVERY:
            self.printed = time.monotonic()
            self.console.print(self._status(), highlight=False, soft_wrap=True)

    def _share(self) -> float:
        """Share of the work that is done, running trials counted by their updates."""
        parts = (min(where[0] / self.jobs[key].updates, 1) for key, where in list(self.running.items()))
        return (self.done + sum(parts)) / max(self.total, 1)

    def _status(self) -> str:
        elapsed, share = time.monotonic() - self.started, self._share()
        ahead = f", {duration(elapsed / share * (1 - share))} left" if share > 0.005 else ""
        latest = self.latest or next((self._running(key) for key in list(self.running)), "")
        return f"{self.done}/{self.total} trials, {duration(elapsed)}{ahead}; {latest}".rstrip("; ")

    def _running(self, key: tuple[str, int]) -> str:
        return f"{self.jobs[key].title}: {self.running[key][1]}"

    def _lines(self) -> Text:
        width = 30
        full = int(width * self._share())
        lines = [f"{'━' * full}{'╌' * (width - full)} {self._status()}"]
        lines += [f"  {self._running(key)}" for key in [*self.running][-SHOWN:]]
        return Text("\n".join(lines), overflow="ellipsis", no_wrap=True)
