"""Training with the centered gradient, the paper's Algorithm 2, compiled;
`reference.algorithm_2`.
"""

from typing import NamedTuple

import numpy as np

from cbm_cli.kernels.batches import Batches, load_batch, make_batches
from cbm_cli.kernels.bits import (
    Bits,
    bits_for,
    bits_product,
    pack_columns,
    worth_packing,
)
from cbm_cli.kernels.compiling import lean, merged, specialised
from cbm_cli.kernels.dense import product_tn
from cbm_cli.kernels.machine import Machine, State, Trail, empty_trail
from cbm_cli.kernels.mean_field import Deep, make_deep
from cbm_cli.kernels.memory import Array, Rows, aligned_zeros
from cbm_cli.kernels.natural import Direction, Natural, make_natural, natural_step
from cbm_cli.kernels.offsets import Means, make_noise, move_offsets
from cbm_cli.kernels.phases import (
    Phase,
    draw_phase,
    infer_hidden,
    make_data_phase,
    make_model_phase,
)
from cbm_cli.kernels.plan import ALL_STATES, SAME, Plan
from cbm_cli.kernels.random import RESTART, RESTART_ASIDE, SAMPLER, SAMPLER_ASIDE
from cbm_cli.kernels.step import Gradient, make_gradient, rate_at, step


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
    signed_h: Array  # (B + R, M) `average`
    bits: Bits  # `gather_gradient`: x', packed
    gradient: Gradient
    noise: Means  # `move_offsets`


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
        n, m = state.W.shape
        self.state = state
        work = make_workspace(state, rows, plan)
        aside, deep, natural = make_aside(state, plan), None, None
        if n > plan.visible:
            deeper = n - plan.visible
            deep = make_deep(plan.batch, plan.visible, deeper, m, counts=state.rounds)
        if direction is not None:
            data, model = work.data.x, work.model.x
            natural = make_natural(
                direction, work.machine, plan.exact, rows=data, model=model
            )
        self._work = work, plan, deep, aside, natural
        trail = empty_trail(n, m)
        self._kernel = specialised(make_updates, *self._work, trail, 0, 0)

    def __call__(self, trail: Trail, first: int, last: int) -> None:
        """Make the updates first, ..., last - 1, and fill in those of the trail.

        An update's random numbers depend on its number alone, so that a stretch can be
        cut anywhere.
        """
        self._kernel(*self._work, trail, first, last)


def make_workspace(state: State, rows: Rows, plan: Plan) -> Workspace:
    """Allocate what updates of a state work with, on rows (n, visible) of data."""
    (n, m), batch = state.W.shape, plan.batch
    count = batch + (2 ** min(n, m) if plan.exact else plan.rows)
    x, signed_h = aligned_zeros((count, n)), aligned_zeros((count, m))
    hidden = None if plan.exact else state.h
    packed = 0 if plan.exact else plan.visible
    return Workspace(
        machine=state.machine,
        velocity=state.velocity,
        batches=make_batches(rows, plan.unit),
        data=make_data_phase(x[:batch], signed_h[:batch]),
        model=make_model_phase(
            x[batch:], signed_h[batch:], sign=-1, plan=plan, hidden=hidden
        ),
        x=x,
        signed_h=signed_h,
        bits=bits_for(packed, count, m),
        gradient=make_gradient(plan.spans, m),
        noise=make_noise(n, m),
    )


def make_aside(state: State, plan: Plan) -> Phase | None:
    """Allocate a model phase that only the offsets see, if there is one."""
    if plan.offsets_from == SAME:
        return None
    n, m = state.W.shape
    count = 2 ** min(n, m) if plan.offsets_from == ALL_STATES else plan.rows
    x, signed_h = aligned_zeros((count, n)), aligned_zeros((count, m))
    return make_model_phase(x, signed_h, sign=1, plan=plan, hidden=state.aside_h)


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
        # x_m (R, N), h_m
        sites = SAMPLER, RESTART
        draw_phase(machine, data, model, plan, sites=sites, update=update)
        mean = model.mean
        if aside is not None:
            mean = aside.mean
            sites = SAMPLER_ASIDE, RESTART_ASIDE
            draw_phase(machine, data, aside, plan, sites=sites, update=update)
        gather_gradient(work, plan)  # <.>_d - <.>_m
        if plan.offsets.before:
            move_offsets(machine, data.mean, mean, work.noise, plan=plan, update=update)
        mark = take_snapshot(machine, trail, mark, update)
        rate = rate_at(plan, update)
        if natural is None:
            step(machine, gradient, work.velocity, plan, rate=rate)  # Eqs. (13)-(15)
        else:
            natural_step(natural, gradient, work.velocity, plan, rate=rate)
        if not plan.offsets.before:
            move_offsets(machine, data.mean, mean, work.noise, plan=plan, update=update)


@merged
def gather_gradient(work: Workspace, plan: Plan) -> None:
    """<x h'>_d - <x h'>_m and the differences of the means, from rows of both
    phases.
    """
    x, signed_h, gradient = work.x, work.signed_h, work.gradient
    data, model = work.data.mean, work.model.mean
    for i in range(gradient.x.size):
        gradient.x[i] = data.x[i] - model.x[i]
    for j in range(gradient.h.size):
        gradient.h[j] = data.h[j] - model.h[j]
    visible, is_binary = plan.visible, plan.unit == 1 and not plan.exact
    if is_binary and worth_packing(visible, x.shape[0], signed_h.shape[1]):
        pack_columns(x, visible, work.bits)
        # (visible, B + R) @ (B + R, M)
        W = gradient.W[:visible]
        bits_product(work.bits, signed_h, turned=False, out=W)
        if visible < gradient.x.size:
            product_tn(x[:, visible:], signed_h, gradient.W[visible:])
    else:
        product_tn(x, signed_h, gradient.W)  # (N, B + R) @ (B + R, M)


@merged
def take_snapshot(machine: Machine, trail: Trail, mark: int, update: int) -> int:
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
