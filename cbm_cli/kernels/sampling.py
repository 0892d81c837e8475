"""The chains of the model phase: one sweep serves CD, PCD and parallel tempering.

PCD is one temperature; CD is PCD whose chains restart at the data; PT is several
temperatures with swaps. A ladder is swept until every row of the phase has its sample.
Chains carry hidden states: a sweep draws x given h, then h given x, and the activations
of h are what the gradient needs of a sample.
"""

import math
from typing import NamedTuple

import numpy as np

from cbm_cli.kernels.compiling import lean, lean_sum, merged
from cbm_cli.kernels.machine import Array, Machine, aligned, aligned_empty
from cbm_cli.kernels.plan import Plan
from cbm_cli.kernels.products import Bits, binary_product, bits_for, hold
from cbm_cli.kernels.random import SAMPLER, fill_uniform
from cbm_cli.kernels.units import sample_units, sample_with_means

_CHUNK = (
    16384  # random numbers made at a time: few enough to stay in the first-level cache
)
_LONG, _LANES = (
    128,
    16,
)  # units that a loop needs to vectorise well, and units of a vector


class Side(NamedTuple):
    """One side of K chains, and views with several chains in a row, so that loops over
    them are long.
    """

    activation: Array  # (K, units)
    states: Array  # (K, units)
    bits: Bits  # the states, packed
    long_activation: Array  # (K / k, k units)
    long_states: Array
    # (k units,) inverse temperature of the chain times the factor of its activation
    beta: Array
    bias: Array  # (k units,) inverse temperature times bias


class Chains(NamedTuple):
    """K = ladders * temperatures chains; x and h are their visible and hidden sides."""

    x: Side
    h: Side
    # (R, N) the states at temperature 1 after an update, where they are wanted
    samples: Array
    to_h: Array  # (R, M) samples W
    beta: Array  # (K,)
    energy: Array  # (K,)
    direct: bool  # every chain is one sample, so that the last sweep fills in its means
    means: Array  # these, as long rows
    u: Array  # random numbers of a few rounds, flat
    numbers: int  # random numbers of one round
    rounds: int  # of sweeps and swaps, an update


def long_rows(units: int, rows: int, step: int = 1) -> int:
    """How many of ``rows`` rows, a multiple of ``step``, make one long row, of whole
    vectors if possible.
    """
    counts = [
        k
        for k in range(step, rows + 1, step)
        if rows % k == 0 and (k * units >= _LONG or k == rows)
    ]
    whole = [
        k
        for k in counts
        if k * units % _LANES <= k * units // 256 and k * units <= _CHUNK // 2
    ]
    return min(whole or counts)


