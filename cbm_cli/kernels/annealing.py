"""Annealing from a machine of independent units to an RBM: AIS.

The path is f_beta(x) = exp(((1 - beta) base + beta b)'x) prod_j (1 + exp(beta (x'W +
c)_j)): at beta = 0 the units are independent with biases ``base``, at beta = 1 it is
the machine (Salakhutdinov & Murray 2008).
"""

from typing import Annotated, NamedTuple

import numpy as np

from cbm_cli.kernels.bits import Bits, binary_product, bits_for, hold
from cbm_cli.kernels.compiling import lean, lean_sum
from cbm_cli.kernels.dense import product
from cbm_cli.kernels.memory import Array, Wide, aligned, allocate
from cbm_cli.kernels.random import SAMPLER, fill_uniform
from cbm_cli.kernels.units import sample_units, sum_of_softplus


class Walks(NamedTuple):
    """R walks along a path, and work arrays; `anneal` writes them."""

    W: Array  # (N, M)
    b: Array  # (N,)
    c: Array  # (M,)
    base: Array  # (N,)
    slope: Wide  # (N,) b - base
    x: Array  # (R, N) states of the visible units
    h: Annotated[Array, "R M"]
    to_x: Annotated[Array, "R N"]
    to_h: Annotated[Array, "R M"]
    x_bits: Bits
    h_bits: Bits
    beta: Annotated[Array, "larger"]  # the inverse temperature, for every unit
    bias_x: Annotated[Array, "N"]  # biases on the path
    bias_h: Annotated[Array, "M"]
    u_h: Annotated[Array, "numbers_h"]  # random numbers of h, and of x
    u_x: Annotated[Array, "numbers_x"]
    # which of all random numbers of a step are the first of h, and of x
    first_h: int
    first_x: int
    log_weight: Annotated[Wide, "R"]  # `add_log_weights`


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
    walks = allocate(
        Walks,
        W=W,
        b=b,
        c=c,
        base=base,
        slope=b.astype(np.float64) - base,
        x=aligned(x),
        x_bits=bits_for(rows, n, m, shared=True, group=group),
        h_bits=bits_for(rows, m, n, shared=True, group=group),
        first_h=first * m,
        first_x=count * m + first * n,
        R=rows,
        N=n,
        M=m,
        larger=max(n, m),
        numbers_h=_numbers_of(rows * m),
        numbers_x=_numbers_of(rows * n),
    )
    hold(W, turned=False, bits=walks.x_bits)
    hold(W, turned=True, bits=walks.h_bits)
    for start in range(0, rows, group):
        stop = start + group
        product(walks.x[start:stop], W, walks.to_h[start:stop])
    return walks


def _numbers_of(count: int) -> int:
    """How many random numbers, which come in fours, hold so many from any place on."""
    numbers = count + 3
    return numbers + -numbers % 4


@lean
def anneal(walks: Walks, betas: Array, seed: np.uint64, first: int, last: int) -> None:
    """Walk the steps first, ..., last - 1 of the path ``betas``.

    Step k makes a Gibbs sweep at betas[k], which leaves f there invariant and is its
    own reverse, then adds log f at betas[k + 1] less log f at betas[k]. Upwards from
    independent units this is AIS.
    """
    W, x, h = walks.W, walks.x, walks.h
    block_h, skipped_h = walks.first_h // 4, walks.first_h % 4
    block_x, skipped_x = walks.first_x // 4, walks.first_x % 4
    for k in range(first, last):
        beta = betas[k]
        walks.beta[:] = beta
        for i in range(walks.b.size):
            walks.bias_x[i] = (np.float32(1) - beta) * walks.base[i] + beta * walks.b[i]
        for j in range(walks.c.size):
            walks.bias_h[j] = beta * walks.c[j]
        fill_uniform(walks.u_h, seed, update=k, site=SAMPLER, first_block=block_h)
        fill_uniform(walks.u_x, seed, update=k, site=SAMPLER, first_block=block_x)
        u = walks.u_h[skipped_h:]
        sample_units(walks.to_h, walks.beta, walks.bias_h, u=u, out=h)
        # (R, M) @ (M, N)
        binary_product(h, walks.h_bits, W, turned=True, out=walks.to_x)
        u = walks.u_x[skipped_x:]
        sample_units(walks.to_x, walks.beta, walks.bias_x, u=u, out=x)
        # (R, N) @ (N, M)
        binary_product(x, walks.x_bits, W, turned=False, out=walks.to_h)
        add_log_weights(walks, beta, betas[k + 1])


@lean_sum
def add_log_weights(walks: Walks, here: np.float32, there: np.float32) -> None:
    """log_weight += log f_there(x) - log f_here(x), for every walk;
    `reference.ais_step`.
    """
    for r in range(walks.log_weight.size):
        slope = 0.0
        for i in range(walks.b.size):
            slope += np.float64(walks.x[r, i]) * walks.slope[i]
        to_h = walks.to_h[r]
        after = sum_of_softplus(to_h, walks.c, there)
        gain = after - sum_of_softplus(to_h, walks.c, here)
        step = np.float64(there) - np.float64(here)
        walks.log_weight[r] += step * slope + gain
