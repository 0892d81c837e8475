"""The negative phase: one sweep serves CD, PCD and parallel tempering; or all states, weighted.

PCD is one temperature; CD is PCD whose chains restart at the data; PT is several temperatures with
swaps. A ladder is swept until every row of the batch has its sample.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli.kernels.compiling import compiled, lean, lean_sum
from cbm_cli.kernels.random import SAMPLER, fill_uniform
from cbm_cli.kernels.state import Array, Plan, State
from cbm_cli.kernels.units import sample_units, sigmoid

_CHUNK = 16384  # random numbers made at a time: few enough to stay in the first-level cache
_LONG = 128  # units that a loop needs to vectorise well


class Negative(NamedTuple):
    """Rows that stand for the model's distribution: x (R, N), h (R, M) means, weight (R,).

    For ``exact``, the last two are work arrays: the activations of the side that is not enumerated, and
    the log probability of a row (float64). They are empty otherwise.
    """

    x: Array
    h: Array
    weight: Array
    activation: Array
    log_weight: NDArray[np.float64]


class Layer(NamedTuple):
    """Work arrays of one side of the chains, (K, units), and wide views of them.

    A wide view has one row for a few chains: enough units for loops over them to vectorise, few enough for
    their inverse temperatures and biases to stay in the first-level cache.
    """

    activation: Array
    wide_activation: Array
    wide_states: Array
    beta: Array  # (width,) inverse temperature of the chain, for every unit
    bias: Array  # (chains of a wide row, units) inverse temperature times bias
    wide_bias: Array  # (width,)


class Ladder(NamedTuple):
    """K = ladders * temperatures chains: their work arrays, and their temperatures."""

    h: Array  # (K, M) hidden states
    visible: Layer
    hidden: Layer
    beta: Array  # (K,)
    energy: Array  # (K,)
    u: Array  # random numbers of a few rounds, flat
    numbers: int  # random numbers of one round


@lean
def tile(values: Array, beta: Array, out: Array) -> None:
    """out[r, i] = beta[r] * values[i]."""
    for r in range(out.shape[0]):
        for i in range(out.shape[1]):
            out[r, i] = beta[r] * values[i]


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
def make_layer(states: Array, beta: Array, temperatures: int) -> Layer:
    """Allocate the work arrays of one side of the chains, whose inverse temperatures are ``beta``."""
    units = states.shape[1]
    chains = laid_out(units, beta.size, temperatures)
    activation = np.empty_like(states)
    betas, bias = np.empty((chains, units), np.float32), np.empty((chains, units), np.float32)
    tile(np.ones(units, np.float32), beta, betas)
    wide_activation, wide_states = widened(activation, chains), widened(states, chains)
    return Layer(activation, wide_activation, wide_states, betas.ravel(), bias, bias.ravel())


@compiled
def make_ladder(state: State, plan: Plan) -> Ladder:
    """Allocate the work arrays of the chains; inverse temperatures are linspace(0, 1, temperatures)."""
    chains = plan.ladders * plan.temperatures
    beta = np.ones(chains, np.float32)
    if plan.temperatures > 1:
        for k in range(chains):
            beta[k] = np.float32((k % plan.temperatures) / (plan.temperatures - 1))
    n, m = state.W.shape
    numbers = plan.steps * chains * (n + m) + chains
    numbers += -numbers % 4
    rounds = min(plan.batch // plan.ladders, max(1, _CHUNK // numbers))
    h = np.empty((chains, m), np.float32)
    return Ladder(
        h,
        make_layer(state.x, beta, plan.temperatures),
        make_layer(h, beta, plan.temperatures),
        beta,
        np.empty(chains, np.float32),
        np.empty(rounds * numbers, np.float32),
        numbers,
    )


@lean_sum
def chain_energies(x: Array, activation_x: Array, h: Array, b: Array, c: Array, energy: Array) -> None:
    """E(x, h) of every chain at temperature 1; activation_x is the product h W' that x was drawn from."""
    for k in range(energy.size):
        total = np.float32(0)
        for i in range(b.size):
            total -= x[k, i] * (activation_x[k, i] + b[i])
        for j in range(c.size):
            total -= h[k, j] * c[j]
        energy[k] = total


@lean
def swap_neighbours(
    x: Array, energy: Array, beta: Array, temperatures: int, parity: int, u: Array, at: int
) -> None:
    """Exchange the states of neighbours (parity, parity + 1), ... with the Metropolis probability.

    Deterministic even-odd schedule: the caller alternates the parity from round to round.
    """
    for start in range(0, energy.size, temperatures):
        for k in range(start + parity, start + temperatures - 1, 2):
            gain = (beta[k] - beta[k + 1]) * (energy[k] - energy[k + 1])
            if gain >= 0 or u[at + k] < math.exp(gain):
                for i in range(x.shape[1]):
                    x[k, i], x[k + 1, i] = x[k + 1, i], x[k, i]


