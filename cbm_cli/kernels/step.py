"""The gradient step of any machine: centered, with weight decay and momentum."""

from typing import Annotated, NamedTuple

import numpy as np

from cbm_cli.kernels.compiling import lean, lean_sum
from cbm_cli.kernels.machine import Machine
from cbm_cli.kernels.memory import Array, Counts, allocate
from cbm_cli.kernels.plan import Plan


class Gradient(NamedTuple):
    """The gradient without offsets: <.>_d - <.>_m of x h', x and h; of an auto encoder
    that of the cost. `gather_gradient` writes it.
    """

    W: Annotated[Array, "N M"]
    x: Annotated[Array, "N"]
    h: Annotated[Array, "M"]
    spans: Counts  # (N, 2) `Plan.spans`
    along_mu: Annotated[Array, "M"]  # `ascend`: the step of W times mu


def make_gradient(spans: Counts, m: int) -> Gradient:
    """Allocate a gradient of N visible units that have ``spans``, and m hidden ones."""
    return allocate(Gradient, spans=spans, N=len(spans), M=m)


@lean
def rate_at(plan: Plan, update: int) -> np.float32:
    """The learning rate of an update."""
    return plan.rates[np.searchsorted(plan.rate_from, update, "right") - 1]


@lean
def step(
    machine: Machine,
    gradient: Gradient,
    velocity: Machine | None,
    plan: Plan,
    rate: np.float32,
) -> None:
    """Move a machine along its centered gradient; a negative rate descends.
    `reference.plain_step`.
    """
    if plan.l1 > 0 or plan.l2 > 0:
        sign = np.float32(1) if rate > 0 else np.float32(-1)
        decay_weights(machine.W, gradient.W, plan, sign)
    if velocity is None:
        ascend(machine, gradient, plan, rate)
    else:
        scale_parameters(velocity, plan.momentum)
        ascend(velocity, gradient, plan, rate)
        add_parameters(velocity, machine, np.float32(1))


@lean_sum
def ascend(machine: Machine, gradient: Gradient, plan: Plan, rate: np.float32) -> None:
    """Add ``rate`` times the centered gradient, Eqs. (13)-(15);
    `reference.centered_gradient`.

    <(x - mu)(h - lam)'>_d - <(x - mu)(h - lam)'>_m is multiplied out, gradient.W - mu
    gradient.h' - gradient.x lam': the products then need no centered copies of the
    rows.
    """
    W, b, c, mu, lam = machine
    spans = gradient.spans
    # c takes the sum: each addition to c is rounded at the size of c
    along_mu = gradient.along_mu
    for j in range(along_mu.size):
        along_mu[j] = 0
    for i in range(b.size):
        row, along, x_i, mu_i = W[i], gradient.W[i], gradient.x[i], mu[i]
        # Doubled activations double what the biases make up for: to_hidden (x - mu) W
        # must stay 0 at x = mu.
        mu_up, along_lam = plan.to_hidden * mu_i, np.float32(0)
        first, after_last = np.uint64(spans[i, 0]), np.uint64(spans[i, 1])
        for j in range(first, after_last):  # connected units
            change = rate * (along[j] - mu_i * gradient.h[j] - x_i * lam[j])
            row[j] += change  # Eq. (13)
            along_mu[j] += change * mu_up
            along_lam += change * lam[j]
        b[i] += rate * x_i - plan.to_visible * along_lam  # Eq. (14)
    for j in range(c.size):
        c[j] += rate * gradient.h[j] - along_mu[j]  # Eq. (15)


@lean
def decay_weights(W: Array, gradient: Array, plan: Plan, sign: np.float32) -> None:
    """gradient -= sign (l2 W + l1 sign(W)): the centered biases stay, as in any step of
    W.
    """
    for i in range(W.shape[0]):
        for j in range(W.shape[1]):
            w = W[i, j]
            direction = np.float32(w > 0) - np.float32(w < 0)
            gradient[i, j] -= sign * (plan.l2 * w + plan.l1 * direction)


@lean
def scale_parameters(machine: Machine, factor: np.float32) -> None:
    """Multiply W, b and c by a factor."""
    for i in range(machine.b.size):
        machine.b[i] *= factor
        for j in range(machine.c.size):
            machine.W[i, j] *= factor
    for j in range(machine.c.size):
        machine.c[j] *= factor


@lean
def add_parameters(change: Machine, machine: Machine, factor: np.float32) -> None:
    """Add ``factor`` times W, b and c of ``change`` to a machine."""
    for i in range(machine.b.size):
        machine.b[i] += factor * change.b[i]
        for j in range(machine.c.size):
            machine.W[i, j] += factor * change.W[i, j]
    for j in range(machine.c.size):
        machine.c[j] += factor * change.c[j]
