"""Machines of every kind: what they are, and their files in the documented form (docs/formats.md)."""

import re
import zipfile
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli.errors import CbmError
from cbm_cli.kernels.machine import Layout

KINDS = ("rbm", "dbm", "auto-encoder")
_ACTIVATIONS = ("sigmoid", "tanh", "relu", "linear")
_TEXTS = {"encoder": _ACTIVATIONS, "decoder": _ACTIVATIONS, "loss": ("cross-entropy", "squared")}

Arrays = Mapping[str, NDArray]
Vectors = tuple[NDArray, ...]


class Layered(NamedTuple):
    """A machine of L hidden layers, layer 0 visible, without offsets.

    E = -sum_l x_l' b_l - sum_l x_l' W_l x_{l+1}. An auto encoder computes y_{l+1} = f(y_l W_l + b_{l+1}) on
    the way up and y_l = g(y_{l+1} W_l' + d_l) on the way down, with d_0 = b_0.
    """

    kind: str  # one of KINDS
    weights: Vectors  # L arrays W_l (n_l, n_{l+1})
    biases: Vectors  # L + 1 arrays b_l (n_l,)
    offsets: Vectors  # L + 1 arrays (n_l,): of the machine that was trained; mean field starts there
    decoder_biases: Vectors = ()  # L - 1 arrays d_l (n_l,) of the inner layers of an auto encoder
    decoder_offsets: Vectors = ()  # L - 1 arrays (n_l,)
    encoder: str = "sigmoid"  # f, g and the loss that an auto encoder was trained to lower
    decoder: str = "sigmoid"
    loss: str = "cross-entropy"

    @property
    def sizes(self) -> tuple[int, ...]:
        """Units of the layers n_0, ..., n_L."""
        return tuple(map(len, self.biases))

    def recentered(self, sign: int) -> "Layered":
        """The same machine with other biases: -1 from centered to plain ones, 1 from plain to centered ones.

        Eqs. (transform_b), (transform_c): the centered biases are b + W lam and c + W' mu.
        """
        auto_encoder = self.kind == "auto-encoder"
        above = (*self.decoder_offsets, self.offsets[-1]) if auto_encoder else self.offsets[1:]
        down = [W @ lam for W, lam in zip(self.weights, above, strict=True)]  # into layers 0 to L - 1
        up = [mu @ W for W, mu in zip(self.weights, self.offsets[:-1], strict=True)]  # into layers 1 to L
        inner = up[:-1] if auto_encoder else [a + b for a, b in zip(down[1:], up[:-1], strict=True)]
        shifts = [down[0], *inner, up[-1]]
        return self._replace(
            biases=tuple(b + sign * s for b, s in zip(self.biases, shifts, strict=True)),
            decoder_biases=tuple(d + sign * s for d, s in zip(self.decoder_biases, down[1:], strict=False)),
        )


class Flat(NamedTuple):
    """A flattened Boltzmann machine without offsets: E(x, h) = -x'b - c'h - x'W h.

    The even layers side by side are x, the visible one first; the odd layers are h. *Deep* units are those of
    x that are not visible: an RBM has none.
    """

    W: NDArray  # (N', M'), zero between layers that are not neighbours
    b: NDArray  # (N',)
    c: NDArray  # (M',)
    start: NDArray  # (E,) means of the E deep units that mean field starts from: their offsets
    sizes: tuple[int, ...]  # units of the layers n_0, ..., n_L

    @property
    def plain(self) -> tuple[NDArray, NDArray, NDArray]:
        """W, b, c: the RBM that it is."""
        return self.W, self.b, self.c

    @property
    def is_deep(self) -> bool:
        """Whether there are two hidden layers or more."""
        return len(self.sizes) > 2


def flatten(machine: Layered, dtype: type = np.float32) -> Flat:
    """The RBM that a Boltzmann machine of any depth is, in C-contiguous arrays of ``dtype``."""
    layout = Layout(machine.sizes)
    even, odd = (layout.side(machine.biases, odd=odd) for odd in (False, True))
    arrays = layout.flat_weights(machine.weights), even, odd
    start = np.concatenate([np.zeros(0), *machine.offsets[2::2]])
    return Flat(*(np.ascontiguousarray(a, dtype=dtype) for a in (*arrays, start)), machine.sizes)


def machine_arrays(machine: Layered) -> dict[str, NDArray]:
    """The arrays of a machine file, from a machine without offsets; `read_machine` undoes it.

    Weights and offsets keep their type. Biases become those of the centered energy in float64, so that the
    plain ones, where they are float32, are read back to the last bit.
    """
    names = ("weights", "biases", "offsets", "decoder_biases", "decoder_offsets")
    wide = {name: tuple(a.astype(np.float64) for a in getattr(machine, name)) for name in names}
    centered = machine._replace(**wide).recentered(1)
    machine = machine._replace(biases=centered.biases, decoder_biases=centered.decoder_biases)
    arrays = {"kind": np.array(machine.kind)}
    for name in names:
        layers = enumerate(getattr(machine, name), 1 if name.startswith("decoder") else 0)
        arrays |= {f"{name}_{layer}": array.copy() for layer, array in layers}
    if machine.kind == "auto-encoder":
        arrays |= {name: np.array(getattr(machine, name)) for name in _TEXTS}
    return arrays


