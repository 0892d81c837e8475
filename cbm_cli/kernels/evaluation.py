"""Exact log-likelihoods of a small machine while it trains, in one call of a kernel that allocates nothing.

Python around an evaluation takes twenty times as long as the arithmetic of a machine of 9 x 4 units.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli.kernels.compiling import lean
from cbm_cli.kernels.machine import Array, Rows, State, room
from cbm_cli.kernels.products import Bits, bits_for, worth_packing
from cbm_cli.kernels.states import BLOCK, GrayWork, log_z_of, make_gray, sum_of_scores

_MOST_BITS = 12  # of states: with more of them Python takes a small share of an evaluation


class Exact(NamedTuple):
    """Rows of all parts, and work arrays of their log-likelihoods."""

    rows: Rows  # (n, N)
    ends: NDArray[np.int64]  # (parts + 1,) where the parts begin in the rows, and their number
    unit: np.float32
    gray: GrayWork
    x: Array  # (R, N) a block of rows
    activation: Array  # (R, M)
    bits: Bits
    watched: int  # the part whose best value Python wants to see, or -1


def make_exact(parts: Sequence[Rows], unit: float, m: int, watched: int) -> Exact | None:
    """Allocate what evaluations of a machine of m hidden units need; None for one that is not small."""
    n, sizes = parts[0].shape[1], [min(BLOCK, len(rows)) for rows in parts]
    if min(n, m) > _MOST_BITS or any(worth_packing(size, n, m) for size in sizes):
        return None
    return Exact(
        np.concatenate(parts),
        np.cumsum([0, *map(len, parts)]),
        np.float32(unit),
        make_gray(n, m),
        *(room((max(sizes), units)) for units in (n, m)),
        bits_for(0, n, m),
        watched,
    )


@lean
def evaluate_exactly(state: State, exact: Exact, best: float, values: NDArray[np.float64]) -> bool:
    """Fill in the mean log-likelihoods (parts,) in nats, and return whether Python need not look at them.

    It needs to if a number is not finite, if a value is rounded to more than 0, or if that of the watched
    part is better than ``best``.
    """
    if not is_finite(state):
        return False
    log_z = log_z_of(state.W, state.b, state.c, exact.gray)
    for part in range(values.size):
        rows = exact.rows[exact.ends[part] : exact.ends[part + 1]]
        size = min(BLOCK, rows.shape[0])
        given = (state.W, state.b, state.c), rows, exact.unit
        total = sum_of_scores(*given, exact.x[:size], exact.activation[:size], exact.bits)
        values[part] = total / rows.shape[0] - log_z
        if not -np.inf < values[part] <= 0 or (part == exact.watched and values[part] > best):
            return False
    return True


@lean
def is_finite(state: State) -> bool:
    """Whether all numbers of a state are finite."""
    for rows in (state.W, state.h, state.aside_h, state.velocity_W):
        for r in range(rows.shape[0]):
            for value in rows[r]:
                if not np.isfinite(value):
                    return False
    vectors = state.b, state.c, state.mu, state.lam, state.velocity_b, state.velocity_c
    for vector in vectors:
        for value in vector:
            if not np.isfinite(value):
                return False
    return True
