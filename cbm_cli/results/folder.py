"""A folder of results: its experiments, runs and machines, and results that no grid
asks for.
"""

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import msgspec

from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.grid.settings import Settings
from cbm_cli.results.columns import Columns, Row
from cbm_cli.results.journal import Manifest
from cbm_cli.results.reader import Store
from cbm_cli.text import count, did_you_mean

# the results folder, a run, the number of a trial, and whether its best-valid machine
# is meant
MACHINE_NAME = re.compile(r"(?:(.*)/)?([^/:]+):(\d{1,16})(:best)?")
_FEWEST = 4  # characters of the hash of a run-id that name a run
_MOST_NAMED = 5  # runs that a message names
_MOST_NEAR = 3  # folders that a message names


class ExperimentRecord(msgspec.Struct, frozen=True):
    """What ``cbm ls`` lists of an experiment: numbers of trials by status."""

    experiment: str
    description: str
    data: list[str]
    cells: int
    finished: int
    planned: int
    beyond: int  # finished ones that the grid does not ask for
    interrupted: int
    failed: int
    other_runs: int  # that the grid does not ask for
    when: str | None  # the last change of a trial; None without a finished one


class RunRecord(msgspec.Struct, frozen=True):
    """What ``cbm ls`` lists of a run: the settings that tell runs apart, and numbers of
    trials by status.
    """

    experiment: str
    run_id: str
    settings: dict[str, Any]
    in_grid: bool
    finished: int
    beyond: int
    planned: int
    interrupted: int
    failed: int


class TrialRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A trial of a run, with its row of the summary, or why it failed."""

    trial: int
    status: str  # finished, failed or interrupted
    columns: dict[str, Any] = {}
    details: str = ""


class RunDetails(msgspec.Struct, frozen=True):
    """All settings of a run, and its trials."""

    run_id: str
    experiment: str
    in_grid: bool
    varying: list[str]  # settings that tell its experiment's cells apart
    settings: dict[str, Any]
    trials: list[TrialRecord]


class Results:
    """A results folder, as given to ``cbm run -o``, with one folder per experiment;
    read-only.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            problem = "there is no such folder"
            if folder.exists():
                problem = "is a file, not a folder of results"
            raise CbmError(f"{folder}: {problem}; {_where_results_are(folder)}")
        self.folder = folder
        self._stores: dict[str, Store] = {}

    def experiments(self) -> list[str]:
        """Return the names of the experiments in this folder."""
        return _experiments_in(self.folder)

    def require_experiments(self) -> list[str]:
        """Return the names of the experiments; raise if there are none."""
        names = self.experiments()
        if names:
            return names
        message = f"{self.folder}: holds no results; {_where_results_are(self.folder)}"
        if any(not path.name.startswith(".") for path in self.folder.iterdir()):
            raise CbmError(message)
        raise IncompleteError(message)

    @contextmanager
    def readable(self, names: Iterable[str] = ()) -> Iterator[list[Store]]:
        """Yield experiments, by default all; at the end CbmError names those with a
        damaged manifest.
        """
        stores: list[Store] = []
        problems: list[str] = []
        for name in dict.fromkeys(names or self.require_experiments()):
            store = self.store(name)
            try:
                store.manifest()
                stores.append(store)
            except CbmError as error:
                problems.append(str(error))
        try:
            if stores:
                yield stores
        except IncompleteError:
            if not problems:
                raise
        if problems:
            raise CbmError("\n".join(problems))

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
        if experiment in self._stores:
            return self._stores[experiment]
        folder = self.folder / experiment
        if folder.name != experiment or not _holds_results(folder):
            names = self.experiments()
            hint = f"; {_where_results_are(self.folder)}"
            if names:
                hint = did_you_mean(experiment, names)
            raise CbmError(f"{self.folder}: no results of {experiment!r}{hint}")
        return self._stores.setdefault(experiment, Store(folder))


def _experiments_in(folder: Path) -> list[str]:
    """The names of folders with trials, or with a manifest of cbm's."""
    paths = [*folder.glob("*/trials.jsonl"), *folder.glob("*/manifest.json")]
    folders = {path.parent for path in paths}
    return sorted(path.name for path in folders if _holds_results(path))


def _holds_results(folder: Path) -> bool:
    """Whether a folder has trials, or a manifest of cbm's: other programs have such
    files, too.
    """
    if (folder / "trials.jsonl").is_file():
        return True
    manifest = folder / "manifest.json"
    if not manifest.is_file():
        return False
    with suppress(PermissionError), manifest.open("rb") as stream:
        return b'"format"' in stream.read(20)
    return False


