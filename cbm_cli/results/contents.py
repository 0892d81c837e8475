"""What files of results contain: sealed JSON, arrays as NPZ, and CSV."""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from types import NoneType, UnionType
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import numpy as np
from numpy.typing import NDArray

from cbm_cli.results.filing import SMALL

if TYPE_CHECKING:
    import pandas as pd

# Columns that are text even where they look like numbers, beside the settings that are text
_TEXTS = (
    *("experiment", "run_id", "data", "batch", "record_units"),
    *("cbm_version", "kernel_version", "numpy_version", "numba_version"),
)
_SEAL = b', "checksum": "'


def sha256(content: bytes) -> str:
    """Return the SHA-256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def sealed(record: Mapping[str, Any], indent: int | None = None) -> bytes:
    """Return the JSON of a record that ends with the SHA-256 of everything before it."""
    content = json.dumps(record, indent=indent).encode().removesuffix(b"}").rstrip()
    return content + _SEAL + sha256(content).encode() + b'"}'


def unsealed(content: bytes) -> dict[str, Any]:
    """Return the record in sealed JSON; ValueError if it has changed."""
    record = json.loads(content)
    if not isinstance(record, dict) or record.pop("checksum", None) != sha256(content.rpartition(_SEAL)[0]):
        raise ValueError
    return record


def packed(arrays: Mapping[str, Any], small: bool = False) -> bytes:
    """Return an NPZ file of arrays; a small one takes a third of the time of numpy.savez."""
    stream = io.BytesIO()
    if sum(array.nbytes for array in arrays.values()) > SMALL:
        (np.savez_compressed if small else np.savez)(stream, **arrays)
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


@cache
def text_columns() -> frozenset[str]:
    """Return the columns of ``summary.csv`` that are text even where they look like numbers.

    There are a scheme 00, a version 2.4, and data sets and experiments that are called 007 or nan.
    """
    from cbm_cli.grid.settings import NESTED, Settings

    fields = {name: info.annotation for name, info in Settings.model_fields.items()}
    for name, model in NESTED.items():
        fields |= {f"{name}_{inner}": info.annotation for inner, info in model.model_fields.items()}
    return frozenset([*_TEXTS, *(name for name, kind in fields.items() if _types(kind) <= {str, NoneType})])


def _types(annotation: Any) -> set[type]:
    """The types of the values of a field."""
    if get_origin(annotation) is Literal:
        return {*map(type, get_args(annotation))}
    if get_origin(annotation) is Annotated:
        return _types(get_args(annotation)[0])
    parts = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else ()
    return set().union(*map(_types, parts)) if parts else {annotation}


def read_csv(text: IO | Path) -> "pd.DataFrame":
    """Return a table of trials, which may be empty."""
    import pandas as pd

    try:
        columns = pd.read_csv(text, nrows=0).columns
    except pd.errors.EmptyDataError:
        return pd.DataFrame()
    if not isinstance(text, Path):
        text.seek(0)
    texts = text_columns()
    missing = {name: [""] if name in texts else ["", "nan", "NaN"] for name in columns}
    return pd.read_csv(text, dtype=dict.fromkeys(texts, str), na_values=missing, keep_default_na=False)


def csv_of(columns: Sequence[str], rows: NDArray[np.float64]) -> bytes:
    """Return rows as CSV; numbers have all their digits."""
    forms = {"update": "{:.0f}".format, "epoch": "{:.10g}".format}
    own = [forms.get(name, repr) for name in columns]
    lines = (",".join(form(value) for form, value in zip(own, row, strict=True)) for row in rows.tolist())
    return "".join(f"{line}\n" for line in (",".join(columns), *lines)).encode()
