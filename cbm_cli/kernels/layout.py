"""How the layers of a deep machine become the two sides of a flat one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cbm_cli.kernels.memory import Counts


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
        weights = []
        for layer in range(len(self.sizes) - 1):
            block = self._block(W, layer)
            weights.append(block if layer % 2 == 0 else block.T)
        return weights

    def layers(self, x: NDArray, h: NDArray) -> list[NDArray]:
        """The layers' values from both sides, (..., N) and (..., M)."""
        layers = []
        for layer in range(len(self.sizes)):
            side = x if layer % 2 == 0 else h
            layers.append(side[..., self.place(layer)])
        return layers

    def spans(self) -> Counts:
        """First unit of h that each unit of x is connected with, and the one after the
        last: (N, 2).
        """
        spans = []
        for layer in range(0, len(self.sizes), 2):
            neighbours = [self.place(layer - 1)] if layer else []
            if layer + 1 < len(self.sizes):
                neighbours.append(self.place(layer + 1))
            first = min(place.start for place in neighbours)
            after_last = max(place.stop for place in neighbours)
            spans += [(first, after_last)] * self.sizes[layer]
        return np.array(spans, dtype=np.int64)

    def _block(self, W: NDArray, layer: int) -> NDArray:
        """Return the part of W between a layer and the next one."""
        even = layer + layer % 2
        odd = layer + 1 - layer % 2
        return W[self.place(even), self.place(odd)]
