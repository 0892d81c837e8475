"""Running finished trials again, and comparing what comes out with what was kept.

A trial that another computer has run differs in last bits, until one of them turns a sampled unit over; then
it takes another course. How far apart such courses are depends on the trial, and is measured: the trial also
runs from weights that are moved a little. What was kept is equal within rounding if it is about as close to
the rerun as these are. On a computer of the same kind only the same bytes will do.
"""

import io
import random
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from cbm_cli.datasets.catalogue import load
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.execution.dispatch import run_agenda
from cbm_cli.execution.forecast import compile_kernels
from cbm_cli.execution.jobs import Agenda, Job, Key
from cbm_cli.execution.starts import Names
from cbm_cli.grid.settings import Data, Experiment, Settings, TableSpec, Trial
from cbm_cli.kernels import KERNEL_VERSION
from cbm_cli.results import Progress, Results, Store
from cbm_cli.trial.loop import run_trial
from cbm_cli.trial.own_recorders import compiled

SAME, ROUNDING, DIFFERENT = "same bytes", "equal within rounding", "different"
DAMAGED, NOT_RERUN = "damaged", "cannot be rerun"
MOVES = (2.0**-20, 2.0**-18, 2.0**-16, 2.0**-14)  # of weights, relative; float32 rounds by 2^-24
TOLERANCE = 1e-5  # of a difference, relative to 1 + |value|, that needs no such measurement
FACTOR = 10.0  # by which a kept trial may be farther away than the farthest of the moved ones
_SUFFIXES = {".csv": "", ".records.csv": "", ".npz": " of the machine", ".best.npz": " of the best machine"}

Values = dict[
    str, NDArray
]  # columns of curve and records, machines as single rows; by their names in messages
Distances = dict[str, NDArray]  # largest differences of each row, relative to 1 + |value|


@dataclass(frozen=True)
class Verdict:
    """What the rerun of a finished trial says about it."""

    experiment: str
    run_id: str
    number: int
    verdict: str
    reason: str = ""


Tell = Callable[[Verdict], None]


def verify_trials(
    results: Results,
    names: Sequence[str],
    choose: Callable[[int], int],
    tell: Tell,
    *,
    workers: int,
    seed: int = 1,
    code: bool = True,
    announce: Callable[[str], None] = lambda message: None,
) -> None:
    """Check the files of all finished trials, and run some of them again; ``tell`` gets the verdicts.

    Parameters
    ----------
    choose : callable
        Returns how many of so many trials are run again; which ones, ``seed`` decides.
    code : bool
        Whether a user's own recorders may run.
    """
    sound = [trial for name in names for trial in _sound(results.store(name), tell)]
    chosen = sorted(random.Random(seed).sample(range(len(sound)), choose(len(sound))))
    with tempfile.TemporaryDirectory(prefix="cbm-verify-") as folder:
        stores = [Store(Path(folder, name)) for name in ("rerun", *map(str, MOVES))]
        jobs, keepers = _jobs(results, [sound[index] for index in chosen], stores[0], code, tell)
        compile_kernels(_agenda(jobs), announce)
        announce(f"Running {len(jobs)} of {len(sound)} finished trials again ...")
        doubts = _rerun(jobs, keepers, tell, workers)
        for move, store in zip(MOVES, stores[1:], strict=True):
            if doubts:
                announce(f"Running {len(doubts)} trials from moved weights, to see what rounding may do ...")
                doubts = _settled(doubts, move, store, tell, workers)
    for doubt in doubts:
        reason = f"{doubt.farthest()}; {doubt.computers}"
        tell(Verdict(doubt.kept.experiment, *doubt.job.key, DIFFERENT, reason))


def _agenda(jobs: Iterable[Job]) -> Agenda:
    return Agenda(experiments=[], stores={}, run_ids={}, datasets={}, jobs=[*jobs])


