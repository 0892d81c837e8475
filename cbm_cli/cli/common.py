"""What commands share: arguments, notes, lists, and how a user can run cbm again."""

from __future__ import annotations

import errno
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from cbm_cli.errors import CbmError
from cbm_cli.text import LARGEST, harmless, shortened, whole_number

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

    from cbm_cli.results import Results
    from cbm_cli.sheets import Document

json_option: Callable = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
PLAIN_EVERY = 10.0  # seconds between two lines of progress if stderr is no terminal
_OF_OUTPUT = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EBADF)
PICTURES = (".png", ".pdf", ".svg")  # suffixes


class Target(NamedTuple):
    """What a command reads: a results folder, and the names of what is in it."""

    folder: Path
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, words: Sequence[str], suffixes: tuple[str, ...] = ()) -> Target:
        """Read ``[RESULTS] NAME...``: a first word that is there or ends with a slash is RESULTS.

        Else results/ is. A name may also stand behind its folder: ``out/NAME``. Of a command that
        takes files with such suffixes, any file is a name.
        """
        first, rest = "".join(words[:1]), tuple(words[1:])
        place = Path(first)
        is_name = place.suffix in suffixes or (suffixes and place.is_file())
        if not first or is_name or not (place.exists() or "/" in first):
            return cls(Path("results/"), tuple(words))
        if place.exists() or first.endswith("/"):
            return cls(place, rest)
        return cls(place.parent, (place.name, *rest))

    def results(self) -> Results:
        """Open the results folder; CbmError, which also says what else a first word could have been."""
        from cbm_cli.results import Results

        folder = self.folder
        if self.names and self.folder == Path("results") and not folder.exists():
            folder = Path(self.names[0])  # there is nothing else that it could be
        return Results(folder)

    def models(self) -> list[Path]:
        """Return the machines if a machine is named: files, and RUN:TRIAL in the folder."""
        from cbm_cli.results.folder import MACHINE_NAME

        files = [name.endswith(".npz") or ("." in name and Path(name).is_file()) for name in self.names]
        if not any(files) and not any(map(MACHINE_NAME.fullmatch, self.names)):
            return []
        folder = Path() if self.folder == Path("results") else self.folder
        pairs = zip(self.names, files, strict=True)
        return [Path(name) if is_file or "/" in name else folder / name for name, is_file in pairs]

    def experiments(self) -> Sequence[str]:
        """Return the experiments that are named, each once, or all of the folder."""
        return [*dict.fromkeys(self.names)] or self.results().require_experiments()


class Whole(click.IntRange):
    """A whole number, written as in grids: 10000, 10_000, 1e4."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number = whole_number(value)
        if not isinstance(number, int):
            self.fail(f"{shortened(value)} is not a whole number, such as 10 or 1e4.", param, ctx)
        if self.max is None and number > LARGEST:
            self.fail(f"{shortened(str(value))} is too large; the limit is {LARGEST:,}.", param, ctx)
        return super().convert(number, param, ctx)


class WholeOr(Whole):
    """A whole number from 1, or a word that stands for another."""

    def __init__(self, word: str) -> None:
        super().__init__(1)
        self.word = word

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value == self.word else super().convert(value, param, ctx)


def say(line: str = "") -> None:
    """Print a line of data to stdout."""
    click.echo(harmless(line))


def given_options() -> list[str]:
    """Return the parameters of the running command that stand on the command line."""
    ctx = click.get_current_context()
    return [name for name in ctx.params if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]


def note(message: str) -> None:
    """Print something that is not data, to stderr."""
    click.echo(harmless(message), err=True)


def bars(*columns: ProgressColumn, transient: bool = False) -> Progress:
    """Return progress bars for stderr, which show nothing where it is no terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    # Rich before 15 would end bars that are not shown with an empty line
    console.is_interactive |= not console.is_terminal
    return Progress(*columns, console=console, transient=transient, disable=not console.is_terminal)


def is_output(error: BaseException) -> bool:
    """Whether an error is of stdout, which is closed or on a full disk: others name their file."""
    return isinstance(error, OSError) and not error.filename and error.errno in _OF_OUTPUT


