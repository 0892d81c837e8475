"""Gradients of restricted Boltzmann machines in float64: standard, centered and natural.

Expectations are exact sums over all states unless a model phase is given. Functions take one plain machine
W (N, M), b (N,), c (M,) or a stack of machines, with axes in front that are kept, written (..., N, M).
Gradients are of the mean log-likelihood of the rows, in nats.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp

from cbm_cli.kernels.machine import Machine
from cbm_cli.kernels.natural import FISHERS, Direction, add_up_fisher, find_moments, make_natural, solve
from cbm_cli.machines.limits import check_fisher

Wide = NDArray[np.float64]

BLOCK = 4096  # states of one side, or rows of data, in one product


class ByParameter(NamedTuple):
    """One number per parameter: a gradient, or the expectations <x h'>, <x>, <h>."""

    W: Wide  # (..., N, M)
    b: Wide  # (..., N)
    c: Wide  # (..., M)

    def flat(self) -> Wide:
        """As vectors (..., P), P = N M + N + M: W row by row, then b, then c."""
        return np.concatenate([self.W.reshape(*self.W.shape[:-2], -1), self.b, self.c], axis=-1)

    def shaped(self, vector: Wide) -> "ByParameter":
        """Vectors (..., P) in the shapes of this one."""
        first, second = self.W.shape[-2] * self.W.shape[-1], -self.c.shape[-1]
        W, b, c = vector[..., :first], vector[..., first:second], vector[..., second:]
        return ByParameter(W.reshape(self.W.shape), b, c)


def states(width: int, first: int = 0, last: int | None = None) -> Wide:
    """States number first, ..., last - 1 of ``width`` binary units, by default all; unit 0 is the lowest."""
    numbers = np.arange(first, 2**width if last is None else last)
    return ((numbers[:, None] >> np.arange(width)) & 1).astype(np.float64)


def hidden_mean(W: Wide, c: Wide, x: Wide) -> Wide:
    """E[h | x] for rows x (R, N): (..., R, M)."""
    return expit(x @ W + c[..., None, :])


def free_energy(W: Wide, b: Wide, c: Wide, x: Wide) -> Wide:
    """-log sum_h exp(-E(x, h)) for rows x (R, N): (..., R), in nats."""
    return -(b @ x.T) - np.logaddexp(0, x @ W + c[..., None, :]).sum(axis=-1)


def log_partition(W: Wide, b: Wide, c: Wide) -> Wide:
    """log Z (...), by the sum over all states of the smaller side."""
    if W.shape[-1] > W.shape[-2]:
        return log_partition(W.swapaxes(-1, -2), c, b)
    minus_energies = [-free_energy(W.swapaxes(-1, -2), c, b, h) for h in _state_blocks(W.shape[-1])]
    return logsumexp(np.concatenate(minus_energies, axis=-1), axis=-1)


def exact_moments(W: Wide, b: Wide, c: Wide) -> ByParameter:
    """<x h'>, <x>, <h> under the model, by the sum over all states of the smaller side."""
    turned = W.swapaxes(-1, -2)
    if W.shape[-1] > W.shape[-2]:
        moments = exact_moments(turned, c, b)
        return ByParameter(moments.W.swapaxes(-1, -2), moments.c, moments.b)
    log_z = log_partition(W, b, c)[..., None]
    total = ByParameter(np.zeros(W.shape), np.zeros(b.shape), np.zeros(c.shape))
    for h in _state_blocks(W.shape[-1]):
        p = np.exp(-free_energy(turned, c, b, h) - log_z)  # (..., S)
        x = hidden_mean(turned, b, h)  # (..., S, N)
        xh = x.swapaxes(-1, -2) @ (p[..., None] * h)
        total = ByParameter(total.W + xh, total.b + (p[..., None, :] @ x)[..., 0, :], total.c + p @ h)
    return total


def _state_blocks(width: int) -> Iterator[Wide]:
    for first in range(0, 2**width, BLOCK):
        yield states(width, first, min(first + BLOCK, 2**width))


