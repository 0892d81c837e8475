"""Machines of several layers, without offsets; a deep Boltzmann machine as the RBM that it is."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli.kernels.layout import Layout

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

    def without_offsets(self) -> "Layered":
        """The machine whose biases were centered ones, Eqs. (transform_b), (transform_c)."""
        auto_encoder = self.kind == "auto-encoder"
        above = (*self.decoder_offsets, self.offsets[-1]) if auto_encoder else self.offsets[1:]
        down = [W @ o for W, o in zip(self.weights, above, strict=True)]  # into layers 0 to L - 1
        up = [W.T @ o for W, o in zip(self.weights, self.offsets[:-1], strict=True)]  # into layers 1 to L
        both = [a + b for a, b in zip(down[1:], up[:-1], strict=True)]  # into layers 1 to L - 1
        inner = up[:-1] if auto_encoder else both
        return self._replace(
            biases=_less(self.biases, [down[0], *inner, up[-1]]),
            decoder_biases=_less(self.decoder_biases, down[1:] if auto_encoder else []),
        )


def _less(biases: Vectors, shifts: Sequence[NDArray]) -> Vectors:
    return tuple(bias - shift for bias, shift in zip(biases, shifts, strict=True))


def flatten(machine: Layered) -> PlainMachine:
    """The RBM that a deep Boltzmann machine is: even layers side by side are x, odd layers h.

    Returns
    -------
    PlainMachine
        W (n_0 + n_2 + ..., n_1 + n_3 + ...), zero where layers are not neighbours; b and c likewise.
    """
    layout = Layout(machine.layers)
    sides = (layout.side(machine.biases, odd) for odd in (False, True))
    return PlainMachine(layout.flat_weights(machine.weights), *sides)


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
    layout = Layout(tuple(sizes))
    offsets = offsets or (np.zeros_like(machine.b), np.zeros_like(machine.c))
    biases = layout.layers(machine.b, machine.c)
    return Layered("dbm", *map(tuple, (layout.weights(machine.W), biases, layout.layers(*offsets))))
