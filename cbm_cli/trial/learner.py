"""What the one training loop drives: a machine that starts, learns, is measured and written."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cbm_cli.datasets import Dataset
from cbm_cli.grid.settings import Settings
from cbm_cli.kernels.state import Trail
from cbm_cli.trial.boltzmann import BoltzmannLearner


class Learner(Protocol):
    """A way of learning, for one trial; all that changes in training is in the state.

    Attributes
    ----------
    columns : tuple of str
        Names of the values of an evaluation.
    batches : int
        Updates of an epoch.
    """

    columns: tuple[str, ...]
    batches: int

    def start(self) -> Any:
        """The state before the first update: a named tuple of arrays."""

    def advance(self, state: Any, trail: Trail, first: int, last: int) -> None:
        """Make the updates first, ..., last - 1 in one call of a kernel; the state changes in place."""

    def evaluate(self, state: Any, update: int, should_stop: Any) -> list[float]:
        """The values of ``columns``; Stopped where a long evaluation was asked to stop."""

    def machine(self, state: Any) -> dict[str, NDArray[Any]]:
        """The arrays of a machine file."""


def learner_of(settings: Settings, data: Dataset, seed: int) -> Learner:
    """The learner of a kind of machine."""
    if settings.model.kind == "auto-encoder":
        from cbm_cli.trial.auto_encoder import AutoEncoderLearner

        return AutoEncoderLearner(settings, data, seed)
    return BoltzmannLearner(settings, data, seed)


def is_finite(state: Any) -> bool:
    """Whether all numbers of a state are."""
    return all(np.isfinite(array).all() for array in state)