def data_moments(W: Wide, c: Wide, rows: NDArray, unit: float = 1.0) -> ByParameter:
    """<x h'>, <x>, <h> under the data: rows (n, N) times ``unit``, with h by its mean given x."""

    def sums(x: Wide) -> Wide:
        h = hidden_mean(W, c, x)
        return np.concatenate([x.T @ h, h.sum(axis=-2)[..., None, :]], axis=-2)  # (..., N + 1, M)

    moments = mean_over_rows(sums, rows, unit)
    x_mean = unit * rows.mean(axis=0, dtype=np.float64)
    return ByParameter(moments[..., :-1, :], np.broadcast_to(x_mean, W.shape[:-1]), moments[..., -1, :])


def mean_over_rows(sums: Callable[[Wide], Wide], rows: NDArray, unit: float = 1.0) -> Wide:
    """Mean over rows (n, N) times ``unit`` of a quantity that ``sums`` adds up over blocks (R, N)."""
    blocks = (unit * rows[first : first + BLOCK].astype(np.float64) for first in range(0, len(rows), BLOCK))
    total: Any = sum(sums(x) for x in blocks)
    return total / len(rows)


def standard_gradient(W: Wide, b: Wide, c: Wide, rows: NDArray, unit: float = 1.0) -> ByParameter:
    """<.>_d - <.>_m of x h', x and h: the gradient of the mean log-likelihood."""
    data, model = data_moments(W, c, rows, unit), exact_moments(W, b, c)
    return ByParameter(*(of_data - of_model for of_data, of_model in zip(data, model, strict=True)))


def centered(gradient: ByParameter, mu: Wide, lam: Wide) -> ByParameter:
    """The centered gradient from the standard one, as a change of the plain parameters, Eqs. (13)-(15).

    <(x - mu)(h - lam)'>_d - <(x - mu)(h - lam)'>_m is multiplied out, since constants cancel; mu (..., N),
    lam (..., M).
    """
    W, b, c = gradient
    W = W - mu[..., :, None] * c[..., None, :] - b[..., :, None] * lam[..., None, :]
    return ByParameter(W, b - (W @ lam[..., None])[..., 0], c - (mu[..., None, :] @ W)[..., 0, :])


def natural_gradient(
    W: Wide, b: Wide, c: Wide, gradient: ByParameter, fisher: str = "joint", damping: float = 0.0
) -> ByParameter:
    """The solution d of (F + damping I) d = gradient; NaN for machines with a singular matrix (Amari 1998).

    F is the covariance of s = (x h', x, h): joint, under p(x, h), as the paper prints it, of full rank for
    finite parameters; marginal, of E[s | x] under p(x), as it is defined, of rank 2^N - 1 at most; diagonal,
    the diagonal of the joint one. CbmError for more than 2^16 joint states, unless it is diagonal.
    """
    if fisher == "diagonal":
        p = exact_moments(W, b, c).flat()
        variances = p * (1 - p) + damping  # of binary variables
        regular = (variances > 0).all(axis=-1, keepdims=True)
        return gradient.shaped(gradient.flat() / np.where(regular, variances, np.nan))
    n, m = W.shape[-2:]
    check_fisher("gradient", fisher, 1.0, n, m, "use estimate: samples")
    work = make_natural(Direction(FISHERS[fisher], damping=damping), n, m, 0)
    stack = (a.reshape(-1, *a.shape[W.ndim - 2 :]) for a in (W, b, c, *gradient))
    found = []
    for *plain, dW, db, dc in zip(*stack, strict=True):
        work.gradient[:] = np.block([[dW, db[:, None]], [dc, 0.0]])
        find_moments(Machine(*plain, *plain[1:]), work)
        add_up_fisher(work)
        found.append(np.where(solve(work) >= n * m + n + m, work.direction, np.nan))
    d = np.reshape(found, (*W.shape[:-2], n + 1, m + 1))
    return ByParameter(d[..., :n, :m], d[..., :n, m], d[..., n, :m])
