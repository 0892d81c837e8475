"""Mean field of a flattened Boltzmann machine, and the lower bounds of its log-likelihood."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from cbm_cli.kernels.machine import Array, Machine
from cbm_cli.kernels.mean_field import conjugate_gap, hear_visible, make_deep, mean_field
from cbm_cli.machines.files import Flat
from cbm_cli.reference import energy, entropy

TOLERANCE = 1e-4  # mean field has converged if a round changes no mean by as much
ROUNDS = 100  # of mean field, at most

Values = NDArray[np.float64]


class Posterior(NamedTuple):
    """Factorial approximation of p(deep, odd | visible) for n rows."""

    deep: Array  # (n, E) means of the deep units
    odd: Array  # (n, M') means of the odd units
    unsettled: int  # rows that one more round would still change by the tolerance


def posterior_of(machine: Flat, x: Array, tolerance: float = TOLERANCE, rounds: int = ROUNDS) -> Posterior:
    """The mean-field posterior of the rows x (n, n_0) float32; it is exact for an RBM."""
    n_visible, c = machine.sizes[0], machine.c
    work = make_deep(len(x), n_visible, len(machine.start), len(c))
    work.visible[:], work.even[:] = x, machine.start
    plain = Machine(*machine.plain, machine.b, machine.c)
    hear_visible(plain, work, bool(((x == 0) | (x == 1)).all()))
    if not machine.is_deep:
        return Posterior(work.even, expit(work.from_visible + c), 0)
    made = mean_field(plain, work, np.float32(tolerance), rounds)
    if made <= rounds:
        return Posterior(work.even, work.odd, 0)
    W, b = machine.W[n_visible:], machine.b[n_visible:]
    next_deep = expit(work.odd @ W.T + b)
    next_odd = expit(work.from_visible + next_deep @ W + c)
    change = np.abs(np.hstack([next_deep - work.even, next_odd - work.odd])).max(axis=1)
    return Posterior(work.even, work.odd, int((change >= tolerance).sum()))


def lower_bounds(machine: Flat, x: Array, posterior: Posterior) -> Values:
    """Variational bounds (n,) of log p(v) + log Z (Salakhutdinov & Hinton 2009); `reference.lower_bound`."""
    deep, odd = (means.astype(np.float64) for means in posterior[:2])
    W, b, c = (array.astype(np.float64) for array in machine.plain)
    return entropy(deep) + entropy(odd) - energy(np.hstack([x, deep]), odd, W, b, c)


def tightening(
    machine: Flat, posterior: Posterior, samples: int, random: np.random.Generator
) -> tuple[Values, Values]:
    """Return how much the bound of each row gains if the deep layers are summed out: mean, standard error.

    The posterior q of the odd layers alone bounds log p(v) too, by E_q[log sum_deep exp(-E)] + H(q), which
    is tight if p(odd | v) is factorial, whatever p(deep | odd) is. With two hidden layers, the last one is
    summed out. The bound exceeds the mean-field one by E_q[KL(q(deep) || p(deep | odd))]; the expectation
    over the odd units is estimated by samples, each of them non-negative. Both results are (n,), in nats.
    """
    W, b = machine.W[machine.sizes[0] :], machine.b[machine.sizes[0] :]
    gains = np.empty((samples, len(posterior.odd)))
    for gain in gains:
        odd = (random.random(posterior.odd.shape, np.float32) < posterior.odd).astype(np.float32)
        conjugate_gap(odd @ W.T, b, posterior.deep, gain)  # (n, M') @ (M', E)
    gains -= entropy(posterior.deep.astype(np.float64))
    return gains.mean(axis=0), gains.std(axis=0, ddof=1) / np.sqrt(samples)
