"""``cbm figure``: the paper's figures, drawn from results."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from cbm_cli.cli.common import note, print_list, program
from cbm_cli.cli.plot import page_options, plot, read_part
from cbm_cli.errors import CbmError, IncompleteError


@click.command()
@click.argument("number", metavar="N|list")
@click.argument("folder", default="results/", type=click.Path(path_type=Path), metavar="[RESULTS]")
@page_options
def figure(number: str, folder: Path, output: Path | None, **page: Any) -> None:
    """Draw figure N of the paper, 2 to 17, from the results of its experiments.

    Where an experiment has not been run but its -short one has, that one is drawn. `cbm figure list` says
    what the figures show and which experiments they need.
    """
    import yaml

    from cbm_cli.paper import FIGURES

    figures = yaml.load(FIGURES.read_text(encoding="utf-8"), yaml.BaseLoader)
    if number == "list":
        rows = [(n, ", ".join(_experiments(it["parts"])) or "none", it["shows"]) for n, it in figures.items()]
        print_list(("figure", "experiments", "shows"), rows)
        return
    if number not in figures:
        raise CbmError(f"figure {number}: the figures are 2 to 17; cbm figure list describes them")
    if output is None:
        raise CbmError(f"figure {number}: name the file to write: -o FILE.png, .pdf or .svg")
    _draw(number, figures[number]["parts"], folder, output, page)
    note(f"figure {number} of the paper: {figures[number]['shows']}\nwrote {output}")


def _draw(number: str, calls: Sequence[str], folder: Path, output: Path, page: dict[str, Any]) -> None:
    from cbm_cli.report.kinds import write_picture
    from cbm_cli.report.panels import Page
    from cbm_cli.results import Results

    names = _experiments(calls)
    known = Results(folder).experiments() if folder.is_dir() else []
    missing = [name for name in names if name not in known and f"{name}-short" not in known]
    if missing:
        raise IncompleteError(
            f"figure {number}: {folder} has no results of {', '.join(missing)}; "
            f"run: {program()} run experiments.yaml {' '.join(missing)} -o {folder}"
        )
    stand_ins = {name: f"{name}-short" for name in names if name not in known}
    parts = []
    for part in map(_part, calls):
        its = part.names if part.kind == "data" else [stand_ins.get(name, name) for name in part.names]
        parts.append(part._replace(names=its))
    for name, short in stand_ins.items():
        note(f"{short} is drawn for {name}, which has not been run")
    write_picture(Results(folder) if names else None, parts, Page(**page), output)


def _part(call: str) -> Any:
    """Return what a `cbm plot` call draws."""
    with plot.make_context("plot", [*shlex.split(call), "-o", "none.png"]) as context:
        choices = dict(context.params)
    for name in ("output", "size", "legend"):
        del choices[name]
    return read_part(choices.pop("words"), choices)[1]


def _experiments(calls: Sequence[str]) -> list[str]:
    """Return the experiments that calls draw."""
    parts = map(_part, calls)
    return list(dict.fromkeys(name for part in parts if part.kind != "data" for name in part.names))
