"""Mean field of a flattened Boltzmann machine, and the lower bounds of its
log-likelihood.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from cbm_cli.kernels.machine import Array, Machine
from cbm_cli.kernels.mean_field import hear_visible, make_deep, mean_field
from cbm_cli.machines.models import Flat
from cbm_cli.reference import energy, entropy

TOLERANCE = 1e-4  # mean field has converged if a round changes no mean by as much
ROUNDS = 100  # of mean field, at most

Values = NDArray[np.float64]


class Posterior(NamedTuple):
    """Factorial approximation of p(deep, odd | visible) for n rows."""

    deep: Array  # (n, E) means of the deep units
    odd: Array  # (n, M') means of the odd units
    unsettled: int  # rows that one more round would still change by the tolerance


def posterior_of(
    machine: Flat, x: Array, tolerance: float = TOLERANCE, rounds: int = ROUNDS
) -> Posterior:
    """Means of q(deep, odd | v) for rows v (n, n_0) float32: mean field of section 3.2,
    from ``start``.

    In turn deep = sigmoid(W_deep odd + b), Eq. (5), and odd = sigmoid(v W_visible +
    deep W_deep + c), Eq. (6). Those of an RBM are exact.
    """
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
    """Entropy of q less the mean energy (4) of rows x (n, n_0), (n,) in nats: at most
    log p(v) + log Z.

    The variational bound of Salakhutdinov & Hinton 2009, in float64;
    `reference.lower_bound`.
    """
    deep, odd = (means.astype(np.float64) for means in posterior[:2])
    W, b, c = (array.astype(np.float64) for array in machine.plain)
    return entropy(deep) + entropy(odd) - energy(np.hstack([x, deep]), odd, W, b, c)