def _where_results_are(folder: Path) -> str:
    """Say where the results are that a reader may have meant instead of a folder, or
    how to make some.
    """
    resolved = folder.resolve()
    for path in (resolved, *resolved.parents[:-1]):
        if path.name in _experiments_in(path.parent):
            place = shlex.quote(os.path.relpath(path.parent))
            words = f"{place} {shlex.quote(path.name)}"
            return f"it belongs to the experiment {path.name}; write {words} instead"
    around = folder if folder.is_dir() else folder.parent
    names = _experiments_in(Path("results"))
    near = [path for path in sorted(around.glob("*/")) if _experiments_in(path)]
    if near and (folder.is_dir() or not names):
        return f"there are some in {', '.join(map(str, near[:_MOST_NEAR]))}"
    if names:
        experiments = ", ".join(names)
        remedy = "write: results/ EXPERIMENT"
        return f"results/ holds the experiments {experiments}; {remedy}"
    command = "cbm run experiments.yaml"
    if not folder.is_file():
        command += f" -o {shlex.quote(str(folder))}"
    return f"make some with: {command}"


# What ls lists


def describe_experiment(store: Store) -> ExperimentRecord:
    """Return its description, data, cells, numbers of trials by status, and the
    date.
    """
    manifest = store.manifest()
    runs = _records_of(store, manifest, {run.run_id: run.row for run in manifest.cells})
    finished = sum(run.finished for run in runs)
    beyond = sum(run.beyond for run in runs)
    when = None
    if finished or beyond:
        changed = datetime.fromtimestamp(store.journal.path.stat().st_mtime, UTC)
        when = changed.isoformat(timespec="seconds")
    titles = [run.settings.data.title for run in manifest.cells]
    return ExperimentRecord(
        experiment=store.experiment,
        description=manifest.description,
        data=list(dict.fromkeys(titles)),
        cells=len(runs),
        finished=finished,
        planned=sum(run.planned for run in runs),
        beyond=beyond,
        interrupted=sum(run.interrupted for run in runs),
        failed=sum(run.failed for run in runs),
        other_runs=len(other_runs(store, manifest)),
        when=when,
    )


def list_runs(store: Store, others: bool = False) -> list[RunRecord]:
    """Return a record per run of the grid that was last run: its settings and its
    trials.

    Trials ``beyond`` those that the grid asks for do not count as finished. With
    ``others``, those runs come behind that are kept but not asked for by the grid, with
    nothing planned.
    """
    manifest = store.manifest()
    rows: dict[str, Row] = {run.run_id: run.row for run in manifest.cells}
    if others:
        for run_id, settings in other_runs(store, manifest).items():
            rows[run_id] = settings.row() if settings else {}
    return _records_of(store, manifest, rows)


def _records_of(
    store: Store, manifest: Manifest, rows: Mapping[str, Row]
) -> list[RunRecord]:
    """Return the records of runs, whose settings are known by run-id."""
    asked = {run.run_id for run in manifest.cells}
    axes = Columns([row for row in rows.values() if row]).axes(manifest.table)
    interrupted = Counter(run_id for run_id, _ in store.interrupted())
    records = []
    for run_id, row in rows.items():
        in_grid = run_id in asked
        finished = store.finished(run_id)
        beyond = 0
        if in_grid:
            beyond = sum(number >= manifest.trials for number in finished)
        record = RunRecord(
            experiment=store.experiment,
            run_id=run_id,
            settings={axis: row.get(axis) for axis in axes},
            in_grid=in_grid,
            finished=len(finished) - beyond,
            beyond=beyond,
            planned=manifest.trials if in_grid else 0,
            interrupted=interrupted[run_id],
            failed=len(store.failed(run_id)),
        )
        records.append(record)
    return records


def other_runs(store: Store, manifest: Manifest) -> dict[str, Settings | None]:
    """Return the settings, where they are known, of runs with finished trials that are
    not asked for.
    """
    asked = {run.run_id for run in manifest.cells}
    known = {run.run_id: run.settings for run in manifest.others}
    others = sorted(store.lines().keys() - asked)
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
    finished = {
        (run_id, number)
        for run_id in store.lines()
        for number in store.finished(run_id)
    }
    others, shorter = [], 0
    for key in finished | begun.keys():
        if key[0] in asked:
            continue
        course = begun.get(key) or courses.get(key[0])
        if course not in asked.values():
            others.append(key)
        elif key not in begun:
            shorter += 1
    reasons = []
    if others:
        reasons.append(f"{len(others):,} of other settings, rows or versions")
    if shorter:
        reasons.append(
            f"{shorter:,} of another length start from the beginning: trainings of "
            "less than a minute keep no state"
        )
    if not reasons:
        return ""
    status = "finished" if finished.issuperset(others) else "finished or interrupted"
    trials = count(len(others) + shorter, f"{status} trial")
    return f"{store.experiment}: {trials} not reused: {', '.join(reasons)}"


