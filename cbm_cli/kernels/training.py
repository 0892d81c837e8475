"""Training with the centered gradient: the paper's Algorithm 1, in one compiled loop."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli.kernels.compiling import compiled, lean, lean_sum
from cbm_cli.kernels.random import NOISE, SHUFFLE, fill_uniform, fill_words
from cbm_cli.kernels.state import Array, Mix, Plan, Rows, State
from cbm_cli.kernels.sweep import (
    draw_samples,
    laid_out,
    make_ladder,
    make_negative,
    negative_rows,
    restart,
    tile,
    weigh_all_states,
    widened,
)
from cbm_cli.kernels.units import mean_of_units


class Means(NamedTuple):
    """Mean visible (N,) and hidden (M,) units, of the data or of the model."""

    x: Array
    h: Array


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
    """Widen the rows order[start:] of the data (uint8) into x (B, N)."""
    for r in range(x.shape[0]):
        row = order[start + r]
        for i in range(x.shape[1]):
            x[r, i] = unit * data[row, i]


@lean
def average(x: Array, h: Array, weight: Array, sign: np.float32, weighted_h: Array, means: Means) -> None:
    """Fill ``means`` over the rows of x (R, N) and h (R, M); weighted_h = sign weight h."""
    means.x[:] = 0
    means.h[:] = 0
    for r in range(weight.size):
        for i in range(x.shape[1]):
            means.x[i] += weight[r] * x[r, i]
        for j in range(h.shape[1]):
            means.h[j] += weight[r] * h[r, j]
            weighted_h[r, j] = sign * weight[r] * h[r, j]


@lean
def slide(
    offset: Array, mix: Mix, factor: np.float32, data_mean: Array, model_mean: Array, noise: Array
) -> None:
    """Move the offset by ``factor`` towards its scheme's mix of (data mean, model mean, 1/2, noise)."""
    for i in range(offset.size):
        target = mix.data * data_mean[i] + mix.model * model_mean[i] + mix.constant + mix.noise * noise[i]
        offset[i] += factor * (target - offset[i])


