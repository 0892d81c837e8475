"""The two phases of the gradient: rows that represent the data, and rows that represent the model."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli.kernels.compiling import lean, merged
from cbm_cli.kernels.intrinsics import spread_bits
from cbm_cli.kernels.machine import Array, Machine, Rows, aligned_empty
from cbm_cli.kernels.mean_field import Deep, hear_visible, mean_field
from cbm_cli.kernels.offsets import Means, make_means
from cbm_cli.kernels.plan import Plan
from cbm_cli.kernels.products import (
    Bits,
    binary_product,
    bits_for,
    bits_product,
    pack_columns,
    product,
    product_tn,
    worth_packing,
)
from cbm_cli.kernels.random import SHUFFLE, fill_words
from cbm_cli.kernels.sampling import lengthened, long_rows
from cbm_cli.kernels.step import Gradient
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
    bits: Bits  # x, packed
    mean: Means
    wide: NDArray[np.float64]  # (larger of N and M,) sums


class Batches(NamedTuple):
    """The training rows, and the order in which an epoch takes them."""

    rows: Rows  # (n, visible)
    bits: NDArray[np.uint16]  # (n, visible / 16) binary rows, packed: an eighth of what is read at random
    order: NDArray[np.int64]  # (n,)
    words: NDArray[np.uint32]  # random numbers of an order
    epoch: NDArray[np.int64]  # (1,) the epoch of the order; -1 before the first


class Both(NamedTuple):
    """Rows of the data above rows of the model: one product makes the gradient of both."""

    x: Array  # (B + R, N)
    share: Array  # (B + R, M)
    bits: Bits  # x', packed


def make_batches(rows: Rows, unit: float) -> Batches:
    """Pack the rows, if one level of the data is 1, and allocate an order."""
    n, units = rows.shape
    packed = np.zeros((n, -(-units // 16) * 2 if unit == 1 else 0), np.uint8)
    if unit == 1:
        packed[:, : -(-units // 8)] = np.packbits(rows, axis=1, bitorder="little")
    return Batches(rows, packed.view("<u2"), np.arange(n), np.empty(n + -n % 4, np.uint32), np.full(1, -1))


def make_both(n: int, m: int, plan: Plan) -> tuple[Both, Phase, Phase]:
    """Allocate the rows of both phases, of the data and of the model."""
    count = plan.batch + model_rows(n, m, plan, plan.exact)
    bits = bits_for(0 if plan.exact else plan.visible, count, m)
    both = Both(aligned_empty((count, n)), aligned_empty((count, m)), bits)
    data, model = (
        (both.x[: plan.batch], both.share[: plan.batch]),
        (both.x[plan.batch :], both.share[plan.batch :]),
    )
    return both, make_phase(*data, 1), make_phase(*model, -1, plan.exact)


def model_rows(n: int, m: int, plan: Plan, exact: bool) -> int:
    """Rows of a model phase: samples, or all states of the smaller side."""
    return 2 ** min(n, m) if exact else plan.rows


def make_phase(x: Array, share: Array, sign: int, exact: bool = False) -> Phase:
    """Allocate a phase around its rows x (R, N) and the shares (R, M) of their hidden units."""
    (rows, n), m = x.shape, share.shape[1]
    count, h, activation = long_rows(m, rows), aligned_empty((rows, m)), aligned_empty((rows, m))
    weight = np.full(rows, np.float32(1 / rows))
    shares = np.float32(sign), share, h.reshape(-1), share.reshape(-1)
    views = lengthened(h, count), lengthened(activation, count), aligned_empty(count * m)
    bits, wide = bits_for(0 if exact else rows, n, m), np.empty(max(n, m))
    return Phase(x, h, weight, *shares, activation, *views, bits, make_means(n, m), wide)


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
    """Put the rows into the order of an epoch: Fisher-Yates on words that are the epoch's."""
    order = batches.order
    for row in range(order.size):
        order[row] = row
    if plan.shuffled:
        fill_words(batches.words, plan.seed, epoch, SHUFFLE, 0)
        for row in range(order.size - 1, 0, -1):
            other = np.int64((np.uint64(batches.words[row]) * np.uint64(row + 1)) >> np.uint64(32))
            order[row], order[other] = order[other], order[row]
    batches.epoch[0] = epoch


@merged
def infer_hidden(machine: Machine, data: Phase, deep: Deep | None, plan: Plan) -> None:
    """data.h = p(h = 1 | x), `reference.hidden_mean`, or its mean field; and the means of both."""
    if deep is not None:
        infer_deep(machine, data, deep, plan)
    else:
        if plan.unit == 1:
            binary_product(data.x, data.bits, machine.W, False, data.activation)  # (B, N) @ (N, M)
        else:
            product(data.x, machine.W, data.activation)
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
def average(phase: Phase, exact: bool) -> None:
    """Fill in the shares of the hidden units, and the means over the rows of a phase."""
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
def add_up(rows: Array, weight: Array | None, wide: NDArray[np.float64], total: Array) -> None:
    """total = the sum of rows (R, units), times their weights (R,) if given.

    Sums are taken in ``wide``: in float32 a unit that is always on has the mean 1.0005 over 60,000 rows.
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
            wide[i] += two + (np.float64(c * rows[r + 2, i]) + np.float64(d * rows[r + 3, i]))
    for r in range(fours, rows.shape[0]):
        share = one if weight is None else weight[r]
        for i in range(total.size):
            wide[i] += share * rows[r, i]
    for i in range(total.size):
        total[i] = wide[i]


@merged
def gather_gradient(both: Both, data: Phase, model: Phase, plan: Plan, gradient: Gradient) -> None:
    """<x h'>_d - <x h'>_m and the differences of the means, from rows of both phases."""
    for i in range(gradient.x.size):
        gradient.x[i] = data.mean.x[i] - model.mean.x[i]
    for j in range(gradient.h.size):
        gradient.h[j] = data.mean.h[j] - model.mean.h[j]
    known, binary = plan.visible, plan.unit == 1 and not plan.exact
    if binary and worth_packing(known, both.x.shape[0], both.share.shape[1]):
        pack_columns(both.x, known, both.bits)
        W = gradient.W[:known]  # (visible, B + R) @ (B + R, M)
        bits_product(both.bits, both.share, False, W)
        if known < gradient.x.size:
            product_tn(both.x[:, known:], both.share, gradient.W[known:])
    else:
        product_tn(both.x, both.share, gradient.W)  # (N, B + R) @ (B + R, M)
