"""Exact partition function by Gray code, and log-likelihoods that rest on it."""

import math

import numpy as np
from numpy.typing import NDArray

from cbm_cli.kernels.compiling import compiled, lean, lean_sum
from cbm_cli.kernels.state import Array, Rows
from cbm_cli.kernels.units import sum_of_softplus

Wide = NDArray[np.float64]

_LOW_BITS = 10  # states walked by products before exp(activation) is computed afresh
_SAFE = 300.0  # |activation| up to which exp(activation) and its products stay far from overflow
_LARGEST_LOG = 690.0  # of a product of factors in float64
_ROWS = 256  # rows of data widened at a time


@lean
def softplus(a: float) -> float:
    """log(1 + exp(a)) without overflow."""
    return max(a, 0.0) + math.log1p(math.exp(-abs(a)))


@lean
def activation_bound(W: Wide, b: Wide) -> float:
    """Largest |b_i + sum_j w_ij h_j| over all units i and states h."""
    bound = 0.0
    for i in range(W.shape[0]):
        low = high = b[i]
        for j in range(W.shape[1]):
            low += min(W[i, j], 0.0)
            high += max(W[i, j], 0.0)
        bound = max(bound, high, -low)
    return bound


@lean
def activate(W: Wide, b: Wide, state: int, activation: Wide) -> None:
    """activation_i = b_i + sum of w_ij over the bits j that are set in ``state``."""
    for i in range(W.shape[0]):
        activation[i] = b[i]
        for j in range(W.shape[1]):
            if (state >> j) & 1:
                activation[i] += W[i, j]


@lean_sum
def multiply_and_score(z: Wide, factor: Wide, run: int) -> float:
    """Multiply z by ``factor``; return sum_i log(1 + z_i), by products of ``run`` factors a logarithm."""
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
    """Add ``sign * step`` to the activation; return its sum of log(1 + exp(.)), safe for any size."""
    score = 0.0
    for i in range(activation.size):
        activation[i] += sign * step[i]
        score += softplus(activation[i])
    return score


@compiled
def log_partition_over(W: Wide, b: Wide, c: Wide) -> float:
    """log Z by a walk through all states of the side with biases c: (N, M), (N,), (M,) float64.

    z_i = exp(activation_i) is carried from state to state: neighbours in Gray code differ in one bit j,
    which multiplies z_i by exp(+-w_ij). Machines with huge parameters take the safe, slower form.
    """
    n, m = W.shape
    low_bits = min(m, _LOW_BITS)
    bound = activation_bound(W, b)
    safe = bound > _SAFE
    run = max(1, int(_LARGEST_LOG / (bound + 1.0)))
    columns = np.ascontiguousarray(W.T)
    rising, falling, still = np.exp(columns[:low_bits]), np.exp(-columns[:low_bits]), np.ones(n)
    activation, z = np.empty(n), np.empty(n)
    peak, total = -np.inf, 0.0
    for block in range(1 << (m - low_bits)):
        gray = block << low_bits
        activate(W, b, gray, activation)
        bias = 0.0
        for j in range(m):
            bias += c[j] * ((gray >> j) & 1)
        if safe:
            score = add_and_score(activation, still, 0.0)
        else:
            for i in range(n):
                z[i] = math.exp(activation[i])
            score = multiply_and_score(z, still, run)
        for step in range(1, (1 << low_bits) + 1):
            value = score + bias
            if value > peak:
                total = total * math.exp(peak - value) + 1.0
                peak = value
            else:
                total += math.exp(value - peak)
            if step == 1 << low_bits:
                break
            j = 0
            while not (step >> j) & 1:
                j += 1
            gray ^= 1 << j
            on = (gray >> j) & 1
            bias += c[j] if on else -c[j]
            if safe:
                score = add_and_score(activation, columns[j], 1.0 if on else -1.0)
            else:
                score = multiply_and_score(z, rising[j] if on else falling[j], run)
    return peak + math.log(total)


@compiled
def log_partition(W: Array, b: Array, c: Array) -> float:
    """log Z of the machine W (N, M), b (N,), c (M,), over all states of its smaller side; float64.

    Cost: 2^min(N, M) max(N, M) multiplications. Raises nothing: not a number in, not a number out.
    """
    W64, b64, c64 = W.astype(np.float64), b.astype(np.float64), c.astype(np.float64)
    if W.shape[1] <= W.shape[0]:
        return log_partition_over(W64, b64, c64)
    return log_partition_over(np.ascontiguousarray(W64.T), c64, b64)


@lean_sum
def unnormalised_log_likelihood(x: Array, activation: Array, b: Array, c: Array) -> float:
    """Sum over rows of log sum_h exp(-E(x, h)) = x'b + sum_j log(1 + exp(activation_j + c_j))."""
    total = 0.0
    for r in range(x.shape[0]):
        for i in range(b.size):
            total += np.float64(x[r, i]) * b[i]
        total += sum_of_softplus(activation[r], c, np.float32(1))
    return total


@compiled
def mean_log_likelihood(W: Array, b: Array, c: Array, rows: Rows, unit: np.float32, log_z: float) -> float:
    """Mean over rows (n, N) uint8 of log p(x) in nats, given log Z; float64 sums."""
    total = 0.0
    x = np.empty((min(_ROWS, rows.shape[0]), rows.shape[1]), np.float32)
    activation = np.empty((x.shape[0], W.shape[1]), np.float32)
    for start in range(0, rows.shape[0], _ROWS):
        size = min(_ROWS, rows.shape[0] - start)
        for r in range(size):
            for i in range(rows.shape[1]):
                x[r, i] = unit * rows[start + r, i]
        np.dot(x[:size], W, activation[:size])  # (R, N) @ (N, M)
        total += unnormalised_log_likelihood(x[:size], activation[:size], b, c)
    return total / rows.shape[0] - log_z
