"""Machines as the kernels see them, the state of a trial, and how a deep machine
becomes a flat one.
"""

from collections.abc import Sequence
from ctypes import addressof, c_char
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Rows = NDArray[np.uint8]  # of data, (n, units)


def aligned_empty(shape: int | tuple[int, ...]) -> Array:
    """Numbers, not set yet, from a multiple of 64 bytes on: no vector lies across two
    cache lines.
    """
    size = 4 * prod(shape if isinstance(shape, tuple) else (shape,))
    work = np.empty(size + 64, np.uint8)
    return np.ndarray(
        shape, np.float32, work, -addressof(c_char.from_buffer(work)) % 64
    )


def aligned(values: NDArray) -> Array:
    """An aligned copy of an array."""
    copy = aligned_empty(values.shape)
    copy[...] = values
    return copy


class Machine(NamedTuple):
    """A plain machine, E(x, h) = -x'b - c'h - x'W h, and the offsets that only its
    gradient reads.

    A velocity around the same offsets has the same form. A deep Boltzmann machine is
    flat: x are the units of its even layers side by side, h those of the odd ones. An
    auto encoder is one machine for each pair of neighbouring layers.
    """

    W: Array  # (N, M)
    b: Array  # (N,)
    c: Array  # (M,)
    mu: Array  # (N,) visible offsets
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
    rounds: NDArray[
        np.int64
    ]  # (3,) mean field since the last evaluation: rounds, batches, unsettled batches
    h: Array | None = (
        # (chains, M) hidden states, each ladder from the hottest chain to temperature 1
        None
    )
    aside_h: Array | None = (
        None  # the same of a second sampler that only the offsets see
    )
    velocity_W: Array | None = None  # momentum's running sum of steps
    velocity_b: Array | None = None
    velocity_c: Array | None = None

    @property
    def machine(self) -> Machine:
        """The machine and its offsets."""
        return Machine(*self[:5])

    @property
    def velocity(self) -> Machine | None:
        """The velocity as a machine, if there is momentum."""
        W, b, c = self.velocity_W, self.velocity_b, self.velocity_c
        return None if W is None else Machine(W, b, c, self.mu, self.lam)

    def copy(self) -> "State":
        """A state of the same values that does not change with this one."""
        return State(*(None if array is None else array.copy() for array in self))


def pairs_of(machine: Machine, sizes: Sequence[int]) -> tuple[Machine, ...]:
    """Views of an auto encoder's pairs of layers, W (n_l, n_{l+1}) and so on."""
    pairs, w, i, j = [], 0, 0, 0
    for n, m in pairwise(sizes):
        W, b, c, mu, lam = machine
        block = W[w : w + n * m].reshape(n, m)
        pairs.append(
            Machine(block, b[i : i + n], c[j : j + m], mu[i : i + n], lam[j : j + m])
        )
        w, i, j = w + n * m, i + n, j + m
    return tuple(pairs)


class Trail(NamedTuple):
    """Snapshots before the steps of K updates: the machine, and the offsets that the
    step is made with.
    """

    update: NDArray[np.int64]  # (K,) the updates, in order
    W: Array  # (K, N, M)
    b: Array
    c: Array
    mu: Array
    lam: Array


def empty_trail(n: int, m: int, updates: Sequence[int] = ()) -> Trail:
    """Empty arrays for snapshots of a machine of n visible and m hidden units at these
    updates.
    """
    shapes = (n, m), (n,), (m,), (n,), (m,)
    arrays = (aligned_empty((len(updates), *shape)) for shape in shapes)
    return Trail(np.array(updates, dtype=np.int64), *arrays)


@dataclass(frozen=True)
class Layout:
    """Layers of n_0 visible and n_1, ..., n_L hidden units; L = 1 is an RBM, which is
    flat already.
    """

    sizes: tuple[int, ...]

    @property
    def width(self) -> int:
        """N = n_0 + n_2 + ..., units of x."""
        return sum(self.sizes[0::2])

    @property
    def height(self) -> int:
        """M = n_1 + n_3 + ..., units of h."""
        return sum(self.sizes[1::2])

    def place(self, layer: int) -> slice:
        """The place of a layer in x, if it is even, or in h."""
        start = sum(self.sizes[layer % 2 : layer : 2])
        return slice(start, start + self.sizes[layer])

    def flat_weights(self, weights: Sequence[NDArray]) -> NDArray:
        """W (N, M) from the weights (n_l, n_{l+1}) between layers; zero where layers
        are not neighbours.
        """
        W = np.zeros((self.width, self.height), weights[0].dtype)
        for layer, block in enumerate(weights):
            self._block(W, layer)[:] = block if layer % 2 == 0 else block.T
        return W

    def weights(self, W: NDArray) -> list[NDArray]:
        """The inverse of ``flat_weights``: views of W."""
        blocks = [self._block(W, layer) for layer in range(len(self.sizes) - 1)]
        return [
            block if layer % 2 == 0 else block.T for layer, block in enumerate(blocks)
        ]

    def layers(self, x: NDArray, h: NDArray) -> list[NDArray]:
        """The layers' values from both sides, (..., N) and (..., M)."""
        sides = x, h
        return [
            sides[layer % 2][..., self.place(layer)] for layer in range(len(self.sizes))
        ]

    def spans(self) -> NDArray[np.int64]:
        """First unit of h that each unit of x is connected with, and the one after the
        last: (N, 2).
        """
        spans = []
        for layer, size in list(enumerate(self.sizes))[0::2]:
            places = [
                self.place(near)
                for near in (layer - 1, layer + 1)
                if 0 <= near < len(self.sizes)
            ]
            spans += [
                (min(p.start for p in places), max(p.stop for p in places))
            ] * size
        return np.array(spans, dtype=np.int64)

    def _block(self, W: NDArray, layer: int) -> NDArray:
        even, odd = (layer, layer + 1) if layer % 2 == 0 else (layer + 1, layer)
        return W[self.place(even), self.place(odd)]
