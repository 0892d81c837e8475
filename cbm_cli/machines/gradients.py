"""Exact expectations, gradients and Fisher matrices of machines that can be enumerated, in float64.

What recorders measure with and what compiled kernels are held against: written for reading. Every
function takes one plain machine W (N, M), b (N,), c (M,) or a stack of them: axes in front, written
(..., N, M), are kept. Gradients are of the mean log-likelihood of the rows, in nats.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp

from cbm_cli.errors import CbmError

Wide = NDArray[np.float64]

JOINT_BITS = 16  # a Fisher matrix sums over up to 2^16 joint states
BLOCK = 4096  # states of one side, or rows of data, that are looked at together


class SingularError(CbmError):
    """A Fisher matrix that cannot be inverted."""


class ByParameter(NamedTuple):
    """A number for each parameter: a gradient, or the expectations <x h'>, <x>, <h> that it is made of.

    Attributes
    ----------
    W, b, c : (..., N, M), (..., N), (..., M)
    """

    W: Wide
    b: Wide
    c: Wide

    def flat(self) -> Wide:
        """As vectors (..., P), P = N M + N + M: W row by row, then b, then c."""
        return np.concatenate([self.W.reshape(*self.W.shape[:-2], -1), self.b, self.c], axis=-1)

    def shaped(self, vector: Wide) -> "ByParameter":
        """Vectors (..., P) in the shapes of this one."""
        weights, n = self.W.shape[-2] * self.W.shape[-1], self.b.shape[-1]
        W, b, c = np.split(vector, [weights, weights + n], axis=-1)
        return ByParameter(W.reshape(self.W.shape), b, c)


def states(width: int, first: int = 0, last: int | None = None) -> Wide:
    """States number first, ..., last - 1 of ``width`` binary units, by default all: (last - first, width)."""
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


def data_moments(W: Wide, c: Wide, rows: NDArray, unit: float = 1.0) -> ByParameter:
    """<x h'>, <x>, <h> under the data: rows (n, N) times ``unit``, with h by its mean given x."""

    def sums(x: Wide) -> Wide:
        h = hidden_mean(W, c, x)
        return np.concatenate([x.T @ h, h.sum(axis=-2)[..., None, :]], axis=-2)  # (..., N + 1, M)

    moments = mean_over_rows(sums, rows, unit)
    x_mean = unit * rows.mean(axis=0, dtype=np.float64)
    return ByParameter(moments[..., :-1, :], np.broadcast_to(x_mean, W.shape[:-1]), moments[..., -1, :])


def mean_over_rows(sums: Callable[[Wide], Wide], rows: NDArray, unit: float = 1.0) -> Wide:
    """Mean over rows (n, N) times ``unit`` of what ``sums`` adds up over blocks (R, N) of them."""
    blocks = (unit * rows[first : first + BLOCK].astype(np.float64) for first in range(0, len(rows), BLOCK))
    return sum(sums(x) for x in blocks) / len(rows)


def standard_gradient(W: Wide, b: Wide, c: Wide, rows: NDArray, unit: float = 1.0) -> ByParameter:
    """<.>_d - <.>_m of x h', x and h: the gradient of the mean log-likelihood."""
    data, model = data_moments(W, c, rows, unit), exact_moments(W, b, c)
    return ByParameter(*(of_data - of_model for of_data, of_model in zip(data, model, strict=True)))


def centered(gradient: ByParameter, mu: Wide, lam: Wide) -> ByParameter:
    """The centered gradient from the standard one, as a change of the plain parameters.

    <(x - mu)(h - lam)'>_d - <(x - mu)(h - lam)'>_m multiplied out, since constants cancel; Eqs. (cgradW),
    (cgradb), (cgradc). Offsets are mu (..., N) and lam (..., M).
    """
    W, b, c = gradient
    W = W - mu[..., :, None] * c[..., None, :] - b[..., :, None] * lam[..., None, :]
    return ByParameter(W, b - (W @ lam[..., None])[..., 0], c - (mu[..., None, :] @ W)[..., 0, :])


def centered_gradient(
    W: Wide, b: Wide, c: Wide, rows: NDArray, mu: Wide, lam: Wide, unit: float = 1.0
) -> ByParameter:
    """The exact centered gradient of the mean log-likelihood, as a change of the plain parameters."""
    return centered(standard_gradient(W, b, c, rows, unit), mu, lam)


def fisher_joint(W: Wide, b: Wide, c: Wide) -> Wide:
    """Covariance (..., P, P) of (x h' row by row, x, h) under p(x, h): what the paper prints.

    The Fisher matrix of the joint distribution, of full rank for every machine of finite parameters.

    Raises
    ------
    CbmError
        For more than 2^16 joint states.
    """
    n, m = W.shape[-2:]
    _refuse_states(n, m)
    x, h = states(n), states(m)
    log_p = (b @ x.T)[..., :, None] + (c @ h.T)[..., None, :] + x @ W @ h.T  # (..., 2^N, 2^M)
    log_p = log_p.reshape(*log_p.shape[:-2], -1)
    p = np.exp(log_p - logsumexp(log_p, axis=-1, keepdims=True))
    return _covariance(p, _joint_features(n, m))


