"""The settings of a trial as numbers: no letter and no name is left to branch on."""

from typing import Annotated, NamedTuple

import numpy as np

from cbm_cli.kernels.memory import Array, Counts, allocate

SAME, INDEPENDENT, ALL_STATES = 0, 1, 2  # Plan.offsets_from
TOLERANCE = 1e-4  # mean field has converged if a round changes no mean by as much
ROUNDS = 100  # of mean field, at most

_ZERO, _ONE = np.float32(0), np.float32(1)


class OffsetPlan(NamedTuple):
    """How the offsets of every unit move."""

    # weights of the data mean, the model mean, the constant 1 and noise
    mu_mix: Annotated[Array, "letter N"]
    lam_mix: Annotated[Array, "letter M"]
    # sliding factor nu: 1 without a moving average, 0 for an offset that is fixed
    mu_factor: Annotated[Array, "N"]
    lam_factor: Annotated[Array, "M"]
    before: bool  # they move before the gradient step (^b), or after it (^l)
    noisy: bool  # some offset takes noise


class Plan(NamedTuple):
    """How a machine learns; the defaults are PCD-1 without offsets."""

    seed: np.uint64  # the key of every random number of the trial
    batch: int  # B, rows of a batch
    rows: int  # R, rows of the model phase
    offsets: OffsetPlan
    # (N, 2) first unit of h that a unit of x is connected with, one after the last
    spans: Counts
    # units of x that are data: all N, or the first layer of a flat deep machine
    visible: int
    rates: Array = np.zeros(1, np.float32)  # learning rates eta ...
    rate_from: Counts = np.zeros(
        1, np.int64
    )  # ... and the updates from which they hold
    momentum: np.float32 = _ZERO
    l1: np.float32 = _ZERO  # weight decay
    l2: np.float32 = _ZERO
    # model means of the offsets: the gradient's, a second sampler's, or all states
    offsets_from: int = SAME
    batches: int = 1  # of an epoch
    shuffled: bool = False  # rows come in a new order in every epoch
    # one level of the data: 1, or 1/255 for grey values
    unit: np.float32 = _ONE
    temperatures: int = 1  # chains of a tempered ladder
    steps: int = 1  # Gibbs sweeps between two rounds of swaps
    restart: bool = False  # chains restart at the batch (CD)
    exact: bool = False  # all states instead of samples
    to_hidden: np.float32 = _ONE  # factors of activations: 2 in layer-wise pre-training
    to_visible: np.float32 = _ONE
    tolerance: np.float32 = np.float32(TOLERANCE)
    rounds: int = ROUNDS


def plain_plan(n: int, m: int, seed: int, batch: int, **changes: object) -> Plan:
    """A plan of PCD-1 with one chain for each row, fixed offsets and no learning,
    changed as asked.
    """
    offsets = allocate(OffsetPlan, before=True, noisy=False, letter=4, N=n, M=m)
    plan = Plan(
        seed=np.uint64(seed),
        batch=batch,
        rows=batch,
        offsets=offsets,
        spans=np.tile(np.array([0, m]), (n, 1)),
        visible=n,
    )
    return plan._replace(**changes)
