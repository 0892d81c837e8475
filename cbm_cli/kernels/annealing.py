"""Annealing between a machine of independent units and an RBM: AIS and reverse AIS.

The path is f_beta(x) = exp(((1 - beta) base + beta b)'x) prod_j (1 + exp(beta (x'W +
c)_j)): at beta = 0 the units are independent with biases ``base``, at beta = 1 it is
the machine (Salakhutdinov & Murray 2008).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli.kernels.compiling import lean, lean_sum
from cbm_cli.kernels.machine import Array, aligned, aligned_empty
from cbm_cli.kernels.products import Bits, binary_product, bits_for, hold, product
from cbm_cli.kernels.random import SAMPLER, fill_uniform
from cbm_cli.kernels.units import sample_units, sum_of_softplus


class Walks(NamedTuple):
    """R walks along a path, and work arrays."""

    W: Array  # (N, M)
    b: Array
    c: Array
    base: Array  # (N,)
    slope: NDArray[np.float64]  # (N,) b - base
    x: Array  # (R, N) states of the visible units
    h: Array  # (R, M)
    to_x: Array
    to_h: Array
    x_bits: Bits
    h_bits: Bits
    beta: Array  # (larger of N and M,) the inverse temperature, for every unit
    bias_x: Array  # biases on the path
    bias_h: Array
    u_h: Array  # random numbers of h, and of x
    u_x: Array
    first: NDArray[
        np.int64
    ]  # (2,) which of all random numbers of a step are the first of h, and of x
    log_weight: NDArray[np.float64]  # (R,)


def make_walks(
    machine: tuple[Array, Array, Array],
    base: Array,
    x: Array,
    first: int,
    count: int,
    group: int,
) -> Walks:
    """Walks number ``first``, ... of ``count``, which start at x (R, N) and need not be
    binary.

    Each ``group`` of walks goes the same way, bit for bit, as it would alone: its
    products are not mixed with those of others. A group that is not all of the walks
    must be large enough for packed products.
    """
    W, b, c = machine
    (rows, n), m = x.shape, len(c)
    starts = np.array([first * m, count * m + first * n])
    walks = Walks(
        *(W, b, c, base, b.astype(np.float64) - base, aligned(x)),
        *(aligned_empty((rows, units)) for units in (m, n, m)),
        bits_for(rows, n, m, True, group),
        bits_for(rows, m, n, True, group),
        *(aligned_empty(units) for units in (max(n, m), n, m)),
        *(
            aligned_empty(rows * units + 3 + -(rows * units + 3) % 4)
            for units in (m, n)
        ),
        starts,
        np.zeros(rows),
    )
    hold(W, False, walks.x_bits)
    hold(W, True, walks.h_bits)
    for start in range(0, rows, group):
        stop = start + group
        product(walks.x[start:stop], W, walks.to_h[start:stop])
    return walks


@lean
def anneal(walks: Walks, betas: Array, seed: np.uint64, first: int, last: int) -> None:
    """Walk the steps first, ..., last - 1 of the path ``betas``.

    Step k makes a Gibbs sweep at betas[k], which leaves f there invariant and is its
    own reverse, then adds log f at betas[k + 1] less log f at betas[k]. Upwards from
    independent units this is AIS; downwards from samples of the machine it is reverse
    AIS.
    """
    x, h, (of_h, of_x) = walks.x, walks.h, (walks.first[0], walks.first[1])
    for k in range(first, last):
        beta = betas[k]
        walks.beta[:] = beta
        for i in range(walks.b.size):
            walks.bias_x[i] = (np.float32(1) - beta) * walks.base[i] + beta * walks.b[i]
        for j in range(walks.c.size):
            walks.bias_h[j] = beta * walks.c[j]
        fill_uniform(walks.u_h, seed, k, SAMPLER, of_h // 4)
        fill_uniform(walks.u_x, seed, k, SAMPLER, of_x // 4)
        sample_units(walks.to_h, walks.beta, walks.bias_h, walks.u_h[of_h % 4 :], h)
        binary_product(h, walks.h_bits, walks.W, True, walks.to_x)  # (R, M) @ (M, N)
        sample_units(walks.to_x, walks.beta, walks.bias_x, walks.u_x[of_x % 4 :], x)
        binary_product(x, walks.x_bits, walks.W, False, walks.to_h)  # (R, N) @ (N, M)
        weigh(walks, beta, betas[k + 1])


@lean_sum
def weigh(walks: Walks, here: np.float32, there: np.float32) -> None:
    """log_weight += log f_there(x) - log f_here(x), for every walk;
    `reference.ais_step`.
    """
    for r in range(walks.log_weight.size):
        slope = 0.0
        for i in range(walks.b.size):
            slope += np.float64(walks.x[r, i]) * walks.slope[i]
        to_h = walks.to_h[r]
        gain = sum_of_softplus(to_h, walks.c, there) - sum_of_softplus(
            to_h, walks.c, here
        )
        walks.log_weight[r] += (np.float64(there) - np.float64(here)) * slope + gain
