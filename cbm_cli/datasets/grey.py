"""A user's own files as rows of bytes, and what becomes of grey values: binary units, or probabilities."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cbm_cli.arrays import check_size
from cbm_cli.datasets.columns import Columns
from cbm_cli.datasets.dataset import PARTS, DataError, Dataset
from cbm_cli.datasets.formats import NOISE, FileRows, read_tables, reading
from cbm_cli.datasets.sources import own_file
from cbm_cli.datasets.spec import DataSpec

_Parts = dict[str, tuple[str, FileRows]]  # part -> where its rows come from, the rows


def read_own(spec: DataSpec, folder: str | Path = "", width: int | None = None) -> Dataset:
    """Return the data set of a user's files; rows of LIBSVM files are filled up to ``width``.

    DataError for files that are missing, damaged or of no known format, parts that differ in width, and grey
    values without `binarise` or on an unknown scale.
    """
    tables = _widened(_read(spec, folder), width or 0)
    parts: dict[str, Any] = {part: table.values for part, (_, table) in tables.items()}
    binary = all(values.dtype == np.uint8 and values.max() <= 1 for values in parts.values())
    kept = binary and spec.scale in (None, 1) and spec.threshold < 1
    if not kept:
        if spec.binarise == "refuse":
            remedy = f"expected 0 or 1; {_remedy(tables)}"
            _refuse(tables, lambda values: np.abs(values - (values > 0.5)) > NOISE, remedy, "binarise")
        parts = _as_units(spec, tables)
    levels = 255 if spec.binarise == "none" and not kept else 1
    return Dataset(spec.unflipped, **parts, levels=levels, image=tables["train"][1].image)


def binarised(
    parts: dict[str, np.ndarray], binarise: str, threshold: float, scale: float
) -> dict[str, np.ndarray]:
    """Return the grey values v of all parts as uint8.

    ``threshold``: on where v / scale > threshold. ``sample``: on with probability v / scale, drawn once, the
    same in every process. ``none``: v / scale in steps of 1/255.
    """
    rng = np.random.Generator(np.random.Philox(key=1))
    return {part: _units(values, binarise, threshold, scale, rng) for part, values in parts.items()}


def _units(
    values: np.ndarray, binarise: str, threshold: float, scale: float, rng: np.random.Generator
) -> np.ndarray:
    in_bytes = values.dtype == np.uint8
    if binarise == "none":
        return values if in_bytes and scale == 255 else np.rint(values / scale * 255).astype(np.uint8)
    if binarise == "sample":
        if in_bytes and scale == 255:  # a number of 0 ... 254 is below v with probability v / 255 exactly
            return (rng.integers(0, 255, values.shape, np.uint8) < values).view(np.uint8)
        return (rng.random(values.shape) < values / scale).view(np.uint8)
    if in_bytes:
        lowest_on = np.count_nonzero(np.arange(256) / scale <= threshold)
        return (values >= lowest_on).view(np.uint8)
    return (values / scale > threshold).view(np.uint8)


def _read(spec: DataSpec, folder: str | Path) -> _Parts:
    tables: _Parts = {}
    columns = Columns(spec.columns, spec.drop, spec.drop_last)
    for part, option in zip(PARTS, ("path", "valid", "test"), strict=True):
        name = getattr(spec, option)
        if name is None:
            continue
        path = own_file(folder, name)
        try:
            found_in_file = _parts(path, part, columns)
            for found, table in found_in_file.items():
                if found in tables:
                    where = tables[found][0]
                    message = f"{path}: the {found} part is in {where} already; remove one of them"
                    raise DataError(message, None, "conflict")
                label = f"{path} ({found})" if len(found_in_file) > 1 else str(path)
                tables[found] = label, table
        except DataError as error:
            raise DataError(str(error), error.field or option, *error.kinds) from None
    return tables


def _parts(path: Path, part: str, columns: Columns) -> dict[str, FileRows]:
    """Return the tables of a part's file; the file of the training part may hold other parts too."""
    found = read_tables(path, columns)
    if "" in found:
        return {part: found[""]}
    if part not in found:
        raise DataError(f"{path}: has no {part} part; it has {', '.join(found)}", None, "missing")
    return found if part == "train" else {part: found[part]}


