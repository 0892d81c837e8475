"""Training with the centered gradient, the paper's Algorithm 2, compiled; `reference.algorithm_2`."""

from typing import NamedTuple

import numpy as np

from cbm_cli.kernels.compiling import lean, merged, specialised
from cbm_cli.kernels.machine import (
    Array,
    Machine,
    Rows,
    State,
    Trail,
    empty_trail,
    fast_of,
    machine_of,
    room,
    velocity_of,
)
from cbm_cli.kernels.mean_field import Deep, make_deep
from cbm_cli.kernels.natural import (
    Direction,
    Natural,
    find_direction,
    make_natural,
    move,
    take_gradient,
    take_samples,
)
from cbm_cli.kernels.offsets import Means, make_means, move_offsets
from cbm_cli.kernels.phases import (
    Batches,
    Both,
    Phase,
    add_up,
    average,
    gather_gradient,
    infer_hidden,
    load_batch,
    make_batches,
    make_both,
    make_phase,
    model_rows,
    weigh_hidden,
)
from cbm_cli.kernels.plan import ALL_STATES, SAME, Plan
from cbm_cli.kernels.products import Bits, binary_product, bits_for
from cbm_cli.kernels.random import ASIDE, OFFSETS, SAMPLER, fill_uniform
from cbm_cli.kernels.sampling import Chains, draw_samples, make_chains, restart
from cbm_cli.kernels.states import AllStates, make_all_states, weigh_all_states
from cbm_cli.kernels.step import Gradient, add, copy, fast_step, make_gradient, rate_at, step
from cbm_cli.kernels.units import mean_of_units


class Source(NamedTuple):
    """Where the rows of a model phase come from: chains, or all states."""

    phase: Phase
    chains: Chains
    states: AllStates
    exact: bool
    u: Array  # random numbers of a restart (CD)
    first: int  # block of its random numbers
    smooth: "Smooth"


class Smooth(NamedTuple):
    """Means of R samples for offsets, and work arrays for S units whose probabilities are averaged."""

    mean: Means
    bits: Bits  # hidden states, packed
    activation: Array  # (R, S)
    x: Array  # (R, S) p(x = 1 | h) / R


class Workspace(NamedTuple):
    """All that an update works with."""

    machine: Machine
    felt: Machine  # what the chains feel: the machine, or its sum with the fast weights
    fast: Machine
    velocity: Machine
    batches: Batches
    data: Phase
    model: Source
    both: Both
    gradient: Gradient
    noise: Means
    drawn: Means  # of the data, where hidden means are those of states
    u: Array  # random numbers that draw them


class Training:
    """Updates of one state: work arrays are allocated once, and the state changes in place.

    Parameters
    ----------
    state : State
    rows : (n, visible) uint8
        Training data.
    plan : Plan
    direction : Direction, optional
        The direction of the steps, if it is not the centered gradient.
    """

    def __init__(self, state: State, rows: Rows, plan: Plan, direction: Direction | None = None) -> None:
        (n, m), self.state = state.W.shape, state
        work, deeper = make_workspace(state, rows, plan), n - plan.visible
        aside = make_aside(state.aside_h, n, m, plan) if plan.offsets_from != SAME else None
        deep = (
            make_deep(plan.batch, plan.visible, deeper, m, state.rounds, plan.gibbs > 0) if deeper else None
        )
        natural = make_natural(direction, n, m, len(work.model.phase.x)) if direction else None
        self._work = work, plan, deep, aside, natural
        self._kernel = specialised(make_updates, *self._work, empty_trail(n, m), 0, 0)

    def __call__(self, trail: Trail, first: int, last: int) -> None:
        """Make the updates first, ..., last - 1, and fill in those of the trail.

        An update's random numbers depend on its number alone, so that a stretch can be cut anywhere.
        """
        self._kernel(*self._work, trail, first, last)


