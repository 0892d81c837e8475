"""Machine files: anyone's machine in the documented form (docs/formats.md)."""

import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cbm_cli.errors import CbmError
from cbm_cli.results.layered import Layered, PlainMachine, Vectors

KINDS = ("rbm", "dbm", "auto-encoder")
_ACTIVATIONS = ("sigmoid", "tanh", "relu", "linear")
_TEXTS = {"encoder": _ACTIVATIONS, "decoder": _ACTIVATIONS, "loss": ("cross-entropy", "squared")}

Arrays = Mapping[str, NDArray]


def read_machine(path: Path) -> PlainMachine:
    """Read a machine file of kind rbm and take its offsets out; errors as of `read_layered`."""
    machine = read_layered(path)
    if machine.kind != "rbm":
        raise CbmError(f"{path}: is a machine of kind {machine.kind}; this is for kind rbm")
    return PlainMachine(*machine.weights, *machine.biases)


def read_layered(path: Path) -> Layered:
    """Read a machine file of any kind, in float64, and take its offsets out.

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
    inner = range(1, depth) if kind == "auto-encoder" else range(0)
    like = dict(enumerate(biases))
    machine = Layered(
        kind,
        weights,
        biases,
        offsets=_vectors(path, "offsets", arrays, like),
        decoder_biases=_vectors(path, "decoder_biases", arrays, {i: like[i] for i in inner}),
        decoder_offsets=_vectors(path, "decoder_offsets", arrays, {i: like[i] for i in inner}),
        **(_texts(path, arrays) if kind == "auto-encoder" else {}),
    )
    return machine.without_offsets()


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


def _check_shapes(path: Path, weights: Sequence[NDArray], biases: Sequence[NDArray]) -> None:
    sizes = [bias.shape for bias in biases]
    if all(len(size) == 1 and size > (0,) for size in sizes) and all(
        W.shape == below + above for W, (below, above) in zip(weights, pairwise(sizes), strict=True)
    ):
        return
    arrays = dict(zip(_names("weights", range(len(weights))), weights, strict=True))
    arrays |= dict(zip(_names("biases", range(len(biases))), biases, strict=True))
    shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
    units = ["N", "M"] if len(weights) == 1 else _names("n", range(len(biases)))
    expected = [f"({n}, {m})" for n, m in pairwise(units)] + [f"({n},)" for n in units]
    raise CbmError(f"{path}: shapes do not fit: {shapes}; expected {', '.join(expected)}")


def _read_arrays(path: Path) -> dict[str, NDArray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise CbmError(f"{path}: no such file") from None
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise CbmError(f"{path}: is not a machine file (NPZ without pickled objects): {error}") from None


def _numbers(path: Path, name: str, array: NDArray) -> NDArray[np.float64]:
    if array.dtype.kind not in "fiu":
        raise CbmError(f"{path}: {name} holds {array.dtype}, not numbers")
    if not np.isfinite(array).all():
        raise CbmError(f"{path}: {name} holds NaN or infinite values; the machine has diverged")
    return array.astype(np.float64)


def _vectors(path: Path, name: str, arrays: Arrays, like: Mapping[int, NDArray]) -> Vectors:
    """An array for each of some layers, zeros where the file leaves it out."""
    return tuple(_vector(path, f"{name}_{layer}", arrays, bias) for layer, bias in like.items())


def _vector(path: Path, name: str, arrays: Arrays, like: NDArray) -> NDArray[np.float64]:
    vector = _numbers(path, name, arrays.get(name, np.zeros_like(like)))
    if vector.shape != like.shape:
        raise CbmError(f"{path}: {name} has shape {vector.shape}; expected {like.shape}")
    return vector


def _texts(path: Path, arrays: Arrays) -> dict[str, str]:
    """Activations and loss of an auto encoder, the first known ones where the file does not say."""
    texts = {name: str(arrays.get(name, known[0])) for name, known in _TEXTS.items()}
    for name, text in texts.items():
        if text not in _TEXTS[name]:
            raise CbmError(f"{path}: {name} {text} is unknown; cbm knows {', '.join(_TEXTS[name])}")
    return texts
