"""Mean field of a flattened Boltzmann machine, and the lower bounds of its
log-likelihood.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from cbm_cli.kernels.machine import Machine
from cbm_cli.kernels.mean_field import make_deep, mean_field, multiply_visible
from cbm_cli.kernels.memory import Array
from cbm_cli.kernels.plan import ROUNDS, TOLERANCE
from cbm_cli.machines.models import Flat
from cbm_cli.reference import energy, entropy

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
    work = make_deep(
        rows=len(x), visible=n_visible, even=len(machine.start), odd=len(c)
    )
    work.visible[:] = x
    work.even[:] = machine.start
    plain = Machine(W=machine.W, b=machine.b, c=c, mu=machine.b, lam=c)
    is_binary = ((x == 0) | (x == 1)).all()
    multiply_visible(plain, work, bool(is_binary))
    if not machine.is_deep:
        odd = expit(work.from_visible + c)
        return Posterior(deep=work.even, odd=odd, unsettled=0)
    rounds_made = mean_field(plain, work, np.float32(tolerance), rounds)
    if rounds_made <= rounds:
        return Posterior(deep=work.even, odd=work.odd, unsettled=0)
    before = np.hstack([work.even, work.odd])
    mean_field(plain, work, np.float32(tolerance), 1)
    moved = np.abs(np.hstack([work.even, work.odd]) - before)
    is_settled = moved.max(axis=1) < tolerance  # NaN is not
    deep, odd = np.hsplit(before, [len(machine.start)])
    return Posterior(deep=deep, odd=odd, unsettled=int((~is_settled).sum()))


def lower_bounds(machine: Flat, x: Array, posterior: Posterior) -> Values:
    """Entropy of q less the mean energy (4) of rows x (n, n_0), (n,) in nats: at most
    log p(v) + log Z.

    The variational bound of Salakhutdinov & Hinton 2009, in float64;
    `reference.lower_bound`.
    """
    deep, odd = posterior.deep.astype(np.float64), posterior.odd.astype(np.float64)
    mean_energy = energy(np.hstack([x, deep]), odd, *machine.plain.wide)
    return entropy(deep) + entropy(odd) - mean_energy
