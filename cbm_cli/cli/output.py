"""What commands print: data to stdout, notes to stderr, lists, progress, what to type next."""

from __future__ import annotations

import os
import shlex
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from shutil import get_terminal_size, which
from textwrap import fill
from typing import TYPE_CHECKING, Any

import click

from cbm_cli.text import harmless

if TYPE_CHECKING:
    from rich.console import Group

    from cbm_cli.sheets import Sheet

PLAIN_EVERY = 10.0  # seconds between two lines of progress if stderr is no terminal


def say(line: str = "") -> None:
    """Print a line of data to stdout."""
    click.echo(harmless(line))


def note(message: str) -> None:
    """Print something that is not data, to stderr; where it is full or closed, the work goes on."""
    try:
        click.echo(harmless(message), err=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def terminal_width() -> float:
    """Return the columns of the terminal that stdout is, without end for anything else."""
    return get_terminal_size().columns if sys.stdout.isatty() else inf


def print_sheet(sheet: Sheet, format_: str) -> None:
    """Print to stdout: with colours where it is a terminal that shows some."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    click.echo(sheet.render(format_, terminal_width() < inf and not plain), nl=False)


def print_list(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a list to stdout in columns; on a terminal the last one is wrapped between words."""
    lines = [[*map(harmless, line)] for line in (heads, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for *firsts, last in lines:
        start = "".join(f"{text:{width + 2}}" for text, width in zip(firsts, widths, strict=False))
        if len(start) + len(last) > (width := terminal_width()):
            how: Any = {"break_long_words": False, "break_on_hyphens": False}
            space = max(int(width), len(start) + 20)
            last = fill(last, space, initial_indent=start, subsequent_indent=" " * len(start), **how)
            start = ""
        say((start + last).rstrip())


@contextmanager
def live(share: Callable[[], float], words: Callable[[], Sequence[str]]) -> Iterator[Callable[[str], None]]:
    """Show progress on stderr: a bar on a terminal, elsewhere a line every few seconds.

    ``share`` is what is made of the whole; ``words`` are a line beside the bar, and lines below it. Yields a
    function that prints a note above them.
    """
    from rich.console import Console
    from rich.live import Live

    def tell() -> None:
        while not ended.wait(PLAIN_EVERY):
            note(words()[0])

    console, ended = Console(stderr=True), threading.Event()
    how: Any = {"get_renderable": lambda: bar(share(), words()), "refresh_per_second": 4}
    if console.is_terminal:
        with Live(console=console, transient=True, **how):
            yield lambda text: console.print(harmless(text), markup=False, highlight=False, soft_wrap=True)
        return
    threading.Thread(target=tell, daemon=True).start()
    try:
        yield note
    finally:
        ended.set()


def bar(share: float, words: Sequence[str]) -> Group:
    """Draw a bar with words beside and below it."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    first, *others = (Text(harmless(line), no_wrap=True) for line in words)
    head = Table.grid(padding=(0, 1))
    head.add_row(ProgressBar(1.0, share, width=30), first)
    return Group(head, *(Text("  ").append_text(one) for one in others))


def program() -> str:
    """Return how the user can run this cbm: ``cbm`` if the shell finds it, else the path that was typed."""
    typed, found = Path(sys.argv[0]), which("cbm")
    if typed.name == "cbm-cli":  # the same program, next to cbm
        typed = typed.with_name("cbm")
    if typed.name == "__main__.py" and typed.parent.name == "cli":
        return f"{shlex.quote(sys.executable)} -m cbm_cli.cli"
    if typed.name != "cbm" or (found and typed.exists() and typed.samefile(found)):
        return "cbm"
    return shlex.quote(str(typed))


def to_type(*words: object) -> str:
    """Return a command of cbm as a user can type it: words with spaces are quoted."""
    return f"{program()} {shlex.join(map(str, words))}"


def note_next(*lines: str) -> None:
    """Say what to type next."""
    note("Next:  " + "\n       ".join(lines))
