"""Learning curves of methods, one panel per sampler, data set or other setting."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, MaxNLocator

from cbm_cli.report.chosen import Options, choose
from cbm_cli.report.panels import Drawing, Panel
from cbm_cli.report.series import Curve, Curves, band_of, read_curves, x_of
from cbm_cli.report.style import BOUND, Look, in_words, looks_of, named, plain_axes
from cbm_cli.results import Metric, Results
from cbm_cli.results.selection import Key
from cbm_cli.text import count

MARKS = 6  # markers of a line
_SEEN = 0.01  # share of the evaluations: learning that takes more of them is not cut
_BANDS: dict[str | None, str] = {
    "quartiles": "; band: quartiles over trials",
    "std": "; band: standard deviation over trials",
    "sem": "; band: standard error of the mean",
    "trials": "; thin lines: trials",
}


def curves_drawing(
    results: Results, experiments: Sequence[str], options: Options, preset: str | None = None
) -> Drawing:
    """Draw learning curves with a band over trials.

    Lines are the schemes, or what else the table has in its columns; every other setting that varies makes
    panels, and so does every data set. The line is the median and the band spans the quartiles over trials;
    for records it is the mean ± a standard deviation. So that a diverging method does not flatten the others,
    the y axis of all panels of a data set ends at the lower Tukey fence of its curves (first quartile less
    1.5 interquartile ranges), for costs at the upper one, where this more than halves the range to show; the
    caption then says so. Records are shown whole.
    """
    chosen = choose(results, experiments, options)
    drawn = read_curves(chosen, options, preset)
    band = band_of(options, [curve.metric for curve in drawn.curves])
    options = replace(options, band=band, x=x_of(options, chosen.settings))
    groups: dict[Key, list[Curve]] = {}
    for curve in drawn.curves:
        groups.setdefault(_group(drawn, curve), []).append(curve)
    limits = {group: y_ends(curves, options) for group, curves in groups.items()}
    looks = looks_of(list(dict.fromkeys(curve.key for curve in drawn.curves)), drawn.lines)
    panels = []
    for key in dict.fromkeys(curve.panel for curve in drawn.curves):
        curves = [curve for curve in drawn.curves if curve.panel == key]
        its = limits[_group(drawn, curves[0])]
        settings = zip(drawn.panels, key, strict=True)
        title = (options.title,) if options.title else tuple(named(*s) for s in settings if s[0] != "metric")
        draw, x = partial(_draw, curves, looks, its, options), str(options.x).replace("-", " ")
        panels.append(Panel(draw, key, title, x, measure_of(drawn, [c.metric for c in curves]), its[:2]))
    names = {name: looks[key] for key, name in _names_of_lines(drawn).items()}
    if any(its.bounded for its in limits.values()):
        names["upper bound"] = BOUND
    return Drawing(panels, names, [*_notes(drawn.curves, [*limits.values()], options), *chosen.notes])


def _names_of_lines(drawn: Curves) -> dict[Key, str]:
    """Return the names of lines for the legend; metrics without the words that all of them share."""
    shared = _shared_words(curve.metric for curve in drawn.curves)

    def own_words(column: str, value: str) -> str:
        words = named(column, value)
        if column != "metric":
            return words
        return " ".join(word for word in words.split() if word not in shared).rstrip(":") or words

    keys = dict.fromkeys(curve.key for curve in drawn.curves)
    return {key: ", ".join(filter(None, map(own_words, drawn.lines, key))) for key in keys}


def _group(drawn: Curves, curve: Curve) -> Key:
    """Panels of one data set and one metric have the same y axis."""
    settings = zip(drawn.panels, curve.panel, strict=True)
    return tuple(value for column, value in settings if column in ("data", "metric"))


class Ends(NamedTuple):
    """Ends of a y axis."""

    low: float
    high: float
    cut: str  # where values beyond Tukey's fence are not shown: below or above, if any
    bounded: bool  # the upper bound is within
    bound: float | None


def y_ends(curves: Sequence[Curve], options: Options) -> Ends:
    """Return the ends for all curves of a data set; cut where this more than halves the range to show.

    An upper bound that would take more than a third of the height is not shown.
    """
    kind = band_of(options, [curve.metric for curve in curves])
    lines, bands = ([getattr(curve, what)(kind) for curve in curves] for what in ("line", "band"))
    values = pd.concat(lines)
    lowest, highest = (
        min(values.min(), *(b.min() for b, _ in bands)),
        max(values.max(), *(b.max() for _, b in bands)),
    )
    sign = curves[0].metric.better
    fence = sign * _fence(sign * values, min(sign * line.iloc[0] for line in lines))
    fences = {1: (fence, highest, "below"), -1: (lowest, fence, "above")}
    low, high, cut = fences.get(sign, (lowest, highest, ""))
    if options.ylim is None or highest - lowest <= 2 * (high - low):
        low, high, cut = lowest, highest, ""
    bounds = {curve.bound for curve in curves}
    bound = bounds.pop() if len(bounds) == 1 else None
    bounded = bound is not None and bound - high <= 0.5 * (high - low)
    high = max(high, bound) if bounded else high
    margin = 0.04 * (high - low) or 1.0
    ends = Ends(low - margin, high + margin, cut, bounded, bound)
    asked = options.ylim or (None, None)
    if asked != (None, None):
        low, high = ends.low if asked[0] is None else asked[0], ends.high if asked[1] is None else asked[1]
        ends = Ends(low, high, "", bound is not None and low <= bound <= high, bound)
    return ends


def _fence(values: pd.Series, start: float) -> float:
    """Return the lower Tukey fence where more is better; the start where learning is soon over."""
    first, third = values.quantile([0.25, 0.75])
    fence = first - 1.5 * (third - first)
    lasts = (values < (start + fence) / 2).mean() > _SEEN  # not a jump at the first evaluation
    return min(fence, start) if lasts and first - fence < 0.1 * (values.max() - start) else fence


def measure_of(drawn: Curves, metrics: Sequence[Metric]) -> str:
    """Return the y axis in words, with its unit or scale."""
    angles = metrics[0].column.startswith("angle_")
    unit = "degrees" if angles else metrics[0].unit(drawn.scale)
    return " ".join(_shared_words(metrics)) + f" ({unit})" * bool(unit)


def _shared_words(metrics: Iterable[Metric]) -> list[str]:
    """Return what the names of metrics have in common; a single one has all of its words."""
    names = [in_words(column).split() for column in dict.fromkeys(metric.column for metric in metrics)]
    return [word for word in names[0] if all(word in name for name in names)]


def _draw(
    curves: Sequence[Curve], looks: Mapping[Key, Look], ends: Ends, options: Options, axes: Axes
) -> None:
    first, last = (f(curve.trials.index[i] for curve in curves) for f, i in ((min, 0), (max, -1)))
    low, high = (
        end if asked is None else asked for asked, end in zip(options.xlim, (first, last), strict=True)
    )
    for place, curve in enumerate(curves):
        look, line, x = looks[curve.key], curve.line(options.band), curve.trials.index
        if options.band == "trials":
            axes.plot(curve.trials, color=look["color"], linewidth=0.5, alpha=0.4)
        elif options.band != "none":
            axes.fill_between(x, *curve.band(options.band), color=look["color"], alpha=0.18, linewidth=0)
        marks = places_of_marks(x.to_numpy(float), (place + 0.5) / len(curves), options.xlog)
        # Of lines that hide each other the first are wider, and the gaps of dashes lie elsewhere.
        width = 1.2 + 0.8 * (len(curves) - place - 1) / len(curves)
        dashes = look["linestyle"] if look["linestyle"] == "-" else (3.5 * place, look["linestyle"][1])
        axes.plot(line, color=look["color"], linestyle=dashes, linewidth=width)
        # Markers lie above all lines, with an edge: in grey they alone tell noisy lines apart.
        edge, size = ("white", 7) if look["markerfacecolor"] == look["color"] else (look["color"], 5)
        mark = look | {"linestyle": "", "markeredgecolor": edge, "markersize": size}
        axes.plot(line.iloc[marks], **mark, markeredgewidth=1.0, zorder=3)
    if ends.bounded and ends.bound is not None:
        axes.axhline(ends.bound, **BOUND)
    axes.set_ylim(ends.low, ends.high)
    if options.xlog:
        axes.set_xscale("log")
        low = max(low, min(curve.trials.index[curve.trials.index > 0].min() for curve in curves))
    else:
        low = 0 if low >= 0 and options.xlim[0] is None and low < 0.5 * high else low
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlim(*((low, high) if low < high else (low - 0.5, low + 0.5)))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    plain_axes(axes)


def places_of_marks(x: np.ndarray, shift: float, log: bool) -> list[int]:
    """Return points for markers, evenly along the axis; lines with other shifts have theirs beside.

    The ends have none, where the axis would cut them.
    """
    x = np.log(np.maximum(x, x[x > 0].min())) if log and (x > 0).any() else x
    wanted = x[0] + (np.arange(MARKS) + shift) / MARKS * (x[-1] - x[0])
    first, last = (1, len(x) - 2) if len(x) > 2 else (0, len(x) - 1)
    return np.unique(np.searchsorted(x, wanted).clip(first, last)).tolist()


def _notes(curves: Sequence[Curve], limits: Sequence[Ends], options: Options) -> list[str]:
    """Return the sentences of the caption."""
    counts = sorted({curve.trials.shape[1] for curve in curves})
    few = f"{counts[0]} to " if len(counts) > 1 else ""
    line = "median" if options.band == "quartiles" else "mean"
    notes = [f"line: {line} over {few}{count(counts[-1], 'trial')}{_BANDS.get(options.band, '')}"]
    if options.trial is not None:
        notes = [f"trial {options.trial} alone"]
    elif counts == [1]:
        notes = ["a single trial"]
    metrics = {curve.metric for curve in curves}  # a trial has a curve of each
    diverged, gaps, stopped = (
        max(sum(getattr(curve, name) for curve in curves if curve.metric == metric) for metric in metrics)
        for name in ("diverged", "gaps", "stopped")
    )
    estimates, doubtful = (sum(getattr(c, name) for c in curves) for name in ("estimates", "doubtful"))
    if options.smooth > 1:
        notes.append(f"running mean over {count(options.smooth, 'update')}")
    if options.x == "seconds":
        notes.append("seconds: mean time of the trials, spread evenly over the updates")
    if diverged:
        notes.append(f"{diverged} diverged, from there on left out")
    if gaps:
        notes.append(f"{count(gaps, 'trial')} without a value at some updates, left out there")
    if stopped:
        notes.append(f"{stopped} stopped before the others, held at the last value")
    if doubtful:
        notes.append(f"AIS: {doubtful:,} of {estimates:,} estimates rest on fewer than a tenth of its runs")
    if any(curve.unjudged for curve in curves):
        notes.append(f"AIS: effective runs {'of some trials ' if estimates else ''}not kept")
    bounds = [f"{ends.bound:.4g}" for ends in limits if ends.bound is not None and not ends.bounded]
    if bounds:
        each = ", ".join(bounds if len({*bounds}) > 1 else bounds[:1])  # in the order of the panels
        notes.append(f"upper bound, not shown: {each}")
    cut = next((ends.cut for ends in limits if ends.cut), "")
    far = f"y axis cut: outliers {cut} are not shown (more than 1.5 interquartile ranges from the quartiles)"
    return [*notes, *([far] if cut else [])]
