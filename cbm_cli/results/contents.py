"""What results contain: arrays as NPZ, tables as CSV, and both as text in a record."""

import base64
import io
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cbm_cli.arrays import MOST_BYTES

if TYPE_CHECKING:
    import pandas as pd

SMALL = 1 << 16  # bytes of a machine that still goes into a record
# Columns beside settings that are text even where they look like numbers: a version 2.4, an experiment 007
TEXTS = "experiment", "run_id", "cbm_version", "kernel_version", "numpy_version", "numba_version"


def as_text(content: bytes) -> str:
    """Return content compressed, as text."""
    return base64.b64encode(zlib.compress(content)).decode()


def content_of(text: str) -> bytes:
    """Return the content of `as_text`; ValueError for another text, and for a huge content."""
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(base64.b64decode(text, validate=True), MOST_BYTES)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not unpacking.eof:
        raise ValueError("cut short, or huge")
    return content


def npz(arrays: Mapping[str, Any], compressed: bool = False) -> bytes:
    """Return an NPZ file of arrays; a small one takes a third of the time of numpy.savez."""
    stream = io.BytesIO()
    if sum(array.nbytes for array in arrays.values()) > SMALL:
        (np.savez_compressed if compressed else np.savez)(stream, **arrays)
        return stream.getvalue()
    with zipfile.ZipFile(stream, "w") as file:
        for name, array in arrays.items():
            content = _npy_header(array.dtype.str, array.shape) + array.tobytes()
            file.writestr(zipfile.ZipInfo(f"{name}.npy"), content)
    return stream.getvalue()


@lru_cache
def _npy_header(kind: str, shape: tuple[int, ...]) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": kind, "fortran_order": False, "shape": shape})
    return stream.getvalue()


def read_summary(content: bytes) -> "pd.DataFrame":
    """Return the rows of ``summary.csv``, of which there may be none."""
    import pandas as pd

    columns = content.partition(b"\n")[0].decode().split(",")
    missing = {name: [""] if name in TEXTS else ["", "nan", "NaN"] for name in columns}
    how: Any = {"na_values": missing, "keep_default_na": False}
    if tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1):  # later ones read numbers to the last bit
        how["float_precision"] = "round_trip"
    return pd.read_csv(io.BytesIO(content), dtype=dict.fromkeys(TEXTS, str), **how)


def csv_of(columns: Sequence[str], rows: NDArray[np.float64]) -> bytes:
    """Return rows as CSV; numbers have all their digits."""
    forms = {"update": "{:.0f}".format, "epoch": "{:.10g}".format}
    own = [forms.get(name, repr) for name in columns]
    lines = (",".join(form(value) for form, value in zip(own, row, strict=True)) for row in rows.tolist())
    return "".join(f"{line}\n" for line in (",".join(columns), *lines)).encode()


def joined(tables: Mapping[int, bytes]) -> bytes:
    """Return the tables of trials below each other, with the number of the trial before each row."""
    parts = [(number, *content.decode().partition("\n")[::2]) for number, content in tables.items()]
    names = [*dict.fromkeys(name for _, head, _ in parts for name in head.split(","))]
    lines = [",".join(["trial", *names])]
    for number, head, body in parts:
        own = head.split(",")
        if own == names:
            lines += [f"{number},{line}" for line in body.splitlines()]
        else:  # of recorders that failed in some trials
            found = (dict(zip(own, line.split(","), strict=False)) for line in body.splitlines())
            lines += [",".join([str(number), *(row.get(name, "") for name in names)]) for row in found]
    return "\n".join([*lines, ""]).encode()
