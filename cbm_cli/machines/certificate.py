"""A proved lower bound of log Z: the largest of several.

- States. The weight of a state of x is exp(-F(x)), with h summed out. No weight is
  negative, so that those of some distinct states sum to at most Z, however they were
  found: log Z >= logsumexp(-F(x)).
- All states of the smaller side, if it has few units.
- Independent units, see `factorial`.

Float32 finds states and means. Their bound of the float32 machine is summed in
float64, less what that may round.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp

from cbm_cli.kernels.memory import Array, Rows
from cbm_cli.kernels.states import log_partition
from cbm_cli.machines.bounds import Values, posterior_of
from cbm_cli.machines.factorial import log_z_by_means
from cbm_cli.machines.models import Flat
from cbm_cli.reference import entropy, free_energy

_STEPS = 5  # to heavier states
_HEAVIEST = 2_000  # states, or rows, that are summed: the others hardly add to the sum
_MIRRORED = 20  # rows whose mirror images are starts
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
    machine: Flat, ends: Array, rows: Sequence[Scored], unit: float
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
    """
    points = _heaviest_rows(machine, rows, unit)
    states = _known_states(machine, ends, points)
    proofs = [_log_sum(machine, states[:_HEAVIEST]), by_all_states(machine)[0]]
    if machine.is_deep and unit == 1:
        # a row lacks the deep units, so it is not a state of x
        proofs.append(_log_sum(machine, points))
    if min(machine.W.shape) > _LISTED_BITS:
        starts = np.vstack([ends, states[: len(ends)]])
        margin = _ROUNDING_OF_MEANS * rounding(machine)
        proofs.append(log_z_by_means(machine, starts) - margin)
    return max(proofs)


def by_all_states(machine: Flat) -> tuple[float, float]:
    """Limits of log Z by the sum over all states of the smaller side, if that has few
    units.
    """
    if min(machine.W.shape) > _LISTED_BITS:
        return -np.inf, np.inf
    log_z = log_partition(*machine.plain)
    margin = _ROUNDING_OF_SUM * rounding(machine)
    return log_z - margin, log_z + margin


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


def _known_states(machine: Flat, ends: Array, points: Array) -> Array:
    """Distinct states of x, (n, N), the heaviest first.

    They are ends (R, N) of walks, and the states nearest to points (n, N). Others need
    neither rows nor walks: the likeliest ones given that all hidden units are off, all
    on, or one of them alone on, the visible units that each hidden unit prefers, and
    mirror images of points. From all of them a few steps lead to heavier states.
    """
    W, b, c = machine.plain
    nearest = np.rint(points)
    all_off = b > 0
    all_on = W.sum(axis=1) + b > 0
    of_hidden = np.vstack([all_off, all_on, W.T + b > 0, W.T > 0])
    starts = np.vstack([ends, nearest, 1 - nearest[:_MIRRORED], of_hidden])
    x = starts
    for _ in range(_STEPS):
        to_x = expit(x @ W + c) @ W.T + b
        x = (to_x > 0).astype(np.float32)
    distinct = {state.tobytes(): state for state in np.vstack([starts, x]) > 0}
    states = np.array([*distinct.values()], np.float32)
    return states[np.argsort(free_energy(states, W, b, c), kind="stable")]


def _log_sum(machine: Flat, x: NDArray) -> float:
    """Return a number that the logarithm of the sum of the weights of distinct points x
    (n, N) exceeds.

    A point is a state, or a row with means of the deep units: as -F is convex, -F(x)
    and the entropy of the means bound the weight of the row.
    """
    if not len(x):
        return -np.inf
    points = x.astype(np.float64)
    of_means = entropy(points[:, machine.sizes[0] :])
    total = float(logsumexp(of_means - free_energy(points, *machine.plain.wide)))
    if not np.isfinite(total):
        return total
    return total - rounding(machine) - 1e-12 * (1 + abs(total))