def make_workspace(state: State, rows: Rows, plan: Plan) -> Workspace:
    """Allocate what updates work with."""
    n, m = state.W.shape
    machine, fast = machine_of(state), fast_of(state)
    both, data, model = make_both(n, m, plan)
    felt = machine
    if plan.fast_rate > 0:
        felt = Machine(*(array.copy() for array in machine[:3]), machine.mu, machine.lam)
    drawn = plan.batch * (n - plan.visible + m) if plan.offsets.drawn else 0
    return Workspace(
        machine,
        felt,
        fast,
        velocity_of(state),
        make_batches(rows, plan.unit),
        data,
        make_source(state.h, m, plan, plan.exact, model),
        both,
        make_gradient(*(room(shape) for shape in ((n, m), n, m)), plan.spans),
        make_means(n, m, multiple=4),
        make_means(n, m),
        room(drawn + -drawn % 4),
    )


def make_source(h: Array, m: int, plan: Plan, exact: bool, phase: Phase) -> Source:
    """Allocate the source of a model phase; h (K, M) are the hidden states of its chains."""
    count, rows = plan.batch * m if plan.restart else 0, 0 if exact else len(phase.x)
    return Source(
        phase,
        make_chains(
            h[: 0 if exact else len(h)], plan, phase.x[:rows], phase.activation[:rows], phase.h[:rows]
        ),
        make_all_states(phase.x if exact else phase.x[:0], m),
        exact,
        room(count + -count % 4),
        0,
        make_smooth(phase, m, plan, 0 if exact else len(phase.x)),
    )


def make_smooth(phase: Phase, m: int, plan: Plan, rows: int) -> Smooth:
    """Allocate the means that offsets take of so many samples."""
    first, last = plan.offsets.smooth
    shape = rows if first < last else 0, last - first
    means = make_means(phase.x.shape[1], m)
    return Smooth(means, bits_for(shape[0], m, shape[1]), room(shape), room(shape))


