"""Log-likelihoods of rows: given log Z, and of a machine that is being trained."""

from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

import numpy as np

from cbm_cli.kernels.bits import Bits, bits_for, product_of_rows, worth_packing
from cbm_cli.kernels.compiling import lean, lean_sum
from cbm_cli.kernels.machine import Machine
from cbm_cli.kernels.memory import Array, Counts, Rows, Wide, allocate
from cbm_cli.kernels.sharing import share_out
from cbm_cli.kernels.states import GrayWork, log_z_of, make_gray
from cbm_cli.kernels.units import sum_of_softplus

_ROWS_AT_A_TIME = 224  # of data, in float32


class Scores(NamedTuple):
    """A block of R rows, and work arrays of their scores."""

    x: Annotated[Array, "R N"]  # `sum_of_scores`, as is all
    activation: Annotated[Array, "R M"]
    bits: Bits


def make_scores(rows: int, n: int, m: int, packed: bool = True) -> Scores:
    """Allocate a block of so many rows for a machine of n visible, m hidden units."""
    bits = bits_for(rows if packed else 0, n, m)
    return allocate(Scores, bits=bits, R=rows, N=n, M=m)


def mean_log_likelihood(
    W: Array, b: Array, c: Array, rows: Rows, unit: np.float32, log_z: float
) -> float:
    """Mean over rows (n, N) uint8 of log p(x) in nats, given log Z; rows of unit 1 are
    binary.
    """
    size, (n, m) = min(_ROWS_AT_A_TIME, len(rows)), W.shape
    totals = np.zeros(-(-len(rows) // size))

    def make() -> Callable[[int], None]:
        work = make_scores(size, n, m)

        def score(k: int) -> None:
            block = rows[k * size : (k + 1) * size]
            totals[k] = sum_of_scores(
                (W, b, c), block, np.float32(unit), work=work, size=size
            )

        return score

    share_out(range(len(totals)), make)
    return float(np.add.accumulate(totals)[-1]) / len(rows) - log_z


@lean
def sum_of_scores(
    plain: tuple[Array, Array, Array],
    rows: Rows,
    unit: np.float32,
    work: Scores,
    size: int,
) -> float:
    """Sum over the rows of log sum_h exp(-E(x, h)), in blocks of ``size`` rows;
    `reference.free_energy`.

    Rows of zeros fill the last block, so that all products have one shape.
    """
    (W, b, c), total = plain, 0.0
    x, activation = work.x[:size], work.activation[:size]
    for start in range(0, rows.shape[0], size):
        count = min(size, rows.shape[0] - start)
        for r in range(size):
            for i in range(b.size):
                x[r, i] = unit * rows[start + r, i] if r < count else np.float32(0)
        # (R, N) @ (N, M)
        product_of_rows(x, work.bits, W, unit == 1, out=activation)
        total += unnormalised_log_likelihood(x[:count], activation[:count], b, c)
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

# of states: with more of them Python takes a small share of an evaluation
_MOST_BITS = 12


class Exact(NamedTuple):
    """Rows of all parts, and work arrays of their log-likelihoods."""

    rows: Rows  # (n, N)
    # (parts + 1,) where the parts begin in the rows, and their number
    ends: Counts
    unit: np.float32
    gray: GrayWork
    scores: Scores
    watched: int  # the part whose best value Python wants to see, or -1


def make_exact(
    parts: Sequence[Rows], unit: float, m: int, watched: int
) -> Exact | None:
    """Allocate what evaluations of a machine of m hidden units need; None for one that
    is not small.
    """
    n, sizes = parts[0].shape[1], [min(_ROWS_AT_A_TIME, len(rows)) for rows in parts]
    if min(n, m) > _MOST_BITS or any(worth_packing(size, n, m) for size in sizes):
        return None
    return Exact(
        rows=np.concatenate(parts),
        ends=np.cumsum([0, *map(len, parts)]),
        unit=np.float32(unit),
        gray=make_gray(n, m),
        scores=make_scores(max(sizes), n, m, packed=False),
        watched=watched,
    )


@lean
def evaluate_exactly(machine: Machine, exact: Exact, best: float, values: Wide) -> bool:
    """Fill in the mean log-likelihoods (parts,) in nats, and return whether Python need
    not look at them.

    It needs to if a number is not finite, if a value is rounded to more than 0, or if
    that of the watched part is better than ``best``.
    """
    if not is_finite(machine):
        return False
    plain = machine.W, machine.b, machine.c
    log_z = log_z_of(machine.W, machine.b, machine.c, exact.gray)
    for part in range(values.size):
        rows = exact.rows[exact.ends[part] : exact.ends[part + 1]]
        size = min(_ROWS_AT_A_TIME, rows.shape[0])
        total = sum_of_scores(plain, rows, exact.unit, work=exact.scores, size=size)
        values[part] = total / rows.shape[0] - log_z
        if not -np.inf < values[part] <= 0:
            return False
        if part == exact.watched and values[part] > best:
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
