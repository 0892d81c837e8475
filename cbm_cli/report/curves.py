"""Mean learning curves of an experiment's methods, one panel per sampler, data set or other setting."""

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator

from cbm_cli.errors import CbmError
from cbm_cli.report.series import Curve, Curves, read_curves
from cbm_cli.results import Results, label
from cbm_cli.statistics.layout import Key
from cbm_cli.text import count

WIDEST = 4  # panels side by side
_TITLE = 36  # characters that fit above a panel
_CAPTION = 15  # characters of the caption in an inch

# Okabe & Ito's colours, told apart with every common colour blindness; a scheme keeps its colour in
# every picture, and its variants (^b, ^l, _s) differ by the dashes.
COLOURS = {
    "00": "#000000",
    "d0": "#0072B2",
    "dd": "#009E73",
    "aa": "#D55E00",
    "mm": "#CC79A7",
    "dm": "#E69F00",
    "md": "#56B4E9",
    "0d": "#8C6D00",
}
OTHER_COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
OTHER_COLOURS += ["#332288", "#882255", "#999933", "#44AA99", "#AA4499", "#661100"]  # Paul Tol's muted ones
DASHES: list[Any] = ["-", (0, (7, 3)), (0, (1.5, 1.5)), (0, (7, 2, 1.5, 2))]
BOUND = {"color": "#777777", "linewidth": 1.0, "linestyle": (0, (2, 2))}

# Metadata by suffix, so that two pictures of the same results have the same bytes.
METADATA: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    ".svg": {"Date": None},
}

Look = Mapping[str, Any]  # colour and dashes of one method, in every panel, as Matplotlib names them


def plot_curves(
    results: Results,
    experiment: str,
    path: Path,
    *,
    select: Iterable[tuple[str, str]] = (),
    metric: str | None = None,
) -> None:
    """Draw mean learning curves with a band over trials, and write them to a PNG, PDF or SVG file.

    Lines are the schemes, or what else the table has in its columns; every other setting that varies makes
    panels, and so does every data set. The band spans the quartiles over trials; for records, the mean ± a
    standard deviation. So that a diverging method does not flatten the others, the y axis of all panels of a
    data set ends at the lower Tukey fence of its mean curves (first quartile less 1.5 interquartile ranges),
    for costs at the upper one, where this more than halves the range to show; the figure then says so.
    Records are shown whole.

    ``select`` keeps only cells with these values of columns; several values of one column are alternatives.

    Raises
    ------
    CbmError
        Unknown suffix, column, value or metric; more than 24 panels.
    IncompleteError
        No finished trial, or nothing was evaluated.
    """
    if path.suffix.lower() not in METADATA:
        raise CbmError(f"{path}: the suffix must be one of {', '.join(METADATA)}")
    figure = curves_figure(results, experiment, select, metric)
    try:
        with rc_context({"svg.hashsalt": "cbm"}):
            figure.savefig(path, dpi=160, metadata=METADATA[path.suffix.lower()])
    except OSError as error:
        raise CbmError(f"{path}: cannot be written ({error.strerror})") from None


