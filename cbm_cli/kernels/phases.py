"""The two phases of the gradient: rows that stand for the data, and rows that stand for the model."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli.kernels.compiling import compiled, lean
from cbm_cli.kernels.enumeration import AllStates, make_all_states, spread, weigh_all_states
from cbm_cli.kernels.mean_field import mean_field
from cbm_cli.kernels.offsets import Means, average
from cbm_cli.kernels.random import ASIDE, DATA, SHUFFLE, fill_uniform, fill_words
from cbm_cli.kernels.state import ALL_STATES, Array, Plan, Rows, State
from cbm_cli.kernels.sweep import Ladder, draw_samples, make_ladder, widened
from cbm_cli.kernels.units import mean_of_units, sample_units


class DataPhase(NamedTuple):
    """Rows of the data, x (B, N), weighted_h (B, M) = mean hidden units / B, and work arrays."""

    x: Array
    weighted_h: Array
    wide_weighted_h: Array
    weight: Array
    to_h: Array
    wide_to_h: Array
    means: Means


class DeepPhase(NamedTuple):
    """Work arrays of a deep machine's data phase: E deeper even units, M odd ones."""

    visible: Array  # (B, visible)
    even: Array  # (B, E)
    odd: Array  # (B, M)
    from_visible: Array  # (B, M)
    to_even: Array  # (B, E)
    to_odd: Array  # (B, M)
    ones: Array  # (largest of E, M)
    u: Array  # random numbers of a Gibbs step


class ModelPhase(NamedTuple):
    """Rows of the model, x (R, N), weighted_h (R, M) = -weight times mean hidden units, and work arrays."""

    x: Array
    weighted_h: Array
    wide_weighted_h: Array
    weight: Array
    to_h: Array
    wide_to_h: Array
    ladder: Ladder
    states: AllStates
    means: Means


@compiled
def make_means(n: int, m: int) -> Means:
    """Allocate means."""
    return Means(np.empty(n, np.float32), np.empty(m, np.float32))


@compiled
def make_data_phase(x: Array, weighted_h: Array, few: int) -> DataPhase:
    """Allocate the data phase around its rows of the stacked arrays."""
    (batch, n), m = x.shape, weighted_h.shape[1]
    to_h = np.empty((batch, m), np.float32)
    return DataPhase(
        x,
        weighted_h,
        widened(weighted_h, few),
        np.full(batch, np.float32(1.0 / batch)),
        to_h,
        widened(to_h, few),
        make_means(n, m),
    )


def make_deep_phase(n: int, m: int, plan: Plan) -> DeepPhase | None:
    """Allocate the data phase of a deep machine of n even and m odd units; None for an RBM."""
    deeper, batch = n - plan.visible, plan.batch
    if not deeper:
        return None
    numbers = batch * (deeper + m) if plan.gibbs else 0
    shapes = (batch, plan.visible), (batch, deeper), (batch, m), (batch, m), (batch, deeper), (batch, m)
    arrays = [np.empty(shape, np.float32) for shape in shapes]
    return DeepPhase(
        *arrays, np.ones(max(deeper, m), np.float32), np.empty(numbers + -numbers % 4, np.float32)
    )


@lean
def model_rows(n: int, m: int, batch: int, exact: bool) -> int:
    """Rows of a model phase: a batch of samples, or all states of the smaller side."""
    return 2 ** min(n, m) if exact else batch


@compiled
def make_model_phase(
    chains: Array, x: Array, weighted_h: Array, plan: Plan, exact: bool, few: int
) -> ModelPhase:
    """Allocate a model phase around its rows; ``chains`` (K, M) are their hidden states."""
    m = weighted_h.shape[1]
    batch = 0 if exact else x.shape[0]
    to_h = np.empty((batch, m), np.float32)
    states = make_all_states(x, m, exact)
    weight = states.weight if exact else np.full(batch, np.float32(1.0 / batch))
    return ModelPhase(
        x,
        weighted_h,
        widened(weighted_h[:batch], few),
        weight,
        to_h,
        widened(to_h, few),
        make_ladder(chains[: 0 if exact else chains.shape[0]], plan, x[:batch], to_h),
        states,
        make_means(x.shape[1], m),
    )


