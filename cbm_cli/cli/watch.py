"""``cbm watch``: how far a run in another terminal, or on another computer, is."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cbm_cli.cli.common import results_argument, say
from cbm_cli.text import count, duration, harmless

if TYPE_CHECKING:
    from cbm_cli.results.activity import Activity, CellActivity, Writer

BLOCKS = "▁▂▃▄▅▆▇█"
WIDTH = 16  # characters of a bar, and of a curve
FEWEST = 3  # cells shown of each experiment, whatever the height of the terminal
_PLAIN_HEIGHT = 60  # lines, where there is no terminal


@click.command()
@results_argument
@click.argument("experiments", nargs=-1, metavar="[EXPERIMENT]...")
@click.option("--every", type=click.FloatRange(0.2), default=2.0, show_default=True, help="Seconds.")
@click.option("--once", is_flag=True, help="Print the state once, as where there is no terminal.")
def watch(results: Path, experiments: tuple[str, ...], every: float, once: bool) -> None:
    """Show how far a run is, from another terminal or computer; nothing is written.

    Each cell has a line: its finished trials, and of its newest trial the curve of the first metric, from
    its lowest to its highest value, the last value and the number of updates. The command ends when all
    trials are finished, or with Ctrl-C.
    """
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from cbm_cli.results import Results
    from cbm_cli.results.activity import Watched, writer_of

    folder = Results(results)
    watched = [Watched(folder.store(name)) for name in experiments or folder.require_experiments()]
    console = Console(markup=False, emoji=False)

    def look(height: int) -> tuple[list[str], bool]:
        writer = writer_of(results)
        found = [one.look(writer.began if writer else time.time_ns()) for one in watched]
        return [*_frame(found, writer, height)], all(one.finished >= one.trials for one in found)

    if once or not console.is_terminal:
        for line in look(_PLAIN_HEIGHT)[0]:
            say(line)
        return
    try:
        with Live(console=console, auto_refresh=False) as live:
            complete = False
            while not complete:
                lines, complete = look(console.height)
                live.update(Text(harmless("\n".join(lines)), no_wrap=True, overflow="crop"), refresh=True)
                time.sleep(0 if complete else every)
    except KeyboardInterrupt:
        return


def _frame(found: Sequence[Activity], writer: Writer | None, height: int) -> Iterator[str]:
    """Yield the lines of a picture of at most so many lines, if it can be."""
    yield _summary(found, writer)
    room = max(FEWEST, (height - 2 - 2 * len(found)) // len(found))
    for one in found:
        filled = round(WIDTH * one.finished / max(one.trials, 1))
        bar = "█" * filled + "░" * (WIDTH - filled)
        yield ""
        yield ", ".join(
            [f"{one.experiment}: {bar} {one.finished:,} of {count(one.trials, 'trial')}", *_counts(one.cells)]
        )
        cells = sorted(one.cells, key=lambda cell: (cell.running == 0, -cell.changed * cell.running))
        yield from _cells(cells[:room], one)
        if len(cells) > room:
            yield f"  and {count(len(cells) - room, 'cell')} more"


def _summary(found: Sequence[Activity], writer: Writer | None) -> str:
    """Say who writes, since when, how fast, and how long it may take."""
    if all(one.finished >= one.trials for one in found):
        return "all trials are finished"
    if writer is None:
        return "no run is writing here; the trials that are missing run with the same cbm run"
    elapsed = max((time.time_ns() - writer.began) / 1e9, 1e-3)
    words = [f"{writer.name} has run for {duration(elapsed)}"]
    active = [one for one in found if one.made]
    made = sum(one.made for one in active)
    if made:
        left = sum(one.left for one in active)
        words += [
            f"{60 * made / elapsed:.3g} trials per minute",
            f"{duration(left * elapsed / made)} left",
        ]
    return ", ".join(words)


def _cells(cells: Sequence[CellActivity], one: Activity) -> Iterator[str]:
    """Yield a line for each cell."""
    widest = max((len(cell.title) for cell in cells), default=0)
    for cell in cells:
        value = f"{cell.curve[-1]:.4f} after {cell.update:,}" if cell.curve else ""
        done = f"{cell.finished:,}/{one.planned:,}"
        line = f"  {cell.title.ljust(widest)}  {done:>7}  {sparkline(cell.curve):{WIDTH}}  {value}"
        yield ", ".join([line, *_counts([cell])]).rstrip()
    if one.metric:
        yield f"  ({one.metric})"


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