@lean
def restart(state: State, x: Array) -> None:
    """Set the chains to the batch x (B, N), for CD."""
    for r in range(x.shape[0]):
        for i in range(x.shape[1]):
            state.x[r, i] = x[r, i]


@compiled
def draw_samples(state: State, ladder: Ladder, plan: Plan, update: int, xm: Array) -> None:
    """Advance the chains through one update; fill xm (B, N) with their states at temperature 1.

    Everything is unpacked before the loops: an attribute read inside one counts references, atomically,
    and would cost as much as the products of a small machine.
    """
    x, W, Wt, b, c = state.x, state.W, state.W.T, state.b, state.c
    h, visible, hidden, beta, energy, u, numbers = ladder
    to_h, wide_to_h, wide_h, beta_h, tiled_c, bias_h = hidden
    to_x, wide_to_x, wide_x, beta_x, tiled_b, bias_x = visible
    tile(c, beta, tiled_c)
    tile(b, beta, tiled_b)
    rounds, at_a_time = plan.batch // plan.ladders, u.size // numbers
    for r in range(rounds):
        if r % at_a_time == 0:
            fill_uniform(u, plan.seed, update, SAMPLER, r * (numbers // 4))
        at = (r % at_a_time) * numbers
        for _ in range(plan.steps):
            np.dot(x, W, to_h)  # (K, N) @ (N, M)
            sample_units(wide_to_h, beta_h, bias_h, u, at, wide_h)
            np.dot(h, Wt, to_x)  # (K, M) @ (M, N)
            sample_units(wide_to_x, beta_x, bias_x, u, at + h.size, wide_x)
            at += h.size + x.size
        if plan.temperatures > 1:
            chain_energies(x, to_x, h, b, c, energy)
            swap_neighbours(x, energy, beta, plan.temperatures, (update * rounds + r) % 2, u, at)
        for k in range(plan.ladders):
            for i in range(b.size):
                xm[r * plan.ladders + k, i] = x[(k + 1) * plan.temperatures - 1, i]


@lean
def negative_rows(n_visible: int, n_hidden: int, plan: Plan) -> int:
    """Rows of the negative phase: a batch of samples, or all states of the smaller side."""
    return 2 ** min(n_visible, n_hidden) if plan.exact else plan.batch


@compiled
def make_negative(x: Array, n_hidden: int, plan: Plan) -> Negative:
    """Allocate the negative phase around its visible rows x (R, N); ``exact`` sets the enumerated states."""
    rows, n_visible = x.shape
    implied = (rows, max(n_visible, n_hidden)) if plan.exact else (0, 0)
    negative = Negative(
        x,
        np.empty((rows, n_hidden), np.float32),
        np.full(rows, np.float32(1.0 / rows)),
        np.empty(implied, np.float32),
        np.empty(implied[0], np.float64),
    )
    if plan.exact:
        states = negative.h if n_hidden <= n_visible else negative.x
        for r in range(rows):
            for i in range(states.shape[1]):
                states[r, i] = (r >> i) & 1
    return negative


@compiled
def weigh_all_states(state: State, negative: Negative) -> None:
    """Fill the rows for the exact gradient: every state of the smaller side and what it implies.

    The enumerated side keeps its states, the other gets its conditional means; the weight of a row is
    the probability of its state.
    """
    x, h, weight, activation, log_weight = negative
    if state.c.size <= state.b.size:
        np.dot(h, state.W.T, activation)  # (R, M) @ (M, N)
        imply_means(h, state.c, activation, state.b, log_weight, x)
    else:
        np.dot(x, state.W, activation)  # (R, N) @ (N, M)
        imply_means(x, state.b, activation, state.c, log_weight, h)
    normalise(log_weight, weight)


@lean
def normalise(log_weight: NDArray[np.float64], weight: Array) -> None:
    """weight = exp(log_weight) / sum; log_weight is overwritten."""
    largest, total = -np.inf, 0.0
    for r in range(weight.size):
        largest = max(largest, log_weight[r])
    for r in range(weight.size):
        log_weight[r] = math.exp(log_weight[r] - largest)
        total += log_weight[r]
    for r in range(weight.size):
        weight[r] = np.float32(log_weight[r] / total)


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
