"""``cbm paper``: results beside what the paper published, and its figures."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cbm_cli.cli.common import PICTURES, Target, check_file, command, note, print_document, print_list
from cbm_cli.cli.completion import results_and
from cbm_cli.cli.plot import page_options, plot, read_part, write_picture
from cbm_cli.errors import CbmError, IncompleteError

if TYPE_CHECKING:
    from cbm_cli.report.kinds import Part
    from cbm_cli.report.panels import Panel


@click.group()
def paper() -> None:
    """Compare with the paper, and draw its figures."""


@paper.command()
@results_and("")
@click.option("--scoreboard", is_flag=True, help="Count the values run and agreeing, for all tables.")
@click.option("--findings", is_flag=True, help="Check what the paper states in prose and figures.")
def compare(target: Target, scoreboard: bool, findings: bool) -> None:
    """Compare results with what the paper published."""
    from cbm_cli.paper.comparison import compare
    from cbm_cli.paper.findings import check_findings, count_findings, findings_document
    from cbm_cli.paper.scoreboard import scoreboard as count_values

    if target.names:
        raise CbmError(f"{target.names[0]}: there is no such folder of results", "missing")
    if scoreboard and findings:
        raise CbmError(
            "--scoreboard and --findings: give one of them; the scoreboard counts findings, too", "conflict"
        )
    folder = target.results()
    known = folder.all_summaries()
    judged = check_findings(known, folder.store) if scoreboard or findings else []
    if findings:
        print_document(findings_document(judged), "text")
        return
    comparison = compare(known, folder.store)
    counted = count_values(comparison, count_findings(judged)) if scoreboard else None
    print_document(counted or comparison.document(), "text")


@paper.command()
@results_and("N|list")
@page_options
def figure(target: Target, output: Path | None, caption: bool, **page: Any) -> None:
    """Draw a figure of the paper from results.

    The figures are 2 to 17. Where an experiment has not been run but its -short one has, that one is drawn.
    What has no results, a panel or one of its experiments, is left out, with a message. `cbm paper figure
    list` says what the figures show and which experiments they need.
    """
    import yaml

    from cbm_cli.paper import FIGURES

    if len(target.names) != 1:
        raise CbmError("name one figure: cbm paper figure [RESULTS] N -o FILE", "missing")
    (number,) = target.names
    figures = {str(n): it for n, it in yaml.safe_load(FIGURES.read_text(encoding="utf-8")).items()}
    if number == "list":
        rows = [(n, ", ".join(_experiments(it["parts"])) or "none", it["shows"]) for n, it in figures.items()]
        print_list(("figure", "experiments", "shows"), rows)
        return
    if number not in figures:
        raise CbmError(f"figure {number}: the figures are 2 to 17; see cbm paper figure list", "unknown")
    if output is None:
        raise CbmError(f"figure {number}: name the file to write: -o FILE.png, .pdf or .svg", "missing")
    check_file("-o", output, PICTURES)
    note(f"figure {number} of the paper: {figures[number]['shows']}")
    parts = _drawings(number, figures[number]["parts"], target.folder)
    panels = [replace(panel, key=()) for part in parts for panel in part]  # keys are of a part's settings
    write_picture(panels, page, output, caption)


def _drawings(number: str, panels: Sequence[Mapping[str, Any]], folder: Path) -> Iterator[list[Panel]]:
    """Yield the panels that can be drawn; say which are missing, why, and what to run for them."""
    from cbm_cli.report.kinds import draw
    from cbm_cli.results import Results

    results = Results(folder) if folder.exists() else None  # figure 2 needs none
    known = results.experiments() if results else []
    needed = _experiments(panels)
    stand_ins = {name: f"{name}-short" for name in needed if name not in known and f"{name}-short" in known}
    for name, short in stand_ins.items():
        note(f"{short} is drawn for {name}, which has not been run")
    reasons: dict[str, list[str]] = {}
    lacking: dict[str, None] = {}
    for place, part in enumerate(map(_part, panels), 1):
        own = [] if part.kind == "data" else part.names
        names = [stand_ins.get(name, name) for name in own]
        there = [name for name in names if name in known]
        missing = [name for name in names if name not in known]
        panel = f"{place} ({part.options.title or part.options.metric[0]})".replace("$", "")
        nothing = f"{folder} has no results of {', '.join(missing)}"
        try:
            if missing and not there:
                raise IncompleteError(nothing)
            yield draw(results, part._replace(names=there or part.names))
        except CbmError as error:
            reasons.setdefault(str(error), []).append(panel)
            lacking |= dict.fromkeys(own)
        else:
            if missing:
                note(f"figure {number}: panel {panel} is not complete: {nothing}")
                lacking |= dict.fromkeys(missing)
    for reason, places in reasons.items():
        note(f"figure {number}: missing panel {', '.join(places)}: {reason}")
    into = "results/" if results and results.is_kept else folder
    remedy = f"run: {command('run', 'experiments.yaml', *lacking, '-o', into)}" if lacking else ""
    if sum(map(len, reasons.values())) == len(panels):
        raise IncompleteError(f"figure {number}: there is no panel to draw{remedy and f'; {remedy}'}")
    if remedy:
        note(f"for what is missing {remedy}")


def _part(panel: Mapping[str, Any]) -> Part:
    """Return what draws a panel: a `cbm plot` call, with a title and a single trial."""
    with plot.make_context("plot", [*shlex.split(panel["plot"]), "-o", "none.png"]) as context:
        choices = dict(context.params)
    for name in ("output", "size", "font", "caption", "data"):
        del choices[name]
    choices |= {"title": panel.get("title", ""), "trials": panel.get("trial")}
    # A short experiment may have one value of a setting of which the figure shows several.
    return read_part(choices.pop("words"), choices | {"constants": True})[1]


def _experiments(panels: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the experiments that panels draw."""
    parts = map(_part, panels)
    return list(dict.fromkeys(name for part in parts if part.kind != "data" for name in part.names))
