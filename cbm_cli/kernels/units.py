"""Sigmoid units: means and states from activations, whole arrays at a time."""

import math

import numpy as np
from numba import types
from numba.extending import intrinsic

from cbm_cli.kernels.compiling import lean, lean_fused, lean_sum, merged
from cbm_cli.kernels.memory import Array

_LOG2E = np.float32(1.4426950408889634)
_LN2_HIGH = np.float32(0.693145751953125)
_LN2_LOW = np.float32(1.42860676e-6)
_ROUND = np.float32(
    12582912.0
)  # 1.5 * 2^23: adding it leaves the nearest integer in the low bits
_LIMIT = np.float32(87.0)  # exp stays a normal float32 within +-87
_ONE = np.float32(1.0)
_C2, _C3, _C4, _C5, _C6 = (
    np.float32(c) for c in (1 / 2, 1 / 6, 1 / 24, 1 / 120, 1 / 720)
)


@intrinsic
def _power_of_two(typingctx, rounded):
    """2^n in float32, for rounded = n + 1.5 * 2^23: n is shifted from the low bits into
    the exponent.
    """

    def codegen(context, builder, signature, arguments):
        integer = context.get_value_type(types.int32)
        bits = builder.bitcast(arguments[0], integer)
        exponent = builder.add(builder.shl(bits, integer(23)), integer(127 << 23))
        return builder.bitcast(exponent, context.get_value_type(types.float32))

    return types.float32(types.float32), codegen


@lean_fused
def exponential(x: np.float32) -> np.float32:
    """exp(x) in float32 to about 1e-7, x clipped to +-87; written so that loops over it
    vectorise.
    """
    x = min(max(x, -_LIMIT), _LIMIT)
    rounded = x * _LOG2E + _ROUND
    n = rounded - _ROUND
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    high = _C4 + r * (_C5 + r * _C6)
    series = _ONE + r * (_ONE + r * (_C2 + r * (_C3 + r * high)))
    return series * _power_of_two(rounded)


@lean
def sigmoid(x: np.float32) -> np.float32:
    """1 / (1 + exp(-x)) in float32."""
    return _ONE / (_ONE + exponential(-x))


@lean_sum
def sum_of_softplus(activation: Array, bias: Array, gain: np.float32) -> float:
    """sum_j log(1 + exp(gain (activation_j + bias_j))) of two vectors; no overflow.

    log(1 + exp(a)) is max(a, 0) plus the log of a factor between 1 and 2. 64 factors
    are multiplied in float32, and 512 in float64, before one logarithm is taken.
    """
    total, product = 0.0, 1.0
    for start in range(0, bias.size, 64):
        levels, shifts = activation[start : start + 64], bias[start : start + 64]
        linear, factors = np.float32(0), _ONE
        for j in range(shifts.size):
            a = gain * (levels[j] + shifts[j])
            linear += max(a, np.float32(0))
            factors *= _ONE + exponential(-abs(a))
        total += linear
        product *= factors
        if start % 512 == 448:
            total += math.log(product)
            product = 1.0
    return total + math.log(product)


@merged
def mean_of_units(activation: Array, gain: np.float32, bias: Array, out: Array) -> None:
    """out = sigmoid(gain * activation + bias): (rows, width), (width,), not the same
    array.
    """
    for r in range(out.shape[0]):
        for i in range(out.shape[1]):
            out[r, i] = sigmoid(gain * activation[r, i] + bias[i])


@merged
def sample_units(
    activation: Array, beta: Array, bias: Array, u: Array, out: Array
) -> None:
    """out = 1 where u < sigmoid(beta activation + bias), else 0; shapes as in
    mean_of_units.

    u < 1 / (1 + exp(-a)) is asked as u (1 + exp(-a)) < 1, without a division.
    """
    width = out.shape[1]
    for r in range(out.shape[0]):
        numbers = u[r * width : (r + 1) * width]
        for i in range(width):
            odds = exponential(-(beta[i] * activation[r, i] + bias[i]))
            out[r, i] = np.float32(numbers[i] * (_ONE + odds) < _ONE)


@merged
def sample_with_means(
    activation: Array,
    gain: np.float32,
    bias: Array,
    u: Array,
    mean: Array,
    out: Array,
) -> None:
    """`sample_units` and `mean_of_units` in one pass, bit for bit."""
    width = out.shape[1]
    for r in range(out.shape[0]):
        numbers = u[r * width : (r + 1) * width]
        for i in range(width):
            odds = _ONE + exponential(-(gain * activation[r, i] + bias[i]))
            mean[r, i] = _ONE / odds
            out[r, i] = np.float32(numbers[i] * odds < _ONE)
