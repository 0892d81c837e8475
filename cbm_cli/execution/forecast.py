"""Before a run: machine code, and how long the trials will take."""

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from cbm_cli.datasets.catalogue import load
from cbm_cli.execution.jobs import Agenda, Job
from cbm_cli.grid.settings import Settings, Trial
from cbm_cli.kernels.compiling import CACHE, damaged_files, unsaved
from cbm_cli.kernels.machine import State, empty_trail
from cbm_cli.kernels.training import make_updates
from cbm_cli.machines.limits import likelihood_seconds
from cbm_cli.machines.threads import one_thread
from cbm_cli.results import ESTIMATES
from cbm_cli.text import count
from cbm_cli.trial.learner import Learner
from cbm_cli.trial.loop import run_trial
from cbm_cli.trial.start import batch_rows, updates_of

TINY = Settings(
    data={"name": "bars-and-stripes", "size": 2},
    model={"kind": "rbm", "hidden": 2},
    offsets="dd^b",
    sampler="CD-1",
    learning_rate=0.1,
    updates=1,
    batch="full",
)
# Settings that do not change what an update costs.
_NO_MATTER = ("offsets", "learning_rate", "sliding_factor", "init", "weight_scale", "updates", "epochs")
_TIMED = 0.05  # seconds of training that are enough to time an update
_LADDER = 400  # temperatures of AIS that are enough to time it
_START = 2.0  # seconds until the workers are ready


def compile_kernels(agenda: Agenda, announce: Callable[[str], None] = lambda message: None) -> None:
    """Compile the kernels that the jobs need, unless they are compiled; ``announce`` gets what to tell.

    The training loop is compiled once for each kind of settings that changes what it calls. Damaged machine
    code is removed, and compiled again.
    """
    damaged = _remove_damaged()
    kinds = {_kind_of(job.trial.settings): job for job in agenda.jobs}
    missing = {kind: job for kind, job in kinds.items() if not _is_compiled(kind)}
    if not missing:
        return
    what = f"{CACHE}: {count(damaged, 'file')} of compiled kernels damaged; compiling again"
    announce(f"{what if damaged else 'Compiling the kernels (once for this version, about 40 s)'} ...")
    _touch(missing)
    if unsaved or not CACHE:
        why = unsaved[0] if unsaved else "no folder can be written"
        announce(
            f"The compiled kernels cannot be kept ({CACHE or 'no cache'}: {why}): every worker compiles them "
            "again; name another folder in CBM_KERNEL_CACHE"
        )


def _kind_of(settings: Settings) -> str:
    """What the types of the training loop's arguments depend on."""
    model = settings.model
    depth = f"-{model.layers}" if model.kind == "auto-encoder" else ""
    aside = settings.offsets_from in ("independent", "exact")
    return model.kind + depth + "-aside" * aside


def _touch(kinds: dict[str, Job]) -> None:
    run_trial(Trial("compilation", TINY, 0, 0), load(**TINY.data.model_dump()))
    for kind, job in kinds.items():
        learner = Learner(job.trial.settings, job.data, job.trial.seed)
        learner.advance(learner.start(), empty_trail(0, 0), 0, 1)
        if CACHE and not unsaved:
            with contextlib.suppress(OSError):
                _mark(kind).touch()


def _mark(kind: str) -> Path:
    """A file beside the machine code of this installation, which says that a kind is compiled."""
    return Path(make_updates.stats.cache_path) / f"compiled-{kind}"  # type: ignore[attr-defined]  # Numba's


def _is_compiled(kind: str) -> bool:
    return CACHE is not None and _mark(kind).exists()


def _remove_damaged() -> int:
    """Remove damaged machine code, and the marks that say that all is compiled; return how many files."""
    damaged = damaged_files(CACHE) if CACHE else []
    for path in [*damaged, *(CACHE.glob("*/compiled-*") if damaged else ())]:
        path.unlink(missing_ok=True)
    return len(damaged)


@dataclass(frozen=True)
class Forecast:
    """How long a run will take, in seconds."""

    run: float
    trial: float  # the longest trial
    longest: Job
    known: int  # trials that are forecast from the times of finished trials of the same cell


