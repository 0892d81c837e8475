"""All states of the smaller side, for the exact model phase and log Z by Gray code."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli.kernels.compiling import allocating, lean, lean_sum
from cbm_cli.kernels.machine import Array, Machine, Rows, aligned_empty
from cbm_cli.kernels.products import (
    Bits,
    bits_for,
    product,
    product_nt,
    product_of_rows,
    worth_packing,
)
from cbm_cli.kernels.sharing import share_out
from cbm_cli.kernels.units import sigmoid, sum_of_softplus

Wide = NDArray[np.float64]

# The model phase


class AllStates(NamedTuple):
    """The rows of a phase of all states: the smaller side keeps its states, the other
    has its means.
    """

    x: Array  # (R, N)
    h: Array  # (R, M)
    weight: Array  # (R,) their probabilities
    activation: Array  # (R, units of the larger side)
    log_weight: Wide  # (R,)


def make_all_states(x: Array, h: Array, weight: Array) -> AllStates:
    """List the states of the smaller side in x or h; the weight (R,) gets their
    probabilities.
    """
    states, means = (h, x) if h.shape[1] <= x.shape[1] else (x, h)
    states[:] = (np.arange(len(states))[:, None] >> np.arange(states.shape[1])) & 1
    return AllStates(
        x, h, weight, aligned_empty(means.shape), np.empty(len(states), np.float64)
    )


@lean
def weigh_all_states(machine: Machine, states: AllStates | None) -> None:
    """Fill in the means of the larger side, and weight = p, of the machine; nothing
    without states.
    """
    if states is None:
        return
    x, h, weight = states.x, states.h, states.weight
    W, b, c = machine.W, machine.b, machine.c
    if c.size <= b.size:
        product_nt(h, W, states.activation)  # (R, M) @ (M, N)
        imply_means(h, c, states.activation, b, states.log_weight, x)
    else:
        product(x, W, states.activation)  # (R, N) @ (N, M)
        imply_means(x, b, states.activation, c, states.log_weight, h)
    largest, total = -np.inf, 0.0
    for value in states.log_weight:
        largest = max(largest, value)
    for value in states.log_weight:
        total += math.exp(value - largest)
    for r in range(weight.size):
        weight[r] = math.exp(states.log_weight[r] - largest) / total


@lean
def imply_means(
    states: Array,
    states_bias: Array,
    activation: Array,
    bias: Array,
    log_weight: Wide,
    means: Array,
) -> None:
    """means = sigmoid(activation + bias); log_weight = the states' unnormalised log
    probability.
    """
    for r in range(states.shape[0]):
        log_weight[r] = 0.0
        for i in range(states.shape[1]):
            log_weight[r] += states[r, i] * states_bias[i]
        for j in range(means.shape[1]):
            a = activation[r, j] + bias[j]
            means[r, j] = sigmoid(a)
            log_weight[r] += softplus(a)


# The partition function

_LOW_BITS = 10  # states walked by products before exp(activation) is computed again
# |activation| up to which exp(activation) and its products stay far from overflow
_SAFE = 300.0
_LARGEST_LOG = 690.0  # of a product of factors in float64
BLOCK = 224  # rows of data widened at a time


@lean
def softplus(a: float) -> float:
    """log(1 + exp(a)) without overflow."""
    return max(a, 0.0) + math.log1p(math.exp(-abs(a)))


@lean
def activation_bound(columns: Wide, b: Wide) -> float:
    """Largest |b_i + sum_j w_ij h_j| over all units i and states h."""
    bound = 0.0
    for i in range(b.size):
        low = high = b[i]
        for j in range(columns.shape[0]):
            low += min(columns[j, i], 0.0)
            high += max(columns[j, i], 0.0)
        bound = max(bound, high, -low)
    return bound


@lean
def activate(columns: Wide, b: Wide, state: int, activation: Wide) -> None:
    """activation_i = b_i + sum of w_ij over the bits j that are set in ``state``."""
    for i in range(b.size):
        activation[i] = b[i]
        for j in range(columns.shape[0]):
            if (state >> j) & 1:
                activation[i] += columns[j, i]


@lean_sum
def multiply_and_score(z: Wide, factor: Wide, run: int) -> float:
    """Multiply z by ``factor``; return sum_i log(1 + z_i), by products of ``run``
    factors a logarithm.
    """
    score = 0.0
    for start in range(0, z.size, run):
        product = 1.0
        for i in range(start, min(start + run, z.size)):
            z[i] *= factor[i]
            product *= 1.0 + z[i]
        score += math.log(product)
    return score


@lean_sum
def add_and_score(activation: Wide, step: Wide, sign: float) -> float:
    """Add ``sign * step`` to the activation; return its sum of log(1 + exp(.)), safe
    for any size.
    """
    score = 0.0
    for i in range(activation.size):
        activation[i] += sign * step[i]
        score += softplus(activation[i])
    return score


class GrayWork(NamedTuple):
    """A machine of n units and, on the smaller side, m whose states are walked through;
    float64.
    """

    b: Wide  # (n,)
    c: Wide  # (m,)
    columns: Wide  # (m, n) W'
    # (low bits, n) exp(w_ij), what switching a unit on multiplies exp(activation_i) by
    rising: Wide
    falling: Wide
    still: Wide  # (n,) ones
    activation: Wide  # (n,)
    z: Wide  # (n,) exp(activation)


@allocating
def make_gray(n_visible: int, n_hidden: int) -> GrayWork:
    """Allocate a walk for the partition function."""
    n, m = max(n_visible, n_hidden), min(n_visible, n_hidden)
    low = min(m, _LOW_BITS)
    machine = np.empty(n), np.empty(m), np.empty((m, n))
    return GrayWork(
        *machine,
        np.empty((low, n)),
        np.empty((low, n)),
        np.ones(n),
        np.empty(n),
        np.empty(n),
    )


@allocating
def log_partition(W: Array, b: Array, c: Array) -> float:
    """log Z of the machine W (N, M), b (N,), c (M,), over all states of its smaller
    side; float64.

    Cost: 2^min(N, M) max(N, M) multiplications. Never raises; NaN in gives NaN out.
    """
    return log_z_of(W, b, c, make_gray(b.size, c.size))


@lean
def log_z_of(W: Array, b: Array, c: Array, work: GrayWork) -> float:
    """`log_partition` in work arrays."""
    turned = c.size > b.size
    for i in range(b.size):
        for j in range(c.size):
            column, row = (i, j) if turned else (j, i)
            work.columns[column, row] = W[i, j]
    for biases, own in ((work.b, c if turned else b), (work.c, b if turned else c)):
        for i in range(biases.size):
            biases[i] = own[i]
    for j in range(work.rising.shape[0]):
        for i in range(work.b.size):
            work.rising[j, i] = math.exp(work.columns[j, i])
            work.falling[j, i] = math.exp(-work.columns[j, i])
    return walk_gray_code(work)


@lean
def walk_gray_code(work: GrayWork) -> float:
    """log Z by a walk through all states of the smaller side.

    z_i = exp(activation_i) is carried from state to state: neighbours in Gray code
    differ in one bit j, which multiplies z_i by exp(+-w_ij). Machines with huge
    parameters take the safe, slower form.
    """
    b, c = work.b, work.c
    bound = activation_bound(work.columns, b)
    safe, run = bound > _SAFE, max(1, int(_LARGEST_LOG / (bound + 1.0)))
    low_bits = work.rising.shape[0]
    peak, total = -np.inf, 0.0
    for block in range(1 << (c.size - low_bits)):
        gray = block << low_bits
        activate(work.columns, b, gray, work.activation)
        bias = 0.0
        for j in range(c.size):
            bias += c[j] * ((gray >> j) & 1)
        for i in range(b.size):
            work.z[i] = math.exp(min(work.activation[i], 700.0))
        for step in range(1 << low_bits):
            sign, j = 0.0, 0
            if step > 0:
                while not (step >> j) & 1:
                    j += 1
                gray ^= 1 << j
                sign = 1.0 if (gray >> j) & 1 else -1.0
                bias += sign * c[j]
            if safe:
                score = bias + add_and_score(work.activation, work.columns[j], sign)
            else:
                factor = work.rising[j] if sign > 0 else work.falling[j]
                score = bias + multiply_and_score(
                    work.z, work.still if sign == 0 else factor, run
                )
            if score > peak:
                total = total * math.exp(peak - score) + 1.0
                peak = score
            else:
                total += math.exp(score - peak)
    return peak + math.log(total)


# Log-likelihoods


def mean_log_likelihood(
    W: Array, b: Array, c: Array, rows: Rows, unit: np.float32, log_z: float
) -> float:
    """Mean over rows (n, N) uint8 of log p(x) in nats, given log Z; rows of unit 1 are
    binary.
    """
    size, (n, m) = min(BLOCK, len(rows)), W.shape
    scores = np.empty(-(-len(rows) // size))

    def make() -> Callable[[int], None]:
        work = aligned_empty((size, n)), aligned_empty((size, m)), bits_for(size, n, m)

        def score(k: int) -> None:
            block = rows[k * size : (k + 1) * size]
            scores[k] = sum_of_scores((W, b, c), block, np.float32(unit), *work)

        return score

    share_out(range(len(scores)), make)
    return float(np.add.accumulate(scores)[-1]) / len(rows) - log_z


@lean
def sum_of_scores(
    plain: tuple[Array, Array, Array],
    rows: Rows,
    unit: np.float32,
    x: Array,
    activation: Array,
    bits: Bits,
) -> float:
    """Sum over the rows of log sum_h exp(-E(x, h)), block by block;
    `reference.free_energy`.
    """
    (W, b, c), total, block = plain, 0.0, x.shape[0]
    for start in range(0, rows.shape[0], block):
        size = min(block, rows.shape[0] - start)
        for r in range(block):
            for i in range(b.size):
                x[r, i] = unit * rows[start + r, i] if r < size else np.float32(0)
        product_of_rows(x, bits, W, unit == 1, activation)  # (R, N) @ (N, M)
        total += unnormalised_log_likelihood(x[:size], activation[:size], b, c)
    return total


@lean_sum
def unnormalised_log_likelihood(
    x: Array, activation: Array, b: Array, c: Array
) -> float:
    """Sum over rows of log sum_h exp(-E(x, h)) = x'b + sum_j log(1 + exp(activation_j +
    c_j)).
    """
    total = 0.0
    for r in range(x.shape[0]):
        for i in range(b.size):
            total += np.float64(x[r, i]) * b[i]
        total += sum_of_softplus(activation[r], c, np.float32(1))
    return total


# Evaluations while a machine trains: Python around one takes twenty times as long as
# the arithmetic at 9 x 4

_MOST_BITS = (
    12  # of states: with more of them Python takes a small share of an evaluation
)


class Exact(NamedTuple):
    """Rows of all parts, and work arrays of their log-likelihoods."""

    rows: Rows  # (n, N)
    ends: NDArray[
        np.int64
    ]  # (parts + 1,) where the parts begin in the rows, and their number
    unit: np.float32
    gray: GrayWork
    x: Array  # (R, N) a block of rows
    activation: Array  # (R, M)
    bits: Bits
    watched: int  # the part whose best value Python wants to see, or -1


def make_exact(
    parts: Sequence[Rows], unit: float, m: int, watched: int
) -> Exact | None:
    """Allocate what evaluations of a machine of m hidden units need; None for one that
    is not small.
    """
    n, sizes = parts[0].shape[1], [min(BLOCK, len(rows)) for rows in parts]
    if min(n, m) > _MOST_BITS or any(worth_packing(size, n, m) for size in sizes):
        return None
    return Exact(
        np.concatenate(parts),
        np.cumsum([0, *map(len, parts)]),
        np.float32(unit),
        make_gray(n, m),
        *(aligned_empty((max(sizes), units)) for units in (n, m)),
        bits_for(0, n, m),
        watched,
    )


@lean
def evaluate_exactly(
    machine: Machine, exact: Exact, best: float, values: NDArray[np.float64]
) -> bool:
    """Fill in the mean log-likelihoods (parts,) in nats, and return whether Python need
    not look at them.

    It needs to if a number is not finite, if a value is rounded to more than 0, or if
    that of the watched part is better than ``best``.
    """
    if not is_finite(machine):
        return False
    W, b, c = machine.W, machine.b, machine.c
    log_z = log_z_of(W, b, c, exact.gray)
    for part in range(values.size):
        rows = exact.rows[exact.ends[part] : exact.ends[part + 1]]
        size = min(BLOCK, rows.shape[0])
        given = (W, b, c), rows, exact.unit
        total = sum_of_scores(
            *given, exact.x[:size], exact.activation[:size], exact.bits
        )
        values[part] = total / rows.shape[0] - log_z
        if not -np.inf < values[part] <= 0 or (
            part == exact.watched and values[part] > best
        ):
            return False
    return True


@lean
def is_finite(machine: Machine) -> bool:
    """Whether the machine and its offsets are finite; then so is all else that training
    keeps.
    """
    for numbers in (
        machine.W.reshape(-1),
        machine.b,
        machine.c,
        machine.mu,
        machine.lam,
    ):
        for value in numbers:
            if not np.isfinite(value):
                return False
    return True
