"""The natural gradient: F^-1 times the gradient, for the Fisher matrix F of an RBM (Amari 1998).

``joint``: F is the covariance of s = (x h', x, h) under p(x, h); ``marginal``: that of E[s | x] under p(x),
the definition by derivatives of log p(x); ``diagonal``: the diagonal of the joint one. The exact matrix lists
all states; the sampled one is applied to vectors by conjugate gradients and never formed.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli.kernels.compiling import compiled, lean, lean_sum
from cbm_cli.kernels.enumeration import exponentiate
from cbm_cli.kernels.offsets import Means
from cbm_cli.kernels.random import FISHER, fill_uniform
from cbm_cli.kernels.state import DIAGONAL, JOINT, MARGINAL, Array, Plan, State

Wide = NDArray[np.float64]
_FLAT = 1e-12  # a pivot this small beside the largest is zero: nothing moves along it
_LEAST = 1e-6  # a variance this small is nothing but the rounding of float32 means near 1


class Fisher(NamedTuple):
    """Work arrays; P = N M + N + M parameters, in the order W (row by row), b, c.

    Attributes
    ----------
    features, weighted : (S, P) float64
        s of every state, or E[s | x] of every visible one; and the same times its probability.
    p : (S,) float64
    matrix, mean, theta, gradient : (P, P), (P,), (P,), (P,) float64
    moments : (N, M)
        <x h'> of the model, for the diagonal.
    h, product, u : (R, M), (R, M), (R M,)
        Hidden states or means of the samples, X V, and random numbers, for conjugate gradients.
    along : (R,) float64
        s'v of every sample.
    vectors : (4, P) float64
        Solution, residual, search direction and F times it.
    V : (N, M)
    """

    features: Wide
    weighted: Wide
    p: Wide
    matrix: Wide
    mean: Wide
    theta: Wide
    gradient: Wide
    moments: Array
    h: Array
    product: Array
    u: Array
    along: Wide
    vectors: Wide
    V: Array


def make_fisher(n: int, m: int, samples: int, plan: Plan) -> Fisher:
    """Allocate what the plan's Fisher matrix needs, and list the states of the joint one."""
    size, formed = n * m + n + m, plan.direction in (JOINT, MARGINAL)
    whole = size if formed and not plan.sampled_fisher else 0
    drawn = samples if formed and plan.sampled_fisher else 0
    states = 2 ** (n + m if plan.direction == JOINT else n) if whole else 0
    return Fisher(
        features=_joint_features(n, m) if whole and plan.direction == JOINT else np.zeros((states, whole)),
        weighted=np.empty((states, whole)),
        p=np.empty(states),
        matrix=np.empty((whole, whole)),
        mean=np.empty(whole),
        theta=np.empty(whole),
        gradient=np.empty(size),
        moments=np.empty((n if plan.direction == DIAGONAL else 0, m), np.float32),
        h=np.empty((drawn, m), np.float32),
        product=np.empty((drawn, m), np.float32),
        u=np.empty(drawn * m + -drawn * m % 4, np.float32),
        along=np.empty(drawn),
        vectors=np.empty((4, size if drawn else 0)),
        V=np.empty((n if drawn else 0, m), np.float32),
    )


def _joint_features(n: int, m: int) -> Wide:
    """(x h' row by row, x, h) of every joint state, (2^(N + M), P)."""
    units = (np.arange(2 ** (n + m))[:, None] >> np.arange(n + m)) & 1
    x, h = units[:, :n].astype(float), units[:, n:].astype(float)
    return np.hstack([(x[:, :, None] * h[:, None, :]).reshape(len(units), n * m), x, h])


@compiled
def natural_direction(
    state: State,
    data_x: Array,
    x: Array,
    weight: Array,
    weighted_h: Array,
    contrast: Array,
    data: Means,
    model: Means,
    plan: Plan,
    update: int,
    direction: State,
    fisher: Fisher,
) -> None:
    """Fill ``direction`` with the natural gradient.

    data_x (B, N) are the rows of the data phase; x, weight, weighted_h those of the model phase.
    """
    gather(contrast, data, model, fisher.gradient)
    if plan.direction == DIAGONAL:
        np.dot(x.T, weighted_h, fisher.moments)  # -<x h'>_m
        divide_by_variances(fisher.moments, model, plan.damping, fisher.gradient)
        scatter(fisher.gradient, direction)
    elif plan.sampled_fisher:
        hidden_of_samples(weighted_h, weight, plan, update, fisher)
        solve_by_conjugate_gradients(x, plan, fisher)
        scatter(fisher.vectors[0], direction)
    else:
        if plan.direction == JOINT:
            weigh_joint_states(state, fisher)
        else:
            weigh_visible_states(state, fisher)
        covariance(fisher, plan.damping)
        if plan.exact:
            gather_exactly(state, data_x, fisher)
        solve(fisher.matrix, fisher.gradient)
        scatter(fisher.gradient, direction)


