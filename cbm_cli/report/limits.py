"""The ends of y axes: diverging methods do not flatten the others, and what is compared has one scale."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli.report.chosen import Options

Values = NDArray[np.float64]
_SEEN = 0.01  # share of the evaluations: learning that takes more of them is not cut


class Ends(NamedTuple):
    """Ends of a y axis."""

    low: float
    high: float
    cut: str = ""  # where values beyond Tukey's fence are not shown: below or above, if any
    bound: float | None = None  # upper bound of the values

    @property
    def bounded(self) -> bool:
        """Whether the upper bound is within."""
        return self.bound is not None and self.low <= self.bound <= self.high

    @property
    def notes(self) -> list[str]:
        """The sentences of the caption."""
        notes = []
        if self.bound is not None and not self.bounded:
            notes.append(f"Upper bound, not shown: {self.bound:.4g}")
        if self.cut:
            notes.append(f"Values {self.cut} the axis are beyond 1.5 interquartile ranges from the quartiles")
        return notes


def shared(ends: Iterable[Ends]) -> Ends:
    """Return the ends of an axis that several panels have."""
    lows, highs, cuts, bounds = zip(*ends, strict=True)
    bound = next((it for it in bounds if it is not None), None)
    return Ends(min(lows), max(highs), max(cuts), bound if {*bounds} <= {None, bound} else None)


def y_ends(
    values: Values,
    bands: Values,
    better: int,
    options: Options,
    start: float = np.nan,
    bound: float | None = None,
) -> Ends:
    """Return the ends for values that are shown together, with the bands around them.

    Where this more than halves the range to show, the axis ends at the lower Tukey fence of the values (first
    quartile less 1.5 interquartile ranges), of costs (``better`` is -1) at the upper one; of records (0)
    everything is shown. ``start`` is the worst value before learning. An upper bound that would take more
    than a third of the height is not shown; bands end there, since no value of theirs is above it.
    """
    everything = np.concatenate([values, bands])
    low, high, cut = float(np.nanmin(everything)), float(np.nanmax(everything)), ""
    if bound is not None:
        high = min(high, max(bound, float(np.nanmax(values))))
    if better and options.ylim is not None:
        fence = better * _fence(better * values, better * start)
        inner = (fence, high) if better > 0 else (low, fence)
        if high - low > 2 * (inner[1] - inner[0]):
            (low, high), cut = inner, "below" if better > 0 else "above"
    if bound is not None and bound - high <= 0.5 * (high - low):
        high = max(high, bound)
    margin = 0.04 * (high - low) or 1.0
    low, high, (first, last) = low - margin, high + margin, options.ylim or (None, None)
    free = (first, last) == (None, None)
    return Ends(low if first is None else first, high if last is None else last, cut if free else "", bound)


def _fence(values: Values, start: float) -> float:
    """Return the lower Tukey fence where more is better; the start where learning is soon over."""
    first, third = np.nanquantile(values, [0.25, 0.75])
    fence = first - 1.5 * (third - first)
    lasts = (values < (start + fence) / 2).mean() > _SEEN  # not a jump at the first evaluation
    return min(fence, start) if lasts and first - fence < 0.1 * (np.nanmax(values) - start) else fence