def _widened(tables: _Parts, width: int) -> _Parts:
    """Fill sparse tables up with columns of zeros, and refuse parts of other columns than the first."""
    width = max(width, *(table.values.shape[1] for _, table in tables.values()))
    for part, (where, table) in tables.items():
        missing = width - table.values.shape[1]
        if table.sparse and missing:
            with reading(where, "LIBSVM"):
                check_size(len(table.values) * width * table.values.itemsize)
            tables[part] = where, FileRows(np.pad(table.values, ((0, 0), (0, missing))), sparse=True)
    first, columns = tables["train"][0], tables["train"][1].values.shape[1]
    for part, (where, table) in tables.items():
        if table.values.shape[1] != columns:
            raise DataError(
                f"{where}: has {table.values.shape[1]} columns, {first} has {columns}; "
                "all parts need the same number",
                part,
                "conflict",
            )
        for own, name in zip(table.names, tables["train"][1].names, strict=False):
            if own != name:
                told = f"{where}: has the column {own} where {first} has {name}"
                raise DataError(f"{told}; all parts need the same columns, in one order", part, "conflict")
    return tables


def _as_units(spec: DataSpec, tables: _Parts) -> dict[str, np.ndarray]:
    """Return the units of all parts; DataError for values beyond the scale, or constant units."""
    own_units = spec.binarise == "threshold" and (spec.threshold >= 1 or spec.threshold == 0)
    scale = 1.0 if own_units else spec.scale or _scale_of(tables)
    parts = {part: table.values for part, (_, table) in tables.items()}
    if not own_units:
        room = NOISE * scale
        _refuse(
            tables,
            lambda values: (values < -room) | (values > scale + room),
            f"values are 0 to {_exact(scale)}; {_remedy(tables)}",
            "scale",
        )
        parts = {
            part: values if values.dtype == np.uint8 else values.clip(0, scale)
            for part, values in parts.items()
        }
    units = binarised(parts, spec.binarise, spec.threshold, scale)
    train, (where, table) = units["train"], tables["train"]
    if train.min() == train.max() and table.values.min() < table.values.max():
        by = f"threshold {spec.threshold:g}" if spec.binarise == "threshold" else f"binarise {spec.binarise}"
        low, high = table.values.min(), table.values.max()
        raise DataError(
            f"{where}: {by} turns all values, {low:g} to {high:g}, into {train.max()}; choose a threshold "
            "between them, in the file's units (1 or more) or as a share of scale",
            "threshold" if spec.binarise == "threshold" else "binarise",
        )
    return units


def _remedy(tables: _Parts) -> str:
    """Return the options that values take, by their ends."""
    low, top = _ends(tables)
    if low < -NOISE:
        ways = "threshold: 0 turns those above 0 on" if top > 0 else "add a number to all, no option does it"
        return f"for values of {_exact(low)} to {_exact(top)}: {ways}"
    if top <= 1 + NOISE or (top.is_integer() and 127 < top <= 255):
        return "for grey values choose binarise: threshold, sample or none"
    between, scale = _exact(_between(low, top)), _exact(top)
    return f"for values up to {scale} write threshold: {between}, or scale: {scale} and binarise: none"


def _scale_of(tables: _Parts) -> float:
    """Return the value that is surely on, if the files leave no doubt: 1 for shares, 255 for bytes."""
    low, top = _ends(tables)
    if top <= 1 + NOISE:
        return 1.0
    in_bytes = all(table.values.dtype == np.uint8 for _, table in tables.values())
    if in_bytes and (top > 127 or tables["train"][1].image):
        return 255.0
    raise DataError(
        f"{tables['train'][0]}: values reach {_exact(top)}, on an unknown scale; "
        f"add scale: {_exact(top)} (bytes: 255), "
        f"or a threshold in the file's units, such as threshold: {_exact(_between(low, top))}",
        "scale",
        "missing",
    )


def _ends(tables: _Parts) -> tuple[float, float]:
    """Return the lowest and the highest value of all parts."""
    values = [table.values for _, table in tables.values()]
    return min(float(part.min()) for part in values), max(float(part.max()) for part in values)


def _between(low: float, top: float) -> float:
    """Return a threshold in the file's units that some values are above, and others are not."""
    return max(1.0, low, (low + top) // 2)


def _exact(number: float) -> str:
    """Return a number with all of its digits, without ``.0``."""
    return repr(float(number)).removesuffix(".0")


def _refuse(tables: _Parts, flaw: Callable[[np.ndarray], np.ndarray], remedy: str, field: str) -> None:
    """Raise DataError for the first value with a flaw."""
    for where, table in tables.values():
        odd = flaw(table.values)
        if odd.any():
            row, column = np.argwhere(odd)[0]
            value = table.values[row, column]
            raise DataError(
                f"{where}: row {row + 1}, column {column + 1} is {_exact(value)}; {remedy}", field
            )