@lean
def gather(contrast: Array, data: Means, model: Means, out: Wide) -> None:
    """out = the gradient (contrast row by row, <x>_d - <x>_m, <h>_d - <h>_m)."""
    n, m = contrast.shape
    for i in range(n):
        for j in range(m):
            out[i * m + j] = contrast[i, j]
        out[n * m + i] = data.x[i] - model.x[i]
    for j in range(m):
        out[n * m + n + j] = data.h[j] - model.h[j]


@lean
def gather_exactly(state: State, x: Array, fisher: Fisher) -> None:
    """The gradient in float64: the mean of E[s | x] over the rows x (B, N), less the features' mean.

    Where the machine comes close to the data, small pivots of the Fisher matrix meet small gradients; in
    float32 their ratio would be noise.
    """
    n, m = state.W.shape
    rows, out = x.shape[0], fisher.gradient
    for k in range(out.size):
        out[k] = -fisher.mean[k]
    for r in range(rows):
        for i in range(n):
            out[n * m + i] += np.float64(x[r, i]) / rows
        for j in range(m):
            a = np.float64(state.c[j])
            for i in range(n):
                a += np.float64(x[r, i]) * np.float64(state.W[i, j])
            mean = 1 / (1 + math.exp(-a)) / rows
            out[n * m + n + j] += mean
            for i in range(n):
                out[i * m + j] += np.float64(x[r, i]) * mean


@lean
def scatter(vector: Wide, direction: State) -> None:
    """The inverse of ``gather``: a vector (P,) to W, b and c."""
    n, m = direction.W.shape
    for i in range(n):
        for j in range(m):
            direction.W[i, j] = vector[i * m + j]
        direction.b[i] = vector[n * m + i]
    for j in range(m):
        direction.c[j] = vector[n * m + n + j]


