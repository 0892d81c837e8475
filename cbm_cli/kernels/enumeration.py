"""All states of the smaller side in place of samples: the exact model phase."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli.kernels.compiling import compiled, lean
from cbm_cli.kernels.state import Array
from cbm_cli.kernels.units import sigmoid


class AllStates(NamedTuple):
    """Rows that stand for the model's distribution, weighted by their probability.

    The enumerated side keeps its states, the other has its conditional means.
    """

    x: Array  # (R, N)
    h: Array  # (R, M)
    weight: Array  # (R,)
    activation: Array  # (R, units of the side that is not enumerated)
    log_weight: NDArray[np.float64]  # (R,)


@compiled
def make_all_states(x: Array, n_hidden: int, wanted: bool) -> AllStates:
    """List the states of the smaller side around the visible rows x (R, N); of no size if not wanted."""
    rows, n_visible = x.shape if wanted else (0, x.shape[1])
    h = np.empty((rows, n_hidden), np.float32)
    states = h if n_hidden <= n_visible else x
    for r in range(rows):
        for i in range(states.shape[1]):
            states[r, i] = (r >> i) & 1
    implied = max(n_visible, n_hidden)
    return AllStates(
        x, h, np.empty(rows, np.float32), np.empty((rows, implied), np.float32), np.empty(rows, np.float64)
    )


@compiled
def weigh_all_states(W: Array, b: Array, c: Array, states: AllStates) -> None:
    """Fill in means and weights for the machine as it is."""
    x, h, weight, activation, log_weight = states
    if c.size <= b.size:
        np.dot(h, W.T, activation)  # (R, M) @ (M, N)
        imply_means(h, c, activation, b, log_weight, x)
    else:
        np.dot(x, W, activation)  # (R, N) @ (N, M)
        imply_means(x, b, activation, c, log_weight, h)
    normalise(log_weight, weight)


@lean
def imply_means(
    states: Array,
    states_bias: Array,
    activation: Array,
    bias: Array,
    log_weight: NDArray[np.float64],
    means: Array,
) -> None:
    """means = sigmoid(activation + bias); log_weight = the states' unnormalised log probability."""
    for r in range(states.shape[0]):
        log_weight[r] = 0.0
        for i in range(states.shape[1]):
            log_weight[r] += states[r, i] * states_bias[i]
        for j in range(means.shape[1]):
            a = activation[r, j] + bias[j]
            means[r, j] = sigmoid(a)
            log_weight[r] += max(a, 0.0) + math.log1p(math.exp(-abs(a)))


@lean
def normalise(log_weight: NDArray[np.float64], weight: Array) -> None:
    """weight = exp(log_weight) / sum; log_weight is overwritten."""
    exponentiate(log_weight)
    for r in range(weight.size):
        weight[r] = np.float32(log_weight[r])


@lean
def exponentiate(p: NDArray[np.float64]) -> None:
    """p = exp(p) / sum."""
    largest, total = -np.inf, 0.0
    for s in range(p.size):
        largest = max(largest, p[s])
    for s in range(p.size):
        p[s] = math.exp(p[s] - largest)
        total += p[s]
    for s in range(p.size):
        p[s] /= total


@lean
def spread(h: Array, weight: Array, sign: np.float32, weighted_h: Array) -> None:
    """weighted_h = sign * weight * h, row by row."""
    for r in range(weight.size):
        share = sign * weight[r]
        for j in range(h.shape[1]):
            weighted_h[r, j] = share * h[r, j]
