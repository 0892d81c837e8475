"""What the kernels read and change: a trial's state, and the plan of its training."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Rows = NDArray[np.uint8]  # of data, (n, units)

SAME, INDEPENDENT, ALL_STATES = 0, 1, 2  # Plan.offsets_from
CENTERED, JOINT, MARGINAL, DIAGONAL = 0, 1, 2, 3  # Plan.direction
UNSCALED, TO_STANDARD, TO_CENTERED = 0, 1, 2  # Plan.scale_to


class State(NamedTuple):
    """Everything that training carries from one update to the next; changed in place.

    A deep machine is flattened: x are the units of its even layers side by side, h those of the odd ones.

    Attributes
    ----------
    W, b, c : (N, M), (N,), (M,)
        The plain machine, whatever the offsets: E(x, h) = -x'b - c'h - x'W h.
    mu, lam : (N,), (M,)
        Visible and hidden offsets; only the gradient reads them.
    h : (ladders * temperatures, M)
        Hidden states of the chains, each ladder from the hottest chain to the one at temperature 1.
    aside_h : (ladders * temperatures, M)
        Those of a second sampler that only the offsets see; of no size where there is none.
    fast_W, fast_b, fast_c : (N, M), (N,), (M,)
        Fast weights, which only the chains feel (FPCD); of no size for all other samplers.
    rounds : (3,) float32
        Mean field since the last evaluation: rounds, batches, batches that did not converge.
    """

    W: Array
    b: Array
    c: Array
    mu: Array
    lam: Array
    h: Array
    aside_h: Array
    fast_W: Array
    fast_b: Array
    fast_c: Array
    rounds: Array


class Plan(NamedTuple):
    """The settings of a trial as numbers; there is no letter and no name left to branch on.

    Attributes
    ----------
    seed : uint64
        Key of every random number of the trial.
    learning_rate : float32
        eta of the paper's Algorithm 1.
    visible_mix, hidden_mix : (4, N), (4, M) float32
        What the offset of each unit is made of: data mean, model mean, constant, noise.
    sliding_visible, sliding_hidden : float32
        nu_mu and nu_lam of the paper's Algorithm 1.
    offsets_before : bool
        Offsets move before the gradient step (^b) or later (^l).
    offsets_from : int
        Where their model means are from: the gradient's own phase, chains of their own, or all states.
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
    to_hidden, to_visible : float32
        What activations are multiplied by: 1, or 2 in layer-wise pre-training.
    visible : int
        Units of x that are data: all N, or the first layer of a flattened deep machine.
    spans : (N, 2) int64
        First hidden unit that a unit of x is connected with, and the one after the last.
    tolerance, rounds : float32, int
        Of the mean field of a deep machine; ``gibbs`` above 0: Gibbs steps in its place.
    gibbs : int
    direction : int
        The centered gradient, or a natural one: joint, marginal or diagonal Fisher matrix.
    sampled_fisher : bool
        The Fisher matrix of the model phase's samples, applied by conjugate gradients.
    damping, iterations : float32, int
        Added to the Fisher matrix's diagonal; steps of conjugate gradients.
    scale_to : int
        Whose length the step has: its own, the standard or the centered gradient's.
    """

    seed: np.uint64
    learning_rate: np.float32
    visible_mix: Array
    hidden_mix: Array
    sliding_visible: np.float32
    sliding_hidden: np.float32
    offsets_before: bool
    offsets_from: int
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
    to_hidden: np.float32
    to_visible: np.float32
    visible: int
    spans: NDArray[np.int64]
    tolerance: np.float32
    rounds: int
    gibbs: int
    direction: int
    sampled_fisher: bool
    damping: np.float32
    iterations: int
    scale_to: int


class Trail(NamedTuple):
    """Snapshots before the steps of K updates.

    Attributes
    ----------
    update : (K,) int64
        The updates, in order; none for K = 0.
    W, b, c, mu, lam : (K, N, M), (K, N), (K, M), (K, N), (K, M)
        The machine, and the offsets that the step is made with.
    """

    update: NDArray[np.int64]
    W: Array
    b: Array
    c: Array
    mu: Array
    lam: Array


def empty_trail(n: int, m: int, updates: NDArray[np.int64] | None = None) -> Trail:
    """Room for snapshots of a machine of n visible and m hidden units at these updates, none by default."""
    updates = np.empty(0, np.int64) if updates is None else np.ascontiguousarray(updates, dtype=np.int64)
    shapes = ((n, m), (n,), (m,), (n,), (m,))
    return Trail(updates, *(np.empty((len(updates), *shape), np.float32) for shape in shapes))


def plain_plan(n: int, m: int, seed: int, batch: int, **changes: object) -> Plan:
    """A plan of one sweep of ``batch`` chains an update, without learning; changed as asked."""
    zero, one = np.float32(0), np.float32(1)
    plan = Plan(
        seed=np.uint64(seed),
        learning_rate=zero,
        visible_mix=np.zeros((4, n), np.float32),
        hidden_mix=np.zeros((4, m), np.float32),
        sliding_visible=one,
        sliding_hidden=one,
        offsets_before=True,
        offsets_from=SAME,
        batch=batch,
        batches=1,
        shuffled=False,
        unit=one,
        ladders=batch,
        temperatures=1,
        steps=1,
        restart=False,
        exact=False,
        fast_learning_rate=zero,
        fast_decay=zero,
        to_hidden=one,
        to_visible=one,
        visible=n,
        spans=np.tile(np.array([0, m]), (n, 1)),
        tolerance=np.float32(1e-4),
        rounds=100,
        gibbs=0,
        direction=CENTERED,
        sampled_fisher=False,
        damping=zero,
        iterations=0,
        scale_to=UNSCALED,
    )
    return plan._replace(**changes)


def plain_state(W: Array, b: Array, c: Array, h: Array) -> State:
    """A state to sample from: zero offsets, no fast weights."""
    return State(W, b, c, np.zeros_like(b), np.zeros_like(c), h, *no_extras())


def no_extras() -> tuple[Array, Array, Array, Array, Array]:
    """The last five arrays of a state that has no second sampler and no fast weights."""
    none = np.zeros((0, 0), np.float32)
    return none, none.copy(), np.zeros(0, np.float32), np.zeros(0, np.float32), np.zeros(3, np.float32)
