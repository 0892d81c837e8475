"""Gradients of restricted Boltzmann machines in float64: standard, centered and
natural.

Expectations are exact sums over all states unless a model phase is given. Functions
take one plain machine W (N, M), b (N,), c (M,) or a stack of machines, with axes in
front that are kept, written (..., N, M). Gradients are of the mean log-likelihood of
the rows, in nats.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli import reference as ref
from cbm_cli.kernels.machine import Machine
from cbm_cli.kernels.natural import (
    FISHERS,
    NO_VARIANCE,
    Direction,
    find_direction,
    find_moments,
    make_natural,
)
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
        return ref.flat(self)


def _state_blocks(width: int) -> Iterator[Wide]:
    """All states of ``width`` binary units, (S, width) of them at a time; unit 0 is the
    lowest bit.
    """
    for first in range(0, 2**width, BLOCK):
        last = min(first + BLOCK, 2**width)
        yield ref.states(width, first=first, last=last)


def exact_moments(W: Wide, b: Wide, c: Wide) -> ByParameter:
    """<x h'>, <x>, <h> under the model, by the sum over all states of the smaller
    side.

    Examples
    --------
    >>> exact_moments(np.zeros((1, 1)), np.zeros(1), np.zeros(1)).b
    array([0.5])
    """
    n, m = W.shape[-2:]
    if m > n:
        moments = exact_moments(W.mT, c, b)
        return ByParameter(moments.W.mT, moments.c, moments.b)
    p = np.empty((*W.shape[:-2], 2**m))
    for k, h in enumerate(_state_blocks(m)):
        block = slice(k * BLOCK, (k + 1) * BLOCK)
        p[..., block] = -ref.free_energy(h, W.mT, c, b)
    p -= p.max(axis=-1, keepdims=True)
    np.exp(p, out=p)
    p /= p.sum(axis=-1, keepdims=True)
    total = ByParameter(np.zeros_like(W), np.zeros_like(b), np.zeros_like(c))
    for k, h in enumerate(_state_blocks(m)):
        block = slice(k * BLOCK, (k + 1) * BLOCK)
        phase = ref.Ensemble(ref.visible_mean(h, W, b), h, p[..., block])
        of_x, of_h = ref.means(phase)
        total = ByParameter(
            total.W + ref.correlation(phase), total.b + of_x, total.c + of_h
        )
    return total


def mean_over_rows(
    sums: Callable[[Wide], Wide], rows: NDArray, unit: float = 1.0
) -> Wide:
    """Mean over rows (n, N) times ``unit`` of a quantity that ``sums`` adds up over
    blocks (R, N).
    """
    total: Any = 0
    for first in range(0, len(rows), BLOCK):
        total = total + sums(unit * rows[first : first + BLOCK].astype(np.float64))
    return total / len(rows)


def standard_gradient(
    W: Wide, b: Wide, c: Wide, rows: NDArray, unit: float = 1.0
) -> ByParameter:
    """<.>_d - <.>_m of x h', x and h: the gradient of the mean log-likelihood, Eqs.
    (7)-(9) without offsets.

    Data are rows (n, N) times ``unit``, with h by its mean given x.
    """

    def sums(x: Wide) -> Wide:
        h = ref.hidden_mean(x, W, c)
        of_h = h.sum(axis=-2)[..., None, :]
        return np.concatenate([x.T @ h, of_h], axis=-2)  # (..., N + 1, M)

    data = mean_over_rows(sums, rows, unit)
    x_mean = unit * rows.mean(axis=0, dtype=np.float64)
    model = exact_moments(W, b, c)
    return ByParameter(
        W=data[..., :-1, :] - model.W, b=x_mean - model.b, c=data[..., -1, :] - model.c
    )


def centered(gradient: ref.Theta, mu: Wide, lam: Wide) -> ByParameter:
    """The centered gradient from the standard one, as a change of the plain parameters,
    Eqs. (13)-(15).

    <(x - mu)(h - lam)'>_d - <(x - mu)(h - lam)'>_m is multiplied out, since constants
    cancel; mu (..., N), lam (..., M).
    """
    dW, db, dc = gradient
    along_mu = mu[..., :, None] * dc[..., None, :]
    along_lam = db[..., :, None] * lam[..., None, :]
    dW, db, dc = ref.plain_step((dW - along_mu - along_lam, db, dc), mu, lam)
    return ByParameter(dW, db, dc)


def natural_gradient(
    W: Wide,
    b: Wide,
    c: Wide,
    gradient: ByParameter,
    fisher: str = "joint",
    damping: float = 0.0,
) -> ByParameter:
    """A solution d of (F + damping I) d = gradient; 0 along what has no variance
    (Amari 1998).

    F is the covariance of s = (x h', x, h): joint, under p(x, h), as the paper prints
    it, of full rank for finite parameters; marginal, of E[s | x] under p(x), as it is
    defined, of rank 2^N - 1 at most; diagonal, the diagonal of the joint one. If F
    is singular to rounding, the solution is not the shortest one,
    `reference.natural_gradient`, but a basic one: 0 along what depends on the rest.
    CbmError for more than 2^16 joint states, unless it is diagonal.
    """
    step = ByParameter._make(np.zeros_like(array) for array in gradient)
    if fisher == "diagonal":
        moments = exact_moments(W, b, c)
        for p, along, change in zip(moments, gradient, step, strict=True):
            variances = p * (1 - p) + damping  # of binary variables
            np.divide(along, variances, out=change, where=variances > NO_VARIANCE)
        return step
    n, m = W.shape[-2:]
    # A damping of 1 is never singular: what is left to check is the size.
    check_fisher("gradient", fisher, 1.0, n, m, "write fisher: diagonal")
    direction = Direction(FISHERS[fisher], damping)
    no_rows: Any = np.zeros((0, n))
    theta: Any = W, b, c  # in float64, with offsets that are not used
    for k in np.ndindex(W.shape[:-2]):
        W_k, b_k, c_k = (array[k] for array in theta)
        plain = Machine(W_k, b_k, c_k, mu=b_k, lam=c_k)
        work = make_natural(direction, plain, True, no_rows, no_rows)
        find_moments(work)
        with_b = np.hstack([gradient.W[k], gradient.b[k][:, None]])
        with_c = np.append(gradient.c[k], 0.0)
        work.gradient[:] = np.vstack([with_b, with_c]).ravel()
        find_direction(work)
        step.W[k], step.b[k], step.c[k] = work.along[:3]
    return step
