"""Centered auto encoders with tied weights, of any depth: `reference.back_propagate`,
compiled.

Layer l = 0, ..., L has n_l units. The encoder makes y_0 = x, ..., y_L, the decoder z_L
= y_L, ..., z_0:

    y_{l+1} = s((y_l - mu_l) W_l + c'_l),   z_l = s((z_{l+1} - lam_l) W_l' + b'_l)

with s(a) = 1 / (1 + exp(-a)). The cost is the cross entropy of x and z_0.

W_l (n_l, n_{l+1}) with its biases and offsets is a machine of its own, as an RBM is: a
*pair* of layers. The plain biases c_l = c'_l - mu_l W_l and b_l = b'_l - W_l lam_l are
kept. If offsets move, the function stays the same, and only the gradient reads them
(docs/decisions/0012-auto-encoder-centering.md).
"""

import math
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np

from cbm_cli.kernels.batches import Batches, load_batch, make_batches
from cbm_cli.kernels.bits import (
    Bits,
    bits_for,
    bits_product,
    pack_columns,
    product_of_rows,
    worth_packing,
)
from cbm_cli.kernels.compiling import lean, lean_sum, specialised
from cbm_cli.kernels.dense import product, product_nt, product_tn
from cbm_cli.kernels.machine import Machine, State, Trail, pairs_of
from cbm_cli.kernels.memory import (
    Array,
    Rows,
    Wide,
    aligned_zeros,
    allocate,
)
from cbm_cli.kernels.offsets import Means, make_noise, move_offsets
from cbm_cli.kernels.phases import add_up
from cbm_cli.kernels.plan import Plan
from cbm_cli.kernels.step import Gradient, rate_at, step
from cbm_cli.kernels.units import exponential, mean_of_units

_ZERO, _ONE = np.float32(0), np.float32(1)


class Encoder(NamedTuple):
    """All that an update works with: arrays of the whole auto encoder, and its pairs of
    layers.
    """

    machine: Machine
    pairs: tuple["Pair", ...]
    mean: Means  # `gather_gradient`
    noise: Means  # `move_offsets`
    batches: Batches


class Pair(NamedTuple):
    """A pair of layers, n and m units, in a pass of B rows: its parameters, its units
    and their deltas.

    A delta is the derivative of the cost with respect to an activation. For the lower
    layer the rows of the encoder are above those of the decoder; for the upper layer
    deltas are above states: the gradient of the tied weights is then one product,
    lower' upper.
    """

    machine: Machine
    velocity: Machine | None
    # `gather_gradient`: of the cost, of W without offsets; mean deltas of the decoder's
    # and encoder's units
    gradient: Gradient
    mean: Means  # of the encoder's inputs y_l and of the decoder's inputs z_{l+1}
    lower: Array  # (2 B, n): y_l above the deltas of z_l
    upper: Array  # (2 B, m): the deltas of y_{l+1} above z_{l+1}
    y: Array  # (B, n) `encode_and_decode`, as is z
    delta_z: Array  # (B, n) `propagate_back`, as is delta_y
    delta_y: Array  # (B, m)
    z: Array  # (B, m)
    to_lower: Annotated[Array, "B n"]  # a product
    to_upper: Annotated[Array, "B m"]
    sums: Annotated[Wide, "widest"]  # `add_up`
    bits: Bits  # `product_of_rows`: y, packed, if it is binary
    columns: Bits  # `gather_gradient`: y'


class EncoderTraining:
    """Updates of one state of an auto encoder with layers of these sizes; see
    `training.Training`.
    """

    def __init__(
        self, state: State, sizes: Sequence[int], rows: Rows, plan: Plan
    ) -> None:
        pairs, mean = make_pairs(state, sizes, plan.batch, plan.unit == 1)
        work = Encoder(
            machine=state.machine,
            pairs=pairs,
            mean=mean,
            noise=make_noise(len(state.mu), len(state.lam)),
            batches=make_batches(rows, plan.unit),
        )
        self.state, self._work = state, (work, plan)
        self._kernel = specialised(descend_updates, work, plan, 0, 0)

    def __call__(self, trail: Trail, first: int, last: int) -> None:
        """Make the updates first, ..., last - 1; the trail stays empty, for recorders
        are for RBMs.
        """
        self._kernel(*self._work, first, last)


