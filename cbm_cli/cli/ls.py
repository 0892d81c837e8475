"""``cbm ls``: what is in a results folder, in a run, or in a grid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import msgspec

from cbm_cli.cli import options
from cbm_cli.cli.options import GRIDS, command
from cbm_cli.cli.output import note, print_list, say, say_json, to_type
from cbm_cli.cli.target import Target, naming_grid, results_and
from cbm_cli.errors import CbmError
from cbm_cli.text import count, text_of

if TYPE_CHECKING:
    from cbm_cli.results import Results
    from cbm_cli.results.folder import (
        ExperimentRecord,
        RunDetails,
        RunRecord,
        TrialRecord,
    )

# Columns of summary.csv that a run shows for each of its trials
_SHOWN = "_(final|max|min|exact|ais|pseudo)$|^(diverged|seconds)$"


@command
@options.as_json
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
    names = target.names
    if any(name.endswith(GRIDS) for name in names):
        _list_grid(names, as_json)
        return
    with naming_grid("ls", names):
        if len(names) == 1 and names[0] not in target.results().experiments():
            _show_run(target.results(), names[0], as_json)
        else:
            _list_results(target, as_json)


# Grids


class GridRecord(msgspec.Struct):
    """An experiment of a grid, as ``cbm ls GRID.yaml --json`` prints it."""

    experiment: str
    description: str
    default: bool
    cells: int
    trials: int  # of all cells
    missing: list[str]  # titles of data sets
    groups: list[str]


def _list_grid(names: Sequence[str], as_json: bool) -> None:
    """List the experiments of a grid, and those of each group."""
    if len(names) > 1:
        words = " ".join(names)
        raise CbmError(f"{words}: write cbm ls GRID.yaml, without anything else")
    from cbm_cli.datasets.spec import lack_of
    from cbm_cli.grid.read import read_grid

    path = Path(names[0])
    grid = read_grid(path)
    is_missing = cache(partial(lack_of, folder=path.parent))
    records = []
    for name, experiment in grid.experiments.items():
        data_sets = {cell.data for cell in experiment.cells}
        missing = {data.title for data in data_sets if is_missing(data)}
        groups = [group for group, members in grid.groups.items() if name in members]
        record = GridRecord(
            experiment=name,
            description=experiment.description,
            default=name in grid.default,
            cells=len(experiment.cells),
            trials=experiment.trials * len(experiment.cells),
            missing=sorted(missing),
            groups=groups,
        )
        records.append(record)
    if as_json:
        say_json(msgspec.to_builtins(records), indent=2)
        return
    for record in records:
        _print_experiment(record)
    for group, members in grid.groups.items():
        say(f"{group} (group): {', '.join(members)}")


def _print_experiment(record: GridRecord) -> None:
    mark = " (default)" if record.default else ""
    cells, trials = count(record.cells, "cell"), count(record.trials, "trial")
    say(f"{record.experiment}{mark}: {cells}, {trials}")
    if record.description:
        say(f"    {record.description}")
    if record.missing:
        missing = ", ".join(record.missing)
        say(f"    missing data: {missing}; cbm run --available leaves them out")


# Results


def _list_results(target: Target, as_json: bool) -> None:
    """List experiments, or the runs of those that are named."""
    from cbm_cli.results.folder import describe_experiment, list_runs

    runs: list[RunRecord] = []
    experiments: list[ExperimentRecord] = []
    with target.results().readable(target.names) as stores:
        for store in stores:
            if target.names:
                runs += list_runs(store)
            else:
                experiments.append(describe_experiment(store))
            for problem in store.damaged().values():
                note(f"warning: {problem}; cbm run repeats what is lost")
        if as_json:
            say_json(msgspec.to_builtins(runs or experiments), indent=2)
            return
        if target.names:
            _print_runs(runs)
        else:
            _print_experiments(experiments)
    if any(record.other_runs for record in experiments):
        lists = to_type("ls", target.folder, "EXPERIMENT")
        remedy = "running their grid again shows them"
        note(f"Runs no longer in the grid: {lists} lists them; {remedy}.")


def _print_experiments(records: Iterable[ExperimentRecord]) -> None:
    rows = []
    for record in records:
        data_sets = ", ".join(record.data[:3])
        more = len(record.data) - 3
        if more > 0:
            data_sets += f" and {more} more"
        trials, words = _progress(record)
        if record.other_runs:
            words.append(f"{count(record.other_runs, 'run')} no longer in the grid")
        when = ""
        if record.when:
            local = datetime.fromisoformat(record.when).astimezone()
            when = f"{local:%Y-%m-%d %H:%M}"
        about = (record.experiment, data_sets, str(record.cells), trials)
        rows.append((*about, ", ".join(words), when))
    heads = ("experiment", "data", "cells", "trials", "status", "last change")
    print_list(heads, rows)


def _print_runs(records: Iterable[RunRecord]) -> None:
    rows = []
    for record in records:
        settings = [text_of(value) or "-" for value in record.settings.values()]
        trials, words = _progress(record)
        if not record.in_grid:
            trials, words[0] = f"{record.finished:,}", "not in the grid"
        about = (record.experiment, record.run_id, " ".join(settings), trials)
        rows.append((*about, ", ".join(words)))
    print_list(("experiment", "run", "settings", "trials", "status"), rows)


def _progress(record: ExperimentRecord | RunRecord) -> tuple[str, list[str]]:
    """Return the number of finished trials, and the states of all in words."""
    is_complete = record.finished >= record.planned
    words = ["complete" if is_complete else "incomplete"]
    if record.interrupted:
        words.append(f"{record.interrupted:,} interrupted")
    if record.failed:
        words.append(f"{record.failed:,} failed")
    if record.beyond:
        words.append(f"{record.beyond:,} more than asked")
    return f"{record.finished:,} of {record.planned:,}", words


# A run


def _show_run(results: Results, name: str, as_json: bool) -> None:
    """Print the settings of a run, those that vary first, and a line for each trial;
    then why some failed.
    """
    from cbm_cli.results.folder import describe_run, find_run

    run_id, _, number = name.removesuffix(":best").partition(":")
    runs = [describe_run(store, run_id) for store, run_id in find_run(results, run_id)]
    run = runs[0]
    if number and number not in [str(trial.trial) for trial in run.trials]:
        raise CbmError(f"{results.folder}: {run.run_id} has no trial {number}")
    experiments = [other.experiment for other in runs]
    in_grid = any(other.in_grid for other in runs)
    if as_json:
        record = msgspec.to_builtins(run)
        for trial in record["trials"]:
            trial |= trial.pop("columns", {})
        about = {"in_grid": in_grid, "experiments": experiments}
        say_json(record | about, indent=2)
        return
    rows = [("experiment", ", ".join(experiments))]
    if not in_grid:
        rows.append(("", "not in the grid that was last run"))
    print_list(("run", run.run_id), [*rows, ("", "")])
    _print_settings(run)
    _print_trials(run.trials)


def _print_settings(run: RunDetails) -> None:
    texts = {name: text_of(value) for name, value in run.settings.items()}
    varying = [(name, texts.pop(name)) for name in run.varying if texts[name]]
    if varying:
        print_list(("setting", "value"), [*varying, ("", "")])
    others = [f"{name} {text}" for name, text in texts.items() if text]
    words = f"other settings: {', '.join(others)}"
    say(fill(words, 100, break_on_hyphens=False))
    say()


def _print_trials(trials: Sequence[TrialRecord]) -> None:
    import pandas as pd

    from cbm_cli.results import Metric

    values = pd.DataFrame([trial.columns for trial in trials])
    shown = values.filter(regex=_SHOWN).dropna(axis="columns", how="all")
    rows = []
    for trial, row in zip(trials, shown.to_numpy(), strict=True):
        rows.append((str(trial.trial), trial.status, *map(_in_short, row)))
    print_list(("trial", "status", *shown), rows)
    if any(Metric(column.rpartition("_")[0]).better for column in shown):
        say("likelihoods, bounds and costs are per row; --json has every value")
    for trial in trials:
        if trial.details:
            say(f"\ntrial {trial.trial}: {trial.details.rstrip()}")


def _in_short(value: Any) -> str:
    """Return a value as text, a number in six digits."""
    if isinstance(value, float):
        return text_of(float(f"{value:.6g}"))
    return text_of(value)