@lean
def divide_by_variances(moments: Array, model: Means, damping: np.float32, gradient: Wide) -> None:
    """Divide each component by the variance m (1 - m) of its binary feature, plus damping.

    What has none does not move: its gradient is rounding, too.
    """
    n, m = moments.shape
    for k in range(gradient.size):
        mean = model.x[k - n * m] if k >= n * m else np.float32(0)
        if k >= n * m + n:
            mean = model.h[k - n * m - n]
        elif k < n * m:
            mean = -moments[k // m, k % m]
        variance = mean * (1 - mean) + damping
        gradient[k] = gradient[k] / variance if variance > _LEAST else 0.0


@compiled
def weigh_joint_states(state: State, fisher: Fisher) -> None:
    """p of every joint state: its energy is -theta's."""
    gather_parameters(state, fisher.theta)
    np.dot(fisher.features, fisher.theta, fisher.p)  # (S, P) @ (P,)
    exponentiate(fisher.p)


@lean
def gather_parameters(state: State, theta: Wide) -> None:
    """theta = (W row by row, b, c)."""
    n, m = state.W.shape
    for i in range(n):
        for j in range(m):
            theta[i * m + j] = state.W[i, j]
        theta[n * m + i] = state.b[i]
    for j in range(m):
        theta[n * m + n + j] = state.c[j]


@lean
def weigh_visible_states(state: State, fisher: Fisher) -> None:
    """E[s | x] and p(x) of every visible state."""
    n, m = state.W.shape
    for s in range(fisher.p.size):
        score = 0.0
        for i in range(n):
            on = (s >> i) & 1
            fisher.features[s, n * m + i] = on
            score += on * state.b[i]
        for j in range(m):
            a = np.float64(state.c[j])
            for i in range(n):
                a += ((s >> i) & 1) * state.W[i, j]
            mean = 1 / (1 + math.exp(-a))
            score += max(a, 0.0) + math.log1p(math.exp(-abs(a)))
            fisher.features[s, n * m + n + j] = mean
            for i in range(n):
                fisher.features[s, i * m + j] = ((s >> i) & 1) * mean
        fisher.p[s] = score
    exponentiate(fisher.p)


@compiled
def covariance(fisher: Fisher, damping: np.float32) -> None:
    """matrix = covariance of the features, plus damping on its diagonal."""
    weigh_rows(fisher.features, fisher.p, fisher.weighted, fisher.mean)
    np.dot(fisher.features.T, fisher.weighted, fisher.matrix)  # (P, S) @ (S, P)
    center(fisher.mean, damping, fisher.matrix)


@lean
def weigh_rows(features: Wide, p: Wide, weighted: Wide, mean: Wide) -> None:
    """weighted = p * features, row by row; mean = its sum."""
    mean[:] = 0
    for s in range(p.size):
        for k in range(mean.size):
            weighted[s, k] = p[s] * features[s, k]
            mean[k] += weighted[s, k]


@lean
def center(mean: Wide, damping: np.float32, matrix: Wide) -> None:
    """matrix += damping I - mean mean'."""
    for k in range(mean.size):
        for q in range(mean.size):
            matrix[k, q] -= mean[k] * mean[q]
        matrix[k, k] += damping


@lean_sum
def solve(matrix: Wide, vector: Wide) -> None:
    """Solve matrix y = vector by L D L', in place; matrix is symmetric and not negative.

    Along pivots that vanish nothing moves: close to the data's distribution a machine has fewer directions
    than parameters.
    """
    size, largest = vector.size, 0.0
    for k in range(size):
        largest = max(largest, matrix[k, k])
    for k in range(size):
        pivot = matrix[k, k]
        if pivot <= _FLAT * largest:
            matrix[k, k] = np.inf
            for i in range(k + 1, size):
                matrix[i, k] = 0.0
            continue
        for i in range(k + 1, size):
            share = matrix[i, k] / pivot
            for q in range(k + 1, i + 1):
                matrix[i, q] -= share * matrix[q, k]
        for i in range(k + 1, size):
            matrix[i, k] /= pivot
    for k in range(size):
        for q in range(k):
            vector[k] -= matrix[k, q] * vector[q]
    for k in range(size):
        vector[k] /= matrix[k, k]
    for k in range(size - 1, -1, -1):
        for i in range(k + 1, size):
            vector[k] -= matrix[i, k] * vector[i]


@lean
def hidden_of_samples(weighted_h: Array, weight: Array, plan: Plan, update: int, fisher: Fisher) -> None:
    """Hidden means of the samples (marginal), or states drawn from them (joint); weighted_h is negative."""
    h, u = fisher.h, fisher.u
    if plan.direction == JOINT:
        fill_uniform(u, plan.seed, update, FISHER, 0)
    for r in range(h.shape[0]):
        for j in range(h.shape[1]):
            mean = -weighted_h[r, j] / weight[r]
            h[r, j] = mean if plan.direction == MARGINAL else np.float32(u[r * h.shape[1] + j] < mean)


@compiled
def solve_by_conjugate_gradients(x: Array, plan: Plan, fisher: Fisher) -> None:
    """vectors[0] = (F + damping I)^-1 gradient, in ``iterations`` steps or to 1e-6 of its length."""
    vectors = fisher.vectors
    solution, residual, search, image = vectors[0], vectors[1], vectors[2], vectors[3]
    solution[:] = 0
    residual[:] = fisher.gradient
    search[:] = fisher.gradient
    size = start = product_of(residual, residual)
    for _ in range(plan.iterations):
        if size <= 1e-12 * start:
            break
        apply_fisher(x, search, plan.damping, fisher, image)
        step = size / product_of(search, image)
        add(solution, step, search)
        add(residual, -step, image)
        before, size = size, product_of(residual, residual)
        shrink(search, size / before)
        add(search, 1.0, residual)


@lean_sum
def product_of(a: Wide, b: Wide) -> float:
    """a'b."""
    total = 0.0
    for k in range(a.size):
        total += a[k] * b[k]
    return total


@lean
def add(a: Wide, factor: float, b: Wide) -> None:
    """a += factor b."""
    for k in range(a.size):
        a[k] += factor * b[k]


@lean
def shrink(a: Wide, factor: float) -> None:
    """a *= factor."""
    for k in range(a.size):
        a[k] *= factor


@compiled
def apply_fisher(x: Array, v: Wide, damping: np.float32, fisher: Fisher, out: Wide) -> None:
    """out = (F + damping I) v, where F is the covariance of s over the samples."""
    h, product, along, V = fisher.h, fisher.product, fisher.along, fisher.V
    n, m = V.shape
    copy_weights(v, V)
    np.dot(x, V, product)  # (R, N) @ (N, M)
    project(x, h, product, v, along)
    weigh_hidden(h, along, product)
    np.dot(x.T, product, V)  # (N, R) @ (R, M)
    for i in range(n):
        for j in range(m):
            out[i * m + j] = V[i, j] + damping * v[i * m + j]
    fold(x, along, damping, v[n * m : n * m + n], out[n * m : n * m + n])
    fold(h, along, damping, v[n * m + n :], out[n * m + n :])


@lean
def copy_weights(v: Wide, V: Array) -> None:
    """V = the first N M components of v."""
    for i in range(V.shape[0]):
        for j in range(V.shape[1]):
            V[i, j] = v[i * V.shape[1] + j]


@lean_sum
def project(x: Array, h: Array, product: Array, v: Wide, along: Wide) -> None:
    """along = (s'v - its mean over the samples) / R."""
    rows, n, m = x.shape[0], x.shape[1], h.shape[1]
    mean = 0.0
    for r in range(rows):
        total = 0.0
        for i in range(n):
            total += x[r, i] * v[n * m + i]
        for j in range(m):
            total += h[r, j] * (product[r, j] + v[n * m + n + j])
        along[r] = total
        mean += total / rows
    for r in range(rows):
        along[r] = (along[r] - mean) / rows


@lean
def weigh_hidden(h: Array, along: Wide, out: Array) -> None:
    """out = along * h, row by row."""
    for r in range(h.shape[0]):
        for j in range(h.shape[1]):
            out[r, j] = np.float32(along[r]) * h[r, j]


@lean
def fold(rows: Array, along: Wide, damping: np.float32, v: Wide, out: Wide) -> None:
    """out = sum_r along_r rows_r + damping v."""
    for k in range(out.size):
        out[k] = damping * v[k]
    for r in range(rows.shape[0]):
        for k in range(out.size):
            out[k] += along[r] * rows[r, k]
