"""Run finished trials again, and compare their results with the kept ones."""

import io
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from itertools import zip_longest
from math import inf
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cbm_cli.arrays import read_npz
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.datasets.loading import load_again
from cbm_cli.errors import CbmError
from cbm_cli.execution.agenda import Job, job_of
from cbm_cli.execution.identity import Names
from cbm_cli.execution.precompile import precompile
from cbm_cli.execution.spread import Task, spread
from cbm_cli.execution.work import Failure, Say, train
from cbm_cli.grid.settings import Data, Experiment, Settings, Trial
from cbm_cli.kernels import KERNEL_VERSION
from cbm_cli.results import Outcome, Progress, Results, Store
from cbm_cli.results.journal import Line, TrialKey
from cbm_cli.results.writer import by_column

_NONE = np.empty(0)
_BEFORE_ALL = -1  # an update, for differences that concern all rows
SAME = "same bytes"
DIFFERENT = "different"
DAMAGED = "damaged"
CANNOT = "cannot be run again"


@dataclass(frozen=True)
class Verdict:
    """What the rerun of a finished trial says about it."""

    experiment: str
    run_id: str
    number: int
    verdict: str
    reason: str = ""  # of a trial that is different: where first
    # How computer and versions of a trial that is different were others than here
    made: str = ""


Tell = Callable[[Verdict], None]


def verify_trials(
    results: Results,
    names: Sequence[str],
    tell: Tell,
    *,
    sample: int | None,
    workers: int,
    code: bool = True,
    announce: Say,
) -> None:
    """Check the files of all finished trials, and run some of them again; ``tell`` gets
    the verdicts.

    A user's own recorder runs only if its text is that of the trial.

    Parameters
    ----------
    sample : int, optional
        How many trials are run again; None: all.
    code : bool
        Whether a user's own recorders may run.
    """
    trials: list[tuple[_Rebuilt, TrialKey]] = []
    for name in names:
        rebuilt = _Rebuilt(results, name, code)
        trials += [(rebuilt, key) for key in _sound(rebuilt.store, tell)]
    finished = len(trials)
    if sample is not None and sample < finished:
        places = random.Random().sample(range(finished), sample)
        trials = [trials[place] for place in sorted(places)]
        announce(f"Drew {sample} of {finished} finished trials at random")
    tasks: list[Task] = []
    for rebuilt, (run_id, number) in trials:
        try:
            job = rebuilt.job(run_id, number)
        except CbmError as error:
            tell(Verdict(rebuilt.name, run_id, number, CANNOT, reason=str(error)))
            continue
        content = job.trial, job.sources
        tasks.append(Task(job, content, job.data, job.since))
    precompile([task.about for task in tasks], announce)
    announce(f"Running {len(tasks)} of {finished} finished trials again ...")
    for task, result in spread(train, [tasks], announce, min(workers, len(tasks))):
        if not isinstance(result, Progress):
            tell(_verdict(task.about, result))


def _verdict(job: Job, result: Outcome | Failure) -> Verdict:
    (store,) = job.stores
    verdict = Verdict(store.experiment, job.run_id, job.trial.number, SAME)
    if isinstance(result, Failure):
        reason = f"its rerun failed: {result.message}"
        return replace(verdict, verdict=CANNOT, reason=reason)
    kept = store.line(*job.key)
    reason = _first_difference(store, kept, result)
    if not reason:
        return verdict
    here = {name: version(name) for name in ("numpy", "numba")} | result.computer
    differences = []
    for name, value in here.items():
        there = kept.made.get(name, "not known")
        if there != value:
            differences.append(f"{name}: {there}, here {value}")
    made = "; ".join(differences)
    return replace(verdict, verdict=DIFFERENT, reason=reason, made=made)


def _sound(store: Store, tell: Tell) -> Iterator[TrialKey]:
    """Yield the undamaged ones of an experiment's finished trials; damaged ones are
    reported.
    """
    for (run_id, number), problem in store.damaged().items():
        name = run_id or store.journal.path.name
        tell(Verdict(store.experiment, name, number, DAMAGED, reason=problem))
    lines = store.lines()
    runs = dict.fromkeys(run.run_id for run in store.manifest().cells)
    for run_id, number in store.finished_keys(runs):
        problem = store.damage(lines[run_id][number])
        if problem:
            tell(Verdict(store.experiment, run_id, number, DAMAGED, reason=problem))
        else:
            yield run_id, number


# Rebuilding


