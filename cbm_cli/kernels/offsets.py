"""Offsets, made of means over the rows of both phases and moved as a moving average."""

from typing import Annotated, NamedTuple

from cbm_cli.kernels.compiling import merged
from cbm_cli.kernels.machine import Machine
from cbm_cli.kernels.memory import Array, allocate
from cbm_cli.kernels.plan import Plan
from cbm_cli.kernels.random import NOISE, fill_uniform


class Means(NamedTuple):
    """Mean units of the data or of the model: `average`, `gather_gradient` of an auto
    encoder; or random numbers in their place: `move_offsets`.
    """

    x: Annotated[Array, "N"]
    h: Annotated[Array, "M"]


def make_means(n: int, m: int) -> Means:
    """Allocate means of n visible and m hidden units."""
    return allocate(Means, N=n, M=m)


def make_noise(n: int, m: int) -> Means:
    """Allocate random numbers for the offsets, which come in fours."""
    return allocate(Means, N=n + -n % 4, M=m + -m % 4)


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
        of_data, of_model = mix[0, i] * data_mean[i], mix[1, i] * model_mean[i]
        target = of_data + of_model + mix[2, i] + mix[3, i] * noise[i]
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
        blocks = noise.x.size // 4
        fill_uniform(noise.x, plan.seed, update, site=NOISE, first_block=0)
        fill_uniform(noise.h, plan.seed, update, site=NOISE, first_block=blocks)
    slide(
        machine.mu,
        how.mu_mix,
        how.mu_factor,
        data_mean=data.x,
        model_mean=model.x,
        noise=noise.x,
    )
    slide(
        machine.lam,
        how.lam_mix,
        how.lam_factor,
        data_mean=data.h,
        model_mean=model.h,
        noise=noise.h,
    )
