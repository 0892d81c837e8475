"""The two phases of the gradient: rows that represent the data, and rows that represent
the model.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli.kernels.compiling import lean, merged
from cbm_cli.kernels.intrinsics import spread_bits
from cbm_cli.kernels.machine import Array, Machine, Rows, aligned_empty
from cbm_cli.kernels.mean_field import Deep, hear_visible, mean_field
from cbm_cli.kernels.offsets import Means, make_means
from cbm_cli.kernels.plan import Plan
from cbm_cli.kernels.products import Bits, bits_for, product_of_rows
from cbm_cli.kernels.random import SHUFFLE, fill_words
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
    """R rows of the data or of the model, their weights, and work arrays."""

    x: Array  # (R, N)
    h: Array  # (R, M) mean hidden units
    weight: Array  # (R,) 1/R, or the probabilities of all states
    sign: np.float32  # of the phase in the gradient: 1 for the data, -1 for the model
    share: Array  # (R, M) sign times weight times h
    flat_h: Array  # (R M,) views of h and of its share
    flat_share: Array
    activation: Array  # (R, M) x W
    long_h: Array  # views with several rows in one, so that loops over them are long
    long_activation: Array
    bias: Array  # c, as often as a long row needs it
    bits: Bits | None  # x, packed, of the data
    mean: Means
    wide: NDArray[np.float64]  # (larger of N and M,) sums
    chains: Chains | None  # where rows of the model come from: chains, or all states
    states: AllStates | None
    filled: bool  # these fill in h, too


class Batches(NamedTuple):
    """The training rows, and the order in which an epoch takes them."""

    rows: Rows  # (n, visible)
    bits: NDArray[
        np.uint16
    ]  # (n, visible / 16) binary rows, packed: an eighth of what is read at random
    order: NDArray[np.int64]  # (n,)
    words: NDArray[np.uint32]  # random numbers of an order
    epoch: NDArray[np.int64]  # (1,) the epoch of the order; -1 before the first


def make_batches(rows: Rows, unit: float) -> Batches:
    """Pack the rows, if one level of the data is 1, and allocate an order."""
    n, units = rows.shape
    packed = np.zeros((n, -(-units // 16) * 2 if unit == 1 else 0), np.uint8)
    if unit == 1:
        packed[:, : -(-units // 8)] = np.packbits(rows, axis=1, bitorder="little")
    return Batches(
        rows,
        packed.view("<u2"),
        np.arange(n),
        np.empty(n + -n % 4, np.uint32),
        np.full(1, -1),
    )


def make_phase(
    x: Array,
    share: Array,
    sign: int,
    plan: Plan | None = None,
    hidden: Array | None = None,
) -> Phase:
    """Allocate a phase around its rows x (R, N) and the shares (R, M) of their hidden
    units.

    A plan makes it a model phase: of chains with hidden states ``hidden`` (K, M), else
    of all states.
    """
    (rows, n), m = x.shape, share.shape[1]
    count, h, activation = (
        long_rows(m, rows),
        aligned_empty((rows, m)),
        aligned_empty((rows, m)),
    )
    weight, chains, states = np.full(rows, np.float32(1 / rows)), None, None
    if plan and hidden is None:
        states = make_all_states(x, h, weight)
    elif plan and hidden is not None:
        chains = make_chains(hidden, plan, x, activation, h)
    filled = states is not None or (chains is not None and chains.direct)
    shares = np.float32(sign), share, h.reshape(-1), share.reshape(-1)
    views = (
        lengthened(h, count),
        lengthened(activation, count),
        aligned_empty(count * m),
    )
    work = None if plan else bits_for(rows, n, m), make_means(n, m), np.empty(max(n, m))
    return Phase(
        x, h, weight, *shares, activation, *views, *work, chains, states, filled
    )


@merged
def load_batch(batches: Batches, plan: Plan, update: int, x: Array) -> None:
    """Put the next rows of the data into the first columns of x (B, N)."""
    epoch = update // plan.batches
    if epoch != batches.epoch[0]:
        order_rows(batches, plan, epoch)
    start = (update - epoch * plan.batches) * plan.batch
    for r in range(plan.batch):
        row = batches.order[start + r]
        if plan.unit == 1:
            words = batches.bits[row]
            for q in range((plan.visible + 15) // 16):
                at, left = r * x.shape[1] + 16 * q, plan.visible - 16 * q
                spread_bits(words[q], x, np.int64(at), np.int64(left))
        else:
            for i in range(plan.visible):
                x[r, i] = plan.unit * batches.rows[row, i]


@lean
def order_rows(batches: Batches, plan: Plan, epoch: int) -> None:
    """Put the rows into the order of an epoch: Fisher-Yates on words that are the
    epoch's.
    """
    order = batches.order
    for row in range(order.size):
        order[row] = row
    if plan.shuffled:
        fill_words(batches.words, plan.seed, epoch, SHUFFLE, 0)
        for row in range(order.size - 1, 0, -1):
            other = np.int64(
                (np.uint64(batches.words[row]) * np.uint64(row + 1)) >> np.uint64(32)
            )
            order[row], order[other] = order[other], order[row]
    batches.epoch[0] = epoch


@merged
def infer_hidden(machine: Machine, data: Phase, deep: Deep | None, plan: Plan) -> None:
    """data.h = p(h = 1 | x), `reference.hidden_mean`, or its mean field; and the means
    of both.
    """
    if deep is not None:
        infer_deep(machine, data, deep, plan)
    else:
        product_of_rows(
            data.x, data.bits, machine.W, plan.unit == 1, data.activation
        )  # (B, N) @ (N, M)
        mean_hidden(machine, data, plan)
    average(data, False)


@lean
def infer_deep(machine: Machine, data: Phase, deep: Deep, plan: Plan) -> None:
    """Mean field from the offsets; data.x gets its deeper even units."""
    known, inner = plan.visible, machine.mu[plan.visible :]
    for r in range(plan.batch):
        for i in range(known):
            deep.visible[r, i] = data.x[r, i]
        for i in range(inner.size):
            deep.even[r, i] = inner[i]
    hear_visible(machine, deep, plan.unit == 1)
    made = mean_field(machine, deep, plan.tolerance, plan.rounds)
    deep.rounds[0] += min(made, plan.rounds)
    deep.rounds[1] += 1
    deep.rounds[2] += made > plan.rounds
    for r in range(plan.batch):
        row = data.x[r, known:]
        for i in range(inner.size):
            row[i] = deep.even[r, i]
        for j in range(machine.c.size):
            data.h[r, j] = deep.odd[r, j]


@merged
def mean_hidden(machine: Machine, phase: Phase, plan: Plan) -> None:
    """phase.h = sigmoid(activation + c)."""
    for r in range(phase.bias.size // machine.c.size):
        for j in range(machine.c.size):
            phase.bias[r * machine.c.size + j] = machine.c[j]
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
    its means.
    """
    if plan.restart:
        restart(data.h, model.chains, plan, sites[1], update)
    draw_samples(machine, model.chains, plan, sites[0], update)
    weigh_all_states(machine, model.states)
    if not model.filled:
        mean_hidden(machine, model, plan)
    average(model, model.states is not None)


