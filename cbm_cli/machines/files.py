"""Machines of every kind, and their files in the documented form (docs/machines.md)."""

import io
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
from cbm_cli.results.folder import MACHINE_NAME, find_machine
from cbm_cli.text import count, did_you_mean

KINDS = ("rbm", "dbm", "auto-encoder")
_BY_LAYER = ("weights", "biases", "offsets", "decoder_biases", "decoder_offsets")
_DEEPEST = 100  # arrays of each name that a file may have

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
    decoder_offsets: Vectors = ()  # L - 1 arrays (n_l,)
    names: tuple[
        str, ...
    ] = ()  # of the visible units: the columns of the data, where these have names

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
        linear = sum(o @ b for o, b in zip(self.offsets, self.biases, strict=True))
        pairs = zip(self.weights, pairwise(self.offsets), strict=True)
        return -float(linear + sum(low @ W @ high for W, (low, high) in pairs))

    def recentered(self, sign: int) -> "Layered":
        """The same machine with other biases: -1 from centered to plain ones, 1 from
        plain to centered ones.

        Eqs. (11), (12), `reference.transform`: the centered biases are b + W lam and c
        + W' mu. Training itself keeps plain biases.
        """
        auto_encoder = self.kind == "auto-encoder"
        above = (
            (*self.decoder_offsets, self.offsets[-1])
            if auto_encoder
            else self.offsets[1:]
        )
        down = [
            W @ lam for W, lam in zip(self.weights, above, strict=True)
        ]  # into layers 0 to L - 1
        up = [
            mu @ W for W, mu in zip(self.weights, self.offsets[:-1], strict=True)
        ]  # into layers 1 to L
        inner = (
            up[:-1]
            if auto_encoder
            else [a + b for a, b in zip(down[1:], up[:-1], strict=True)]
        )
        shifts = [down[0], *inner, up[-1]]
        return self._replace(
            biases=tuple(
                b + sign * s for b, s in zip(self.biases, shifts, strict=True)
            ),
            decoder_biases=tuple(
                d + sign * s
                for d, s in zip(self.decoder_biases, down[1:], strict=False)
            ),
        )


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
    def plain(self) -> tuple[NDArray, NDArray, NDArray]:
        """W, b, c: the RBM that it is."""
        return self.W, self.b, self.c

    @property
    def is_deep(self) -> bool:
        """Whether there are two hidden layers or more."""
        return len(self.sizes) > 2


def flatten(machine: Layered, dtype: type = np.float32, place: str = "machine") -> Flat:
    """The Boltzmann machine as an RBM, in C-contiguous arrays of ``dtype``;
    `check_range` may refuse it.
    """
    W, b, c, mu, _ = kernel_arrays(machine)
    arrays = W, b, c, mu[machine.sizes[0] :]
    check_range(arrays[:3], dtype, place)
    return Flat._make(
        [*(np.ascontiguousarray(array, dtype=dtype) for array in arrays), machine.sizes]
    )


def fits(parameters: Iterable[NDArray], dtype: type) -> bool:
    """Whether any sum of weights and biases is a number of ``dtype``."""
    with np.errstate(over="ignore"):
        return bool(
            sum(np.abs(array).sum(dtype=np.float64) for array in parameters)
            < np.finfo(dtype).max / 4
        )


