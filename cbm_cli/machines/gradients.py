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
from scipy.special import softmax

from cbm_cli import reference as ref
from cbm_cli.kernels.machine import Machine
from cbm_cli.kernels.natural import (
    FISHERS,
    FLAT,
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

    def shaped(self, vector: Wide) -> "ByParameter":
        """Vectors (..., P) in the shapes of this one."""
        first, second = self.W.shape[-2] * self.W.shape[-1], -self.c.shape[-1]
        W, b, c = vector[..., :first], vector[..., first:second], vector[..., second:]
        return ByParameter(W.reshape(self.W.shape), b, c)


def _state_blocks(width: int) -> Iterator[Wide]:
    """All states of ``width`` binary units, (S, width) of them at a time; unit 0 is the
    lowest bit.
    """
    for first in range(0, 2**width, BLOCK):
        numbers = np.arange(first, min(first + BLOCK, 2**width))
        yield ((numbers[:, None] >> np.arange(width)) & 1).astype(np.float64)


def exact_moments(W: Wide, b: Wide, c: Wide) -> ByParameter:
    """<x h'>, <x>, <h> under the model, by the sum over all states of the smaller
    side.
    """
    if W.shape[-1] > W.shape[-2]:
        moments = exact_moments(W.mT, c, b)
        return ByParameter(moments.W.mT, moments.c, moments.b)
    scores = [-ref.free_energy(h, W.mT, c, b) for h in _state_blocks(W.shape[-1])]
    p, total = (
        softmax(np.concatenate(scores, axis=-1), axis=-1),
        ByParameter(*map(np.zeros_like, (W, b, c))),
    )
    for k, h in enumerate(_state_blocks(W.shape[-1])):
        phase = ref.Ensemble(
            ref.visible_mean(h, W, b), h, p[..., k * BLOCK : (k + 1) * BLOCK]
        )
        more = ref.correlation(phase), *ref.means(phase)
        total = ByParameter(*(old + new for old, new in zip(total, more, strict=True)))
    return total


def mean_over_rows(
    sums: Callable[[Wide], Wide], rows: NDArray, unit: float = 1.0
) -> Wide:
    """Mean over rows (n, N) times ``unit`` of a quantity that ``sums`` adds up over
    blocks (R, N).
    """
    blocks = (
        unit * rows[first : first + BLOCK].astype(np.float64)
        for first in range(0, len(rows), BLOCK)
    )
    total: Any = sum(sums(x) for x in blocks)
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
        return np.concatenate(
            [x.T @ h, h.sum(axis=-2)[..., None, :]], axis=-2
        )  # (..., N + 1, M)

    moments, model = mean_over_rows(sums, rows, unit), exact_moments(W, b, c)
    x_mean = unit * rows.mean(axis=0, dtype=np.float64)
    return ByParameter(
        moments[..., :-1, :] - model.W, x_mean - model.b, moments[..., -1, :] - model.c
    )


def centered(gradient: ref.Theta, mu: Wide, lam: Wide) -> ByParameter:
    """The centered gradient from the standard one, as a change of the plain parameters,
    Eqs. (13)-(15).

    <(x - mu)(h - lam)'>_d - <(x - mu)(h - lam)'>_m is multiplied out, since constants
    cancel; mu (..., N), lam (..., M).
    """
    W, b, c = gradient
    W = W - mu[..., :, None] * c[..., None, :] - b[..., :, None] * lam[..., None, :]
    return ByParameter(*ref.plain_step((W, b, c), mu, lam))


def natural_gradient(
    W: Wide,
    b: Wide,
    c: Wide,
    gradient: ByParameter,
    fisher: str = "joint",
    damping: float = 0.0,
) -> ByParameter:
    """The solution d of (F + damping I) d = gradient; 0 along what has no variance
    (Amari 1998).

    F is the covariance of s = (x h', x, h): joint, under p(x, h), as the paper prints
    it, of full rank for finite parameters; marginal, of E[s | x] under p(x), as it is
    defined, of rank 2^N - 1 at most; diagonal, the diagonal of the joint one. CbmError
    for more than 2^16 joint states, unless it is diagonal.
    """
    if fisher == "diagonal":
        p = exact_moments(W, b, c).flat()
        variances = p * (1 - p) + damping  # of binary variables
        moves = variances > FLAT
        return gradient.shaped(
            np.where(moves, gradient.flat() / np.where(moves, variances, 1), 0)
        )
    n, m = W.shape[-2:]
    check_fisher("gradient", fisher, 1.0, n, m, "write fisher: diagonal")
    found = np.empty_like(gradient.flat())
    for k in np.ndindex(found.shape[:-1]):
        arrays: Any = [
            array[k] for array in (W, b, c, b, c)
        ]  # float64, the offsets not used
        plain = Machine(*arrays)
        work = make_natural(
            Direction(FISHERS[fisher], damping), plain, True, *np.zeros((2, 0, n))
        )
        find_moments(work)
        work.gradient[:] = np.block(
            [[gradient.W[k], gradient.b[k][:, None]], [gradient.c[k], 0.0]]
        ).ravel()
        find_direction(work)
        found[k] = ref.flat(work.along[:3])
    return gradient.shaped(found)
