"""Live progress on stderr: a bar on a terminal, a line every few seconds elsewhere."""

import time
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cbm_cli.cli.common import PLAIN_EVERY
from cbm_cli.execution.plan import Agenda
from cbm_cli.execution.progress import RunProgress
from cbm_cli.text import duration, harmless

SHOWN = 4  # running trials shown at a time


class Display(RunProgress):
    """Finished trials, the latest log-likelihoods, bounds or costs, and the time left."""

    def __init__(self, agenda: Agenda) -> None:
        super().__init__(agenda)
        self.printed = time.monotonic()
        self.console = Console(stderr=True, markup=False, emoji=False)
        self.live = Live(
            console=self.console, get_renderable=self._lines, refresh_per_second=4, transient=True
        )

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.live.stop()

    def message(self, text: str) -> None:
        """Print a message above the progress."""
        self.console.print(harmless(text), markup=False, highlight=False, soft_wrap=True)

    def changed(self) -> None:
        """Print a line, now and then."""
        if not self.console.is_terminal and time.monotonic() - self.printed > PLAIN_EVERY:
            self.printed = time.monotonic()
            self.console.print(self._status(), highlight=False, soft_wrap=True)

    def _status(self) -> str:
        elapsed = time.monotonic() - self.started
        left = self.seconds_left()
        ahead = "" if left is None else f", {duration(left)} left"
        latest = self.latest or next((words for _, words in [*self.running.values()]), "")
        done = f"{self.done:,} of {self.total:,} trials, {duration(elapsed)}{ahead}"
        return harmless(f"{done}; {latest}".rstrip("; "))

    def _lines(self) -> Group:
        head = Table.grid(padding=(0, 1))
        head.add_row(ProgressBar(max(self.total, 1), self.made(), width=30), self._status())
        shown = [*self.running.values()][-SHOWN:]
        return Group(head, *(Text(harmless(f"  {words}"), no_wrap=True) for _, words in shown))
