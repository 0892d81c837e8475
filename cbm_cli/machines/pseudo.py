"""Pseudo-likelihoods of RBMs: they need no log Z."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit

_BLOCK = 250  # rows at a time: their activations stay near the cache

Values = NDArray[np.float64]


def pseudo_log_likelihoods(
    W: NDArray,
    b: NDArray,
    c: NDArray,
    rows: NDArray,
    unit: float = 1.0,
    seed: int | np.random.RandomState | None = None,
) -> Values:
    """Return sum_i log p(x_i | all other units of x) of each row (n, N) in nats, (n,) (Besag 1975).

    With a ``seed`` one random unit of each row stands for all, as in scikit-learn's
    ``BernoulliRBM.score_samples`` with this ``random_state``. ``unit`` is the value of one level of the rows.
    """
    n, units = rows.shape
    drawn: Any = None
    if seed is not None:
        random = seed if isinstance(seed, np.random.RandomState) else np.random.RandomState(seed)
        drawn = np.asarray(random.randint(units, size=n))
    found = np.empty(n)
    for start in range(0, n, _BLOCK):
        block = slice(start, start + _BLOCK)
        x = rows[block] * np.float64(unit)
        to_h = x @ W + c
        given = x, to_h, np.logaddexp(0, to_h).sum(axis=1)
        if drawn is None:
            every = (_log_conditional(*given, W, b, np.full(len(x), i)) for i in range(units))
            found[block] = np.add.reduce([*every])
        else:
            found[block] = units * _log_conditional(*given, W, b, drawn[block])
    return found


def _log_conditional(
    x: Values, to_h: Values, softplus: Values, W: NDArray, b: NDArray, units: NDArray
) -> Values:
    """log p(x_i | others) of one unit i of each row, from the free energy of the row with it flipped."""
    step = 1 - 2 * x[np.arange(len(x)), units]
    flipped = np.logaddexp(0, to_h + step[:, None] * W[units]).sum(axis=1)
    return log_expit(softplus - flipped - step * b[units])
