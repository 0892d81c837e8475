"""Means over the rows of a phase, and the offsets that are made of them."""

from typing import NamedTuple

import numpy as np

from cbm_cli.kernels.compiling import lean
from cbm_cli.kernels.random import NOISE, fill_uniform
from cbm_cli.kernels.state import Array, Plan, State


class Means(NamedTuple):
    """Mean visible (N,) and hidden (M,) units, of the data or of the model."""

    x: Array
    h: Array


@lean
def average(x: Array, weight: Array, weighted_h: Array, sign: np.float32, means: Means) -> None:
    """Fill ``means`` over the rows of x (R, N), by weight (R,), and weighted_h = sign * weight * h (R, M)."""
    mean_x, mean_h = means
    mean_x[:] = 0
    mean_h[:] = 0
    for r in range(weight.size):
        share = weight[r]
        for i in range(mean_x.size):
            mean_x[i] += share * x[r, i]
        for j in range(mean_h.size):
            mean_h[j] += weighted_h[r, j]
    for j in range(mean_h.size):
        mean_h[j] *= sign


@lean
def slide(
    offset: Array, mix: Array, factor: np.float32, data_mean: Array, model_mean: Array, noise: Array
) -> None:
    """Move each offset by ``factor`` towards its mix (4, units) of data mean, model mean, constant, noise."""
    for i in range(offset.size):
        target = mix[0, i] * data_mean[i] + mix[1, i] * model_mean[i] + mix[2, i] + mix[3, i] * noise[i]
        offset[i] += factor * (target - offset[i])


@lean
def move_offsets(
    state: State, data: Means, model: Means, plan: Plan, noisy: bool, update: int, noise: tuple[Array, Array]
) -> None:
    """Both offsets of the paper's Algorithm 1, from the means of this update."""
    if noisy:
        fill_uniform(noise[0], plan.seed, update, NOISE, 0)
        fill_uniform(noise[1], plan.seed, update, NOISE, noise[0].size // 4)
    slide(state.mu, plan.visible_mix, plan.sliding_visible, data.x, model.x, noise[0])
    slide(state.lam, plan.hidden_mix, plan.sliding_hidden, data.h, model.h, noise[1])
