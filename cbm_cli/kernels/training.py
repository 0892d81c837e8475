"""Training with the centered gradient: the paper's Algorithm 1, in one compiled loop."""

import numpy as np

from cbm_cli.kernels.compiling import compiled, lean
from cbm_cli.kernels.enumeration import spread, weigh_all_states
from cbm_cli.kernels.offsets import average, move_offsets
from cbm_cli.kernels.phases import (
    DeepPhase,
    ModelPhase,
    deep_data_phase,
    load_batch,
    make_data_phase,
    make_deep_phase,
    make_model_phase,
    means_aside,
    model_rows,
    order_rows,
)
from cbm_cli.kernels.random import SAMPLER
from cbm_cli.kernels.state import ALL_STATES, SAME, Plan, Rows, State, Trail
from cbm_cli.kernels.step import (
    OtherStep,
    add_fast,
    ascend,
    decay,
    make_other_step,
    other_step,
    with_parameters,
)
from cbm_cli.kernels.sweep import draw_samples, laid_out, restart, tile
from cbm_cli.kernels.units import mean_of_units


def train(state: State, rows: Rows, plan: Plan, trail: Trail, first: int, last: int) -> None:
    """Advance ``state`` in place through the updates first, ..., last - 1.

    Parameters
    ----------
    state : State
    rows : (n, visible) uint8
        Training data.
    plan : Plan
    trail : Trail
        Its updates within the stretch are filled in.
    first, last : int
        Numbers of the first update and of the one after the last; an update's random numbers depend on
        its number alone, so that a stretch can be cut anywhere.
    """
    deep = make_deep_phase(*state.W.shape, plan)
    make_updates(
        state, rows, plan, trail, first, last, deep, make_aside(state, plan), make_other_step(state, plan)
    )


def make_aside(state: State, plan: Plan) -> ModelPhase | None:
    """Allocate a model phase that only the offsets see; None where they see the gradient's."""
    if plan.offsets_from == SAME:
        return None
    (n, m), exact = state.W.shape, plan.offsets_from == ALL_STATES
    rows = model_rows(n, m, plan.batch, exact)
    x, weighted_h = np.empty((rows, n), np.float32), np.empty((rows, m), np.float32)
    return make_model_phase(state.aside_h, x, weighted_h, plan, exact, laid_out(m, plan.batch, 1))


