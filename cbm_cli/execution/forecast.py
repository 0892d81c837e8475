"""Before a run: machine code, and how long the trials will take."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from cbm_cli.datasets.catalogue import load
from cbm_cli.execution.jobs import Agenda, Job
from cbm_cli.grid.settings import Settings, Trial
from cbm_cli.kernels.compiling import CACHE, damaged_files, unsaved
from cbm_cli.kernels.machine import empty_trail
from cbm_cli.kernels.training import make_updates
from cbm_cli.machines.limits import likelihood_seconds
from cbm_cli.results import Progress
from cbm_cli.text import count
from cbm_cli.trial.learner import Learner, is_directed
from cbm_cli.trial.loop import run_trial
from cbm_cli.trial.pretraining import LayerTraining
from cbm_cli.trial.start import batch_rows, updates_of

TINY = Settings(
    data={"name": "bars-and-stripes", "size": 2},
    model={"kind": "rbm", "hidden": 2},
    offsets="dd^b",
    sampler="CD-1",
    learning_rate=0.1,
    updates=3,
    batch="full",
    evaluate={"every": 1},
)
_START = 2.0  # seconds until the workers are ready
# Seconds on one core of an AMD EPYC (Zen 4, AVX-512), as benchmarks/scale.py --measure finds them: of a
# multiplication in products with binary rows and in others, of a sample or mean of a unit, of it and its
# softplus in float64, of the step of a weight, of an entry of the Fisher matrix for a state ...
_BINARY, _DENSE, _UNIT, _EXACT, _STEP, _FISHER = 0.7e-11, 1.5e-11, 2e-9, 1.5e-8, 2e-10, 2.5e-10
# ... of the beginning of a trial, and of what every update, natural gradient and evaluation takes besides.
_BEGINNING, _UPDATE, _NATURAL, _EVALUATION = 0.01, 1e-6, 1e-4, 2e-5
_TEMPERED = 1.6  # times as many chains at one temperature: energies, swaps, products of few rows
_ROUNDS = 10  # of mean field: what it takes once a machine has learned something
_MOST_BITS = 40  # of a sum over states that is refused elsewhere


def compile_kernels(agenda: Agenda, announce: Callable[[str], None] = lambda message: None) -> None:
    """Compile the kernels that the jobs need, unless they are compiled; ``announce`` gets what to tell.

    The training loop is compiled once for each kind of settings that changes what it calls. Damaged machine
    code is removed, and compiled again.
    """
    damaged = damaged_files(CACHE) if CACHE else []
    for path in [*damaged, *(CACHE.glob("*/compiled-*") if CACHE and damaged else ())]:
        path.unlink(missing_ok=True)
    kinds = {_kind_of(job): job for job in {job.run_id: job for job in agenda.jobs}.values()}
    missing = {kind: job for kind, job in kinds.items() if not (CACHE and _mark(kind).exists())}
    if not missing:
        return
    what = f"{CACHE}: {count(len(damaged), 'file')} of compiled kernels damaged; compiling again"
    announce(f"{what if damaged else 'Compiling the kernels (once for this version, 1 to 2 minutes)'} ...")
    _touch(missing)
    if unsaved or not CACHE:
        why = unsaved[0] if unsaved else "no folder can be written"
        announce(
            f"The compiled kernels cannot be kept ({CACHE or 'no cache'}: {why}): every worker compiles them "
            "again; name another folder in CBM_KERNEL_CACHE"
        )


def _kind_of(job: Job) -> str:
    """What the types of the training loop's arguments depend on."""
    settings = job.trial.settings
    model = settings.model
    depth = f"-{model.layers}" if model.kind == "auto-encoder" else ""
    aside = settings.offsets_from in ("independent", "exact")
    natural, layers = is_directed(settings), bool(settings.pretraining.epochs)
    ways = "-aside" * aside, "-natural" * natural, "-layers" * layers
    return model.kind + depth + "".join(ways)


def _touch(kinds: dict[str, Job]) -> None:
    run_trial(Trial("compilation", TINY, 0, 0), load(**TINY.data.model_dump()))
    for kind, job in kinds.items():
        given = job.trial.settings, job.data, job.trial.seed
        learner, layers, now = Learner(*given), LayerTraining(*given), Progress(None)
        learner.advance(learner.start(), empty_trail(0, 0), 0, 1)
        if not layers.is_done(now):
            now.state = layers.first_state(now)
            layers.advance(now, 1)
        if CACHE and not unsaved:
            with contextlib.suppress(OSError):
                _mark(kind).touch()


def _mark(kind: str) -> Path:
    """A file beside the machine code of this installation, which says that a kind is compiled."""
    return Path(make_updates.stats.cache_path) / f"compiled-{kind}"  # type: ignore[attr-defined]  # Numba's


@dataclass(frozen=True)
class Forecast:
    """How long a run will take, in seconds."""

    run: float
    trial: float  # the longest trial
    longest: Job
    known: int  # trials that are forecast from the times of finished trials of the same cell


