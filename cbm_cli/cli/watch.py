"""``cbm watch``: how far a run in another terminal, or on another computer, is."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

import click

from cbm_cli.cli.common import results_argument, say
from cbm_cli.cli.completion import experiments_argument
from cbm_cli.text import count, decimal, duration, harmless

if TYPE_CHECKING:
    from cbm_cli.results.activity import Activity, CellActivity
    from cbm_cli.results.lock import Writer

BLOCKS = "▁▂▃▄▅▆▇█"
WIDTH = 16  # characters of a bar, and of a curve; less in terminals that are narrower than NARROW
NARROW = 64
FEWEST = 3  # cells shown of each experiment, whatever the height of the terminal
_PLAIN = (60, 1000)  # lines and characters, where there is no terminal


@click.command()
@results_argument
@experiments_argument
@click.option("--every", type=click.FloatRange(0.2), default=2.0, show_default=True, help="Seconds.")
@click.option("--once", is_flag=True, help="Print the state once and exit.")
def watch(results: Path, experiments: tuple[str, ...], every: float, once: bool) -> None:
    """Show the progress of a run.

    It can run in another terminal or on another computer; nothing is written. Each cell has a line: its
    finished trials, and of its newest trial the curve of the first metric, from its lowest to its highest
    value, the last value and the number of updates. The command ends when all trials are finished, or with
    Ctrl-C.
    """
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from cbm_cli.results import Results
    from cbm_cli.results.activity import Watched
    from cbm_cli.results.lock import writer_of

    folder = Results(results)
    watched = [Watched(folder.store(name)) for name in experiments or folder.require_experiments()]
    console = Console(markup=False, emoji=False)

    def look(height: int, width: int) -> tuple[list[str], bool]:
        writer = writer_of(results)
        began = time.time_ns() if writer is None or _has_ended(writer) else writer.began
        found = [one.look(began) for one in watched]
        return [*_frame(found, writer, height, width)], all(one.finished >= one.trials for one in found)

    if once or not console.is_terminal:
        for line in look(*_PLAIN)[0]:
            say(line)
        return
    try:
        with Live(console=console, auto_refresh=False) as live:
            complete = False
            while not complete:
                lines, complete = look(console.height, console.width)
                live.update(Text(harmless("\n".join(lines)), no_wrap=True, overflow="crop"), refresh=True)
                time.sleep(0 if complete else every)
    except KeyboardInterrupt:
        return


def _frame(found: Sequence[Activity], writer: Writer | None, height: int, width: int) -> Iterator[str]:
    """Yield the lines of a picture of at most so many lines, if it can be, of so many characters."""
    summary = wrap(_summary(found, writer), width)
    yield from summary
    heads = [wrap(_head(one, width), width) for one in found]
    taken = len(summary) + sum(map(len, heads)) + 3 * len(found)  # a line before, metric and number of others
    free = height - 1 - taken
    for place, (one, head) in enumerate(zip(found, heads, strict=True)):
        yield from ("", *head)
        room = max(FEWEST, free // (len(found) - place))
        free -= min(room, len(one.cells))
        cells = sorted(one.cells, key=lambda cell: (cell.running == 0, -cell.changed * cell.running))
        yield from _cells(cells[:room], one, width)
        if len(cells) > room:
            yield f"  and {count(len(cells) - room, 'cell')} more"


def _head(one: Activity, width: int) -> str:
    """Say how far an experiment is."""
    size = WIDTH if width >= NARROW else WIDTH // 2
    filled = round(size * one.finished / max(one.trials, 1))
    bar = "█" * filled + "░" * (size - filled)
    done = f"{one.experiment}: {bar} {one.finished:,} of {count(one.trials, 'trial')}"
    return ", ".join([done, *_counts(one.cells)])


def _summary(found: Sequence[Activity], writer: Writer | None) -> str:
    """Say who writes, since when, how fast, and how long it may take."""
    if all(one.finished >= one.trials for one in found):
        return "all trials are finished"
    if writer is None:
        return "no run is writing here; the trials that are missing run with the same cbm run"
    if _has_ended(writer):
        resume = f"with: {writer.command}" if writer.command else "with the same cbm run"
        return f"{writer.name} ended without finishing; resume {resume}"
    elapsed = max((time.time_ns() - writer.began) / 1e9, 1e-3)
    words = [f"{writer.name} has run for {duration(elapsed)}"]
    if writer.alive is None:
        words[0] += ", if it still runs, which cannot be seen from this computer"
    active = [one for one in found if one.made]
    made = sum(one.made for one in active)
    if made:
        left = sum(one.left for one in active)
        words += [
            f"{60 * made / elapsed:.3g} trials per minute",
            f"{duration(left * elapsed / made)} left",
        ]
    return ", ".join(words)


def _has_ended(writer: Writer | None) -> bool:
    return writer is None or writer.alive is False


def _cells(cells: Sequence[CellActivity], one: Activity, width: int) -> Iterator[str]:
    """Yield a line for each cell; where it is narrow, titles and curves are cut and updates left out."""
    from cbm_cli.results.metrics import Metric

    size = WIDTH if width >= NARROW else WIDTH // 2
    lines = []
    for cell in cells:
        value = decimal(cell.curve[-1], ".4f") if cell.curve else ""
        value = f"trial {cell.trial}: {value} after {cell.update:,}" if value and width >= NARROW else value
        done = f"{cell.finished:,}/{one.planned:,}".rjust(2 * len(f"{one.planned:,}") + 1)
        behind = f"  {done}  {sparkline(cell.curve, size):{size}}  {value}"
        lines.append((cell.title, ", ".join([behind, *_counts([cell])]).rstrip()))
    room = max(8, width - 2 - max((len(behind) for _, behind in lines), default=0))
    titles = [title if len(title) <= room else f"{title[: room - 1]}…" for title, _ in lines]
    widest = max(map(len, titles), default=0)
    for title, (_, behind) in zip(titles, lines, strict=True):
        yield f"  {title.ljust(widest)}{behind}"
    if one.metric:
        unit = Metric(one.metric).unit()
        yield f"  ({'newest trial: ' * (width >= NARROW)}{one.metric}{unit and f' {unit}'})"


def _counts(cells: Sequence[CellActivity]) -> list[str]:
    """Say how many trials are running, have diverged or failed, if any."""
    totals = {what: sum(getattr(cell, what) for cell in cells) for what in ("running", "diverged", "failed")}
    return [f"{total:,} {what}" for what, total in totals.items() if total]


def sparkline(values: Sequence[float], width: int = WIDTH) -> str:
    """Return values as a line of blocks from the lowest to the highest; ``x`` where none is finite."""
    size = min(width, len(values))
    groups = [values[len(values) * k // size : len(values) * (k + 1) // size] for k in range(size)]
    means = [
        sum(finite) / len(finite) if (finite := [*filter(math.isfinite, group)]) else math.nan
        for group in groups
    ]
    known = [mean for mean in means if math.isfinite(mean)]
    low, spread = min(known, default=0.0), max(known, default=0.0) - min(known, default=0.0)
    return "".join(
        BLOCKS[min(7, int(8 * (mean - low) / spread)) if spread else 3] if math.isfinite(mean) else "x"
        for mean in means
    )
