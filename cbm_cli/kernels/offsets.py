"""Offsets, made of means over the rows of both phases and moved as a moving average."""

from typing import NamedTuple

import numpy as np

from cbm_cli.kernels.compiling import merged
from cbm_cli.kernels.machine import Array, Machine, aligned
from cbm_cli.kernels.plan import Plan
from cbm_cli.kernels.random import NOISE, fill_uniform


class Means(NamedTuple):
    """Mean visible (N,) and hidden (M,) units, of the data or of the model."""

    x: Array
    h: Array


def make_means(n: int, m: int, multiple: int = 1) -> Means:
    """Allocate means, or random numbers for them, which come in fours."""
    return Means(*(aligned(np.zeros(size + -size % multiple)) for size in (n, m)))


@merged
def slide(
    offset: Array,
    mix: Array,
    factor: Array,
    data_mean: Array,
    model_mean: Array,
    noise: Array,
) -> None:
    """offset += factor (mix - offset): `reference.moving_average` of
    `reference.offset_target`.
    """
    for i in range(offset.size):
        target = (
            mix[0, i] * data_mean[i]
            + mix[1, i] * model_mean[i]
            + mix[2, i]
            + mix[3, i] * noise[i]
        )
        offset[i] += factor[i] * (target - offset[i])


@merged
def move_offsets(
    machine: Machine, data: Means, model: Means, noise: Means, plan: Plan, update: int
) -> None:
    """Move both offsets, by the means of this update; the plain biases do not
    change.
    """
    how = plan.offsets
    if how.noisy:
        fill_uniform(noise.x, plan.seed, update, NOISE, 0)
        fill_uniform(noise.h, plan.seed, update, NOISE, noise.x.size // 4)
    slide(machine.mu, how.mu_mix, how.mu_factor, data.x, model.x, noise.x)
    slide(machine.lam, how.lam_mix, how.lam_factor, data.h, model.h, noise.h)
