"""The chains of the model phase: one sweep serves CD, PCD and parallel tempering.

PCD is one temperature; CD is PCD whose chains restart at the data; PT is several
temperatures with swaps. A ladder is swept until every row of the phase has its sample.
Chains carry hidden states: a sweep draws x given h, then h given x, and the activations
of h are what the gradient needs of a sample.
"""

import math
from typing import Annotated, NamedTuple

import numpy as np

from cbm_cli.kernels.bits import Bits, binary_product, bits_for, hold
from cbm_cli.kernels.compiling import lean, lean_sum, merged
from cbm_cli.kernels.machine import Machine
from cbm_cli.kernels.memory import (
    Array,
    aligned,
    aligned_zeros,
    allocate,
)
from cbm_cli.kernels.plan import Plan
from cbm_cli.kernels.random import SAMPLER, fill_uniform
from cbm_cli.kernels.units import sample_units, sample_with_means

# random numbers made at a time: few enough to stay in the first-level cache
_AT_A_TIME = 16384
# units that a loop needs to vectorise well, and units of a vector
_LONG, _LANES = 128, 16


class Side(NamedTuple):
    """One side of K chains, and views with several chains in a row, so that loops over
    them are long.
    """

    activation: Array  # (K, units) `sweep`, as are the states
    states: Array  # (K, units)
    bits: Bits  # the states, packed
    long_activation: Array  # (K / k, k units)
    long_states: Array
    # (k units,) inverse temperature of the chain times the factor of its activation
    beta: Array
    # `repeat_scaled`: (k units,) inverse temperature times bias
    bias: Annotated[Array, "long"]


class Chains(NamedTuple):
    """K = ladders * temperatures chains; x and h are their visible and hidden sides.

    An update has some turns, each of which gives a sample from every ladder.
    """

    x: Side
    h: Side
    # `draw_samples`: (R, N) the states at temperature 1 after an update, where they are
    # wanted, and (R, M) samples W
    samples: Array
    to_h: Array
    beta: Array  # (K,)
    energy: Annotated[Array, "K"]  # `chain_energies`
    # every chain is one sample, so that the last sweep writes its means
    has_means: bool
    long_means: Array  # `sweep`: these, as long rows
    u: Annotated[Array, "some"]  # `draw_samples`: random numbers of a few turns
    numbers: int  # random numbers of one turn
    turns: int  # sweeps and a round of swaps, so often in an update


def long_rows(units: int, rows: int, step: int = 1) -> int:
    """How many of ``rows`` rows, a multiple of ``step``, make one long row, of whole
    vectors if possible.
    """
    counts, whole = [], []
    for count in range(step, rows + 1, step):
        length = count * units
        if rows % count or (length < _LONG and count < rows):
            continue
        counts.append(count)
        spare = length % _LANES
        if spare <= length // 256 and length <= _AT_A_TIME // 2:
            whole.append(count)
    return min(whole or counts)


