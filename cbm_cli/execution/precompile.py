"""Machine code before a run, so that not every worker compiles it."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cbm_cli.datasets.toys import bars_and_stripes
from cbm_cli.grid.settings import Settings, Trial
from cbm_cli.kernels.machine import empty_trail
from cbm_cli.kernels.training import make_updates
from cbm_cli.results import Progress
from cbm_cli.trial.learner import Learner, is_directed
from cbm_cli.trial.loop import run_trial
from cbm_cli.trial.pretraining import LayerTraining

if TYPE_CHECKING:
    from cbm_cli.execution.agenda import Agenda, Job

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


def precompile(
    agenda: "Agenda", announce: Callable[[str], None] = lambda message: None
) -> None:
    """Compile the kernels that the jobs need, unless they are compiled; ``announce``
    gets what to tell.

    The training loop is compiled once for each kind of settings that changes what it
    calls.
    """
    jobs = {job.run_id: job for job in agenda.jobs}.values()
    missing = {
        mark: job
        for job in jobs
        if not (mark := MARKS / f"compiled-{_kind_of(job)}").exists()
    }
    if not missing:
        return
    announce("Compiling the kernels (once for this version, 1 to 2 minutes) ...")
    run_tiny()
    for mark, job in missing.items():
        given = job.trial.settings, job.data, job.trial.seed
        learner, layers, now = Learner(*given), LayerTraining(*given), Progress(None)
        learner.advance(learner.start(), empty_trail(0, 0), 0, 1)
        if not layers.is_done(now):
            now.state = layers.first_state(now)
            layers.advance(now, 1)
        mark.touch()


def _kind_of(job: "Job") -> str:
    """What the types of the training loop's arguments depend on."""
    model = (settings := job.trial.settings).model
    depth = f"-{model.layers}" if model.kind == "auto-encoder" else ""
    exact = settings.parsed_sampler.exact or settings.gradient_from == "exact"
    aside = {"independent": "-aside", "exact": "-exact-aside"}.get(
        settings.offsets_from, ""
    )
    ways = {
        "-exact": exact,
        "-natural": is_directed(settings),
        "-momentum": settings.momentum > 0,
    }
    ways |= {aside: True, "-layers": settings.pretraining.epochs > 0}
    return (
        model.kind + depth + "".join(way for way, is_taken in ways.items() if is_taken)
    )
