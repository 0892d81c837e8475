"""``cbm ls``, ``show``, ``best`` and ``prune``: what is in a results folder."""

from __future__ import annotations

import json
import shlex
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cbm_cli.cli.common import json_option, note, print_list, program, results_argument, say
from cbm_cli.errors import CbmError
from cbm_cli.text import count, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cbm_cli.results import Results


@click.command()
@results_argument
@click.argument("experiments", nargs=-1, metavar="[EXPERIMENT]...")
@json_option
def ls(results: Path, experiments: tuple[str, ...], as_json: bool) -> None:
    """List the experiments of RESULTS, or the runs of EXPERIMENT: trials, data, date.

    A run holds the trials of one cell. Trials: how many of the planned ones are finished.
    """
    from cbm_cli.results import Results
    from cbm_cli.results.inventory import list_experiments, list_runs

    folder = Results(results)
    found = list_experiments(folder)
    if experiments:
        stores = [folder.store(name) for name in experiments]
        found = [{"experiment": store.experiment} | run for store in stores for run in list_runs(store)]
    if as_json:
        click.echo(json.dumps(found, indent=2))
    elif experiments:
        rows = ((*(str(one[key]) for key in ("experiment", "run_id")), *_counts(one)) for one in found)
        print_list(("experiment", "run", "trials", "status", "last result"), rows)
    else:
        rows = ((one["experiment"], _few(one["data"]), str(one["cells"]), *_counts(one)) for one in found)
        print_list(("experiment", "data", "cells", "trials", "status", "last result"), rows)


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _counts(one: dict[str, Any]) -> tuple[str, str, str]:
    done = f"{one['finished']:,} of {one['planned']:,}"
    words = [f"{one[status]:,} {status}" for status in ("interrupted", "failed") if one[status]]
    words += [f"{count(one['other_runs'], 'run')} no longer in the grid"] if one.get("other_runs") else []
    complete = one["finished"] >= one["planned"]
    when = f"{datetime.fromisoformat(one['when']).astimezone():%Y-%m-%d %H:%M}" if one["when"] else ""
    return done, ", ".join(["complete" if complete else "incomplete", *words]), when


def _results_and(words: tuple[str, ...], usage: str, least: int = 1) -> tuple[Results, str | None]:
    """Return the results folder, results/ by default, and the name of something in it."""
    from cbm_cli.results import Results

    if not least <= len(words) <= 2:
        raise CbmError(f"write cbm {usage}")
    if len(words) == 2 or (words and not least and any(Path(words[0]).glob("*/manifest.json"))):
        return Results(Path(words[0])), words[1] if len(words) == 2 else None
    return Results(Path("results/")), words[0] if words else None


@click.command()
@click.argument("words", nargs=-1, metavar="[RESULTS] RUN")
@json_option
def show(words: tuple[str, ...], as_json: bool) -> None:
    """Show the settings, trials, values and files of a run.

    RUN is a run-id, as `cbm ls RESULTS EXPERIMENT` lists them, or the beginning of one.
    """
    from cbm_cli.results.inventory import describe_run, find_run

    results, name = _results_and(words, "show [RESULTS] RUN")
    held = find_run(results, name)
    runs = [describe_run(store, run_id) for store, run_id in held]
    if as_json:
        click.echo(json.dumps(runs[0] | {"experiments": [run["experiment"] for run in runs]}, indent=2))
        return
    run = runs[0]
    about = [("experiment", ", ".join(one["experiment"] for one in runs))]
    if not any(one["in_grid"] for one in runs):
        about.append(("", "not asked for by the grid that was last run"))
    about.append(("folder", str(held[0][0].folder / "trials" / run["run_id"])))
    print_list(("run", run["run_id"]), about)
    say()
    print_list(("setting", "value"), _known(run["settings"]))
    hidden = ("trial", "status", "files", "experiment", "run_id")
    for trial in run["trials"]:
        values = {name: trial[name] for name in trial if name not in hidden and name[:2] != "n_"}
        values = _known({name: value for name, value in values.items() if "version" not in name})
        say()
        print_list(
            (f"trial {trial['trial']}: {trial['status']}", ""),
            [*values, *(("file", file) for file in trial["files"])],
        )


def _known(values: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, text_of(value)) for name, value in values.items() if text_of(value)]


