"""Machine code before a run, so that not every worker compiles it."""

import contextlib
from collections.abc import Callable
from pathlib import Path

from cbm_cli.datasets.loading import load
from cbm_cli.execution.jobs import Agenda, Job
from cbm_cli.grid.settings import Settings, Trial
from cbm_cli.kernels.compiling import CACHE, damaged_files, unsaved
from cbm_cli.kernels.machine import empty_trail
from cbm_cli.kernels.training import make_updates
from cbm_cli.results import Progress
from cbm_cli.text import count
from cbm_cli.trial.learner import Learner, is_directed
from cbm_cli.trial.loop import run_trial
from cbm_cli.trial.pretraining import LayerTraining

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
