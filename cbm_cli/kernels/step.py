"""The gradient step: the centered gradient, or a direction of another length or another metric."""

import math
from typing import NamedTuple

import numpy as np

from cbm_cli.kernels.compiling import compiled, lean, lean_sum
from cbm_cli.kernels.natural import Fisher, make_fisher, natural_direction
from cbm_cli.kernels.offsets import Means
from cbm_cli.kernels.state import CENTERED, TO_CENTERED, TO_STANDARD, UNSCALED, Array, Plan, State


class OtherStep(NamedTuple):
    """What a step needs that is not simply the centered gradient's."""

    direction: State
    fisher: Fisher


def make_other_step(state: State, plan: Plan) -> OtherStep | None:
    """Allocate another step; None where the plan's is the centered gradient's."""
    if plan.direction == CENTERED and plan.scale_to == UNSCALED:
        return None
    direction = state._replace(**{name: np.empty_like(getattr(state, name)) for name in ("W", "b", "c")})
    return OtherStep(direction, make_fisher(*state.W.shape, plan.batch, plan))


@lean_sum
def ascend(
    state: State,
    spans: Array,
    contrast: Array,
    data: Means,
    model: Means,
    learning_rate: np.float32,
    to_hidden: np.float32,
    to_visible: np.float32,
) -> None:
    """One step along the centered gradient, Eqs. (cgradW), (cgradb), (cgradc); state changes in place.

    <(x - mu)(h - lam)'>_d - <...>_m is written as contrast - mu dh' - dx lam', where contrast (N, M) is
    <x h'>_d - <x h'>_m and dx, dh are the differences of the means: the products then need no centered
    copies of the rows. Only connections within the spans (N, 2) move. Where activations are doubled, so is
    what the biases make up for: to_hidden (x - mu) W has to change by nothing at x = mu.
    """
    for j in range(state.c.size):
        state.c[j] += learning_rate * (data.h[j] - model.h[j])
    for i in range(state.b.size):
        dx = data.x[i] - model.x[i]
        start, stop = spans[i, 0], spans[i, 1]
        W, c, lam, along = (
            state.W[i, start:stop],
            state.c[start:stop],
            state.lam[start:stop],
            contrast[i, start:stop],
        )
        data_h, model_h = data.h[start:stop], model.h[start:stop]
        mu = state.mu[i]
        mu_up = to_hidden * mu
        along_lam = np.float32(0)
        for j in range(W.size):
            step = learning_rate * (along[j] - mu * (data_h[j] - model_h[j]) - dx * lam[j])
            W[j] += step
            c[j] -= step * mu_up
            along_lam += step * lam[j]
        state.b[i] += learning_rate * dx - to_visible * along_lam


@compiled
def other_step(
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
    other: OtherStep,
) -> None:
    """One step along another direction, or of another length, than the centered gradient's.

    data_x (B, N) are the rows of the data phase; x (R, N), weight (R,) and weighted_h (R, M) those of the
    model phase.
    """
    direction, fisher = other
    clear(direction)
    ascend(direction, plan.spans, contrast, data, model, np.float32(1), plan.to_hidden, plan.to_visible)
    target = 0.0
    if plan.scale_to == TO_STANDARD:
        target = standard_length(contrast, data, model)
    if plan.scale_to == TO_CENTERED:
        target = length(direction)
    if plan.direction != CENTERED:
        natural_direction(
            state, data_x, x, weight, weighted_h, contrast, data, model, plan, update, direction, fisher
        )
    factor = plan.learning_rate
    if plan.scale_to != UNSCALED:
        factor *= np.float32(target / max(length(direction), 1e-30))
    climb(state, direction, factor)


@lean
def clear(direction: State) -> None:
    """Set a direction to zero."""
    direction.W[:] = 0
    direction.b[:] = 0
    direction.c[:] = 0


@lean
def climb(state: State, direction: State, factor: np.float32) -> None:
    """Add ``factor`` times the direction to the machine."""
    for i in range(state.b.size):
        state.b[i] += factor * direction.b[i]
        for j in range(state.c.size):
            state.W[i, j] += factor * direction.W[i, j]
    for j in range(state.c.size):
        state.c[j] += factor * direction.c[j]


@lean_sum
def length(direction: State) -> float:
    """Euclidean norm of all components together."""
    total = 0.0
    for i in range(direction.b.size):
        total += direction.b[i] ** 2
        for j in range(direction.c.size):
            total += direction.W[i, j] ** 2
    for j in range(direction.c.size):
        total += direction.c[j] ** 2
    return math.sqrt(total)


@lean_sum
def standard_length(contrast: Array, data: Means, model: Means) -> float:
    """Euclidean norm of the gradient without centering, all components together."""
    total = 0.0
    for i in range(contrast.shape[0]):
        total += (data.x[i] - model.x[i]) ** 2
        for j in range(contrast.shape[1]):
            total += contrast[i, j] ** 2
    for j in range(contrast.shape[1]):
        total += (data.h[j] - model.h[j]) ** 2
    return math.sqrt(total)


@lean
def add_fast(state: State, chains: State) -> None:
    """The machine that the chains see: the regular parameters plus the fast ones."""
    for i in range(state.W.shape[0]):
        chains.b[i] = state.b[i] + state.fast_b[i]
        for j in range(state.W.shape[1]):
            chains.W[i, j] = state.W[i, j] + state.fast_W[i, j]
    for j in range(state.c.size):
        chains.c[j] = state.c[j] + state.fast_c[j]


@lean
def decay(fast: State, factor: np.float32) -> None:
    """Let the fast parameters fade."""
    for i in range(fast.W.shape[0]):
        fast.b[i] *= factor
        for j in range(fast.W.shape[1]):
            fast.W[i, j] *= factor
    for j in range(fast.c.size):
        fast.c[j] *= factor


@compiled
def with_parameters(state: State, W: Array, b: Array, c: Array) -> State:
    """The same offsets and chains around other parameters."""
    return State(
        W, b, c, state.mu, state.lam, state.h, state.aside_h, state.fast_W, state.fast_b, state.fast_c,
        state.rounds,
    )  # fmt: skip