def read_machine(path: Path) -> Layered:
    """Read a machine file of any kind in float64, and take its offsets out of the biases.

    Raises
    ------
    CbmError
        For a file that is missing, is no NPZ, is of no known kind, holds pickled, missing, non-numeric or
        non-finite arrays, or arrays whose shapes do not fit together.
    """
    arrays = _read_arrays(path)
    kind = str(arrays.get("kind", "rbm"))
    if kind not in KINDS:
        raise CbmError(f"{path}: is a machine of kind {kind}; cbm knows {', '.join(KINDS)}")
    depth = _depth(path, kind, arrays)
    weights = tuple(_numbers(path, name, arrays[name]) for name in _names("weights", range(depth)))
    biases = tuple(_numbers(path, name, arrays[name]) for name in _names("biases", range(depth + 1)))
    _check_shapes(path, weights, biases)

    def vectors(name: str, layers: range) -> Vectors:
        """One array for each layer, zeros where the file has none."""
        found = []
        for layer, key in zip(layers, _names(name, layers), strict=True):
            like = biases[layer]
            found.append(_numbers(path, key, arrays.get(key, np.zeros_like(like))))
            if found[-1].shape != like.shape:
                raise CbmError(f"{path}: {key} has shape {found[-1].shape}; expected {like.shape}")
        return tuple(found)

    inner = range(1, depth) if kind == "auto-encoder" else range(0)
    machine = Layered(
        kind,
        weights,
        biases,
        vectors("offsets", range(depth + 1)),
        vectors("decoder_biases", inner),
        vectors("decoder_offsets", inner),
        **(_texts(path, arrays) if kind == "auto-encoder" else {}),
    )
    return machine.recentered(-1)


def _read_arrays(path: Path) -> dict[str, NDArray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise CbmError(f"{path}: no such file") from None
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise CbmError(f"{path}: is not a machine file (NPZ without pickled objects): {error}") from None


def _depth(path: Path, kind: str, arrays: Arrays) -> int:
    """Number of hidden layers, after checking that all their weights and biases are there."""
    found = [int(name.removeprefix("weights_")) for name in arrays if re.fullmatch(r"weights_\d{1,3}", name)]
    depth = max(found, default=0) + 1
    needed = [*_names("weights", range(depth)), *_names("biases", range(depth + 1))]
    needed += _names("decoder_biases", range(1, depth)) if kind == "auto-encoder" else []
    missing = [name for name in needed if name not in arrays]
    if missing:
        names = ", ".join([*needed, *_names("offsets", range(depth + 1))])
        raise CbmError(f"{path}: lacks {', '.join(missing)}; a machine file holds {names} and kind")
    if kind == "rbm" and depth > 1:
        raise CbmError(f"{path}: is of kind rbm, but holds {depth} arrays of weights; is its kind dbm?")
    return depth


def _names(name: str, layers: Iterable[int]) -> list[str]:
    return [f"{name}_{layer}" for layer in layers]


def _numbers(path: Path, name: str, array: NDArray) -> NDArray[np.float64]:
    if array.dtype.kind not in "fiu":
        raise CbmError(f"{path}: {name} holds {array.dtype}, not numbers")
    if not np.isfinite(array).all():
        raise CbmError(f"{path}: {name} holds NaN or infinite values; the machine has diverged")
    return array.astype(np.float64)


def _check_shapes(path: Path, weights: Vectors, biases: Vectors) -> None:
    sizes = [bias.shape for bias in biases]
    if all(len(size) == 1 and size > (0,) for size in sizes) and all(
        W.shape == below + above for W, (below, above) in zip(weights, pairwise(sizes), strict=True)
    ):
        return
    named = {"weights": weights, "biases": biases}
    shapes = ", ".join(
        f"{name}_{i} {a.shape}" for name, arrays in named.items() for i, a in enumerate(arrays)
    )
    units = ["N", "M"] if len(weights) == 1 else _names("n", range(len(biases)))
    expected = [f"({n}, {m})" for n, m in pairwise(units)] + [f"({n},)" for n in units]
    raise CbmError(f"{path}: shapes do not fit: {shapes}; expected {', '.join(expected)}")


def _texts(path: Path, arrays: Arrays) -> dict[str, str]:
    """Activations and loss of an auto encoder, the first known ones where the file does not say."""
    texts = {name: str(arrays.get(name, known[0])) for name, known in _TEXTS.items()}
    for name, text in texts.items():
        if text not in _TEXTS[name]:
            raise CbmError(f"{path}: {name} {text} is unknown; cbm knows {', '.join(_TEXTS[name])}")
    return texts
