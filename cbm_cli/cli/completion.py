"""``cbm completion``: the shell completes commands, experiments, fields, schemes, data sets and metrics."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

VARIABLE = "_CBM_COMPLETE"  # set by the shell when it asks
SCHEMES = ("00", "d0", "0d", "dd^b", "dd^l", "dd^b_s", "dd^l_s", "aa^b", "aa^b_s", "mm^b", "dm^b", "md^b")
SAMPLERS = ("CD-1", "CD-10", "PCD-1", "PCD-10", "PT_10", "PT_20", "FPCD-1", "exact")

Complete = Callable[[click.Context, str], Iterable[str]]  # from the words so far and the one begun

_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' response type value
    response=$(env COMP_WORDS="${COMP_LINE:0:$COMP_POINT}" COMP_WORDBREAKS="$COMP_WORDBREAKS" \\
        %(complete_var)s=bash_complete $1)
    for completion in $response; do
        IFS=',' read -r type value <<< "$completion"
        case $type in
            dir) compopt -o plusdirs ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("$value"); [[ $value == *= ]] && compopt -o nospace ;;
        esac
    done
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


@add_completion_class
class _Bash(BashComplete):
    """Click's completion for bash, which also breaks words at ``=`` and ``:``."""

    source_template = _BASH
    taken = 0  # characters of the word that stand before bash's last break

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_WORDS"]
        words = split_arg_string(line)
        begun = words.pop() if not line[-1:].isspace() else ""
        breaks = set("=:") & set(os.environ.get("COMP_WORDBREAKS", ""))
        self.taken = max((begun.rfind(one) + 1 for one in breaks), default=0)
        return words[1:], begun

    def format_completion(self, item: CompletionItem) -> str:
        return f"{item.type},{item.value[self.taken :]}"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that makes a shell complete cbm's words.

    \b
    bash: add to ~/.bashrc    eval "$(cbm completion bash)"
    zsh:  add to ~/.zshrc     eval "$(cbm completion zsh)"
    fish: run once            cbm completion fish > ~/.config/fish/completions/cbm.fish
    """
    from cbm_cli.cli import main

    click.echo(get_completion_class(shell)(main, {}, "cbm", VARIABLE).source())  # type: ignore[misc]


def with_completions(command: click.Command) -> click.Command:
    """Let the parameters of a command complete what they name."""
    for one in getattr(command, "commands", {}).values():
        with_completions(one)
    for parameter in command.params:
        name = "sets" if parameter.name == "names" else parameter.name
        complete = _COMPLETIONS.get((command.name, name)) or _COMPLETIONS.get(("", name))
        if complete and "shell_complete" not in vars(parameter):  # Click may ask for a command twice
            parameter.shell_complete = _completing(complete, parameter)  # type: ignore[method-assign]
    return command


def _completing(complete: Complete, parameter: click.Parameter) -> Callable:
    """Return the completion of a parameter: names, and then files where it takes some."""
    usual = parameter.shell_complete

    def completed(ctx: click.Context, begun: str) -> list[CompletionItem]:
        items = usual(ctx, begun)
        if parameter.name == "words" and not ctx.params.get("words"):
            items.append(CompletionItem(begun, type="dir"))  # the first word may be a results folder
        with suppress(Exception):  # of a grid or results that cannot be read: the prompt stays clean
            names = [name for name in complete(ctx, begun) if name.startswith(begun) and name.isprintable()]
            items = [*map(CompletionItem, names), *items]
        return items

    return completed


def _of_grid(ctx: click.Context, begun: str) -> Iterable[str]:
    """Experiments and groups of the grid file."""
    from cbm_cli.grid.yaml_places import Problems, load

    root: Any = load(Path(ctx.params["grid"]), Problems())
    return [*root.get("experiments", {}), *root.get("groups", {})]


def _folder(ctx: click.Context) -> Path:
    """The results folder among the words so far, results/ by default."""
    named = [ctx.params.get(name) for name in ("results", "target")]
    words = [*ctx.args, *(ctx.params.get("words") or ()), *filter(None, named)]  # args: before an open option
    return next((path for path in map(Path, words) if any(path.glob("*/manifest.json"))), Path("results/"))


def _of_results(ctx: click.Context, begun: str) -> list[str]:
    """Experiments of the results folder."""
    return sorted(path.parent.name for path in _folder(ctx).glob("*/manifest.json"))


def _plotted(ctx: click.Context, begun: str) -> list[str]:
    from cbm_cli.report.kinds import KINDS

    return [*KINDS, *_of_results(ctx, begun)]


def _metrics(ctx: click.Context, begun: str) -> list[str]:
    """Metrics of the experiments of the results folder."""
    from cbm_cli.results.metrics import measured

    columns: dict[str, None] = {}
    for path in sorted(_folder(ctx).glob("*/summary.csv")):
        with path.open(newline="", encoding="utf-8") as stream:
            columns |= dict.fromkeys(next(csv.reader(stream), []))
    return measured(columns)


def _changes(ctx: click.Context, begun: str) -> list[str]:
    """Fields of a grid; behind ``offsets=`` and the like their values."""
    from cbm_cli.grid.read import SETTABLE

    field, equals, _ = begun.partition("=")
    if not equals:
        return [f"{name}=" for name in SETTABLE]
    values = {"offsets": SCHEMES, "sampler": SAMPLERS, "data": _sets(ctx, begun)}
    return [f"{field}={value}" for value in values.get(field, ())]


def _selected(ctx: click.Context, begun: str) -> list[str]:
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


_COMPLETIONS: dict[tuple[str | None, str | None], Complete] = {  # by command, empty for any, and parameter
    ("run", "experiments"): _of_grid,
    ("", "experiments"): _of_results,
    ("plot", "words"): _plotted,
    ("best", "words"): _of_results,
    ("", "metric"): _metrics,
    ("", "changes"): _changes,
    ("", "select"): _selected,
    ("", "source"): _sets,
    ("info", "name"): _sets,
    ("verify", "name"): _sets,
    ("", "sets"): _sets,
}
