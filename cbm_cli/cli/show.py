"""``cbm init``, ``schema``, ``ls`` and ``best``: grids to start from, and what is in a
results folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime
from functools import cache
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import click

from cbm_cli.cli.options import GRIDS, Pairs, Target, command, output, results_and
from cbm_cli.cli.output import note, print_list, say, to_type
from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.text import count, decimal, text_of, valid_json

if TYPE_CHECKING:
    from cbm_cli.results import Results


@command("paper")
@output("FILE.yaml|.yml", "File to write.", default="experiments.yaml")
def init(paper: bool, output: Path) -> None:
    """Write experiments.yaml, a commented grid to start from.

    Its experiment `quickstart` is what `cbm run` runs there.
    """
    from importlib.resources import files

    from cbm_cli.results.writing import write_atomically

    if os.path.lexists(output):
        raise CbmError(
            f"{output}: exists already; remove it, or name another file with -o"
        )
    grid = files("cbm_cli.grid") / ("paper.yaml" if paper else "starter.yaml")
    write_atomically(output, grid.read_bytes())
    note(f"wrote {output}")
    shown = to_type("ls", output)
    run = (
        to_type("run") if output == Path("experiments.yaml") else to_type("run", output)
    )
    note(
        f"Next:  {shown}   lists its experiments\n       {run:{len(shown)}}   runs "
        "quickstart"
    )


@command()
def schema() -> None:
    """Print the JSON schema of grid files, for editors."""
    from cbm_cli.grid.schema import json_schema

    click.echo(valid_json(json_schema(), indent=1))


@command("json")
@results_and("[EXPERIMENT|RUN|GRID.yaml]...", *GRIDS)
def ls(target: Target, as_json: bool) -> None:
    """List experiments, the runs of EXPERIMENT, RUN, or a grid.

    A run holds the trials of one cell. The column trials counts finished and planned
    ones. The runs of EXPERIMENT include those that the last grid no longer contains,
    such as shorter ones. For GRID.yaml, cbm lists its experiments and their missing
    data.

    RUN is a run-id, or the beginning of one or of its hash, also with the number of a
    trial after a colon, as `cbm best` prints it. cbm shows its settings and the values
    of its trials.
    """
    names, show = target.names, _print_listing
    with ExitStack() as until_shown:
        if any(name.endswith(GRIDS) for name in names):
            found, show = _of_grid(names), _print_grid
        elif len(names) == 1 and names[0] not in target.results().experiments():
            found, show = _of_run(target.results(), names[0]), _print_run
        else:
            from cbm_cli.results.folder import describe_experiment, list_runs

            found = []
            for store in until_shown.enter_context(target.results().readable(names)):
                runs = (
                    list_runs(store, others=True)
                    if names
                    else [describe_experiment(store)]
                )
                found += [{"experiment": store.experiment} | run for run in runs]
                for problem in store.damaged().values():
                    note(f"warning: {problem}; cbm run repeats what is lost")
        if as_json:
            click.echo(valid_json(found[0] if show is _print_run else found, indent=2))
            return
        show(found)
        if any(one.get("other_runs") for one in found):
            lists = to_type("ls", target.folder, "EXPERIMENT")
            note(
                f"Runs no longer in the grid: {lists} lists them; running their "
                "grid "
                "again shows them."
            )


def _of_grid(names: Sequence[str]) -> list[dict[str, Any]]:
    from cbm_cli.datasets.spec import available
    from cbm_cli.grid.read import read_grid

    if len(names) > 1:
        raise CbmError(
            f"{' '.join(names)}: write cbm ls GRID.yaml, without anything else"
        )
    path = Path(names[0])
    grid, absent = read_grid(path), cache(lambda data: available(data, path.parent))
    return [
        {
            "experiment": name,
            "description": one.description,
            "default": name in grid.default,
            "cells": len(one.cells),
            "trials": one.trials * len(one.cells),
            "missing": sorted(
                {
                    data.title
                    for data in {cell.data for cell in one.cells}
                    if absent(data)
                }
            ),
            "groups": [
                group for group, members in grid.groups.items() if name in members
            ],
        }
        for name, one in grid.experiments.items()
    ]


def _print_grid(found: Sequence[dict[str, Any]]) -> None:
    groups: dict[str, list[str]] = {}
    for one in found:
        mark = " (default)" if one["default"] else ""
        say(
            f"{one['experiment']}{mark}: {count(one['cells'], 'cell')}, "
            f"{count(one['trials'], 'trial')}"
        )
        if one["description"]:
            say(f"    {one['description']}")
        if one["missing"]:
            say(
                f"    missing data: {', '.join(one['missing'])}; cbm run "
                "--available "
                "leaves them out"
            )
        for group in one["groups"]:
            groups.setdefault(group, []).append(one["experiment"])
    for name, members in groups.items():
        say(f"{name} (group): {', '.join(members)}")


def _print_listing(found: Sequence[dict[str, Any]]) -> None:
    """Print experiments, or runs of experiments."""
    heads, rows = ("data", "cells"), []
    for one in found:
        if "run_id" in one:
            settings = " ".join(
                text_of(value) or "-" for value in one["settings"].values()
            )
            heads, about = ("run", "settings"), (one["run_id"], settings)
        else:
            more = f" and {len(one['data']) - 3} more" * (len(one["data"]) > 3)
            about = (", ".join(one["data"][:3]) + more, str(one["cells"]))
        rows.append((one["experiment"], *about, *_counts(one)))
    print_list(("experiment", *heads, "trials", "status", "last result"), rows)


def _counts(one: dict[str, Any]) -> tuple[str, str, str]:
    """Return how many trials are finished, what else is to be said of them, and
    when.
    """
    words = [
        f"{one[status]:,} {status}"
        for status in ("interrupted", "failed")
        if one[status]
    ]
    words += (
        [f"{count(one['other_runs'], 'run')} no longer in the grid"]
        if one.get("other_runs")
        else []
    )
    when = (
        f"{datetime.fromisoformat(one['when']).astimezone():%Y-%m-%d %H:%M}"
        if one["when"]
        else ""
    )
    if not one.get("in_grid", True):
        return f"{one['finished']:,}", ", ".join(["not in the grid", *words]), when
    words += [f"{one['beyond']:,} more than asked"] if one.get("beyond") else []
    state = "complete" if one["finished"] >= one["planned"] else "incomplete"
    return (
        f"{one['finished']:,} of {one['planned']:,}",
        ", ".join([state, *words]),
        when,
    )


def _of_run(results: Results, name: str) -> list[dict[str, Any]]:
    """Return the facts of a run, with the experiments that hold it."""
    from cbm_cli.results.folder import describe_run, find_run

    run_id, _, number = name.removesuffix(":best").partition(":")
    runs = [describe_run(store, run_id) for store, run_id in find_run(results, run_id)]
    if number and number not in {
        str(trial["trial"]) for run in runs for trial in run["trials"]
    }:
        raise CbmError(f"{results.folder}: {runs[0]['run_id']} has no trial {number}")
    in_grid = any(run["in_grid"] for run in runs)
    return [
        runs[0]
        | {"in_grid": in_grid, "experiments": [run["experiment"] for run in runs]}
    ]


def _print_run(found: Sequence[dict[str, Any]]) -> None:
    """Print the settings of a run, those that vary first, and a line for each trial;
    then why some failed.
    """
    from cbm_cli.results import Metric

    (run,) = found
    about = [("experiment", ", ".join(run["experiments"]))]
    about += [] if run["in_grid"] else [("", "not in the grid that was last run")]
    print_list(("run", run["run_id"]), [*about, ("", "")])
    known = {
        name: text
        for name, value in run["settings"].items()
        if (text := text_of(value))
    }
    if varying := [(name, known.pop(name)) for name in run["varying"] if name in known]:
        print_list(("setting", "value"), [*varying, ("", "")])
    others = "other settings: " + ", ".join(map(" ".join, known.items()))
    say(fill(others, 100, break_on_hyphens=False) + "\n")
    trials, wanted = (
        run["trials"],
        re.compile("_(final|max|min|exact|ais|pseudo)$|^(diverged|seconds)$"),
    )
    names = dict.fromkeys(
        name for trial in trials for name in trial if wanted.search(name)
    )
    shown = [
        name for name in names if any(text_of(trial.get(name)) for trial in trials)
    ]
    rows = []
    for trial in trials:
        values = (trial.get(name) for name in shown)
        texts = (
            text_of(float(f"{it:.6g}")) if isinstance(it, float) else text_of(it)
            for it in values
        )
        rows.append((str(trial["trial"]), trial["status"], *texts))
    print_list(("trial", "status", *shown), rows)
    if any(Metric(name.rpartition("_")[0]).better for name in shown):
        say("likelihoods, bounds and costs are per row; --json has every value")
    for trial in (trial for trial in trials if trial.get("details")):
        say(f"\ntrial {trial['trial']}: {trial['details'].rstrip()}")


@command("metric", "select", "json")
@results_and("[EXPERIMENT]...")
def best(target: Target, metric: str | None, select: Pairs, as_json: bool) -> None:
    """Print the best machine of each data set and part.

    Likelihoods of different data cannot be compared, so each data set has a line of its
    own for each evaluated part. On the validation part, which comes first, the best
    value of all trials decides, and the machine is the one that reached it. On other
    parts the final value decides; the part that the table shows comes before the rest.
    """
    from cbm_cli.results import Metric
    from cbm_cli.results.selection import best_machines, select_cells

    nothing: IncompleteError | None = (
        None  # raised at the end, so that the others are shown
    )
    with target.results().readable(target.names) as stores:
        manifests = select_cells([store.manifest() for store in stores], select)
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
                    where = [
                        f"{name} {value}"
                        for name, value in one["settings"].items()
                        if name != "data"
                    ]
                    trial = ", ".join([*where, f"trial {one['trial']}"])
                    value = (
                        f"{decimal(one['value'], '.4f')} {Metric(one['metric']).unit()}"
                    ).rstrip()
                    note(
                        f"{one['data']}: {one['metric']} {value} at the "
                        f"{one['when']} "
                        f"({trial})"
                    )
        if nothing:
            raise nothing
