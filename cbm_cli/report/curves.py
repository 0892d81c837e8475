"""Mean learning curves of an experiment's methods, one panel per sampler, data set or other setting."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator

from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.results import Metric, Results, default_metric, label, measured

MOST_PANELS = 24
WIDEST = 4  # panels side by side

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
DASHES: list[Any] = ["-", (0, (7, 3)), (0, (1.5, 1.5)), (0, (7, 2, 1.5, 2))]
BOUND = {"color": "#777777", "linewidth": 1.0, "linestyle": (0, (2, 2))}

# By suffix, what keeps two pictures of the same results byte for byte the same.
METADATA: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    ".svg": {"Date": None},
}

Cell = Mapping[str, Any]
Key = tuple[str, ...]


@dataclass(frozen=True)
class Curve:
    """One method in one panel.

    Attributes
    ----------
    line, panel : tuple of str
        Values of the columns that tell lines, and panels, apart.
    data : str
        Title of the data set.
    metric : Metric
    trials : DataFrame, (evaluations, trials)
        The metric, in the table's scale where it is one of likelihoods or costs, indexed by update. A trial
        that stopped early keeps its last value, one that diverged has none from there on.
    bound : float or None
        Upper bound in the same scale.
    stopped : int
        Trials that stopped early.
    """

    line: Key
    panel: Key
    data: str
    metric: Metric
    trials: pd.DataFrame
    bound: float | None
    stopped: int

    @property
    def mean(self) -> pd.Series:
        """Mean over the trials that are finite."""
        return self.trials.mean(axis=1)

    @property
    def band(self) -> tuple[pd.Series, pd.Series]:
        """Quartiles over the trials; of what was recorded, a standard deviation to both sides of the mean.

        Likelihoods and costs have quartiles because one trial that diverges would stretch a standard
        deviation beyond the picture.
        """
        if self.metric.better:
            return self.trials.quantile(0.25, axis=1), self.trials.quantile(0.75, axis=1)
        deviation = self.trials.std(axis=1, ddof=1).fillna(0)  # of a single trial
        return self.mean - deviation, self.mean + deviation


def plot_curves(
    results: Results,
    experiment: str,
    path: Path,
    *,
    select: Mapping[str, str] | None = None,
    metric: str | None = None,
) -> None:
    """Draw mean learning curves with a band over trials, and write them to a PNG, PDF or SVG file.

    Lines are the table's columns (schemes); every other setting that varies makes panels. The band
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
    manifest = results.manifest(experiment)
    cells = _selected(manifest["cells"], select)
    lines, panels = _axes(cells, manifest["table"])
    count = len({_key(cell, panels) for cell in cells})
    if count > MOST_PANELS:
        raise CbmError(
            f"{count} panels are too many to read (at most {MOST_PANELS}); "
            f"select values of {', '.join(panels)}, as in --select {panels[0]}={_text(cells[0][panels[0]])}"
        )
    reader = _Reader(results, experiment)
    reader.check_any(cells)
    shown = Metric(reader.metric(cells, metric, manifest["table"]["metric"]))
    curves = [curve for cell in cells if (curve := _curve(reader, manifest, cell, lines, panels, shown))]
    return _figure(curves, lines, panels, manifest["table"]["scale"])


# What is drawn


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else "" if value is None else str(value)


def _key(cell: Cell, columns: Iterable[str]) -> Key:
    return tuple(_text(cell[column]) for column in columns)


def _selected(cells: Sequence[Cell], select: Mapping[str, str]) -> list[Cell]:
    for column, wanted in select.items():
        if column not in cells[0]:
            near = get_close_matches(column, cells[0], n=1)
            raise CbmError(
                f"--select {column}: no such column"
                + (f"; did you mean {near[0]}?" if near else f"; there are {', '.join(cells[0])}")
            )
        values = list(dict.fromkeys(_text(cell[column]) for cell in cells))
        cells = [cell for cell in cells if _text(cell[column]) == wanted]
        if not cells:
            raise CbmError(f"--select {column}={wanted}: no such value; there are {', '.join(values)}")
    return list(cells)


