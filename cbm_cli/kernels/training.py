"""Training with the centered gradient, the paper's Algorithm 2, compiled; `reference.algorithm_2`."""

from collections.abc import Callable
from ctypes import CFUNCTYPE, c_int64, c_void_p, cast
from typing import NamedTuple

from cbm_cli.kernels.compiling import lean, merged, specialised
from cbm_cli.kernels.intrinsics import call
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
    model_rows,
    weigh_hidden,
)
from cbm_cli.kernels.plan import ALL_STATES, SAME, Plan
from cbm_cli.kernels.products import binary_product
from cbm_cli.kernels.random import ASIDE, SAMPLER
from cbm_cli.kernels.sampling import Chains, draw_samples, make_chains, restart
from cbm_cli.kernels.states import AllStates, make_all_states, weigh_all_states
from cbm_cli.kernels.step import Gradient, add, copy, fast_step, rate_at, step

Direct = Callable[["Workspace", int], None]  # makes the step of an update in Python


class Source(NamedTuple):
    """Where the rows of a model phase come from: chains, or all states."""

    phase: Phase
    chains: Chains
    states: AllStates
    exact: bool
    u: Array  # random numbers of a restart (CD)
    first: int  # block of its random numbers


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


class Training:
    """Updates of one state: work arrays are allocated once, and the state changes in place.

    Parameters
    ----------
    state : State
    rows : (n, visible) uint8
        Training data.
    plan : Plan
    direct : callable, optional
        Makes the step of an update instead of the centered gradient, such as a natural gradient's.
    """

    def __init__(self, state: State, rows: Rows, plan: Plan, direct: Direct | None = None) -> None:
        (n, m), self.state, self.errors = state.W.shape, state, []
        work, deeper = make_workspace(state, rows, plan), n - plan.visible
        aside = make_aside(state.aside_h, n, m, plan) if plan.offsets_from != SAME else None
        deep = (
            make_deep(plan.batch, plan.visible, deeper, m, state.rounds, plan.gibbs > 0) if deeper else None
        )

        @CFUNCTYPE(c_int64, c_int64)
        def make_step(update: int) -> int:
            try:
                direct(work, update)
            except BaseException as error:
                self.errors.append(error)
            return len(self.errors)

        self._step = make_step  # C code calls it as long as this lives
        address = cast(make_step, c_void_p).value if direct else 0
        self._run = specialised(make_updates, work, plan, empty_trail(n, m), 0, 0, deep, aside, address)
        self._given = (work, plan), (deep, aside, address)

    def __call__(self, trail: Trail, first: int, last: int) -> None:
        """Make the updates first, ..., last - 1, and fill in those of the trail.

        An update's random numbers depend on its number alone, so that a stretch can be cut anywhere.
        """
        before, after = self._given
        self._run(*before, trail, first, last, *after)
        if self.errors:
            raise self.errors.pop()


def train(state: State, rows: Rows, plan: Plan, trail: Trail, first: int, last: int) -> None:
    """Advance ``state`` in place through the updates first, ..., last - 1; see `Training`."""
    Training(state, rows, plan)(trail, first, last)


def make_workspace(state: State, rows: Rows, plan: Plan) -> Workspace:
    """Allocate what updates work with."""
    n, m = state.W.shape
    machine, fast = machine_of(state), fast_of(state)
    both, data, model = make_both(n, m, plan)
    felt = machine
    if plan.fast_rate > 0:
        felt = Machine(*(array.copy() for array in machine[:3]), machine.mu, machine.lam)
    return Workspace(
        machine,
        felt,
        fast,
        velocity_of(state),
        make_batches(rows, plan.unit),
        data,
        make_source(state.h, m, plan, plan.exact, model),
        both,
        Gradient(*(room(shape) for shape in ((n, m), n, m)), plan.spans),
        make_means(n, m, multiple=4),
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
    )


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
    trail: Trail,
    first: int,
    last: int,
    deep: Deep | None,
    aside: Source | None,
    direct: int,
) -> None:
    """The loop of `Training`. Where ``deep`` or ``aside`` is None, nothing of it is compiled."""
    machine, data, model, gradient, mark = work.machine, work.data, work.model, work.gradient, 0
    for update in range(first, last):
        load_batch(work.batches, plan, update, data.x)  # x_d (B, N)
        infer_hidden(machine, data, deep, plan, update)  # h_d (B, M), Eq. (6), or mean field
        advance(work, model, plan, SAMPLER, update)  # x_m (R, N), h_m (R, M), Eqs. (5), (6)
        means = means_for_offsets(work, model, aside, plan, update)
        gather_gradient(work.both, data.mean, model.phase.mean, plan, gradient)  # <.>_d - <.>_m
        if plan.offsets.before:
            move_offsets(machine, data.mean, means, work.noise, plan, update)
        mark = keep(machine, trail, mark, update)
        if plan.fast_rate > 0:
            fast_step(work.fast, gradient, plan)  # before weight decay, which they do not have
        if direct == 0:
            step(machine, gradient, work.velocity, plan, rate_at(plan, update))  # Eqs. (13)-(15)
        elif call(direct, update) != 0:
            return
        if not plan.offsets.before:
            move_offsets(machine, data.mean, means, work.noise, plan, update)


@merged
def advance(work: Workspace, source: Source, plan: Plan, site: int, update: int) -> None:
    """Bring the rows of a model phase up to date: CD, PCD, PT or all states; and their means."""
    phase, chains = source.phase, source.chains
    if source.exact:
        weigh_all_states(work.machine, source.states, phase.weight, phase.h)
    else:
        if plan.restart:
            restart(work.data.h, plan.seed, update, source.first, source.u, chains.h.states)
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
def means_for_offsets(work: Workspace, model: Source, aside: Source | None, plan: Plan, update: int) -> Means:
    """Model means that the offsets take: the gradient's, or those of a second model phase."""
    if aside is None:
        return model.phase.mean
    advance(work, aside, plan, ASIDE, update)
    return aside.phase.mean


@merged
def keep(machine: Machine, trail: Trail, mark: int, update: int) -> int:
    """Write the machine and its offsets into row ``mark`` of the trail, if that is for this update."""
    if mark == trail.update.size or trail.update[mark] != update:
        return mark
    mu, lam = trail.mu[mark], trail.lam[mark]
    copy(machine, Machine(trail.W[mark], trail.b[mark], trail.c[mark], mu, lam))
    for i in range(mu.size):
        mu[i] = machine.mu[i]
    for j in range(lam.size):
        lam[j] = machine.lam[j]
    return mark + 1
