"""Natural gradients (Amari 1998), and gradients of another length: steps of the training loop.

A vector of all parameters is a matrix (N + 1, M + 1), [[W, b], [c, 0]]: s = (x, 1)(h, 1)' has this form, and
the Fisher matrix is its covariance, `reference.fisher`: of p(x, h) (joint), or of E[s | x] under p(x)
(marginal). The constant in the corner never moves.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli.kernels.compiling import lean, lean_sum
from cbm_cli.kernels.machine import Array, Machine, room
from cbm_cli.kernels.phases import Phase
from cbm_cli.kernels.plan import Plan
from cbm_cli.kernels.products import product, product_tn
from cbm_cli.kernels.random import FISHER, fill_uniform
from cbm_cli.kernels.step import Gradient, add, fade

Wide = NDArray[np.float64]

CENTERED, DIAGONAL, MARGINAL, JOINT = range(4)  # Direction.fisher: the centered gradient, or an F
FISHERS = {"diagonal": DIAGONAL, "marginal": MARGINAL, "joint": JOINT}
_FLAT = 1e-12  # a pivot this small relative to the largest variance counts as zero: nothing moves along it
_LEAST = 1e-6  # smaller variances are rounding of float32 means near 1
_SHORT = 1e-6  # length of a residual, relative to the gradient's, that ends conjugate gradients


class Direction(NamedTuple):
    """The direction of an update other than the centered gradient.

    A natural direction is F^-1 times the standard gradient for every offset scheme.
    """

    fisher: int
    sampled: bool = False  # F is the covariance over the model phase's samples, not over all states
    damping: float = 0.0  # added to the diagonal of F
    iterations: int = 10  # of conjugate gradients, for a sampled F
    scaled: bool = False  # rescale the direction to the length of another gradient
    to_centered: bool = False  # the centered one, or the standard one
    weights_only: bool = False  # only weights count in both lengths


class Natural(NamedTuple):
    """A direction and the work arrays that find it; P = (N + 1)(M + 1)."""

    how: Direction
    gradient: Wide  # (N + 1, M + 1) the standard gradient
    direction: Wide
    centered: Wide
    F: Wide  # (P, P); of no size without all states
    L: Wide  # (P, P) rows of its Cholesky factor
    order: NDArray[np.int64]  # (P,) of its pivots
    rest: Wide  # (P,) variances that pivots so far leave
    theta: Wide  # (N + 1, M + 1) the machine
    states: Wide  # (S, N + 1) all visible states x, and 1
    p: Wide  # (S,) p(x)
    q: Wide  # (S, M + 1) E[h | x], and 1
    row: Wide  # (N + 1,) a row of data, and 1
    h_of_row: Wide  # (M + 1,)
    residual: Wide  # (N + 1, M + 1) as the next two, of conjugate gradients; of no size without samples
    search: Wide
    image: Wide
    x: Array  # (R, N + 1) samples and 1
    h: Array  # (R, M + 1)
    along: Array  # (R, M + 1)
    narrow: Array  # (N + 1, M + 1) a vector in float32
    u: Array  # random numbers that draw hidden states


def make_natural(how: Direction, n: int, m: int, rows: int) -> Natural:
    """Allocate the work arrays for a machine of n x m units, and a model phase of so many rows."""
    shape, all_states = (n + 1, m + 1), how.fisher in (MARGINAL, JOINT) and not how.sampled
    size, count = ((n + 1) * (m + 1), 2**n) if all_states else (0, 0)
    states = np.ones((count, n + 1))
    states[:, :n] = (np.arange(count)[:, None] >> np.arange(n)) & 1
    none, samples = (0, 0), rows if how.sampled else 0
    return Natural(
        how,
        *(np.zeros(shape) for _ in range(3)),
        *(np.zeros((size, size)) for _ in range(2)),
        np.zeros(size, np.int64),
        np.zeros(size),
        np.zeros(shape),
        states,
        np.zeros(count),
        np.zeros((count, m + 1)),
        np.ones(n + 1),
        np.ones(m + 1),
        *(np.zeros(shape if how.sampled else none) for _ in range(3)),
        *(room((samples, units)) for units in (n + 1, m + 1, m + 1)),
        room(shape),
        room(samples * m + -(samples * m) % 4),
    )


@lean
def take_gradient(natural: Natural, machine: Machine, gradient: Gradient, x: Array, plan: Plan) -> None:
    """Fill in the standard gradient with its weight decay, and the moments that F needs.

    Where all states are the model phase, the gradient is made anew in float64, from the rows x (B, N) of the
    data: small pivots of F meet small gradients, and their ratio would be noise in float32.
    """
    vector, (n, m) = natural.gradient, gradient.W.shape
    for i in range(n):
        for j in range(m):
            vector[i, j] = gradient.W[i, j]
        vector[i, m] = gradient.x[i]
    for j in range(m):
        vector[n, j] = gradient.h[j]
    if natural.F.size:
        find_moments(machine, natural)
        if plan.exact:
            take_exact_gradient(x, natural)
    for i in range(n if plan.l1 > 0 or plan.l2 > 0 else 0):
        for j in range(m):
            w = machine.W[i, j]
            vector[i, j] -= plan.l1 * (np.float32(w > 0) - np.float32(w < 0)) + plan.l2 * w


@lean
def find_direction(natural: Natural, machine: Machine, model: Phase) -> None:
    """Turn the gradient into the direction; ``model`` is the model phase."""
    how, direction = natural.how, natural.direction
    if how.fisher == CENTERED or how.to_centered:
        center(natural.gradient, machine, natural.centered)
    if how.fisher == CENTERED:
        assign(natural.centered, direction)
    elif how.fisher == DIAGONAL:
        over_variances(natural, model)
    elif how.sampled:
        conjugate_gradients(natural, model.weight)
    else:
        add_up_fisher(natural)
        solve(natural)
    if how.scaled:
        target = natural.centered if how.to_centered else natural.gradient
        factor = length(target, how.weights_only) / max(length(direction, how.weights_only), 1e-30)
        for i in range(direction.shape[0]):
            for j in range(direction.shape[1]):
                direction[i, j] *= factor


@lean
def center(vector: Wide, machine: Machine, out: Wide) -> None:
    """The centered gradient from the standard one, as a change of the plain parameters, Eqs. (13)-(15)."""
    n, m = machine.b.size, machine.c.size
    for j in range(m):
        out[n, j] = vector[n, j]
    for i in range(n):
        out[i, m] = vector[i, m]
        for j in range(m):
            w = vector[i, j] - machine.mu[i] * vector[n, j] - vector[i, m] * machine.lam[j]
            out[i, j] = w
            out[i, m] -= w * machine.lam[j]
            out[n, j] -= machine.mu[i] * w


@lean_sum
def length(vector: Wide, weights_only: bool) -> float:
    """Euclidean norm of a vector, or of its weights."""
    total, less = 0.0, 1 if weights_only else 0
    for i in range(vector.shape[0] - less):
        for j in range(vector.shape[1] - less):
            total += vector[i, j] ** 2
    return math.sqrt(total)


@lean
def assign(vector: Wide, out: NDArray) -> None:
    """Copy a vector to another one, which may be float32."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = vector[i, j]


