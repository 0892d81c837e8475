"""Gradients of restricted Boltzmann machines in float64: standard, centered and natural.

Expectations are exact sums over all states unless a model phase is given. Functions take one plain machine
W (N, M), b (N,), c (M,) or a stack of machines, with axes in front that are kept, written (..., N, M).
Gradients are of the mean log-likelihood of the rows, in nats.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrs, dpstrf
from scipy.special import expit, logsumexp

from cbm_cli.machines.limits import check_fisher
from cbm_cli.reference import Ensemble

Wide = NDArray[np.float64]

BLOCK = 4096  # states of one side, or rows of data, in one product
_FLAT = 1e-12  # a pivot this small relative to the largest variance counts as zero: nothing moves along it
_LEAST = 1e-6  # smaller variances are rounding of float32 means near 1


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


# Fisher matrices


def features_of(fisher: str, W: Wide, b: Wide, c: Wide) -> tuple[Wide, Wide]:
    """Probabilities (..., S) of all states, and the feature vector of each, (P, S) or (..., P, S).

    For the joint matrix: of all (x, h), with s = (x h', x, h); for the marginal one: of all x, with E[s | x].
    CbmError for more than 2^16 joint states.
    """
    n, m = W.shape[-2:]
    check_fisher("gradient", fisher, 1.0, n, m, "use estimate: samples")
    if fisher == "joint":
        features = _joint_features(n, m)
        return _normalised(ByParameter(W, b, c).flat() @ features), features  # -E = theta's
    x = states(n)
    h = hidden_mean(W, c, x).swapaxes(-1, -2)  # (..., M, 2^N)
    xh = (x.T[:, None, :] * h[..., None, :, :]).reshape(*h.shape[:-2], n * m, -1)
    features = np.concatenate([xh, np.broadcast_to(x.T, (*h.shape[:-2], *x.T.shape)), h], axis=-2)
    return _normalised(-free_energy(W, b, c, x)), features


def _normalised(log_p: Wide) -> Wide:
    """Probabilities (..., S) from their logarithms less a constant; scipy's softmax takes twice as long."""
    p = np.exp(log_p - log_p.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    return p


@lru_cache(maxsize=4)
def _joint_features(n: int, m: int) -> Wide:
    x, h = np.repeat(states(n).T, 2**m, axis=1), np.tile(states(m).T, 2**n)
    return np.concatenate([(x[:, None] * h).reshape(n * m, -1), x, h])


def covariance(p: Wide, features: Wide) -> Wide:
    """Covariance (..., P, P) of features (..., P, S) under probabilities p (..., S)."""
    deviations = features - features @ p[..., None]  # differences first: no digits cancel
    return (deviations * p[..., None, :]) @ deviations.swapaxes(-1, -2)


def fisher_matrix(fisher: str, W: Wide, b: Wide, c: Wide) -> Wide:
    """The Fisher matrix (..., P, P), by the sum over all states (Amari 1998).

    ``fisher`` is joint: of p(x, h), the covariance of s = (x h' row by row, x, h), as the paper prints it, of
    full rank for finite parameters; marginal: of p(x), the covariance of E[s | x], as it is defined, of rank
    2^N - 1 at most; or diagonal: the diagonal of the joint one. CbmError for more than 2^16 joint states,
    unless it is diagonal.
    """
    if fisher == "diagonal":
        p = exact_moments(W, b, c).flat()
        return (p * (1 - p))[..., None] * np.eye(p.shape[-1])  # the variances of binary variables
    return covariance(*features_of(fisher, W, b, c))


# Natural gradients


def natural_gradient(
    W: Wide, b: Wide, c: Wide, gradient: ByParameter, fisher: str = "joint", damping: float = 0.0
) -> ByParameter:
    """The solution d of (F + damping I) d = gradient; NaN for machines with a singular matrix.

    Raises CbmError as `fisher_matrix` does.
    """
    F = fisher_matrix(fisher, W, b, c)
    size = F.shape[-1]
    F += damping * np.eye(size)
    singular = np.reshape([_is_singular(one) for one in F.reshape(-1, size, size)], F.shape[:-2])
    F[singular] = np.eye(size)
    found: NDArray[Any] = np.linalg.solve(F, gradient.flat()[..., None])[..., 0]
    found[singular] = np.nan
    return gradient.shaped(found)


def _is_singular(F: Wide) -> bool:
    """Whether any pivot of a matrix (P, P) is rounding noise.

    The k-th pivot over F_kk is the share of feature k that earlier features do not explain. Unlike a
    condition number, it does not depend on the scale of the features.
    """
    try:
        pivots = np.diagonal(np.linalg.cholesky(F)) ** 2
    except np.linalg.LinAlgError:
        return True
    return not (pivots > len(F) * np.finfo(np.float64).eps * np.diagonal(F)).all()


@dataclass(frozen=True)
class Direction:
    """The direction of an update other than the centered gradient; call it once per update.

    A natural direction is F^-1 times the standard gradient for every offset scheme.
    """

    fisher: str | None = None  # joint, marginal or diagonal; None: the centered gradient
    sampled: bool = False  # F is the covariance over the model phase's samples, not over all states
    damping: float = 0.0  # added to the diagonal of F
    iterations: int = 10  # of conjugate gradients, for a sampled F
    scale_to: str = "none"  # rescale the direction to the length of: none, standard, centered
    scale_of: str = "all"  # the components that count in both lengths: all, weights

    def __call__(
        self,
        machine: Sequence[NDArray],
        gradient: Sequence[NDArray],
        offsets: Sequence[NDArray],
        model: Ensemble,
        data: NDArray | None = None,
        u: NDArray | None = None,
        decay: NDArray | None = None,
    ) -> ByParameter:
        """The direction as a change of the plain parameters (W, b, c).

        ``gradient`` is the standard one, with the weight decay ``decay`` (N, M); ``offsets`` mu and lam.
        ``data`` (B, N) are the rows of its data phase if its model phase is exact; ``u`` (R, M) uniform
        numbers to draw hidden states, for a joint F of samples.
        """
        gradient = ByParameter(*(array.astype(np.float64) for array in gradient))
        if self.fisher is None:
            direction = centered(gradient, *offsets)
        elif self.fisher == "diagonal":
            direction = self._over_variances(gradient, model)
        elif self.sampled:
            direction = self._of_samples(gradient, model, u)
        else:
            gradient, direction = self._of_all_states(self.fisher, machine, gradient, data, decay)
        if self.scale_to == "none":
            return direction
        target = centered(gradient, *offsets) if self.scale_to == "centered" else gradient
        factor = self._length(target) / max(self._length(direction), 1e-30)
        return ByParameter(*(factor * array for array in direction))

    def _length(self, direction: ByParameter) -> float:
        return float(np.linalg.norm(direction.W if self.scale_of == "weights" else direction.flat()))

    def _of_all_states(
        self,
        fisher: str,
        machine: Sequence[NDArray],
        gradient: ByParameter,
        data: NDArray | None,
        decay: NDArray | None,
    ) -> tuple[ByParameter, ByParameter]:
        """The exact gradient, if data are given, and the solution with the exact F."""
        W, b, c = (array.astype(np.float64) for array in machine)
        p, features = features_of(fisher, W, b, c)
        if data is None:
            vector = gradient.flat()
        else:
            # Close to the data small pivots meet small gradients: their ratio would be noise in float32.
            x = data.astype(np.float64)
            h = hidden_mean(W, c, x)
            vector = ByParameter(x.T @ h, x.sum(axis=0), h.sum(axis=0)).flat() / len(x) - features @ p
            if decay is not None:
                vector[: W.size] += decay.ravel()
            gradient = gradient.shaped(vector)
        F = covariance(p, features)
        F.flat[:: len(F) + 1] += self.damping
        return gradient, gradient.shaped(solve(F, vector))

    def _over_variances(self, gradient: ByParameter, model: Ensemble) -> ByParameter:
        """Divide each component by the variance m (1 - m) of its binary feature, plus damping."""
        x, h, p = model
        means = ByParameter(x.T @ (p[:, None] * h), p @ x, p @ h).flat().astype(np.float64)
        variances, vector = means * (1 - means) + self.damping, gradient.flat()
        out = np.zeros_like(vector)  # without variance, the gradient is rounding noise too
        return gradient.shaped(np.divide(vector, variances, out=out, where=variances > _LEAST))

    def _of_samples(self, gradient: ByParameter, model: Ensemble, u: NDArray | None) -> ByParameter:
        """Solve by conjugate gradients: F is applied to vectors and never formed.

        Vectors have the layout of s = (x, 1)(h, 1)' of one sample: c below W, b beside it, 0 in the corner.
        Products keep the precision of the samples.
        """
        h = (u < model.h).astype(model.x.dtype) if self.fisher == "joint" and u is not None else model.h
        x1, h1 = (np.pad(rows, ((0, 0), (0, 1)), constant_values=1) for rows in (model.x, h))
        shape = x1.shape[1], h1.shape[1]

        def times_fisher(vector: Wide) -> Wide:
            V = vector.reshape(shape)
            along = np.einsum("rj,rj->r", x1 @ V.astype(x1.dtype), h1, dtype=np.float64)  # s'v, (R,)
            along = model.p * (along - model.p @ along)
            image = x1.T @ (along[:, None] * h1).astype(x1.dtype) + self.damping * V
            image[-1, -1] = 0
            return image.ravel()

        laid_out = np.block([[gradient.W, gradient.b[:, None]], [gradient.c, 0.0]])
        found = conjugate_gradients(times_fisher, laid_out.ravel(), self.iterations).reshape(shape)
        return ByParameter(found[:-1, :-1], found[:-1, -1], found[-1, :-1])


def solve(F: Wide, gradient: Wide) -> Wide:
    """Solve F d = gradient for a covariance F (P, P), with d = 0 along pivots that vanish.

    Close to the data a machine has fewer directions than parameters. The pivoted Cholesky decomposition takes
    parameters in the order of their remaining variance, and leaves out those that others determine.
    """
    factor, order, rank, _ = dpstrf(F, tol=_FLAT * F.diagonal().max())  # F[order][:, order] = U'U
    kept = order[:rank] - 1
    direction = np.zeros_like(gradient)
    if rank:  # 0 where every unit is stuck, or the machine has diverged
        direction[kept] = dpotrs(factor[:rank, :rank], gradient[kept])[0]
    return direction


def conjugate_gradients(
    times_matrix: Callable[[Wide], Wide], vector: Wide, iterations: int, tolerance: float = 1e-6
) -> Wide:
    """Solve A y = vector for a positive definite A (Hestenes & Stiefel 1952); A is applied to vectors (P,).

    Stops after ``iterations``, or if the residual is as short as ``tolerance`` times the vector.
    """
    solution, residual, search = np.zeros_like(vector), vector.copy(), vector
    size = start = residual @ residual
    for _ in range(iterations):
        if size <= tolerance**2 * start:
            break
        image = times_matrix(search)
        curvature = search @ image
        if curvature == 0:  # no variance is left along it
            break
        step = size / curvature
        solution += step * search
        residual -= step * image
        before, size = size, residual @ residual
        search = residual + size / before * search
    return solution
