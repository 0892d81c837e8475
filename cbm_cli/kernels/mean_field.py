"""The hidden layers of a deep machine given its visible units: mean field.

The machine is flat: even layers side by side, odd layers side by side. Given the
visible units, no two deeper even units are connected and no two odd ones: a round of
mean field sets each side to its best response to the other, which is coordinate ascent
on the variational bound (Salakhutdinov & Hinton 2009); `reference.mean_field`.
"""

from typing import Annotated, NamedTuple

import numpy as np

from cbm_cli.kernels.bits import Bits, bits_for, product_of_rows
from cbm_cli.kernels.compiling import lean
from cbm_cli.kernels.dense import product, product_nt
from cbm_cli.kernels.machine import Machine
from cbm_cli.kernels.memory import Array, Counts, allocate
from cbm_cli.kernels.units import sigmoid


class Deep(NamedTuple):
    """B rows of a deep machine, and work arrays: V visible units, E deeper even ones, M
    odd ones.
    """

    visible: Annotated[Array, "B V"]  # `infer_deep`, or Python
    even: Annotated[Array, "B E"]  # its start likewise; then `mean_field`
    odd: Annotated[Array, "B M"]  # `mean_field`
    # `multiply_visible`: visible @ W[:visible], the same in all rounds
    from_visible: Annotated[Array, "B M"]
    to_even: Annotated[Array, "B E"]  # `mean_field`: products
    to_odd: Annotated[Array, "B M"]
    visible_bits: Bits
    zeros: Annotated[Array, "B E"]  # nobody
    counts: Counts  # `infer_deep`: (3,) rounds, batches, batches that did not converge


def make_deep(
    rows: int, visible: int, even: int, odd: int, counts: Counts | None = None
) -> Deep:
    """Allocate rows of a deep machine; rounds of mean field are counted in ``counts``
    (3,).
    """
    if counts is None:
        counts = np.zeros(3, np.int64)
    return allocate(
        Deep,
        visible_bits=bits_for(rows, visible, odd),
        counts=counts,
        B=rows,
        E=even,
        M=odd,
        V=visible,
    )


@lean
def multiply_visible(machine: Machine, deep: Deep, binary: bool) -> None:
    """from_visible = visible @ W[:visible]."""
    W = machine.W[: deep.visible.shape[1]]
    bits, out = deep.visible_bits, deep.from_visible
    product_of_rows(deep.visible, bits, W, binary, out=out)


@lean
def mean_field(machine: Machine, deep: Deep, tolerance: np.float32, rounds: int) -> int:
    """Find the fixed point of every row; return the rounds made, ``rounds`` + 1 without
    convergence.

    ``even`` holds the start, usually the offsets; ``odd`` answers to it first. A round
    sets even, then odd; the last round is the one in which no mean changed by
    ``tolerance`` or more. Means that are not numbers have not converged.
    """
    visible = deep.visible.shape[1]
    W, b, c = machine.W[visible:], machine.b[visible:], machine.c
    product(deep.even, W, deep.to_odd)  # (B, E) @ (E, M)
    set_means(deep.to_odd, deep.from_visible, c, mean=deep.odd, tolerance=tolerance)
    for number in range(1, rounds + 1):
        product_nt(deep.odd, W, deep.to_even)  # (B, M) @ (M, E)
        moved = set_means(
            deep.to_even, deep.zeros, b, mean=deep.even, tolerance=tolerance
        )
        product(deep.even, W, deep.to_odd)
        moved += set_means(
            deep.to_odd, deep.from_visible, c, mean=deep.odd, tolerance=tolerance
        )
        if moved == 0:  # NaN does not move, so that a diverged machine costs one round
            return number if are_numbers(deep.odd) else rounds + 1
    return rounds + 1


@lean
def set_means(
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