@click.command()
@click.argument("words", nargs=-1, metavar="[RESULTS] EXPERIMENT")
@click.option("--metric", help="Compare final machines by this metric, such as test_log_likelihood.")
@json_option
def best(words: tuple[str, ...], metric: str | None, as_json: bool) -> None:
    """Print the path of the best machine file of an experiment.

    With a validation part, the best validation value of all trials decides, and the file holds the machine
    that reached it. Otherwise the final value of the table's metric decides.
    """
    from cbm_cli.results.inventory import best_machine

    results, experiment = _results_and(words, "best [RESULTS] EXPERIMENT", least=0)
    found = best_machine(results.store(results.only(experiment)), metric)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    say(found["path"])
    settings = ", ".join(f"{name} {value}" for name, value in found["settings"].items())
    where = f"{settings}, trial {found['trial']}" if settings else f"trial {found['trial']}"
    note(f"{found['metric']} {found['value']:.4f} at the {found['when']} ({where})")


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="[RESULTS] GRID.yaml... [EXPERIMENT]...")
@click.option("--yes", is_flag=True, help="Delete; without it, only list what would be deleted.")
@click.option("--all", "all_", is_flag=True, help="Also delete experiments that no grid names.")
@click.option("--available", is_flag=True, help="Leave experiments alone whose data files are missing.")
@json_option
def prune(words: tuple[str, ...], yes: bool, all_: bool, available: bool, as_json: bool) -> None:
    """Delete results that none of the grids asks for; without --yes, only list them.

    The grids' experiments keep the runs with their current settings and data; their other runs are deleted,
    with the ends and pre-trained layers that nothing else uses. Runs made with --set are not in a grid.
    Experiments that no grid names stay, unless they are named as EXPERIMENT or --all is given. Files of
    others in RESULTS stay.
    """
    from cbm_cli.results import Results
    from cbm_cli.results.inventory import delete, size_of, unwanted

    grids = [word for word in words if word.endswith((".yaml", ".yml"))]
    first, *rest = words
    results = Results(Path("results/" if first in grids else first))
    named = [word for word in ([first, *rest] if first in grids else rest) if word not in grids]
    if not grids:
        raise CbmError("write cbm prune [RESULTS] GRID.yaml...: results that these grids ask for are kept")
    wanted, missing = _wanted(grids, results, available)
    for name in results.experiments() if all_ else named:
        wanted.setdefault(results.store(name).experiment, set())
    for name in missing:
        wanted.pop(name, None)
    others = [name for name in results.experiments() if name not in {*wanted, *missing}]
    sizes = delete(results, wanted) if yes else {one: size_of(one) for one in unwanted(results, wanted)}
    if as_json:
        records = [{"path": str(place), "bytes": size, "deleted": yes} for place, size in sizes.items()]
        click.echo(json.dumps(records, indent=2))
    elif sizes:
        print_list(("folder", "MB"), [(str(place), f"{size / 1e6:.1f}") for place, size in sizes.items()])
    done = "deleted" if yes else "would be deleted"
    note(f"{count(len(sizes), 'folder')}, {sum(sizes.values()) / 1e6:.1f} MB {done}")
    if others:
        note(f"Left alone, as no grid names them: {', '.join(others)}; to delete one, name it; all: --all")
    if sizes and not yes:
        options = " --all" * all_ + " --available" * available
        note(f"To delete: {program()} prune {shlex.join(words)}{options} --yes")


def _wanted(grids: Sequence[str], results: Results, only_here: bool) -> tuple[dict[str, set[str]], set[str]]:
    """The names of what the grids ask for; with ``only_here`` also experiments whose data are missing."""
    from cbm_cli.execution.jobs import folders_of, only_available
    from cbm_cli.grid.read import read_grid

    wanted: dict[str, set[str]] = {}
    absent: set[str] = set()
    for path in map(Path, grids):
        experiments = list(read_grid(path).experiments.values())
        if only_here:
            _, missing = only_available(experiments, path.parent)
            for name, titles in missing.items():
                note(f"{name}: left alone, the data are missing: {', '.join(titles)}")
            absent |= missing.keys()
            experiments = [one for one in experiments if one.name not in missing]
        for experiment, names in folders_of(experiments, results.folder, path.parent).items():
            wanted.setdefault(experiment, set()).update(names)
    return wanted, absent
