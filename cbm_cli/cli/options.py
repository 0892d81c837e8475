"""The options that several commands share, and how the texts of options are read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from cbm_cli.choices import STATISTICS
from cbm_cli.errors import CbmError
from cbm_cli.text import LARGEST, shortened, whole_number

Pairs = Sequence[tuple[str, str]]  # names with their values
GRIDS = (".yaml", ".yml")  # suffixes
PATH: Any = click.Path(path_type=Path)
_FILES = (*GRIDS, ".html", ".npz", ".png", ".pdf", ".svg")


class Whole(click.IntRange):
    """A whole number, written as in grids: 10000, 10_000, 1e4; or a word with a meaning
    of its own.
    """

    def __init__(
        self, least: int, most: int | None = None, word: str | None = None
    ) -> None:
        super().__init__(least, most)
        self.word = word
        self.name = "n"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """Return the number of a text; click.BadParameter for any other text."""
        if value == self.word:
            return value
        number = whole_number(value)
        text = shortened(str(value))
        if not isinstance(number, int):
            other = f", nor {self.word}" if self.word else ""
            message = f"{text} is not a whole number, such as 10 or 1e4{other}."
            self.fail(message, param, ctx)
        if self.max is None and number > LARGEST:
            self.fail(f"{text} is too large; the limit is {LARGEST:,}.", param, ctx)
        return super().convert(number, param, ctx)


class Command(click.Command):
    """A command that refuses an option that is given twice, of which Click would take
    the last one.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words of the command line."""
        parser = self.make_parser(ctx)
        _, _, parameters = parser.parse_args(list(args))
        seen: dict[str | None, str] = {}
        for option in parameters:
            if not isinstance(option, click.Option) or option.multiple:
                continue
            spelling = option.opts[-1]
            if option.name in seen:
                names = dict.fromkeys((seen[option.name], spelling))
                message = f"{' and '.join(names)}: given twice; give one"
                raise click.UsageError(message, ctx)
            seen[option.name] = spelling
        return super().parse_args(ctx, args)


def command(function: Callable) -> click.Command:
    """Make a function a command of its name, which refuses options given twice."""
    return click.command(cls=Command)(function)


# How texts are read


def read_pairs(context: click.Context, option: Any, texts: Sequence[str]) -> Pairs:
    """Read SETTING=VALUE[,VALUE] or FIELD=VALUE."""
    pairs = []
    for text in texts:
        name, _, value = text.partition("=")
        pair = (name.strip(), value.strip())
        if not all(pair):
            flag = option.opts[0]
            form = option.metavar.partition("[")[0]
            remedy = f"write {flag} {form}, such as learning_rate=0.05"
            raise CbmError(f"{flag} {text}: {remedy}")
        pairs.append(pair)
    return pairs


def _read_settings(_: click.Context, option: Any, text: str | None) -> Any:
    """Read names of settings, separated by commas, or none of them."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise CbmError(f"{option.opts[0]}: names no setting; write one, or none")
    return [] if names == ["none"] else names


def _writable(_: click.Context, option: Any, path: Path) -> Path:
    """Return a file with a suffix of the option's metavar, or a folder, where a command
    can write.
    """
    suffixes = re.findall(r"\.\w+", option.metavar)
    problem = _problem_of_file(path, suffixes) if suffixes else _problem_of_folder(path)
    parent = path.resolve().parent
    if not problem and not parent.is_dir():
        problem = f"there is no folder {parent}; make it first, or write elsewhere"
    existing = path if path.exists() else parent
    if not problem and not os.access(existing, os.W_OK):
        problem = "cannot write there; choose another place"
    if problem:
        raise CbmError(f"-o {path}: {problem}")
    return path


def _problem_of_file(path: Path, suffixes: Sequence[str]) -> str:
    if path.is_dir():
        example = path / f"new{suffixes[0]}"
        return f"is a folder; name a file in it, such as {example}"
    if path.suffix.lower() not in suffixes:
        return f"the suffix must be {' or '.join(suffixes)}"
    return ""


def _problem_of_folder(path: Path) -> str:
    if path.is_file() or path.name == "-" or path.suffix.lower() in _FILES:
        return "is the name of a file; name a folder, which is made if it is missing"
    return ""


def refuse_input(output: Path, *inputs: Path | None) -> None:
    """Raise CbmError where a command would write over what it reads."""
    for path in inputs:
        if path is not None and path.resolve() == output.resolve():
            raise CbmError(f"-o {output}: is read by this command; choose another name")


def folder_of_data(name: str | None) -> Path | None:
    """Return the folder in which the data of results are looked for; CbmError for
    anything else.
    """
    if name is None:
        return None
    folder = Path(name)
    if not folder.is_dir():
        remedy = "trials have data of their own; name the folder that holds the files"
        raise CbmError(f"--data {name}: is no folder; {remedy}")
    return folder


# Options that are made for each command


def output(metavar: str, help: str, **more: Any) -> Callable:
    """Return the option -o, for a file with a suffix that the metavar has, or for a
    folder.
    """
    return click.option(
        "-o",
        "--output",
        type=PATH,
        metavar=metavar,
        callback=_writable,
        help=help,
        **more,
    )


def data(metavar: str, help: str) -> Callable:
    """Return the option --data, which commands take for rows, for a folder, or both."""
    return click.option("--data", "source", metavar=metavar, help=help)


def settings(name: str, help: str) -> Callable:
    """Return an option that takes names of settings."""
    return click.option(
        name, metavar="SETTINGS|none", callback=_read_settings, help=help
    )


# Shared options

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
jobs = click.option(
    "-j", "--jobs", type=Whole(0), help="Cores; 0: only this process. Default: all."
)
no_code = click.option(
    "--no-code",
    is_flag=True,
    help="Refuse recorders of the form file.py:function: they are code.",
)
select = click.option(
    "--select",
    metavar="SETTING=VALUE[,VALUE]",
    multiple=True,
    callback=read_pairs,
    help="Only cells with one of these values; can be repeated.",
)
choose = settings("--choose", "Settings to choose in each cell by the mean on --by.")
by = click.option(
    "--by",
    type=click.Choice(["valid", "train", "test"]),
    help="With --choose: the part that decides; default: valid.",
)
metric = click.option(
    "--metric", help="Such as test_log_likelihood, test_cost or weight_norm."
)
statistic = click.option(
    "--statistic",
    type=click.Choice(STATISTICS),
    help="Default: best-valid if there is a validation part.",
)
layer = click.option(
    "--layer", type=Whole(1), help="Hidden layer, from 1; default: the last."
)
seed = click.option(
    "--seed",
    type=Whole(0, 2**63 - 1),
    default=1,
    help="Same seed, same bytes.",
)
