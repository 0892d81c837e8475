"""Mean learning curves of an experiment's methods, one panel per sampler, data set or other setting."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator

from cbm_cli.errors import CbmError
from cbm_cli.report.reading import Curve, Curves, Key, read_curves
from cbm_cli.results import Metric, Results, label

WIDEST = 4  # panels side by side
_TITLE = 36  # characters that fit above a panel

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

# By suffix, what keeps two pictures of the same results byte for byte the same.
METADATA: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    ".svg": {"Date": None},
}


def plot_curves(
    results: Results,
    experiment: str,
    path: Path,
    *,
    select: Mapping[str, str] | None = None,
    metric: str | None = None,
) -> None:
    """Draw mean learning curves with a band over trials, and write them to a PNG, PDF or SVG file.

    Lines are the schemes, or what else the table has in its columns; every other setting that varies makes
    panels, and so does every data set. The band
    spans the quartiles over trials, or a standard deviation to both sides where something recorded is
    drawn. So that a diverging method does not flatten the others, the y axis of all panels of a data set
    ends at the lower Tukey fence of its mean curves (first quartile less 1.5 interquartile ranges), for
    costs at the upper one, where that more than halves the range to show; the figure then says so. What
    was recorded is shown whole.

    Parameters
    ----------
    results : Results
    experiment : str
    path : Path
        Its suffix decides the format.
    select : mapping of str to str, optional
        Draw only cells with these values of some columns, such as ``{"learning_rate": "0.05"}``.
    metric : str, optional
        Column of the curves or of the records; default: that of the table.

    Raises
    ------
    CbmError
        Unknown suffix, column, value or metric; more than 24 panels.
    IncompleteError
        No finished trial, or nothing was evaluated.
    """
    if path.suffix.lower() not in METADATA:
        raise CbmError(f"{path}: the suffix must be one of {', '.join(METADATA)}")
    figure = curves_figure(results, experiment, select or {}, metric)
    try:
        with rc_context({"svg.hashsalt": "cbm"}):
            figure.savefig(path, dpi=160, metadata=METADATA[path.suffix.lower()])
    except OSError as error:
        raise CbmError(f"{path}: cannot be written ({error.strerror})") from None


def curves_figure(
    results: Results, experiment: str, select: Mapping[str, str], metric: str | None = None
) -> Figure:
    """The figure that `plot_curves` writes."""
    return _figure(read_curves(results, experiment, select, metric))


Look = Mapping[str, Any]  # colour and dashes of one method, in every panel, as Matplotlib names them


@dataclass(frozen=True)
class Limits:
    """Ends of a y axis, and the Tukey fence at which it is cut: lower, upper or none."""

    low: float
    high: float
    cut: str = ""


def _figure(drawn: Curves) -> Figure:
    curves, lines = drawn.curves, drawn.lines
    keys = _in_order(curve.panel for curve in curves)
    width = _width(keys)
    height = -(-len(keys) // width)
    limits = {data: _limits([c for c in curves if c.data == data]) for data in {c.data for c in curves}}
    looks = _looks(list(dict.fromkeys(curve.line for curve in curves)), lines)
    handles = _handles(curves, lines, looks)
    across = max(0.8 + 2.9 * width, 5.0)  # inches
    columns = _columns(across, [str(handle.get_label()) for handle in handles])
    entries = -(-len(handles) // columns)
    figure = Figure(figsize=(across, 0.9 + 0.2 * entries + 2.5 * height), layout="constrained")
    grid = figure.subplots(height, width, squeeze=False, sharey=len(limits) == 1).ravel()
    for axes, key in zip(grid, keys, strict=False):
        shown = [curve for curve in curves if curve.panel == key]
        _panel(axes, shown, looks, limits[shown[0].data])
        axes.set_title(_title([*map(_named, drawn.panels, key)]), fontsize=10)
    for axes in grid[len(keys) :]:
        axes.set_visible(False)
    for axes in grid[max(0, len(keys) - width) : len(keys)]:
        axes.set_xlabel("updates", fontsize=10)
    figure.supylabel(_measure(drawn.metric, drawn.scale), fontsize=10)
    caption = _caption(curves, next((it.cut for it in limits.values() if it.cut), ""))
    _legend(figure, handles, columns, caption)
    return figure


def _measure(metric: Metric, scale: str) -> str:
    """The y axis in words, with its unit or scale."""
    unit = (
        scale.replace("-", " ") if metric.better else "degrees" if metric.column.startswith("angle_") else ""
    )
    return metric.column.replace("_", " ").replace("log ", "log-") + f" ({unit})" * bool(unit)


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
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8.5, color="#777777")


def _in_order(keys: Iterable[Key]) -> list[Key]:
    """Distinct keys, sorted by where each of their values first appeared, the first column slowest."""
    keys = list(dict.fromkeys(keys))
    places = [{v: i for i, v in enumerate(dict.fromkeys(values))} for values in zip(*keys, strict=True)]
    return sorted(keys, key=lambda key: [place[v] for place, v in zip(places, key, strict=True)])


def _width(keys: Sequence[Key]) -> int:
    """Panels side by side: the first column's values down or the last one's across where they fit."""
    down, last = len({key[:1] for key in keys}), len({key[-1:] for key in keys})
    for across in (len(keys) // down, last):
        if 1 < across <= WIDEST and len(keys) % across == 0:
            return across
    return len(keys) if len(keys) <= WIDEST else 3


def _limits(curves: Sequence[Curve]) -> Limits:
    """Ends for all curves of a data set; cut where that more than halves what has to be shown."""
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
    """A colour for the letters of a scheme, dashes for its variants; colours in turn for other lines."""
    if "offsets" not in lines:
        return {
            key: {"color": OTHER_COLOURS[i % len(OTHER_COLOURS)], "linestyle": "-"}
            for i, key in enumerate(keys)
        }
    place = list(lines).index("offsets")
    variants: dict[str, list[Key]] = {}
    for key in keys:
        variants.setdefault(_letters(key[place]), []).append(key)
    spare = [colour for colour in OTHER_COLOURS if colour not in {COLOURS.get(it) for it in variants}]
    looks = {}
    for letters, family in variants.items():
        colour = COLOURS.get(letters) or (spare.pop(0) if spare else "#999999")
        looks |= {
            key: {"color": colour, "linestyle": DASHES[i % len(DASHES)]} for i, key in enumerate(family)
        }
    return looks


def _letters(scheme: str) -> str:
    """Letters of a scheme; two where all layers have the same, for a DBM's 000 to look like 00."""
    letters = scheme.partition("^")[0].partition("_")[0]
    return letters[:2] if len(set(letters)) == 1 else letters


