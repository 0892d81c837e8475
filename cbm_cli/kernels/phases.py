"""The two phases of the gradient: rows that represent the data, and rows that represent
the model.
"""

from typing import Annotated, NamedTuple

import numpy as np

from cbm_cli.kernels.bits import Bits, bits_for, product_of_rows
from cbm_cli.kernels.compiling import lean, merged
from cbm_cli.kernels.machine import Machine
from cbm_cli.kernels.mean_field import Deep, mean_field, multiply_visible
from cbm_cli.kernels.memory import Array, Wide, aligned_zeros, allocate
from cbm_cli.kernels.offsets import Means, make_means
from cbm_cli.kernels.plan import Plan
from cbm_cli.kernels.sampling import (
    Chains,
    draw_samples,
    lengthened,
    long_rows,
    make_chains,
    restart,
)
from cbm_cli.kernels.states import AllStates, make_all_states, weigh_all_states
from cbm_cli.kernels.units import mean_of_units


class Phase(NamedTuple):
    """R rows of the data or of the model, their weights, and work arrays.

    The data phase is written by `load_batch` and `infer_hidden`, a model phase by
    `draw_phase`; means and contributions of both by `average`.
    """

    x: Array  # (R, N)
    h: Array  # (R, M) mean hidden units
    # 1/R, or the probabilities of all states: `weigh_all_states`
    weight: Array  # (R,)
    sign: np.float32  # of the phase in the gradient: 1 for the data, -1 for the model
    signed_h: Array  # (R, M) sign times weight times h
    line_of_h: Array  # views of h and of signed_h as one line of numbers
    line_of_signed_h: Array
    activation: Array  # (R, M) x W
    long_h: Array  # views with several rows in one, so that loops over them are long
    long_activation: Array
    bias: Annotated[Array, "long"]  # `mean_hidden`: c, as often as a long row needs it
    bits: Bits | None  # x, packed, of the data
    mean: Means
    sums: Annotated[Wide, "widest"]  # `add_up`
    # where rows of the model come from: chains, or all states
    chains: Chains | None
    states: AllStates | None
    has_means: bool  # these write h, too


def make_data_phase(x: Array, signed_h: Array) -> Phase:
    """Allocate the phase of data rows x (R, N), for contributions signed_h (R, M)."""
    rows, n = x.shape
    m = signed_h.shape[1]
    h, activation = aligned_zeros((rows, m)), aligned_zeros((rows, m))
    bits = bits_for(rows, n, m)
    return _make_phase(
        x=x, signed_h=signed_h, h=h, activation=activation, sign=1, bits=bits
    )


def make_model_phase(
    x: Array, signed_h: Array, *, sign: int, plan: Plan, hidden: Array | None
) -> Phase:
    """Allocate a model phase: of chains with hidden states ``hidden`` (K, M), else of
    all states.
    """
    h, activation = aligned_zeros(signed_h.shape), aligned_zeros(signed_h.shape)
    phase = _make_phase(x=x, signed_h=signed_h, h=h, activation=activation, sign=sign)
    if hidden is None:
        states = make_all_states(x, h, phase.weight)
        return phase._replace(states=states, has_means=True)
    chains = make_chains(hidden, plan, x=x, to_h=activation, means=h)
    return phase._replace(chains=chains, has_means=chains.has_means)


def _make_phase(
    *,
    x: Array,
    signed_h: Array,
    h: Array,
    activation: Array,
    sign: int,
    bits: Bits | None = None,
) -> Phase:
    """Allocate what both phases have."""
    rows, n = x.shape
    m = h.shape[1]
    count = long_rows(m, rows)
    return allocate(
        Phase,
        x=x,
        h=h,
        weight=np.full(rows, np.float32(1 / rows)),
        sign=np.float32(sign),
        signed_h=signed_h,
        line_of_h=h.reshape(-1),
        line_of_signed_h=signed_h.reshape(-1),
        activation=activation,
        long_h=lengthened(h, count),
        long_activation=lengthened(activation, count),
        bits=bits,
        mean=make_means(n, m),
        chains=None,
        states=None,
        has_means=False,
        long=count * m,
        widest=max(n, m),
    )


