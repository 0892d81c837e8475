"""Grey values become binary units, or probabilities in steps of 1/255."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbm_cli.datasets.formats import NOISE, Table
from cbm_cli.datasets.spec import DataSpec
from cbm_cli.errors import FieldError
from cbm_cli.text import text_of


def _binarised(
    parts: Mapping[str, NDArray], spec: DataSpec, scale: float
) -> dict[str, NDArray]:
    """Return the grey values v of all parts as uint8.

    ``threshold``, the default: on where v / scale > threshold. ``sample``: on with
    probability v / scale, drawn once, the same in every process. ``none``: v / scale in
    steps of 1/255.
    """
    rng = np.random.Generator(np.random.Philox(key=1))

    def units(values: NDArray) -> NDArray:
        in_bytes = values.dtype == np.uint8 and scale == 255
        if spec.binarise == "none":
            return (
                values if in_bytes else np.rint(values / scale * 255).astype(np.uint8)
            )
        if (
            spec.binarise == "sample" and in_bytes
        ):  # of 0 ... 254, v numbers are below v: exactly v / 255
            return (rng.integers(0, 255, values.shape, np.uint8) < values).view(
                np.uint8
            )
        if spec.binarise == "sample":
            return (rng.random(values.shape) < values / scale).view(np.uint8)
        if values.dtype == np.uint8:
            # compared in 12 digits, which the threshold has
            low = sum(float(text_of(v / scale)) <= spec.threshold for v in range(256))
            return (values >= low).view(np.uint8)
        return (values / scale > spec.threshold).view(np.uint8)

    return {part: units(values) for part, values in parts.items()}


def units_of(spec: DataSpec, parts: Mapping[str, Table]) -> tuple[dict[str, Any], int]:
    """Return the units of all parts and the value that is surely on."""
    rows = {name: part.values for name, part in parts.items()}
    low = min(float(one.min()) for one in rows.values())
    top = max(float(one.max()) for one in rows.values())
    in_bytes = all(one.dtype == np.uint8 for one in rows.values())
    if in_bytes and top <= 1 and spec.scale in (None, 1) and spec.threshold < 1:
        return rows, 1
    end, positive = _exact(top), low >= -NOISE
    between = _exact(max(1.0, low, (low + top) // 2) if positive else 0)
    more = f", or scale: {end} and binarise: none" if positive else ""
    remedy = f"for values of {_exact(low)} to {end} write threshold: {between}{more}"
    remedy = (
        remedy if top > 0 else "add a number to all values, so that some are above 0"
    )
    if positive and (top <= 1 + NOISE or (in_bytes and top > 127)):
        remedy = "for grey values choose binarise: threshold, sample or none"
    if not spec.binarise:
        _refuse(
            parts,
            lambda v: np.abs(v - (v > 0.5)) > NOISE,
            f"expected 0 or 1; {remedy}",
            "binarise",
        )
    scale = spec.scale or (1.0 if top <= 1 + NOISE else 255.0)
    if spec.binarise in (None, "threshold") and (
        spec.threshold >= 1 or spec.threshold == 0
    ):
        scale = 1.0  # in the file's units
    elif (
        not spec.scale
        and scale > 1
        and not (in_bytes and (top > 127 or parts["train"].image))
    ):
        told = (
            f"values reach {end}, on an unknown scale; add scale: {end} (bytes: "
            "255), or a threshold"
        )
        raise FieldError(
            f"{parts['train'].where}: {told} in the file's units: threshold: {between}",
            "scale",
        )
    else:
        slack, told = NOISE * scale, f"values are 0 to {_exact(scale)}; {remedy}"
        _refuse(parts, lambda v: (v < -slack) | (v > scale + slack), told, "scale")
        rows = {
            name: v if v.dtype == np.uint8 else v.clip(0, scale)
            for name, v in rows.items()
        }
    return _binarised(rows, spec, scale), 255 if spec.binarise == "none" else 1


def _exact(number: float) -> str:
    """Return a number with all of its digits, without ``.0``."""
    return repr(float(number)).removesuffix(".0")


def _refuse(
    parts: Mapping[str, Table],
    flaw: Callable[[NDArray], NDArray],
    remedy: str,
    field: str,
) -> None:
    """Raise FieldError for the first value with a flaw."""
    for part in parts.values():
        values = part.values
        if (odd := flaw(values)).any():
            row, column = np.argwhere(odd)[0]
            told = (
                f"row {row + 1}, column {column + 1} is "
                f"{_exact(values[row, column])}; {remedy}"
            )
            raise FieldError(f"{part.where}: {told}", field)
