"""Machines as the kernels see them, and the state of a trial."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, NamedTuple

import numpy as np

from cbm_cli.kernels.memory import Array, Counts, allocate


class Machine(NamedTuple):
    """A plain machine, E(x, h) = -x'b - c'h - x'W h, and the offsets that only its
    gradient reads.

    A velocity around the same offsets has the same form. A deep Boltzmann machine is
    flat: x are the units of its even layers side by side, h those of the odd ones. An
    auto encoder is one machine for each pair of neighbouring layers.
    """

    W: Array  # (N, M) `step`, as are b and c
    b: Array  # (N,)
    c: Array  # (M,)
    mu: Array  # (N,) `move_offsets`: visible offsets
    lam: Array  # (M,) hidden offsets


class State(NamedTuple):
    """Everything that training carries from one update to the next, changed in place;
    float32 but ``rounds``.

    What a trial does not need is None. In an auto encoder's W the weights of its pairs
    of layers follow each other row by row; b, c, mu and lam hold the pairs' biases and
    offsets likewise.
    """

    W: Array
    b: Array
    c: Array
    mu: Array
    lam: Array
    # (3,) mean field since the last evaluation: rounds, batches, unsettled batches
    rounds: Counts
    # (chains, M) hidden states, each ladder from the hottest chain to temperature 1
    h: Array | None = None
    # the same of a second sampler that only the offsets see
    aside_h: Array | None = None
    # momentum's running sum of steps
    velocity_W: Array | None = None
    velocity_b: Array | None = None
    velocity_c: Array | None = None

    @property
    def machine(self) -> Machine:
        """The machine and its offsets."""
        return Machine(W=self.W, b=self.b, c=self.c, mu=self.mu, lam=self.lam)

    @property
    def velocity(self) -> Machine | None:
        """The velocity as a machine, if there is momentum."""
        if self.velocity_W is None:
            return None
        velocity: Any = self.velocity_W, self.velocity_b, self.velocity_c
        W, b, c = velocity
        return Machine(W=W, b=b, c=c, mu=self.mu, lam=self.lam)

    def copy(self) -> "State":
        """A state of the same values that does not change with this one."""
        copies: dict[str, Any] = {}
        for name, array in self._asdict().items():
            copies[name] = None if array is None else array.copy()
        return State(**copies)


def pairs_of(machine: Machine, sizes: Sequence[int]) -> tuple[Machine, ...]:
    """Views of an auto encoder's pairs of layers, W (n_l, n_{l+1}) and so on."""
    pairs, first_weight, first_x, first_h = [], 0, 0, 0
    for n, m in pairwise(sizes):
        weights = slice(first_weight, first_weight + n * m)
        x = slice(first_x, first_x + n)
        h = slice(first_h, first_h + m)
        pair = Machine(
            W=machine.W[weights].reshape(n, m),
            b=machine.b[x],
            c=machine.c[h],
            mu=machine.mu[x],
            lam=machine.lam[h],
        )
        pairs.append(pair)
        first_weight, first_x, first_h = weights.stop, x.stop, h.stop
    return tuple(pairs)


class Trail(NamedTuple):
    """Snapshots before the steps of K updates: the machine, and the offsets that the
    step is made with.
    """

    update: Annotated[Counts, "K"]  # the updates, in order
    W: Annotated[Array, "K N M"]  # `take_snapshot`, as what follows
    b: Annotated[Array, "K N"]
    c: Annotated[Array, "K M"]
    mu: Annotated[Array, "K N"]
    lam: Annotated[Array, "K M"]


def empty_trail(n: int, m: int, updates: Sequence[int] = ()) -> Trail:
    """Empty arrays for snapshots of a machine of n visible and m hidden units at these
    updates.
    """
    marks = np.array(updates, dtype=np.int64)
    return allocate(Trail, update=marks, K=len(marks), N=n, M=m)
