"""What becomes of the values of files and data frames: binary units, or probabilities in steps of 1/255."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbm_cli.arrays import check_size
from cbm_cli.datasets.columns import Columns
from cbm_cli.datasets.dataset import PARTS, Dataset
from cbm_cli.datasets.files import NOISE, Table, in_order, reading, table_of, tables_in, unpacked
from cbm_cli.datasets.published import own_file
from cbm_cli.datasets.spec import DataSpec
from cbm_cli.errors import FieldError


def read_own(spec: DataSpec, folder: str | Path = "", width: int = 0, names: tuple[str, ...] = ()) -> Dataset:
    """Return the data set of a user's files; rows of LIBSVM files are filled up to ``width``.

    Columns with names are put into the order of ``names``, where a machine has some.

    FieldError for files that are missing, damaged or of no known format, parts that differ in their columns,
    and grey values without `binarise` or on an unknown scale.
    """
    parts = read_parts(spec, spec.model_dump(), folder, width, names)
    units, levels = _units(spec, parts)
    train = parts["train"]
    rows: dict[str, Any] = units
    return Dataset(spec.unflipped, **rows, levels=levels, image=train.image, names=train.names)


def read_parts(
    spec: DataSpec,
    given: Mapping[str, Any],
    folder: str | Path = "",
    width: int = 0,
    names: tuple[str, ...] = (),
) -> dict[str, Table]:
    """Return the parts with the same columns: ``path``, ``valid`` and ``test`` of ``given``.

    These are files, of which the first may hold other parts too, or what `table_of` takes.
    """
    parts: dict[str, Table] = {}
    columns = Columns(spec.columns, spec.drop)
    for part, option in zip(PARTS, ("path", "valid", "test"), strict=True):
        source = given.get(option)
        if source is None:
            continue
        is_file = isinstance(source, str | PathLike)
        where = str(own_file(folder, str(source))) if is_file else f"data[{option!r}]"
        with reading(where, option):
            if is_file:
                found = tables_in(unpacked(Path(where)), columns, spec.header)
            else:
                found = {"": table_of(source, columns)}
            found = {name or part: table for name, table in found.items()}
            if part not in found:
                raise FieldError(f"has no {part} part; it has {', '.join(found)}")
            for name in found if part == "train" else [part]:
                if name in parts:
                    raise FieldError(f"the {name} part is in {parts[name].where} already; remove one of them")
                label = f"{where} ({name})" if len(found) > 1 else where
                parts[name] = replace(found[name], where=label)
    return _matched(parts, width, names)


def _matched(parts: dict[str, Table], width: int, names: tuple[str, ...]) -> dict[str, Table]:
    """Return parts with the columns of the first, matched by name; sparse ones are filled up with zeros."""
    width = max(width, *(part.values.shape[1] for part in parts.values()))
    for name, part in parts.items():
        missing = width - part.values.shape[1]
        if part.sparse and missing:
            with reading(part.where):
                check_size(len(part.values) * width * part.values.itemsize)
            values = np.pad(part.values, ((0, 0), (0, missing)))
            parts[name] = replace(part, values=values)
    train = parts["train"]
    for name, part in parts.items():
        with reading(part.where, name):
            if names and part.names:
                part = in_order(part, names, len(names), "the machine")
            parts[name] = in_order(part, names or train.names, train.values.shape[1], train.where)
    return parts


# Grey values


def binarised(
    parts: Mapping[str, NDArray], binarise: str, threshold: float, scale: float
) -> dict[str, NDArray]:
    """Return the grey values v of all parts as uint8.

    ``threshold``: on where v / scale > threshold. ``sample``: on with probability v / scale, drawn once, the
    same in every process. ``none``: v / scale in steps of 1/255.
    """
    rng = np.random.Generator(np.random.Philox(key=1))

    def units(values: NDArray) -> NDArray:
        in_bytes = values.dtype == np.uint8 and scale == 255
        if binarise == "none":
            return values if in_bytes else np.rint(values / scale * 255).astype(np.uint8)
        if binarise == "sample" and in_bytes:  # of 0 ... 254, v numbers are below v: exactly v / 255
            return (rng.integers(0, 255, values.shape, np.uint8) < values).view(np.uint8)
        if binarise == "sample":
            return (rng.random(values.shape) < values / scale).view(np.uint8)
        if values.dtype == np.uint8:
            return (values >= np.count_nonzero(np.arange(256) / scale <= threshold)).view(np.uint8)
        return (values / scale > threshold).view(np.uint8)

    return {part: units(values) for part, values in parts.items()}


def _units(spec: DataSpec, parts: Mapping[str, Table]) -> tuple[dict[str, NDArray], int]:
    """Return the units of all parts and the value that is surely on."""
    rows = {name: part.values for name, part in parts.items()}
    where, values = parts["train"].where, rows["train"]
    low = min(float(one.min()) for one in rows.values())
    top = max(float(one.max()) for one in rows.values())
    in_bytes = all(one.dtype == np.uint8 for one in rows.values())
    if in_bytes and top <= 1 and spec.scale in (None, 1) and spec.threshold < 1:
        return rows, 1
    end, between = _exact(top), _exact(max(1.0, low, (low + top) // 2))
    remedy = f"for values up to {end} write threshold: {between}, or scale: {end} and binarise: none"
    if low < -NOISE:
        remedy = (
            "threshold: 0 turns those above 0 on" if top > 0 else "add a number to all, no option does it"
        )
        remedy = f"for values of {_exact(low)} to {end}: {remedy}"
    elif top <= 1 + NOISE or (in_bytes and top > 127):
        remedy = "for grey values choose binarise: threshold, sample or none"
    if not spec.binarise:
        _refuse(parts, lambda v: np.abs(v - (v > 0.5)) > NOISE, f"expected 0 or 1; {remedy}", "binarise")
    binarise = spec.binarise or "threshold"
    scale = spec.scale or (1.0 if top <= 1 + NOISE else 255.0)
    if binarise == "threshold" and (spec.threshold >= 1 or spec.threshold == 0):
        scale = 1.0  # in the file's units
    elif not spec.scale and scale > 1 and not (in_bytes and (top > 127 or parts["train"].image)):
        told = f"{where}: values reach {end}, on an unknown scale; add scale: {end} (bytes: 255), or a "
        raise FieldError(f"{told}threshold in the file's units, such as threshold: {between}", "scale")
    else:
        room, told = NOISE * scale, f"values are 0 to {_exact(scale)}; {remedy}"
        _refuse(parts, lambda v: (v < -room) | (v > scale + room), told, "scale")
        rows = {name: v if v.dtype == np.uint8 else v.clip(0, scale) for name, v in rows.items()}
    units = binarised(rows, binarise, spec.threshold, scale)
    if (on := units["train"].max()) == units["train"].min() and values.min() < values.max():
        field = "threshold" if binarise == "threshold" else "binarise"
        told = f"{where}: {field} {getattr(spec, field)} turns all values, {values.min():g} to "
        told += f"{values.max():g}, into {on}; choose a threshold between them, in the file's units "
        raise FieldError(f"{told}(1 or more) or as a share of scale", field)
    return units, 255 if binarise == "none" else 1


def _exact(number: float) -> str:
    """Return a number with all of its digits, without ``.0``."""
    return repr(float(number)).removesuffix(".0")


def _refuse(parts: Mapping[str, Table], flaw: Callable[[NDArray], NDArray], remedy: str, field: str) -> None:
    """Raise FieldError for the first value with a flaw."""
    for part in parts.values():
        values = part.values
        if (odd := flaw(values)).any():
            row, column = np.argwhere(odd)[0]
            told = f"row {row + 1}, column {column + 1} is {_exact(values[row, column])}; {remedy}"
            raise FieldError(f"{part.where}: {told}", field)
