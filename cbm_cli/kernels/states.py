"""All states of the smaller side, for the exact model phase and log Z by Gray code."""

import math
from typing import Annotated, NamedTuple

import numpy as np

from cbm_cli.kernels.compiling import allocating, lean, lean_sum
from cbm_cli.kernels.dense import product, product_nt
from cbm_cli.kernels.machine import Machine
from cbm_cli.kernels.memory import Array, Wide, allocate
from cbm_cli.kernels.units import sigmoid
from cbm_cli.reference import states as list_states

# The model phase


class AllStates(NamedTuple):
    """The rows of a phase of all states: the smaller side keeps its states, the other
    has its means.
    """

    x: Array  # (R, N) `weigh_all_states`, if it is the larger side; as is h
    h: Array  # (R, M)
    weight: Array  # (R,) `weigh_all_states`: the probabilities of the rows
    activation: Annotated[Array, "R larger"]  # `weigh_all_states`
    log_weight: Annotated[Wide, "R"]  # `imply_means`


def make_all_states(x: Array, h: Array, weight: Array) -> AllStates:
    """List the states of the smaller side in x or h; the weight (R,) gets their
    probabilities.
    """
    n, m = x.shape[1], h.shape[1]
    smaller = h if m <= n else x
    smaller[:] = list_states(min(n, m), np.float32)
    return allocate(AllStates, x=x, h=h, weight=weight, R=len(x), larger=max(n, m))


@lean
def weigh_all_states(machine: Machine, states: AllStates | None) -> None:
    """Fill in the means of the larger side, and weight = p, of the machine; nothing
    without states.
    """
    if states is None:
        return
    x, h, weight = states.x, states.h, states.weight
    W, b, c = machine.W, machine.b, machine.c
    activation, log_weights = states.activation, states.log_weight
    if c.size <= b.size:
        product_nt(h, W, activation)  # (R, M) @ (M, N)
        imply_means(h, c, activation, b, log_weight=log_weights, means=x)
    else:
        product(x, W, activation)  # (R, N) @ (N, M)
        imply_means(x, b, activation, c, log_weight=log_weights, means=h)
    largest, total = -np.inf, 0.0
    for log_weight in log_weights:
        largest = max(largest, log_weight)
    for log_weight in log_weights:
        total += math.exp(log_weight - largest)
    for r in range(weight.size):
        weight[r] = math.exp(log_weights[r] - largest) / total


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

    b: Wide  # (n,) `log_z_of`, as are the next four
    c: Wide  # (m,)
    columns: Wide  # (m, n) W'
    # (low bits, n) exp(w_ij), what switching a unit on multiplies exp(activation_i) by
    rising: Wide
    falling: Wide
    still: Wide  # (n,) ones
    activation: Wide  # (n,) `activate`
    z: Wide  # (n,) `walk_gray_code`: exp(activation)


@allocating
def make_gray(n_visible: int, n_hidden: int) -> GrayWork:
    """Allocate a walk for the partition function."""
    n, m = max(n_visible, n_hidden), min(n_visible, n_hidden)
    low = min(m, _LOW_BITS)
    return GrayWork(
        b=np.empty(n),
        c=np.empty(m),
        columns=np.empty((m, n)),
        rising=np.empty((low, n)),
        falling=np.empty((low, n)),
        still=np.ones(n),
        activation=np.empty(n),
        z=np.empty(n),
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
    larger, smaller = (c, b) if turned else (b, c)
    for i in range(larger.size):
        work.b[i] = larger[i]
    for j in range(smaller.size):
        work.c[j] = smaller[j]
        for i in range(larger.size):
            work.columns[j, i] = W[j, i] if turned else W[i, j]
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
                if sign == 0:
                    factor = work.still
                score = bias + multiply_and_score(work.z, factor, run)
            if score > peak:
                total = total * math.exp(peak - score) + 1.0
                peak = score
            else:
                total += math.exp(score - peak)
    return peak + math.log(total)