def make_pairs(
    state: State, sizes: Sequence[int], rows: int, binary: bool
) -> tuple[tuple[Pair, ...], Means]:
    """Allocate a pass of so many rows around views of the parameters, and the means of
    all pairs.
    """
    # gradients have the shapes of parameters, means those of offsets
    slopes = _zeros_like(state.machine)
    machines, slopes_of_pairs = pairs_of(state.machine, sizes), pairs_of(slopes, sizes)
    velocities: Sequence[Machine | None] = [None] * len(machines)
    if state.velocity is not None:
        velocities = pairs_of(state.velocity, sizes)
    pairs = []
    for k, machine in enumerate(machines):
        pair = _make_pair(
            machine,
            velocity=velocities[k],
            slope=slopes_of_pairs[k],
            rows=rows,
            binary=binary and k == 0,  # the lowest pair alone has binary rows
        )
        pairs.append(pair)
    return tuple(pairs), Means(x=slopes.mu, h=slopes.lam)


def _zeros_like(machine: Machine) -> Machine:
    """Aligned arrays of the shapes of a machine."""
    return Machine._make(aligned_zeros(array.shape) for array in machine)


def _make_pair(
    machine: Machine,
    *,
    velocity: Machine | None,
    slope: Machine,
    rows: int,
    binary: bool,
) -> Pair:
    """Allocate a pair of layers in a pass of so many rows."""
    n, m = machine.W.shape
    lower, upper = aligned_zeros((2 * rows, n)), aligned_zeros((2 * rows, m))
    packed = rows if binary else 0
    gradient = allocate(
        Gradient,
        W=slope.W,
        x=slope.b,
        h=slope.c,
        spans=np.tile(np.array([0, m]), (n, 1)),
        M=m,
    )
    return allocate(
        Pair,
        machine=machine,
        velocity=velocity,
        gradient=gradient,
        mean=Means(x=slope.mu, h=slope.lam),
        lower=lower,
        upper=upper,
        y=lower[:rows],
        delta_z=lower[rows:],
        delta_y=upper[:rows],
        z=upper[rows:],
        bits=bits_for(packed, n, m),
        columns=bits_for(n, packed, m),
        B=rows,
        n=n,
        m=m,
        widest=max(n, m),
    )


@lean
def descend_updates(work: Encoder, plan: Plan, first: int, last: int) -> None:
    """The loop of `EncoderTraining`."""
    machine, pairs, mean, noise = work.machine, work.pairs, work.mean, work.noise
    for update in range(first, last):
        load_batch(work.batches, plan, update, pairs[0].y)
        encode_and_decode(pairs, plan)
        propagate_back(pairs)
        for k in range(len(pairs)):
            gather_gradient(pairs[k], k == 0 and plan.unit == 1)
        if plan.offsets.before:
            move_offsets(machine, mean, mean, noise, plan=plan, update=update)
        rate = -rate_at(plan, update)
        for pair in pairs:
            step(pair.machine, pair.gradient, pair.velocity, plan, rate=rate)
        if not plan.offsets.before:
            move_offsets(machine, mean, mean, noise, plan=plan, update=update)


@lean
def encode_and_decode(pairs: tuple[Pair, ...], plan: Plan) -> None:
    """From y_0 = x upwards and down again, to the activations of z_0 without bias,
    ``to_lower`` of pair 0.
    """
    last = len(pairs) - 1
    for k in range(last + 1):
        pair = pairs[k]
        is_binary = k == 0 and plan.unit == 1
        # (B, n) @ (n, m)
        product_of_rows(pair.y, pair.bits, pair.machine.W, is_binary, out=pair.to_upper)
        above = pairs[k + 1].y if k < last else pair.z
        mean_of_units(pair.to_upper, _ONE, pair.machine.c, above)
    for k in range(last, -1, -1):
        pair = pairs[k]
        product_nt(pair.z, pair.machine.W, pair.to_lower)  # (B, m) @ (m, n)
        if k > 0:
            mean_of_units(pair.to_lower, _ONE, pair.machine.b, pairs[k - 1].z)