# Runs and machines by name


def find_run(results: Results, name: str) -> list[tuple[Store, str]]:
    """Return the experiments that hold a run.

    ``name`` is a run-id, the beginning of one or of its hash, or an experiment that has
    one run.
    """
    held: list[tuple[Store, str]] = []
    for experiment in results.require_experiments():
        store = results.store(experiment)
        held += [(store, run_id) for run_id in sorted(store.runs())]
    run_ids = sorted({run_id for _, run_id in held})
    matches = [run_id for run_id in run_ids if run_id.startswith(name)]
    if name in run_ids:
        matches = [name]
    elif name in results.experiments():
        own = {run_id for store, run_id in held if store.experiment == name}
        matches = sorted(own)
    elif len(name) >= _FEWEST and not matches:
        hashes = {run_id: run_id.rpartition("_")[2] for run_id in run_ids}
        matches = [run_id for run_id in run_ids if hashes[run_id].startswith(name)]
    if not matches:
        folder = shlex.quote(str(results.folder))
        listing = f"; list the runs with: cbm ls {folder} EXPERIMENT"
        names = [*run_ids, *results.experiments()]
        hint = did_you_mean(name, names, otherwise=listing)
        raise CbmError(f"{results.folder}: no experiment or run {name!r}{hint}")
    if len(matches) > 1:
        some = ", ".join(matches[:_MOST_NAMED])
        if len(matches) > _MOST_NAMED:
            some += ", ..."
        runs = f"{name!r} names {len(matches)} runs: {some}"
        raise CbmError(f"{results.folder}: {runs}; write more of one")
    return [(store, run_id) for store, run_id in held if run_id == matches[0]]


def find_trial(
    name: str, results: Results | None = None
) -> tuple[Store, str, int] | None:
    """Return experiment, run-id and number of ``[RESULTS/]RUN:TRIAL[:best]``; None for
    any other name.

    RESULTS is results/ by default; RUN as for `find_run`.
    """
    match = MACHINE_NAME.fullmatch(name)
    if match is None:
        return None
    folder, run, number = match[1], match[2], int(match[3])
    if folder:
        results = Results(Path(folder))
    holders = find_run(results or Results(Path("results")), run)
    for store, run_id in holders:
        if number in store.finished(run_id):
            return store, run_id, number
    return *holders[0], number


def describe_run(store: Store, run_id: str) -> RunDetails:
    """Return the settings of a run, and of each trial its values, or why it is not
    finished.
    """
    finished, failed = store.finished(run_id), store.failed(run_id)
    interrupted = {number for run, number in store.interrupted() if run == run_id}
    rows = {row["trial"]: row for row in store.rows([run_id])}
    trials = []
    for number in sorted(finished | interrupted | failed):
        if number in finished:
            record = TrialRecord(number, "finished", columns=rows.get(number, {}))
        elif number in failed:
            details = store.failure(run_id, number)
            record = TrialRecord(number, "failed", details=details)
        else:
            record = TrialRecord(number, "interrupted")
        trials.append(record)
    manifest = store.manifest()
    known = {run.run_id: run.settings for run in (*manifest.others, *manifest.cells)}
    settings = known[run_id].row() if run_id in known else {}
    return RunDetails(
        run_id=run_id,
        experiment=store.experiment,
        in_grid=any(run.run_id == run_id for run in manifest.cells),
        varying=[axis for axis in manifest.axes if axis in settings],
        settings=settings,
        trials=trials,
    )


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
    trial = find_trial(str(name))
    if trial is None:
        raise CbmError(
            f"{name}: is not the name of a machine; write RUN:TRIAL, or RUN:TRIAL:best"
        )
    store, run_id, number = trial
    if number not in store.finished(run_id):
        trials = store.manifest().trials
        if number >= trials:
            there = f"{store.folder} has {count(trials, 'trial')}, from 0 on"
            raise CbmError(f"{name}: {there}")
    return store.machine(run_id, number, best=str(name).endswith(":best"))