@merged
def average(phase: Phase, exact: bool) -> None:
    """Fill in the shares of the hidden units, and the means over the rows of a
    phase.
    """
    if exact:
        for r in range(phase.h.shape[0]):
            for j in range(phase.h.shape[1]):
                phase.share[r, j] = phase.sign * phase.weight[r] * phase.h[r, j]
    else:  # samples have equal weights, so that one loop goes over all of them
        factor = phase.sign * phase.weight[0]
        for k in range(phase.flat_h.size):
            phase.flat_share[k] = factor * phase.flat_h[k]
    add_up(phase.x, phase.weight, phase.wide, phase.mean.x)
    add_up(phase.share, None, phase.wide, phase.mean.h)
    for j in range(phase.mean.h.size):
        phase.mean.h[j] *= phase.sign


@merged
def add_up(
    rows: Array, weight: Array | None, wide: NDArray[np.float64], total: Array
) -> None:
    """total = the sum of rows (R, units), times their weights (R,) if given.

    Sums are taken in ``wide``: in float32 a unit that is always on has the mean 1.0005
    over 60,000 rows.
    """
    one = np.float32(1)
    for i in range(total.size):
        wide[i] = 0.0
    fours = rows.shape[0] // 4 * 4
    for r in range(0, fours, 4):  # a sum is loaded and stored once for four rows
        a, b, c, d = one, one, one, one
        if weight is not None:
            a, b, c, d = weight[r], weight[r + 1], weight[r + 2], weight[r + 3]
        for i in range(total.size):
            two = np.float64(a * rows[r, i]) + np.float64(b * rows[r + 1, i])
            wide[i] += two + (
                np.float64(c * rows[r + 2, i]) + np.float64(d * rows[r + 3, i])
            )
    for r in range(fours, rows.shape[0]):
        share = one if weight is None else weight[r]
        for i in range(total.size):
            wide[i] += share * rows[r, i]
    for i in range(total.size):
        total[i] = wide[i]