def fisher_marginal(W: Wide, b: Wide, c: Wide) -> Wide:
    """Covariance (..., P, P) under p(x) of the conditional expectations of (x h', x, h) given x.

    The Fisher matrix of p(x), which is the definition; its rank is at most 2^N - 1.

    Raises
    ------
    CbmError
        For more than 2^16 joint states: there are then too many parameters too.
    """
    n, m = W.shape[-2:]
    _refuse_states(n, m)
    x = states(n)
    log_p = -free_energy(W, b, c, x)
    p = np.exp(log_p - logsumexp(log_p, axis=-1, keepdims=True))
    h = hidden_mean(W, c, x).swapaxes(-1, -2)  # (..., M, 2^N)
    xh = (x.T[:, None, :] * h[..., None, :, :]).reshape(*h.shape[:-2], n * m, -1)
    return _covariance(p, np.concatenate([xh, np.broadcast_to(x.T, (*h.shape[:-2], *x.T.shape)), h], axis=-2))


def fisher_diagonal(W: Wide, b: Wide, c: Wide) -> Wide:
    """The diagonal of `fisher_joint` as a matrix (..., P, P): binary variables have variances p (1 - p)."""
    p = exact_moments(W, b, c).flat()
    return (p * (1 - p))[..., None] * np.eye(p.shape[-1])


FISHERS = {"joint": fisher_joint, "marginal": fisher_marginal, "diagonal": fisher_diagonal}


def natural_gradient(
    W: Wide, b: Wide, c: Wide, gradient: ByParameter, fisher: str = "joint", damping: float = 0.0
) -> ByParameter:
    """The solution d of (F + damping I) d = gradient, for one of `FISHERS` (Amari 1998).

    Raises
    ------
    SingularError
        Where F + damping I of any machine of the stack is singular in float64.
    CbmError
        For more than 2^16 joint states, unless the matrix is diagonal.
    """
    F = FISHERS[fisher](W, b, c)
    F = F + damping * np.eye(F.shape[-1])
    if _is_singular(F):
        raise SingularError(f"gradient: {why_singular(fisher, *W.shape[-2:])}")
    return gradient.shaped(np.linalg.solve(F, gradient.flat()[..., None])[..., 0])


def why_singular(fisher: str, n: int, m: int) -> str:
    """What to say of a Fisher matrix that cannot be inverted."""
    parameters = (n + 1) * (m + 1) - 1
    if fisher == "marginal" and 2**n - 1 < parameters:
        reason = f"its rank is at most 2^{n} - 1 = {2**n - 1}, with {parameters} parameters of {n}x{m} units"
        return f"the marginal Fisher matrix is singular: {reason}; give it a damping, or take fisher: joint"
    reason = "some units hardly ever change, or are copies of others"
    return f"the {fisher} Fisher matrix is singular to rounding: {reason}; give it a damping, such as 1e-6"


def _state_blocks(width: int) -> Iterator[Wide]:
    for first in range(0, 2**width, BLOCK):
        yield states(width, first, min(first + BLOCK, 2**width))


def _refuse_states(n: int, m: int) -> None:
    if n + m > JOINT_BITS:
        raise CbmError(
            f"gradient: the exact Fisher matrix of {n}x{m} units is for 2^{n + m} joint states, the limit is "
            f"2^{JOINT_BITS}; take estimate: samples"
        )


@lru_cache(maxsize=4)
def _joint_features(n: int, m: int) -> Wide:
    """(x h' row by row, x, h) of all joint states, those of h running fastest: (P, 2^(N + M))."""
    x, h = np.repeat(states(n).T, 2**m, axis=1), np.tile(states(m).T, 2**n)
    return np.concatenate([(x[:, None] * h).reshape(n * m, -1), x, h])


def _covariance(p: Wide, features: Wide) -> Wide:
    """Covariance (..., P, P) of features (..., P, S) under probabilities p (..., S)."""
    scaled = features - features @ p[..., None]  # differences first: no digits cancel
    scaled *= np.sqrt(p)[..., None, :]
    return scaled @ scaled.swapaxes(-1, -2)


def _is_singular(F: Wide) -> bool:
    """Whether any matrix of a stack (..., P, P) has a pivot that is nothing but rounding.

    The k-th pivot over F_kk is the share of feature k that the features before it do not explain: unlike
    a condition number it does not depend on the scale of the features.
    """
    try:
        pivots = np.diagonal(np.linalg.cholesky(F), axis1=-2, axis2=-1) ** 2
    except np.linalg.LinAlgError:
        return True
    rounding = F.shape[-1] * np.finfo(np.float64).eps
    return not (pivots > rounding * np.diagonal(F, axis1=-2, axis2=-1)).all()
