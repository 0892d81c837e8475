"""The evaluations of a trial: how, of which rows, and with which random numbers."""

import numpy as np

from cbm_cli.datasets import Dataset
from cbm_cli.grid.settings import Settings
from cbm_cli.machines.likelihood import Method, Parts, parts_of


def method_of(settings: Settings) -> Method:
    """How settings ask for evaluations."""
    how = settings.evaluate
    return Method(
        settings.evaluation,
        temperatures=settings.temperatures,
        runs=how.runs,
        base=how.base,
        rows=how.rows,
        tolerance=settings.mean_field.tolerance,
        rounds=settings.mean_field.rounds,
        checked=False,
    )


def evaluated_parts(settings: Settings, data: Dataset) -> Parts:
    """The rows that are evaluated during training."""
    names = settings.evaluate.parts
    return parts_of(data, method_of(settings), names.split("+") if names else None)


def seed_at(seed: int, update: int) -> int:
    """Seed of the annealing at an update of a trial."""
    return int(np.random.SeedSequence([seed, update]).generate_state(1, np.uint64)[0])
