"""What is in a results folder: experiments, runs, and results that no grid asks for."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.grid.settings import Experiment
from cbm_cli.kernels import KERNEL_VERSION
from cbm_cli.results.folder import Results
from cbm_cli.results.store import Store
from cbm_cli.text import count, did_you_mean, text_of

_FILES = {"data_name", "data_path", "data_valid", "data_test", "start_from_path"}  # names, which are labels
_LENGTHS = {"updates", "epochs"}
# the results folder, a part of a run-id, the number of a trial, and whether its best-valid machine is meant
MACHINE_NAME = re.compile(r"(?:(.*)/)?([^/:]+):(\d{1,16})(:best)?")
CellSettings = Mapping[str, Any]  # of one cell, by column of summary.csv, and its run_id


def list_experiments(results: Results) -> list[dict[str, Any]]:
    """Return a record per experiment: data, cells, numbers of trials by status, and the date."""
    return [_experiment(results.store(name)) for name in results.require_experiments()]


def _experiment(store: Store) -> dict[str, Any]:
    manifest, runs = store.manifest(), list_runs(store)
    names = {run["run_id"] for run in runs}
    return {
        "experiment": store.experiment,
        "description": manifest.get("description", ""),
        "data": list(dict.fromkeys(cell["data"] for cell in manifest["cells"])),
        "cells": len(runs),
        "finished": sum(run["finished"] for run in runs),
        "planned": sum(run["planned"] for run in runs),
        "interrupted": sum(run["interrupted"] for run in runs),
        "failed": sum(run["failed"] for run in runs),
        "other_runs": sum(bool(store.finished(run_id)) for run_id in store.runs() - names),
        "when": max((run["when"] for run in runs if run["when"]), default=None),
    }


def list_runs(store: Store, others: bool = False) -> list[dict[str, Any]]:
    """Return a record per run of the grid that was last run: its settings, its trials and when it was run.

    With ``others``, those come behind that are kept but not asked for by the grid, with nothing planned.
    """
    manifest, more = store.manifest(), other_runs(store) if others else []
    cells = {cell["run_id"]: cell for cell in [*manifest["cells"], *more]}
    axes, runs = axes_of(manifest | {"cells": [*cells.values()]}), []
    asked = {cell["run_id"] for cell in manifest["cells"]}
    when = datetime.fromtimestamp(store.changed() / 1e9, UTC).isoformat(timespec="seconds")
    for run_id, cell in cells.items():
        finished, (interrupted, failed) = store.finished(run_id), store.unfinished(run_id)
        runs.append(
            {
                "run_id": run_id,
                "settings": {axis: cell.get(axis) for axis in axes},
                "in_grid": run_id in asked,
                "finished": len(finished),
                "planned": manifest["trials"] if run_id in asked else 0,
                "interrupted": len(interrupted),
                "failed": len(failed),
                "when": when if finished else None,
            }
        )
    return runs


def other_runs(store: Store, asked: Iterable[str] | None = None) -> list[CellSettings]:
    """Return settings and run-ids of kept runs that are not asked for, by default by the grid last run."""
    asked = {cell["run_id"] for cell in store.manifest()["cells"]} if asked is None else {*asked}
    found: list[CellSettings] = []
    for run_id in sorted(store.runs() - asked):
        rows = (store.row(run_id, number) for number in sorted(store.finished(run_id)))
        if row := next(filter(None, rows), None):
            found.append(_settings_of(row) | {"run_id": run_id})
    return found


def not_reused(
    store: Store,
    experiment: Experiment,
    run_ids: Sequence[str],
    data: Iterable[tuple[str, Dataset]],
    lengths: bool = True,
) -> str:
    """Say how many finished trials of an experiment its cells do not ask for, and why; ``""`` without any.

    The settings that differ are named; without ``lengths``, trials that were shorter or longer do not count.
    """
    others = other_runs(store, run_ids)
    trials = sum(len(store.finished(one["run_id"])) for one in others)
    if not trials:
        return ""
    cells = [cell.row() for cell in experiment.cells]
    names = [name for name in cells[0] if name not in _FILES and (lengths or name not in _LENGTHS)]
    found = {name: told for name in names if (told := _compared(name, others, cells))}
    with suppress(CbmError):  # a run replaces a damaged manifest
        manifest = store.manifest()
        before = {"seed": manifest["seed"], "kernel version": manifest["versions"]["kernel"]}
        now = {"seed": experiment.seed, "kernel version": KERNEL_VERSION}
        pairs = ((name, before[name], now[name]) for name in now)
        found |= {name: f"{there} there, {here} here" for name, there, here in pairs if there != here}
        changed = _with_other_rows(others, manifest, data)
        if not changed:
            found.pop("data", None)  # another name
        elif not any(name.startswith("data") for name in found):
            found["rows"] = f"of {' and '.join(changed)} differ"
    if not (found or lengths):
        return ""
    why = ", ".join(map(" ".join, found.items()))
    why = why or "rows, a machine or a recorder have changed, or settings come in other pairs"
    are = "is" if trials == 1 else "are"
    return f"{store.experiment}: {count(trials, 'finished trial')} {are} not reused: {why}"


def _with_other_rows(
    others: Sequence[CellSettings], manifest: Mapping[str, Any], data: Iterable[tuple[str, Dataset]]
) -> list[str]:
    """Return the data of other runs whose rows are not among these; without digests, their names tell."""
    digests = {title: {one.digest} for title, one in data}
    here, there = {*digests}.union(*digests.values()), digests | manifest.get("digests", {})
    latest = {cell["run_id"]: cell["data"] for cell in manifest["cells"]}  # names, as of the last run
    titles = dict.fromkeys(str(latest.get(one["run_id"], one["data"])) for one in others)
    return [title for title in titles if not here.issuperset(there.get(title, [title]))]


def _compared(name: str, others: Sequence[CellSettings], cells: Sequence[CellSettings]) -> str:
    """Say which values a setting has there and here, unless those there are among those here."""
    there, here = (
        [*dict.fromkeys(text_of(one.get(name)) or "none" for one in group)] for group in (others, cells)
    )
    new = [text for text in there if text not in here]
    words = [" and ".join(group[:3]) + " ..." * (len(group) > 3) for group in (new, here)]
    return f"{words[0]} there, {words[1]} here" if new else ""


def telling_apart(
    cells: Sequence[CellSettings], columns: Sequence[str], candidates: Iterable[str]
) -> tuple[str, ...]:
    """Return the candidates that, one after another, tell more cells apart than the columns do."""
    keys, added = [tuple(text_of(cell.get(column)) for column in columns) for cell in cells], []
    for column in candidates:
        wider = [(*key, text_of(cell.get(column))) for key, cell in zip(keys, cells, strict=True)]
        if column != "run_id" and len({*wider}) > len({*keys}):
            keys = wider
            added.append(column)
        if len({*keys}) == len(cells):
            break
    return tuple(added)


def axes_of(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the settings that tell the cells of an experiment apart, those of its table first."""
    cells, table = manifest["cells"], manifest["table"]
    return telling_apart(cells, (), [*table["groups"], *table["rows"], *table["columns"], *cells[0]])


