"""Natural gradients (Amari 1998) of small machines, and steps of the length of another gradient.

A vector of all parameters is a matrix (N + 1, M + 1), [[W, b], [c, 0]]: s = (x, 1)(h, 1)' has this form, and
the Fisher matrix is its covariance, `reference.fisher`: of p(x, h) (joint), or of E[s | x] under p(x)
(marginal). Moments are float64: small variances meet small gradients, and their ratio would be noise.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli.kernels.compiling import lean, lean_sum
from cbm_cli.kernels.machine import Array, Machine
from cbm_cli.kernels.phases import Phase
from cbm_cli.kernels.plan import Plan
from cbm_cli.kernels.step import Gradient, add, ascend, fade

Wide = NDArray[np.float64]

CENTERED, DIAGONAL, MARGINAL, JOINT = range(4)  # Direction.fisher: the centered gradient, or an F
FISHERS = {"diagonal": DIAGONAL, "marginal": MARGINAL, "joint": JOINT}
FLAT = 1e-12  # a variance this small, of a pivot relative to the largest one, is 0: nothing moves along it


class Direction(NamedTuple):
    """The direction of an update other than the centered gradient."""

    fisher: int
    damping: float  # added to the diagonal of F
    scaled: bool = False  # to the length of another gradient
    to_centered: bool = False  # the centered one, or the standard one


class Natural(NamedTuple):
    """A direction and the work arrays that find it; P = (N + 1)(M + 1), S = 2^N, or 0 without a sum."""

    how: Direction
    velocity: Machine
    along: Machine  # the direction, in float64
    centered: Machine  # the centered gradient, in float64
    gradient: Wide  # (N + 1, M + 1) the standard gradient
    mean: Wide  # (N + 1, M + 1) <s> under the model
    states: Wide  # (S, N + 1) all visible states x, and 1
    p: Wide  # (S,) p(x)
    q: Wide  # (S + 1, M + 1) E[h | x] and 1, and those of a row
    F: Wide  # (P, P) its lower half
    L: Wide  # (P, P) columns of its Cholesky factor
    order: NDArray[np.int64]  # (P,) of its pivots
    rest: Wide  # (P,) variances that pivots so far leave
    y: Wide  # (P,) the solution of L y = gradient


def make_natural(how: Direction, machine: Machine, velocity: Machine, exact: bool) -> Natural:
    """Allocate the work arrays for a machine and sampled or exact phases."""
    n, m = machine.W.shape
    whole = how.fisher in (MARGINAL, JOINT)
    size, count = ((n + 1) * (m + 1) if whole else 0), (2**n if whole or (exact and how.fisher) else 0)
    states = np.ones((count, n + 1))
    states[:, :n] = (np.arange(count)[:, None] >> np.arange(n)) & 1
    machines = [Machine(*(np.zeros(a.shape) for a in machine[:3]), *machine[3:]) for _ in range(2)]
    vectors, squares = np.zeros((2, n + 1, m + 1)), np.zeros((2, size, size))
    moments = states, np.zeros(count), np.ones((count + 1, m + 1))
    order, lines = np.zeros(size, np.int64), np.zeros((2, size))
    return Natural(how, velocity, *machines, *vectors, *moments, *squares, order, *lines)


@lean
def natural_step(
    natural: Natural,
    machine: Machine,
    gradient: Gradient,
    phases: tuple[Phase, Phase],
    plan: Plan,
    rate: np.float32,
) -> None:
    """Make the step of an update; the phases are those of the data and of the model."""
    how, centered = natural.how, natural.centered
    fade(centered, np.float32(0))
    ascend(centered, gradient, plan, np.float32(1))
    along = centered if how.fisher == CENTERED else natural.along
    if how.fisher != CENTERED:
        find_moments(natural, machine, phases[0].x, phases[1].x, plan.exact)
    if how.fisher == DIAGONAL:
        over_variances(natural)
    elif how.fisher != CENTERED:
        add_up_fisher(natural)
        solve(natural)
    if how.scaled:
        target = length(gradient.W, gradient.x, gradient.h)
        if how.to_centered:
            target = length(centered.W, centered.b, centered.c)
        rate *= np.float32(target / max(length(along.W, along.b, along.c), 1e-30))
    if plan.momentum > 0:
        fade(natural.velocity, plan.momentum)
        add(along, natural.velocity, rate)
        add(natural.velocity, machine, np.float32(1))
    else:
        add(along, machine, rate)


@lean_sum
def length(W: NDArray, b: NDArray, c: NDArray) -> float:
    """Euclidean norm of a gradient."""
    total = 0.0
    for i in range(b.size):
        total += np.float64(b[i]) ** 2
        for j in range(c.size):
            total += np.float64(W[i, j]) ** 2
    for j in range(c.size):
        total += np.float64(c[j]) ** 2
    return math.sqrt(total)


@lean_sum
def infer(machine: Machine, x: NDArray, q: Wide) -> float:
    """q = E[(h, 1) | x] of a visible state; return -F(x), in nats."""
    W, b, c, score = machine.W, machine.b, machine.c, 0.0
    for j in range(c.size):
        q[j] = c[j]
    for i in range(b.size):
        if x[i] != 0:
            score += np.float64(x[i]) * b[i]
            for j in range(c.size):
                q[j] += np.float64(x[i]) * W[i, j]
    for j in range(c.size):
        e = math.exp(-abs(q[j]))
        score += max(q[j], 0.0) + math.log1p(e)
        q[j] = (1.0 if q[j] >= 0 else e) / (1.0 + e)
    return score


@lean
def add_outer(share: float, x: NDArray, q: Wide, out: Wide) -> None:
    """out += share (x, 1) q'."""
    for i in range(out.shape[0]):
        factor = share if i == out.shape[0] - 1 else share * x[i]
        for j in range(q.size if factor != 0 else 0):
            out[i, j] += factor * q[j]


