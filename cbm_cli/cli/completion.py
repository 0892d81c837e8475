"""``cbm completion``: the shell completes commands, experiments, fields, schemes, data sets and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from cbm_cli.cli.common import Target
from cbm_cli.errors import CbmError

SCHEMES = ("00", "d0", "0d", "dd^b", "dd^l", "dd^b_s", "dd^l_s", "aa^b", "aa^b_s", "mm^b", "dm^b", "md^b")
SAMPLERS = ("CD-1", "CD-10", "PCD-1", "PCD-10", "PT_10", "PT_20", "FPCD-1", "exact")


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that makes a shell complete cbm's words.

    \b
    bash, in ~/.bashrc: eval "$(cbm completion bash)"
    zsh, in ~/.zshrc:   eval "$(cbm completion zsh)"
    fish, once:         cbm completion fish > ~/.config/fish/completions/cbm.fish
    """
    main = ctx.find_root().command
    click.echo(get_completion_class(shell)(main, {}, "cbm", "_CBM_COMPLETE").source())  # type: ignore[misc]


def _completing(names: Callable[[click.Context, str], Iterable[str]]) -> Callable:
    """Return names, given the words so far and the one begun, as Click's ``shell_complete`` wants them."""

    def completed(ctx: click.Context, parameter: click.Parameter, begun: str) -> list:
        found: list[str] = []
        with suppress(Exception):  # of a grid or results that cannot be read: the prompt stays clean
            found = [name for name in names(ctx, begun) if name.startswith(begun) and name.isprintable()]
        target = ctx.params.get("target")
        first = parameter.name in ("words", "target") and not (target and target != Target.of(()))
        if found or not first or ctx.params.get("words"):
            return found
        return [CompletionItem(begun, type="dir")]  # the first word may be a results folder

    return completed


@_completing
def of_grid(ctx: click.Context, begun: str) -> Iterable[str]:
    """Experiments and groups of the grid file."""
    from cbm_cli.grid.source import Problems, load, read_file

    root: Any = load(read_file(Path(ctx.params["grid"])), "", Problems())
    return [*root.get("experiments", {}), *root.get("groups", {})]


def _folder(ctx: click.Context) -> Path:
    """The results folder among the words so far, results/ by default."""
    target = ctx.params.get("target") or Target(Path("results/"))
    words = [*ctx.args, *(ctx.params.get("words") or ()), target.folder]  # args: before an open option
    return next((path for path in map(Path, words) if any(path.glob("*/manifest.json"))), Path("results/"))


def _experiments(ctx: click.Context, begun: str) -> list[str]:
    return sorted(path.parent.name for path in _folder(ctx).glob("*/manifest.json"))


of_results = _completing(_experiments)


@_completing
def plotted(ctx: click.Context, begun: str) -> list[str]:
    """Kinds of pictures, and experiments of the results folder."""
    from cbm_cli.report.kinds import KINDS

    return [*KINDS, *_experiments(ctx, begun)]


@_completing
def metrics(ctx: click.Context, begun: str) -> list[str]:
    """Metrics of the experiments of the results folder."""
    import csv

    from cbm_cli.results.metrics import measured

    columns: dict[str, None] = {}
    for path in sorted(_folder(ctx).glob("*/summary.csv")):
        with path.open(newline="", encoding="utf-8") as stream:
            columns |= dict.fromkeys(next(csv.reader(stream), []))
    return measured(columns)


@_completing
def changes(ctx: click.Context, begun: str) -> list[str]:
    """Fields of a grid; behind ``offsets=`` and the like their values, in shells that ask for them."""
    from cbm_cli.grid.read import SETTABLE

    field, equals, _ = begun.partition("=")
    if not equals:
        return [f"{name}=" for name in SETTABLE]
    values = {"offsets": SCHEMES, "sampler": SAMPLERS, "data": _sets(ctx, begun)}
    return [f"{field}={value}" for value in values.get(field, ())]


@_completing
def selected(ctx: click.Context, begun: str) -> list[str]:
    """Settings that vary in the results, with their values."""
    from cbm_cli.results import Results
    from cbm_cli.text import text_of

    results = Results(_folder(ctx))
    cells = [cell for name in results.experiments() for cell in results.store(name).manifest()["cells"]]
    found = dict.fromkeys((name, text_of(cell[name])) for cell in cells for name in cell if name != "run_id")
    several = [name for name, _ in found]
    return [f"{name}={value}" for name, value in found if several.count(name) > 1]


def _sets(ctx: click.Context, begun: str) -> list[str]:
    from cbm_cli.datasets.sources import SOURCES

    return [*SOURCES]


data_sets = _completing(_sets)


# Parameters that several commands complete alike


def results_and(names: str, *suffixes: str) -> Callable:
    """Take [RESULTS] and then names, or files with some suffixes; the command gets its ``target``."""
    return click.argument(
        "target",
        nargs=-1,
        metavar=f"[RESULTS] {names}".strip(),
        callback=lambda _, __, words: Target.of(words, suffixes),
        shell_complete=of_results,
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
    shell_complete=selected,
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
        raise CbmError(f"{option.opts[0]}: names no setting; write one, or none", "missing")
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
        raise CbmError(f"--data {name}: is no folder; {told}", "missing")
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
    shell_complete=data_sets,
    metavar="NAME|FILE",
    help="Rows: a data set's name, or a file; with RESULTS: the folder that holds its data.",
)
