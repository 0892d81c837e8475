"""How the layers of a deep machine lie in the flattened one: even layers side by side in x, odd ones in h."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Layout:
    """Layers of n_0 visible and n_1, ..., n_L hidden units.

    An RBM is the case of two layers: what follows then changes nothing.
    """

    sizes: tuple[int, ...]

    @property
    def width(self) -> int:
        """N' = n_0 + n_2 + ..., units of x."""
        return sum(self.sizes[0::2])

    @property
    def height(self) -> int:
        """M' = n_1 + n_3 + ..., units of h."""
        return sum(self.sizes[1::2])

    def place(self, layer: int) -> slice:
        """Where a layer lies in x, if it is even, or in h."""
        start = sum(self.sizes[layer % 2 : layer : 2])
        return slice(start, start + self.sizes[layer])

    def side(self, layers: Sequence[NDArray], odd: bool) -> NDArray:
        """Values of the even (or odd) layers side by side, from one array (..., n_l) a layer."""
        return np.concatenate(layers[1 if odd else 0 :: 2], axis=-1)

    def flat_weights(self, weights: Sequence[NDArray]) -> NDArray:
        """W (N', M') from the weights (n_l, n_{l+1}) between layers; zero where layers are not neighbours."""
        W = np.zeros((self.width, self.height), weights[0].dtype)
        for layer, block in enumerate(weights):
            self._block(W, layer)[:] = block if layer % 2 == 0 else block.T
        return W

    def weights(self, W: NDArray) -> list[NDArray]:
        """The inverse of ``flat_weights``: views of W."""
        blocks = [self._block(W, layer) for layer in range(len(self.sizes) - 1)]
        return [block if layer % 2 == 0 else block.T for layer, block in enumerate(blocks)]

    def layers(self, x: NDArray, h: NDArray) -> list[NDArray]:
        """The layers' values from both sides, (..., N') and (..., M')."""
        sides = x, h
        return [sides[layer % 2][..., self.place(layer)] for layer in range(len(self.sizes))]

    def spans(self) -> NDArray[np.int64]:
        """First unit of h that each unit of x is connected with, and the one after the last: (N', 2)."""
        spans = []
        for layer, size in list(enumerate(self.sizes))[0::2]:
            places = [self.place(near) for near in (layer - 1, layer + 1) if 0 <= near < len(self.sizes)]
            spans += [(min(p.start for p in places), max(p.stop for p in places))] * size
        return np.array(spans, dtype=np.int64)

    def _block(self, W: NDArray, layer: int) -> NDArray:
        even, odd = (layer, layer + 1) if layer % 2 == 0 else (layer + 1, layer)
        return W[self.place(even), self.place(odd)]
