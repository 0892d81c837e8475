"""Running finished trials again, and comparing what comes out with what was kept."""

import io
import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.datasets.loading import load_again
from cbm_cli.errors import CbmError
from cbm_cli.execution.compiling import compile_kernels
from cbm_cli.execution.dispatch import run_agenda
from cbm_cli.execution.jobs import Agenda, Job, Key, job_of
from cbm_cli.execution.observe import Observer
from cbm_cli.execution.starts import Names
from cbm_cli.execution.worker import Failure
from cbm_cli.grid.settings import Data, Experiment, Settings, TableSpec, Trial
from cbm_cli.kernels import KERNEL_VERSION
from cbm_cli.results import Outcome, Results, Store

SAME, DIFFERS, DAMAGED, NOT_RERUN = "same bytes", "differs", "damaged", "cannot be rerun"
_OF = {"curve": "", "records": "", "machine": " of the machine", "best": " of the best machine"}

# Columns of curve and records by rows, arrays of machines as single rows; by what they are of and their name.
Values = dict[tuple[str, str], NDArray]


@dataclass(frozen=True)
class Verdict:
    """What the rerun of a finished trial says about it."""

    experiment: str
    run_id: str
    number: int
    verdict: str
    reason: str = ""
    made: str = ""  # how computer and versions of a trial that differs were others than here


Tell = Callable[[Verdict], None]


def verify_trials(
    results: Results,
    names: Sequence[str],
    sample: int | None,
    tell: Tell,
    *,
    workers: int,
    code: bool = True,
    announce: Callable[[str], None] = lambda message: None,
) -> None:
    """Check the files of all finished trials, and run some of them again; ``tell`` gets the verdicts.

    Parameters
    ----------
    sample : int, optional
        How many trials are run again, the same ones each time; None: all.
    code : bool
        Whether a user's own recorders may run.
    """
    sound = [trial for name in names for trial in _sound(results.store(name), tell)]
    number = min(len(sound), sample or len(sound))
    chosen = sorted(random.Random(0).sample(range(len(sound)), number))
    with tempfile.TemporaryDirectory(prefix="cbm-verify-") as folder:
        into = Store(Path(folder, "rerun"))
        jobs, keepers = _jobs(results, [sound[index] for index in chosen], into, code, tell)
        agenda = Agenda([], {}, {}, {}, jobs)
        compile_kernels(agenda, announce)
        announce(f"Running {len(jobs)} of {len(sound)} finished trials again ...")
        run_agenda(agenda, _Reruns(keepers, tell), workers=workers)


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


@dataclass
class _Reruns(Observer):
    """Compares each rerun with the trial that it repeats."""

    keepers: dict[Key, list[Store]]
    tell: Tell

    def finished(self, job: Job, outcome: Outcome) -> None:
        job.stores[0].flush()
        values = _values(job.stores[0], job.key)
        for store in self.keepers[job.key]:
            where = _first_difference(_values(store, job.key), values)
            verdict = (DIFFERS, where, _made(store, job)) if where else (SAME,)
            self.tell(Verdict(store.experiment, *job.key, *verdict))

    def failed(self, job: Job, failure: Failure) -> None:
        for store in self.keepers[job.key]:
            words = f"its rerun failed: {failure.message}"
            self.tell(Verdict(store.experiment, *job.key, NOT_RERUN, words))


def _sound(store: Store, tell: Tell) -> list[tuple[str, str, int]]:
    """The undamaged ones of an experiment's finished trials; damaged ones are told."""
    for (run_id, number), problem in store.damaged().items():
        tell(Verdict(store.experiment, run_id or store.journal.path.name, number, DAMAGED, problem))
    found, lines = [], store.lines()
    for run_id in dict.fromkeys(cell["run_id"] for cell in store.manifest()["cells"]):
        for number in sorted(store.finished(run_id)):
            if problem := store.problem(run_id, number, lines[run_id][number]):
                tell(Verdict(store.experiment, run_id, number, DAMAGED, problem))
            else:
                found.append((store.experiment, run_id, number))
    return found


# Rebuilding


