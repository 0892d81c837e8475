"""Machines of several layers, without offsets; a deep Boltzmann machine as the RBM that it is."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Vectors = tuple[NDArray, ...]


class PlainMachine(NamedTuple):
    """A machine without offsets: W (N, M), b (N,), c (M,), float64."""

    W: NDArray[np.float64]
    b: NDArray[np.float64]
    c: NDArray[np.float64]


class Layered(NamedTuple):
    """A machine of L hidden layers, layer 0 visible; its parameters are those without offsets.

    E = -sum_l x_l' b_l - sum_l x_l' W_l x_{l+1}. Of an auto encoder, y_{l+1} = f(y_l W_l + b_{l+1}) on the
    way up and y_l = g(y_{l+1} W_l' + d_l) on the way down, with d_0 = b_0.

    Attributes
    ----------
    kind : str
        ``rbm``, ``dbm`` or ``auto-encoder``.
    weights : tuple of L arrays
        W_l, (n_l, n_{l+1}).
    biases : tuple of L + 1 arrays
        b_l, (n_l,).
    offsets : tuple of L + 1 arrays
        (n_l,), what has been taken out of the biases; mean field starts there.
    decoder_biases, decoder_offsets : tuple of L - 1 arrays
        d_l and its offsets, (n_l,), of the layers 1 to L - 1 of an auto encoder; else empty.
    encoder, decoder, loss : str
        Of an auto encoder: the names of f, g and of what it was trained to lower.
    """

    kind: str
    weights: Vectors
    biases: Vectors
    offsets: Vectors
    decoder_biases: Vectors = ()
    decoder_offsets: Vectors = ()
    encoder: str = "sigmoid"
    decoder: str = "sigmoid"
    loss: str = "cross-entropy"

    @property
    def layers(self) -> tuple[int, ...]:
        """n_0, ..., n_L."""
        return tuple(map(len, self.biases))

    def centered(self) -> "Layered":
        """The same machine with the biases, float64, of its centered parametrisation."""
        return self._shifted(1)

    def plain(self) -> "Layered":
        """Undo `centered`, Eqs. (transform_b), (transform_c)."""
        return self._shifted(-1)

    def _shifted(self, sign: int) -> "Layered":
        auto_encoder = self.kind == "auto-encoder"
        above = (*self.decoder_offsets, self.offsets[-1]) if auto_encoder else self.offsets[1:]
        weights = [W.astype(np.float64) for W in self.weights]
        down = [W @ o for W, o in zip(weights, above, strict=True)]  # into layers 0 to L - 1
        up = [W.T @ o for W, o in zip(weights, self.offsets[:-1], strict=True)]  # into layers 1 to L
        both = [a + b for a, b in zip(down[1:], up[:-1], strict=True)]  # into layers 1 to L - 1
        inner = up[:-1] if auto_encoder else both
        return self._replace(
            biases=_added(self.biases, [down[0], *inner, up[-1]], sign),
            decoder_biases=_added(self.decoder_biases, down[1:] if auto_encoder else [], sign),
        )


def _added(biases: Vectors, shifts: Sequence[NDArray], sign: int) -> Vectors:
    return tuple(bias + sign * shift for bias, shift in zip(biases, shifts, strict=True))


def flatten(machine: Layered) -> PlainMachine:
    """The RBM that a deep Boltzmann machine is: even layers side by side are x, odd layers h.

    Returns
    -------
    PlainMachine
        W (n_0 + n_2 + ..., n_1 + n_3 + ...), zero where layers are not neighbours; b and c likewise.
    """
    sizes = machine.layers
    blocks = [[np.zeros((n, m)) for m in sizes[1::2]] for n in sizes[::2]]
    for layer, W in enumerate(machine.weights):
        blocks[(layer + 1) // 2][layer // 2] = W.T if layer % 2 else W
    return PlainMachine(
        np.block(blocks), np.concatenate(machine.biases[::2]), np.concatenate(machine.biases[1::2])
    )


def unflatten(
    machine: PlainMachine, sizes: Sequence[int], offsets: tuple[NDArray, NDArray] | None = None
) -> Layered:
    """The deep Boltzmann machine of n_0, ..., n_L units that an RBM is; undoes `flatten`.

    Parameters
    ----------
    machine : PlainMachine
        What it holds between layers that are not neighbours is left out.
    sizes : sequence of int
    offsets : (array, array), optional
        Of x and of h; zeros without.
    """
    W, *biases = machine
    ends = np.cumsum(sizes[::2]), np.cumsum(sizes[1::2])
    spans = [slice(ends[i % 2][i // 2] - n, ends[i % 2][i // 2]) for i, n in enumerate(sizes)]
    weights = (W[odd, even].T if i % 2 else W[even, odd] for i, (even, odd) in enumerate(pairwise(spans)))
    return Layered(
        "dbm",
        tuple(map(np.ascontiguousarray, weights)),
        _parts(biases, spans),
        _parts(offsets or [np.zeros_like(side) for side in biases], spans),
    )


def _parts(sides: Sequence[NDArray], spans: Sequence[slice]) -> Vectors:
    """What the layers hold of the two sides of a flattened machine."""
    return tuple(sides[layer % 2][span].copy() for layer, span in enumerate(spans))