def prepare_streams() -> None:
    """Let stdout and stderr print ``?`` for characters that they lack, and nothing where they are closed."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        with suppress(AttributeError):  # a stream of another type
            getattr(sys, name).reconfigure(errors="replace")


def print_document(document: Document, format_: str) -> None:
    """Print to stdout: with colours where it is a terminal."""
    click.echo(document.render(format_, _terminal_width() is not None), nl=False)


def print_list(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a list to stdout: a sheet on a terminal, else columns separated by spaces."""
    lines = [[*map(harmless, line)] for line in (heads, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    terminal = _terminal_width()
    if terminal is None:
        for line in lines:
            say("  ".join(map(str.ljust, line, widths)).rstrip())
        return
    from cbm_cli.sheets import Document, Group, Label, Sheet

    room = max(20, terminal - sum(widths[:-1]) - 3 * len(widths))
    header, *labels = ([*map(Label.of, line)] for line in _wrapped(lines, room))
    document = Document([Sheet(header, [Group(None, labels)])])
    click.echo(document.render("text", coloured=True).strip("\n"))


def _wrapped(lines: Iterable[Sequence[str]], room: int) -> Iterator[list[str]]:
    """Break the last column into lines of at most so many characters, between words."""
    from textwrap import wrap

    for *firsts, last in lines:
        for part in wrap(last, room, break_long_words=False, break_on_hyphens=False) or [""]:
            yield [*firsts, part]
            firsts = [""] * len(firsts)


def _terminal_width() -> int | None:
    """Return the columns of a terminal that shows colours, None for anything else."""
    from shutil import get_terminal_size

    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return None
    return get_terminal_size().columns


def check_file(option: str, path: Path | None, suffixes: Sequence[str], inputs: Sequence[Path] = ()) -> None:
    """Raise CbmError for a file that cannot be written, or that the command reads."""
    if path is None:
        return
    if path.is_dir():
        raise CbmError(
            f"{option} {path}: is a folder; name a file in it, such as {path / ('new' + suffixes[0])}"
        )
    if path.suffix.lower() not in suffixes:
        raise CbmError(f"{option} {path}: the suffix must be {' or '.join(suffixes)}")
    _check_place(option, path, inputs)


def check_folder(option: str, path: Path) -> None:
    """Raise CbmError for a folder that cannot be made or written."""
    if path.exists() and not path.is_dir():
        raise CbmError(f"{option} {path}: is a file; name a folder, which is made if it is missing")
    if path.name == "-" or path.suffix.lower() in (".yaml", ".yml", ".html", ".npz", *PICTURES):
        kind = "grid" if path.suffix.lower() in (".yaml", ".yml") else "file"
        raise CbmError(f"{option} {path}: is the name of a {kind}; name a folder for what is written")
    _check_place(option, path)


def _check_place(option: str, path: Path, inputs: Sequence[Path] = ()) -> None:
    if any(path.resolve() == one.resolve() for one in inputs):
        raise CbmError(f"{option} {path}: is read by this command; choose another name")
    above = path.resolve().parent
    if not above.is_dir():
        raise CbmError(f"{option} {path}: there is no folder {above}; make it first, or write elsewhere")
    if not os.access(path if path.exists() else above, os.W_OK):
        raise CbmError(f"{option} {path}: cannot write there; choose another place")


def program() -> str:
    """Return how the user can run this cbm: ``cbm`` if the shell finds it, else the path that was typed."""
    from shutil import which

    typed, found = Path(sys.argv[0]), which("cbm")
    if typed.name == "cbm-cli":  # the same program, beside cbm
        typed = typed.with_name("cbm")
    if typed.name == "__main__.py" and typed.parent.name == "cli":
        return f"{shlex.quote(sys.executable)} -m cbm_cli.cli"
    if typed.name != "cbm" or (found and typed.exists() and typed.samefile(found)):
        return "cbm"
    return shlex.quote(str(typed))


def command(*words: object) -> str:
    """Return a command of cbm as a user can type it: words with spaces are quoted."""
    return f"{program()} {shlex.join(map(str, words))}"


def note_activation() -> None:
    """Say how to make the shell find cbm, if it does not."""
    script = Path(sys.argv[0]).parent / "activate"
    if program() != "cbm" and script.is_file():
        note(f"To write just cbm, first run: source {shlex.quote(str(script))}")
