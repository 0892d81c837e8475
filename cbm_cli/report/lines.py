"""Lines over trials with bands or bars, in panels: how learning curves, records and
settings are drawn.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter
from matplotlib.transforms import ScaledTranslation

from cbm_cli.report.ends import Ends, far_end, refuse_outside, set_ends, shared_ends
from cbm_cli.report.options import FREE, Options
from cbm_cli.report.panels import Panel
from cbm_cli.report.style import BOUND, Look, in_words, looks_of, named, names_of
from cbm_cli.results import Metric
from cbm_cli.results.columns import Key
from cbm_cli.text import count

_MARKS = 6  # markers of a line
# by AIS; of a line of more not each has a marker, which says whether it is reliable
_ESTIMATES = 40
_MOST_BANDS = 4  # of a panel; more would be mud, and are drawn as bars
_MOST_TICKS = 8  # numbers along an axis of settings
_APART = 2.5 / 72  # inches between the points of lines at one setting
_DASH_SHIFT = 3.5  # points between the dashes of lines that hide each other
_SHORT = ("offsets", "sampler", "learning_rate", "metric")  # what names a line
_AVERAGES = {"median": ("Median", "quartiles"), "mean": ("Mean", "standard deviation")}
_TEXTS = {
    "diverged": "{diverged} diverged, from there on left out",
    "gaps": "{gaps} without a value at some updates, left out there",
    "stopped": "{stopped} stopped before the others, held at the last value",
    "doubtful": (
        "Open markers: doubtful estimates by AIS, with an effective sample size below "
        "a tenth of the runs ({doubtful:,} of {estimates:,})"
    ),
    "disproved": (
        "{disproved:,} of these are disproved, and drawn at the most that known states "
        "allow"
    ),
}
_COUNTS = (*_TEXTS, "estimates")


@dataclass(frozen=True)
class Curve:
    """One method in one panel.

    Attributes
    ----------
    key, panel : tuple of str
        Values of the columns that tell lines apart, and panels.
    data : str
        Title of the data set.
    metric : Metric
        What it shows.
    trials : DataFrame
        Points by trials, indexed by the x axis; likelihoods and costs in the table's
        scale. A trial that stopped early keeps its last value, one that diverged has
        none from there on.
    doubt : Series
        Share of the trials whose estimate is doubtful at each evaluation; these alone
        have markers.
    counts : mapping of str to int
        Trials that diverged, have gaps or stopped before others; estimates by AIS,
        those of too few effective runs (doubtful), and those that known states
        disprove.
    bound : float, optional
        Upper bound in the same scale.
    choice : str
        Values that were chosen for it, in words.
    start : Series, optional
        The first two points of its line, shown or not.
    """

    key: Key
    panel: Key
    data: str
    metric: Metric
    trials: pd.DataFrame
    doubt: pd.Series
    counts: Mapping[str, int] = field(default_factory=dict)
    bound: float | None = None
    choice: str = ""
    start: pd.Series | None = None


@dataclass(frozen=True)
class Curves:
    """Everything that the panels show."""

    curves: list[Curve]
    lines: Sequence[str]  # columns whose values name the lines
    panels: Sequence[str]
    scale: str
    xlabel: str
    notes: Sequence[str]  # on values of settings that were chosen
    points: bool = False  # a value of each setting, not of each update


@dataclass(frozen=True)
class _Range:
    """The values that the y axis of a panel shows, and notes on them."""

    ends: Ends
    bound: float | None
    notes: Sequence[str]


def summarised(trials: pd.DataFrame, average: str) -> pd.DataFrame:
    """Return a line over trials (points, trials) and the ends of its band, as low, line
    and high.

    The ``median`` lies between quartiles, the ``mean`` between mean ± a standard
    deviation.
    """
    if average == "mean":
        line = trials.mean(axis=1)
        half = trials.std(axis=1).fillna(0)  # of a single trial
        return pd.DataFrame({"low": line - half, "line": line, "high": line + half})
    quartiles = trials.quantile([0.25, 0.5, 0.75], axis=1).T
    return quartiles.set_axis(["low", "line", "high"], axis=1)


def line_panels(drawn: Curves, options: Options) -> list[Panel]:
    """Return the panels of curves, in which every line looks the same everywhere.

    All panels of a data set and its metrics have one y axis; panels of several data
    sets, too, where that flattens none of them.
    """
    refuse_outside("y", [curve.trials for curve in drawn.curves], options.ylim)
    looks = looks_of([curve.key for curve in drawn.curves], drawn.lines)
    groups: dict[Key, list[Curve]] = {}
    for curve in drawn.curves:
        groups.setdefault(curve.panel, []).append(curve)
    ranges = _ranges(drawn, list(groups.values()), options)
    panels = []
    for key, curves in groups.items():
        shown = ranges[_scale_of(curves)]
        names = _legend(drawn, curves, looks)
        if shown.bound is not None:
            names["upper bound"] = BOUND
        panels.append(
            Panel(
                draw=partial(
                    _draw,
                    drawn=drawn,
                    curves=curves,
                    looks=looks,
                    shown=shown,
                    options=options,
                ),
                key=key,
                title=names_of(drawn.panels, key),
                xlabel=drawn.xlabel,
                ylabel=_ylabel(drawn, curves),
                scale=tuple(f"{end:g}" for end in shown.ends),
                looks=names,
                notes=[*_notes(drawn, curves, options), *shown.notes],
            )
        )
    return panels


# Names


def _ylabel(drawn: Curves, curves: Sequence[Curve]) -> str:
    """Return what the curves of a panel show, with its unit."""
    words = " ".join(_shared_words(curve.metric for curve in curves))
    metric = curves[0].metric
    unit = metric.unit(drawn.scale)
    if metric.column.startswith("angle_"):
        unit = "degrees"
    return f"{words} ({unit})" if unit else words


def _legend(
    drawn: Curves, curves: Sequence[Curve], looks: Mapping[Key, Look]
) -> dict[str, Look]:
    """Return the looks of lines by name: scheme, sampler and rate, and others where
    these are alike.

    Metrics are named without the words that all of them share. The chosen values of a
    line follow its name.
    """
    keys = {curve.key for curve in drawn.curves}
    alike = Counter(_short_key(drawn, key) for key in keys)
    shared = _shared_words(curve.metric for curve in drawn.curves)
    legend = {}
    for curve in curves:
        short = _short_key(drawn, curve.key)
        is_short_enough = bool(short) and alike[short] == 1
        parts = []
        for column, setting in zip(drawn.lines, curve.key, strict=True):
            if is_short_enough and column not in _SHORT:
                continue
            name = named(column, setting)
            if column == "metric":
                remaining = [word for word in name.split() if word not in shared]
                name = " ".join(remaining).rstrip(":") or name
            parts.append(name)
        words = ", ".join(filter(None, parts))
        if curve.choice:
            words += f" ({curve.choice})"
        legend[words] = looks[curve.key]
    return legend


def _short_key(drawn: Curves, key: Key) -> Key:
    """Return the values of the settings that usually name a line."""
    pairs = zip(drawn.lines, key, strict=True)
    return tuple(setting for column, setting in pairs if column in _SHORT)


def _shared_words(metrics: Iterable[Metric]) -> list[str]:
    """Return what the names of metrics have in common; a single one has all of its
    words.
    """
    columns = dict.fromkeys(metric.column for metric in metrics)
    first, *more = [in_words(column).split() for column in columns]
    return [word for word in first if all(word in name for name in more)]


# The y axis


def _scale_of(curves: Sequence[Curve]) -> Key:
    """Return the data set and the metrics of a panel: what its y axis depends on."""
    columns = dict.fromkeys(curve.metric.column for curve in curves)
    return (curves[0].data, *columns)


def _ranges(
    drawn: Curves, groups: Sequence[Sequence[Curve]], options: Options
) -> dict[Key, _Range]:
    """Return what the y axes of panels show, by data set and metrics."""
    ranges = {}
    for scale in dict.fromkeys(map(_scale_of, groups)):
        curves = [
            curve
            for curve in drawn.curves
            if curve.data == scale[0] and curve.metric.column in scale[1:]
        ]
        ranges[scale] = _range_of(drawn, curves, options)
    if options.ylim != FREE or "y" in options.log:
        return ranges
    ends: dict[Key, dict[Key, Ends]] = {}  # by metrics
    for scale, shown in ranges.items():
        ends.setdefault(scale[1:], {})[scale] = shown.ends
    for compared in ends.values():
        for scale, common in shared_ends(compared).items():
            ranges[scale] = replace(ranges[scale], ends=common)
    return ranges


def _range_of(drawn: Curves, curves: Sequence[Curve], options: Options) -> _Range:
    """Return what the y axis of some curves shows.

    What diverges does not flatten the others, see `far_end`. A bound takes at most a
    third of the height.
    """
    tables = [summarised(curve.trials, options.average) for curve in curves]
    values = pd.concat(tables)
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    better = curves[0].metric.better
    notes = []
    end = None
    if better and not drawn.points and options.ylim == FREE:
        lines = []
        for curve, table in zip(curves, tables, strict=True):
            lines.append(pd.concat([curve.start, table["line"]]))
        end = far_end(lines, values.to_numpy(), better)
    if end is not None and better > 0:
        low = end
        notes.append("Values far below the first ones are not shown")
    elif end is not None:
        high = end
        notes.append("Values far above the first ones are not shown")
    first, last = options.ylim
    low = low if first is None else first
    high = high if last is None else last
    bounds = {curve.bound for curve in curves}
    bound = bounds.pop() if len(bounds) == 1 else None
    if bound is not None:
        highest = high + (high - low) / 2 if last is None else high
        if low <= bound <= highest:
            notes.append(f"Upper bound: {bound:.4g}")
            high = max(values["line"].max(), bound)
        else:
            notes.append(f"Upper bound, not shown: {bound:.4g}")
            bound = None
    return _Range(ends=(low, high), bound=bound, notes=notes)


# Drawing


def _draw(
    axes: Axes,
    *,
    drawn: Curves,
    curves: Sequence[Curve],
    looks: Mapping[Key, Look],
    shown: _Range,
    options: Options,
) -> None:
    """Draw the curves of a panel."""
    for place, curve in enumerate(curves):
        table = summarised(curve.trials, options.average)
        table = _without_start(table, shown.ends)
        shift = (place + 0.5) / len(curves)
        marked = _marked(drawn, curve, table, shift)
        look = looks[curve.key]
        aside = 0.0
        if drawn.points:  # points lie next to each other
            aside = (place - (len(curves) - 1) / 2) * _APART
        figure = axes.get_figure(root=True)
        assert figure is not None
        beside = ScaledTranslation(aside, 0, figure.dpi_scale_trans)
        shifted = axes.transData + beside
        if _has_bars(drawn, curves):
            axes.vlines(
                marked.index,
                marked["low"],
                marked["high"],
                color=look["color"],
                linewidth=0.8,
                transform=shifted,
            )
        elif curve.trials.shape[1] > 1:
            axes.fill_between(
                table.index,
                table["low"],
                table["high"],
                color=look["color"],
                alpha=0.18,
                linewidth=0,
            )
        style = look | {
            "linewidth": 1.0 + 0.6 * (len(curves) - place - 1) / len(curves),
            "transform": shifted,
        }  # of lines that hide each other the first are wider
        if look["linestyle"] != "-":  # and their gaps lie apart
            _, lengths = look["linestyle"]
            style["linestyle"] = (_DASH_SHIFT * place, lengths)
        axes.plot(table["line"], **style | {"marker": ""})
        is_doubtful = curve.doubt[marked.index] >= 0.5
        for face, is_drawn in ((look["color"], ~is_doubtful), ("white", is_doubtful)):
            marks = {"linestyle": "", "markerfacecolor": face, "zorder": 3}
            axes.plot(marked["line"][is_drawn], **style | marks)
    if shown.bound is not None:
        axes.axhline(shown.bound, **BOUND)
    _set_x_axis(axes, drawn, options)
    trials = [curve.trials.to_numpy().ravel() for curve in drawn.curves]
    low, high = shown.ends
    values = np.concatenate(trials).clip(low, high)
    values = np.append(values, shown.ends)
    set_ends(axes, "y", values, margin=0.04, options=options)


def _without_start(table: pd.DataFrame, ends: Ends) -> pd.DataFrame:
    """Return a line without an untrained machine that is farther from the axis than the
    axis is high: its stroke along the y axis would look like one.
    """
    low, high = ends
    first = table["line"].iloc[0]
    beyond = max(low - first, first - high)
    return table.iloc[1:] if beyond > high - low else table


def _marked(
    drawn: Curves, curve: Curve, table: pd.DataFrame, shift: float
) -> pd.DataFrame:
    """Return a line, with its band, at the evaluations that have markers.

    If evaluations are few, or estimates, each has a marker. Other lines have some at
    about regular places, which another ``shift`` moves, so that lines which hide each
    other show theirs in turn.
    """
    evaluated = table.loc[table.index.isin(curve.doubt.index)]
    most = _ESTIMATES if curve.counts.get("estimates") else 2 * _MARKS
    if drawn.points or len(evaluated) <= most:
        return evaluated
    first, last = evaluated.index[[0, -1]]
    places = first + (np.arange(_MARKS) + shift) / _MARKS * (last - first)
    nearest = evaluated.index.get_indexer(places, method="nearest")
    return evaluated.iloc[np.unique(nearest)]


def _has_bars(drawn: Curves, curves: Sequence[Curve]) -> bool:
    """Whether spread is drawn as bars at the markers, instead of a band."""
    has_spread = any(curve.trials.shape[1] > 1 for curve in curves)
    return has_spread and (drawn.points or len(curves) > _MOST_BANDS)


def _set_x_axis(axes: Axes, drawn: Curves, options: Options) -> None:
    """Set the ends and the numbers of the x axis; an axis from 0 begins at the y
    axis.
    """
    is_log = "x" in options.log
    values = np.unique(np.concatenate([curve.trials.index for curve in drawn.curves]))
    if not (drawn.points or is_log) and 0 <= values[0] < 0.5 * values[-1]:
        values = np.append(0.0, values)
    margin = 0.08 if drawn.points else 0.02
    set_ends(axes, "x", values, margin=margin, options=options)
    first, last = axes.get_xlim()
    inside = values[(first <= values) & (values <= last)]
    if drawn.points and 0 < len(inside) <= _MOST_TICKS:
        axes.set_xticks(inside, [f"{setting:g}" for setting in inside])
        axes.set_xticks([], minor=True)
    elif not is_log:
        axes.locator_params("x", nbins=5, steps=[1, 2, 5, 10])
        if not drawn.points:
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))


# The caption


def _notes(drawn: Curves, curves: Sequence[Curve], options: Options) -> list[str]:
    """Return the sentences of the caption."""
    notes = [_spread_note(drawn, curves, options)]
    if options.smooth > 1:
        notes.append(f"Running mean over {count(options.smooth, 'update')}")
    if options.x == "seconds":
        notes.append("Seconds: mean time of the trials, spread evenly over the updates")
    counts = pd.DataFrame([curve.counts for curve in curves], columns=_COUNTS)
    # A trial has a curve of each metric
    columns = [curve.metric.column for curve in curves]
    totals = counts.groupby(np.array(columns)).sum().max().astype(int)
    for name, text in _TEXTS.items():
        if totals[name]:
            notes.append(text.format_map(totals))
    return [*notes, *drawn.notes]


def _spread_note(drawn: Curves, curves: Sequence[Curve], options: Options) -> str:
    """Say what lines and bands are, and of how many trials."""
    numbers = sorted({curve.trials.shape[1] for curve in curves})
    if numbers == [1]:
        return "A single trial"
    trials = count(numbers[-1], "trial")
    if len(numbers) > 1:
        trials = f"{numbers[0]} to {trials}"
    line, spread = _AVERAGES[options.average]
    area = "bars" if _has_bars(drawn, curves) else "band"
    return f"{line} over {trials}, {area}: {spread}"