def curves_figure(
    results: Results, experiment: str, select: Iterable[tuple[str, str]] = (), metric: str | None = None
) -> Figure:
    """Return the figure that `plot_curves` writes."""
    drawn = read_curves(results, experiment, select, metric)
    curves = drawn.curves
    keys = _in_order(curve.panel for curve in curves)
    across = _across(keys)
    down = -(-len(keys) // across)
    limits = {data: _limits([c for c in curves if c.data == data]) for data in {c.data for c in curves}}
    looks = _looks(list(dict.fromkeys(curve.line for curve in curves)), drawn.lines)
    caption = _caption(curves, next((it.cut for it in limits.values() if it.cut), ""))
    width, legend = _legend(_handles(curves, drawn.lines, looks), caption, max(0.8 + 2.9 * across, 5.0))
    entries = -(-len(legend["handles"]) // legend["ncols"])
    figure = Figure(figsize=(width, 0.9 + 0.2 * entries + 2.5 * down), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False, sharey=len(limits) == 1).ravel()
    for axes, key in zip(grid, keys, strict=False):
        shown = [curve for curve in curves if curve.panel == key]
        _panel(axes, shown, looks, limits[shown[0].data])
        settings = [*map(_named, drawn.panels, key)]
        axes.set_title((", " if len(", ".join(settings)) <= _TITLE else ",\n").join(settings), fontsize=10)
    for axes in grid[len(keys) :]:
        axes.set_visible(False)
    for axes in grid[max(0, len(keys) - across) : len(keys)]:
        axes.set_xlabel("updates", fontsize=10)
    figure.supylabel(_measure(drawn), fontsize=10)
    _add_legend(figure, **legend)
    return figure


class Limits(NamedTuple):
    """Ends of a y axis, and the Tukey fence at which it is cut: lower, upper or none."""

    low: float
    high: float
    cut: str = ""


def _measure(drawn: Curves) -> str:
    """Return the y axis in words, with its unit or scale."""
    column, better = drawn.metric.column, drawn.metric.better
    unit = drawn.scale.replace("-", " ") if better else "degrees" if column.startswith("angle_") else ""
    return column.replace("_", " ").replace("log ", "log-") + f" ({unit})" * bool(unit)


def _panel(axes: Axes, curves: Sequence[Curve], looks: Mapping[Key, Look], limits: Limits) -> None:
    for curve in curves:
        look, (low, high) = looks[curve.line], curve.band
        axes.fill_between(low.index, low, high, color=look["color"], alpha=0.18, linewidth=0)
        axes.plot(curve.mean, **look, linewidth=1.4)
    if curves[0].bound is not None:
        axes.axhline(curves[0].bound, **BOUND)
    axes.set_ylim(limits.low, limits.high)
    axes.set_xlim(0, max(curve.trials.index[-1] for curve in curves))
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    plain_axes(axes)


def plain_axes(axes: Axes) -> None:
    """Remove the frame above and to the right, and make the ticks small and grey."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8.5, color="#777777")


def _in_order(keys: Iterable[Key]) -> list[Key]:
    """Return distinct keys, sorted by where each of their values first appeared, the first column slowest."""
    keys = list(dict.fromkeys(keys))
    places = [{v: i for i, v in enumerate(dict.fromkeys(values))} for values in zip(*keys, strict=True)]
    return sorted(keys, key=lambda key: [place[v] for place, v in zip(places, key, strict=True)])


def _across(keys: Sequence[Key]) -> int:
    """Return the panels side by side: the first column's values go down, or the last one's across."""
    down, last = len({key[:1] for key in keys}), len({key[-1:] for key in keys})
    for across in (len(keys) // down, last):
        if 1 < across <= WIDEST and len(keys) % across == 0:
            return across
    return len(keys) if len(keys) <= WIDEST else 3


def _limits(curves: Sequence[Curve]) -> Limits:
    """Return the ends for all curves of a data set; cut where this more than halves the range to show."""
    means = pd.concat([curve.mean for curve in curves])
    lowest = min(means.min(), *(curve.band[0].min() for curve in curves))
    highest = max(means.max(), *(max(curve.band[1].max(), curve.bound or -np.inf) for curve in curves))
    first, third = means.quantile([0.25, 0.75])
    reach = 1.5 * (third - first)
    fences = {1: (first - reach, highest, "lower"), -1: (lowest, third + reach, "upper")}
    low, high, cut = fences.get(curves[0].metric.better, (lowest, highest, ""))
    if highest - lowest <= 2 * (high - low):
        low, high, cut = lowest, highest, ""
    margin = 0.04 * (high - low) or 1.0
    return Limits(low - margin, high + margin, cut)


def _looks(keys: Sequence[Key], lines: Sequence[str]) -> dict[Key, Look]:
    """Return a colour for the letters of a scheme, and dashes for its variants."""
    if "offsets" not in lines:
        colours = {key: OTHER_COLOURS[i % len(OTHER_COLOURS)] for i, key in enumerate(keys)}
        return {key: {"color": colour, "linestyle": "-"} for key, colour in colours.items()}
    place = lines.index("offsets")
    variants: dict[str, list[Key]] = {}
    for key in keys:
        letters = re.match("[^^_]*", key[place])[0]
        same = len(set(letters)) == 1  # in all layers, so that a DBM's 000 looks like 00
        variants.setdefault(letters[:2] if same else letters, []).append(key)
    spare = (colour for colour in OTHER_COLOURS if colour not in {COLOURS.get(it) for it in variants})
    colours = {letters: COLOURS.get(letters) or next(spare, "#999999") for letters in variants}
    return {
        key: {"color": colours[letters], "linestyle": DASHES[i % len(DASHES)]}
        for letters, family in variants.items()
        for i, key in enumerate(family)
    }


def _named(column: str, value: str) -> str:
    """Return a setting in a title or the legend: methods and data by their label, numbers with their name."""
    if column == "offsets":
        return f"${label(column, value, 'latex')}$"
    if column == "sampler":
        return label(column, value, "latex")
    name = {"learning_rate": r"$\eta$ =", "data": "", "init": "init"}.get(column, column.replace("_", " "))
    plain = str(value).replace("$", r"\$")  # else Matplotlib reads it as a formula
    return f"{name} {plain}".strip()


def _handles(curves: Sequence[Curve], lines: Sequence[str], looks: Mapping[Key, Look]) -> list[Line2D]:
    looks_of = {", ".join(map(_named, lines, key)): look | {"linewidth": 1.8} for key, look in looks.items()}
    if any(curve.bound is not None for curve in curves):
        looks_of["upper bound"] = BOUND
    return [Line2D([], [], **look, label=name) for name, look in looks_of.items()]


def _legend(handles: list[Line2D], caption: str, width: float) -> tuple[float, dict[str, Any]]:
    """Return the width of the figure, and a legend that fits into it with as many columns as it can have.

    Both are measured: a legend that is too wide in one column widens the figure.
    """
    lines = caption.splitlines()
    for ncols in range(min(len(handles), 6), 0, -1):
        title = "\n".join(part for line in lines for part in textwrap.wrap(line, int(_CAPTION * width)))
        legend = {"handles": handles, "ncols": ncols, "title": title}
        figure = Figure(figsize=(width, 3))
        box = _add_legend(figure, **legend)
        figure.draw_without_rendering()
        needed = box.get_window_extent().width / figure.dpi + 0.1  # inches
        if needed <= width:
            break
    return max(width, needed), legend


def _add_legend(figure: Figure, handles: list[Line2D], ncols: int, title: str) -> Legend:
    legend = figure.legend(
        handles=handles,
        loc="outside lower center" if figure.axes else "lower center",
        ncols=ncols,
        frameon=False,
        handlelength=2.8,
        fontsize=10,
        title=title,
        title_fontsize=8,
    )
    legend.get_title().set(color="#555555", multialignment="center")
    return legend


def _caption(curves: Sequence[Curve], cut: str) -> str:
    counts = sorted({curve.trials.shape[1] for curve in curves})
    few = f"{counts[0]} to " if len(counts) > 1 else ""
    band = "quartiles" if curves[0].metric.better else "standard deviation"
    parts = [f"line: mean over {few}{count(counts[-1], 'trial')}; band: {band} over trials"]
    diverged, gaps, stopped = (
        sum(getattr(curve, name) for curve in curves) for name in ("diverged", "gaps", "stopped")
    )
    if diverged:
        parts.append(f"{diverged} diverged, from there on left out")
    if gaps:
        parts.append(f"{count(gaps, 'trial')} without a value at some updates, left out there")
    if stopped:
        parts.append(f"{stopped} stopped before the others, held at the last value")
    return "; ".join(parts) + (f"\ny axis cut at the {cut} Tukey fence of the means" if cut else "")
