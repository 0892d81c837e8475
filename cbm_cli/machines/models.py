"""Machines of every kind: by layers, and flattened as the kernels hold them."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli.errors import CbmError
from cbm_cli.kernels.layout import Layout
from cbm_cli.kernels.machine import Machine

KINDS = ("rbm", "dbm", "auto-encoder")

Vectors = tuple[NDArray, ...]


class Layered(NamedTuple):
    """A machine of L hidden layers, layer 0 visible, with plain biases, those of
    offsets 0.

    E = -sum_l x_l' b_l - sum_l x_l' W_l x_{l+1}. An auto encoder computes y_{l+1} =
    s(y_l W_l + b_{l+1}) on the way up and y_l = s(y_{l+1} W_l' + d_l) on the way down,
    s(a) = 1 / (1 + exp(-a)), with d_0 = b_0.
    """

    kind: str  # one of KINDS
    weights: Vectors  # L arrays W_l (n_l, n_{l+1})
    biases: Vectors  # L + 1 arrays b_l (n_l,)
    # L + 1 arrays (n_l,) of the machine that was trained; mean field starts there
    offsets: Vectors
    # L - 1 arrays d_l (n_l,) of the inner layers of an auto encoder
    decoder_biases: Vectors = ()
    # L - 1 arrays (n_l,) of these layers on the way down
    decoder_offsets: Vectors = ()
    # of the visible units: the columns of the data, where these have names
    names: tuple[str, ...] = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        """Units of the layers n_0, ..., n_L."""
        return tuple(map(len, self.biases))

    @property
    def offset_energy(self) -> float:
        """Energy of the offsets as states.

        The documented, centered energy is E(x) - E(offsets), so that its log Z is
        larger by E(offsets).
        """
        of_biases = sum(o @ b for o, b in zip(self.offsets, self.biases, strict=True))
        of_weights = 0.0
        for W, (lower, upper) in zip(self.weights, pairwise(self.offsets), strict=True):
            of_weights += lower @ W @ upper
        return -float(of_biases + of_weights)

    def with_centered_biases(self) -> "Layered":
        """The machine with the biases of the centered energy, from plain ones.

        Eqs. (11), (12), `reference.transform`: b + W lam and c + W' mu. Training itself
        keeps plain biases.
        """
        return self._shifted(1)

    def with_plain_biases(self) -> "Layered":
        """The machine with plain biases, those of offsets 0, from centered ones."""
        return self._shifted(-1)

    def _shifted(self, sign: int) -> "Layered":
        """The machine with biases shifted by the inputs of the offsets, up or down."""
        into, into_decoder = self._inputs_of_offsets()
        pairs = zip(self.biases, into, strict=True)
        decoder = zip(self.decoder_biases, into_decoder, strict=True)
        return self._replace(
            biases=tuple(b + sign * shift for b, shift in pairs),
            decoder_biases=tuple(d + sign * shift for d, shift in decoder),
        )

    def _inputs_of_offsets(self) -> tuple[list[NDArray], list[NDArray]]:
        """What neighbours at their offsets add to the input of each layer, and of each
        inner layer of a decoder, in float64.
        """
        encodes = self.kind == "auto-encoder"
        weights = [W.astype(np.float64) for W in self.weights]
        below, above = self.offsets[:-1], self.offsets[1:]
        if encodes:
            above = (*self.decoder_offsets, self.offsets[-1])
        down = [W @ lam for W, lam in zip(weights, above, strict=True)]
        up = [mu @ W for W, mu in zip(weights, below, strict=True)]
        if encodes:
            return [down[0], *up], down[1:]
        inner = [a + b for a, b in zip(down[1:], up[:-1], strict=True)]
        return [down[0], *inner, up[-1]], []


class Side(NamedTuple):
    """A flattened machine seen from one of its sides: W (N, M), b (N,), c (M,)."""

    W: NDArray
    b: NDArray
    c: NDArray

    @property
    def turned(self) -> "Side":
        """The same machine with its sides exchanged."""
        return Side(W=np.ascontiguousarray(self.W.T), b=self.c, c=self.b)

    @property
    def wide(self) -> "Side":
        """The same machine in float64."""
        return Side._make(array.astype(np.float64) for array in self)


class Flat(NamedTuple):
    """A flattened Boltzmann machine without offsets: E(x, h) = -x'b - c'h - x'W h.

    The even layers side by side are x, the visible one first; the odd layers are h.
    *Deep* units are those of x that are not visible: an RBM has none.
    """

    W: NDArray  # (N', M'), zero between layers that are not neighbours
    b: NDArray  # (N',)
    c: NDArray  # (M',)
    # (E,) means of the E deep units that mean field starts from: their offsets
    start: NDArray
    sizes: tuple[int, ...]  # units of the layers n_0, ..., n_L

    @property
    def plain(self) -> Side:
        """W, b, c: the RBM that a flattened machine is."""
        return Side(self.W, self.b, self.c)

    @property
    def is_deep(self) -> bool:
        """Whether there are two hidden layers or more."""
        return len(self.sizes) > 2

    def as_type(self, dtype: type) -> "Flat":
        """The machine in C-contiguous arrays of a type."""
        return self._replace(
            W=np.ascontiguousarray(self.W, dtype),
            b=np.ascontiguousarray(self.b, dtype),
            c=np.ascontiguousarray(self.c, dtype),
            start=np.ascontiguousarray(self.start, dtype),
        )


def flatten(machine: Layered, dtype: type = np.float32, place: str = "machine") -> Flat:
    """The Boltzmann machine as an RBM, in C-contiguous arrays of ``dtype``;
    `check_range` may refuse it.
    """
    W, b, c, mu, _ = kernel_arrays(machine)
    check_range((W, b, c), dtype, place)
    start = mu[machine.sizes[0] :]
    return Flat(W, b, c, start=start, sizes=machine.sizes).as_type(dtype)


def fits(parameters: Iterable[NDArray], dtype: type) -> bool:
    """Whether any sum of weights and biases is a number of ``dtype``.

    Examples
    --------
    >>> fits([np.array([1e30, -1e30])], np.float32)
    True
    >>> fits([np.array([1e38, -1e38])], np.float32)
    False
    """
    with np.errstate(over="ignore"):
        total = sum(np.abs(array).sum(dtype=np.float64) for array in parameters)
        return bool(total < np.finfo(dtype).max / 4)


def check_range(parameters: Sequence[NDArray], dtype: type, place: str) -> None:
    """Raise CbmError for weights and biases that are too large to compute with in
    ``dtype``.
    """
    if fits(parameters, dtype):
        return
    largest = max(float(np.nanmax(np.abs(array), initial=0)) for array in parameters)
    users, remedy = "sums", "scale the machine down"
    if dtype is np.float32:
        users = "AIS, samples, mean field and costs"
        remedy = "an exact likelihood computes in float64"
    raise CbmError(
        f"{place}: has weights or biases of up to {largest:.3g}; {users} would "
        f"exceed the range of {np.dtype(dtype).name}: {remedy}"
    )


def sides_of(
    lower: Sequence[NDArray], upper: Sequence[NDArray], kind: str
) -> tuple[NDArray, NDArray]:
    """Put arrays (..., n_l) of layers side by side, as x and h of the kernels hold
    them.

    ``lower`` are of layers at the bottom of a pair, ``upper`` of layers at the top:
    even and odd layers of a Boltzmann machine; all layers except the last, and all
    except the first, of an auto encoder, whose inner layers are on both sides.
    """
    x, h = lower[0::2], upper[1::2]
    if kind == "auto-encoder":
        x, h = lower[:-1], upper[1:]
    return np.concatenate(x, axis=-1), np.concatenate(h, axis=-1)


def kernel_arrays(machine: Layered) -> Machine:
    """The machine as training holds it, see `kernels.machine.State`, in the type of its
    arrays.
    """
    kind = machine.kind
    biases_down, offsets_up = machine.biases, machine.offsets
    if kind != "auto-encoder":
        W = Layout(machine.sizes).flat_weights(machine.weights)
    else:
        W = np.concatenate([block.ravel() for block in machine.weights])
        # On the way down inner layers have biases and offsets of their own
        first, last = machine.biases[0], machine.biases[-1]
        biases_down = (first, *machine.decoder_biases, last)
        first, last = machine.offsets[0], machine.offsets[-1]
        offsets_up = (first, *machine.decoder_offsets, last)
    b, c = sides_of(biases_down, machine.biases, kind)
    mu, lam = sides_of(machine.offsets, offsets_up, kind)
    return Machine(W, b, c, mu, lam)
