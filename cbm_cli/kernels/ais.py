"""Annealing between a machine of independent units and an RBM: AIS, reverse AIS and RAISE.

The path is f_beta(x) = exp(((1 - beta) base + beta b)'x) prod_j (1 + exp(beta (x'W + c)_j)): at beta = 0 the
units are independent with biases ``base``, at beta = 1 it is the machine (Salakhutdinov & Murray 2008).
"""

import numpy as np
from numpy.typing import NDArray

from cbm_cli.kernels.compiling import compiled, lean, lean_sum
from cbm_cli.kernels.random import SAMPLER, fill_uniform
from cbm_cli.kernels.state import Array
from cbm_cli.kernels.units import sample_units, sum_of_softplus


@lean
def mix(old: Array, new: Array, beta: np.float32, out: Array) -> None:
    """out = (1 - beta) old + beta new."""
    for i in range(new.size):
        out[i] = (np.float32(1) - beta) * old[i] + beta * new[i]


@lean_sum
def weigh(
    x: Array,
    activation: Array,
    b: Array,
    c: Array,
    base: Array,
    here: np.float32,
    there: np.float32,
    log_weight: NDArray[np.float64],
) -> None:
    """log_weight += log f_there(x) - log f_here(x), for every row of x (R, N)."""
    for r in range(x.shape[0]):
        slope = 0.0
        for i in range(b.size):
            slope += np.float64(x[r, i]) * (np.float64(b[i]) - np.float64(base[i]))
        gain = sum_of_softplus(activation[r], c, there) - sum_of_softplus(activation[r], c, here)
        log_weight[r] += (np.float64(there) - np.float64(here)) * slope + gain


@compiled
def anneal(
    W: Array,
    b: Array,
    c: Array,
    base: Array,
    x: Array,
    log_weight: NDArray[np.float64],
    betas: Array,
    seed: np.uint64,
    first: int,
    last: int,
) -> None:
    """Walk the steps first, ..., last - 1 of the path ``betas``; x (R, N), log_weight (R,) change in place.

    Step k makes a Gibbs sweep at betas[k], which leaves f there invariant and is its own reverse, then
    adds log f at betas[k + 1] less log f at betas[k]. Upwards from independent units this is AIS;
    downwards from samples of the machine it is reverse AIS, and from a row of data RAISE.
    """
    (rows, n), m = x.shape, c.size
    h, to_h, to_x = np.empty((rows, m), np.float32), np.empty((rows, m), np.float32), np.empty_like(x)
    beta_x, beta_h, bias_x, bias_h = np.empty_like(b), np.empty_like(c), np.empty_like(b), np.empty_like(c)
    nothing = np.zeros_like(c)
    u = np.empty(rows * (n + m) + -(rows * (n + m)) % 4, np.float32)
    Wt = W.T
    np.dot(x, W, to_h)  # (R, N) @ (N, M)
    for k in range(first, last):
        beta_x[:] = betas[k]
        beta_h[:] = betas[k]
        mix(nothing, c, betas[k], bias_h)
        mix(base, b, betas[k], bias_x)
        fill_uniform(u, seed, k, SAMPLER, 0)
        sample_units(to_h, beta_h, bias_h, u, 0, h)
        np.dot(h, Wt, to_x)  # (R, M) @ (M, N)
        sample_units(to_x, beta_x, bias_x, u, h.size, x)
        np.dot(x, W, to_h)
        weigh(x, to_h, b, c, base, betas[k], betas[k + 1], log_weight)
