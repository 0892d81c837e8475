"""The hidden layers of a deep machine given its visible units: mean field.

The machine is flat: even layers side by side, odd layers side by side. Given the
visible units, no two deeper even units are connected and no two odd ones: a round of
mean field sets each side to its best response to the other, which is coordinate ascent
on the variational bound (Salakhutdinov & Hinton 2009); `reference.mean_field`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli.kernels.compiling import lean
from cbm_cli.kernels.machine import Array, Machine, aligned_empty
from cbm_cli.kernels.products import (
    Bits,
    bits_for,
    product,
    product_nt,
    product_of_rows,
)
from cbm_cli.kernels.units import sigmoid


class Deep(NamedTuple):
    """B rows of a deep machine, and work arrays: E deeper even units, M odd ones."""

    visible: Array  # (B, visible)
    even: Array  # (B, E)
    odd: Array  # (B, M)
    from_visible: Array  # (B, M) visible @ W[:visible], the same in all rounds
    to_even: Array  # (B, E)
    to_odd: Array  # (B, M)
    visible_bits: Bits
    zeros: Array  # (B, E)
    rounds: NDArray[
        np.int64
    ]  # (3,) counts: rounds, batches, batches that did not converge


def make_deep(
    rows: int, visible: int, even: int, odd: int, counts: NDArray | None = None
) -> Deep:
    """Allocate rows of a deep machine; rounds of mean field are counted in ``counts``
    (3,).
    """
    shapes = (
        (rows, visible),
        (rows, even),
        (rows, odd),
        (rows, odd),
        (rows, even),
        (rows, odd),
    )
    return Deep(
        *(aligned_empty(shape) for shape in shapes),
        bits_for(rows, visible, odd),
        np.zeros((rows, even), np.float32),
        np.zeros(3, np.int64) if counts is None else counts,
    )


@lean
def hear_visible(machine: Machine, deep: Deep, binary: bool) -> None:
    """from_visible = visible @ W[:visible]."""
    W = machine.W[: deep.visible.shape[1]]
    product_of_rows(deep.visible, deep.visible_bits, W, binary, deep.from_visible)


@lean
def mean_field(machine: Machine, deep: Deep, tolerance: np.float32, rounds: int) -> int:
    """Find the fixed point of every row; return the rounds made, ``rounds`` + 1 without
    convergence.

    ``even`` holds the start, usually the offsets; ``odd`` answers to it first. A round
    renews even, then odd; the last round is the one in which no mean changed by
    ``tolerance`` or more. Means that are not numbers have not converged.
    """
    known = deep.visible.shape[1]
    W, b, c = machine.W[known:], machine.b[known:], machine.c
    product(deep.even, W, deep.to_odd)  # (B, E) @ (E, M)
    renew(deep.to_odd, deep.from_visible, c, deep.odd, tolerance)
    for made in range(1, rounds + 1):
        product_nt(deep.odd, W, deep.to_even)  # (B, M) @ (M, E)
        moved = renew(deep.to_even, deep.zeros, b, deep.even, tolerance)
        product(deep.even, W, deep.to_odd)
        moved += renew(deep.to_odd, deep.from_visible, c, deep.odd, tolerance)
        if moved == 0:  # NaN does not move, so that a diverged machine costs one round
            return made if are_numbers(deep.odd) else rounds + 1
    return rounds + 1


@lean
def renew(
    above: Array, below: Array, bias: Array, mean: Array, tolerance: np.float32
) -> int:
    """mean = sigmoid(above + below + bias), (rows, units); return how many changed by
    tolerance or more.

    A count instead of the largest change: sums of integers vectorise, maxima of floats
    do not. NaN counts as unchanged.
    """
    moved = np.int32(0)
    for r in range(mean.shape[0]):
        for i in range(mean.shape[1]):
            new = sigmoid(above[r, i] + below[r, i] + bias[i])
            moved += np.int32(abs(new - mean[r, i]) >= tolerance)
            mean[r, i] = new
    return moved


@lean
def are_numbers(means: Array) -> bool:
    """Whether no mean (rows, units) is NaN."""
    missing = np.int32(0)
    for r in range(means.shape[0]):
        for i in range(means.shape[1]):
            missing += np.int32(means[r, i] != means[r, i])
    return missing == 0