def make_aside(h: Array, n: int, m: int, plan: Plan) -> Source:
    """Allocate a model phase that only the offsets see."""
    exact = plan.offsets_from == ALL_STATES
    rows = model_rows(n, m, plan, exact)
    phase = make_phase(room((rows, n)), room((rows, m)), -1.0, exact)
    source = make_source(h, m, plan, exact, phase)
    return source._replace(first=source.u.size // 4)  # its random numbers follow the gradient's


@lean
def make_updates(
    work: Workspace,
    plan: Plan,
    deep: Deep | None,
    aside: Source | None,
    natural: Natural | None,
    trail: Trail,
    first: int,
    last: int,
) -> None:
    """The loop of `Training`. Where ``deep``, ``aside`` or ``natural`` is None, nothing of it is compiled."""
    machine, data, model, gradient = work.machine, work.data, work.model, work.gradient
    mark = np.searchsorted(trail.update, first)
    for update in range(first, last):
        load_batch(work.batches, plan, update, data.x)  # x_d (B, N)
        infer_hidden(machine, data, deep, plan, update)  # h_d (B, M), Eq. (6), or mean field
        advance(work, model, plan, SAMPLER, update)  # x_m (R, N), h_m (R, M), Eqs. (5), (6)
        data_mean, model_mean = means_for_offsets(work, aside, plan, update)
        gather_gradient(work.both, data.mean, model.phase.mean, plan, gradient)  # <.>_d - <.>_m
        if plan.offsets.before:
            move_offsets(machine, data_mean, model_mean, work.noise, plan, update)
        mark = keep(machine, trail, mark, update)
        if plan.fast_rate > 0:
            fast_step(work.fast, gradient, plan)  # before weight decay, which they do not have
        if natural is None:
            step(machine, gradient, work.velocity, plan, rate_at(plan, update))  # Eqs. (13)-(15)
        else:
            natural_step(work, natural, plan, update)
        if not plan.offsets.before:
            move_offsets(machine, data_mean, model_mean, work.noise, plan, update)


@lean
def natural_step(work: Workspace, natural: Natural, plan: Plan, update: int) -> None:
    """Make the step of an update along a natural gradient, or along one of another length."""
    model = work.model.phase
    take_gradient(natural, work.machine, work.gradient, work.data.x, plan)
    if natural.how.sampled:
        take_samples(natural, model, work.model.states.h, plan, update)
    find_direction(natural, work.machine, model)
    move(natural, work.machine, work.velocity, plan, rate_at(plan, update))


@merged
def advance(work: Workspace, source: Source, plan: Plan, site: int, update: int) -> None:
    """Bring the rows of a model phase up to date: CD, PCD, PT or all states; and their means."""
    phase, chains = source.phase, source.chains
    if source.exact:
        weigh_all_states(work.machine, source.states, phase.weight, phase.h)
    else:
        if plan.restart:
            restart(work.data.h, plan, update, source.first, source.u, chains.h.states)
        if plan.fast_rate > 0:
            copy(work.machine, work.felt)
            add(work.fast, work.felt)
        draw_samples(work.felt, chains, plan, site, update, phase.x, phase.activation)
        if plan.fast_rate > 0:  # hidden means are those of the regular weights
            binary_product(phase.x, phase.bits, work.machine.W, False, phase.activation)
        if chains.mean.size == 0:
            weigh_hidden(work.machine, phase, plan)
    average(phase)


@merged
def means_for_offsets(work: Workspace, aside: Source | None, plan: Plan, update: int) -> tuple[Means, Means]:
    """Data and model means that the offsets take; those of the model may be a second model phase's."""
    data = work.data.mean
    if plan.offsets.drawn:
        draw_means(work, plan, update)
        data = work.drawn
    if aside is None:
        return data, model_means(work.machine, work.model, plan)
    advance(work, aside, plan, ASIDE, update)
    return data, model_means(work.machine, aside, plan)


@merged
def model_means(machine: Machine, source: Source, plan: Plan) -> Means:
    """Means of samples that the offsets take: of visible probabilities, or of hidden states, if asked."""
    if source.exact or not (plan.offsets.drawn or source.smooth.x.size):
        return source.phase.mean
    smooth_means(machine, source, plan)
    return source.smooth.mean


@lean
def smooth_means(machine: Machine, source: Source, plan: Plan) -> None:
    """Average p(x = 1 | h), `reference.visible_mean`, and h, over the hidden states h of the samples."""
    phase, means, (first, last), rows = (
        source.phase,
        source.smooth.mean,
        plan.offsets.smooth,
        len(source.phase.x),
    )
    copy_means(phase.mean, means)
    if first < last:
        activation, p = source.smooth.activation, source.smooth.x
        binary_product(source.chains.cold, source.smooth.bits, machine.W[first:last], True, activation)
        share = np.float32(1) / np.float32(rows)
        mean_of_units(activation, plan.to_visible, machine.b[first:last], share, p)
        add_up(p, None, phase.wide, means.x[first:last])
    if plan.offsets.drawn:
        add_up(source.chains.cold, None, phase.wide, means.h)
        for j in range(means.h.size):
            means.h[j] /= rows


@lean
def draw_means(work: Workspace, plan: Plan, update: int) -> None:
    """Average states of the data's hidden units, drawn from their probabilities."""
    data, mean, u, deeper = work.data, work.drawn, work.u, work.machine.b.size - plan.visible
    fill_uniform(u, plan.seed, update, OFFSETS, 0)
    copy_means(data.mean, mean)
    mean.x[plan.visible :] = 0
    mean.h[:] = 0
    for r in range(plan.batch):
        numbers = u[r * (mean.h.size + deeper) :]
        for j in range(mean.h.size):
            mean.h[j] += np.float32(numbers[j] < plan.batch * data.h[r, j])
        for i in range(deeper):
            mean.x[plan.visible + i] += np.float32(numbers[mean.h.size + i] < data.x[r, plan.visible + i])
    for j in range(mean.h.size):
        mean.h[j] /= plan.batch
    for i in range(plan.visible, mean.x.size):
        mean.x[i] /= plan.batch


@lean
def copy_means(means: Means, to: Means) -> None:
    """Copy means to others."""
    for i in range(to.x.size):
        to.x[i] = means.x[i]
    for j in range(to.h.size):
        to.h[j] = means.h[j]


@merged
def keep(machine: Machine, trail: Trail, mark: int, update: int) -> int:
    """Write the machine and its offsets into row ``mark`` of the trail, if that is for this update."""
    if mark == trail.update.size or trail.update[mark] != update:
        return mark
    for i in range(machine.b.size):
        trail.b[mark, i], trail.mu[mark, i] = machine.b[i], machine.mu[i]
        for j in range(machine.c.size):
            trail.W[mark, i, j] = machine.W[i, j]
    for j in range(machine.c.size):
        trail.c[mark, j], trail.lam[mark, j] = machine.c[j], machine.lam[j]
    return mark + 1