@lean
def move(natural: Natural, machine: Machine, velocity: Machine, plan: Plan, rate: np.float32) -> None:
    """Add ``rate`` times the direction to the machine, or to its velocity first."""
    n, m, direction, to = machine.b.size, machine.c.size, natural.direction, machine
    if plan.momentum > 0:
        fade(velocity, plan.momentum)
        to = velocity
    for i in range(n):
        for j in range(m):
            to.W[i, j] += rate * direction[i, j]
        to.b[i] += rate * direction[i, m]
    for j in range(m):
        to.c[j] += rate * direction[n, j]
    if plan.momentum > 0:
        add(velocity, machine)


# All states


@lean
def infer(theta: Wide, x: Wide, q: Wide) -> float:
    """q = E[(h, 1) | x] of x and 1, (N + 1,); return -F(x), in nats."""
    m = q.size - 1
    q[:] = 0
    for i in range(x.size):
        if x[i] != 0:
            for j in range(q.size):
                q[j] += x[i] * theta[i, j]
    score, q[m] = q[m], 1.0  # the last column has the visible biases
    for j in range(m):
        e = math.exp(-abs(q[j]))
        score += max(q[j], 0.0) + math.log1p(e)
        q[j] = 1.0 / (1.0 + e) if q[j] >= 0 else e / (1.0 + e)
    return score


