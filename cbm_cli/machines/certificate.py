"""A proved lower bound of log Z, from states whose weight is known.

The weight of a state of x is exp(-F(x)), with h summed out. No weight is negative, so
that those of some distinct states sum to at most Z, however they were found: log Z >=
logsumexp(-F(x)). Float32 tells which states are heavy; what they prove of the float32
machine is summed in float64, less what that may round.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp

from cbm_cli.kernels.machine import Array, Rows
from cbm_cli.machines import streams
from cbm_cli.machines.bounds import posterior_of
from cbm_cli.machines.models import Flat
from cbm_cli.reference import entropy, free_energy

_TEMPERATURES = 300  # of AIS for each sweep of the chains from the heaviest states
_SWEEPS = 5  # of chains from starts that need neither rows nor walks
_HEAVIEST = 2_000  # states, or rows, that are summed: the others hardly add to the sum
_MIRRORED = 20  # rows whose mirror images are starts
_BLOCK = 1_000  # chains at a time

Values = NDArray[np.float64]
Known = tuple[
    Rows, Values
]  # rows, or bits of states, and the logarithms of their weights or of lower bounds


def rounding(machine: Flat) -> float:
    """Return how far -F(x), or the mean-field bound of a row, can be off in float64,
    whatever x is.

    A sum of n terms errs by at most n eps times the sum of their absolute values; twice
    as much is returned. A unit adds at most log 2 to its softplus or its entropy.
    """
    total = sum(
        float(np.abs(array).sum(dtype=np.float64)) for array in machine.plain
    ) + sum(machine.W.shape)
    return 2 * (sum(machine.W.shape) + 10) * float(np.finfo(np.float64).eps) * total


def log_z_at_least(
    machine: Flat,
    ends: Array,
    rows: Sequence[Known],
    unit: float,
    steps: int,
    seed: int,
) -> float:
    """Prove a lower bound of log Z: by the ends of walks (R, N), rows of data, and
    states of Gibbs chains.

    Some chains begin where neither rows nor walks are needed: at all hidden units off,
    all on and each one on alone, at the visible units that each hidden unit prefers,
    and at mirror images of rows. R others begin at the heaviest states of all and make
    a sweep for every 300 of ``steps`` temperatures. A row of a deep machine lacks the
    deep units, so it is not a state of x. The larger of two sums counts: over rows, or
    over states. Grey rows are not states either.
    """
    (n, m), random = machine.W.shape, streams.generator(seed, streams.KNOWN)
    points = _heaviest_rows(machine, rows, unit)
    nearest = np.rint(points)
    hidden = np.vstack(
        [np.zeros((1, m), bool), np.ones((1, m), bool), np.eye(m, dtype=bool)]
    )
    starts = np.vstack(
        [_visible(machine, hidden, random), machine.W.T > 0, 1 - nearest[:_MIRRORED]]
    )
    found = [*_chains(machine, np.vstack([ends, nearest]), 0, random)]
    for first in range(0, len(starts), _BLOCK):
        found += _chains(machine, starts[first : first + _BLOCK], _SWEEPS, random)
    bits, weights = _distinct(found)
    heavy = np.unpackbits(bits[np.argsort(weights)[-len(ends) :]], axis=1, count=n)
    chains = _chains(machine, heavy, max(1, steps // _TEMPERATURES), random)
    bits, weights = _distinct([(bits, weights), *chains])
    proved = _log_sum(
        machine, np.unpackbits(bits[np.argsort(weights)[-_HEAVIEST:]], axis=1, count=n)
    )
    return (
        max(proved, _log_sum(machine, points))
        if machine.is_deep and unit == 1
        else proved
    )


def _heaviest_rows(machine: Flat, rows: Sequence[Known], unit: float) -> Array:
    """The distinct rows of most weight, with means of the deep units, (n, N); the
    heaviest first.
    """
    if not rows:
        return np.zeros((0, len(machine.W)), np.float32)
    given, weights = (np.concatenate([known[k] for known in rows]) for k in (0, 1))
    given = given[np.argsort(-weights, kind="stable")[:_HEAVIEST]]
    x = given[np.sort(np.unique(given, axis=0, return_index=True)[1])] * np.float32(
        unit
    )
    return np.hstack([x, posterior_of(machine, x).deep]) if machine.is_deep else x


def _visible(machine: Flat, h: NDArray, random: np.random.Generator) -> Array:
    """Draw x (n, N) given hidden states."""
    p = expit(h.astype(np.float32) @ machine.W.T + machine.b)
    return (random.random(p.shape, np.float32) < p).astype(np.float32)


def _chains(
    machine: Flat, x: NDArray, sweeps: int, random: np.random.Generator
) -> Iterator[tuple[Rows, Values]]:
    """The states of chains that begin at states x (n, N), sweep after sweep: their
    bits, and -F(x) (n,).
    """
    W, b, c = machine.plain
    x = x.astype(np.float32)
    for sweep in range(sweeps + 1):
        to_h = x @ W + c
        p = 1 / (1 + np.exp(-np.abs(to_h)))  # of the likelier state of each hidden unit
        softplus = np.maximum(to_h, 0) - np.log(p)
        yield np.packbits(x > 0, axis=1), x @ b + softplus.sum(axis=1, dtype=np.float64)
        if sweep < sweeps:
            on = np.float32(0.5) + np.copysign(p - np.float32(0.5), to_h)  # Eq. (6)
            x = _visible(machine, random.random(to_h.shape, np.float32) < on, random)


def _distinct(known: Sequence[Known]) -> Known:
    """The distinct states, by their bits, and their weights."""
    bits, weights = map(np.concatenate, zip(*known, strict=True))
    first = np.unique(bits.view(f"V{bits.shape[1]}").ravel(), return_index=True)[1]
    return bits[first], weights[first]


def _log_sum(machine: Flat, x: NDArray) -> float:
    """Return a number that the logarithm of the sum of the weights of distinct points x
    (n, N) exceeds.

    A point is a state, or a row with means of the deep units: as -F is convex, -F(x)
    and the entropy of the means bound the weight of the row.
    """
    points, plain = (
        x.astype(np.float64),
        [array.astype(np.float64) for array in machine.plain],
    )
    means = entropy(x[:, machine.sizes[0] :].astype(np.float64))
    total = float(logsumexp(means - free_energy(points, *plain))) if len(x) else -np.inf
    return (
        total - rounding(machine) - 1e-12 * (1 + abs(total))
        if np.isfinite(total)
        else total
    )
