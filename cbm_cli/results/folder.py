"""A folder of results: its experiments, runs and machines, and results that no grid
asks for.
"""

import os
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.grid.settings import Settings
from cbm_cli.results.columns import Columns, Row
from cbm_cli.results.store import Store
from cbm_cli.text import count, did_you_mean

# the results folder, a run, the number of a trial, and whether its best-valid machine
# is meant
MACHINE_NAME = re.compile(r"(?:(.*)/)?([^/:]+):(\d{1,16})(:best)?")
_FEWEST = 4  # characters of the hash of a run-id that name a run


class Results:
    """A results folder, as given to ``cbm run -o``, with one folder per experiment;
    read-only.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            is_file, where = folder.exists(), _where_results_are(folder)
            told = (
                "is a file, not a folder of results"
                if is_file
                else "there is no such folder"
            )
            raise CbmError(f"{folder}: {told}; {where}")
        self.folder = folder
        self._stores: dict[str, Store] = {}

    def experiments(self) -> list[str]:
        """Return the names of the experiments in this folder."""
        return _experiments_in(self.folder)

    def require_experiments(self) -> list[str]:
        """Return the names of the experiments; raise if there are none."""
        if not (names := self.experiments()):
            told = f"{self.folder}: holds no results; {_where_results_are(self.folder)}"
            foreign = any(
                not path.name.startswith(".") for path in self.folder.iterdir()
            )
            raise (CbmError if foreign else IncompleteError)(told)
        return names

    @contextmanager
    def readable(self, names: Iterable[str] = ()) -> Iterator[list[Store]]:
        """Yield experiments, by default all; at the end CbmError names those with a
        damaged manifest.
        """
        stores, lost = list[Store](), list[str]()
        for store in map(
            self.store, dict.fromkeys(names or self.require_experiments())
        ):
            try:
                store.manifest()
                stores.append(store)
            except CbmError as error:
                lost.append(str(error))
        try:
            if stores:
                yield stores
        except IncompleteError:
            if not lost:
                raise
        if lost:
            raise CbmError("\n".join(lost))

    def only(self, experiment: str | None) -> str:
        """Return the named experiment, or the only one; CbmError if there are
        several.
        """
        names = self.require_experiments()
        if experiment is None and len(names) > 1:
            raise CbmError(
                f"{self.folder}: holds several experiments; name one of "
                f"{', '.join(names)}"
            )
        return self.store(experiment or names[0]).experiment

    def store(self, experiment: str) -> Store:
        """Return the folder of one experiment; CbmError if it is not there."""
        if experiment not in (names := self.experiments()):
            hint = (
                did_you_mean(experiment, names)
                if names
                else f"; {_where_results_are(self.folder)}"
            )
            raise CbmError(f"{self.folder}: no results of {experiment!r}{hint}")
        return self._stores.setdefault(experiment, Store(self.folder / experiment))


def _experiments_in(folder: Path) -> list[str]:
    """The names of folders with trials, or with a manifest of cbm's: other programs
    have such files, too.
    """
    own = {path.parent.name for path in folder.glob("*/trials.jsonl") if path.is_file()}
    for path in filter(Path.is_file, folder.glob("*/manifest.json")):
        with suppress(PermissionError), path.open("rb") as stream:
            own |= {path.parent.name} if b'"format"' in stream.read(20) else set()
    return sorted(own)


def _where_results_are(folder: Path) -> str:
    """Say where the results are that a reader may have meant instead of a folder, or
    how to make some.
    """
    whole = folder.resolve()
    for path in (whole, *whole.parents[:-1]):
        if path.name in _experiments_in(path.parent):
            words = " ".join(
                map(shlex.quote, (os.path.relpath(path.parent), path.name))
            )
            return f"it belongs to the experiment {path.name}; write {words} instead"
    around, known = (
        folder if folder.is_dir() else folder.parent,
        _experiments_in(Path("results")),
    )
    near = [path for path in sorted(around.glob("*/")) if _experiments_in(path)]
    if near and (folder.is_dir() or not known):
        return f"there are some in {', '.join(map(str, near[:3]))}"
    if known:
        return (
            f"results/ holds the experiments {', '.join(known)}; write: results/ "
            "EXPERIMENT"
        )
    into = "" if folder.is_file() else f" -o {shlex.quote(str(folder))}"
    return f"make some with: cbm run experiments.yaml{into}"


def describe_experiment(store: Store) -> dict[str, Any]:
    """Return its description, data, cells, numbers of trials by status, and the
    date.
    """
    manifest, runs = store.manifest(), list_runs(store)
    about: dict[str, Any] = {
        "experiment": store.experiment,
        "description": manifest.description,
    }
    about |= {
        "data": list(dict.fromkeys(run.settings.data.title for run in manifest.cells)),
        "cells": len(runs),
    }
    states = ("finished", "planned", "beyond", "interrupted", "failed")
    about |= {state: sum(run[state] for run in runs) for state in states}
    about["other_runs"] = len(other_runs(store, {run["run_id"] for run in runs}))
    return about | {
        "when": max((run["when"] for run in runs if run["when"]), default=None)
    }


def list_runs(store: Store, others: bool = False) -> list[dict[str, Any]]:
    """Return a record per run of the grid that was last run: its settings, its trials
    and when it was run.

    Trials ``beyond`` those that the grid asks for do not count as finished. With
    ``others``, those runs come behind that are kept but not asked for by the grid, with
    nothing planned.
    """
    manifest = store.manifest()
    asked = {run.run_id: run for run in manifest.cells}
    rows: dict[str, Row] = {run_id: run.row for run_id, run in asked.items()}
    if others:
        for run_id, settings in other_runs(store, asked).items():
            rows[run_id] = settings.row() if settings else {}
    axes = Columns([row for row in rows.values() if row]).axes(manifest.table)
    runs = []
    interrupted = Counter(run_id for run_id, _ in store.interrupted())
    when = datetime.fromtimestamp(store.changed() / 1e9, UTC).isoformat(
        timespec="seconds"
    )
    for run_id, row in rows.items():
        finished = store.finished(run_id)
        within = {
            number
            for number in finished
            if number < manifest.trials or run_id not in asked
        }
        run: dict[str, Any] = {
            "run_id": run_id,
            "settings": {axis: row.get(axis) for axis in axes},
        }
        run |= {
            "in_grid": run_id in asked,
            "finished": len(within),
            "beyond": len(finished) - len(within),
        }
        run |= {
            "planned": manifest.trials if run_id in asked else 0,
            "interrupted": interrupted[run_id],
        }
        runs.append(
            run
            | {"failed": len(store.failed(run_id)), "when": when if finished else None}
        )
    return runs


def other_runs(store: Store, asked: Collection[str]) -> dict[str, Settings | None]:
    """Return the settings, where they are known, of runs with finished trials that are
    not asked for.
    """
    manifest = store.manifest()
    known = {run.run_id: run.settings for run in (*manifest.others, *manifest.cells)}
    others = sorted(store.lines().keys() - set(asked))
    return {run_id: known.get(run_id) for run_id in others if store.finished(run_id)}


def not_reused(store: Store, asked: Mapping[str, str]) -> str:
    """Say how many kept trials are of none of the runs asked for, and why; ``""``
    without any.

    ``asked`` holds the courses of the runs.
    """
    courses: Mapping[str, str] = {}
    with suppress(CbmError):  # a run writes a missing manifest
        courses = store.manifest().courses
    begun = {(state.run_id, state.trial): state.course for state in store.states()}
    done = {
        (run_id, number)
        for run_id in store.lines()
        for number in store.finished(run_id)
    }
    left = {
        key: begun.get(key) or courses.get(key[0])
        for key in done | begun.keys()
        if key[0] not in asked
    }
    others = [key for key, course in left.items() if course not in asked.values()]
    short = [
        key
        for key, course in left.items()
        if course in asked.values() and key not in begun
    ]
    why = [f"{len(others):,} of other settings, rows or versions"] if others else []
    less = (
        "of another length start from the beginning: trainings of less than a "
        "minute keep no state"
    )
    why += [f"{len(short):,} {less}"] if short else []
    state = "finished" if done.issuperset(others) else "finished or interrupted"
    told = (
        f"{store.experiment}: {count(len(others + short), f'{state} trial')} not "
        f"reused: {', '.join(why)}"
    )
    return told if why else ""


def find_run(results: Results, name: str) -> list[tuple[Store, str]]:
    """Return the experiments that hold a run.

    ``name`` is a run-id, the beginning of one or of its hash, or an experiment that has
    one run.
    """
    stores = map(results.store, results.require_experiments())
    held = [(store, run_id) for store in stores for run_id in sorted(store.runs())]
    known = sorted({run_id for _, run_id in held})
    found = [run_id for run_id in known if run_id.startswith(name)]
    if name in known:
        found = [name]
    elif name in results.experiments():
        found = sorted({run_id for store, run_id in held if store.experiment == name})
    elif len(name) >= _FEWEST and not found:
        found = [
            run_id for run_id in known if run_id.rpartition("_")[2].startswith(name)
        ]
    if not found:
        listing = (
            f"; list the runs with: cbm ls {shlex.quote(str(results.folder))} "
            "EXPERIMENT"
        )
        hint = did_you_mean(name, [*known, *results.experiments()], otherwise=listing)
        raise CbmError(f"{results.folder}: no experiment or run {name!r}{hint}")
    if len(found) > 1:
        some = ", ".join(found[:5]) + (", ..." if len(found) > 5 else "")
        raise CbmError(
            f"{results.folder}: {name!r} names {len(found)} runs: {some}; write "
            "more "
            "of one"
        )
    return [(store, run_id) for store, run_id in held if run_id == found[0]]


def find_trial(
    name: str, results: Results | None = None
) -> tuple[Store, str, int] | None:
    """Return experiment, run-id and number of ``[RESULTS/]RUN:TRIAL[:best]``; None for
    any other name.

    RESULTS is results/ by default; RUN as for `find_run`.
    """
    if not (found := MACHINE_NAME.fullmatch(name)):
        return None
    folder = (
        Results(Path(found[1])) if found[1] else results or Results(Path("results"))
    )
    held, number = find_run(folder, found[2]), int(found[3])
    return *next(
        (one for one in held if number in one[0].finished(one[1])), held[0]
    ), number


def describe_run(store: Store, run_id: str) -> dict[str, Any]:
    """Return the settings of a run, and of each trial its values, or why it is not
    finished.
    """
    finished, failed = store.finished(run_id), store.failed(run_id)
    interrupted = {number for run, number in store.interrupted() if run == run_id}
    rows = {row["trial"]: row for row in store.rows([run_id])}
    manifest = store.manifest()
    known = {run.run_id: run.settings for run in (*manifest.others, *manifest.cells)}
    settings, trials = known[run_id].row() if run_id in known else {}, []
    for number in sorted(finished | interrupted | failed):
        status = (
            "finished"
            if number in finished
            else "failed"
            if number in failed
            else "interrupted"
        )
        more = (
            {"details": store.failure(run_id, number)}
            if status == "failed"
            else rows.get(number, {})
        )
        trials.append({"trial": number, "status": status} | more)
    return {
        "run_id": run_id,
        "experiment": store.experiment,
        "in_grid": any(run.run_id == run_id for run in manifest.cells),
        "varying": [axis for axis in manifest.axes if axis in settings],
        "settings": settings,
        "trials": trials,
    }


def is_machine_file(name: str) -> bool:
    """Whether a word of a command is a machine's file, and not the name of an
    experiment or a run.
    """
    return (
        name.endswith(".npz")
        or ("." in name and Path(name).is_file())
        or is_zipfile(name)
    )


def is_machine(name: str) -> bool:
    """Whether a word of a command names a machine: a file, or RUN:TRIAL."""
    return is_machine_file(name) or MACHINE_NAME.fullmatch(name) is not None


def find_machine(name: Path) -> tuple[Path, bytes]:
    """Return the full name and the NPZ file of a machine that is named as for
    `find_trial`.
    """
    if not (found := find_trial(str(name))):
        raise CbmError(
            f"{name}: is not the name of a machine; write RUN:TRIAL, or RUN:TRIAL:best"
        )
    store, run_id, number = found
    if number not in store.finished(run_id) and number >= (
        trials := store.manifest().trials
    ):
        raise CbmError(
            f"{name}: {store.folder} has {count(trials, 'trial')}, from 0 on"
        )
    return store.machine(run_id, number, best=str(name).endswith(":best"))