@lean
def find_moments(machine: Machine, natural: Natural) -> None:
    """p(x) and E[h | x] of all visible states; the mean of s in ``direction``."""
    theta, states, p, q, mean = natural.theta, natural.states, natural.p, natural.q, natural.direction
    n, m, top, total = machine.b.size, machine.c.size, -np.inf, 0.0
    for i in range(n):
        theta[i, m] = machine.b[i]
        for j in range(m):
            theta[i, j] = machine.W[i, j]
    for j in range(m):
        theta[n, j] = machine.c[j]
    for s in range(p.size):
        p[s] = infer(theta, states[s], q[s])
        top = max(top, p[s])
    for s in range(p.size):
        p[s] = math.exp(p[s] - top)
        total += p[s]
    mean[:] = 0
    for s in range(p.size):
        p[s] /= total
        add_outer(p[s], states[s], q[s], mean)


@lean
def add_outer(share: float, x: Wide, h: Wide, out: Wide) -> None:
    """out += share x h'."""
    for i in range(x.size):
        if x[i] != 0:
            for j in range(h.size):
                out[i, j] += share * x[i] * h[j]


@lean
def take_exact_gradient(x: Array, natural: Natural) -> None:
    """gradient = <s>_d - <s>_m in float64, over the rows x (B, N)."""
    vector, mean, row, n = natural.gradient, natural.direction, natural.row, x.shape[1]
    vector[:] = 0
    for r in range(x.shape[0]):
        for i in range(n):
            row[i] = x[r, i]
        infer(natural.theta, row, natural.h_of_row)
        add_outer(1.0 / x.shape[0], row, natural.h_of_row, vector)
    for i in range(n + 1):
        for j in range(vector.shape[1]):
            vector[i, j] -= mean[i, j]
    vector[-1, -1] = 0


@lean_sum
def add_up_fisher(natural: Natural) -> None:
    """F = Cov(E[s | x]), plus E[Cov(s | x)] for the joint one; its lower half, damped.

    Given x hidden units are independent: Cov(x_i h_j, x_k h_l) = x_i x_k q_j (1 - q_j) for j = l, else 0.
    """
    F, mean, deviation, columns = natural.F, natural.direction, natural.rest, natural.q.shape[1]
    F[:] = 0
    for s in range(natural.p.size):
        x, q, p = natural.states[s], natural.q[s], natural.p[s]
        for i in range(x.size):
            for j in range(columns):
                deviation[i * columns + j] = x[i] * q[j] - mean[i, j]
        for a in range(deviation.size):
            row, share = F[a], p * deviation[a]
            for b in range(a + 1):
                row[b] += share * deviation[b]
        for i in range(x.size if natural.how.fisher == JOINT else 0):
            for k in range(i + 1 if x[i] != 0 else 0):
                for j in range(columns - 1 if x[k] != 0 else 0):
                    F[i * columns + j, k * columns + j] += p * q[j] * (1 - q[j])
    for a in range(deviation.size):
        F[a, a] += natural.how.damping