def _jobs(
    results: Results, chosen: Sequence[tuple[str, str, int]], into: Store, code: bool, tell: Tell
) -> tuple[list[Job], dict[Key, list[Store]]]:
    """The jobs that run trials again, and which experiments have kept each of them."""
    rebuilt: dict[str, _Rebuilt] = {}
    jobs: dict[Key, Job] = {}
    keepers: dict[Key, list[Store]] = {}
    for name, run_id, number in chosen:
        try:
            if name not in rebuilt:
                rebuilt[name] = _Rebuilt(results, name, code)
            job = rebuilt[name].job(run_id, number, into)
        except CbmError as error:
            tell(Verdict(name, run_id, number, NOT_RERUN, str(error)))
            continue
        jobs[job.key] = job
        keepers.setdefault(job.key, []).append(results.store(name))
    return [*jobs.values()], keepers


def _rerun(jobs: list[Job], keepers: dict[Key, list[Store]], tell: Tell, workers: int) -> list["_Doubt"]:
    """Run trials again; return those that another computer has kept and that are not the same."""
    doubts: list[_Doubt] = []

    def compare(job: Job, outcome: object) -> None:
        values = _values(job.stores[0], job.key)
        doubts.extend(filter(None, (_judged(job, store, values, tell) for store in keepers[job.key])))

    for job, failure in run_agenda(_agenda(jobs), workers=workers, on_finished=compare).failed:
        for store in keepers[job.key]:
            tell(Verdict(store.experiment, *job.key, NOT_RERUN, f"its rerun failed: {failure.message}"))
    return doubts


def _sound(store: Store, tell: Tell) -> list[tuple[str, str, int]]:
    """The undamaged ones of an experiment's finished trials; damaged ones are told."""
    found = []
    for run_id in dict.fromkeys(cell["run_id"] for cell in store.manifest()["cells"]):
        damaged = store.damaged(run_id)
        for number in sorted(store.finished(run_id)):
            if number in damaged:
                tell(Verdict(store.experiment, run_id, number, DAMAGED, damaged[number]))
            else:
                found.append((store.experiment, run_id, number))
    return found


# Rebuilding


