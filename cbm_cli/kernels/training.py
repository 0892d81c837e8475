"""Training with the centered gradient, the paper's Algorithm 2, compiled;
`reference.algorithm_2`.
"""

from typing import NamedTuple

import numpy as np

from cbm_cli.kernels.compiling import lean, merged, specialised
from cbm_cli.kernels.machine import (
    Array,
    Machine,
    Rows,
    State,
    Trail,
    aligned_empty,
    empty_trail,
)
from cbm_cli.kernels.mean_field import Deep, make_deep
from cbm_cli.kernels.natural import Direction, Natural, make_natural, natural_step
from cbm_cli.kernels.offsets import Means, make_means, move_offsets
from cbm_cli.kernels.phases import (
    Batches,
    Phase,
    draw_phase,
    infer_hidden,
    load_batch,
    make_batches,
    make_phase,
)
from cbm_cli.kernels.plan import ALL_STATES, SAME, Plan
from cbm_cli.kernels.products import (
    Bits,
    bits_for,
    bits_product,
    pack_columns,
    product_tn,
    worth_packing,
)
from cbm_cli.kernels.random import RESTART, RESTART_ASIDE, SAMPLER, SAMPLER_ASIDE
from cbm_cli.kernels.step import Gradient, rate_at, step


class Workspace(NamedTuple):
    """All that an update works with; rows of the data above rows of the model make one
    product.
    """

    machine: Machine
    velocity: Machine | None
    batches: Batches
    data: Phase
    model: Phase
    x: Array  # (B + R, N) rows of both
    share: Array  # (B + R, M)
    bits: Bits  # x', packed
    gradient: Gradient
    noise: Means


class Training:
    """Updates of one state: work arrays are allocated once, and the state changes in
    place.

    Parameters
    ----------
    state : State
    rows : (n, visible) uint8
        Training data.
    plan : Plan
    direction : Direction, optional
        The direction of the steps, if it is not the centered gradient.
    """

    def __init__(
        self, state: State, rows: Rows, plan: Plan, direction: Direction | None = None
    ) -> None:
        (n, m), self.state, batch, machine = (
            state.W.shape,
            state,
            plan.batch,
            state.machine,
        )
        every = 2 ** min(n, m)  # states of the smaller side
        count = batch + (every if plan.exact else plan.rows)
        x, share = aligned_empty((count, n)), aligned_empty((count, m))
        work = Workspace(
            machine,
            state.velocity,
            make_batches(rows, plan.unit),
            make_phase(x[:batch], share[:batch], 1),
            make_phase(
                x[batch:], share[batch:], -1, plan, None if plan.exact else state.h
            ),
            x,
            share,
            bits_for(0 if plan.exact else plan.visible, count, m),
            Gradient(*map(aligned_empty, ((n, m), n, m)), plan.spans, aligned_empty(m)),
            make_means(n, m, multiple=4),
        )
        aside, deeper = None, n - plan.visible
        if plan.offsets_from != SAME:  # a model phase that only the offsets see
            count = every if plan.offsets_from == ALL_STATES else plan.rows
            rows_aside = aligned_empty((count, n)), aligned_empty((count, m))
            aside = make_phase(*rows_aside, 1, plan, state.aside_h)
        deep = (
            make_deep(batch, plan.visible, deeper, m, state.rounds) if deeper else None
        )
        given = machine, plan.exact, work.data.x, work.model.x
        natural = make_natural(direction, *given) if direction else None
        self._work = work, plan, deep, aside, natural
        self._kernel = specialised(make_updates, *self._work, empty_trail(n, m), 0, 0)

    def __call__(self, trail: Trail, first: int, last: int) -> None:
        """Make the updates first, ..., last - 1, and fill in those of the trail.

        An update's random numbers depend on its number alone, so that a stretch can be
        cut anywhere.
        """
        self._kernel(*self._work, trail, first, last)


@lean
def make_updates(
    work: Workspace,
    plan: Plan,
    deep: Deep | None,
    aside: Phase | None,
    natural: Natural | None,
    trail: Trail,
    first: int,
    last: int,
) -> None:
    """The loop of `Training`. If ``deep``, ``aside`` or ``natural`` is None, its code
    is not compiled.
    """
    machine, data, model, gradient = work.machine, work.data, work.model, work.gradient
    mark = np.searchsorted(trail.update, first)
    for update in range(first, last):
        load_batch(work.batches, plan, update, data.x)  # x_d (B, N)
        infer_hidden(machine, data, deep, plan)  # h_d (B, M), Eq. (6), or mean field
        draw_phase(
            machine, data, model, plan, (SAMPLER, RESTART), update
        )  # x_m (R, N), h_m
        mean = model.mean
        if aside is not None:
            mean = aside.mean
            draw_phase(
                machine, data, aside, plan, (SAMPLER_ASIDE, RESTART_ASIDE), update
            )
        gather_gradient(work, plan)  # <.>_d - <.>_m
        if plan.offsets.before:
            move_offsets(machine, data.mean, mean, work.noise, plan, update)
        mark, rate = keep(machine, trail, mark, update), rate_at(plan, update)
        if natural is None:
            step(machine, gradient, work.velocity, plan, rate)  # Eqs. (13)-(15)
        else:
            natural_step(natural, gradient, work.velocity, plan, rate)
        if not plan.offsets.before:
            move_offsets(machine, data.mean, mean, work.noise, plan, update)


@merged
def gather_gradient(work: Workspace, plan: Plan) -> None:
    """<x h'>_d - <x h'>_m and the differences of the means, from rows of both
    phases.
    """
    x, share, gradient, data, model = (
        work.x,
        work.share,
        work.gradient,
        work.data.mean,
        work.model.mean,
    )
    for i in range(gradient.x.size):
        gradient.x[i] = data.x[i] - model.x[i]
    for j in range(gradient.h.size):
        gradient.h[j] = data.h[j] - model.h[j]
    known, binary = plan.visible, plan.unit == 1 and not plan.exact
    if binary and worth_packing(known, x.shape[0], share.shape[1]):
        pack_columns(x, known, work.bits)
        W = gradient.W[:known]  # (visible, B + R) @ (B + R, M)
        bits_product(work.bits, share, False, W)
        if known < gradient.x.size:
            product_tn(x[:, known:], share, gradient.W[known:])
    else:
        product_tn(x, share, gradient.W)  # (N, B + R) @ (B + R, M)


@merged
def keep(machine: Machine, trail: Trail, mark: int, update: int) -> int:
    """Write the machine and its offsets into row ``mark`` of the trail, if that is for
    this update.
    """
    if mark == trail.update.size or trail.update[mark] != update:
        return mark
    for i in range(machine.b.size):
        trail.b[mark, i], trail.mu[mark, i] = machine.b[i], machine.mu[i]
        for j in range(machine.c.size):
            trail.W[mark, i, j] = machine.W[i, j]
    for j in range(machine.c.size):
        trail.c[mark, j], trail.lam[mark, j] = machine.c[j], machine.lam[j]
    return mark + 1
