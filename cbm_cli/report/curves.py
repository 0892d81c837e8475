"""Learning curves of methods, and a metric against a setting: lines with bands or bars over trials."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, MaxNLocator
from matplotlib.transforms import ScaledTranslation

from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.grid.words import name_of
from cbm_cli.report.chosen import Chosen, Options, choose, notes_of, shown_cells
from cbm_cli.report.limits import Ends, y_ends
from cbm_cli.report.panels import Panel, in_order
from cbm_cli.report.series import Curve, Curves, read_curves, summarised
from cbm_cli.report.style import BOUND, Look, in_words, looks_of, named, plain, title_of
from cbm_cli.results import Metric, Results
from cbm_cli.results.cells import Measure
from cbm_cli.results.selection import Key, columns_named, key_of
from cbm_cli.text import count, text_of

_MARKS = 6  # markers of a line
_ESTIMATES = 40  # by AIS; of a line of more not each has a marker, which says whether it is reliable
_MOST_BANDS = 4  # of a panel; more would be mud, and are drawn as bars
_MOST_TICKS = 8  # numbers along an axis of settings
_ALIKE = 0.01  # share of the height within which lines hide each other
_SAID = {"median": ("Median", "quartiles"), "mean": ("Mean", "standard deviation")}
_COUNTS = {
    "diverged": "{diverged} diverged, from there on left out",
    "gaps": "{gaps} without a value at some updates, left out there",
    "stopped": "{stopped} stopped before the others, held at the last value",
    "doubtful": "Open markers: doubtful estimates by AIS, with an effective sample size below a tenth of the "
    "runs ({doubtful:,} of {estimates:,})",
    "disproved": "{disproved:,} of these are disproved, and drawn at the most that known states allow",
    "unjudged": "AIS: effective sample sizes of some trials were not kept",
}


def curves_panels(
    results: Results | None, experiments: Sequence[str], options: Options, preset: str | None = None
) -> list[Panel]:
    """Draw learning curves with a band over trials.

    Lines are the schemes, or what else the table has in its columns; every other setting that varies makes
    panels, and so does every data set. The line is the median and the band spans the quartiles over trials;
    of more than four lines, bars at the markers do. The y axis is cut as `limits.y_ends` says; all panels of
    a data set and metric have the same one. Where lines hide each other, an inset shows how they differ.
    """
    return line_panels(read_curves(choose(results, experiments, options), options, preset), options)


def settings_panels(results: Results | None, experiments: Sequence[str], options: Options) -> list[Panel]:
    """Draw what the table shows against a numeric setting: its mean and deviation for each value."""
    chosen = choose(results, experiments, replace(options, x=None))
    column = _numeric(chosen, options.x)
    lines, panels = ([c for c in columns if c != column] for columns in (chosen.lines, chosen.panels))
    found: dict[tuple[Key, Key, str], dict[float, pd.Series]] = {}
    doubts: dict[tuple[Key, Key, str], dict[float, float]] = {}
    cells = shown_cells(chosen, options)
    for cell in cells:
        keys = key_of(cell.settings, lines), key_of(cell.settings, panels), cell.settings["data"]
        values = pd.Series(cell.values).replace([np.inf, -np.inf], np.nan)
        found.setdefault(keys, {})[float(cell.settings[column])] = values
        share = (cell.doubts | cell.bounded).mean() if cell.n and cell.measure.metric.better > 0 else 0.0
        doubts.setdefault(keys, {})[float(cell.settings[column])] = float(share)
    (metric, scale, _), said = cells[0].measure, said_of(cells[0].measure)
    curves = []
    for keys, points in found.items():
        trials = pd.DataFrame(points).T.sort_index().dropna(how="all")
        curves.append(Curve(*keys, metric, trials, doubt=pd.Series(doubts[keys]).reindex(trials.index)))
    known = [curve for curve in curves if len(curve.trials)]
    if not known:
        raise IncompleteError(f"{', '.join(chosen.stores)}: {metric.column} has no finite value to draw")
    values = np.unique(np.concatenate([curve.trials.index for curve in known]))
    log, name = bool(values[0] > 0 and values[-1] >= 10 * values[0]), plain(name_of(column))
    drawn = Curves(known, lines, panels, scale, name, chosen.notes, points=True, log=log)
    notes = [f"The {said} of each trial{f', the {name} on a logarithmic axis' * log}", *notes_of(cells)]
    found_panels = line_panels(drawn, replace(options, statistic="mean"))
    return [replace(it, notes=[*notes, *it.notes]) for it in found_panels]


def _numeric(chosen: Chosen, name: str | None) -> str:
    """Return the column of the setting that is asked for, else the only numeric one that varies."""
    columns = columns_named(name, chosen.settings, "--x") if name else [*chosen.lines, *chosen.panels]
    values = {c: {text_of(settings.get(c)) for settings in chosen.settings} for c in columns}
    numeric = [c for c, texts in values.items() if len(texts) > 1 and all(map(_is_number, texts))]
    if len(numeric) != 1:
        place = f"--x {name}" if name else "settings"
        there = f"there are {', '.join(numeric)}" if numeric else "no numeric setting varies"
        there += "; --choose none draws all values of one that is chosen" * bool(chosen.notes)
        raise CbmError(f"{place}: name one numeric setting that varies; {there}", "unsuited")
    return numeric[0]


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def said_of(measure: Measure) -> str:
    """Return the statistic of a trial in words."""
    best = "minimum" if measure.metric.better < 0 else "maximum"
    at = {"best-valid": "value at the best validation value", "max-of-mean": "value where the mean is best"}
    return {"max": best, "final": "final value", **at}[measure.statistic]


def line_panels(drawn: Curves, options: Options) -> list[Panel]:
    """Return the panels of curves, in which every line looks the same everywhere."""
    looks = looks_of(list(dict.fromkeys(curve.key for curve in drawn.curves)), drawn.lines)
    names, panels = _names_of_lines(drawn), []
    within: dict[Key, list[Curve]] = {}
    for curve in drawn.curves:
        within.setdefault(curve.panel, []).append(curve)
    together: dict[Key, list[Curve]] = {}  # of panels of one data set and the same metrics
    for curves in within.values():
        together.setdefault(_scale_of(curves), []).extend(curves)
    limits = {scale: ends_of(curves, options) for scale, curves in together.items()}
    free = options.ylim in (None, (None, None))
    for key, curves in within.items():
        scale = _scale_of(curves)
        ends = limits[scale]
        panel = Panel(
            partial(_draw, drawn, curves, looks, ends, options),
            key,
            title_of(options.title, drawn.panels, key),
            drawn.xlabel,
            measure_of(drawn, [curve.metric for curve in curves]),
            ends,
            scale if free else None,
            {names[curve.key]: looks[curve.key] for curve in curves}
            | ({"upper bound": BOUND} if ends.bounded else {}),
            _notes(drawn, curves, ends, options),
        )
        panels.append(panel)
    return in_order(panels)


def _scale_of(curves: Sequence[Curve]) -> Key:
    return curves[0].data, *dict.fromkeys(curve.metric.column for curve in curves)


def _names_of_lines(drawn: Curves) -> dict[Key, str]:
    """Return the names of lines for the legend: scheme, sampler and rate, and others where these are alike.

    Metrics are named without the words that all of them share.
    """
    keys = list(dict.fromkeys(curve.key for curve in drawn.curves))
    shared = _shared_words(curve.metric for curve in drawn.curves)
    first = [column in ("offsets", "sampler", "learning_rate", "metric") for column in drawn.lines]
    short = {key: tuple(compress(key, first)) for key in keys}

    def words(column: str, value: str) -> str:
        name = named(column, value)
        return " ".join(w for w in name.split() if column != "metric" or w not in shared).rstrip(":") or name

    names = {}
    for key in keys:
        alone = any(first) and [*short.values()].count(short[key]) == 1
        kept = zip(drawn.lines, key, first, strict=True)
        names[key] = ", ".join(filter(None, (words(c, v) for c, v, it in kept if it or not alone)))
    return names


def ends_of(curves: Sequence[Curve], options: Options) -> Ends:
    """Return the ends of the y axis of curves that are shown together."""
    found = [summarised(curve.trials, options.average) for curve in curves]
    table, better, bounds = pd.concat(found), curves[0].metric.better, {curve.bound for curve in curves}
    start = (min if better > 0 else max)(one["line"].iloc[0] for one in found)
    bound = bounds.pop() if len(bounds) == 1 else None
    return y_ends(table["line"].to_numpy(), table.to_numpy().ravel(), better, options, start, bound)


def coinciding(curves: Sequence[Curve], average: str, ends: Ends) -> list[Curve]:
    """Return the most curves that lie on one of them: nearly everywhere within 1% of the height, else 10%."""
    lines = [curve.line(average) for curve in curves]
    near = _ALIKE * (ends.high - ends.low)

    def alike(one: pd.Series, other: pd.Series) -> bool:
        apart = (one - other).abs()
        return one.index.equals(other.index) and apart.quantile(0.95) < near and apart.max() < 10 * near

    groups = [[it for it, other in zip(curves, lines, strict=True) if alike(other, line)] for line in lines]
    largest = max(groups, key=len)
    return largest if len(largest) > 1 and len(lines[0]) > 2 else []


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
    drawn: Curves,
    curves: Sequence[Curve],
    looks: Mapping[Key, Look],
    ends: Ends,
    options: Options,
    axes: Axes,
) -> None:
    for place, curve in enumerate(curves):
        found = summarised(curve.trials, options.average)
        marks = places_of_marks(found.index.to_numpy(float), (place + 0.5) / len(curves))
        if drawn.points or (curve.doubt is not None and len(found) <= _ESTIMATES):
            marks = [*range(len(found))]
        look, colour = looks[curve.key], looks[curve.key]["color"]
        # Of lines that hide each other the first are wider, and the gaps of dashes lie elsewhere.
        width, dashes = 1.0 + 0.6 * (len(curves) - place - 1) / len(curves), look["linestyle"]
        dashes = dashes if dashes == "-" else (3.5 * place, dashes[1])
        aside = (place - (len(curves) - 1) / 2) * 2.5 / 72 * drawn.points  # points lie beside each other
        shifted = axes.transData + ScaledTranslation(aside, 0, axes.figure.dpi_scale_trans)
        if _has_bars(drawn, curves):
            some = found.iloc[marks]
            axes.vlines(some.index, some["low"], some["high"], colour, linewidth=0.8, transform=shifted)
        elif curve.trials.shape[1] > 1:
            axes.fill_between(found.index, found["low"], found["high"], color=colour, alpha=0.18, linewidth=0)
        style = look | {"linestyle": dashes, "linewidth": width, "transform": shifted}
        _draw_line(axes, curve, found["line"], marks, style)
    if ends.bound is not None:
        axes.axhline(ends.bound, **BOUND)
    _set_x_axis(axes, drawn, curves, options)
    if not drawn.points:
        _draw_differences(axes, coinciding(curves, options.average, ends), looks, options)


def _draw_line(axes: Axes, curve: Curve, line: pd.Series, marks: Sequence[int], style: Look) -> None:
    """Draw a line, and its markers, which are open where an estimate is doubtful."""
    low, high = axes.get_ylim()  # no stroke from an untrained machine far away
    begun = int(len(line) > 2 and not low <= line.iloc[0] <= high and low <= line.iloc[1] <= high)
    axes.plot(line.index[begun:], line.iloc[begun:], **style | {"marker": ""})
    doubtful = np.zeros(len(line), bool) if curve.doubt is None else curve.doubt.to_numpy() >= 0.5
    for face, wanted in ((style["color"], False), ("white", True)):
        at = [mark for mark in marks if doubtful[mark] == wanted]
        axes.plot(
            line.index[at], line.iloc[at], **style | {"linestyle": "", "markerfacecolor": face, "zorder": 3}
        )


def _has_bars(drawn: Curves, curves: Sequence[Curve]) -> bool:
    """Whether spread is drawn as bars at the markers, instead of a band."""
    spread = max(curve.trials.shape[1] for curve in curves) > 1
    return spread and (drawn.points or len(curves) > _MOST_BANDS)


def _set_x_axis(axes: Axes, drawn: Curves, curves: Sequence[Curve], options: Options) -> None:
    """Set the ends of the x axis; what begins at 0 begins beside the y axis."""
    values = np.unique(np.concatenate([curve.trials.index for curve in drawn.curves]))
    (first, last), margin = options.xlim, 0.08 if drawn.points else 0.02
    low, high = (values[0] if first is None else first), (values[-1] if last is None else last)
    if drawn.log:
        axes.set_xscale("log")
        low = max(low, values[0])
        beside = (high / low) ** margin
        low, high = low / beside, high * beside
    elif first is None:
        low = 0 if 0 <= low < 0.5 * high and not drawn.points else low
        low, high = low - margin * (high - low), high + margin * (high - low) * drawn.points
    axes.set_xlim(*((low, high) if low < high else (low - 0.5, low + 0.5)))
    if drawn.points and len(values) <= _MOST_TICKS:
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.set_xticks([], minor=True)
    elif not drawn.log:
        axes.xaxis.set_major_locator(MaxNLocator())
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.yaxis.set_major_locator(MaxNLocator())


def _draw_differences(
    axes: Axes, curves: Sequence[Curve], looks: Mapping[Key, Look], options: Options
) -> None:
    """Draw the differences of lines that hide each other from their mean, in the corner with most room."""
    if not curves:
        return
    lines = pd.concat([curve.line(options.average) for curve in curves], axis=1)
    drawn = np.concatenate([axes.transData.transform(line.get_xydata()) for line in axes.lines])
    inside = axes.transAxes.inverted().transform(drawn)
    corners = [(x, y) for y in (0.1, 0.55) for x in (0.5, 0.12)]
    full = [((inside > at) & (inside < np.add(at, (0.48, 0.42)))).all(axis=1).sum() for at in corners]
    inset = axes.inset_axes((*corners[int(np.argmin(full))], 0.46, 0.32))
    for curve, (_, line) in zip(curves, lines.sub(lines.mean(axis=1), axis=0).items(), strict=True):
        look = looks[curve.key]
        inset.plot(line, color=look["color"], linestyle=look["linestyle"], linewidth=0.6)
    inset.set_title("difference from their mean", fontsize="x-small", pad=2)
    inset.tick_params(labelsize="x-small", labelbottom=False)
    inset.yaxis.set_major_locator(MaxNLocator(3, prune="upper"))  # which would reach into the title
    inset.yaxis.get_offset_text().set_fontsize("x-small")
    inset.set_xlim(axes.get_xlim())


def places_of_marks(x: np.ndarray, shift: float) -> list[int]:
    """Return points for markers, evenly along the axis; lines with other shifts have theirs beside.

    The ends have none, where the axis would cut them.
    """
    wanted = x[0] + (np.arange(_MARKS) + shift) / _MARKS * (x[-1] - x[0])
    first, last = (1, len(x) - 2) if len(x) > 2 else (0, len(x) - 1)
    return np.unique(np.searchsorted(x, wanted).clip(first, last)).tolist()


def _notes(drawn: Curves, curves: Sequence[Curve], ends: Ends, options: Options) -> list[str]:
    """Return the sentences of the caption."""
    numbers = sorted({curve.trials.shape[1] for curve in curves})
    trials = f"{numbers[0]} to " * (len(numbers) > 1) + count(numbers[-1], "trial")
    line, spread = _SAID[options.average]
    notes = [f"{line} over {trials}, {'bars' if _has_bars(drawn, curves) else 'band'}: {spread}"]
    if numbers == [1]:
        notes = ["A single trial"]
    if options.smooth > 1:
        notes.append(f"Running mean over {count(options.smooth, 'update')}")
    if options.x == "seconds":
        notes.append("Seconds: mean time of the trials, spread evenly over the updates")
    metrics = {curve.metric for curve in curves}  # a trial has a curve of each
    sums = {
        name: max(sum(curve.counts.get(name, 0) for curve in curves if curve.metric == it) for it in metrics)
        for name in (*_COUNTS, "estimates")
    }
    notes += [text.format_map(sums) for name, text in _COUNTS.items() if sums[name]]
    if alike := [] if drawn.points else coinciding(curves, options.average, ends):
        lines = pd.concat([curve.line(options.average) for curve in alike], axis=1)
        apart = (lines.max(axis=1) - lines.min(axis=1)).max()
        notes.append(
            f"{len(alike)} lines coincide within {apart:.2g}; inset: their differences from their mean"
        )
    return [*notes, *drawn.notes]