def forecast_run(
    agenda: Agenda, workers: int, announce: Callable[[str], None] = lambda message: None
) -> Forecast:
    """Forecast the seconds of a run with this many workers; ``announce`` gets what takes long itself.

    Trials of a cell with finished trials take the mean of what those took. Others are timed: an update and an
    evaluation of every kind of cell, with its first weights. Early stopping, recorders, other work on the
    computer, and what an earlier run has done of a trial are not considered.
    """
    compile_kernels(agenda, announce)
    past = next((job.stores[0].seconds() for job in agenda.jobs if job.stores), {})
    seconds = seconds_of(agenda, past)
    trial, longest = max(zip(seconds, agenda.jobs, strict=True), key=lambda pair: pair[0])
    known = sum(bool(past.get(job.run_id)) for job in agenda.jobs)
    return Forecast(max(_START + sum(seconds) / max(workers, 1), trial), trial, longest, known)


def seconds_of(agenda: Agenda, past: Mapping[str, list[float]] = MappingProxyType({})) -> list[float]:
    """Return how long each job takes; ``past`` are the seconds of finished trials by run-id."""
    costs: dict[tuple, _Cost] = {}
    with one_thread():  # as in a worker
        return [_seconds(job, past.get(job.run_id), costs) for job in agenda.jobs]


def slow_jobs(agenda: Agenda, operations: float = 1e13) -> list[Job]:
    """Return a job of every cell with so many multiplications that it may take long; quick to tell."""
    cells = {job.run_id: job for job in agenda.jobs}
    return [job for job in cells.values() if _operations(job) > operations]


def _operations(job: Job) -> float:
    settings, data = job.trial.settings, job.data
    sizes = (data.width, *settings.model.hidden_layers(data.width))
    weights = sum(n * m for n, m in pairwise(sizes))
    sampler = settings.parsed_sampler
    return 4.0 * job.updates * batch_rows(settings, data) * weights * sampler.steps * sampler.temperatures


class _Cost(NamedTuple):
    """Seconds of one trial's beginning, of an update and of an evaluation."""

    beginning: float
    update: float
    evaluation: float


def _seconds(job: Job, past: list[float] | None, costs: dict[tuple, _Cost]) -> float:
    if past:
        return sum(past) / len(past)
    settings, data = job.trial.settings, job.data
    deep = settings.model.kind == "dbm"  # mean field converges at other speeds with other offsets
    kind = tuple(value for name, value in settings if name not in _NO_MATTER[0 if not deep else 1 :])
    if kind not in costs:
        costs[kind] = _cost(job)
    cost = costs[kind]
    # An update of every layer in pre-training takes about as long as one of the whole machine.
    before = updates_of(f"{settings.pretraining.epochs} epochs", settings, data)
    evaluations = 1 + job.updates // updates_of(settings.every, settings, data)
    return cost.beginning + cost.evaluation * evaluations + cost.update * (before + job.updates)


def _cost(job: Job) -> _Cost:
    settings, began = job.trial.settings, time.perf_counter()
    learner = Learner(settings, job.data, job.trial.seed)
    state = learner.start()
    learner.advance(state, empty_trail(0, 0), 0, 1)
    beginning = min(time.perf_counter() - began, 0.2)  # the first one also loads the machine code
    return _Cost(beginning, _update_seconds(learner, state), _evaluation_seconds(job))


def _update_seconds(learner: Learner, state: State) -> float:
    updates, none = 1, empty_trail(0, 0)
    while True:
        began = time.perf_counter()
        learner.advance(state, none, 0, updates)
        seconds = time.perf_counter() - began
        if seconds > _TIMED:
            return seconds / updates
        updates *= 2


def _evaluation_seconds(job: Job) -> float:
    """Seconds of an evaluation; estimates are timed on few temperatures, exact ones are not timed."""
    settings, data = job.trial.settings, job.data
    if settings.evaluation == "exact":
        sizes = (data.width, *settings.model.hidden_layers(data.width))
        return likelihood_seconds(sizes, sum(map(len, data.parts.values())))
    _seconds_with(job, {"rows": 1, "temperatures": 3})  # loads the machine code
    if settings.evaluation not in ESTIMATES:
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
