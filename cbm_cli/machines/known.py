"""A proved lower bound of log Z, from states whose weight is known.

The weight of a state of x is exp(-F(x)), with h summed out. No weight is negative, so that those of some
distinct states sum to at most Z, however they were found: log Z >= logsumexp(-F(x)).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cbm_cli.kernels.annealing import Walks, anneal, weigh
from cbm_cli.kernels.machine import Array, Rows, room
from cbm_cli.kernels.products import binary_product, product
from cbm_cli.kernels.states import sum_of_new
from cbm_cli.machines.estimates import ShouldStop, Stopped

_ROUNDING = 1e-6  # of log Z, relative: kernels sum in float32
_TEMPERATURES = 150  # of AIS for each sweep of the chains that look for states: under 1% of its time

Values = NDArray[np.float64]
Known = tuple[NDArray, Values]  # states (R, n), and the logarithms (R,) of their weights or of lower bounds


def log_weights(walks: Walks) -> Values:
    """Return -F(x) (R,) of the states of walks, by the step of annealing from a machine of zeros."""
    walks = walks._replace(base=np.zeros_like(walks.base))
    walks.log_weight[:] = len(walks.c) * np.log(2)
    weigh(walks, np.float32(0), np.float32(1))
    return walks.log_weight.copy()


def log_weights_of(rows: Rows, walks: Walks, unit: float, should_stop: ShouldStop) -> Values:
    """Return -F(x) (n,) of rows (n, N), by the machine and work arrays of walks; may raise Stopped."""
    found, size = np.empty(len(rows)), len(walks.x)
    walks = walks._replace(x=room(walks.x.shape), to_h=room(walks.h.shape))
    walks.x[:] = 0
    for start in range(0, len(rows), size):
        if should_stop():
            raise Stopped
        block = rows[start : start + size]
        walks.x[: len(block)] = block
        if unit == 1:
            binary_product(walks.x, walks.x_bits, walks.W, False, walks.to_h)
        else:
            walks.x[: len(block)] *= np.float32(unit)
            product(walks.x, walks.W, walks.to_h)
        found[start : start + size] = log_weights(walks)[: len(block)]
    return found


def log_z_at_least(
    walks: Walks, rows: Sequence[Known], unit: float, deep: Array, steps: int, seed: int
) -> float:
    """Prove a lower bound of log Z: by the ends of walks, rows of data, and states of Gibbs chains.

    The chains start at the heaviest of the others and make a sweep for every 150 of ``steps`` temperatures.
    In a deep machine, whose deep units start at the means ``deep`` (E,), a row (n_0,) is no state of x: then
    the sum over rows counts or that over states, whichever is more. Grey rows are no states either.
    """
    found = [(walks.x.copy(), log_weights(walks))]
    walks.x[:] = heaviest(found, rows, unit, deep, len(walks.x))
    product(walks.x, walks.W, walks.to_h)
    sweeps = max(1, steps // _TEMPERATURES)
    betas = np.ones(sweeps + 1, np.float32)
    chains = walks._replace(base=np.zeros_like(walks.base))
    for sweep in range(sweeps):
        betas[sweep : sweep + 2] = 1, 0  # a sweep of the machine, then the step from it to one of zeros
        walks.log_weight[:] = 0
        anneal(chains, betas, np.uint64(seed), sweep, sweep + 1)
        found.append((walks.x.copy(), len(walks.c) * np.log(2) - walks.log_weight))
    states, weights = map(np.concatenate, zip(*found, strict=True))
    binary, ends = rows if unit == 1 else (), (states, weights)
    return max(log_sum(binary), log_sum([ends])) if len(deep) else log_sum([*binary, ends])


def heaviest(found: Sequence[Known], rows: Sequence[Known], unit: float, deep: Array, count: int) -> Array:
    """Return the states (R, N) of most weight among those found and the rows, at most ``count``."""
    states, weights = ([known[k] for known in found] for k in (0, 1))
    for x, own in rows:
        order = np.argpartition(own, -count)[-count:] if len(own) > count else np.arange(len(own))
        order = order[np.argsort(own[order])]
        given = x[order] * np.float32(unit)
        states.append(np.hstack([given, np.tile(deep, (len(given), 1))]))
        weights.append(own[order])
    return np.concatenate(states)[np.argsort(np.concatenate(weights))[-count:]]


def log_sum(known: Sequence[Known]) -> float:
    """Return the logarithm of the sum of the weights of distinct states, less what may be rounding.

    Of two states whose hashes agree one is left out, which leaves less in the sum. Without states it is -inf.
    """
    top = max((weights.max() for _, weights in known), default=-np.inf)
    if not np.isfinite(top):
        return float(top)
    count, width = sum(len(x) for x, _ in known), known[0][0].shape[1]
    factors = np.random.default_rng(0).integers(2**63, size=width, dtype=np.uint64) * 2 + 1
    seen = np.zeros(1 << count.bit_length(), np.uint64)
    sums = [sum_of_new(x.astype(np.uint8, copy=False), own - top, factors, seen) for x, own in known]
    total = top + np.log(sum(sums))
    return float(total - _ROUNDING * max(1, abs(total)))
