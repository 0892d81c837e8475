"""The settings of a trial as numbers: no letter and no name is left to branch on."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli.kernels.machine import Array

SAME, INDEPENDENT, ALL_STATES = 0, 1, 2  # Plan.offsets_from
SIGMOID, TANH, RELU, LINEAR = 0, 1, 2, 3  # activations of auto encoders

_ZERO, _ONE = np.float32(0), np.float32(1)


class OffsetPlan(NamedTuple):
    """How the offsets of every unit move."""

    mu_mix: Array  # (4, N): shares of the data mean, the model mean, the constant 1 and noise
    lam_mix: Array  # (4, M)
    mu_factor: Array  # (N,) sliding factor nu: 1 without a moving average, 0 for an offset that is fixed
    lam_factor: Array  # (M,)
    before: bool  # they move before the gradient step (^b), or after it (^l)
    noisy: bool  # some offset takes noise
    smooth: tuple[int, int] = (0, 0)  # units of x, from and to, whose model mean is that of p(x = 1 | h)
    drawn: bool = False  # means of hidden units are those of states drawn from their probabilities

    @property
    def looks_at_states(self) -> bool:
        """Whether offsets need the hidden states of samples."""
        return self.smooth[0] < self.smooth[1] or self.drawn


class Plan(NamedTuple):
    """How a machine learns; the defaults are PCD-1 of as many chains as rows, without offsets."""

    seed: np.uint64  # the key of every random number of the trial
    batch: int  # B, rows of a batch
    offsets: OffsetPlan
    spans: NDArray[
        np.int64
    ]  # (N, 2) first hidden unit that a unit of x is connected with, one after the last
    visible: int  # units of x that are data: all N, or the first layer of a flat deep machine
    rates: Array = np.zeros(1, np.float32)  # learning rates eta ...
    rate_from: NDArray[np.int64] = np.zeros(1, np.int64)  # ... and the updates from which they hold
    momentum: np.float32 = _ZERO
    l1: np.float32 = _ZERO  # weight decay
    l2: np.float32 = _ZERO
    offsets_from: int = SAME  # model means of the offsets: the gradient's, a second sampler's, or all states
    batches: int = 1  # of an epoch
    shuffled: bool = False  # rows come in a new order in every epoch
    unit: np.float32 = _ONE  # value of one level of the data: 1, or 1/255 for grey values
    samples: int = 0  # R, rows of the model phase; 0: as many as the batch has
    ladders: int = 0  # tempered ladders, or chains at temperature 1; 0: as many as samples
    temperatures: int = 1  # chains of a ladder
    steps: int = 1  # Gibbs sweeps between two rounds of swaps
    swap_both: bool = False  # even and odd neighbours swap after every sweep, instead of in turns
    restart: bool = False  # chains restart at the batch (CD)
    exact: bool = False  # all states instead of samples
    fast_rate: np.float32 = _ZERO  # learning rate of the fast weights; 0: there are none
    fast_decay: np.float32 = _ZERO
    to_hidden: np.float32 = _ONE  # factors of activations: 2 in layer-wise pre-training
    to_visible: np.float32 = _ONE
    tolerance: np.float32 = np.float32(1e-4)  # of the mean field of a deep machine
    rounds: int = 100  # of mean field at most
    gibbs: int = 0  # Gibbs steps instead of mean field
    encoder: int = SIGMOID  # activations of an auto encoder
    decoder: int = SIGMOID
    squared: bool = False  # its loss is the squared error, not the cross entropy

    @property
    def rows(self) -> int:
        """Rows of the model phase."""
        return self.samples or self.batch

    @property
    def chains(self) -> int:
        """Ladders, or chains at temperature 1."""
        return self.ladders or self.rows


def offset_plan(
    n: int, m: int, mu_mix: Array | None = None, lam_mix: Array | None = None, **changes: object
) -> OffsetPlan:
    """A plan for offsets that stay as they are, changed as asked."""
    mu_mix = np.zeros((4, n), np.float32) if mu_mix is None else mu_mix
    lam_mix = np.zeros((4, m), np.float32) if lam_mix is None else lam_mix
    noisy = bool(mu_mix[3].any() or lam_mix[3].any())
    plan = OffsetPlan(mu_mix, lam_mix, np.ones(n, np.float32), np.ones(m, np.float32), True, noisy)
    return plan._replace(**changes)


def plain_plan(n: int, m: int, seed: int, batch: int, **changes: object) -> Plan:
    """A plan of PCD-1 without offsets and without learning, changed as asked."""
    spans = np.tile(np.array([0, m]), (n, 1))
    return Plan(np.uint64(seed), batch, offset_plan(n, m), spans, n)._replace(**changes)
