"""The ends of axes: what they show of values, and what they leave out."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import AutoLocator, ScalarFormatter

from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.report.options import Limits, Options
from cbm_cli.results.cells import Floats, finite

Ends = tuple[float, float]
Name = TypeVar("Name", bound=Hashable)

_LEAST_SHARE = 0.5  # of a common axis that the values of each panel fill


def refuse_outside(
    axis: str, values: Sequence[Any], limits: Limits, place: str = ""
) -> None:
    """Raise CbmError without values, or if the ends of the x or the y axis leave out
    all of them.
    """
    numbers = np.concatenate([[], *map(np.ravel, values)])
    if not numbers.size:
        raise IncompleteError(f"{place} has no finite value to draw")
    low = np.nanmin(numbers, initial=np.inf)
    high = np.nanmax(numbers, initial=-np.inf)
    first, last = limits
    is_above = first is not None and first > high
    is_below = last is not None and last < low
    if is_above or is_below:
        raise CbmError(
            f"--{axis}lim: the values go from {low:g} to {high:g}; show some of that"
        )


def far_end(lines: Sequence[pd.Series], points: Floats, better: int) -> float | None:
    """Return where an axis ends before points that are far worse than others; None
    where it shows all.

    If curves that diverge, or untrained machines, would take more than half of the
    height, the axis ends beyond the worst beginning of lines by half of what is learned
    from there on, at least by a twentieth of it. The beginning is the better of a
    line's first two points. Half of all points are shown in any case.
    """
    if not lines:
        return None
    start = min((better * line).iloc[:2].max() for line in lines)
    best = max((better * line).max() for line in lines)
    beyond = max((best - start) / 2, abs(start) / 20)
    end = min(start - beyond, float(np.nanmedian(better * points)))
    if np.nanmin(better * points) < 2 * end - best:
        return better * end
    return None


def shared_ends(ends: Mapping[Name, Ends]) -> dict[Name, Ends]:
    """Return the ends of axes that are compared: the same ones, if the values of each
    fill at least half of the common axis.

    Examples
    --------
    >>> shared_ends({"digits": (-24.5, -19.0), "flipped": (-28.5, -19.5)})
    {'digits': (-28.5, -19.0), 'flipped': (-28.5, -19.0)}
    >>> shared_ends({"bars": (-80.0, -40.0), "shifting": (-28.0, -20.0)})
    {'bars': (-80.0, -40.0), 'shifting': (-28.0, -20.0)}
    """
    low = min((first for first, _ in ends.values()), default=0.0)
    high = max((last for _, last in ends.values()), default=0.0)
    least = _LEAST_SHARE * (high - low)
    if all(last - first >= least for first, last in ends.values()):
        return dict.fromkeys(ends, (low, high))
    return dict(ends)


def set_ends(
    axes: Axes, name: str, values: Floats, margin: float, options: Options
) -> None:
    """Set the ends of the x or the y axis to those of values, with a margin where they
    are not asked for.

    A logarithmic axis is linear around 0 if there are values up to it.
    """
    limits = np.array(getattr(options, f"{name}lim"), float)  # NaN: not asked for
    shown = np.fmin(np.fmax(finite(values), limits[0]), limits[1])
    low, high = shown.min(), shown.max()
    if name in options.log:
        _set_logarithmic(axes, name, shown)
    if low == high:  # a constant
        beyond = abs(low) / 10
        low, high = low - beyond, low + beyond or 1.0
    transform = getattr(axes, f"{name}axis").get_transform()
    first, last = transform.transform([low, high])
    space = margin * (last - first)
    free = transform.inverted().transform([first - space, last + space])
    set_limits = getattr(axes, f"set_{name}lim")
    set_limits(np.where(np.isnan(limits), free, limits))


def _set_logarithmic(axes: Axes, name: str, values: Floats) -> None:
    """Make an axis logarithmic, from its smallest value on if some are not positive."""
    axis = getattr(axes, f"{name}axis")
    set_scale = getattr(axes, f"set_{name}scale")
    smallest = np.abs(values[values != 0]).min(initial=np.inf)
    low, high = values.min(), values.max()
    if low > 0 or not np.isfinite(smallest):
        set_scale("log")
        return
    set_scale("symlog", linthresh=smallest)
    if high < 0 and low > -10 * smallest:  # none of its numbers is a power of ten
        axis.set_major_locator(AutoLocator())
        axis.set_major_formatter(ScalarFormatter())
