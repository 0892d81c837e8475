"""Files of machines and of arrays: NPZ, in the documented form (docs/machines.md)."""

import io
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbm_cli.arrays import read_npz
from cbm_cli.errors import CbmError
from cbm_cli.machines.models import KINDS, Layered, Vectors
from cbm_cli.results.folder import MACHINE_NAME, find_machine
from cbm_cli.results.writing import write_atomically
from cbm_cli.text import count, did_you_mean

_BY_LAYER = ("weights", "biases", "offsets", "decoder_biases", "decoder_offsets")


def write_arrays(
    path: Path, arrays: Mapping[str, Any], save: Callable[..., None] = np.savez
) -> None:
    """Write an NPZ file, by `numpy.savez` or `numpy.savez_compressed`."""
    stream = io.BytesIO()
    save(stream, **arrays)
    write_atomically(path, stream.getvalue())


def machine_arrays(machine: Layered) -> dict[str, NDArray]:
    """The arrays of a machine file, from a machine with plain biases; `read_machine`
    undoes it.

    Weights and offsets keep their type. Biases become those of the centered energy in
    float64. The plain ones, where they are float32, are read back to the last bit of
    float32, unless they are so small next to W lam or W' mu that float64 rounds their
    sum: below 1e-6, for sums in the hundreds.

    Examples
    --------
    >>> W, b, c = np.ones((2, 1)), np.zeros(2), np.zeros(1)
    >>> machine = Layered("rbm", (W,), (b, c), (b + 0.5, c + 0.25))
    >>> machine_arrays(machine)["biases_0"]
    array([0.25, 0.25])
    """
    centered = machine.with_centered_biases()
    arrays = {"kind": np.array(machine.kind)}
    for name in _BY_LAYER:
        first = int(name.startswith("decoder"))
        for layer, array in enumerate(getattr(centered, name), first):
            arrays[f"{name}_{layer}"] = array.copy()
    if machine.names:
        arrays["names"] = np.array(machine.names)
    return arrays


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
    exists = content is not None or path.is_file()
    if exists and not zipfile.is_zipfile(source):
        raise CbmError(
            f"{path}: is not a machine file, which is an NPZ file of weights_0, "
            "biases_0 and biases_1 (see cbm export --help), or it is damaged"
        )
    arrays = read_npz(source, where=str(path))
    kind = str(arrays.pop("kind", KINDS[0]))
    if kind not in KINDS:
        raise CbmError(
            f"{path}: kind {kind[:40]} is unknown; cbm knows {', '.join(KINDS)}"
        )
    names = arrays.pop("names", np.array([], "U1"))
    by_layer = _names_by_layer(kind, arrays, path)
    layers = dict[str, Vectors]()
    for name in sorted(by_layer):  # biases first: the others have to fit them
        checked = [_checked(key, arrays, path) for key in by_layer[name]]
        layers[name] = tuple(checked)
    units = layers["biases"][0].shape
    if names.size and (names.dtype.kind != "U" or names.shape != units):
        raise CbmError(
            f"{path}: names holds {names.dtype} of shape {names.shape}; expected a "
            "name a unit"
        )
    machine = Layered(kind, **layers, names=tuple(names.tolist()))
    # `check_range` refuses what is too large
    with np.errstate(over="ignore", invalid="ignore"):
        return machine.with_plain_biases()


def _names_by_layer(
    kind: str, arrays: Mapping[str, NDArray], path: Path
) -> dict[str, list[str]]:
    """The names of the arrays of a machine of this kind, layer by layer; CbmError for
    arrays that a file lacks, or that such a machine does not have.
    """
    depth = 1
    for name in arrays:
        if re.fullmatch(r"weights_\d\d?", name):
            depth = max(depth, int(name.removeprefix("weights_")) + 1)
    if kind == "rbm" and depth > 1:
        raise CbmError(
            f"{path}: is of kind rbm, but holds {depth} arrays of weights; is its "
            "kind dbm?"
        )
    inner = range(1, depth if kind == "auto-encoder" else 1)
    layers = {
        "weights": range(depth),
        "biases": range(depth + 1),
        "offsets": range(depth + 1),
        "decoder_biases": inner,
        "decoder_offsets": inner,
    }
    by_layer, expected = dict[str, list[str]](), list[str]()
    for name, numbers in layers.items():
        by_layer[name] = [f"{name}_{number}" for number in numbers]
        expected += by_layer[name]
    needed = [key for key in expected if "offsets" not in key]
    missing = [key for key in needed if key not in arrays]
    if missing:
        raise CbmError(
            f"{path}: lacks {', '.join(missing[:12])}; a machine file holds "
            f"{', '.join(expected[:12])} and kind"
        )
    for name in arrays:
        if name not in expected:
            raise CbmError(
                f"{path}: {name} is not an array of a machine of kind {kind} with "
                f"{count(depth, 'hidden layer')}{did_you_mean(name, expected)}"
            )
    return by_layer


def _checked(key: str, arrays: Mapping[str, NDArray], path: Path) -> NDArray:
    """An array of a layer in float64, zeros for offsets that a file lacks; CbmError for
    one that does not fit the biases.
    """
    name, _, layer = key.rpartition("_")
    biases, above = f"biases_{layer}", f"biases_{int(layer) + 1}"
    shape: tuple[int, ...] = (max(1, arrays[biases].size),)
    if name == "weights":
        shape += (arrays[above].size,)
    array = arrays.get(key, np.zeros(shape))
    if array.dtype.kind not in "fiu":
        flaw = f"holds {array.dtype}, not numbers"
    elif array.shape != shape:
        expected = shape if key != biases else "one number for each unit"
        flaw = f"has shape {array.shape}; expected {expected}"
    elif not np.isfinite(array).all():
        flaw = "holds NaN or infinite values; the machine has diverged"
    else:
        return array.astype(np.float64)
    raise CbmError(f"{path}: {key} {flaw}")