def check_range(parameters: Sequence[NDArray], dtype: type, place: str) -> None:
    """Raise CbmError for weights and biases that are too large to compute with in
    ``dtype``.
    """
    if not fits(parameters, dtype):
        largest = max(
            float(np.nanmax(np.abs(array), initial=0)) for array in parameters
        )
        users, remedy = "sums", "scale the machine down"
        if dtype is np.float32:
            users, remedy = (
                "AIS, samples, mean field and costs",
                "an exact likelihood computes in float64",
            )
        raise CbmError(
            f"{place}: has weights or biases of up to {largest:.3g}; {users} would "
            "exceed the range of "
            f"{np.dtype(dtype).name}: {remedy}",
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
    chosen = (
        (lower[:-1], upper[1:])
        if kind == "auto-encoder"
        else (lower[0::2], upper[1::2])
    )
    x, h = (np.concatenate(layers, axis=-1) for layers in chosen)
    return x, h


def kernel_arrays(machine: Layered) -> Machine:
    """The machine as training holds it, see `kernels.machine.State`, in the type of its
    arrays.
    """
    kind, encoder = machine.kind, machine.kind == "auto-encoder"
    down, given = machine.biases, machine.offsets  # biases and offsets on the way down
    if encoder:
        down = *down[:1], *machine.decoder_biases, down[-1]
        given = *given[:1], *machine.decoder_offsets, given[-1]
    (b, c), (mu, lam) = (
        sides_of(down, machine.biases, kind),
        sides_of(machine.offsets, given, kind),
    )
    if encoder:
        return Machine(
            np.concatenate([block.ravel() for block in machine.weights]), b, c, mu, lam
        )
    return Machine(Layout(machine.sizes).flat_weights(machine.weights), b, c, mu, lam)


def machine_arrays(machine: Layered) -> dict[str, NDArray]:
    """The arrays of a machine file, from a machine without offsets; `read_machine`
    undoes it.

    Weights and offsets keep their type. Biases become those of the centered energy in
    float64, so that the plain ones, where they are float32, are read back to the last
    bit.
    """
    wide: Any = {
        name: tuple(a.astype(np.float64) for a in getattr(machine, name))
        for name in _BY_LAYER
    }
    centered = machine._replace(**wide).recentered(1)
    machine = machine._replace(
        biases=centered.biases, decoder_biases=centered.decoder_biases
    )
    arrays = {"kind": np.array(machine.kind)}
    for name in _BY_LAYER:
        layers = enumerate(
            getattr(machine, name), 1 if name.startswith("decoder") else 0
        )
        arrays |= {f"{name}_{layer}": array.copy() for layer, array in layers}
    return arrays | ({"names": np.array(machine.names)} if machine.names else {})


def read_machine(path: Path, content: bytes | None = None) -> Layered:
    """Read a machine of any kind in float64, and take its offsets out of the biases.

    It is a file, or a trial's machine in a results folder, by its name such as
    ``RUN:7``; ``content`` is what is in the file where that is read already.

    Raises
    ------
    CbmError
        The file is missing, not an NPZ, of an unknown kind, or holds unknown, pickled,
        missing, non-numeric or non-finite arrays, or arrays of shapes that do not fit
        together.
    """
    if content is None and not path.exists() and MACHINE_NAME.fullmatch(str(path)):
        path, content = find_machine(path)
    source = path if content is None else io.BytesIO(content)
    if (content is not None or path.is_file()) and not zipfile.is_zipfile(source):
        message = (
            f"{path}: is not a machine file, which is an NPZ file of weights_0, "
            "biases_0 and biases_1"
        )
        raise CbmError(f"{message} (docs/machines.md), or it is damaged")
    names = {f"{name}_{layer}" for name in _BY_LAYER for layer in range(_DEEPEST)}
    arrays = read_npz(source, names | {"kind", "names"}, str(path))
    if (kind := str(arrays.get("kind", KINDS[0]))) not in KINDS:
        raise CbmError(
            f"{path}: kind {kind[:40]} is unknown; cbm knows {', '.join(KINDS)}"
        )
    with zipfile.ZipFile(source) as archive:
        members = [name.removesuffix(".npy") for name in archive.namelist()]
    found = _layers(kind, arrays, members, path)
    titles = arrays.get("names", np.array([], "U1"))
    if titles.size and (
        titles.dtype.kind != "U" or titles.shape != found["biases"][0].shape
    ):
        raise CbmError(
            f"{path}: names holds {titles.dtype} of shape {titles.shape}; "
            "expected a "
            "name a unit"
        )
    with np.errstate(
        over="ignore", invalid="ignore"
    ):  # `check_range` refuses what is too large
        return Layered(kind, names=tuple(titles.tolist()), **found).recentered(-1)


def _layers(
    kind: str, arrays: Mapping[str, NDArray], members: Sequence[str], path: Path
) -> dict[str, Vectors]:
    """The layers of a machine by the names of a file, from its arrays; CbmError for
    others of its members.
    """
    numbers = [
        int(name.removeprefix("weights_"))
        for name in arrays
        if name.startswith("weights_")
    ]
    depth = max(numbers, default=0) + 1
    if kind == "rbm" and depth > 1:
        raise CbmError(
            f"{path}: is of kind rbm, but holds {depth} arrays of weights; is its "
            "kind dbm?"
        )
    inner = range(1, depth if kind == "auto-encoder" else 1)
    layers = dict(
        zip(
            _BY_LAYER,
            (range(depth), *[range(depth + 1)] * 2, inner, inner),
            strict=True,
        )
    )
    known = [f"{name}_{layer}" for name, those in layers.items() for layer in those]
    if missing := [
        name for name in known if "offsets" not in name and name not in arrays
    ]:
        told = f"{path}: lacks {', '.join(missing[:12])}"
        raise CbmError(f"{told}; a machine file holds {', '.join(known[:12])} and kind")
    if unknown := [name for name in members if name not in ("kind", "names", *known)]:
        whole = f"a machine of kind {kind} with {count(depth, 'hidden layer')}"
        raise CbmError(
            f"{path}: {unknown[0]} is not an array of "
            f"{whole}{did_you_mean(unknown[0], known)}"
        )
    found: dict[str, Vectors] = {}
    for name in sorted(layers):  # biases first: the others have to fit them
        for layer in layers[name]:
            key, units = f"{name}_{layer}", arrays[f"biases_{layer}"].shape
            shape = (
                units + arrays[f"biases_{layer + 1}"].shape
                if name == "weights"
                else units
            )
            array = arrays.get(key, np.zeros(shape))
            if array.dtype.kind not in "fiu":
                raise CbmError(f"{path}: {key} holds {array.dtype}, not numbers")
            if array.shape != shape or len(units) != 1 or not array.size:
                expected = shape if array.shape != shape else "one number for each unit"
                raise CbmError(
                    f"{path}: {key} has shape {array.shape}; expected {expected}"
                )
            if not np.isfinite(array).all():
                raise CbmError(
                    f"{path}: {key} holds NaN or infinite values; the machine has "
                    "diverged"
                )
            found[name] = (*found.get(name, ()), array.astype(np.float64))
    return found
