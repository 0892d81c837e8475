"""What the kernels read and change: a trial's state, and the plan of its training."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Rows = NDArray[np.uint8]  # of data, (n, N)


class State(NamedTuple):
    """Everything that training carries from one update to the next; changed in place.

    Attributes
    ----------
    W, b, c : (N, M), (N,), (M,)
        The plain machine, whatever the offsets: E(x, h) = -x'b - c'h - x'W h.
    mu, lam : (N,), (M,)
        Visible and hidden offsets; only the gradient reads them.
    x : (ladders * temperatures, N)
        Visible states of the chains, each ladder from the hottest chain to the one at temperature 1.
    fast_W, fast_b, fast_c : (N, M), (N,), (M,)
        Fast weights, which only the chains feel (FPCD); of no size for all other samplers.
    """

    W: Array
    b: Array
    c: Array
    mu: Array
    lam: Array
    x: Array
    fast_W: Array
    fast_b: Array
    fast_c: Array


class Mix(NamedTuple):
    """A letter of an offset scheme: the offset is data <.>_d + model <.>_m + constant + noise u."""

    data: np.float32
    model: np.float32
    constant: np.float32
    noise: np.float32


class Plan(NamedTuple):
    """The settings of a trial as numbers; there is no letter and no name left to branch on.

    Attributes
    ----------
    seed : uint64
        Key of every random number of the trial.
    learning_rate, sliding_visible, sliding_hidden : float32
        eta, nu_mu and nu_lam of the paper's Algorithm 1.
    visible_mix, hidden_mix : Mix
        What the offsets are made of.
    offsets_before : bool
        Offsets move before the gradient step (^b) or later (^l).
    batch, batches : int
        Rows of a batch, and batches of an epoch.
    shuffled : bool
        Rows come in a new order in every epoch.
    unit : float32
        Value of one level of the data: 1, or 1/255 for grey values.
    ladders, temperatures, steps : int
        Tempered ladders, chains of each, Gibbs sweeps between two rounds of swaps.
    restart, exact : bool
        Chains restart at the batch (CD); all states in place of samples.
    fast_learning_rate, fast_decay : float32
        Of the fast weights; rate 0: there are none.
    """

    seed: np.uint64
    learning_rate: np.float32
    sliding_visible: np.float32
    sliding_hidden: np.float32
    visible_mix: Mix
    hidden_mix: Mix
    offsets_before: bool
    batch: int
    batches: int
    shuffled: bool
    unit: np.float32
    ladders: int
    temperatures: int
    steps: int
    restart: bool
    exact: bool
    fast_learning_rate: np.float32
    fast_decay: np.float32


def plain_state(W: Array, b: Array, c: Array, x: Array) -> State:
    """A state to sample from: no offsets, no fast weights."""
    nothing = np.zeros((0, 0), np.float32), np.zeros(0, np.float32), np.zeros(0, np.float32)
    return State(W, b, c, np.zeros_like(b), np.zeros_like(c), x, *nothing)