@lean
def propagate_back(pairs: tuple[Pair, ...]) -> None:
    """From the deltas of z_0 upwards through the decoder and down through the encoder,
    to those of y_1.
    """
    last, bottom = len(pairs) - 1, pairs[0]
    x, z, weight = bottom.y, bottom.delta_z, _ONE / np.float32(bottom.y.shape[0])
    mean_of_units(bottom.to_lower, _ONE, bottom.machine.b, z)
    for r in range(z.shape[0]):
        for i in range(z.shape[1]):
            z[r, i] = weight * (z[r, i] - x[r, i])
    for k in range(last + 1):
        pair = pairs[k]
        product(pair.delta_z, pair.machine.W, pair.to_upper)  # (B, n) @ (n, m)
        above = pairs[k + 1].delta_z if k < last else pair.delta_y
        pull_back(pair.to_upper, pair.z, above)
    for k in range(last, 0, -1):
        pair = pairs[k]
        product_nt(pair.delta_y, pair.machine.W, pair.to_lower)  # (B, m) @ (m, n)
        pull_back(pair.to_lower, pair.y, pairs[k - 1].delta_y)


@lean
def pull_back(back: Array, mean: Array, out: Array) -> None:
    """out = back s'(a), mean = s(a): deltas of units from the derivative of the cost
    by their means.
    """
    for r in range(out.shape[0]):
        for i in range(out.shape[1]):
            out[r, i] = back[r, i] * (mean[r, i] * (_ONE - mean[r, i]))


@lean
def gather_gradient(pair: Pair, binary: bool) -> None:
    """Sums and products over the batch; deltas hold the weight of their row already."""
    gradient, mean, sums = pair.gradient, pair.mean, pair.sums
    add_up(pair.delta_z, None, sums, gradient.x)
    add_up(pair.delta_y, None, sums, gradient.h)
    add_up(pair.y, None, sums, mean.x)
    add_up(pair.z, None, sums, mean.h)
    rows, n = pair.y.shape
    if binary and worth_packing(n, rows, pair.z.shape[1]):
        pack_columns(pair.y, n, pair.columns)
        # (n, B) @ (B, m), twice
        bits_product(pair.columns, pair.delta_y, turned=False, out=gradient.W)
        product_tn(pair.delta_z, pair.z, gradient.W, beta=_ONE)
    else:
        product_tn(pair.lower, pair.upper, gradient.W)  # (n, 2 B) @ (2 B, m)
    weight = _ONE / np.float32(rows)
    for i in range(mean.x.size):
        mean.x[i] *= weight
    for j in range(mean.h.size):
        mean.h[j] *= weight


def summed_cost(state: State, sizes: Sequence[int], rows: Rows, plan: Plan) -> float:
    """Sum over rows (n, n_0) uint8 of their loss, in float64."""
    pairs, _ = make_pairs(state, sizes, len(rows), plan.unit == 1)
    pairs[0].y[:] = plan.unit * rows
    encode_and_decode(pairs, plan)
    return cross_entropies(pairs[0].y, pairs[0].to_lower, pairs[0].machine.b)


@lean_sum
def cross_entropies(x: Array, activation: Array, bias: Array) -> float:
    """Sum over rows of sum_i -x_i log z_i - (1 - x_i) log(1 - z_i), z = s(a), a =
    activation + bias; in nats.

    A term is (1 - x) max(a, 0) + x max(-a, 0) + log(1 + exp(-|a|)), where no part is
    negative: no sum of huge terms cancels. A part without weight is 0, even if a is
    infinite. One logarithm is taken of the product of 64 factors 1 + exp(-|a|).
    """
    total = 0.0
    for r in range(x.shape[0]):
        for first in range(0, bias.size, 64):
            linear, factors = np.float32(0), _ONE
            for i in range(first, min(first + 64, bias.size)):
                a = activation[r, i] + bias[i]
                on, off = x[r, i], _ONE - x[r, i]
                too_high = max(a, _ZERO) if off > _ZERO else _ZERO
                too_low = max(-a, _ZERO) if on > _ZERO else _ZERO
                linear += off * too_high + on * too_low
                factors *= _ONE + exponential(-abs(a))
            total += linear + math.log(factors)
    return total
