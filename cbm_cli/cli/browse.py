"""``cbm ls`` and ``best``: what is in a results folder."""

from __future__ import annotations

import re
from datetime import datetime
from functools import cache
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import click

from cbm_cli.cli.common import Target, command, json_option, note, print_list, say
from cbm_cli.cli.options import results_and, select_option
from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.text import count, decimal, text_of, valid_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cbm_cli.results import Results
    from cbm_cli.results.selection import Wanted

GRIDS = (".yaml", ".yml")  # suffixes


@click.command()
@results_and("[EXPERIMENT|RUN|GRID.yaml]...", *GRIDS)
@json_option
def ls(target: Target, as_json: bool) -> None:
    """List experiments, the runs of EXPERIMENT, RUN, or a grid.

    A run holds the trials of one cell; its trials, how many of the planned ones are finished. The runs of
    EXPERIMENT include those that the grid last run no longer asks for, such as shorter ones. Of GRID.yaml,
    its experiments are listed, and what data they miss.

    RUN is a run-id, or the beginning of one or of its hash, also with the number of a trial behind a colon,
    as `cbm best` prints it. Its settings and the values of its trials are shown.
    """
    if any(name.endswith(GRIDS) for name in target.names):
        _list_grid(target.names, as_json)
        return
    from cbm_cli.results.folder import list_experiments, list_runs

    folder = target.results()
    known = folder.experiments()
    if len(target.names) == 1 and not {*target.names} & {*known}:
        _show_run(folder, target.names[0], as_json)
        return
    stores = [folder.store(name) for name in target.names]
    found = [
        {"experiment": store.experiment} | run for store in stores for run in list_runs(store, others=True)
    ]
    found = found if stores else list_experiments(folder)
    if as_json:
        click.echo(valid_json(found, indent=2))
    elif stores:
        rows = (
            (*(str(one[key]) for key in ("experiment", "run_id")), _settings(one["settings"]), *_counts(one))
            for one in found
        )
        print_list(("experiment", "run", "settings", "trials", "status", "last result"), rows)
    else:
        _print_experiments(folder.folder, found)


def _list_grid(names: Sequence[str], as_json: bool) -> None:
    from cbm_cli.datasets.spec import available
    from cbm_cli.grid.read import read_grid

    if len(names) > 1:
        raise CbmError(f"{' '.join(names)}: write cbm ls GRID.yaml, without anything else")
    path = Path(names[0])
    grid, absent = read_grid(path), cache(lambda data: available(data, path.parent))
    found: list[dict[str, Any]] = [
        {
            "experiment": name,
            "description": one.description,
            "default": name in grid.default,
            "cells": len(one.cells),
            "trials": one.trials * len(one.cells),
            "missing": sorted({data.title for data in {cell.data for cell in one.cells} if absent(data)}),
            "groups": [group for group, members in grid.groups.items() if name in members],
        }
        for name, one in grid.experiments.items()
    ]
    if as_json:
        click.echo(valid_json(found, indent=2))
        return
    for one in found:
        mark = " (default)" if one["default"] else ""
        say(f"{one['experiment']}{mark}: {count(one['cells'], 'cell')}, {count(one['trials'], 'trial')}")
        if one["description"]:
            say(f"    {one['description']}")
        if one["missing"]:
            say(f"    missing data: {', '.join(one['missing'])}; cbm run --available leaves them out")
    for name, members in grid.groups.items():
        say(f"{name} (group): {', '.join(members)}")


def _print_experiments(results: Path, found: Sequence[dict[str, Any]]) -> None:
    rows = ((one["experiment"], _few(one["data"]), str(one["cells"]), *_counts(one)) for one in found)
    print_list(("experiment", "data", "cells", "trials", "status", "last result"), rows)
    if any(one["other_runs"] for one in found):
        note(
            f"Runs no longer in the grid: {command('ls', results, 'EXPERIMENT')} lists them; running their "
            "grid again shows them."
        )


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _settings(values: dict[str, Any]) -> str:
    return " ".join(text_of(value) or "-" for value in values.values())


def _counts(one: dict[str, Any]) -> tuple[str, str, str]:
    words = [f"{one[status]:,} {status}" for status in ("interrupted", "failed") if one[status]]
    words += [f"{count(one['other_runs'], 'run')} no longer in the grid"] if one.get("other_runs") else []
    when = f"{datetime.fromisoformat(one['when']).astimezone():%Y-%m-%d %H:%M}" if one["when"] else ""
    if not one.get("in_grid", True):
        return f"{one['finished']:,}", ", ".join(["not in the grid", *words]), when
    words += [f"{one['beyond']:,} more than asked"] if one.get("beyond") else []
    done = f"{one['finished']:,} of {one['planned']:,}"
    complete = one["finished"] >= one["planned"]
    return done, ", ".join(["complete" if complete else "incomplete", *words]), when


