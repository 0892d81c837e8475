"""Pseudo-likelihoods of RBMs: they need no log Z."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit

_BLOCK = 250  # rows at a time: their activations stay near the cache

Values = NDArray[np.float64]


def pseudo_log_likelihoods(
    W: NDArray, b: NDArray, c: NDArray, rows: NDArray, unit: float = 1.0
) -> Values:
    """Return sum_i log p(x_i | all other units of x) of each row (n, N) in nats, (n,)
    (Besag 1975).

    ``unit`` is the value of one level of the rows.

    Examples
    --------
    >>> W, b, c = np.zeros((2, 1)), np.zeros(2), np.zeros(1)
    >>> pseudo_log_likelihoods(W, b, c, np.array([[1, 0]]))  # 2 log 1/2
    array([-1.38629436])
    """
    n, units = rows.shape
    likelihoods = np.zeros(n)
    for start in range(0, n, _BLOCK):
        block = slice(start, start + _BLOCK)
        x = rows[block] * np.float64(unit)
        to_h = x @ W + c
        softplus = np.logaddexp(0, to_h).sum(axis=1)
        for i in range(units):
            step = 1 - 2 * x[:, i]  # flips unit i
            flipped = np.logaddexp(0, to_h + step[:, None] * W[i]).sum(axis=1)
            likelihoods[block] += log_expit(softplus - flipped - step * b[i])
    return likelihoods
