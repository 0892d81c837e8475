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
from functools import cache
from pathlib import Path
from zipfile import is_zipfile

import msgspec

from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.results.columns import Columns, Row
from cbm_cli.results.reader import Store
from cbm_cli.text import count, did_you_mean

# the results folder, a run, the number of a trial, and whether its best-valid machine
# is meant
MACHINE_NAME = re.compile(r"(?:(.*)/)?([^/:]+):(\d{1,16})(:best)?")
_FEWEST = 4  # characters of the hash of a run-id that name a run
_MOST_NAMED = 5  # runs or folders that a message names


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
    settings: Row
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
    columns: Row = {}
    details: str = ""


class RunDetails(msgspec.Struct, frozen=True):
    """All settings of a run, and its trials."""

    run_id: str
    experiment: str
    in_grid: bool
    varying: list[str]  # settings that tell its experiment's cells apart
    settings: Row
    trials: list[TrialRecord]


class Results:
    """A results folder, as given to ``cbm run -o``, with one folder per experiment;
    read-only.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise CbmError(f"{folder}: is not a folder; {_where_results_are(folder)}")
        self.folder = folder
        self.store = cache(self._store)  # each experiment is read once

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

    def _store(self, experiment: str) -> Store:
        """Return the folder of one experiment; CbmError if it is not there."""
        folder = self.folder / experiment
        if folder.name != experiment or not _holds_results(folder):
            hint = did_you_mean(experiment, self.require_experiments())
            raise CbmError(f"{self.folder}: no results of {experiment!r}{hint}")
        return Store(folder)


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
    places = dict.fromkeys([*sorted(around.glob("*/")), Path("results")])
    near = [f"{path}/" for path in places if _experiments_in(path)]
    if near:
        return f"there are some in {', '.join(near[:_MOST_NAMED])}"
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
    runs = list_runs(store)
    in_grid = [run for run in runs if run.in_grid]
    totals = {}
    for status in ("finished", "planned", "beyond", "interrupted", "failed"):
        totals[status] = sum(getattr(run, status) for run in in_grid)
    when = None
    if totals["finished"] or totals["beyond"]:
        changed = datetime.fromtimestamp(store.journal.path.stat().st_mtime, UTC)
        when = changed.isoformat(timespec="seconds")
    titles = [run.settings.data.title for run in manifest.cells]
    return ExperimentRecord(
        experiment=store.experiment,
        description=manifest.description,
        data=list(dict.fromkeys(titles)),
        cells=len(in_grid),
        other_runs=len(runs) - len(in_grid),
        when=when,
        **totals,
    )


def list_runs(store: Store) -> list[RunRecord]:
    """Return a record per run of the grid that was last run, and then of each run with
    finished trials that this grid does not ask for, with nothing planned.

    Trials ``beyond`` those that the grid asks for do not count as finished.
    """
    manifest = store.manifest()
    asked = {run.run_id for run in manifest.cells}
    rows: dict[str, Row] = {run.run_id: run.row for run in manifest.cells}
    for run_id in sorted(store.lines()):
        if run_id not in asked and store.finished(run_id):
            rows[run_id] = manifest.row_of(run_id)
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


def describe_run(store: Store, run_id: str) -> RunDetails:
    """Return the settings of a run, and of each trial its values, or why it is not
    finished.
    """
    trials: dict[int, TrialRecord] = {}
    for row in store.rows([run_id]):
        trials[row["trial"]] = TrialRecord(row["trial"], "finished", columns=row)
    for number in store.failed(run_id):
        details = store.failure(run_id, number)
        trials[number] = TrialRecord(number, "failed", details=details)
    for run, number in store.interrupted():
        if run == run_id:
            trials.setdefault(number, TrialRecord(number, "interrupted"))
    manifest = store.manifest()
    settings = manifest.row_of(run_id)
    return RunDetails(
        run_id=run_id,
        experiment=store.experiment,
        in_grid=any(run.run_id == run_id for run in manifest.cells),
        varying=[axis for axis in manifest.axes if axis in settings],
        settings=settings,
        trials=[trials[number] for number in sorted(trials)],
    )


def not_reused(store: Store, asked: Mapping[str, str]) -> str:
    """Say how many kept trials are of none of the runs asked for, and why; ``""``
    without any.

    ``asked`` holds the courses of the runs.
    """
    manifest = store.manifest_if_sound()  # a run writes a missing one
    courses = manifest.courses if manifest else {}
    states = {(state.run_id, state.trial): state.course for state in store.states()}
    finished = {*store.finished_keys(store.lines())}
    different = []
    shorter = 0
    for key in finished | states.keys():
        run_id, _ = key
        if run_id in asked:
            continue
        if states.get(key, courses.get(run_id)) not in asked.values():
            different.append(key)
        elif key not in states:
            shorter += 1
    reasons = []
    if different:
        reasons.append(f"{len(different):,} of other settings, rows or versions")
    if shorter:
        reasons.append(
            f"{shorter:,} of another length start from the beginning: trainings of "
            "less than a minute keep no state"
        )
    if not reasons:
        return ""
    status = "finished"
    if not finished.issuperset(different):
        status = "finished or interrupted"
    trials = count(len(different) + shorter, f"{status} trial")
    return f"{store.experiment}: {trials} not reused: {', '.join(reasons)}"


# Runs and machines by name


def find_run(results: Results, name: str) -> list[tuple[Store, str]]:
    """Return the experiments that hold a run.

    ``name`` is a run-id, the beginning of one or of its hash, or an experiment that has
    one run.
    """
    runs: list[tuple[Store, str]] = []
    for experiment in results.require_experiments():
        store = results.store(experiment)
        runs += [(store, run_id) for run_id in sorted(store.runs())]
    matches = {run_id for store, run_id in runs if name in (run_id, store.experiment)}
    if not matches:
        matches = {run_id for _, run_id in runs if _begins_with(run_id, name)}
    if not matches:
        folder = shlex.quote(str(results.folder))
        listing = f"; list the runs with: cbm ls {folder} EXPERIMENT"
        names = [*dict.fromkeys(run_id for _, run_id in runs), *results.experiments()]
        hint = did_you_mean(name, names, otherwise=listing)
        raise CbmError(f"{results.folder}: no experiment or run {name!r}{hint}")
    if len(matches) > 1:
        listed = ", ".join(sorted(matches)[:_MOST_NAMED])
        raise CbmError(
            f"{results.folder}: {name!r} names {len(matches)} runs; write more of one, "
            f"such as {listed}"
        )
    return [(store, run_id) for store, run_id in runs if run_id in matches]


def _begins_with(run_id: str, name: str) -> bool:
    """Whether a name is the beginning of a run-id, or of its hash."""
    digits = run_id.rpartition("_")[2]
    is_of_hash = len(name) >= _FEWEST and digits.startswith(name)
    return is_of_hash or run_id.startswith(name)


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