@compiled
def order_rows(order: NDArray[np.int64], shuffled: bool, seed: np.uint64, epoch: int) -> None:
    """Fill ``order`` with the rows' order in an epoch: Fisher-Yates on words of the epoch."""
    for row in range(order.size):
        order[row] = row
    if not shuffled:
        return
    words = np.empty(order.size + -order.size % 4, np.uint32)
    fill_words(words, seed, epoch, SHUFFLE, 0)
    for row in range(order.size - 1, 0, -1):
        other = np.int64((np.uint64(words[row]) * np.uint64(row + 1)) >> np.uint64(32))
        order[row], order[other] = order[other], order[row]


@lean
def load_batch(data: Rows, order: NDArray[np.int64], start: int, unit: np.float32, x: Array) -> None:
    """Widen the rows order[start:] of the data (uint8) into the first columns of x (B, N)."""
    for r in range(x.shape[0]):
        row = order[start + r]
        for i in range(data.shape[1]):
            x[r, i] = unit * data[row, i]


@compiled
def deep_data_phase(state: State, data: DataPhase, deep: DeepPhase, plan: Plan, update: int) -> None:
    """Mean field, or Gibbs steps, of all layers but the first, which is held at the data."""
    visible, even, odd, from_visible, to_even, to_odd, _, _ = deep
    known, rounds = plan.visible, state.rounds
    W_deep, b_deep, c = state.W[known:], state.b[known:], state.c
    take(data.x, visible)
    np.dot(visible, state.W[:known], from_visible)  # (B, visible) @ (visible, M): the same in all rounds
    repeat(state.mu[known:], even)
    if plan.gibbs > 0:
        gibbs_rounds(W_deep, b_deep, c, deep, plan, update)
    else:
        args = (W_deep, b_deep, c, from_visible, even, odd, to_even, to_odd)
        made = mean_field(*args, plan.tolerance, plan.rounds)
        rounds[0] += min(made, plan.rounds)
        rounds[1] += 1
        rounds[2] += made > plan.rounds
    put(even, known, data.x)
    spread(odd, data.weight, np.float32(1), data.weighted_h)


@lean
def repeat(row: Array, out: Array) -> None:
    """Every row of out = row."""
    for r in range(out.shape[0]):
        for i in range(out.shape[1]):
            out[r, i] = row[i]


@lean
def take(array: Array, out: Array) -> None:
    """out = the first columns of the array, as many as it has."""
    for r in range(out.shape[0]):
        for i in range(out.shape[1]):
            out[r, i] = array[r, i]


@lean
def put(columns: Array, start: int, out: Array) -> None:
    """Write ``columns`` to those of out from ``start`` on."""
    for r in range(columns.shape[0]):
        for i in range(columns.shape[1]):
            out[r, start + i] = columns[r, i]


@compiled
def gibbs_rounds(W_deep: Array, b_deep: Array, c: Array, deep: DeepPhase, plan: Plan, update: int) -> None:
    """Gibbs steps between the odd and the deeper even layers; even keeps states, odd its means given them."""
    _, even, odd, from_visible, to_even, to_odd, ones, u = deep
    for step in range(plan.gibbs):
        fill_uniform(u, plan.seed, update, DATA, step * (u.size // 4))
        np.dot(even, W_deep, to_odd)
        add_to(to_odd, from_visible)
        sample_units(to_odd, ones, c, u, 0, odd)
        np.dot(odd, W_deep.T, to_even)
        sample_units(to_even, ones, b_deep, u, odd.size, even)
    np.dot(even, W_deep, to_odd)
    add_to(to_odd, from_visible)
    mean_of_units(to_odd, ones[0], c, ones[0], odd)


@lean
def add_to(activation: Array, more: Array) -> None:
    """activation += more."""
    for r in range(more.shape[0]):
        for i in range(more.shape[1]):
            activation[r, i] += more[r, i]


@compiled
def means_aside(state: State, chains: State, phase: ModelPhase, plan: Plan, update: int) -> None:
    """Means of a model phase beside the gradient's, for offsets with chains of their own or all states."""
    x, weighted_h, _, weight, to_h, _, ladder, states, means = phase
    minus, one = np.float32(-1), np.float32(1)
    if plan.offsets_from == ALL_STATES:
        weigh_all_states(state.W, state.b, state.c, states)
        spread(states.h, weight, minus, weighted_h)
    else:
        draw_samples(chains.W, chains.b, chains.c, ladder, plan.seed, ASIDE, update, x, to_h)
        if plan.fast_learning_rate > 0:
            np.dot(x, state.W, to_h)  # hidden means are those of the regular weights, as the gradient's
        mean_of_units(to_h, one, state.c, -weight[0], weighted_h)
    average(x, weight, weighted_h, minus, means)