def lengthened(array: Array, count: int) -> Array:
    """A view of an array (rows, units) with ``count`` rows in one."""
    return array.reshape(array.shape[0] // count, count * array.shape[1])


def make_chains(
    h: Array, plan: Plan, x: Array, to_h: Array, means: Array | None = None
) -> Chains:
    """Allocate what the chains with hidden states h (K, M) need; inverse temperatures
    are linspace(0, 1, T).

    Chains of one temperature work in x (R, N) and to_h (R, M), where their samples and
    x W are wanted. If each is one sample, its means go to ``means`` (R, M).
    """
    (chains, m), n, T = h.shape, x.shape[1], plan.temperatures
    wanted, rounds = (x, to_h), len(x) * T // chains
    beta = np.ones(chains, np.float32)
    if T > 1:
        beta = np.tile(np.float32(np.arange(T) / (T - 1)), chains // T)
        x, to_h = aligned_empty((chains, n)), aligned_empty((chains, m))
    numbers = plan.steps * chains * (n + m) + chains
    numbers += -numbers % 4
    shared = rounds * plan.steps > 1  # sweeps multiply with the same weights

    def side(activation: Array, states: Array, others: int, factor: np.float32) -> Side:
        units = states.shape[1]
        count = long_rows(units, chains, T)
        views = lengthened(activation, count), lengthened(states, count)
        bits = bits_for(chains, units, others, shared)
        return Side(
            activation,
            states,
            bits,
            *views,
            aligned(np.repeat(factor * beta[:count], units)),
            aligned_empty(count * units),
        )

    hidden = side(to_h, h, n, plan.to_hidden)
    direct = means is not None and T == rounds == 1
    in_long_rows = hidden.long_activation
    if means is not None and direct:
        in_long_rows = means.reshape(hidden.long_states.shape)
    u = aligned_empty(min(rounds, max(1, _CHUNK // numbers)) * numbers)
    visible = side(aligned_empty(x.shape), x, m, plan.to_visible)
    work = beta, aligned_empty(chains), direct, in_long_rows, u
    return Chains(visible, hidden, *wanted, *work, numbers, rounds)


@merged
def tile(values: Array, beta: Array, out: Array) -> None:
    """out = (beta_0 values, beta_1 values, ...), repeated until it is full."""
    units = values.size
    for r in range(out.size // units):
        row = out[r * units : (r + 1) * units]
        for i in range(units):
            row[i] = beta[r] * values[i]


@merged
def restart(
    means: Array, chains: Chains | None, plan: Plan, site: int, update: int
) -> None:
    """Draw the chains' hidden states from the data's means (B, M), for CD; nothing
    without chains.
    """
    if chains is None:
        return
    h, u = chains.h.states, chains.u[: (means.size + 3) // 4 * 4]
    fill_uniform(u, plan.seed, update, site, 0)
    for r in range(h.shape[0]):
        for j in range(h.shape[1]):
            h[r, j] = np.float32(u[r * h.shape[1] + j] < means[r, j])


@merged
def draw_samples(
    machine: Machine, chains: Chains | None, plan: Plan, site: int, update: int
) -> None:
    """Advance the chains, if there are any, through one update, and fill in their
    samples and to_h.

    `reference.tempered_sweep` is a round of it.
    """
    if chains is None:
        return
    tile(machine.b, chains.beta, chains.x.bias)
    tile(machine.c, chains.beta, chains.h.bias)
    hold(machine.W, False, chains.x.bits)
    hold(machine.W, True, chains.h.bits)
    at_a_time, K = chains.u.size // chains.numbers, chains.beta.size
    for r in range(chains.rounds):
        if r % at_a_time == 0:
            fill_uniform(chains.u, plan.seed, update, site, r * (chains.numbers // 4))
        at = (r % at_a_time) * chains.numbers
        for k in range(plan.steps):
            sweep(machine, chains, plan, at, k == plan.steps - 1)
            at += K * (machine.b.size + machine.c.size)
        if plan.temperatures > 1:
            chain_energies(machine, chains)
            swap_neighbours(chains, plan, (update * chains.rounds + r) % 2, at)
            take_coldest(chains.x.states, plan, r, chains.samples)
            take_coldest(chains.h.activation, plan, r, chains.to_h)


@lean
def advance_chains(
    machine: Machine, chains: Chains, plan: Plan, first: int, last: int
) -> None:
    """`draw_samples` of the updates first, ..., last - 1."""
    for update in range(first, last):
        draw_samples(machine, chains, plan, SAMPLER, update)


@merged
def sweep(machine: Machine, chains: Chains, plan: Plan, at: int, last: bool) -> None:
    """Draw x given h, then h given x, for all chains, with the random numbers u[at:];
    `reference.sweep`.

    The ``last`` sweep fills in the means of h if every chain is one sample.
    """
    x, h = chains.x, chains.h
    binary_product(h.states, h.bits, machine.W, True, x.activation)  # (K, M) @ (M, N)
    sample_units(x.long_activation, x.beta, x.bias, chains.u[at:], x.long_states)
    binary_product(x.states, x.bits, machine.W, False, h.activation)  # (K, N) @ (N, M)
    u = chains.u[at + x.states.size :]
    if last and chains.direct:
        sample_with_means(
            h.long_activation, plan.to_hidden, h.bias, u, chains.means, h.long_states
        )
    else:
        sample_units(h.long_activation, h.beta, h.bias, u, h.long_states)


@lean_sum
def chain_energies(machine: Machine, chains: Chains) -> None:
    """E(x, h) of every chain at temperature 1, from the product x W that h was drawn
    from.
    """
    x, h, to_h, energy = (
        chains.x.states,
        chains.h.states,
        chains.h.activation,
        chains.energy,
    )
    for k in range(energy.size):
        total = np.float32(0)
        for i in range(machine.b.size):
            total -= x[k, i] * machine.b[i]
        for j in range(machine.c.size):
            total -= h[k, j] * (to_h[k, j] + machine.c[j])
        energy[k] = total


@merged
def swap_neighbours(chains: Chains, plan: Plan, parity: int, at: int) -> None:
    """Let the pairs (k, k + 1) of every ladder, k = parity, parity + 2, ..., exchange
    their states.

    The probability is min(1, exp((beta_k - beta_{k+1}) (E_k - E_{k+1}))), the
    Metropolis rule for the joint distribution of the ladder: `reference.swap`. Pair k
    decides with the random number u[at + k].
    """
    beta, energy = chains.beta, chains.energy
    for start in range(0, energy.size, plan.temperatures):
        for k in range(start + parity, start + plan.temperatures - 1, 2):
            gain = (beta[k] - beta[k + 1]) * (energy[k] - energy[k + 1])
            if gain >= 0 or chains.u[at + k] < math.exp(gain):
                energy[k], energy[k + 1] = energy[k + 1], energy[k]
                exchange(chains.x.states, k)
                exchange(chains.h.states, k)
                exchange(chains.h.activation, k)


@merged
def exchange(array: Array, k: int) -> None:
    """Exchange the rows k and k + 1."""
    for i in range(array.shape[1]):
        array[k, i], array[k + 1, i] = array[k + 1, i], array[k, i]


@merged
def take_coldest(array: Array, plan: Plan, turn: int, out: Array) -> None:
    """Copy the chains at temperature 1, one of each ladder, to the next rows of out."""
    ladders = array.shape[0] // plan.temperatures
    for k in range(ladders):
        row = (k + 1) * plan.temperatures - 1
        for i in range(array.shape[1]):
            out[turn * ladders + k, i] = array[row, i]
