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
    aligned_empty,
    empty_trail,
    machine_of,
    velocity_of,
)
from cbm_cli.kernels.mean_field import Deep, make_deep
from cbm_cli.kernels.natural import Direction, Natural, make_natural, natural_step
from cbm_cli.kernels.offsets import Means, make_means, move_offsets
from cbm_cli.kernels.phases import (
    Batches,
    Both,
    Phase,
    average,
    gather_gradient,
    infer_hidden,
    load_batch,
    make_batches,
    make_both,
    make_phase,
    mean_hidden,
    model_rows,
)
from cbm_cli.kernels.plan import ALL_STATES, SAME, Plan
from cbm_cli.kernels.random import RESTART, RESTART_ASIDE, SAMPLER, SAMPLER_ASIDE
from cbm_cli.kernels.sampling import Chains, draw_samples, make_chains, restart
from cbm_cli.kernels.states import AllStates, make_all_states, weigh_all_states
from cbm_cli.kernels.step import Gradient, make_gradient, rate_at, step


class Source(NamedTuple):
    """A model phase and where its rows come from: chains, or all states."""

    phase: Phase
    chains: Chains | None
    states: AllStates | None


class Workspace(NamedTuple):
    """All that an update works with."""

    machine: Machine
    velocity: Machine
    batches: Batches
    data: Phase
    model: Source
    both: Both
    gradient: Gradient
    noise: Means


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
        both, data, model = make_both(n, m, plan)
        work = Workspace(
            machine_of(state),
            velocity_of(state),
            make_batches(rows, plan.unit),
            data,
            make_source(model, state.h, plan, plan.exact),
            both,
            make_gradient(*(aligned_empty(shape) for shape in ((n, m), n, m)), plan.spans),
            make_means(n, m, multiple=4),
        )
        aside, deeper = None, n - plan.visible
        if plan.offsets_from != SAME:  # a model phase that only the offsets see
            exact = plan.offsets_from == ALL_STATES
            rows = model_rows(n, m, plan, exact)
            phase = make_phase(aligned_empty((rows, n)), aligned_empty((rows, m)), 1, exact)
            aside = make_source(phase, state.aside_h, plan, exact)
        deep = make_deep(plan.batch, plan.visible, deeper, m, state.rounds) if deeper else None
        natural = make_natural(direction, work.machine, work.velocity, plan.exact) if direction else None
        self._work = work, plan, deep, aside, natural
        self._kernel = specialised(make_updates, *self._work, empty_trail(n, m), 0, 0)

    def __call__(self, trail: Trail, first: int, last: int) -> None:
        """Make the updates first, ..., last - 1, and fill in those of the trail.

        An update's random numbers depend on its number alone, so that a stretch can be cut anywhere.
        """
        self._kernel(*self._work, trail, first, last)


def make_source(phase: Phase, h: Array, plan: Plan, exact: bool) -> Source:
    """Allocate the source of a model phase; h (K, M) are the hidden states of its chains."""
    if exact:
        return Source(phase, None, make_all_states(phase.x, phase.h))
    return Source(phase, make_chains(h, plan, phase.x, phase.activation, phase.h), None)


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
    """The loop of `Training`. If ``deep``, ``aside`` or ``natural`` is None, its code is not compiled."""
    machine, data, gradient = work.machine, work.data, work.gradient
    model, chains, states = work.model
    mark = np.searchsorted(trail.update, first)
    for update in range(first, last):
        load_batch(work.batches, plan, update, data.x)  # x_d (B, N)
        infer_hidden(machine, data, deep, plan)  # h_d (B, M), Eq. (6), or mean field
        draw_phase(machine, data, model, chains, states, plan, (SAMPLER, RESTART), update)  # x_m (R, N), h_m
        mean = model.mean
        if aside is not None:
            mean = aside.phase.mean
            sites = SAMPLER_ASIDE, RESTART_ASIDE
            draw_phase(machine, data, aside.phase, aside.chains, aside.states, plan, sites, update)
        gather_gradient(work.both, data, model, plan, gradient)  # <.>_d - <.>_m
        if plan.offsets.before:
            move_offsets(machine, data.mean, mean, work.noise, plan, update)
        mark = keep(machine, trail, mark, update)
        if natural is None:
            step(machine, gradient, work.velocity, plan, rate_at(plan, update))  # Eqs. (13)-(15)
        else:
            natural_step(natural, machine, gradient, data, model, plan, rate_at(plan, update))
        if not plan.offsets.before:
            move_offsets(machine, data.mean, mean, work.noise, plan, update)


@merged
def draw_phase(
    machine: Machine,
    data: Phase,
    phase: Phase,
    chains: Chains | None,
    states: AllStates | None,
    plan: Plan,
    sites: tuple[int, int],
    update: int,
) -> None:
    """Bring a model phase up to date, Eqs. (5), (6), by CD, PCD, PT or all states; and its means."""
    if states is not None:
        weigh_all_states(machine, states, phase.x, phase.h, phase.weight)
    if chains is not None:
        if plan.restart:
            restart(data.h, chains, plan, sites[1], update)
        draw_samples(machine, chains, plan, sites[0], update, phase.x, phase.activation)
        if not chains.direct:
            mean_hidden(machine, phase, plan)
    average(phase, states is not None)


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