def _show_run(results: Results, name: str, as_json: bool) -> None:
    """Show the settings of a run, those that vary first, and its trials."""
    from cbm_cli.results.folder import describe_run, find_run

    run_id, _, number = name.removesuffix(":best").partition(":")
    runs = [describe_run(store, run_id) for store, run_id in find_run(results, run_id)]
    if number and number not in {str(trial["trial"]) for run in runs for trial in run["trials"]}:
        raise CbmError(f"{results.folder}: {runs[0]['run_id']} has no trial {number}")
    if as_json:
        click.echo(valid_json(runs[0] | {"experiments": [run["experiment"] for run in runs]}, indent=2))
        return
    run = runs[0]
    about = [("experiment", ", ".join(one["experiment"] for one in runs))]
    if not any(one["in_grid"] for one in runs):
        about.append(("", "not asked for by the grid that was last run"))
    print_list(("run", run["run_id"]), about)
    say()
    varying = {name: run["settings"][name] for name in run["varying"]}
    if varying:
        print_list(("setting", "value"), _known(varying))
        say()
    others = {name: value for name, value in run["settings"].items() if name not in varying}
    say(fill("other settings: " + ", ".join(map(" ".join, _known(others))), 100, break_on_hyphens=False))
    say()
    _print_trials(run["trials"])


def _print_trials(trials: Sequence[dict[str, Any]]) -> None:
    """Print a line for each trial: its status, its metrics and its time; then why trials failed."""
    from cbm_cli.results import Metric

    wanted = re.compile("_(final|max|min|exact|ais|pseudo)$|^(diverged|seconds)$")
    names = dict.fromkeys(name for trial in trials for name in trial if wanted.search(name))
    shown = [name for name in names if any(text_of(trial.get(name)) for trial in trials)]
    rows = (
        (str(trial["trial"]), trial["status"], *(_short(trial.get(name)) for name in shown))
        for trial in trials
    )
    print_list(("trial", "status", *shown), rows)
    if any(Metric(name.rpartition("_")[0]).better for name in shown):
        say("likelihoods, bounds and costs are per row; --json has every value")
    for trial in (trial for trial in trials if trial.get("details")):
        say(f"\ntrial {trial['trial']}: {trial['details'].rstrip()}")


def _short(value: Any) -> str:
    return text_of(float(f"{value:.6g}")) if isinstance(value, float) else text_of(value)


def _known(values: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, text_of(value)) for name, value in values.items() if text_of(value)]


@click.command()
@results_and("[EXPERIMENT]...")
@click.option(
    "--metric",
    help="Compare final machines by this metric, such as test_log_likelihood.",
)
@select_option
@json_option
def best(target: Target, metric: str | None, select: Wanted, as_json: bool) -> None:
    """Print the best machine of each data set and part.

    The likelihoods of different data cannot be compared, so that every data set of an experiment has its own
    best machine, and line, for each part of it that was evaluated. On the validation part, which comes first,
    the best value of all trials decides, and the machine is the one that reached it. On others the final
    value decides; the part that the table shows comes before the rest.
    """
    from cbm_cli.results.selection import best_machines, select_cells

    stores = [target.results().store(name) for name in target.experiments()]
    manifests = select_cells([store.manifest() for store in stores], select)
    nothing: IncompleteError | None = None  # told at the end, so that the others are shown
    for store, manifest in zip(stores, manifests, strict=True):
        try:
            found = best_machines(store, manifest, metric) if manifest.cells else []
        except IncompleteError as error:
            nothing = nothing or error
            continue
        for one in found:
            if as_json:
                click.echo(valid_json(one))
            elif one["machine"] is None:
                note(f"{one['data']}: no trial has a finite {one['metric']}")
            else:
                say(one["machine"])
                note(_why_best(one))
    if nothing:
        raise nothing


def _why_best(found: dict[str, Any]) -> str:
    from cbm_cli.results import Metric

    where = [f"{name} {value}" for name, value in found["settings"].items() if name != "data"]
    trial = ", ".join([*where, f"trial {found['trial']}"])
    value = f"{found['metric']} {decimal(found['value'], '.4f')} {Metric(found['metric']).unit()}".rstrip()
    return f"{found['data']}: {value} at the {found['when']} ({trial})"
