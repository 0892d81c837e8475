"""Natural gradients (Amari 1998) of small machines, and steps of the length of another
gradient.

A vector of all parameters is a matrix (N + 1, M + 1), [[W, b], [c, 0]]: s = (x, 1)(h,
1)' has this form, and the Fisher matrix is its covariance, `reference.fisher`: of p(x,
h) (joint), or of E[s | x] under p(x) (marginal). Moments are float64: small variances
meet small gradients, and their ratio would be noise.
"""

import math
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli.kernels.compiling import lean, lean_sum
from cbm_cli.kernels.machine import Machine
from cbm_cli.kernels.memory import Array, Wide, aligned_zeros, allocate
from cbm_cli.kernels.plan import Plan
from cbm_cli.kernels.step import Gradient, add_parameters, ascend, scale_parameters
from cbm_cli.reference import states as list_states

# Direction.fisher: the centered gradient, or an F
CENTERED, DIAGONAL, MARGINAL, JOINT = range(4)
FISHERS = {"diagonal": DIAGONAL, "marginal": MARGINAL, "joint": JOINT}
# a variance this small, of a pivot relative to the largest one, is 0: nothing moves
# along it
NO_VARIANCE = 1e-12


class Direction(NamedTuple):
    """The direction of an update other than the centered gradient."""

    fisher: int
    damping: float  # added to the diagonal of F
    scaled: bool = False  # to the length of another gradient
    to_centered: bool = False  # the centered one, or the standard one


class Natural(NamedTuple):
    """A direction and the work arrays that find it; P = (N + 1)(M + 1), S = 2^N, or 0
    without a sum.
    """

    how: Direction
    machine: Machine
    rows: Array  # (B, N) of the data phase
    samples: Array  # (R, N) of the model phase, none if it is exact
    along: Machine  # views of the direction
    centered: Machine  # `natural_step`: the centered gradient, in float64
    direction: Annotated[Wide, "P"]  # `find_direction`
    gradient: Annotated[Wide, "P"]  # `find_moments`: the standard gradient
    mean: Annotated[Wide, "P"]  # `find_moments`: <s> under the model
    # `find_moments`: <s> of the model phase: of samples, or the mean itself
    sampled: Wide
    deviation: Annotated[Wide, "P"]  # `find_direction`: E[s | x] - <s> of a state
    states: Wide  # (S, N + 1) all visible states x, and 1
    p: Annotated[Wide, "S"]  # `find_moments`: p(x)
    # `find_moments`: (S + 1, M + 1) E[h | x] and 1, and those of a row
    q: Wide
    F: Annotated[Wide, "Q Q"]  # `find_direction`; Q = P where F is not diagonal, else 0
    # `solve`: which of the parameters are solved for
    solved: Annotated[NDArray[np.bool_], "P"]


def make_natural(
    how: Direction, machine: Machine, exact: bool, rows: Array, model: Array
) -> Natural:
    """Allocate the work arrays for a machine, rows (B, N) of the data and (R, N) of the
    model.
    """
    n, m = machine.W.shape
    size, has_matrix = (n + 1) * (m + 1), how.fisher in (MARGINAL, JOINT)
    sums_states = has_matrix or (exact and how.fisher != CENTERED)
    count = 2**n if sums_states else 0
    states = np.ones((count, n + 1))
    if sums_states:
        states[:, :n] = list_states(n)
    direction, centered, mean, sampled = aligned_zeros((4, size), np.float64)
    if exact or not sums_states:
        sampled = mean
    return allocate(
        Natural,
        how=how,
        machine=machine,
        rows=rows,
        samples=model[: 0 if exact else len(model)],
        direction=direction,
        along=_as_machine(direction, machine),
        centered=_as_machine(centered, machine),
        mean=mean,
        sampled=sampled,
        states=states,
        q=np.ones((count + 1, m + 1)),
        P=size,
        Q=size if has_matrix else 0,
        S=count,
    )


def _as_machine(vector: Wide, machine: Machine) -> Machine:
    """Views of a vector of all parameters, with the offsets of a machine."""
    n, m = machine.W.shape
    matrix = vector.reshape(n + 1, m + 1)
    W: NDArray = matrix[:n, :m]
    b: NDArray = matrix[:n, m]
    c: NDArray = matrix[n, :m]
    return machine._replace(W=W, b=b, c=c)


@lean
def natural_step(
    natural: Natural,
    gradient: Gradient,
    velocity: Machine | None,
    plan: Plan,
    rate: np.float32,
) -> None:
    """Make the step of an update along the natural gradient or the centered one, scaled
    if asked.
    """
    how, machine, centered = natural.how, natural.machine, natural.centered
    scale_parameters(centered, np.float32(0))
    ascend(centered, gradient, plan, np.float32(1))
    along = centered if how.fisher == CENTERED else natural.along
    if how.fisher != CENTERED:
        find_moments(natural)
        find_direction(natural)
    if how.scaled:
        target = length(gradient.W, gradient.x, gradient.h)
        if how.to_centered:
            target = length(centered.W, centered.b, centered.c)
        rate *= np.float32(target / max(length(along.W, along.b, along.c), 1e-30))
    if velocity is None:
        add_parameters(along, machine, rate)
    else:
        scale_parameters(velocity, plan.momentum)
        add_parameters(along, velocity, rate)
        add_parameters(velocity, machine, np.float32(1))


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