@compiled
def make_updates(
    state: State,
    rows: Rows,
    plan: Plan,
    trail: Trail,
    first: int,
    last: int,
    deep: DeepPhase | None,
    aside: ModelPhase | None,
    other: OtherStep | None,
) -> None:
    """The loop of ``train``. Where the last three are None, nothing of them is compiled."""
    n, m = state.W.shape
    batch = plan.batch
    order = np.empty(rows.shape[0], np.int64)
    # Rows of the data stand above rows of the model: one product makes the gradient of both.
    both_x = np.empty((batch + model_rows(n, m, batch, plan.exact), n), np.float32)
    both_h = np.empty((both_x.shape[0], m), np.float32)  # times their weights
    both_xt, contrast = both_x.T, np.empty((n, m), np.float32)
    few = laid_out(m, batch, 1)
    ones, bias = np.ones(few, np.float32), np.empty(few * m, np.float32)
    data = make_data_phase(both_x[:batch], both_h[:batch], few)
    model = make_model_phase(state.h, both_x[batch:], both_h[batch:], plan, plan.exact, few)
    noise = np.zeros(n + -n % 4, np.float32), np.zeros(m + -m % 4, np.float32)
    noisy = plan.visible_mix[3].any() or plan.hidden_mix[3].any()
    u = np.empty(batch * m + -batch * m % 4 if plan.restart else 0, np.float32)
    chains, fast, swift = chain_machine(state, plan), fast_part(state), plan.fast_learning_rate > 0
    mark, marks = 0, trail.update
    # Unpacked here: attribute reads inside the loop would count references, see `draw_samples`.
    x, weighted_h, wide_weighted_h, weight, to_h, wide_to_h = data[:6]
    xm, weighted_hm, wide_weighted_hm, model_weight, to_hm, wide_to_hm, ladder, states = model[:8]
    data_means, model_means, offset_means = data.means, model.means, model.means
    if aside is not None:
        offset_means = aside.means
    W, c, seed, share, gain, down = state.W, state.c, plan.seed, weight[0], plan.to_hidden, plan.to_visible
    plus, minus, chains_W, chains_b, chains_c = np.float32(1), np.float32(-1), chains.W, chains.b, chains.c
    ordered = -1
    for update in range(first, last):
        epoch = update // plan.batches
        if epoch != ordered and (plan.shuffled or ordered < 0):
            order_rows(order, plan.shuffled, seed, epoch)
            ordered = epoch
        load_batch(rows, order, (update - epoch * plan.batches) * batch, plan.unit, x)
        tile(c, ones, bias)
        if deep is not None:
            deep_data_phase(state, data, deep, plan, update)
        else:
            np.dot(x, W, to_h)  # (B, N) @ (N, M)
            mean_of_units(wide_to_h, gain, bias, share, wide_weighted_h)
        average(x, weight, weighted_h, plus, data_means)
        if swift:
            add_fast(state, chains)
        if plan.exact:
            weigh_all_states(W, state.b, c, states)
            spread(states.h, model_weight, minus, weighted_hm)
        else:
            if plan.restart:
                restart(weighted_h, seed, update, 0, u, state.h)
            draw_samples(chains_W, chains_b, chains_c, ladder, seed, SAMPLER, update, xm, to_hm)
            if swift:
                np.dot(xm, W, to_hm)  # the gradient's hidden means are those of the regular weights
            mean_of_units(wide_to_hm, gain, bias, -share, wide_weighted_hm)
        average(xm, model_weight, weighted_hm, minus, model_means)
        if aside is not None:
            if plan.restart:
                restart(weighted_h, seed, update, u.size // 4, u, state.aside_h)
            means_aside(state, chains, aside, plan, update)
        np.dot(both_xt, both_h, contrast)  # (N, B + R) @ (B + R, M)
        if plan.offsets_before:
            move_offsets(state, data_means, offset_means, plan, noisy, update, noise)
        if mark < marks.size and marks[mark] == update:
            keep(state, trail, mark)
            mark += 1
        if other is not None:
            other_step(
                state,
                x,
                xm,
                model_weight,
                weighted_hm,
                contrast,
                data_means,
                model_means,
                plan,
                update,
                other,
            )
        else:
            ascend(state, plan.spans, contrast, data_means, model_means, plan.learning_rate, gain, down)
        if swift:
            decay(fast, plan.fast_decay)
            ascend(fast, plan.spans, contrast, data_means, model_means, plan.fast_learning_rate, gain, down)
        if not plan.offsets_before:
            move_offsets(state, data_means, offset_means, plan, noisy, update, noise)


@compiled
def chain_machine(state: State, plan: Plan) -> State:
    """The machine that the chains are swept with: the trial's own, or one with fast weights added (FPCD)."""
    if plan.fast_learning_rate > 0:
        return with_parameters(state, state.W.copy(), state.b.copy(), state.c.copy())
    return state


@compiled
def fast_part(state: State) -> State:
    """The fast parameters as a machine of their own, which climbs along the same gradient."""
    return with_parameters(state, state.fast_W, state.fast_b, state.fast_c)


@lean
def keep(state: State, trail: Trail, k: int) -> None:
    """Write the machine and its offsets into row k of the trail."""
    _, W, b, c, mu, lam = trail
    for i in range(state.b.size):
        b[k, i] = state.b[i]
        mu[k, i] = state.mu[i]
        for j in range(state.c.size):
            W[k, i, j] = state.W[i, j]
    for j in range(state.c.size):
        c[k, j] = state.c[j]
        lam[k, j] = state.lam[j]
