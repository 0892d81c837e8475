"""Early stopping: whether a cost has stopped falling."""

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def converged(costs: Sequence[float], look_ahead: int, tolerance: float) -> int | None:
    """Epoch of the lowest cost once a training has converged; None before.

    The paper stops "with a look ahead of 5 epochs", when "the cost improvement on the validation set was less
    than 0.00001". Read here as: training has converged after epoch e if none of the epochs e + 1, ..., e +
    look_ahead costs less than the epoch before it by more than the tolerance. This is known, and training
    stops, look_ahead epochs later. docs/decisions/0018-early-stopping.md compares readings.

    Parameters
    ----------
    costs : sequence of float
        Of the epochs 1, 2, ... so far; NaN improves on nothing. More costs do not change the answer.
    look_ahead : int
        Epochs to wait for, 1 or more.
    tolerance : float
        A cost must fall by more than this from an epoch to the next; 0: any fall counts.
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