def _named(column: str, value: str) -> str:
    """A setting in a title or the legend: methods and data by their label, numbers with their name."""
    if column == "offsets":
        return f"${label(column, value, 'latex')}$"
    if column == "sampler":
        return label(column, value, "latex")
    name = {"learning_rate": r"$\eta$ =", "data": "", "init": "init"}.get(column, column.replace("_", " "))
    return f"{name} {value}".strip()


def _title(settings: Sequence[str]) -> str:
    """Settings in one line where they fit, else in one each."""
    return (", " if len(", ".join(settings)) <= _TITLE else ",\n").join(settings)


def _handles(curves: Sequence[Curve], lines: Sequence[str], looks: Mapping[Key, Look]) -> list[Line2D]:
    """What the legend shows."""
    handles = [
        Line2D([], [], **look, linewidth=1.8, label=", ".join(map(_named, lines, key)))
        for key, look in looks.items()
    ]
    if any(curve.bound is not None for curve in curves):
        handles.append(Line2D([], [], **BOUND, label="upper bound"))
    return handles


def _columns(width: float, labels: Sequence[str]) -> int:
    """As many columns of the legend, up to six, as fit into a width in inches."""
    sizes = [0.85 + 0.085 * len(re.sub(r"[${}^_\\]", "", label)) for label in labels]
    for columns in range(min(len(labels), 6), 1, -1):
        entries = -(-len(labels) // columns)  # Matplotlib fills a column after the other
        if sum(max(sizes[i : i + entries]) for i in range(0, len(sizes), entries)) <= width:
            return columns
    return 1


def _legend(figure: Figure, handles: list[Line2D], columns: int, caption: str) -> None:
    legend = figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        handlelength=2.8,
        fontsize=10,
        title=caption,
        title_fontsize=8,
    )
    legend.get_title().set(color="#555555", multialignment="center")


def _caption(curves: Sequence[Curve], cut: str) -> str:
    counts = sorted({curve.trials.shape[1] for curve in curves})
    over = " to ".join(str(n) for n in dict.fromkeys((counts[0], counts[-1])))
    band = "quartiles" if curves[0].metric.better else "standard deviation"
    caption = f"line: mean over {over} trials; band: {band} over trials"
    diverged = sum(int(curve.trials.isna().any().sum()) for curve in curves)
    if diverged:
        caption += f"; {diverged} diverged, from there on left out"
    stopped = sum(curve.stopped for curve in curves)
    if stopped:
        caption += f"; {stopped} stopped before the others, held at the last value"
    return caption + (f"\ny axis cut at the {cut} Tukey fence of the means" if cut else "")
