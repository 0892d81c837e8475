"""Rows to evaluate a machine on: a named data set, or a file of anyone's."""

import gzip
import io
import zlib
from pathlib import Path

import numpy as np

from cbm_cli.datasets.catalogue import load, names
from cbm_cli.datasets.idx import read_images
from cbm_cli.errors import CbmError

_GZIP = b"\x1f\x8b"


def load_rows(source: str, part: str = "train") -> tuple[np.ndarray, float]:
    """Return rows (n, width) uint8 and the value of one of their levels.

    Parameters
    ----------
    source : str
        A data set, as ``mnist`` or ``shifting-bar:size=9,bar=1,flip=true``; or the path of a file: .npy,
        text of zeros and ones parted by commas or spaces, or IDX images (on above one half). Files may be
        packed by gzip.
    part : str
        Part of a named data set: train, valid or test.

    Raises
    ------
    CbmError
        When there is no such set, part or file, or the file holds something else than zeros and ones.
    """
    path = Path(source)
    if path.is_file():
        return _read_file(path), 1.0
    name, _, options = source.partition(":")
    if name not in names():
        raise CbmError(f"--data {source}: no such file, nor a data set; data sets are {', '.join(names())}")
    data = load(name, **_options(source, options))
    if part not in data.parts:
        raise CbmError(f"--data {source}: has no part {part}; it has {', '.join(data.parts)}")
    return data.parts[part], 1 / data.levels


def _options(source: str, text: str) -> dict:
    kinds = {
        "size": int,
        "bar": int,
        "flip": lambda word: word == "true",
        "binarise": str,
        "threshold": float,
    }
    options = {}
    for item in filter(None, text.split(",")):
        key, _, value = item.partition("=")
        try:
            options[key] = kinds[key](value)
        except (KeyError, ValueError):
            raise CbmError(
                f"--data {source}: cannot read {item!r}; write it as in shifting-bar:size=9,bar=1"
            ) from None
    return options


def _read_file(path: Path) -> np.ndarray:
    content = _unpacked(path)
    if content[:4] == bytes.fromhex("00000803"):
        return (read_images(path) > 127).astype(np.uint8)
    try:
        if content[:6] == b"\x93NUMPY":
            values = np.load(io.BytesIO(content), allow_pickle=False)
        else:
            values = np.loadtxt(io.StringIO(content.decode().replace(",", " ")), ndmin=2)
    except (ValueError, UnicodeDecodeError) as error:
        raise CbmError(f"{path}: is neither NPY, text of zeros and ones, nor IDX ({error})") from None
    if values.ndim != 2 or not values.size:
        raise CbmError(f"{path}: holds an array of shape {values.shape}; expected rows and columns")
    odd = ~np.isin(values, (0, 1))
    if odd.any():
        row, column = np.argwhere(odd)[0]
        raise CbmError(
            f"{path}: row {row + 1}, column {column + 1} is {values[row, column]}; expected 0 or 1"
        )
    return np.ascontiguousarray(values, dtype=np.uint8)


def _unpacked(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content[:2] == _GZIP else content
    except (OSError, EOFError, zlib.error) as error:
        raise CbmError(f"{path}: cannot be read: {error}") from None