class _Rebuilt:
    """The jobs of an experiment's trials, as its manifest says."""

    def __init__(self, results: Results, name: str, code: bool) -> None:
        self.results = results
        self.name = name
        self.store = results.store(name)
        self.manifest = self.store.manifest()
        self.cells = {run.run_id: run.settings for run in self.manifest.cells}
        self.code = code
        self.datasets: dict[Data, Dataset] = {}

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment; CbmError if its manifest does not tell."""
        return _experiment_again(self.results, self.name)

    @cached_property
    def names(self) -> Names:
        """Names of its trials."""
        folder = Path(self.manifest.grid_folder)
        return Names(self.datasets, self.results.folder, folder)

    def job(self, run_id: str, number: int) -> Job:
        """Return the job that runs a trial again; CbmError if what it needs is missing
        or has changed.
        """
        folder, digests = self.manifest.grid_folder, self.manifest.digests
        cell = self.cells[run_id]
        self._check_code(cell)
        if cell.data not in self.datasets:
            self.datasets[cell.data] = load_again(cell.data, folder, digests)
        named = self.names.of(self.experiment, cell)
        if named.run_id != run_id:
            raise CbmError(
                "its data, its recorders or the machine it starts from have changed "
                "since"
            )
        trial = Trial(self.name, cell, number, self.experiment.seed)
        # It continues nothing
        job = replace(job_of(trial, named, self.store), pretraining=None)
        started = self.store.line(run_id, number).start
        if job.start and job.digest not in ("", started):
            raise CbmError(
                f"{job.start.file}: is another machine than the one it started from"
            )
        return job

    def _check_code(self, cell: Settings) -> None:
        """Raise CbmError for own recorders that may not run, or that come with the
        results: whoever made the results could have made them, too.

        A path that leads through links, as ``/proc/self/cwd`` does, may lead to them.
        """
        own = [name for name in cell.record.names if ":" in name]
        if own and not self.code:
            raise CbmError("it has recorders of its own, which --no-code does not run")
        results = self.results.folder.resolve()
        for name in own:
            file, _, _ = name.rpartition(":")
            path = Path(os.path.normpath(Path(self.manifest.grid_folder, file)))
            is_fixed = path.is_absolute() and path.parent.resolve() == path.parent
            if not is_fixed or path.resolve().is_relative_to(results):
                raise CbmError(
                    f"{path}: a recorder that comes with results is not run; only one "
                    "next to its grid is"
                )


def _experiment_again(
    results: Results, name: str, users: tuple[str, ...] = ()
) -> Experiment:
    """An experiment and those that its trials start from; CbmError if the manifests do
    not tell.
    """
    store = results.store(name)
    manifest, path = store.manifest(), store.manifest_path
    kernel = manifest.versions["kernel"]
    if kernel != KERNEL_VERSION:
        raise CbmError(
            f"{path}: written by cbm {manifest.versions['cbm']} (kernel version "
            f"{kernel}); this cbm has kernel version {KERNEL_VERSION}"
        )
    if name in users:
        raise CbmError(f"{path}: starts from an experiment that starts from it")
    cells = tuple(run.settings for run in manifest.cells)
    names = dict.fromkeys(cell.start_from.experiment for cell in cells)
    users = (*users, name)
    sources = [_experiment_again(results, other, users) for other in names if other]
    return Experiment(
        name=name,
        description=manifest.description,
        trials=manifest.trials,
        seed=manifest.seed,
        cells=cells,
        table=manifest.table,
        sources=tuple(sources),
    )


# Comparing


def _first_difference(store: Store, kept: Line, rerun: Outcome) -> str:
    """Return where a rerun first differs from the kept results; empty if nowhere."""
    curve = by_column(rerun.columns, rerun.curve)
    records = by_column(rerun.recorded, rerun.records)
    differences = [
        *_differences("curve", kept.curve, curve),
        *_differences("records", kept.records, records),
        # Machines are of the end of a trial, after all rows
        *_machine_differences(store, kept, "machine", rerun.machine),
        *_machine_differences(store, kept, "best", rerun.best_machine),
    ]
    _, words = min(differences, key=lambda pair: pair[0], default=(0.0, ""))
    return words


def _differences(
    kind: str, there: Mapping[str, list], here: Mapping[str, list]
) -> Iterator[tuple[float, str]]:
    """Yield the update at which each column of a table first differs, and words; NaN is
    the same as NaN.
    """
    if there.keys() != here.keys():
        yield _BEFORE_ALL, f"the columns of the {kind}"
        return
    for name in here:
        updates = max(there["update"], here["update"], key=len)
        for update, old, new in zip_longest(updates, there[name], here[name]):
            if repr(old) != repr(new):
                is_cut = old is None or new is None
                yield update, f"{kind if is_cut else name} at update {update}"
                break


def _machine_differences(
    store: Store, kept: Line, kind: str, machine: Mapping[str, NDArray] | None
) -> Iterator[tuple[float, str]]:
    """Yield the arrays of a machine that differ, after all updates."""
    old, new = {}, machine or {}
    if kind in store.machines_in(kept):
        old = read_npz(io.BytesIO(store.machine_of(kept, kind)))
    name_of_kind = "final" if kind == "machine" else "best"
    for name in {**old, **new}:
        there, here = old.get(name, _NONE), new.get(name, _NONE)
        if (there.shape, there.tobytes()) != (here.shape, here.tobytes()):
            yield inf, f"{name} of the {name_of_kind} machine"
