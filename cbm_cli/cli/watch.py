"""``cbm ls --watch``: how far a run in another terminal, or on another computer, is."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from cbm_cli.cli.common import say
from cbm_cli.execution.observe import read_progress_file
from cbm_cli.results.lock import Writer, writer_of
from cbm_cli.text import count, duration, harmless

EVERY = 2.0  # seconds


def watch(results: Path) -> None:
    """Show the progress of the run that writes into a results folder until it ends, or once elsewhere.

    Where stdout is no terminal, it is shown once. Ctrl-C ends watching, not the run.
    """
    console = Console(markup=False, emoji=False)
    if not console.is_terminal:
        for line in _lines(writer_of(results), results):
            say(line)
        return
    with Live(console=console, auto_refresh=False) as live:
        while True:
            writer = writer_of(results)
            lines = harmless("\n".join(_lines(writer, results)))
            live.update(Text(lines, no_wrap=True, overflow="ellipsis"), refresh=True)
            if writer is None or writer.alive is False:
                return
            time.sleep(EVERY)


def _lines(writer: Writer | None, results: Path) -> Iterator[str]:
    """Yield who writes, since when, how far the run is, and its running trials."""
    if writer is None:
        yield "no run is writing here"
        return
    if writer.alive is False:
        resume = f"with: {writer.command}" if writer.command else "with the same cbm run"
        yield f"{writer.name} ended without finishing; resume {resume}"
        return
    seconds = max(0.0, time.time() - writer.began / 1e9)
    unseen = ", if it still runs, which cannot be seen from this computer" if writer.alive is None else ""
    yield f"{writer.name} has run for {duration(seconds)}{unseen}"
    facts = read_progress_file(results)
    if facts is None:
        return
    failed = f", {facts['failed']:,} failed" if facts["failed"] else ""
    left = "" if facts["seconds_left"] is None else f", {duration(facts['seconds_left'])} left"
    age = (datetime.now(UTC) - datetime.fromisoformat(facts["written"])).total_seconds()
    old = f" ({duration(age)} ago)" if age > 60 else ""
    yield f"{facts['finished']:,} of {count(facts['trials'], 'trial')} finished{failed}{left}{old}"
    if facts["latest"]:
        yield f"  {facts['latest']}"
    yield from (f"  {line}" for line in facts["running"])