class _Rebuilt:
    """An experiment of a results folder, as its manifest describes it."""

    def __init__(self, results: Results, name: str, code: bool) -> None:
        self.store, self.code = results.store(name), code
        manifest = self.store.manifest()
        self.experiment = _experiment(results, name)
        run_ids = [cell["run_id"] for cell in manifest["cells"]]
        self.cells = dict(zip(run_ids, self.experiment.cells, strict=True))
        self.datasets: dict[Data, Dataset] = {}
        self.names = Names(self.datasets, results.folder, Path(manifest["grid_folder"]))

    def job(self, run_id: str, number: int, into: Store) -> Job:
        """Return the job that runs a trial again; CbmError if what it needs is missing or has changed."""
        experiment, cell = self.experiment, self.cells[run_id]
        if not self.code and any(":" in name for name in cell.record.names):
            raise CbmError("it has recorders of its own, which --no-code does not run", "conflict")
        if cell.data not in self.datasets:
            self.datasets[cell.data] = load_again(cell.data, self.store.manifest())
        named = self.names.of(experiment, cell)
        if named.run_id != run_id:
            told = "its data, its recorders or the machine it starts from have changed since"
            raise CbmError(told, "changed")
        trial = Trial(experiment.name, cell, number, experiment.seed)
        job = job_of(trial, named._replace(course=""), into)  # no checkpoint is kept
        if job.start and job.digest and job.digest != self.store.started_from(run_id, number):
            raise CbmError(f"{job.start.file}: is another machine than the one it started from", "changed")
        return job


def _experiment(results: Results, name: str, users: tuple[str, ...] = ()) -> Experiment:
    """An experiment and those that its trials start from; CbmError if the manifests do not tell."""
    store = results.store(name)
    manifest, place = store.manifest(), store.folder / "manifest.json"
    cbm, version = manifest["versions"]["cbm"], manifest["versions"]["kernel"]
    if version != KERNEL_VERSION:
        other = f"this cbm has kernel version {KERNEL_VERSION}"
        raise CbmError(f"{place}: written by cbm {cbm} (kernel version {version}); {other}", "unreadable")
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


def _made(store: Store, job: Job) -> str:
    """How computer and versions of a kept trial differ from those of its rerun; empty if not at all."""
    there, here = (one.made(*job.key) for one in (store, job.stores[0]))
    return "; ".join(
        f"{name}: {there.get(name, 'not known')}, here {here[name]}"
        for name in here
        if name not in ("cbm", "kernel") and there.get(name) != here[name]
    )


def _values(store: Store, key: Key) -> Values:
    """What a trial has come to."""
    values: Values = {}
    for kind, content in store.contents(*key).items():
        if kind in ("curve", "records"):
            header, *lines = content.decode().splitlines()
            rows = np.array([[*map(float, line.split(","))] for line in lines])
            values |= {(kind, name): rows[:, [i]] for i, name in enumerate(header.split(","))}
        else:
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                values |= {(kind, name): file[name].reshape(1, -1) for name in file.files}
    return values


def _first_difference(kept: Values, rerun: Values) -> str:
    """Say where a rerun first differs from what was kept, and by how much; empty if nowhere.

    Machines are of the end of a trial, after all rows of curve and records. Of several values that differ at
    the same update, the one that differs most is named.
    """
    found: list[tuple[float, float, str]] = []  # update, largest difference, and what is said of them
    for kind, name in kept | rerun:
        one, other, what = kept.get((kind, name)), rerun.get((kind, name)), name + _OF[kind]
        if one is None or other is None:
            found.append((-1, np.inf, f"{what} is only in what was {'rerun' if one is None else 'kept'}"))
        elif (one.dtype, one.shape[1:]) != (other.dtype, other.shape[1:]):
            found.append((-1, np.inf, f"{what} has another size or type"))
        elif (row := _first_row(one, other)) is not None:
            longer = max(kept, rerun, key=lambda of: len(of[kind, name]))
            update = float(longer[kind, "update"][row, 0]) if (kind, "update") in longer else np.inf
            place = f" at update {update:.0f}" if update < np.inf else ""
            if row < min(len(one), len(other)):
                far = _distance(one[row], other[row])
                found.append((update, far, f"{what} differs by {far:.2g}{place}"))
            else:
                found.append((update, 0, f"only one of the two goes on{place}"))
    return min(found, key=lambda one: (one[0], -one[1]), default=(0, 0, ""))[2]


def _first_row(one: NDArray, other: NDArray) -> int | None:
    """Return the first row whose bytes differ, or that only one has."""
    rows = min(len(one), len(other))
    differing = (row for row in range(rows) if one[row].tobytes() != other[row].tobytes())
    return next(differing, None if len(one) == len(other) else rows)


def _distance(one: NDArray, other: NDArray) -> float:
    """Return the largest difference of two rows; infinity of what is no finite number in one of them."""
    if one.dtype.kind != "f":
        return np.inf
    with np.errstate(invalid="ignore"):
        far = np.abs(one.astype(np.float64) - other)
    far[(one == other) | (np.isnan(one) & np.isnan(other))] = 0
    return float(np.nan_to_num(far, nan=np.inf).max())
