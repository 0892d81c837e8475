"""Machine files: anyone's machine in the documented form (docs/formats.md)."""

import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli.errors import CbmError


class PlainMachine(NamedTuple):
    """A machine without offsets: W (N, M), b (N,), c (M,), float64."""

    W: NDArray[np.float64]
    b: NDArray[np.float64]
    c: NDArray[np.float64]


def read_machine(path: Path) -> PlainMachine:
    """Read a machine file of kind rbm and take its offsets out, Eqs. (transform_b), (transform_c).

    Raises
    ------
    CbmError
        For a file that is missing, is no NPZ, holds pickled, missing, non-numeric or non-finite arrays,
        or arrays whose shapes do not fit together.
    """
    arrays = _read_arrays(path)
    kind = str(arrays.get("kind", "rbm"))
    if kind != "rbm":
        raise CbmError(f"{path}: is a machine of kind {kind}; this version evaluates kind rbm")
    names = ("weights_0", "biases_0", "biases_1", "offsets_0", "offsets_1")
    missing = [name for name in names[:3] if name not in arrays]
    if missing:
        raise CbmError(
            f"{path}: lacks {', '.join(missing)}; a machine file holds {', '.join(names)} and kind"
        )
    W, b, c = (_numbers(path, name, arrays[name]) for name in names[:3])
    if W.ndim != 2 or b.shape != W.shape[:1] or c.shape != W.shape[1:]:
        shapes = f"weights_0 {W.shape}, biases_0 {b.shape}, biases_1 {c.shape}"
        raise CbmError(f"{path}: shapes do not fit: {shapes}; expected (N, M), (N,), (M,)")
    mu = _offsets(path, arrays, "offsets_0", b)
    lam = _offsets(path, arrays, "offsets_1", c)
    return PlainMachine(W, b - W @ lam, c - W.T @ mu)


def _read_arrays(path: Path) -> dict[str, NDArray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise CbmError(f"{path}: no such file") from None
    except (OSError, ValueError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise CbmError(f"{path}: is not a machine file (NPZ without pickled objects): {error}") from None


def _numbers(path: Path, name: str, array: NDArray) -> NDArray[np.float64]:
    if array.dtype.kind not in "fiu":
        raise CbmError(f"{path}: {name} holds {array.dtype}, not numbers")
    if not np.isfinite(array).all():
        raise CbmError(f"{path}: {name} holds NaN or infinite values; the machine has diverged")
    return array.astype(np.float64)


def _offsets(path: Path, arrays: dict[str, NDArray], name: str, like: NDArray) -> NDArray[np.float64]:
    offsets = _numbers(path, name, arrays.get(name, np.zeros_like(like)))
    if offsets.shape != like.shape:
        raise CbmError(f"{path}: {name} has shape {offsets.shape}; expected {like.shape}")
    return offsets