def _axes(cells: Sequence[Cell], table: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Columns that tell lines apart, and as few others as tell panels apart."""
    lines = list(table["columns"])
    panels: list[str] = []
    others = [c for c in cells[0] if c not in {"run_id", *table["groups"], *table["rows"], *lines}]
    for column in [*table["groups"], *table["rows"], *others]:
        before = {_key(cell, [*lines, *panels]) for cell in cells}
        if len({_key(cell, [*lines, *panels, column]) for cell in cells}) > len(before):
            panels.append(column)
    return lines, panels


class _Reader:
    """The finished trials of an experiment, and the columns of their curves and records."""

    def __init__(self, results: Results, experiment: str) -> None:
        self.results, self.experiment = results, experiment
        self.summary = results.summary(experiment)
        if self.summary.empty:
            raise IncompleteError(f"{experiment}: no finished trial yet; start with `cbm run`")

    def rows(self, cell: Cell) -> pd.DataFrame:
        """The finished trials of a cell: rows of ``summary.csv``."""
        return self.summary[self.summary["run_id"] == cell["run_id"]]

    def check_any(self, cells: Sequence[Cell]) -> None:
        """Raise IncompleteError where none of the cells has a finished trial."""
        if all(self.rows(cell).empty for cell in cells):
            raise IncompleteError(
                f"{self.experiment}: no finished trial of what is selected; start with `cbm run`"
            )

    def metric(self, cells: Sequence[Cell], asked: str | None, of_table: str | None) -> str:
        """The metric to draw; an error that lists the columns that there are, where it is not one of them."""
        metric = asked or of_table or default_metric(measured(self.summary))
        known = list(dict.fromkeys(column for cell in cells for column in self._columns(cell)))
        if metric in known:
            return metric
        there = f"there are {', '.join(known)}" if known else "nothing was evaluated or recorded"
        if asked:
            raise CbmError(f"--metric {asked}: no column of the curves or the records; {there}")
        what = metric or "likelihood or cost"
        raise IncompleteError(
            f"{self.experiment}: the results hold no {what} to draw" + f"; --metric: {there}" * bool(known)
        )

    def _columns(self, cell: Cell) -> list[str]:
        """What the curve and the records of a cell's first finished trial hold."""
        trials = self.rows(cell)["trial"].head(1)
        frames = [frame for trial in trials for frame in self._frames(cell, trial)]
        return [column for frame in frames for column in frame if column not in ("update", "epoch")]

    def _frames(self, cell: Cell, trial: int) -> Iterator[pd.DataFrame]:
        for read in (self.results.curve, self.results.records):
            yield read(self.experiment, cell["run_id"], trial)

    def trials(self, cell: Cell, metric: str) -> tuple[pd.DataFrame, int] | None:
        """The metric by update and trial, and how many trials stopped early; None where there is none of it.

        A trial that stopped early keeps its last value, one that diverged has none.
        """
        found = [
            (self._series(cell, trial, metric), lost)
            for trial, lost in self.rows(cell).set_index("trial")["diverged"].notna().items()
        ]
        known = [(one, lost) for one, lost in found if one is not None]
        if not known:
            return None
        updates = sorted({update for one, _ in known for update in one.index})
        held = [one.reindex(updates, method=None if lost else "ffill") for one, lost in known]
        return pd.concat(held, axis=1), sum(len(one) < len(updates) for one, lost in known if not lost)

    def _series(self, cell: Cell, trial: int, metric: str) -> pd.Series | None:
        frames = (frame for frame in self._frames(cell, trial) if metric in frame)
        return next((frame.set_index("update")[metric] for frame in frames), None)


def _curve(
    reader: _Reader,
    manifest: Mapping[str, Any],
    cell: Cell,
    lines: Sequence[str],
    panels: Sequence[str],
    metric: Metric,
) -> Curve | None:
    """The curve of a cell, or None where it has no finished trial in which the metric was measured."""
    found = reader.trials(cell, metric.column)
    if found is None:
        return None
    trials, stopped = found
    total = manifest["table"]["scale"] == "total" and metric.better
    scale = float(reader.rows(cell)[f"n_{metric.part}"].iloc[0]) if total else 1.0
    finite = trials.where(np.isfinite(trials)).dropna(how="all") * scale
    bound = (manifest.get("upper_bounds") or {}).get(cell["data"]) if metric.better > 0 else None
    scaled = None if bound is None else bound * scale
    return Curve(_key(cell, lines), _key(cell, panels), cell["data"], metric, finite, scaled, stopped)


# How it is drawn


Look = Mapping[str, Any]  # colour and dashes of one method, in every panel, as Matplotlib names them


@dataclass(frozen=True)
class Limits:
    """Ends of a y axis, and the Tukey fence at which it is cut: lower, upper or none."""

    low: float
    high: float
    cut: str = ""


def _figure(curves: Sequence[Curve], lines: Sequence[str], panels: Sequence[str], scale: str) -> Figure:
    keys = _in_order(curve.panel for curve in curves)
    width = _width(keys)
    height = -(-len(keys) // width)
    limits = {data: _limits([c for c in curves if c.data == data]) for data in {c.data for c in curves}}
    figure = Figure(figsize=(max(0.8 + 2.9 * width, 5.0), 1.3 + 2.5 * height), layout="constrained")
    grid = figure.subplots(height, width, squeeze=False, sharey=len(limits) == 1).ravel()
    looks = _looks(list(dict.fromkeys(curve.line for curve in curves)), lines)
    for axes, key in zip(grid, keys, strict=False):
        shown = [curve for curve in curves if curve.panel == key]
        _panel(axes, shown, looks, limits[shown[0].data])
        axes.set_title(", ".join(map(_named, panels, key)), fontsize=10)
    for axes in grid[len(keys) :]:
        axes.set_visible(False)
    for axes in grid[max(0, len(keys) - width) : len(keys)]:
        axes.set_xlabel("updates", fontsize=10)
    figure.supylabel(_measure(curves[0].metric, scale), fontsize=10)
    _legend(figure, curves, lines, looks, next((it.cut for it in limits.values() if it.cut), ""))
    return figure


def _measure(metric: Metric, scale: str) -> str:
    """The y axis in words, with its unit or scale."""
    unit = scale.replace("-", " ") if metric.better else "degrees" if metric.name.startswith("angle ") else ""
    return f"{metric.part} {metric.name}".strip() + f" ({unit})" * bool(unit)


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
    """Panels side by side: one row for a few, else the last column's values across where they fit."""
    across = len({key[-1:] for key in keys})
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
        variants.setdefault(key[place].partition("^")[0].partition("_")[0], []).append(key)
    spare = [colour for colour in OTHER_COLOURS if colour not in {COLOURS.get(it) for it in variants}]
    looks = {}
    for letters, family in variants.items():
        colour = COLOURS.get(letters) or (spare.pop(0) if spare else "#999999")
        looks |= {
            key: {"color": colour, "linestyle": DASHES[i % len(DASHES)]} for i, key in enumerate(family)
        }
    return looks


def _named(column: str, value: str) -> str:
    """A setting in a title or the legend: methods and data by their label, numbers with their name."""
    if column == "offsets":
        return f"${label(column, value, 'latex')}$"
    if column == "sampler":
        return label(column, value, "latex")
    name = {"learning_rate": r"$\eta$ =", "data": "", "init": "init"}.get(column, column.replace("_", " "))
    return f"{name} {value}".strip()


def _legend(
    figure: Figure, curves: Sequence[Curve], lines: Sequence[str], looks: Mapping[Key, Look], cut: str
) -> None:
    handles = [
        Line2D([], [], **look, linewidth=1.8, label=" ".join(map(_named, lines, key)))
        for key, look in looks.items()
    ]
    if any(curve.bound is not None for curve in curves):
        handles.append(Line2D([], [], **BOUND, label="upper bound"))
    legend = figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=min(len(handles), 6),
        frameon=False,
        handlelength=2.8,
        fontsize=10,
        title=_caption(curves, cut),
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
        caption += f"; {stopped} stopped early, from there on at the last value"
    return caption + (f"\ny axis cut at the {cut} Tukey fence of the means" if cut else "")