@lean_sum
def solve(natural: Natural) -> int:
    """direction = F^-1 gradient, with 0 along pivots that vanish; return the number of other pivots."""
    L, order, y, columns = natural.L, natural.order, natural.rest, natural.gradient.shape[1]
    rank = factorise(natural)
    for k in range(rank):  # L y = gradient
        total = natural.gradient[order[k] // columns, order[k] % columns]
        for t in range(k):
            total -= L[k, t] * y[t]
        y[k] = total / L[k, k]
    natural.direction[:] = 0
    for k in range(rank - 1, -1, -1):  # L' direction = y
        total = y[k]
        for t in range(k + 1, rank):
            total -= L[t, k] * y[t]
        y[k] = total / L[k, k]
        natural.direction[order[k] // columns, order[k] % columns] = y[k]
    return rank


@lean_sum
def factorise(natural: Natural) -> int:
    """F[order][:, order] = L L' for as many pivots as do not vanish; return their number.

    Close to the data a machine has fewer directions than parameters. The pivoted Cholesky decomposition takes
    parameters in the order of their remaining variance, and leaves out those that others determine.
    """
    F, L, order, rest, largest = natural.F, natural.L, natural.order, natural.rest, 0.0
    for a in range(order.size):
        order[a], rest[a] = a, F[a, a]
        largest = max(largest, rest[a])
    for k in range(order.size):
        best = k
        for a in range(k + 1, order.size):
            if rest[a] > rest[best]:
                best = a
        if not rest[best] > _FLAT * largest:  # or NaN, where the machine has diverged
            return k
        swap(L, order, rest, k, best)
        L[k, k] = math.sqrt(rest[k])
        for a in range(k + 1, order.size):
            i, j = max(order[a], order[k]), min(order[a], order[k])
            total, row, other = F[i, j], L[a], L[k]
            for t in range(k):
                total -= row[t] * other[t]
            row[k] = total / other[k]
            rest[a] -= row[k] * row[k]
    return order.size


@lean
def swap(L: Wide, order: NDArray[np.int64], rest: Wide, k: int, other: int) -> None:
    """Exchange two rows of a factor of which k columns are known."""
    order[k], order[other] = order[other], order[k]
    rest[k], rest[other] = rest[other], rest[k]
    for t in range(k):
        L[k, t], L[other, t] = L[other, t], L[k, t]


# The model phase


@lean
def over_variances(natural: Natural, model: Phase) -> None:
    """Divide each component by the variance m (1 - m) of its binary feature, plus damping."""
    vector, direction = natural.gradient, natural.direction
    n, m = model.x.shape[1], model.h.shape[1]
    product_tn(model.x, model.h, natural.narrow[:n, :m])  # minus the mean of x h'
    for i in range(n + 1):
        for j in range(m + 1):
            mean = 0.0
            if i < n and j < m:
                mean = -np.float64(natural.narrow[i, j])
            elif i < n:
                mean = np.float64(model.mean.x[i])
            elif j < m:
                mean = np.float64(model.mean.h[j])
            variance = mean * (1 - mean) + natural.how.damping
            direction[i, j] = vector[i, j] / variance if variance > _LEAST else 0.0


@lean
def take_samples(natural: Natural, model: Phase, states_h: Array, plan: Plan, update: int) -> None:
    """(x, 1) and (h, 1) of the model's rows, with hidden states drawn from their means for a joint F."""
    (rows, n), m, joint = model.x.shape, model.h.shape[1], natural.how.fisher == JOINT
    if joint:
        fill_uniform(natural.u, plan.seed, update, FISHER, 0)
    for r in range(rows):
        for i in range(n):
            natural.x[r, i] = model.x[r, i]
        natural.x[r, n] = natural.h[r, m] = 1
        for j in range(m):
            h = states_h[r, j] if plan.exact else model.h[r, j] / model.weight[r]
            natural.h[r, j] = np.float32(natural.u[r * m + j] < h) if joint else h


@lean
def conjugate_gradients(natural: Natural, weight: Array) -> None:
    """Solve F direction = gradient (Hestenes & Stiefel 1952); F is applied to vectors and never formed."""
    solution, residual, search, image = natural.direction, natural.residual, natural.search, natural.image
    solution[:] = 0
    assign(natural.gradient, residual)
    assign(natural.gradient, search)
    size = start = inner(residual, residual)
    for _ in range(natural.how.iterations):
        if size <= _SHORT**2 * start:
            break
        times_fisher(natural, weight)
        curvature = inner(search, image)
        if curvature == 0:  # no variance is left along it
            break
        step, before = size / curvature, size
        for i in range(image.shape[0]):
            for j in range(image.shape[1]):
                solution[i, j] += step * search[i, j]
                residual[i, j] -= step * image[i, j]
        size = inner(residual, residual)
        for i in range(image.shape[0]):
            for j in range(image.shape[1]):
                search[i, j] = residual[i, j] + size / before * search[i, j]


@lean_sum
def inner(one: Wide, other: Wide) -> float:
    """The inner product of two vectors."""
    total = 0.0
    for i in range(one.shape[0]):
        for j in range(one.shape[1]):
            total += one[i, j] * other[i, j]
    return total


@lean
def times_fisher(natural: Natural, weight: Array) -> None:
    """image = F search: the covariance of the samples' s, which have minus these weights (R,)."""
    x, h, along, narrow, image = natural.x, natural.h, natural.along, natural.narrow, natural.image
    assign(natural.search, narrow)
    product(x, narrow, along)  # (R, N + 1) @ (N + 1, M + 1)
    mean = 0.0
    for r in range(x.shape[0]):
        mean -= weight[r] * row_product(along[r], h[r])
    for r in range(x.shape[0]):
        share = np.float32(-weight[r] * (row_product(along[r], h[r]) - mean))
        for j in range(h.shape[1]):
            along[r, j] = share * h[r, j]
    product_tn(x, along, narrow)  # (N + 1, R) @ (R, M + 1)
    for i in range(image.shape[0]):
        for j in range(image.shape[1]):
            image[i, j] = narrow[i, j] + natural.how.damping * natural.search[i, j]
    image[-1, -1] = 0


@lean_sum
def row_product(one: Array, other: Array) -> float:
    """The inner product of two rows, in float64."""
    total = 0.0
    for j in range(one.size):
        total += np.float64(one[j]) * np.float64(other[j])
    return total
