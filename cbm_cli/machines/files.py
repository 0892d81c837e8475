"""Files of machines and of arrays: NPZ, in the documented form (docs/machines.md)."""

import io
import zipfile
from collections.abc import Collection, Mapping
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

_DEEPEST = 100  # arrays of each name that a file may have
_BY_LAYER = ("weights", "biases", "offsets", "decoder_biases", "decoder_offsets")
_OPTIONAL = ("offsets", "decoder_offsets")  # zeros where a file lacks them


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write an NPZ file."""
    stream = io.BytesIO()
    np.savez(stream, **arrays)
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
    wide: dict[str, Any] = {}
    for name in _BY_LAYER:
        layers = getattr(machine, name)
        wide[name] = tuple(array.astype(np.float64) for array in layers)
    centered = machine._replace(**wide).with_centered_biases()
    written = machine._replace(
        biases=centered.biases, decoder_biases=centered.decoder_biases
    )
    arrays = {"kind": np.array(machine.kind)}
    for name in _BY_LAYER:
        first = 1 if name.startswith("decoder") else 0
        for layer, array in enumerate(getattr(written, name), first):
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
    names = {f"{name}_{layer}" for name in _BY_LAYER for layer in range(_DEEPEST)}
    arrays = read_npz(source, names | {"kind", "names"}, str(path))
    kind = str(arrays.get("kind", KINDS[0]))
    if kind not in KINDS:
        raise CbmError(
            f"{path}: kind {kind[:40]} is unknown; cbm knows {', '.join(KINDS)}"
        )
    with zipfile.ZipFile(source) as archive:
        members = [name.removesuffix(".npy") for name in archive.namelist()]
    by_layer = _layers_of_names(kind, arrays, path)
    _check_members(kind, by_layer, arrays, members, path)
    layers = _checked_layers(by_layer, arrays, path)
    machine = Layered(
        kind, **layers, names=_names_of(arrays, len(layers["biases"][0]), path)
    )
    # `check_range` refuses what is too large
    with np.errstate(over="ignore", invalid="ignore"):
        return machine.with_plain_biases()


def _layers_of_names(
    kind: str, arrays: Mapping[str, NDArray], path: Path
) -> dict[str, range]:
    """The layers of which a file of this kind has an array, by the array's name."""
    depth = 1
    for name in arrays:
        if name.startswith("weights_"):
            depth = max(depth, int(name.removeprefix("weights_")) + 1)
    if kind == "rbm" and depth > 1:
        raise CbmError(
            f"{path}: is of kind rbm, but holds {depth} arrays of weights; is its "
            "kind dbm?"
        )
    inner = range(1, depth if kind == "auto-encoder" else 1)
    return {
        "weights": range(depth),
        "biases": range(depth + 1),
        "offsets": range(depth + 1),
        "decoder_biases": inner,
        "decoder_offsets": inner,
    }


def _check_members(
    kind: str,
    by_layer: Mapping[str, range],
    arrays: Mapping[str, NDArray],
    members: Collection[str],
    path: Path,
) -> None:
    """Raise CbmError for arrays that a machine lacks or does not have."""
    expected, needed = [], []
    for name, layers in by_layer.items():
        keys = [f"{name}_{layer}" for layer in layers]
        expected += keys
        if name not in _OPTIONAL:
            needed += keys
    missing = [key for key in needed if key not in arrays]
    if missing:
        raise CbmError(
            f"{path}: lacks {', '.join(missing[:12])}; a machine file holds "
            f"{', '.join(expected[:12])} and kind"
        )
    for name in members:
        if name not in (*expected, "kind", "names"):
            depth = count(len(by_layer["weights"]), "hidden layer")
            raise CbmError(
                f"{path}: {name} is not an array of a machine of kind {kind} with "
                f"{depth}{did_you_mean(name, expected)}"
            )


def _checked_layers(
    by_layer: Mapping[str, range], arrays: Mapping[str, NDArray], path: Path
) -> dict[str, Vectors]:
    """The arrays in float64; CbmError for those that do not fit the biases."""
    checked: dict[str, Vectors] = {}
    for name in sorted(by_layer):  # biases first: the others have to fit them
        for layer in by_layer[name]:
            key = f"{name}_{layer}"
            units = arrays[f"biases_{layer}"].shape
            shape = units
            if name == "weights":
                shape = units + arrays[f"biases_{layer + 1}"].shape
            array = arrays.get(key, np.zeros(shape))
            flaw = _flaw_of(array, shape, is_flat=len(units) == 1)
            if flaw:
                raise CbmError(f"{path}: {key} {flaw}")
            checked[name] = (*checked.get(name, ()), array.astype(np.float64))
    return checked


def _flaw_of(array: NDArray, shape: tuple[int, ...], is_flat: bool) -> str:
    """Why an array is not one of finite numbers of this shape; empty if it is."""
    if array.dtype.kind not in "fiu":
        return f"holds {array.dtype}, not numbers"
    if array.shape != shape:
        return f"has shape {array.shape}; expected {shape}"
    if not is_flat or not array.size:
        return f"has shape {array.shape}; expected one number for each unit"
    if not np.isfinite(array).all():
        return "holds NaN or infinite values; the machine has diverged"
    return ""


def _names_of(arrays: Mapping[str, NDArray], units: int, path: Path) -> tuple[str, ...]:
    """Names of the visible units, if the file has some."""
    names = arrays.get("names", np.array([], "U1"))
    if names.size and (names.dtype.kind != "U" or names.shape != (units,)):
        raise CbmError(
            f"{path}: names holds {names.dtype} of shape {names.shape}; expected a "
            "name a unit"
        )
    return tuple(names.tolist())
