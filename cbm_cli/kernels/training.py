"""Training with the centered gradient: the paper's Algorithm 1, in one compiled loop."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli.kernels.compiling import compiled, lean, lean_sum
from cbm_cli.kernels.random import NOISE, SHUFFLE, fill_uniform, fill_words
from cbm_cli.kernels.state import Array, Mix, Plan, Rows, State
from cbm_cli.kernels.sweep import draw_samples, make_ladder, make_negative, repeat, restart, weigh_all_states
from cbm_cli.kernels.units import mean_of_units


class Phase(NamedTuple):
    """What the gradient needs of the data or of the model: <x h'> (N, M), <x> (N,), <h> (M,)."""

    xh: Array
    x: Array
    h: Array


@compiled
def make_phase(n_visible: int, n_hidden: int) -> Phase:
    """Allocate a Phase."""
    return Phase(
        np.empty((n_visible, n_hidden), np.float32),
        np.empty(n_visible, np.float32),
        np.empty(n_hidden, np.float32),
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
    """Widen the rows order[start:] of the data (uint8) into x (B, N)."""
    for r in range(x.shape[0]):
        row = order[start + r]
        for i in range(x.shape[1]):
            x[r, i] = unit * data[row, i]


@lean
def average(x: Array, h: Array, weight: Array, weighted_h: Array, phase: Phase) -> None:
    """Fill the means of ``phase`` over the rows of x (R, N) and h (R, M); weighted_h = weight h."""
    phase.x[:] = 0
    phase.h[:] = 0
    for r in range(weight.size):
        for i in range(x.shape[1]):
            phase.x[i] += weight[r] * x[r, i]
        for j in range(h.shape[1]):
            weighted_h[r, j] = weight[r] * h[r, j]
            phase.h[j] += weighted_h[r, j]


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
    state: State, data: Phase, model: Phase, plan: Plan, update: int, noise: tuple[Array, Array]
) -> None:
    """Both offsets of the paper's Algorithm 1, from the means of this update."""
    if plan.visible_mix.noise + plan.hidden_mix.noise > 0:
        fill_uniform(noise[0], plan.seed, update, NOISE, 0)
        fill_uniform(noise[1], plan.seed, update, NOISE, noise[0].size // 4)
    slide(state.mu, plan.visible_mix, plan.sliding_visible, data.x, model.x, noise[0])
    slide(state.lam, plan.hidden_mix, plan.sliding_hidden, data.h, model.h, noise[1])


@lean_sum
def ascend(state: State, data: Phase, model: Phase, learning_rate: np.float32) -> None:
    """One step along the centered gradient, Eqs. (cgradW), (cgradb), (cgradc); state changes in place.

    <(x - mu)(h - lam)'>_d - <...>_m is written as <x h'>_d - <x h'>_m - mu dh' - dx lam', where dx, dh
    are the differences of the means: the products then need no centered copies of the rows.
    """
    for j in range(state.c.size):
        state.c[j] += learning_rate * (data.h[j] - model.h[j])
    for i in range(state.b.size):
        dx = data.x[i] - model.x[i]
        mu = state.mu[i]
        along_lam = np.float32(0)
        for j in range(state.c.size):
            dh = data.h[j] - model.h[j]
            step = learning_rate * (data.xh[i, j] - model.xh[i, j] - mu * dh - dx * state.lam[j])
            state.W[i, j] += step
            state.c[j] -= step * mu
            along_lam += step * state.lam[j]
        state.b[i] += learning_rate * dx - along_lam


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
    W, c = state.W, state.c
    order = np.empty(rows.shape[0], np.int64)
    x = np.empty((plan.batch, n), np.float32)
    xt = x.T
    h = np.empty((plan.batch, m), np.float32)
    flat_h = h.ravel()
    bias = np.empty(plan.batch * m, np.float32)
    weight = np.full(plan.batch, np.float32(1.0 / plan.batch))
    noise = np.zeros(n + -n % 4, np.float32), np.zeros(m + -m % 4, np.float32)
    ladder = make_ladder(state, plan)
    negative = make_negative(n, m, plan)
    xm, xmt, hm, model_weight = negative.x, negative.x.T, negative.h, negative.weight
    flat_hm = hm.ravel()
    weighted_hm = np.empty_like(hm)
    data, model = make_phase(n, m), make_phase(n, m)
    data_xh, model_xh = data.xh, model.xh
    ordered = -1
    for update in range(first, last):
        epoch = update // plan.batches
        if epoch != ordered and (plan.shuffled or ordered < 0):
            order_rows(order, plan.shuffled, plan.seed, epoch)
            ordered = epoch
        load_batch(rows, order, (update - epoch * plan.batches) * plan.batch, plan.unit, x)
        np.dot(x, W, h)  # (B, N) @ (N, M)
        repeat(c, bias)
        mean_of_units(flat_h, bias, flat_h)
        if plan.exact:
            weigh_all_states(state, negative)
        else:
            if plan.restart:
                restart(state, x)
            draw_samples(state, ladder, plan, update, xm)
            np.dot(xm, W, hm)  # (B, N) @ (N, M)
            mean_of_units(flat_hm, bias, flat_hm)
        average(x, h, weight, h, data)
        average(xm, hm, model_weight, weighted_hm, model)
        np.dot(xt, h, data_xh)  # (N, B) @ (B, M)
        np.dot(xmt, weighted_hm, model_xh)
        if plan.offsets_before:
            move_offsets(state, data, model, plan, update, noise)
        ascend(state, data, model, plan.learning_rate)
        if not plan.offsets_before:
            move_offsets(state, data, model, plan, update, noise)
