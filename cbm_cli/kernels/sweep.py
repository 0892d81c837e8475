"""The chains of the negative phase: one sweep serves CD, PCD and parallel tempering.

PCD is one temperature; CD is PCD whose chains restart at the data; PT is several temperatures with
swaps. A ladder is swept until every row of the batch has its sample. Chains carry hidden states: a sweep
draws x given h, then h given x, whose activations are just what the gradient needs of a sample.
"""

import math
from typing import NamedTuple

import numpy as np

from cbm_cli.kernels.compiling import compiled, lean, lean_sum
from cbm_cli.kernels.random import RESTART, fill_uniform
from cbm_cli.kernels.state import Array, Plan
from cbm_cli.kernels.units import sample_units

_CHUNK = 16384  # random numbers made at a time: few enough to stay in the first-level cache
_LONG = 128  # units that a loop needs to vectorise well


class Layer(NamedTuple):
    """Work arrays of one side of the chains, (K, units), and wide views of them.

    A wide view has one row for a few chains: enough units for loops over them to vectorise, few enough for
    their inverse temperatures and biases to stay in the first-level cache.
    """

    activation: Array
    wide_activation: Array
    states: Array
    wide_states: Array
    beta: Array  # (width,) inverse temperature of the chain times gain, for every unit
    bias: Array  # (width,) inverse temperature times bias


class Ladder(NamedTuple):
    """K = ladders * temperatures chains: their states and work arrays, and their temperatures."""

    visible: Layer
    hidden: Layer
    beta: Array  # (K,)
    energy: Array  # (K,)
    u: Array  # random numbers of a few rounds, flat
    numbers: int  # random numbers of one round
    rounds: int  # of swaps, an update
    ladders: int
    temperatures: int
    steps: int  # Gibbs sweeps between two rounds


