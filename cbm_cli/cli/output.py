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

from cbm_cli.text import harmless, valid_json

if TYPE_CHECKING:
    from rich.console import Group

PLAIN_EVERY = 10.0  # seconds between two lines of progress if stderr is no terminal


def _echo(text: str, is_data: bool = True, newline: bool = True) -> None:
    """Print a text. Everything that commands print goes through here: texts of files
    may have characters that change a terminal.
    """
    click.echo(harmless(text), err=not is_data, nl=newline)


def say(line: str = "") -> None:
    """Print a line of data to stdout."""
    _echo(line)


def say_text(text: str) -> None:
    """Print data of several lines to stdout, with their last end of line."""
    _echo(text, newline=False)


def say_json(value: Any, indent: int | None = None) -> None:
    """Print data as JSON to stdout."""
    _echo(valid_json(value, indent))


def note(message: str) -> None:
    """Print something that is not data, to stderr; where it is full or closed, the work
    goes on.
    """
    try:
        _echo(message, is_data=False)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


class Complaint(click.ClickException):
    """An error that ends the command; Click prints its message to stderr."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(harmless(message))
        self.exit_code = exit_code  # type: ignore[misc]


def print_list(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a list to stdout in columns."""
    lines = [[harmless(text, kept="") for text in line] for line in (heads, *rows)]
    widths = [max(map(len, column)) + 2 for column in zip(*lines, strict=True)]
    for line in lines:
        columns = zip(line, widths, strict=True)
        say("".join(text.ljust(width) for text, width in columns).rstrip())


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

    console = Console(stderr=True)
    if console.is_terminal:

        def picture() -> Group:
            return bar(share(), words())

        def message(text: str) -> None:
            line = harmless(text)
            console.print(line, markup=False, highlight=False, soft_wrap=True)

        with Live(
            console=console,
            transient=True,
            get_renderable=picture,
            refresh_per_second=4,
        ):
            yield message
        return

    ended = threading.Event()

    def print_status() -> None:
        while not ended.wait(PLAIN_EVERY):
            note(words()[0])

    threading.Thread(target=print_status, daemon=True).start()
    try:
        yield note
    finally:
        ended.set()


def bar(share: float, words: Sequence[str]) -> Group:
    """Draw a bar with lines of words below it."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    lines = [Text(harmless(line), no_wrap=True) for line in words]
    return Group(ProgressBar(1.0, share, width=30), *lines)


def to_type(*words: object) -> str:
    """Return a command of cbm as a user can type it: words with spaces are quoted."""
    return f"cbm {shlex.join(map(str, words))}"
