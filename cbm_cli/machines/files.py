"""Machines of every kind, and their files in the documented form (docs/machines.md)."""

import io
import itertools
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli.arrays import read_npz
from cbm_cli.errors import CbmError
from cbm_cli.kernels.machine import Layout, Machine
from cbm_cli.results.folder import find_machine, is_machine
from cbm_cli.text import count, did_you_mean

KINDS = ("rbm", "dbm", "auto-encoder")
_BY_LAYER = ("weights", "biases", "offsets", "decoder_biases", "decoder_offsets")
_DEEPEST = 100  # arrays of each name that a file may have

Arrays = Mapping[str, NDArray]
Vectors = tuple[NDArray, ...]


class Layered(NamedTuple):
    """A machine of L hidden layers, layer 0 visible, with plain biases, those of offsets 0.

    E = -sum_l x_l' b_l - sum_l x_l' W_l x_{l+1}. An auto encoder computes y_{l+1} = s(y_l W_l + b_{l+1})
    on the way up and y_l = s(y_{l+1} W_l' + d_l) on the way down, s(a) = 1 / (1 + exp(-a)), with d_0 = b_0.
    """

    kind: str  # one of KINDS
    weights: Vectors  # L arrays W_l (n_l, n_{l+1})
    biases: Vectors  # L + 1 arrays b_l (n_l,)
    offsets: Vectors  # L + 1 arrays (n_l,) of the machine that was trained; mean field starts there
    decoder_biases: Vectors = ()  # L - 1 arrays d_l (n_l,) of the inner layers of an auto encoder
    decoder_offsets: Vectors = ()  # L - 1 arrays (n_l,)
    names: tuple[str, ...] = ()  # of the visible units: the columns of the data, where these have names

    @property
    def sizes(self) -> tuple[int, ...]:
        """Units of the layers n_0, ..., n_L."""
        return tuple(map(len, self.biases))

    @property
    def offset_energy(self) -> float:
        """Energy of the offsets as states.

        The documented, centered energy is E(x) - E(offsets), so that its log Z is larger by E(offsets).
        """
        linear = sum(o @ b for o, b in zip(self.offsets, self.biases, strict=True))
        pairs = zip(self.weights, pairwise(self.offsets), strict=True)
        return -float(linear + sum(low @ W @ high for W, (low, high) in pairs))

    def recentered(self, sign: int) -> "Layered":
        """The same machine with other biases: -1 from centered to plain ones, 1 from plain to centered ones.

        Eqs. (11), (12), `reference.transform`: the centered biases are b + W lam and c + W' mu. Training
        itself keeps plain biases.
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


def flatten(machine: Layered, dtype: type = np.float32, place: str = "machine") -> Flat:
    """The Boltzmann machine as an RBM, in C-contiguous arrays of ``dtype``; `check_size` may refuse it."""
    layout = Layout(machine.sizes)
    even, odd = (layout.side(machine.biases, odd=odd) for odd in (False, True))
    arrays = layout.flat_weights(machine.weights), even, odd, np.concatenate([[], *machine.offsets[2::2]])
    check_size(arrays[:3], dtype, place)
    return Flat._make([*(np.ascontiguousarray(array, dtype=dtype) for array in arrays), machine.sizes])


def fits(parameters: Iterable[NDArray], dtype: type) -> bool:
    """Whether any sum of weights and biases is a number of ``dtype``."""
    with np.errstate(over="ignore"):
        return bool(
            sum(np.abs(array).sum(dtype=np.float64) for array in parameters) < np.finfo(dtype).max / 4
        )


def check_size(parameters: Sequence[NDArray], dtype: type, place: str) -> None:
    """Raise CbmError for weights and biases that are too large to compute with in ``dtype``."""
    if not fits(parameters, dtype):
        largest = max(float(np.nanmax(np.abs(array), initial=0)) for array in parameters)
        users, remedy = "sums", "scale the machine down"
        if dtype is np.float32:
            users, remedy = "AIS, samples, mean field and costs", "an exact likelihood computes in float64"
        raise CbmError(
            f"{place}: has weights or biases of up to {largest:.3g}; {users} would exceed the range of "
            f"{np.dtype(dtype).name}: {remedy}",
        )


def sides_of(lower: Sequence[NDArray], upper: Sequence[NDArray], kind: str) -> tuple[NDArray, NDArray]:
    """Put arrays (..., n_l) of layers side by side, as x and h of the kernels hold them.

    ``lower`` are of layers at the bottom of a pair, ``upper`` of layers at the top: even and odd layers of a
    Boltzmann machine; all layers but the last, and all but the first, of an auto encoder, whose inner layers
    are on both sides.
    """
    chosen = (lower[:-1], upper[1:]) if kind == "auto-encoder" else (lower[0::2], upper[1::2])
    x, h = (np.concatenate(layers, axis=-1) for layers in chosen)
    return x, h


def kernel_arrays(machine: Layered) -> Machine:
    """The machine as training holds it, see `kernels.machine.State`, in the type of its arrays."""
    kind, encoder = machine.kind, machine.kind == "auto-encoder"
    down, given = machine.biases, machine.offsets  # biases and offsets on the way down
    if encoder:
        down = *down[:1], *machine.decoder_biases, down[-1]
        given = *given[:1], *machine.decoder_offsets, given[-1]
    (b, c), (mu, lam) = sides_of(down, machine.biases, kind), sides_of(machine.offsets, given, kind)
    if encoder:
        return Machine(np.concatenate([block.ravel() for block in machine.weights]), b, c, mu, lam)
    return Machine(Layout(machine.sizes).flat_weights(machine.weights), b, c, mu, lam)


def machine_arrays(machine: Layered) -> dict[str, NDArray]:
    """The arrays of a machine file, from a machine without offsets; `read_machine` undoes it.

    Weights and offsets keep their type. Biases become those of the centered energy in float64, so that the
    plain ones, where they are float32, are read back to the last bit.
    """
    wide: Any = {name: tuple(a.astype(np.float64) for a in getattr(machine, name)) for name in _BY_LAYER}
    centered = machine._replace(**wide).recentered(1)
    machine = machine._replace(biases=centered.biases, decoder_biases=centered.decoder_biases)
    arrays = {"kind": np.array(machine.kind)}
    for name in _BY_LAYER:
        layers = enumerate(getattr(machine, name), 1 if name.startswith("decoder") else 0)
        arrays |= {f"{name}_{layer}": array.copy() for layer, array in layers}
    return arrays | ({"names": np.array(machine.names)} if machine.names else {})


def read_machine(path: Path, content: bytes | None = None) -> Layered:
    """Read a machine of any kind in float64, and take its offsets out of the biases.

    It is a file, or a trial's machine in a results folder, by its name such as ``RUN:7``; ``content`` is what
    is in the file where that is read already.

    Raises
    ------
    CbmError
        The file is missing, not an NPZ, of an unknown kind, or holds unknown, pickled, missing, non-numeric
        or non-finite arrays, or arrays of shapes that do not fit together.
    """
    path, arrays, names = _arrays(path, content)
    array = arrays.get("kind", np.array(KINDS[0]))
    kind = str(array.item()) if array.size == 1 else f"of shape {array.shape}"
    if kind not in KINDS:
        raise CbmError(f"{path}: kind {kind[:40]} is unknown; cbm knows {', '.join(KINDS)}")
    depth, encoder = _depth(path, kind, arrays), kind == "auto-encoder"
    inner = range(1, depth) if encoder else range(0)
    layers = (*[range(depth + 1)] * 2, inner, inner)
    known = [*_names("weights", range(depth)), *itertools.chain(*map(_names, _BY_LAYER[1:], layers))]
    if unknown := [name for name in names if name not in ("kind", "names", *known)]:
        whole = f"a machine of kind {kind} with {count(depth, 'hidden layer')}"
        told = f"{path}: {unknown[0]} is not an array of {whole}{did_you_mean(unknown[0], known)}"
        raise CbmError(told)
    weights, biases = (
        tuple(_numbers(path, key, arrays[key]) for key in _names(name, range(count)))
        for name, count in (("weights", depth), ("biases", depth + 1))
    )
    _check_shapes(path, weights, biases)

    def vectors(name: str, layers: range) -> Vectors:
        """One array for each layer, zeros if the file has none."""
        found = []
        for bias, key in zip(biases[layers.start : layers.stop], _names(name, layers), strict=True):
            found.append(_numbers(path, key, arrays.get(key, np.zeros_like(bias))))
            if found[-1].shape != bias.shape:
                message = f"{path}: {key} has shape {found[-1].shape}; expected {bias.shape}"
                raise CbmError(message)
        return tuple(found)

    offsets = vectors("offsets", range(depth + 1))
    decoders = vectors("decoder_biases", inner), vectors("decoder_offsets", inner)
    titles = arrays.get("names", np.array([], "U1"))
    if titles.size and (titles.dtype.kind != "U" or titles.shape != biases[0].shape):
        raise CbmError(f"{path}: names holds {titles.dtype} of shape {titles.shape}; expected a name a unit")
    with np.errstate(over="ignore", invalid="ignore"):  # `check_size` refuses what is too large
        machine = Layered(kind, weights, biases, offsets, *decoders, names=tuple(titles.tolist()))
        return machine.recentered(-1)


def _arrays(path: Path, content: bytes | None) -> tuple[Path, Arrays, list[str]]:
    """The name of a machine in full, its arrays, and the names of all arrays in its file."""
    if content is None and not path.exists() and is_machine(str(path)):
        path, content = find_machine(path)
    source = path if content is None else io.BytesIO(content)
    if (content is not None or path.is_file()) and not zipfile.is_zipfile(source):
        message = f"{path}: is not a machine file, which is an NPZ file of weights_0, biases_0 and biases_1"
        raise CbmError(f"{message} (docs/machines.md), or it is damaged")
    arrays = read_npz(source, _known_names(), str(path))
    with zipfile.ZipFile(source) as archive:
        return path, arrays, [name.removesuffix(".npy") for name in archive.namelist()]


def _known_names() -> set[str]:
    layers = {key for name in _BY_LAYER for key in _names(name, range(_DEEPEST))}
    return {"kind", "names", *layers}


def _depth(path: Path, kind: str, arrays: Arrays) -> int:
    """Number of hidden layers; CbmError if some of their weights or biases are missing."""
    found = [int(name.removeprefix("weights_")) for name in arrays if name.startswith("weights_")]
    depth = max(found, default=0) + 1
    needed = [*_names("weights", range(depth)), *_names("biases", range(depth + 1))]
    needed += _names("decoder_biases", range(1, depth)) if kind == "auto-encoder" else []
    missing = [name for name in needed if name not in arrays]
    if missing:
        names = ", ".join([*needed, *_names("offsets", range(depth + 1))][:12])
        message = f"{path}: lacks {', '.join(missing[:12])}; a machine file holds {names} and kind"
        raise CbmError(message)
    if kind == "rbm" and depth > 1:
        message = f"{path}: is of kind rbm, but holds {depth} arrays of weights; is its kind dbm?"
        raise CbmError(message)
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
        W.shape == low + high for W, (low, high) in zip(weights, pairwise(sizes), strict=True)
    ):
        return
    named = {"weights": weights, "biases": biases}
    shapes = ", ".join(
        f"{name}_{i} {a.shape}" for name, arrays in named.items() for i, a in enumerate(arrays)
    )
    units = ["N", "M"] if len(weights) == 1 else _names("n", range(len(biases)))
    expected = [f"({n}, {m})" for n, m in pairwise(units)] + [f"({n},)" for n in units]
    raise CbmError(f"{path}: shapes do not fit: {shapes}; expected {', '.join(expected)}")