class Cost(NamedTuple):
    """Seconds of one trial's beginning, of an update and of an evaluation."""

    beginning: float
    update: float
    evaluation: float


def forecast_run(agenda: Agenda, workers: int) -> Forecast:
    """Forecast the seconds of a run with this many workers, without running a kernel.

    Trials of a cell with finished trials take the mean of what those took, others what `cost_of` says, times
    the median of what other cells have taken more. Early stopping, recorders, other work on the computer, and
    what an earlier run has done of a trial are not considered.
    """
    past = next((job.stores[0].seconds() for job in agenda.jobs if job.stores), {})
    cells = {job.run_id: job for job in agenda.jobs}
    known = {name: fmean(past[name]) for name in cells if past.get(name)}
    counted = {name: seconds_of(job, cost_of(job)) for name, job in cells.items()}
    slower = median(seconds / counted[name] for name, seconds in known.items()) if known else 1.0
    of_cells = {name: known.get(name, slower * seconds) for name, seconds in counted.items()}
    longest = max(agenda.jobs, key=lambda job: of_cells[job.run_id])
    trial, total = of_cells[longest.run_id], sum(of_cells[job.run_id] for job in agenda.jobs)
    of_known = sum(job.run_id in known for job in agenda.jobs)
    return Forecast(max(_START + total / max(workers, 1), trial), trial, longest, of_known)


def seconds_of(job: Job, cost: Cost) -> float:
    """Seconds of a trial, by the costs of its update and of its evaluation."""
    settings, data = job.trial.settings, job.data
    # An update of every layer in pre-training takes about as long as one of the whole machine.
    before = updates_of(f"{settings.pretraining.epochs} epochs", settings, data)
    evaluations = 1 + job.updates // updates_of(settings.every, settings, data)
    return cost.beginning + cost.evaluation * evaluations + cost.update * (before + job.updates)


def cost_of(job: Job) -> Cost:
    """Count what an update and an evaluation compute, at what each takes on one core."""
    settings, data = job.trial.settings, job.data
    sizes = (data.width, *settings.model.hidden_layers(data.width))
    weights, units = sum(n * m for n, m in pairwise(sizes)), sum(sizes)
    rows = sum(min(len(part), settings.evaluate.rows or len(part)) for part in data.parts.values())
    method, evaluation = settings.evaluation, rows * (weights * _DENSE + units * _UNIT)
    if method == "exact":
        evaluation = likelihood_seconds(sizes, rows)
    elif method == "ais":
        walk = settings.temperatures * 2 * (weights * _BINARY + units * _UNIT)
        evaluation += settings.evaluate.runs * walk
    evaluation = evaluation + _EVALUATION if method != "none" else 0.0
    return Cost(_BEGINNING, _UPDATE + _of_update(settings, batch_rows(settings, data), sizes), evaluation)


def _of_update(settings: Settings, batch: int, sizes: tuple[int, ...]) -> float:
    """Seconds of an update: both phases, the two products of the gradient, and the step."""
    weights, units, sampler = sum(n * m for n, m in pairwise(sizes)), sum(sizes), settings.parsed_sampler
    if settings.model.kind == "auto-encoder":
        return batch * (5 * weights * _DENSE + 2 * units * _UNIT) + weights * _STEP
    data = weights * _BINARY + (units - sizes[0]) * _UNIT
    if settings.model.kind == "dbm":
        rounds = int(settings.data_phase.partition("gibbs-")[2] or _ROUNDS)
        data += rounds * (2 * (weights - sizes[0] * sizes[1]) * _DENSE + (units - sizes[0]) * _UNIT)
    if sampler.exact or settings.gradient_from == "exact":
        rows = 2 ** min(sum(sizes[0::2]), sum(sizes[1::2]), _MOST_BITS)
        model = rows * (weights * _DENSE + max(sizes) * _EXACT)
    else:
        rows = settings.chains or batch
        model = rows * sampler.steps * sampler.temperatures * (2 * weights * _BINARY + units * _UNIT)
        model *= _TEMPERED if sampler.temperatures > 1 else 1
    seconds = batch * data + model + (batch + rows) * weights * _BINARY + weights * _STEP
    return seconds + (_of_natural(settings, rows, sizes) if settings.gradient.kind == "natural" else 0)


def _of_natural(settings: Settings, rows: int, sizes: tuple[int, ...]) -> float:
    """Seconds of a natural gradient: of variances, products with samples, or a matrix over visible states."""
    (n, m), how = sizes[:2], settings.gradient
    parameters = (n + 1) * (m + 1)
    if how.fisher == "diagonal":
        return _NATURAL + parameters * _UNIT
    if how.estimate == "samples":
        return _NATURAL + how.iterations * (_NATURAL / 2 + 2 * rows * n * m * _DENSE)
    return _NATURAL + 2 ** min(n, _MOST_BITS) * parameters**2 * _FISHER
