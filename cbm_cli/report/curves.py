"""Learning curves and records of methods: lines with bands or bars over trials."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress, product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import AutoLocator, EngFormatter, ScalarFormatter
from matplotlib.transforms import ScaledTranslation

from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.report.chosen import Chosen, Limits, Options, choose
from cbm_cli.report.panels import Panel
from cbm_cli.report.style import (
    BOUND,
    LARGEST,
    Look,
    in_words,
    looks_of,
    named,
    names_of,
)
from cbm_cli.results import Metric, Results
from cbm_cli.results.cells import Cell, Floats, Measure, finite, mean
from cbm_cli.results.columns import Key, key_of
from cbm_cli.results.outcome import default_metric, fewest_effective
from cbm_cli.text import count

Ends = tuple[float, float]

_MARKS = 6  # markers of a line
# by AIS; of a line of more not each has a marker, which says whether it is reliable
_ESTIMATES = 40
_MOST_BANDS = 4  # of a panel; more would be mud, and are drawn as bars
_MOST_TICKS = 8  # numbers along an axis of settings
_SAID = {"median": ("Median", "quartiles"), "mean": ("Mean", "standard deviation")}
_COUNTS = {
    "diverged": "{diverged} diverged, from there on left out",
    "gaps": "{gaps} without a value at some updates, left out there",
    "stopped": "{stopped} stopped before the others, held at the last value",
    "doubtful": "Open markers: doubtful estimates by AIS, with an effective sample "
    "size below a tenth of the "
    "runs ({doubtful:,} of {estimates:,})",
    "disproved": (
        "{disproved:,} of these are disproved, and drawn at the most that "
        "known states allow"
    ),
}


@dataclass(frozen=True)
class Curve:
    """One method in one panel."""

    key: Key  # values of the columns that tell lines apart
    panel: Key
    data: str  # title of the data set
    metric: Metric
    # (points, trials), indexed by the x axis; likelihoods and costs in the table's
    # scale. A trial that stopped early keeps its last value, one that diverged has none
    # from there on.
    trials: pd.DataFrame
    # share of the trials whose estimate is doubtful at each evaluation, which alone
    # have markers
    doubt: pd.Series
    # trials that diverged, have gaps or stopped before others; estimates by AIS, those
    # of too few effective runs (doubtful), and those that known states disprove
    counts: Mapping[str, int] = field(default_factory=dict)
    bound: float | None = None  # upper bound in the same scale
    choice: str = ""  # values that were chosen for it, in words
    begun: pd.Series | None = None  # the first two points of its line, shown or not
    look: Look = field(default_factory=dict)


@dataclass(frozen=True)
class Curves:
    """Everything that the panels show."""

    curves: list[Curve]
    lines: list[str]  # columns whose values name the lines
    panels: list[str]
    scale: str
    xlabel: str
    notes: Sequence[str]  # on values of settings that were chosen
    points: bool = False  # a value of each setting, not of each update


def summarised(trials: pd.DataFrame, average: str) -> pd.DataFrame:
    """Return a line over trials (points, trials) and the ends of its band, as low, line
    and high.

    The ``median`` lies between quartiles, the ``mean`` between mean ± a standard
    deviation.
    """
    if average == "mean":
        line, half = (
            trials.mean(axis=1),
            trials.std(axis=1).fillna(0),
        )  # of a single trial
        return pd.DataFrame({"low": line - half, "line": line, "high": line + half})
    shares = {"low": 0.25, "line": 0.5, "high": 0.75}
    return pd.DataFrame(
        {name: trials.quantile(share, axis=1) for name, share in shares.items()}
    )


def curves_panels(
    results: Results | None, experiments: Sequence[str], options: Options
) -> list[Panel]:
    """Draw learning curves or records of metrics, by default the table's, with a band
    over trials.

    Lines are the schemes, or what else the table has in its columns; every other
    setting that varies makes panels, and so does every data set. The line is the median
    and the band spans the quartiles over trials; of more than four lines, bars at the
    markers do. All panels of a data set and metric have the same y axis.

    Raises
    ------
    CbmError
        Unknown metric, or no curve between the ends of the x axis.
    IncompleteError
        Nothing was evaluated or recorded, or has no finite value.
    """
    chosen = choose(results, experiments, options)
    metrics, in_epochs = (
        metrics_of(chosen, options),
        all(cell.settings.epochs for cell in chosen.cells),
    )
    x = options.x or (
        "epochs" if in_epochs else "updates"
    )  # as the grid counts trainings
    lines, panels = [*chosen.lines], [*chosen.panels]
    if len(metrics) > 1 and (options.panels is None or "metric" in options.panels):
        panels.append("metric")
    elif len(metrics) > 1:
        lines = chosen.columns.varying(lines)
        lines.append("metric")
    found = []
    for cell, metric in product(chosen.cells, map(Metric, metrics)):
        settings, measure = (
            {**cell.row, "metric": metric.column},
            Measure(metric, chosen.table.scale),
        )
        keys = key_of(settings, lines), key_of(settings, panels)
        if curve := _curve(chosen, cell.measured(measure), keys, x, options):
            found.append(curve)
    place = f"{', '.join(chosen.stores)}: {', '.join(metrics)}"
    refuse_outside("x", [it.trials.index for it in found], options.xlim, place)
    cut = (replace(one, trials=_between(one.trials, options.xlim)) for one in found)
    shown = [one for one in cut if len(one.trials)] or found
    scale, xlabel = chosen.table.scale, x.replace("-", " ")
    return line_panels(
        Curves(shown, lines, panels, scale, xlabel, chosen.notes), options
    )


def metrics_of(chosen: Chosen, options: Options) -> list[str]:
    """Return the metrics to draw; an error lists the columns that there are."""
    firsts = [replace(cell, rows=cell.rows[:1]) for cell in chosen.cells]
    frames = (
        frame
        for first in firsts
        for kind in ("curves", "records")
        for frame in first.frames(kind)
    )
    known = dict.fromkeys(
        c for frame in frames for c in frame if c not in ("update", "epoch")
    )
    there = (
        f"there are {', '.join(known)}"
        if known
        else "nothing was evaluated or recorded"
    )
    for name in options.metric:
        if name not in known:
            raise CbmError(
                f"--metric {name}: no column of the curves or the records; {there}"
            )
    usual = chosen.table.metric or default_metric(chosen.rows())
    if options.metric or usual in known:
        return [*(options.metric or (usual,))]
    names = (
        f"{', '.join(chosen.stores)}: the results hold no "
        f"{usual or 'likelihood or cost'} to draw"
    )
    raise IncompleteError(names + f"; --metric: {there}" * bool(known))


def _curve(
    chosen: Chosen, cell: Cell, keys: tuple[Key, Key], x: str, options: Options
) -> Curve | None:
    """Return the curve of a cell; None without a finite value."""
    curves = zip(cell.curves(), cell.trials.diverged[cell.rows], strict=True)
    known, metric = (
        [(curve, bool(lost)) for curve, lost in curves if len(curve)],
        cell.measure.metric,
    )
    if not known:
        return None
    updates = np.unique(np.concatenate([curve.index for curve, _ in known])).astype(
        float
    )
    held = [
        curve.reindex(updates, method=None if lost else "ffill")
        for curve, lost in known
    ]
    trials = pd.concat(held, axis=1, keys=range(len(held)))
    beyond = (trials.abs() >= LARGEST).any()
    if (trials := trials.where(trials.abs() < LARGEST).dropna(how="all")).empty:
        return None
    holes = (beyond | trials.isna().any()).to_numpy() & ~np.array(
        [lost for _, lost in known]
    )
    counts = {"diverged": sum(lost for _, lost in known), "gaps": int(holes.sum())}
    counts["stopped"] = sum(
        curve.index[-1] < trials.index[-1] for curve, lost in known if not lost
    )
    doubt, of_ais = _doubts(cell, trials.index)
    if options.smooth > 1:
        trials = trials.apply(_running_mean, width=options.smooth)
    first, step = _steps(cell, x)
    trials.index = doubt.index = first + trials.index * step
    data, bounds = (
        cell.settings.data.title,
        chosen.stores[cell.run.experiment].manifest().upper_bounds,
    )
    bound = (
        bounds[data] * float(cell.scale[0])
        if metric.better > 0 and data in bounds
        else None
    )
    begun = summarised(trials.iloc[:2], options.average)["line"]
    return Curve(
        *keys,
        data,
        metric,
        trials,
        doubt,
        counts | of_ais,
        bound,
        chosen.choice(cell),
        begun,
    )


def _steps(cell: Cell, x: str) -> tuple[float, float]:
    """Return where the x axis has update 0, and the length of an update on it."""
    curves = [curve for curve in cell.frames() if len(curve)]
    ends = [curve["update"].iloc[-1] for curve in curves] or [1]
    epoch = sum(curve["epoch"].iloc[-1] for curve in curves) / max(sum(ends), 1)
    if x == "epochs":
        return 0.0, epoch
    if x == "seconds":
        return 0.0, mean(cell.trials.numbers("seconds")[cell.rows]) / max(
            np.mean(ends), 1
        )
    before = float(cell.settings.pretraining.epochs) if x == "gradient-steps" else 0.0
    return (before / epoch if epoch else 0.0), 1.0


def _between(trials: pd.DataFrame, ends: Limits) -> pd.DataFrame:
    """Return the part of curves between ends of the x axis, at which they have the
    value of their line.
    """
    first, last = trials.index[[0, -1]]
    inner = [
        end
        for end in ends
        if end is not None and first < end < last and end not in trials.index
    ]
    if inner:
        trials = trials.reindex(trials.index.union(inner))
        trials.loc[inner] = trials.interpolate("index").loc[inner]
    return trials.loc[slice(*ends)]


def _doubts(cell: Cell, evaluated: pd.Index) -> tuple[pd.Series, dict[str, int]]:
    """Return the share of trials whose estimates by AIS have too few effective runs,
    and their numbers.
    """
    column = "effective_sample_size"
    known = [
        frame.set_index("update")[column] for frame in cell.frames() if column in frame
    ]
    if cell.measure.metric.better <= 0 or not known:
        return pd.Series(0.0, evaluated), {}
    sizes = pd.concat(known, axis=1)
    doubtful = sizes < fewest_effective(
        cell.trials.frame["evaluate_runs"].iloc[cell.rows[0]]
    )
    counts = {"doubtful": doubtful, "estimates": sizes.notna(), "disproved": sizes == 0}
    share = doubtful.sum(axis=1) / sizes.count(axis=1)
    return share.reindex(evaluated), {
        name: int(which.sum().sum()) for name, which in counts.items()
    }


def _running_mean(values: pd.Series, width: float) -> pd.Series:
    """Return means over ``width`` updates around each row, in which every update weighs
    alike.

    An update between rows has the value of the nearest one. So rows that are close
    together, as in the window of a recorder, weigh no more than others.
    """
    known = values.dropna()
    x = known.index.to_numpy(float)
    if len(x) < 2:
        return values
    edges = np.concatenate([x[:1], (x[1:] + x[:-1]) / 2, x[-1:]])
    sums = np.concatenate([[0.0], np.cumsum(known.to_numpy() * np.diff(edges))])
    first, last = (x - width / 2).clip(x[0]), (x + width / 2).clip(max=x[-1])
    totals = np.interp(last, edges, sums) - np.interp(first, edges, sums)
    return pd.Series(totals / (last - first), known.index).reindex(values.index)


# Drawing


def line_panels(drawn: Curves, options: Options) -> list[Panel]:
    """Return the panels of curves, in which every line looks the same everywhere."""
    refuse_outside("y", [curve.trials for curve in drawn.curves], options.ylim)
    looks = looks_of(
        list(dict.fromkeys(curve.key for curve in drawn.curves)), drawn.lines
    )
    within, panels = dict[Key, list[Curve]](), []
    for curve in drawn.curves:
        within.setdefault(curve.panel, []).append(replace(curve, look=looks[curve.key]))
    for key, curves in within.items():
        measured = (
            curves[0].data,
            *dict.fromkeys(curve.metric.column for curve in curves),
        )
        compared = [
            it
            for it in drawn.curves
            if it.data == measured[0] and it.metric.column in measured
        ]
        ends, bound, notes = _y_axis(drawn, compared, options)
        metric, words = (
            curves[0].metric,
            " ".join(_shared_words(curve.metric for curve in curves)),
        )
        unit = (
            "degrees"
            if metric.column.startswith("angle_")
            else metric.unit(drawn.scale)
        )
        names = {
            name: curve.look
            for name, curve in zip(_names_of(drawn, curves), curves, strict=True)
        }
        names |= {} if bound is None else {"upper bound": BOUND}
        labels = (
            names_of(drawn.panels, key),
            drawn.xlabel,
            words + f" ({unit})" * bool(unit),
        )
        draw = partial(_draw, drawn, curves, ends, bound, options)
        panels.append(
            Panel(
                draw,
                key,
                *labels,
                measured,
                names,
                [*_notes(drawn, curves, options), *notes],
            )
        )
    return panels


def _y_axis(
    drawn: Curves, curves: Sequence[Curve], options: Options
) -> tuple[Ends, float | None, list[str]]:
    """Return the lowest and the highest value to show, the upper bound if it is drawn,
    and notes.

    What diverges does not flatten the others, see `far_end`. A bound takes at most a
    third of the height.
    """
    better, tables = (
        curves[0].metric.better,
        [summarised(it.trials, options.average) for it in curves],
    )
    values, notes = pd.concat(tables), list[str]()
    (low, high), (first, last) = (
        (float(of(values.to_numpy())) for of in (np.nanmin, np.nanmax)),
        options.ylim,
    )
    if better and not drawn.points and options.ylim == (None, None):
        lines = [
            pd.concat([it.begun, shown["line"]])
            for it, shown in zip(curves, tables, strict=True)
        ]
        end = far_end(lines, values.to_numpy(), better)
        if end is not None:
            low, high = (end, high) if better > 0 else (low, end)
            notes.append(
                f"Values far {'below' if better > 0 else 'above'} the first ones "
                "are "
                "not shown"
            )
    low, high = low if first is None else first, high if last is None else last
    bounds = {it.bound for it in curves}
    bound = bounds.pop() if len(bounds) == 1 else None
    if bound is not None and not low <= bound <= (
        high + (high - low) / 2 if last is None else high
    ):
        notes.append(f"Upper bound, not shown: {bound:.4g}")
        bound = None
    return (
        (low, high if bound is None else max(values["line"].max(), bound)),
        bound,
        notes,
    )


def far_end(lines: Sequence[pd.Series], points: Floats, better: int) -> float | None:
    """Return where an axis ends before points that are far worse than others; None
    where it shows all.

    If curves that diverge, or untrained machines, would take more than half of the
    height, the axis ends beyond the worst beginning of lines by half of what is learned
    from there on, at least by a twentieth of it. The beginning is the better of a
    line's first two points. Half of all points are shown in any case.
    """
    start = min(((better * line).iloc[:2].max() for line in lines), default=np.nan)
    best = max(((better * line).max() for line in lines), default=np.nan)
    end = min(
        start - max((best - start) / 2, abs(start) / 20),
        float(np.nanmedian(better * points)),
    )
    return better * end if np.nanmin(better * points) < 2 * end - best else None


def _names_of(drawn: Curves, curves: Sequence[Curve]) -> list[str]:
    """Return the names of lines for the legend: scheme, sampler and rate, and others
    where these are alike.

    Metrics are named without the words that all of them share. The chosen values of a
    line follow its name.
    """
    shared = _shared_words(curve.metric for curve in drawn.curves)
    first = [
        column in ("offsets", "sampler", "learning_rate", "metric")
        for column in drawn.lines
    ]
    short = Counter(
        tuple(compress(key, first)) for key in {curve.key for curve in drawn.curves}
    )
    names = []
    for curve in curves:
        alone = any(first) and short[tuple(compress(curve.key, first))] == 1
        pairs = zip(drawn.lines, curve.key, first, strict=True)
        parts = {
            column: named(column, value)
            for column, value, it in pairs
            if it or not alone
        }
        if name := parts.get("metric"):
            parts["metric"] = (
                " ".join(w for w in name.split() if w not in shared).rstrip(":") or name
            )
        names.append(
            ", ".join(filter(None, parts.values()))
            + f" ({curve.choice})" * bool(curve.choice)
        )
    return names


def _shared_words(metrics: Iterable[Metric]) -> list[str]:
    """Return what the names of metrics have in common; a single one has all of its
    words.
    """
    names = [
        in_words(column).split()
        for column in dict.fromkeys(metric.column for metric in metrics)
    ]
    return [word for word in names[0] if all(word in name for name in names)]


def _draw(
    drawn: Curves,
    curves: Sequence[Curve],
    ends: Ends,
    bound: float | None,
    options: Options,
    axes: Axes,
) -> None:
    for place, curve in enumerate(curves):
        found, look = summarised(curve.trials, options.average), curve.look
        marked = _marked(drawn, curve, found, (place + 0.5) / len(curves))
        # Of lines that hide each other the first are wider, and the gaps of dashes lie
        # elsewhere.
        width, dashes = (
            1.0 + 0.6 * (len(curves) - place - 1) / len(curves),
            look["linestyle"],
        )
        dashes = dashes if dashes == "-" else (3.5 * place, dashes[1])
        aside = (
            (place - (len(curves) - 1) / 2) * 2.5 / 72 * drawn.points
        )  # points lie next to each other
        shifted = axes.transData + ScaledTranslation(
            aside, 0, axes.figure.dpi_scale_trans
        )
        if _has_bars(drawn, curves):
            bars = {"color": look["color"], "linewidth": 0.8, "transform": shifted}
            axes.vlines(marked.index, marked["low"], marked["high"], **bars)
        elif curve.trials.shape[1] > 1:
            band = {"color": look["color"], "alpha": 0.18, "linewidth": 0}
            axes.fill_between(found.index, found["low"], found["high"], **band)
        style = look | {"linestyle": dashes, "linewidth": width, "transform": shifted}
        axes.plot(found["line"], **style | {"marker": ""})
        for face, doubted in ((look["color"], False), ("white", True)):
            points = style | {"linestyle": "", "markerfacecolor": face, "zorder": 3}
            axes.plot(
                marked["line"][(curve.doubt[marked.index] >= 0.5) == doubted], **points
            )
    if bound is not None:
        axes.axhline(bound, **BOUND)
    _set_x_axis(axes, drawn, options)
    values = np.concatenate([curve.trials.to_numpy().ravel() for curve in drawn.curves])
    set_ends(axes, "y", np.append(values.clip(*ends), ends), 0.04, options)


def _marked(
    drawn: Curves, curve: Curve, found: pd.DataFrame, shift: float
) -> pd.DataFrame:
    """Return a line, with its band, at the evaluations that have markers.

    If evaluations are few, or estimates, each has a marker. Other lines have some at
    about regular places, which another ``shift`` moves, so that lines which hide each
    other show theirs in turn.
    """
    its = found.loc[found.index.isin(curve.doubt.index)]
    if drawn.points or len(its) <= (
        _ESTIMATES if curve.counts.get("estimates") else 2 * _MARKS
    ):
        return its
    first, last = its.index[[0, -1]]
    places = first + (np.arange(_MARKS) + shift) / _MARKS * (last - first)
    return its.iloc[np.unique(its.index.get_indexer(places, method="nearest"))]


def _has_bars(drawn: Curves, curves: Sequence[Curve]) -> bool:
    """Whether spread is drawn as bars at the markers, instead of a band."""
    spread = max(curve.trials.shape[1] for curve in curves) > 1
    return spread and (drawn.points or len(curves) > _MOST_BANDS)


def _set_x_axis(axes: Axes, drawn: Curves, options: Options) -> None:
    """Set the ends and the numbers of the x axis; an axis from 0 begins at the y
    axis.
    """
    values = np.unique(np.concatenate([curve.trials.index for curve in drawn.curves]))
    if not (drawn.points or "x" in options.log) and 0 <= values[0] < 0.5 * values[-1]:
        values = np.append(0.0, values)
    set_ends(axes, "x", values, 0.08 if drawn.points else 0.02, options)
    first, last = axes.get_xlim()
    inside = values[(first <= values) & (values <= last)]
    if drawn.points and 0 < len(inside) <= _MOST_TICKS:
        axes.set_xticks(inside, [f"{value:g}" for value in inside])
        axes.set_xticks([], minor=True)
    elif "x" not in options.log:
        axes.locator_params("x", nbins=5, steps=[1, 2, 5, 10])
        if not drawn.points:
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def set_ends(
    axes: Axes, name: str, values: Floats, margin: float, options: Options
) -> None:
    """Set the ends of the x or the y axis to those of values, with a margin where they
    are not asked for.

    A logarithmic axis is linear around 0 if there are values up to it.
    """
    axis, fixed = (
        getattr(axes, f"{name}axis"),
        np.array(getattr(options, f"{name}lim"), float),
    )
    values = np.fmin(
        np.fmax(finite(values), fixed[0]), fixed[1]
    )  # NaN: no end is asked for
    low, high = values.min(), values.max()
    if name in options.log:
        least = np.abs(values[values != 0]).min(initial=np.inf)
        scale = {"linthresh": least} if low <= 0 and np.isfinite(least) else {}
        getattr(axes, f"set_{name}scale")("symlog" if scale else "log", **scale)
        if (
            scale and high < 0 and low > -10 * least
        ):  # numbers of which none is a power of ten
            axis.set_major_locator(AutoLocator())
            axis.set_major_formatter(ScalarFormatter())
    if low == high:  # a constant
        low, high = (low - abs(low) / 10, high + abs(high) / 10) if low else (0.0, 1.0)
    first, last = axis.get_transform().transform([low, high])
    beyond = margin * (last - first)
    free = axis.get_transform().inverted().transform([first - beyond, last + beyond])
    getattr(axes, f"set_{name}lim")(np.where(np.isnan(fixed), free, fixed))


def refuse_outside(
    name: str, values: Sequence[Any], fixed: Limits, place: str = ""
) -> None:
    """Raise CbmError if there are no values, or the ends of the x or the y axis leave
    out all of them.
    """
    every, (first, last) = (
        np.concatenate([[], *map(np.ravel, values)]),
        np.array(fixed, float),
    )
    if not every.size:
        raise IncompleteError(f"{place} has no finite value to draw")
    low, high = np.nanmin(every, initial=np.inf), np.nanmax(every, initial=-np.inf)
    if first > high or last < low:
        raise CbmError(
            f"--{name}lim: the values go from {low:g} to {high:g}; show some of that"
        )


def _notes(drawn: Curves, curves: Sequence[Curve], options: Options) -> list[str]:
    """Return the sentences of the caption."""
    numbers = sorted({curve.trials.shape[1] for curve in curves})
    trials = f"{numbers[0]} to " * (len(numbers) > 1) + count(numbers[-1], "trial")
    line, spread = _SAID[options.average]
    notes = [
        (
            f"{line} over {trials}, {'bars' if _has_bars(drawn, curves) else 'band'}: "
            f"{spread}"
        )
    ]
    if numbers == [1]:
        notes = ["A single trial"]
    if options.smooth > 1:
        notes.append(f"Running mean over {count(options.smooth, 'update')}")
    if options.x == "seconds":
        notes.append("Seconds: mean time of the trials, spread evenly over the updates")
    metrics = {curve.metric for curve in curves}  # a trial has a curve of each
    sums = {
        name: max(
            sum(curve.counts.get(name, 0) for curve in curves if curve.metric == it)
            for it in metrics
        )
        for name in (*_COUNTS, "estimates")
    }
    notes += [text.format_map(sums) for name, text in _COUNTS.items() if sums[name]]
    return [*notes, *drawn.notes]
