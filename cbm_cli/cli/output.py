"""What commands print: data to stdout, notes to stderr, lists, progress, what to type
next.
"""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from cbm_cli.text import harmless

if TYPE_CHECKING:
    from rich.console import Group

PLAIN_EVERY = 10.0  # seconds between two lines of progress if stderr is no terminal


def say(line: str = "") -> None:
    """Print a line of data to stdout."""
    click.echo(harmless(line))


def note(message: str) -> None:
    """Print something that is not data, to stderr; where it is full or closed, the work
    goes on.
    """
    try:
        click.echo(harmless(message), err=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def print_list(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a list to stdout in columns."""
    lines = [[*map(harmless, line)] for line in (heads, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        say(
            "".join(
                f"{text:{width + 2}}" for text, width in zip(line, widths, strict=True)
            ).rstrip()
        )


@contextmanager
def live(
    share: Callable[[], float], words: Callable[[], Sequence[str]]
) -> Iterator[Callable[[str], None]]:
    """Show progress on stderr: a bar on a terminal, elsewhere a line every few seconds.

    ``share`` is what is made of the whole; ``words`` are lines below the bar, the first
    of them also for elsewhere. Yields a function that prints a note above them.
    """
    from rich.console import Console
    from rich.live import Live

    def tell() -> None:
        while not ended.wait(PLAIN_EVERY):
            note(words()[0])

    console, ended = Console(stderr=True), threading.Event()
    how: Any = {
        "get_renderable": lambda: bar(share(), words()),
        "refresh_per_second": 4,
    }
    if console.is_terminal:
        with Live(console=console, transient=True, **how):
            yield lambda text: console.print(
                harmless(text), markup=False, highlight=False, soft_wrap=True
            )
        return
    threading.Thread(target=tell, daemon=True).start()
    try:
        yield note
    finally:
        ended.set()


def bar(share: float, words: Sequence[str]) -> Group:
    """Draw a bar with lines of words below it."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    lines = (Text(harmless(line), no_wrap=True) for line in words)
    return Group(ProgressBar(1.0, share, width=30), *lines)


def to_type(*words: object) -> str:
    """Return a command of cbm as a user can type it: words with spaces are quoted."""
    return f"cbm {shlex.join(map(str, words))}"