def lengthened(array: Array, count: int) -> Array:
    """A view of an array (rows, units) with ``count`` rows in one."""
    rows, units = array.shape
    return array.reshape(rows // count, count * units)


def make_chains(
    h: Array, plan: Plan, x: Array, to_h: Array, means: Array | None = None
) -> Chains:
    """Allocate what the chains with hidden states h (K, M) need; inverse temperatures
    are linspace(0, 1, T).

    Chains of one temperature work in x (R, N) and to_h (R, M), where their samples and
    x W are wanted. If each is one sample, its means go to ``means`` (R, M).
    """
    (chains, m), n, T = h.shape, x.shape[1], plan.temperatures
    turns = len(x) * T // chains
    shared = turns * plan.steps > 1  # sweeps multiply with the same weights
    beta, states, activation = np.ones(chains, np.float32), x, to_h
    if T > 1:
        ladder = np.float32(np.arange(T) / (T - 1))
        beta = np.tile(ladder, chains // T)
        states, activation = aligned_zeros((chains, n)), aligned_zeros((chains, m))
    hidden = _make_side(
        activation, h, beta=plan.to_hidden * beta, period=T, others=n, shared=shared
    )
    visible = _make_side(
        aligned_zeros(states.shape),
        states,
        beta=plan.to_visible * beta,
        period=T,
        others=m,
        shared=shared,
    )
    has_means = means is not None and T == turns == 1
    long_means = hidden.long_activation
    if means is not None and has_means:
        long_means = means.reshape(hidden.long_states.shape)
    numbers = plan.steps * chains * (n + m) + chains
    numbers += -numbers % 4
    turns_at_a_time = min(turns, max(1, _AT_A_TIME // numbers))
    return allocate(
        Chains,
        x=visible,
        h=hidden,
        samples=x,
        to_h=to_h,
        beta=beta,
        has_means=has_means,
        long_means=long_means,
        numbers=numbers,
        turns=turns,
        K=chains,
        some=turns_at_a_time * numbers,
    )


def _make_side(
    activation: Array,
    states: Array,
    *,
    beta: Array,
    period: int,
    others: int,
    shared: bool,
) -> Side:
    """Allocate a side of chains; ``beta`` repeats after ``period`` chains, and the
    other side has ``others`` units.
    """
    chains, units = states.shape
    count = long_rows(units, chains, period)
    return allocate(
        Side,
        activation=activation,
        states=states,
        bits=bits_for(chains, units, others, shared),
        long_activation=lengthened(activation, count),
        long_states=lengthened(states, count),
        beta=aligned(np.repeat(beta[:count], units)),
        long=count * units,
    )


@merged
def repeat_scaled(bias: Array, beta: Array, out: Array) -> None:
    """out = (beta_0 bias, beta_1 bias, ...), until it is full."""
    units = bias.size
    for r in range(out.size // units):
        row = out[r * units : (r + 1) * units]
        for i in range(units):
            row[i] = beta[r] * bias[i]


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
    fill_uniform(u, plan.seed, update, site=site, first_block=0)
    rows, units = h.shape
    for r in range(rows):
        for j in range(units):
            h[r, j] = np.float32(u[r * units + j] < means[r, j])


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
    repeat_scaled(machine.b, chains.beta, chains.x.bias)
    repeat_scaled(machine.c, chains.beta, chains.h.bias)
    hold(machine.W, turned=False, bits=chains.x.bits)
    hold(machine.W, turned=True, bits=chains.h.bits)
    at_a_time, K = chains.u.size // chains.numbers, chains.beta.size
    of_sweep = K * (machine.b.size + machine.c.size)
    for turn in range(chains.turns):
        if turn % at_a_time == 0:
            block = turn * (chains.numbers // 4)
            fill_uniform(chains.u, plan.seed, update, site=site, first_block=block)
        at = (turn % at_a_time) * chains.numbers
        for k in range(plan.steps):
            is_last = k == plan.steps - 1
            sweep(machine, chains, plan, at=at, is_last=is_last)
            at += of_sweep
        if plan.temperatures > 1:
            parity = (update * chains.turns + turn) % 2
            chain_energies(machine, chains)
            swap_neighbours(chains, plan, parity, at)
            take_coldest(chains.x.states, plan, turn, out=chains.samples)
            take_coldest(chains.h.activation, plan, turn, out=chains.to_h)


@lean
def advance_chains(
    machine: Machine, chains: Chains, plan: Plan, first: int, last: int
) -> None:
    """`draw_samples` of the updates first, ..., last - 1."""
    for update in range(first, last):
        draw_samples(machine, chains, plan, site=SAMPLER, update=update)


@merged
def sweep(machine: Machine, chains: Chains, plan: Plan, at: int, is_last: bool) -> None:
    """Draw x given h, then h given x, for all chains, with the random numbers u[at:];
    `reference.sweep`.

    The last sweep of a turn writes the means of h if every chain is one sample.
    """
    x, h = chains.x, chains.h
    # (K, M) @ (M, N)
    binary_product(h.states, h.bits, machine.W, turned=True, out=x.activation)
    u = chains.u[at:]
    sample_units(x.long_activation, x.beta, x.bias, u=u, out=x.long_states)
    # (K, N) @ (N, M)
    binary_product(x.states, x.bits, machine.W, turned=False, out=h.activation)
    u = chains.u[at + x.states.size :]
    if is_last and chains.has_means:
        sample_with_means(
            h.long_activation,
            plan.to_hidden,
            h.bias,
            u=u,
            mean=chains.long_means,
            out=h.long_states,
        )
    else:
        sample_units(h.long_activation, h.beta, h.bias, u=u, out=h.long_states)


@lean_sum
def chain_energies(machine: Machine, chains: Chains) -> None:
    """E(x, h) of every chain at temperature 1, from the product x W that h was drawn
    from.
    """
    x, h = chains.x.states, chains.h.states
    to_h, energy = chains.h.activation, chains.energy
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
    beta, energy, T = chains.beta, chains.energy, plan.temperatures
    for start in range(0, energy.size, T):
        for k in range(start + parity, start + T - 1, 2):
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
