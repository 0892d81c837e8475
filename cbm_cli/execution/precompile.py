"""Machine code before a run, so that not every worker compiles it."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from cbm_cli.datasets.toys import bars_and_stripes
from cbm_cli.execution.work import Say
from cbm_cli.grid.settings import Settings, Trial
from cbm_cli.kernels import compiling
from cbm_cli.kernels.machine import empty_trail
from cbm_cli.kernels.training import make_updates
from cbm_cli.results import Progress
from cbm_cli.trial.learner import Learner, is_directed
from cbm_cli.trial.loop import run_trial
from cbm_cli.trial.pretraining import LayerTraining

if TYPE_CHECKING:
    from cbm_cli.execution.agenda import Job

# A file next to the machine code of this installation exists if a kind is compiled
MARKS = Path(make_updates.stats.cache_path)  # type: ignore[attr-defined]  # Numba's
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


def run_tiny() -> None:
    """Run a trial that compiles, or loads, what all trials of an RBM need."""
    run_trial(Trial("compilation", TINY, 0, 0), bars_and_stripes(2))


def precompile(jobs: Iterable["Job"], announce: Say) -> None:
    """Compile the kernels that jobs need, unless they are compiled; ``announce`` gets
    messages.

    The training loop is compiled once for each kind of settings that changes what it
    calls.
    """
    examples = {MARKS / f"compiled-{_kind_of(job)}": job for job in jobs}
    missing = [mark for mark in examples if not mark.exists()]
    if not missing:
        return
    announce("Compiling the kernels (once for this version, 1 to 2 minutes) ...")
    if compiling.is_private():
        announce(
            f"{compiling.USUAL_PLACE}: cannot write there, so that kernels are "
            "compiled in every run; set the variable CBM_KERNEL_CACHE to a folder that "
            "can be written"
        )
    run_tiny()
    for mark in missing:
        _compile_for(examples[mark])
        mark.touch()


def _compile_for(job: "Job") -> None:
    """Make an update of a job, and one of its pre-training."""
    settings, data, seed = job.trial.settings, job.data, job.trial.seed
    learner = Learner(settings, data, seed)
    learner.advance(learner.start(), empty_trail(0, 0), 0, 1)
    layers = LayerTraining(settings, data, seed)
    progress = Progress(None)
    if not layers.is_done(progress):
        progress.state = layers.first_state(progress)
        layers.advance(progress, 1)


def _kind_of(job: "Job") -> str:
    """What the types of the training loop's arguments depend on."""
    settings = job.trial.settings
    is_exact = settings.parsed_sampler.exact or settings.gradient_from == "exact"
    facts = (
        settings.model.kind,
        settings.model.layers,
        settings.offsets_from,
        is_exact,
        is_directed(settings),
        settings.momentum > 0,
        settings.pretraining.epochs > 0,
    )
    return "-".join(map(str, facts))