@lean
def tile(values: Array, beta: Array, out: Array) -> None:
    """out = (beta_0 values, beta_1 values, ...), as many times as fit into out (width,)."""
    units = values.size
    for r in range(out.size // units):
        row = out[r * units : (r + 1) * units]
        for i in range(units):
            row[i] = beta[r] * values[i]


@lean
def laid_out(units: int, rows: int, step: int) -> int:
    """How many of ``rows`` rows are laid out: the fewest multiple of ``step`` that makes loops long."""
    few = step
    while few < rows and (few * units < _LONG or rows % few):
        few += step
    return few


@compiled
def widened(array: Array, rows: int) -> Array:
    """A view (K / rows, rows * units) of an array (K, units)."""
    return array.reshape((array.shape[0] // rows, rows * array.shape[1]))


@compiled
def make_layer(activation: Array, states: Array, beta: Array, temperatures: int, gain: np.float32) -> Layer:
    """Lay one side of the chains out, whose inverse temperatures are ``beta``."""
    units = states.shape[1]
    chains = laid_out(units, beta.size, temperatures)
    betas, bias = np.empty(chains * units, np.float32), np.empty(chains * units, np.float32)
    tile(np.full(units, gain), beta, betas)
    return Layer(activation, widened(activation, chains), states, widened(states, chains), betas, bias)


@compiled
def make_ladder(h: Array, plan: Plan, xm: Array, to_hm: Array) -> Ladder:
    """Allocate what the chains h (K, M) need; inverse temperatures are linspace(0, 1, temperatures).

    Chains of one temperature work in xm (B, N) and to_hm (B, M), where their samples are wanted.
    """
    chains, m, n = h.shape[0], h.shape[1], xm.shape[1]
    beta = np.ones(chains, np.float32)
    x, to_h = xm, to_hm
    if plan.temperatures > 1:
        for k in range(chains):
            beta[k] = np.float32((k % plan.temperatures) / (plan.temperatures - 1))
        x, to_h = np.empty((chains, n), np.float32), np.empty((chains, m), np.float32)
    numbers = plan.steps * chains * (n + m) + chains
    numbers = max(4, numbers + -numbers % 4)
    rounds = plan.batch // plan.ladders
    at_a_time = min(rounds, max(1, _CHUNK // numbers))
    return Ladder(
        make_layer(np.empty(x.shape, np.float32), x, beta, plan.temperatures, plan.to_visible),
        make_layer(to_h, h, beta, plan.temperatures, plan.to_hidden),
        beta,
        np.empty(chains, np.float32),
        np.empty(at_a_time * numbers, np.float32),
        numbers,
        rounds,
        plan.ladders,
        plan.temperatures,
        plan.steps,
    )


@lean_sum
def chain_energies(x: Array, h: Array, to_h: Array, b: Array, c: Array, energy: Array) -> None:
    """E(x, h) of every chain at temperature 1; to_h is the product x W that h was drawn from."""
    for k in range(energy.size):
        total = np.float32(0)
        for i in range(b.size):
            total -= x[k, i] * b[i]
        for j in range(c.size):
            total -= h[k, j] * (to_h[k, j] + c[j])
        energy[k] = total


@lean
def exchange(array: Array, k: int) -> None:
    """Exchange the rows k and k + 1."""
    for i in range(array.shape[1]):
        array[k, i], array[k + 1, i] = array[k + 1, i], array[k, i]


@lean
def swap_neighbours(
    x: Array,
    h: Array,
    to_h: Array,
    energy: Array,
    beta: Array,
    temperatures: int,
    parity: int,
    u: Array,
    at: int,
) -> None:
    """Exchange the states of neighbours (parity, parity + 1), ... with the Metropolis probability.

    Deterministic even-odd schedule: the caller alternates the parity from round to round.
    """
    for start in range(0, energy.size, temperatures):
        for k in range(start + parity, start + temperatures - 1, 2):
            gain = (beta[k] - beta[k + 1]) * (energy[k] - energy[k + 1])
            if gain >= 0 or u[at + k] < math.exp(gain):
                exchange(x, k)
                exchange(h, k)
                exchange(to_h, k)


@lean
def restart(weighted_h: Array, seed: np.uint64, update: int, first_block: int, u: Array, h: Array) -> None:
    """Draw the chains' hidden states from the data's means, batch * weighted_h (B, M), for CD."""
    fill_uniform(u, seed, update, RESTART, first_block)
    rows, m = h.shape
    for r in range(rows):
        numbers = u[r * m : (r + 1) * m]
        for j in range(m):
            h[r, j] = np.float32(numbers[j] < rows * weighted_h[r, j])


@compiled
def draw_samples(
    W: Array,
    b: Array,
    c: Array,
    ladder: Ladder,
    seed: np.uint64,
    site: int,
    update: int,
    xm: Array,
    to_hm: Array,
) -> None:
    """Advance the chains through one update; fill xm (B, N) with their states at temperature 1.

    to_hm (B, M) becomes xm W, the samples' hidden activations. Everything is unpacked before the loops: an
    attribute read inside one counts references, atomically, and would cost as much as the products of a
    small machine.
    """
    visible, hidden, beta, energy, u, numbers, rounds, ladders, temperatures, steps = ladder
    to_x, wide_to_x, x, wide_x, beta_x, bias_x = visible
    to_h, wide_to_h, h, wide_h, beta_h, bias_h = hidden
    Wt, at_a_time = W.T, u.size // numbers
    tile(b, beta, bias_x)
    tile(c, beta, bias_h)
    for r in range(rounds):
        if r % at_a_time == 0:
            fill_uniform(u, seed, update, site, r * (numbers // 4))
        at = (r % at_a_time) * numbers
        for _ in range(steps):
            np.dot(h, Wt, to_x)  # (K, M) @ (M, N)
            sample_units(wide_to_x, beta_x, bias_x, u, at, wide_x)
            np.dot(x, W, to_h)  # (K, N) @ (N, M)
            sample_units(wide_to_h, beta_h, bias_h, u, at + x.size, wide_h)
            at += x.size + h.size
        if temperatures > 1:
            chain_energies(x, h, to_h, b, c, energy)
            swap_neighbours(x, h, to_h, energy, beta, temperatures, (update * rounds + r) % 2, u, at)
            take_coldest(x, temperatures, r * ladders, ladders, xm)
            take_coldest(to_h, temperatures, r * ladders, ladders, to_hm)


@lean
def take_coldest(array: Array, temperatures: int, start: int, ladders: int, out: Array) -> None:
    """Copy the rows of the chains at temperature 1, one of each ladder, to out[start:]."""
    for k in range(ladders):
        row = (k + 1) * temperatures - 1
        for i in range(array.shape[1]):
            out[start + k, i] = array[row, i]
