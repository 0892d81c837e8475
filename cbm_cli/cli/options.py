"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from cbm_cli.cli.common import Target
from cbm_cli.errors import CbmError


def results_and(names: str, *suffixes: str) -> Callable:
    """Take [RESULTS] and then names, or files with some suffixes; the command gets its ``target``."""
    return click.argument(
        "target",
        nargs=-1,
        metavar=f"[RESULTS] {names}".strip(),
        callback=lambda _, __, words: Target.of(words, suffixes),
    )


def _selects(_: click.Context, __: click.Parameter, choices: tuple[str, ...]) -> list[tuple[str, str]]:
    """Read SETTING=VALUE[,VALUE]."""
    found = []
    for choice in choices:
        name, equals, value = (part.strip() for part in choice.partition("="))
        if not (name and equals):
            raise CbmError(f"--select {choice}: write SETTING=VALUE, such as --select learning_rate=0.05")
        found.append((name, value))
    return found


select_option: Callable = click.option(
    "--select",
    multiple=True,
    callback=_selects,
    metavar="SETTING=VALUE[,VALUE]",
    help="Only cells with one of these values; repeat it for several settings.",
)


def setting_names(_: click.Context, __: click.Parameter, text: str | None) -> list[str] | None:
    """Read names of settings, separated by commas."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def names_or_none(ctx: click.Context, option: click.Parameter, text: str | None) -> list[str] | None:
    """Read names of settings, separated by commas, or none of them."""
    names = setting_names(ctx, option, text)
    if names == []:
        raise CbmError(f"{option.opts[0]}: names no setting; write one, or none")
    return [] if names == ["none"] else names


def choose_options(command: Callable) -> Callable:
    """Add --select, and --choose with --by."""
    choose = click.option(
        "--choose",
        metavar="SETTINGS|none",
        callback=names_or_none,
        help="Settings of which each cell shows the best value, by the mean on the part --by.",
    )
    parts = click.Choice(["valid", "train", "test"])
    by = click.option("--by", type=parts, help="With --choose: the part that decides; default: valid.")
    return select_option(choose(by(command)))


def folder_of_data(name: str | None) -> Path | None:
    """Return the folder in which the data of results are looked for; CbmError for anything else."""
    if name and not Path(name).is_dir():
        told = "trials have data of their own; name the folder that holds the files"
        raise CbmError(f"--data {name}: is no folder; {told}")
    return Path(name) if name else None


data_folder_option: Callable = click.option(
    "--data",
    "data",
    callback=lambda _, __, name: folder_of_data(name),
    metavar="DIR",
    help="Folder with the files of the data, where they are not at the paths of the grid.",
)
data_option: Callable = click.option(
    "--data",
    "source",
    metavar="NAME|FILE",
    help="Rows: a data set's name, or a file; with RESULTS: the folder that holds its data.",
)
