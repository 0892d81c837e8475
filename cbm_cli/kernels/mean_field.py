"""Mean field of a deep machine given its visible units: the factorial posterior of all hidden layers.

The machine is flattened: even layers side by side, odd layers side by side. Given the visible units no two
deeper even units are connected and no two odd ones, so that a round sets each side to its best response to
the other: coordinate ascent on the variational bound (Salakhutdinov & Hinton 2009).
"""

import numpy as np
from numpy.typing import NDArray

from cbm_cli.kernels.compiling import compiled, lean, lean_sum
from cbm_cli.kernels.state import Array
from cbm_cli.kernels.units import sigmoid, sum_of_softplus


@lean
def renew(activation: Array, bias: Array, mean: Array, tolerance: np.float32) -> int:
    """mean = sigmoid(activation + bias), (rows, width); return how many changed by tolerance or more.

    A count in place of the largest change: sums of integers vectorise, maxima of floats do not. What is not
    a number counts as unchanged, so that a diverged machine costs one round.
    """
    moved = np.int32(0)
    for r in range(mean.shape[0]):
        for i in range(mean.shape[1]):
            new = sigmoid(activation[r, i] + bias[i])
            moved += np.int32(abs(new - mean[r, i]) >= tolerance)
            mean[r, i] = new
    return moved


@lean
def renew_from_both(above: Array, below: Array, bias: Array, mean: Array, tolerance: np.float32) -> int:
    """The same with activation = above + below."""
    moved = np.int32(0)
    for r in range(mean.shape[0]):
        for i in range(mean.shape[1]):
            new = sigmoid(above[r, i] + below[r, i] + bias[i])
            moved += np.int32(abs(new - mean[r, i]) >= tolerance)
            mean[r, i] = new
    return moved


@compiled
def mean_field(
    W_deep: Array,
    b_deep: Array,
    c: Array,
    from_visible: Array,
    even: Array,
    odd: Array,
    to_even: Array,
    to_odd: Array,
    tolerance: np.float32,
    rounds: int,
) -> int:
    """Find the mean-field fixed point of every row; return the rounds made, rounds + 1 without convergence.

    The start is ``even`` as it comes in, usually the offsets; what ``odd`` holds does not matter, for its
    first values are computed from the visible units and ``even``. A round renews even, then odd; the last
    round is the one in which no mean changed by ``tolerance`` or more.

    Parameters
    ----------
    W_deep, b_deep : (E, M'), (E,)
        Rows of the flattened machine below its visible ones.
    c : (M',)
    from_visible : (B, M')
        x @ W[:n_0], the same in all rounds.
    even, odd : (B, E), (B, M')
        Means of the deeper even layers and of the odd layers, changed in place.
    to_even, to_odd : (B, E), (B, M')
        Work arrays.
    tolerance : float32
    rounds : int
        Most rounds to make; without any, odd still answers to even.
    """
    Wt = W_deep.T
    np.dot(even, W_deep, to_odd)  # (B, E) @ (E, M')
    renew_from_both(to_odd, from_visible, c, odd, tolerance)
    for made in range(1, rounds + 1):
        np.dot(odd, Wt, to_even)  # (B, M') @ (M', E)
        moved = renew(to_even, b_deep, even, tolerance)
        np.dot(even, W_deep, to_odd)
        moved += renew_from_both(to_odd, from_visible, c, odd, tolerance)
        if moved == 0:
            return made
    return rounds + 1


@lean_sum
def conjugate_gap(activation: Array, bias: Array, mean: Array, gap: NDArray[np.float64]) -> None:
    """gap_r = sum_i log(1 + exp(a_i)) - mean_i a_i, a = activation + bias; (rows, width), (rows,) float64.

    By convexity at least the entropy of ``mean``, and just that where mean = sigmoid(a).
    """
    for r in range(gap.size):
        linear = 0.0
        for i in range(bias.size):
            linear += np.float64(mean[r, i]) * np.float64(activation[r, i] + bias[i])
        gap[r] = sum_of_softplus(activation[r], bias, np.float32(1)) - linear