class _Datasets(dict[Data, Dataset]):
    """Data sets, loaded when they are needed."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def __missing__(self, data: Data) -> Dataset:
        self[data] = load(data, folder=self.folder)
        return self[data]


class _Rebuilt:
    """An experiment of a results folder, as its manifest describes it."""

    def __init__(self, results: Results, name: str, code: bool) -> None:
        self.store, self.code = results.store(name), code
        manifest = self.store.manifest()
        self.experiment = _experiment(results, name)
        run_ids = [cell["run_id"] for cell in manifest["cells"]]
        self.cells = dict(zip(run_ids, self.experiment.cells, strict=True))
        folder = Path(manifest["grid_folder"])
        self.names = Names(_Datasets(folder), results.folder, folder)

    def job(self, run_id: str, number: int, into: Store) -> Job:
        """Return the job that runs a trial again; CbmError if what it needs is missing or has changed."""
        experiment, names, cell = self.experiment, self.names, self.cells[run_id]
        if not self.code and any(":" in name for name in cell.record.names):
            raise CbmError("it has recorders of its own, which --no-code does not run", "conflict")
        if names.run_id(experiment, cell) != run_id:
            raise CbmError(
                "its data, its recorders or the machine it starts from have changed since", "changed"
            )
        start = names.start(experiment, cell)
        job = Job(
            Trial(experiment.name, cell, number, experiment.seed),
            run_id,
            names.datasets[cell.data],
            (into,),
            names.pretraining(experiment, cell),
            names.own_recorders(cell),
            start=start.of(number) if start else None,
        )
        if job.start and job.digest and job.digest != self.store.started_from(run_id, number):
            raise CbmError(f"{job.start.file}: is another machine than the one it started from", "changed")
        return job


def _experiment(results: Results, name: str, users: tuple[str, ...] = ()) -> Experiment:
    """An experiment and those that its trials start from; CbmError if the manifests do not tell."""
    store = results.store(name)
    manifest, place = store.manifest(), store.folder / "manifest.json"
    cbm, version = manifest["versions"].get("cbm"), manifest["versions"].get("kernel", 1)
    if version != KERNEL_VERSION:
        other = f"this cbm has kernel version {KERNEL_VERSION}"
        raise CbmError(f"{place}: written by cbm {cbm} (kernel version {version}); {other}", "unreadable")
    if "settings" not in manifest:
        raise CbmError(
            f"{place}: of an older cbm; cbm run completes it, and keeps finished trials", "unreadable"
        )
    try:
        cells = tuple(Settings(**given) for given in manifest["settings"])
        table = TableSpec(**manifest["table"])
    except (ValidationError, TypeError) as error:
        raise CbmError(f"{place}: settings cannot be read: {error}", "unreadable") from None
    needed = dict.fromkeys(cell.start_from.experiment for cell in cells if cell.start_from.experiment)
    if name in users:
        raise CbmError(f"{place}: starts from an experiment that starts from it", "conflict")
    sources = tuple(_experiment(results, source, (*users, name)) for source in needed)
    facts = manifest["description"], manifest["trials"], manifest["seed"]
    return Experiment(name, *facts, cells, table, sources)


# Comparing


@dataclass
class _Doubt:
    """A trial that another computer has kept, and that its rerun differs from."""

    job: Job
    kept: Store
    computers: str  # how they differ
    distances: Distances
    moved: Distances = field(default_factory=dict)  # from the rerun to the farthest run from moved weights

    def excess(self, name: str) -> NDArray:
        """Return the differences row by row, in units of what rounding explains.

        Courses part by chance: here perhaps a row earlier than in the runs from moved weights.
        """
        far = self.moved.get(name, np.zeros(1))
        far = np.maximum.accumulate(np.maximum(far, np.append(far[1:], far[-1])))
        return self.distances[name] / (TOLERANCE + FACTOR * _stretched(far, len(self.distances[name])))

    def is_settled(self) -> bool:
        """Whether rounding explains all differences."""
        return all((self.excess(name) <= 1).all() for name in self.distances)

    def farthest(self) -> str:
        """Return a few words on the difference that rounding explains least."""
        name = max(self.distances, key=lambda name: self.excess(name).max())
        row = int(self.excess(name).argmax())
        where = f" in row {row + 1}" if len(self.distances[name]) > 1 else ""
        far, most = self.distances[name][row], self.distances[name][row] / self.excess(name)[row]
        return f"{name} differs by {far:.2g}{where}; rounding explains {most:.2g}"


def _judged(job: Job, store: Store, values: Values, tell: Tell) -> _Doubt | None:
    """Tell what the rerun says about a kept trial, unless that takes a closer look."""
    kept, computers = _values(store, job.key), _differences(store, job)
    doubt = _Doubt(job, store, computers, _distances(kept, values))
    if _same(kept, values):
        verdict = SAME, ""
    elif not computers:
        verdict = DIFFERENT, f"{doubt.farthest()}; the computers are of one kind"
    elif doubt.is_settled():
        verdict = ROUNDING, computers
    else:
        return doubt
    tell(Verdict(store.experiment, *job.key, *verdict))
    return None


def _settled(doubts: list[_Doubt], move: float, into: Store, tell: Tell, workers: int) -> list[_Doubt]:
    """Run doubtful trials from moved weights; return those that rounding still does not explain."""
    jobs = {one.job.key: replace(one.job, stores=(into,), start=_Moved(one.job, move)) for one in doubts}  # type: ignore[arg-type]

    def compare(job: Job, outcome: object) -> None:
        for doubt in doubts:
            if doubt.job.key == job.key:
                found = _distances(_values(into, job.key), _values(doubt.job.stores[0], job.key))
                for name, far in found.items():
                    doubt.moved[name] = _farther(far, doubt.moved.get(name, far))

    run_agenda(_agenda(jobs.values()), workers=workers, on_finished=compare)
    for doubt in doubts:
        if doubt.is_settled():
            reason = f"as close as runs from weights moved by {move:.1g}; {doubt.computers}"
            tell(Verdict(doubt.kept.experiment, *doubt.job.key, ROUNDING, reason))
    return [doubt for doubt in doubts if not doubt.is_settled()]


@dataclass(frozen=True)
class _Moved:
    """The start of a trial with moved weights, in place of a `Start`."""

    job: Job
    move: float
    digest = ""
    needs = None

    def progress(self, trial: Trial, data: Dataset) -> Progress:
        """Return the trial before its first update."""
        since = self.job.start.progress(trial, data) if self.job.start else None
        now: Any = run_trial(
            trial, data, since, should_pause=lambda: True, recorders=compiled(self.job.sources)
        )
        W = now.state.W
        W *= 1 + self.move * np.random.default_rng(trial.seed).uniform(-1, 1, W.shape).astype(W.dtype)
        return now


def _differences(store: Store, job: Job) -> str:
    """How computer and versions of a kept trial differ from those of its rerun; empty if not at all."""
    there, here = ({**one.computer(*job.key), **_versions(one, job.key)} for one in (store, job.stores[0]))
    if "cpu" not in there:
        return "the computer that kept it is not known"
    return "; ".join(
        f"{name}: {there.get(name)}, here {here[name]}" for name in here if there.get(name) != here[name]
    )


def _versions(store: Store, key: Key) -> dict[str, str]:
    row = store.row(*key) or {}
    return {name: row[f"{name}_version"] for name in ("numpy", "numba")}


def _values(store: Store, key: Key) -> Values:
    """What a trial has come to; the evaluation before the first update apart from the others."""
    values: Values = {}
    for suffix, content in store.contents(*key).items():
        if suffix.endswith(".csv"):
            header, *lines = content.decode().splitlines()
            rows = np.array([[*map(float, line.split(","))] for line in lines])
            for name, column in zip(header.split(","), rows.T, strict=True):
                values |= {f"{name} at the start": column[:1], name: column[1:]}
        else:
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                values |= {f"{name}{_SUFFIXES[suffix]}": file[name].reshape(1, -1) for name in file.files}
    return values


def _same(one: Values, other: Values) -> bool:
    facts = ({name: (a.dtype, a.shape, a.tobytes()) for name, a in of.items()} for of in (one, other))
    return next(facts) == next(facts)


def _distances(one: Values, other: Values) -> Distances:
    return {name: _distance(one.get(name), other.get(name)) for name in one | other}


def _distance(one: NDArray | None, other: NDArray | None) -> NDArray:
    """Largest differences of rows, as far as both go: training may stop early."""
    if one is None or other is None or one.shape[1:] != other.shape[1:] or one.dtype.kind != other.dtype.kind:
        return np.array([np.inf])
    if one.dtype.kind != "f":
        return np.array([0.0 if np.array_equal(one, other) else np.inf])
    rows = min(len(one), len(other))
    one, other = (array[:rows].astype(np.float64).reshape(rows, -1) for array in (one, other))
    with np.errstate(invalid="ignore"):
        far = np.abs(one - other) / (1 + np.abs(other))
    far[(one == other) | (np.isnan(one) & np.isnan(other))] = 0
    return np.nan_to_num(far, nan=np.inf).max(axis=1, initial=0.0)


def _farther(one: NDArray, other: NDArray) -> NDArray:
    rows = max(len(one), len(other))
    return np.maximum(_stretched(one, rows), _stretched(other, rows))


def _stretched(rows: NDArray, length: int) -> NDArray:
    """Rows with the last one repeated up to a length."""
    return rows[np.minimum(np.arange(length), len(rows) - 1)]
