"""Estimates of log Z and of log-likelihoods by annealing, with their errors.

AIS: Salakhutdinov & Murray 2008.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from cbm_cli.kernels.annealing import anneal, make_walks
from cbm_cli.kernels.bits.packing import LITTLE_WORK
from cbm_cli.kernels.memory import Array
from cbm_cli.kernels.sharing import CORES, share_out
from cbm_cli.machines import streams

# Shares of the temperatures on [0, 0.5), [0.5, 0.9) and [0.9, 1]; 14,500 give 500,
# 4,000 and 10,000.
SCHEDULE = (
    (0.0, 0.5, 500 / 14_500),
    (0.5, 0.9, 4_000 / 14_500),
    (0.9, 1.0, 10_000 / 14_500),
)
TEMPERATURES, RUNS = 14_500, 100
# nats of a walk's weight, at most a fourth of which was seen with 784x500 units
ROUNDING = 0.01
LONGEST_CALL = 0.5  # seconds of one call of the kernel
_LARGE = 2**20  # weights times walks from which groups of walks share cores
_GROUP = 50  # walks at least; more of them if the machine is small

Plain = tuple[Array, Array, Array]  # W (N, M), b (N,), c (M,), float32
ShouldStop = Callable[[], bool]


class Stopped(Exception):
    """An evaluation was asked to stop before its end."""


def never() -> bool:
    """The default of ``should_stop``."""
    return False


@dataclass(frozen=True)
class Estimate:
    """An estimate of log Z from the log weights of independent runs."""

    log_z: float  # log of the mean weight, plus log Z of the base
    standard_error: float  # of log_z, by the delta method
    # log of the mean weight -+ 3 of its standard errors; may start at -inf
    interval: tuple[float, float]
    effective_sample_size: float  # (sum w)^2 / sum w^2


def apart(first: Sequence[float], second: Sequence[float]) -> bool:
    """Whether two intervals of one log Z do not meet, by more than annealing in float32
    rounds.

    Examples
    --------
    >>> apart((1.0, 2.0), (2.5, 3.0)), apart((1.0, 2.0), (1.9, 3.0))
    (True, False)
    """
    low, high = first
    other_low, other_high = second
    return high + ROUNDING < other_low or other_high + ROUNDING < low


def schedule(temperatures: int = TEMPERATURES) -> Array:
    """Inverse temperatures from 0 to 1, spaced as in Salakhutdinov & Murray 2008.

    Examples
    --------
    >>> schedule(3)
    array([0.  , 0.5 , 0.9 , 0.95, 1.  ], dtype=float32)
    """
    parts = [
        np.linspace(low, high, max(1, round(share * temperatures)), endpoint=False)
        for low, high, share in SCHEDULE
    ]
    return np.concatenate([*parts, [1.0]]).astype(np.float32)


def base_rate(mean: NDArray[np.float64], rows: int) -> Array:
    """Biases of the base-rate machine: the logit of the training mean, smoothed by one
    row of halves.

    Examples
    --------
    >>> base_rate(np.array([0.0, 0.5]), rows=9)
    array([-2.944439,  0.      ], dtype=float32)
    """
    return logit((mean * rows + 0.5) / (rows + 1)).astype(np.float32)


def summarise(log_weights: NDArray[np.float64], log_z_base: float) -> Estimate:
    """Turn log weights into an estimate of log Z."""
    top = log_weights.max()
    weights = np.exp(log_weights - top)
    mean = weights.mean()
    error = weights.std(ddof=1) / np.sqrt(weights.size)
    with np.errstate(divide="ignore", invalid="ignore"):
        low = float(np.log(max(mean - 3 * error, 0.0)))
        high = float(np.log(mean + 3 * error))
    at = float(log_z_base + top)
    return Estimate(
        log_z=float(at + np.log(mean)),
        standard_error=float(error / mean),
        interval=(at + low, at + high),
        effective_sample_size=float(weights.sum() ** 2 / (weights**2).sum()),
    )


def log_z_of_base(base: Array, n_hidden: int) -> float:
    """log Z at inverse temperature 0: independent visible units and n_hidden free
    hidden ones.

    Examples
    --------
    >>> round(log_z_of_base(np.zeros(2, np.float32), n_hidden=3), 6)  # 5 log 2
    3.465736
    """
    return float(np.logaddexp(0, base.astype(np.float64)).sum() + n_hidden * np.log(2))


def ais(
    machine: Plain,
    base: Array,
    seed: int,
    temperatures: int = TEMPERATURES,
    runs: int = RUNS,
    should_stop: ShouldStop = never,
) -> tuple[Estimate, Array]:
    """Estimate log Z by annealing from visible biases ``base`` (N,) upwards; zeros are
    the uniform base.

    The states (R, N) at which the walks end come with it.
    """
    start = streams.generator(seed, streams.AIS_START).random((runs, len(base)))
    x = (start < expit(base.astype(np.float64))).astype(np.float32)
    ends, log_weights = walk(
        machine, base, x, schedule(temperatures), seed, should_stop
    )
    return summarise(log_weights, log_z_of_base(base, machine[0].shape[1])), ends


def walk(
    machine: Plain,
    base: Array,
    x: Array,
    betas: Array,
    seed: int,
    should_stop: ShouldStop = never,
) -> tuple[Array, NDArray[np.float64]]:
    """Walk along ``betas`` from the states x (R, N), in short calls of the kernel: the
    ends and log weights.

    Walks of a large machine share the cores in fixed groups, so that their number
    changes no bytes.
    """
    runs, step, at_once = len(x), 0, 1
    group = _group_of(runs, machine[0].size)
    # The groups of one core make one chunk, and the walks that are left another
    groups = runs // group
    size = group * -(-groups // min(CORES.get(), groups))
    ends = [*range(0, groups * group, size), groups * group, runs]
    chunks = [
        make_walks(machine, base, x[i:j], i, runs, group)
        for i, j in pairwise(ends)
        if i < j
    ]

    def advance(k: int) -> None:
        anneal(chunks[k], betas, np.uint64(seed), step, stop)

    while step < len(betas) - 1:
        if should_stop():
            raise Stopped
        stop = min(step + at_once, len(betas) - 1)
        began = time.perf_counter()
        share_out(range(len(chunks)), lambda: advance)
        if time.perf_counter() - began < LONGEST_CALL / 2:
            at_once *= 2
        step = stop
    states = np.concatenate([chunk.x for chunk in chunks])
    return states, np.concatenate([chunk.log_weight for chunk in chunks])


def _group_of(runs: int, weights: int) -> int:
    """Return how many of so many walks are in a group, whatever the number of cores."""
    if runs * weights < _LARGE:
        return runs
    enough_for_packing = -(-LITTLE_WORK // weights)
    return min(runs, max(_GROUP, enough_for_packing))
