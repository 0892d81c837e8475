"""Grey values become binary units, or probabilities in steps of 1/255."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli.datasets.spec import Data
from cbm_cli.datasets.tables import NOISE, Table
from cbm_cli.errors import FieldError
from cbm_cli.text import text_of

_BYTE = 255.0  # scale of bytes
_DARK = 127  # bytes that reach no more may be on another scale


class Units(NamedTuple):
    """The units of all parts."""

    parts: dict[str, Any]  # arrays of uint8
    levels: int  # the value that is surely on
    of_bytes: bool = False  # whether 255 was taken for the scale of the file


def units_of(spec: Data, parts: Mapping[str, Table]) -> Units:
    """Return the units of all parts.

    FieldError for values that are neither 0 nor 1, if the grid has no rule that makes
    them units, and for values on an unknown scale.

    Examples
    --------
    >>> table = Table(np.array([[0.0, 0.7]]))
    >>> spec = Data(path="rows.npy", binarise="threshold")
    >>> units_of(spec, {"train": table}).parts["train"].tolist()
    [[0, 1]]
    """
    tables = parts.values()
    low = min(float(part.values.min()) for part in tables)
    top = max(float(part.values.max()) for part in tables)
    whole = all(part.values.dtype == np.uint8 for part in tables)
    remedy = _remedy(low, top)
    rows = {name: part.values for name, part in parts.items()}
    binary = whole and top <= 1 and spec.scale in (None, 1)
    if binary and spec.threshold < 1:
        return Units(rows, levels=1)
    if not spec.binarise:
        for part in tables:
            odd = np.abs(part.values - (part.values > 0.5)) > NOISE
            _refuse(part, odd, remedy, "binarise")
    scale = 1.0
    by_share = spec.threshold > 0 and spec.threshold < 1
    if by_share or spec.binarise in ("sample", "none"):
        train = parts["train"]
        pictures = train.image and all(part.is_bytes for part in tables)
        if spec.scale:
            scale = spec.scale
        elif top > 1 + NOISE:
            if not whole or (top <= _DARK and not pictures):
                message = f"{train.where}: values have no known scale; {remedy}"
                raise FieldError(message, "scale")
            scale = _BYTE
        slack = NOISE * scale
        beyond = f"beyond the scale of 0 to {_exact(scale)}; {remedy}"
        for part in tables:
            off = (part.values < -slack) | (part.values > scale + slack)
            _refuse(part, off, beyond, "scale")
        if not whole:
            rows = {name: values.clip(0, scale) for name, values in rows.items()}
    random = np.random.Generator(np.random.Philox(key=1))
    units = {name: _binarised(rows[name], spec, scale, random) for name in rows}
    levels = 255 if spec.binarise == "none" else 1
    return Units(units, levels, of_bytes=scale == _BYTE and not spec.scale)


def _remedy(low: float, top: float) -> str:
    """Advice for values from low to top, which are not all 0 or 1."""
    cause = f"values are {_exact(low)} to {_exact(top)}"
    if low < -NOISE:
        return f"{cause}; write threshold: 0"
    between = 0.5  # some values are above it, others below
    if top > 1:
        between = max(1.0, low, (low + top) // 2)
    return (
        f"{cause}; for grey values write binarise: threshold, sample or none, with "
        f"scale: {_exact(top)} if theirs is neither 1 nor 255; for others threshold: "
        f"{_exact(between)}"
    )


def _binarised(
    values: NDArray, spec: Data, scale: float, random: np.random.Generator
) -> NDArray:
    """Return grey values v as uint8.

    ``threshold``, the default: on where v / scale > threshold. ``sample``: on with
    probability v / scale, drawn once, the same in every process. ``none``: v / scale in
    steps of 1/255.
    """
    in_bytes = values.dtype == np.uint8 and scale == _BYTE
    if spec.binarise == "none":
        if in_bytes:
            return values
        return np.rint(values / scale * 255).astype(np.uint8)
    if spec.binarise == "sample" and in_bytes:
        # of 0 ... 254, v numbers are below v: exactly v / 255
        on = random.integers(0, 255, values.shape, np.uint8) < values
    elif spec.binarise == "sample":
        on = random.random(values.shape) < values / scale
    elif values.dtype == np.uint8:
        # compared in 12 digits, which the threshold has
        shares = [float(text_of(v / scale)) for v in range(256)]
        on = values >= sum(share <= spec.threshold for share in shares)
    else:
        on = values / scale > spec.threshold
    return on.view(np.uint8)


def _exact(number: float) -> str:
    """Return a number with all of its digits, without ``.0``."""
    return repr(float(number)).removesuffix(".0")


def _refuse(part: Table, odd: NDArray, remedy: str, field: str) -> None:
    """Raise FieldError for the first value with a flaw."""
    if odd.any():
        row, column = np.argwhere(odd)[0]
        place, value = f"row {row + 1}, column {column + 1}", part.values[row, column]
        raise FieldError(f"{part.where}: {place} is {_exact(value)}; {remedy}", field)