@merged
def infer_hidden(machine: Machine, data: Phase, deep: Deep | None, plan: Plan) -> None:
    """data.h = p(h = 1 | x), `reference.hidden_mean`, or its mean field; and the means
    of both.
    """
    if deep is not None:
        infer_deep(machine, data, deep, plan)
    else:
        # (B, N) @ (N, M)
        is_binary = plan.unit == 1
        product_of_rows(data.x, data.bits, machine.W, is_binary, out=data.activation)
        mean_hidden(machine, data, plan)
    average(data, exact=False)


@lean
def infer_deep(machine: Machine, data: Phase, deep: Deep, plan: Plan) -> None:
    """Mean field from the offsets; data.x gets its deeper even units."""
    visible, inner = plan.visible, machine.mu[plan.visible :]
    for r in range(plan.batch):
        for i in range(visible):
            deep.visible[r, i] = data.x[r, i]
        for i in range(inner.size):
            deep.even[r, i] = inner[i]
    multiply_visible(machine, deep, plan.unit == 1)
    rounds = mean_field(machine, deep, plan.tolerance, plan.rounds)
    deep.counts[0] += min(rounds, plan.rounds)
    deep.counts[1] += 1
    deep.counts[2] += rounds > plan.rounds
    for r in range(plan.batch):
        row = data.x[r, visible:]
        for i in range(inner.size):
            row[i] = deep.even[r, i]
        for j in range(machine.c.size):
            data.h[r, j] = deep.odd[r, j]


@merged
def mean_hidden(machine: Machine, phase: Phase, plan: Plan) -> None:
    """phase.h = sigmoid(activation + c)."""
    m = machine.c.size
    for r in range(phase.bias.size // m):
        for j in range(m):
            phase.bias[r * m + j] = machine.c[j]
    mean_of_units(phase.long_activation, plan.to_hidden, phase.bias, phase.long_h)


@merged
def draw_phase(
    machine: Machine,
    data: Phase,
    model: Phase,
    plan: Plan,
    sites: tuple[int, int],
    update: int,
) -> None:
    """Bring a model phase up to date, Eqs. (5), (6), by CD, PCD, PT or all states; and
    its means. The random numbers are those of two sites, of the chains and of their
    restart.
    """
    of_chains, of_restart = sites
    if plan.restart:
        restart(data.h, model.chains, plan, site=of_restart, update=update)
    draw_samples(machine, model.chains, plan, site=of_chains, update=update)
    weigh_all_states(machine, model.states)
    if not model.has_means:
        mean_hidden(machine, model, plan)
    average(model, exact=model.states is not None)


@merged
def average(phase: Phase, exact: bool) -> None:
    """Fill in the contributions of the hidden units, and the means over the rows of a
    phase.
    """
    if exact:
        for r in range(phase.h.shape[0]):
            for j in range(phase.h.shape[1]):
                phase.signed_h[r, j] = phase.sign * phase.weight[r] * phase.h[r, j]
    else:  # samples have equal weights, so that one loop goes over all of them
        factor = phase.sign * phase.weight[0]
        for k in range(phase.line_of_h.size):
            phase.line_of_signed_h[k] = factor * phase.line_of_h[k]
    add_up(phase.x, phase.weight, phase.sums, phase.mean.x)
    add_up(phase.signed_h, None, phase.sums, phase.mean.h)
    for j in range(phase.mean.h.size):
        phase.mean.h[j] *= phase.sign


@merged
def add_up(rows: Array, weight: Array | None, sums: Wide, total: Array) -> None:
    """total = the sum of rows (R, units), times their weights (R,) if there are any.

    In float32 a unit that is always on would have the mean 1.0005 over 60,000 rows.
    """
    unweighted = np.float32(1)
    for i in range(total.size):
        sums[i] = 0.0
    fours = rows.shape[0] // 4 * 4
    for r in range(0, fours, 4):  # a sum is loaded and stored once for four rows
        a, b, c, d = unweighted, unweighted, unweighted, unweighted
        if weight is not None:
            a, b, c, d = weight[r], weight[r + 1], weight[r + 2], weight[r + 3]
        for i in range(total.size):
            first = np.float64(a * rows[r, i]) + np.float64(b * rows[r + 1, i])
            second = np.float64(c * rows[r + 2, i]) + np.float64(d * rows[r + 3, i])
            sums[i] += first + second
    for r in range(fours, rows.shape[0]):
        factor = unweighted if weight is None else weight[r]
        for i in range(total.size):
            sums[i] += factor * rows[r, i]
    for i in range(total.size):
        total[i] = sums[i]
