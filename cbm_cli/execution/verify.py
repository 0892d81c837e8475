"""Run finished trials again, and compare their results with the kept ones."""

import io
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import version
from itertools import zip_longest
from math import inf
from pathlib import Path

import numpy as np

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.datasets.loading import load_again
from cbm_cli.errors import CbmError
from cbm_cli.execution.agenda import Agenda, Job, job_of
from cbm_cli.execution.origin import Names
from cbm_cli.execution.pool import Task, spread
from cbm_cli.execution.precompile import precompile
from cbm_cli.execution.work import Failure, train
from cbm_cli.grid.settings import Data, Experiment, Trial
from cbm_cli.kernels import KERNEL_VERSION
from cbm_cli.results import Outcome, Progress, Results, Store
from cbm_cli.results.journal import Line
from cbm_cli.results.store import by_column

_NONE = np.empty(0)
SAME, DIFFERENT, DAMAGED, CANNOT = (
    "same bytes",
    "different",
    "damaged",
    "cannot be run again",
)


@dataclass(frozen=True)
class Verdict:
    """What the rerun of a finished trial says about it."""

    experiment: str
    run_id: str
    number: int
    verdict: str
    reason: str = ""  # of a trial that is different: where first
    # how computer and versions of a trial that is different were others than here
    made: str = ""


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
    """Check the files of all finished trials, and run some of them again; ``tell`` gets
    the verdicts.

    Parameters
    ----------
    sample : int, optional
        How many trials are run again, the same ones each time; None: all.
    code : bool
        Whether a user's own recorders may run.
    """
    sound = [trial for name in names for trial in _sound(results.store(name), tell)]
    places = random.Random(0).sample(
        range(len(sound)), min(len(sound), sample or len(sound))
    )
    rebuilt, tasks = cache(partial(_rebuilt, results, code=code)), list[Task]()
    for name, run_id, number in map(sound.__getitem__, sorted(places)):
        try:
            job = rebuilt(name)(run_id, number)
            tasks.append(
                Task(
                    (results.store(name), job),
                    (job.trial, job.sources),
                    job.data,
                    job.since,
                )
            )
        except CbmError as error:
            tell(Verdict(name, run_id, number, CANNOT, str(error)))
    precompile(Agenda([], {}, {}, {}, [task.about[1] for task in tasks]), announce)
    announce(f"Running {len(tasks)} of {len(sound)} finished trials again ...")
    for task, result in spread(train, [tasks], announce, min(workers, len(tasks))):
        store, (run_id, number) = task.about[0], task.about[1].key
        if isinstance(result, Failure):
            tell(
                Verdict(
                    store.experiment,
                    run_id,
                    number,
                    CANNOT,
                    f"its rerun failed: {result.message}",
                )
            )
        elif not isinstance(result, Progress):
            kept, made = store.line(run_id, number), ""
            if where := _first_difference(store, kept, result):
                here = {
                    name: version(name) for name in ("numpy", "numba")
                } | result.computer
                others = (
                    (name, kept.made.get(name, "not known"), value)
                    for name, value in here.items()
                )
                made = "; ".join(
                    f"{name}: {there}, here {it}"
                    for name, there, it in others
                    if there != it
                )
            verdict = DIFFERENT if where else SAME
            tell(Verdict(store.experiment, run_id, number, verdict, where, made))


def _sound(store: Store, tell: Tell) -> list[tuple[str, str, int]]:
    """The undamaged ones of an experiment's finished trials; damaged ones are
    reported.
    """
    for (run_id, number), problem in store.damaged().items():
        tell(
            Verdict(
                store.experiment,
                run_id or store.journal.path.name,
                number,
                DAMAGED,
                problem,
            )
        )
    found, lines = [], store.lines()
    for run_id in dict.fromkeys(run.run_id for run in store.manifest().cells):
        for number in sorted(store.finished(run_id)):
            if problem := store.problem(lines[run_id][number]):
                tell(Verdict(store.experiment, run_id, number, DAMAGED, problem))
            else:
                found.append((store.experiment, run_id, number))
    return found


# Rebuilding


