"""Early stopping: when a cost has stopped falling."""

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from cbm_cli.datasets import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.grid.settings import Settings


def check_validation(settings: Settings, data: Dataset) -> None:
    """Raise CbmError where there is no validation part to watch, or where it is not evaluated."""
    if "valid" not in data.parts:
        raise CbmError(
            f"early_stopping: {data.name} has no validation part to watch; make one of its last training "
            "rows by hold_out, as in data: {name: mnist, hold_out: 10000}"
        )
    parts = settings.evaluate.parts
    if parts and "valid" not in parts.split("+"):
        raise CbmError(
            f"early_stopping: evaluate.parts: {parts} leaves out the validation part; write {parts}+valid"
        )


def converged(costs: Sequence[float], look_ahead: int, tolerance: float) -> int | None:
    """Epoch of the lowest cost once a training has converged: once the cost no longer falls.

    The paper stops "with a look ahead of 5 epochs", when "the cost improvement on the validation set was less
    than 0.00001". Read here as: training has converged after epoch e if none of the epochs e + 1, ..., e +
    look_ahead costs less than the epoch before it by more than the tolerance. That is known, and training
    stops, look_ahead epochs later. docs/decisions/0018-early-stopping.md compares readings.

    Parameters
    ----------
    costs : sequence of float
        Of the epochs 1, 2, ... so far. NaN improves on nothing.
    look_ahead : int
        Epochs that are waited for, 1 or more.
    tolerance : float
        What a cost must fall by more than from an epoch to the next; 0: any fall counts.

    Returns
    -------
    int, or None where training has not converged
        The epoch of the lowest cost up to the one where that is known: the same for any more costs.
    """
    values = np.asarray(costs, dtype=np.float64)
    if values.size <= look_ahead:
        return None
    falls = values[:-1] - values[1:] > tolerance  # from each epoch to the next
    still = ~sliding_window_view(falls, look_ahead).any(axis=1)
    if not still.any():
        return None
    known = values[: int(still.argmax()) + look_ahead + 1]
    return int(np.where(np.isnan(known), np.inf, known).argmin()) + 1
