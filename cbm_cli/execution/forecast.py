"""Before a run: machine code, and how long the trials will take."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from threadpoolctl import threadpool_limits

from cbm_cli.datasets import load
from cbm_cli.execution.jobs import Agenda, Job
from cbm_cli.grid.settings import Settings, Trial
from cbm_cli.kernels.compiling import CACHE
from cbm_cli.kernels.machine import empty_trail
from cbm_cli.kernels.training import make_updates
from cbm_cli.trial.learner import Learner
from cbm_cli.trial.loop import run_trial
from cbm_cli.trial.start import updates_of

_TOY = {"name": "bars-and-stripes", "size": 2}
# Settings that do not change what an update costs.
_NO_MATTER = ("offsets", "learning_rate", "sliding_factor", "init", "weight_scale", "updates", "epochs")
_TIMED = 0.02  # seconds of training that are enough to time an update
_LADDER = 400  # temperatures of AIS that are enough to time it


def compile_kernels(agenda: Agenda, announce: Callable[[], None] = lambda: None) -> None:
    """Compile every kernel that the jobs need, unless it has been done; ``announce`` is called first then.

    The training loop is compiled once for each kind of settings that changes what it calls.
    """
    kinds = {_kind_of(job.trial.settings): job for job in agenda.jobs}
    missing = {kind: job for kind, job in kinds.items() if not _mark(kind).exists()}
    if not missing:
        return
    announce()
    try:
        _touch(missing)
    except (EOFError, OSError):  # a cache that was cut short while it was written
        shutil.rmtree(CACHE, ignore_errors=True)
        _touch(missing)


def _kind_of(settings: Settings) -> str:
    """What the types of the training loop's arguments depend on."""
    model = settings.model
    depth = f"-{model.layers}" if model.kind == "auto-encoder" else ""
    aside = settings.offsets_from in ("independent", "exact")
    return model.kind + depth + "-aside" * aside


def _touch(kinds: dict[str, Job]) -> None:
    settings = Settings(
        data=_TOY,
        model={"kind": "rbm", "hidden": 2},
        offsets="dd^b",
        sampler="CD-1",
        learning_rate=0.1,
        updates=1,
        batch="full",
    )
    run_trial(Trial("compilation", settings, 0, 0), load(**settings.data.model_dump()))
    for kind, job in kinds.items():
        learner = Learner(job.trial.settings, job.data, job.trial.seed)
        learner.advance(learner.start(), empty_trail(0, 0), 0, 1)
        _mark(kind).touch()


def _mark(kind: str) -> Path:
    """A file beside the machine code of this installation, which says that a kind is compiled."""
    return Path(make_updates.stats.cache_path) / f"compiled-{kind}"


def estimate_seconds(agenda: Agenda) -> float:
    """Seconds that all jobs take on one worker: updates and evaluations of every kind of cell, timed.

    Early stopping, what is recorded and what an earlier run has done of a trial are left out of account.
    """
    compile_kernels(agenda)
    by_kind: dict[tuple, tuple[float, float]] = {}
    with threadpool_limits(1):  # as in a worker
        return sum(_job_seconds(job, by_kind) for job in agenda.jobs)


def _job_seconds(job: Job, by_kind: dict[tuple, tuple[float, float]]) -> float:
    settings, data = job.trial.settings, job.data
    kind = tuple(value for name, value in settings if name not in _NO_MATTER)
    if kind not in by_kind:
        by_kind[kind] = _update_seconds(job), _evaluation_seconds(job)
    of_update, of_evaluation = by_kind[kind]
    # An update of every layer in pre-training is about one of the whole machine.
    before = updates_of(f"{settings.pretraining.epochs} epochs", settings, data)
    evaluations = 1 + job.updates // updates_of(settings.every, settings, data)
    return of_update * (before + job.updates) + of_evaluation * evaluations


def _update_seconds(job: Job) -> float:
    learner = Learner(job.trial.settings, job.data, job.trial.seed)
    state, updates = learner.start(), 1
    none = empty_trail(0, 0)
    learner.advance(state, none, 0, 1)  # loads the machine code
    while True:
        began = time.perf_counter()
        learner.advance(state, none, 0, updates)
        seconds = time.perf_counter() - began
        if seconds > _TIMED:
            return seconds / updates
        updates *= 2


def _evaluation_seconds(job: Job) -> float:
    """Seconds of an evaluation; AIS is timed on a short ladder of temperatures, the rows apart from it."""
    settings = job.trial.settings
    _seconds_with(job, {"rows": 1, "temperatures": 3})  # loads the machine code
    if settings.evaluation != "ais":
        return _seconds_with(job, {})
    of_temperature = _seconds_with(job, {"rows": 1, "temperatures": _LADDER}) / _LADDER
    return _seconds_with(job, {"temperatures": 3}) + of_temperature * settings.temperatures


def _seconds_with(job: Job, changes: dict[str, int]) -> float:
    settings = job.trial.settings
    how = settings.evaluate.model_copy(update=changes)
    learner = Learner(settings.model_copy(update={"evaluate": how}), job.data, job.trial.seed)
    state = learner.start()
    began = time.perf_counter()
    learner.evaluate(state, 0, lambda: False)
    return time.perf_counter() - began