def _rebuilt(results: Results, name: str, code: bool) -> Callable[[str, int], Job]:
    """Return what gives the jobs of an experiment's trials, by run-id and number, as
    its manifest says.
    """
    store, experiment, datasets = (
        results.store(name),
        _experiment_again(results, name),
        dict[Data, Dataset](),
    )
    manifest = store.manifest()
    cells = {run.run_id: run.settings for run in manifest.cells}
    names = Names(datasets, results.folder, Path(manifest.grid_folder))

    def job(run_id: str, number: int) -> Job:
        """Return the job that runs a trial again; CbmError if what it needs is missing
        or has changed.
        """
        cell = cells[run_id]
        if not code and any(":" in name for name in cell.record.names):
            raise CbmError("it has recorders of its own, which --no-code does not run")
        if cell.data not in datasets:
            datasets[cell.data] = load_again(
                cell.data, manifest.grid_folder, manifest.digests
            )
        named = names.of(experiment, cell)
        if named.run_id != run_id:
            raise CbmError(
                "its data, its recorders or the machine it starts from have "
                "changed "
                "since"
            )
        trial = Trial(experiment.name, cell, number, experiment.seed)
        its = replace(
            job_of(trial, named, store), pretraining=None
        )  # it continues nothing
        if its.start and its.digest and its.digest != store.line(run_id, number).start:
            raise CbmError(
                f"{its.start.file}: is another machine than the one it started from"
            )
        return its

    return job


def _experiment_again(
    results: Results, name: str, users: tuple[str, ...] = ()
) -> Experiment:
    """An experiment and those that its trials start from; CbmError if the manifests do
    not tell.
    """
    store = results.store(name)
    manifest, place = store.manifest(), store.folder / "manifest.json"
    cbm, version = manifest.versions["cbm"], manifest.versions["kernel"]
    if version != KERNEL_VERSION:
        other = f"this cbm has kernel version {KERNEL_VERSION}"
        raise CbmError(
            f"{place}: written by cbm {cbm} (kernel version {version}); {other}"
        )
    cells = tuple(run.settings for run in manifest.cells)
    needed = dict.fromkeys(
        cell.start_from.experiment for cell in cells if cell.start_from.experiment
    )
    if name in users:
        raise CbmError(f"{place}: starts from an experiment that starts from it")
    sources = tuple(
        _experiment_again(results, source, (*users, name)) for source in needed
    )
    facts = manifest.description, manifest.trials, manifest.seed
    return Experiment(name, *facts, cells, manifest.table, sources)


# Comparing


def _first_difference(store: Store, kept: Line, rerun: Outcome) -> str:
    """Return where a rerun first differs from the kept results; empty if nowhere.

    Machines are of the end of a trial, after all rows of curve and records.
    """
    found: list[tuple[float, str]] = []  # update, and what is said of it
    curve, records = (
        by_column(rerun.columns, rerun.curve),
        by_column(rerun.recorded, rerun.records),
    )
    for kind, there, here in (
        ("curve", kept.curve, curve),
        ("records", kept.records, records),
    ):
        if there.keys() != here.keys():
            found.append((-1, f"the columns of the {kind}"))
            continue
        for name in here:
            both = enumerate(zip_longest(there[name], here[name]))
            row = next(
                (row for row, (one, other) in both if repr(one) != repr(other)), None
            )
            if row is not None:
                update = max(there["update"], here["update"], key=len)[row]
                is_shared = row < min(len(there[name]), len(here[name]))
                found.append(
                    (update, f"{name if is_shared else kind} at update {update}")
                )
    for kind, machine in ("machine", rerun.machine), ("best", rerun.best_machine):
        content = (
            store.machine_of(kept, kind) if kind in store.machines_in(kept) else None
        )
        old = dict(np.load(io.BytesIO(content), allow_pickle=False)) if content else {}
        new = machine or {}
        for name in old | new:
            mine, yours = old.get(name, _NONE), new.get(name, _NONE)
            if (mine.shape, mine.tobytes()) != (yours.shape, yours.tobytes()):
                found.append(
                    (
                        inf,
                        (
                            f"{name} of the {'final' if kind == 'machine' else 'best'} "
                            "machine"
                        ),
                    )
                )
    return min(found, key=lambda one: one[0], default=(0.0, ""))[1]