def find_run(results: Results, name: str) -> list[tuple[Store, str]]:
    """Return the experiments that hold a run, given by its run-id, or the beginning or a part of it."""
    stores = [results.store(experiment) for experiment in results.require_experiments()]
    held = [(store, run_id) for store in stores for run_id in sorted(store.runs())]
    known = sorted({run_id for _, run_id in held})
    beginning = [run_id for run_id in known if run_id.startswith(name)]
    found = [name] if name in known else beginning or [run_id for run_id in known if name in run_id]
    if not found:
        hint = did_you_mean(name, [*known, *results.experiments()]) if known else ""
        listing = f"cbm ls {shlex.quote(str(results.folder))} EXPERIMENT"
        hint = hint if "did you mean" in hint else f"; list the runs with: {listing}"
        raise CbmError(f"{results.folder}: no experiment or run {name!r}{hint}", "unknown")
    if len(found) > 1:
        some = ", ".join(found[:5]) + (", ..." if len(found) > 5 else "")
        raise CbmError(
            f"{results.folder}: {len(found)} runs have {name!r} in their names: {some}; write more of one"
        )
    holding = [store for store, run_id in held if run_id == found[0]]
    for store in holding:
        store.check_format()
    return [(store, found[0]) for store in holding]


def find_trial(name: str, results: Results | None = None) -> tuple[Store, str, int] | None:
    """Return experiment, run-id and number of ``[RESULTS/]RUN:TRIAL``; None for any other name."""
    found = MACHINE_NAME.fullmatch(name)
    if not found:
        return None
    folder = Results(Path(found[1])) if found[1] else results or Results(Path("results"))
    return *find_run(folder, found[2])[0], int(found[3])


def describe_run(store: Store, run_id: str) -> dict[str, Any]:
    """Return the settings of a run, and of each trial its values, or why it is not finished."""
    finished, (interrupted, failed) = store.finished(run_id), store.unfinished(run_id)
    rows = {number: store.row(run_id, number) or {} for number in sorted(finished)}
    manifest = store.manifest()
    cells = {cell["run_id"]: cell for cell in manifest["cells"]}
    settings = cells.get(run_id) or _settings_of(next(iter(rows.values()), {}))
    trials = []
    for number in sorted(finished | interrupted | failed):
        status = "finished" if number in finished else "failed" if number in failed else "interrupted"
        values = {name: value for name, value in rows.get(number, {}).items() if name not in settings}
        values |= {"details": store.failure(run_id, number)} if status == "failed" else {}
        trials.append({"trial": number, "status": status} | values)
    return {
        "run_id": run_id,
        "experiment": store.experiment,
        "in_grid": run_id in cells,
        "varying": [axis for axis in axes_of(manifest) if axis in settings],
        "settings": {name: value for name, value in settings.items() if name != "run_id"},
        "trials": trials,
    }


def _settings_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in a trial's row: they stand between the seed and the number of rows."""
    names = [*row, "seed", "n_train"]
    return {name: row[name] for name in names[names.index("seed") + 1 : names.index("n_train")]}


def is_machine(name: str) -> bool:
    """Whether a text is the name of a machine, as for `find_machine`."""
    return MACHINE_NAME.fullmatch(name) is not None


def find_machine(name: Path) -> tuple[Path, bytes]:
    """Return the full name and the NPZ file of a machine that is named as ``[RESULTS/]RUN:TRIAL[:best]``.

    RESULTS is results/ by default; RUN is any part of a run-id that no other run has.
    """
    found = MACHINE_NAME.fullmatch(str(name))
    if not found:
        raise CbmError(f"{name}: is no name of a machine; write RUN:TRIAL, or RUN:TRIAL:best")
    held, number = find_run(Results(Path(found[1] or "results")), found[2]), int(found[3])
    store, run_id = next((one for one in held if number in one[0].finished(one[1])), held[0])
    if number not in store.finished(run_id) and number >= (trials := store.manifest()["trials"]):
        raise CbmError(f"{name}: {store.folder} has {count(trials, 'trial')}, from 0 on", "unknown")
    return store.machine(run_id, number, best=bool(found[4]))