@lean
def move_offsets(
    state: State, data: Means, model: Means, plan: Plan, update: int, noise: tuple[Array, Array]
) -> None:
    """Both offsets of the paper's Algorithm 1, from the means of this update."""
    if plan.visible_mix.noise + plan.hidden_mix.noise > 0:
        fill_uniform(noise[0], plan.seed, update, NOISE, 0)
        fill_uniform(noise[1], plan.seed, update, NOISE, noise[0].size // 4)
    slide(state.mu, plan.visible_mix, plan.sliding_visible, data.x, model.x, noise[0])
    slide(state.lam, plan.hidden_mix, plan.sliding_hidden, data.h, model.h, noise[1])


@lean_sum
def ascend(state: State, contrast: Array, data: Means, model: Means, learning_rate: np.float32) -> None:
    """One step along the centered gradient, Eqs. (cgradW), (cgradb), (cgradc); state changes in place.

    <(x - mu)(h - lam)'>_d - <...>_m is written as contrast - mu dh' - dx lam', where contrast (N, M) is
    <x h'>_d - <x h'>_m and dx, dh are the differences of the means: the products then need no centered
    copies of the rows.
    """
    for j in range(state.c.size):
        state.c[j] += learning_rate * (data.h[j] - model.h[j])
    for i in range(state.b.size):
        dx = data.x[i] - model.x[i]
        mu = state.mu[i]
        along_lam = np.float32(0)
        for j in range(state.c.size):
            dh = data.h[j] - model.h[j]
            step = learning_rate * (contrast[i, j] - mu * dh - dx * state.lam[j])
            state.W[i, j] += step
            state.c[j] -= step * mu
            along_lam += step * state.lam[j]
        state.b[i] += learning_rate * dx - along_lam


@lean
def add_fast(state: State, chains: State) -> None:
    """The machine that the chains see: the regular parameters plus the fast ones."""
    for i in range(state.W.shape[0]):
        chains.b[i] = state.b[i] + state.fast_b[i]
        for j in range(state.W.shape[1]):
            chains.W[i, j] = state.W[i, j] + state.fast_W[i, j]
    for j in range(state.c.size):
        chains.c[j] = state.c[j] + state.fast_c[j]


@lean
def decay(fast: State, factor: np.float32) -> None:
    """Let the fast parameters fade."""
    for i in range(fast.W.shape[0]):
        fast.b[i] *= factor
        for j in range(fast.W.shape[1]):
            fast.W[i, j] *= factor
    for j in range(fast.c.size):
        fast.c[j] *= factor


@compiled
def chain_machine(state: State, plan: Plan) -> State:
    """The state that the chains are swept with: the trial's own, or one with fast weights added (FPCD)."""
    W, b, c = state.W, state.b, state.c
    if plan.fast_learning_rate > 0:
        W, b, c = np.empty_like(W), np.empty_like(b), np.empty_like(c)
    return State(W, b, c, state.mu, state.lam, state.x, state.fast_W, state.fast_b, state.fast_c)


@compiled
def fast_part(state: State) -> State:
    """The fast parameters as a machine of their own, which climbs along the same gradient."""
    fast = state.fast_W, state.fast_b, state.fast_c
    return State(fast[0], fast[1], fast[2], state.mu, state.lam, state.x, fast[0], fast[1], fast[2])


@compiled
def train(state: State, rows: Rows, plan: Plan, first: int, last: int) -> None:
    """Advance ``state`` in place through the updates first, ..., last - 1.

    Parameters
    ----------
    state : State
    rows : (n, N) uint8
        Training data.
    plan : Plan
    first, last : int
        Numbers of the first update and of the one after the last; an update's random numbers depend on
        its number alone, so that a stretch can be cut anywhere.
    """
    n, m = state.W.shape
    W, c, batch = state.W, state.c, plan.batch
    order = np.empty(rows.shape[0], np.int64)
    # Rows of the data stand above rows of the model: one product makes the gradient of both.
    both_x = np.empty((batch + negative_rows(n, m, plan), n), np.float32)
    both_h = np.empty((both_x.shape[0], m), np.float32)  # times their weights
    both_xt = both_x.T
    x, xm, weighted_h, weighted_hm = both_x[:batch], both_x[batch:], both_h[:batch], both_h[batch:]
    contrast = np.empty((n, m), np.float32)
    h, to_h = np.empty((batch, m), np.float32), np.empty((batch, m), np.float32)
    bias = np.empty((laid_out(m, batch, 1), m), np.float32)
    wide_bias = bias.ravel()
    wide_h, wide_to_h = widened(h, bias.shape[0]), widened(to_h, bias.shape[0])
    weight = np.full(batch, np.float32(1.0 / batch))
    noise = np.zeros(n + -n % 4, np.float32), np.zeros(m + -m % 4, np.float32)
    ladder, negative = make_ladder(state, plan), make_negative(xm, m, plan)
    hm, model_weight = negative.h, negative.weight
    wide_hm = hm if plan.exact else widened(hm, bias.shape[0])
    data = Means(np.empty(n, np.float32), np.empty(m, np.float32))
    model = Means(np.empty(n, np.float32), np.empty(m, np.float32))
    ones = np.ones(bias.shape[0], np.float32)
    plus, minus = np.float32(1), np.float32(-1)
    chains, fast = chain_machine(state, plan), fast_part(state)
    ordered = -1
    for update in range(first, last):
        epoch = update // plan.batches
        if epoch != ordered and (plan.shuffled or ordered < 0):
            order_rows(order, plan.shuffled, plan.seed, epoch)
            ordered = epoch
        load_batch(rows, order, (update - epoch * plan.batches) * batch, plan.unit, x)
        tile(c, ones, bias)
        np.dot(x, W, to_h)  # (B, N) @ (N, M)
        mean_of_units(wide_to_h, wide_bias, wide_h)
        if plan.exact:
            weigh_all_states(state, negative)
        else:
            if plan.restart:
                restart(state, x)
            if plan.fast_learning_rate > 0:
                add_fast(state, chains)
            draw_samples(chains, ladder, plan, update, xm)
            np.dot(xm, W, to_h)  # (B, N) @ (N, M)
            mean_of_units(wide_to_h, wide_bias, wide_hm)
        average(x, h, weight, plus, weighted_h, data)
        average(xm, hm, model_weight, minus, weighted_hm, model)
        np.dot(both_xt, both_h, contrast)  # (N, B + R) @ (B + R, M)
        if plan.offsets_before:
            move_offsets(state, data, model, plan, update, noise)
        ascend(state, contrast, data, model, plan.learning_rate)
        if plan.fast_learning_rate > 0:
            decay(fast, plan.fast_decay)
            ascend(fast, contrast, data, model, plan.fast_learning_rate)
        if not plan.offsets_before:
            move_offsets(state, data, model, plan, update, noise)