@lean
def find_moments(natural: Natural, machine: Machine, rows: Array, samples: Array, exact: bool) -> None:
    """<s> under the model, of all states if they are summed, and the standard gradient <s>_d - <s>_m."""
    gradient, mean, states, p, q = natural.gradient, natural.mean, natural.states, natural.p, natural.q
    gradient[:] = 0.0
    mean[:] = 0.0
    top, total, of_row = -np.inf, 0.0, q[p.size]
    for s in range(p.size):
        p[s] = infer(machine, states[s], q[s])
        top = max(top, p[s])
    for s in range(p.size):
        p[s] = math.exp(p[s] - top)
        total += p[s]
    for s in range(p.size):
        p[s] /= total
        add_outer(p[s], states[s], q[s], mean)
    for r in range(rows.shape[0]):
        infer(machine, rows[r], of_row)
        add_outer(1.0 / rows.shape[0], rows[r], of_row, gradient)
    for r in range(0 if exact else samples.shape[0]):
        infer(machine, samples[r], of_row)
        add_outer(-1.0 / samples.shape[0], samples[r], of_row, gradient)
        if p.size == 0:
            add_outer(1.0 / samples.shape[0], samples[r], of_row, mean)
    for i in range(gradient.shape[0] if exact else 0):
        for j in range(gradient.shape[1]):
            gradient[i, j] -= mean[i, j]


@lean
def over_variances(natural: Natural) -> None:
    """Divide each component by the variance of its binary feature, plus damping; without any it is 0."""
    for i in range(natural.mean.shape[0]):
        for j in range(natural.mean.shape[1]):
            mean = natural.mean[i, j]
            variance = mean * (1.0 - mean) + natural.how.damping
            put(natural.along, i, j, natural.gradient[i, j] / variance if variance > FLAT else 0.0)


@lean
def put(along: Machine, i: int, j: int, value: float) -> None:
    """Set a component of the direction."""
    if i < along.b.size and j < along.c.size:
        along.W[i, j] = value
    elif i < along.b.size:
        along.b[i] = value
    elif j < along.c.size:
        along.c[j] = value


@lean_sum
def add_up_fisher(natural: Natural) -> None:
    """F = Cov(E[s | x]), plus E[Cov(s | x)] for the joint one; its lower half, damped.

    Given x hidden units are independent: Cov(x_i h_j, x_k h_l) = x_i x_k q_j (1 - q_j) for j = l, else 0.
    """
    F, mean, deviation, columns = natural.F, natural.mean, natural.rest, natural.q.shape[1]
    F[:] = 0.0
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
                    F[i * columns + j, k * columns + j] += p * q[j] * (1.0 - q[j])
    for a in range(deviation.size):
        F[a, a] += natural.how.damping


@lean_sum
def solve(natural: Natural) -> int:
    """along = F^-1 gradient by a Cholesky decomposition; return the number of pivots that do not vanish.

    Close to the data a machine has fewer directions than parameters: pivots come in the order of their
    remaining variance, and what others determine does not move.
    """
    F, L, order, rest, y = natural.F, natural.L, natural.order, natural.rest, natural.y
    gradient, columns, rank, largest = natural.gradient, natural.gradient.shape[1], 0, 0.0
    for a in range(rest.size):
        put(natural.along, a // columns, a % columns, 0.0)
        rest[a] = F[a, a]
        largest = max(largest, rest[a])
    for k in range(rest.size):
        best = 0
        for a in range(rest.size):
            best = a if rest[a] > rest[best] else best
        if not rest[best] > FLAT * largest:  # or NaN, where the machine has diverged
            break
        order[k], pivot, rank = best, math.sqrt(rest[best]), k + 1
        y[k] = gradient[best // columns, best % columns] / pivot
        for a in range(rest.size):
            L[k, a] = F[max(a, best), min(a, best)] / pivot
        for t in range(k):
            share = L[t, best] / pivot
            y[k] -= share * y[t]
            for a in range(rest.size):
                L[k, a] -= share * L[t, a]
        for a in range(rest.size):
            rest[a] -= L[k, a] ** 2
        rest[best] = 0.0
    for k in range(rank - 1, -1, -1):  # L' along = y
        for t in range(k + 1, rank):
            y[k] -= L[k, order[t]] * y[t]
        y[k] /= L[k, order[k]]
        put(natural.along, order[k] // columns, order[k] % columns, y[k])
    return rank
