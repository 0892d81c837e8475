"""A proved lower bound of log Z: the largest of several.

- States. The weight of a state of x is exp(-F(x)), with h summed out. No weight is
  negative, so that those of some distinct states sum to at most Z, however they were
  found: log Z >= logsumexp(-F(x)).
- All states of the smaller side, if it has few units.
- Independent units, see `factorial`.

Float32 finds states and means. Their bound of the float32 machine is summed in
float64, less what that may round.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp

from cbm_cli.kernels.memory import Array, Rows
from cbm_cli.kernels.states import log_partition
from cbm_cli.machines import streams
from cbm_cli.machines.bounds import Values, posterior_of
from cbm_cli.machines.factorial import log_z_by_means
from cbm_cli.machines.models import Flat
from cbm_cli.reference import entropy, free_energy

_TEMPERATURES = 300  # of AIS for each sweep of the chains from the heaviest states
_SWEEPS = 5  # of chains from starts that need neither rows nor walks
_HEAVIEST = 2_000  # states, or rows, that are summed: the others hardly add to the sum
_MIRRORED = 20  # rows whose mirror images are starts
_BLOCK = 1_000  # chains at a time
_LISTED_BITS = 16  # units of a side up to which all of its states are summed

# What sums may be off by, in units of `rounding`. `log_partition` goes from state to
# state for 1,024 states, and rounds three times in a step.
_ROUNDING_OF_SUM = 4096
# Let S_j = |c_j| + sum_i |W_ij|. In `expected_softplus` a phase is off by N eps omega
# S_j and a product by N eps, up to 19 times as much in the last cosine. Summed with
# their weights tau, cosines are off by at most 40 N eps (S_j + 2).
_ROUNDING_OF_MEANS = 100


class Scored(NamedTuple):
    """Rows, or states, and the logarithms of their weights or of lower bounds."""

    rows: Rows  # (n, n_0) of data, or (n, bytes) the packed bits of states
    scores: Values  # (n,)


def rounding(machine: Flat) -> float:
    """Return how far -F(x), or the mean-field bound of a row, can be off in float64,
    whatever x is.

    A sum of n terms errs by at most n eps times the sum of their absolute values; twice
    as much is returned. A unit adds at most log 2 to its softplus or its entropy.
    """
    units = sum(machine.W.shape)
    sizes = [float(np.abs(array).sum(dtype=np.float64)) for array in machine.plain]
    eps = float(np.finfo(np.float64).eps)
    return 2 * (units + 10) * eps * (sum(sizes) + units)


def log_z_at_least(
    machine: Flat,
    ends: Array,
    rows: Sequence[Scored],
    unit: float,
    steps: int,
    seed: int,
) -> float:
    """Prove a lower bound of log Z.

    Parameters
    ----------
    ends : (R, N)
        Where the walks of AIS end.
    rows
        Rows of data with log p(v) + log Z, or with lower bounds of it.
    unit
        The value of one level of the rows. Grey rows are not states.
    steps
        Temperatures of AIS, which limit the length of chains.
    """
    points = _heaviest_rows(machine, rows, unit)
    states = _heaviest_states(machine, ends, points, steps=steps, seed=seed)
    proofs = [_log_sum(machine, states)]
    if machine.is_deep and unit == 1:
        # a row lacks the deep units, so it is not a state of x
        proofs.append(_log_sum(machine, points))
    if min(machine.W.shape) <= _LISTED_BITS:
        margin = _ROUNDING_OF_SUM * rounding(machine)
        proofs.append(log_partition(*machine.plain) - margin)
    else:
        starts = np.vstack([ends, states[-len(ends) :]])
        margin = _ROUNDING_OF_MEANS * rounding(machine)
        proofs.append(log_z_by_means(machine, starts) - margin)
    return max(proofs)


def _heaviest_rows(machine: Flat, rows: Sequence[Scored], unit: float) -> Array:
    """The distinct rows of most weight, with means of the deep units, (n, N); the
    heaviest first.
    """
    if not rows:
        return np.zeros((0, len(machine.W)), np.float32)
    all_rows = np.concatenate([part.rows for part in rows])
    scores = np.concatenate([part.scores for part in rows])
    heaviest = all_rows[np.argsort(-scores, kind="stable")[:_HEAVIEST]]
    first = np.unique(heaviest, axis=0, return_index=True)[1]
    x = heaviest[np.sort(first)] * np.float32(unit)
    if not machine.is_deep:
        return x
    return np.hstack([x, posterior_of(machine, x).deep])


def _heaviest_states(
    machine: Flat, ends: Array, points: Array, *, steps: int, seed: int
) -> NDArray[np.uint8]:
    """The heaviest states of x that were seen, at most 2,000, (n, N); the heaviest
    last.

    These are ends (R, N) of walks, the states nearest to points (n, N), and states of
    Gibbs chains. Some chains begin where neither rows nor walks are needed: at all
    hidden units off, all on and each one on alone, at the visible units that each
    hidden unit prefers, and at mirror images of points. R others begin at the heaviest
    states of all and make a sweep for every 300 of ``steps`` temperatures.
    """
    n, m = machine.W.shape
    random = streams.generator(seed, streams.KNOWN)
    nearest = np.rint(points)
    off, on = np.zeros((1, m), bool), np.ones((1, m), bool)
    hidden = np.vstack([off, on, np.eye(m, dtype=bool)])
    from_hidden = _visible(machine, hidden, random)
    preferred = machine.W.T > 0
    starts = np.vstack([from_hidden, preferred, 1 - nearest[:_MIRRORED]])

    seen = list(_chains(machine, np.vstack([ends, nearest]), sweeps=0, random=random))
    for first in range(0, len(starts), _BLOCK):
        block = starts[first : first + _BLOCK]
        seen.extend(_chains(machine, block, sweeps=_SWEEPS, random=random))
    states = _distinct(seen)
    heavy = _heaviest(states, len(ends), n)
    sweeps = max(1, steps // _TEMPERATURES)
    later = _chains(machine, heavy, sweeps=sweeps, random=random)
    return _heaviest(_distinct([states, *later]), _HEAVIEST, n)


def _visible(machine: Flat, h: NDArray, random: np.random.Generator) -> Array:
    """Draw x (n, N) given hidden states."""
    p = expit(h.astype(np.float32) @ machine.W.T + machine.b)
    return (random.random(p.shape, np.float32) < p).astype(np.float32)


def _chains(
    machine: Flat, x: NDArray, *, sweeps: int, random: np.random.Generator
) -> Iterator[Scored]:
    """The states of chains that begin at states x (n, N), sweep after sweep: their
    bits, and -F(x) (n,).
    """
    W, b, c = machine.plain
    x = x.astype(np.float32)
    half = np.float32(0.5)
    for sweep in range(sweeps + 1):
        to_h = x @ W + c
        likelier = 1 / (1 + np.exp(-np.abs(to_h)))  # p of the likelier state of a unit
        softplus = np.maximum(to_h, 0) - np.log(likelier)
        scores = x @ b + softplus.sum(axis=1, dtype=np.float64)
        yield Scored(rows=np.packbits(x > 0, axis=1), scores=scores)
        if sweep < sweeps:
            on = half + np.copysign(likelier - half, to_h)  # sigmoid(to_h), Eq. (6)
            h = random.random(to_h.shape, np.float32) < on
            x = _visible(machine, h, random)


def _distinct(parts: Sequence[Scored]) -> Scored:
    """The distinct states of all parts, by their bits."""
    bits = np.concatenate([part.rows for part in parts])
    scores = np.concatenate([part.scores for part in parts])
    as_one = bits.view(f"V{bits.shape[1]}").ravel()
    first = np.unique(as_one, return_index=True)[1]
    return Scored(rows=bits[first], scores=scores[first])


def _heaviest(states: Scored, count: int, units: int) -> NDArray[np.uint8]:
    """The states of most weight (count, units), the heaviest last."""
    bits = states.rows[np.argsort(states.scores)[-count:]]
    return np.unpackbits(bits, axis=1, count=units)


def _log_sum(machine: Flat, x: NDArray) -> float:
    """Return a number that the logarithm of the sum of the weights of distinct points x
    (n, N) exceeds.

    A point is a state, or a row with means of the deep units: as -F is convex, -F(x)
    and the entropy of the means bound the weight of the row.
    """
    if not len(x):
        return -np.inf
    points = x.astype(np.float64)
    plain = [array.astype(np.float64) for array in machine.plain]
    of_means = entropy(points[:, machine.sizes[0] :])
    total = float(logsumexp(of_means - free_energy(points, *plain)))
    if not np.isfinite(total):
        return total
    return total - rounding(machine) - 1e-12 * (1 + abs(total))