@lean
def find_moments(natural: Natural) -> None:
    """<s> of the model, over all states if they are summed, and the standard gradient
    <s>_d - <s>_m.
    """
    machine, states = natural.machine, natural.states
    rows, samples = natural.rows, natural.samples
    gradient, mean, sampled = natural.gradient, natural.mean, natural.sampled
    p, q = natural.p, natural.q
    of_row = q[p.size]
    for k in range(gradient.size):
        gradient[k] = mean[k] = sampled[k] = 0.0
    top, total = -np.inf, 0.0
    for s in range(p.size):
        p[s] = infer(machine, states[s], q[s])
        top = max(top, p[s])
    for s in range(p.size):
        total += math.exp(p[s] - top)
    for s in range(p.size):
        p[s] = math.exp(p[s] - top) / total
        add_moments(states[s], q[s], p[s], mean)
    for r in range(len(rows)):
        infer(machine, rows[r], of_row)
        add_moments(rows[r], of_row, 1.0 / len(rows), gradient)
    for r in range(len(samples)):
        infer(machine, samples[r], of_row)
        add_moments(samples[r], of_row, 1.0 / len(samples), sampled)
    for k in range(gradient.size):
        gradient[k] -= sampled[k]


@lean_sum
def infer(machine: Machine, x: NDArray, q: Wide) -> float:
    """q = E[(h, 1) | x]; return -F(x), in nats."""
    W, b, c, score = machine.W, machine.b, machine.c, 0.0
    for j in range(c.size):
        q[j] = c[j]
    for i in range(b.size):
        score += np.float64(x[i]) * b[i]
        for j in range(c.size if x[i] != 0 else 0):
            q[j] += np.float64(x[i]) * W[i, j]
    for j in range(c.size):
        e = math.exp(-abs(q[j]))
        score += max(q[j], 0.0) + math.log1p(e)
        q[j] = (1.0 if q[j] >= 0 else e) / (1.0 + e)
    return score


@lean_sum
def add_moments(x: NDArray, q: Wide, weight: float, total: Wide) -> None:
    """total += weight (x, 1) q', for x (N,) and perhaps more."""
    n = total.size // q.size - 1
    for i in range(n + 1):
        factor = weight * np.float64(x[i]) if i < n else weight
        for j in range(q.size if factor != 0 else 0):
            total[i * q.size + j] += factor * q[j]


@lean_sum
def find_direction(natural: Natural) -> None:
    """direction = F^-1 gradient, F damped; a diagonal F has the variances of the binary
    x_i h_j, x_i and h_j.

    The others are Cov(E[s | x]), plus E[Cov(s | x)] for the joint one. Given x hidden
    units are independent: Cov(x_i h_j, x_k h_l) = x_i x_k q_j (1 - q_j) for j = l, else
    0.
    """
    F, mean, deviation = natural.F, natural.mean, natural.deviation
    columns, fisher = natural.q.shape[1], natural.how.fisher
    for k in range(mean.size):
        natural.direction[k] = natural.gradient[k]
    if fisher == DIAGONAL:
        for k in range(mean.size):
            variance = mean[k] * (1.0 - mean[k]) + natural.how.damping
            natural.direction[k] *= 1.0 / variance if variance > NO_VARIANCE else 0.0
        return
    F[:] = 0.0
    for s in range(natural.p.size):
        x, q, p = natural.states[s], natural.q[s], natural.p[s]
        for a in range(mean.size):
            deviation[a] = x[a // columns] * q[a % columns] - mean[a]
        for a in range(mean.size):
            row, factor = F[a], p * deviation[a]
            for b in range(mean.size):
                row[b] += factor * deviation[b]
        for i in range(x.size if fisher == JOINT else 0):
            for k in range(x.size if x[i] != 0 else 0):
                for j in range(columns - 1 if x[k] != 0 else 0):
                    F[i * columns + j, k * columns + j] += p * q[j] * (1.0 - q[j])
    for a in range(mean.size):
        F[a, a] += natural.how.damping
    solve(F, natural.direction, natural.solved)


@lean_sum
def solve(F: Wide, y: Wide, solved: NDArray[np.bool_]) -> None:
    """y = F^-1 y by Gauss-Jordan elimination, which uses F up.

    Close to the data a machine has fewer directions than parameters: pivots come in the
    order of their remaining variance, and what others determine does not move. Nothing
    does where the machine has diverged.
    """
    least = 0.0
    for a in range(y.size):
        solved[a] = False
        least = max(least, NO_VARIANCE * F[a, a])
    while True:
        best, pivot = 0, least
        for a in range(y.size):
            if not solved[a] and F[a, a] > pivot:
                best, pivot = a, F[a, a]
        if not pivot > least:
            break
        y[best] /= pivot
        for b in range(y.size):
            F[best, b] /= pivot
        for a in range(y.size):
            factor = F[a, best] if a != best else 0.0
            y[a] -= factor * y[best]
            for b in range(y.size):
                F[a, b] -= factor * F[best, b]
        solved[best] = True
    for a in range(y.size):
        if not solved[a]:
            y[a] = 0.0
