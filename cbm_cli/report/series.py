"""The content of learning curves: the trials of each method, by line and panel."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.report.chosen import Chosen, Options
from cbm_cli.results import Metric, default_metric, fewest_effective
from cbm_cli.results.cells import Cell, Measure, mean
from cbm_cli.results.inventory import CellSettings
from cbm_cli.results.selection import Key, key_of
from cbm_cli.text import text_of

# kind of picture -> the columns that it shows, and the recorders of these
PRESETS = {
    "norms": (r"(weight|visible_bias|hidden_bias)(_row|_column)?_norm", "weight_norms+bias_norms"),
    "offsets": (r"lam_\d+|(visible|hidden)_offset_error", "offset_values+offset_error"),
    "angles": (r"angle_.*", "gradient_angles"),
}


@dataclass(frozen=True)
class Curve:
    """One method in one panel."""

    key: Key  # values of the columns that tell lines apart
    panel: Key
    data: str  # title of the data set
    metric: Metric
    # (points, trials), indexed by the x axis; likelihoods and costs in the table's scale. A trial that
    # stopped early keeps its last value, one that diverged has none from there on.
    trials: pd.DataFrame
    # trials that diverged, have gaps or stopped before others; estimates by AIS, those of too few effective
    # runs (doubtful), and whether the effective runs of some are not known (unjudged)
    counts: Mapping[str, int] = field(default_factory=dict)
    bound: float | None = None  # upper bound in the same scale
    doubt: pd.Series | None = None  # share of the trials whose estimate is doubtful, (points,)

    def line(self, average: str) -> pd.Series:
        """Return the mean or the median of the trials."""
        return summarised(self.trials, average)["line"]


def summarised(trials: pd.DataFrame, average: str) -> pd.DataFrame:
    """Return a line over trials (points, trials) and the ends of its band, as low, line and high.

    The ``median`` lies between quartiles, the ``mean`` between mean ± a standard deviation.
    """
    if average == "mean":
        line, half = trials.mean(axis=1), trials.std(axis=1).fillna(0)  # of a single trial
        return pd.DataFrame({"low": line - half, "line": line, "high": line + half})
    shares = {"low": 0.25, "line": 0.5, "high": 0.75}
    return pd.DataFrame({name: trials.quantile(share, axis=1) for name, share in shares.items()})


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
    log: bool = False  # the x axis


def read_curves(chosen: Chosen, options: Options, preset: str | None = None) -> Curves:
    """Read the curves of metrics, by default the table's, or those of a preset.

    Raises
    ------
    CbmError
        Unknown metric.
    IncompleteError
        Nothing was evaluated or recorded, or has no finite value.
    """
    metrics, x = metrics_of(chosen, options, preset), x_of(options, chosen.settings)
    lines, panels = [*chosen.lines], [*chosen.panels]
    if len(metrics) > 1 and (options.panels is None or "metric" in options.panels):
        panels.append("metric")
    elif len(metrics) > 1:
        lines = [c for c in lines if len({key_of(settings, [c]) for settings in chosen.settings}) > 1]
        lines.append("metric")
    found = [
        curve
        for cell in chosen.cells
        for metric in map(Metric, metrics)
        if (curve := _curve(chosen, cell.measured(Measure(metric, chosen.table["scale"])), x, options))
    ]
    if not found:
        raise IncompleteError(f"{', '.join(chosen.stores)}: {', '.join(metrics)} has no finite value to draw")
    curves = [
        replace(curve, key=key_of(settings, lines), panel=key_of(settings, panels))
        for settings, curve in found
    ]
    return Curves(curves, lines, panels, chosen.table["scale"], x.replace("-", " "), chosen.notes)


def metrics_of(chosen: Chosen, options: Options, preset: str | None = None) -> list[str]:
    """Return the metrics to draw; an error lists the columns that there are."""
    firsts = [replace(cell, rows=cell.rows[:1]) for cell in chosen.cells]
    frames = (frame for first in firsts for kind in ("curves", "records") for frame in first.frames(kind))
    known = dict.fromkeys(c for frame in frames for c in frame if c not in ("update", "epoch"))
    there = f"there are {', '.join(known)}" if known else "nothing was evaluated or recorded"
    for name in options.metric:
        if name not in known:
            raise CbmError(f"--metric {name}: no column of the curves or the records; {there}", "unknown")
    names = ", ".join(chosen.stores)
    if preset and not options.metric:
        pattern, recorders = PRESETS[preset]
        metrics = [column for column in known if re.fullmatch(pattern, column)]
        if not metrics:
            remedy = f"run with `record: {recorders}`, or name a column by --metric"
            raise IncompleteError(f"{names}: no {preset} were recorded; {remedy}; {there}")
        return metrics
    usual = chosen.table["metric"] or default_metric(chosen.rows())
    if options.metric or usual in known:
        return [*(options.metric or (usual,))]
    remedy = f"; --metric: {there}" if known else ""
    raise IncompleteError(f"{names}: the results hold no {usual or 'likelihood or cost'} to draw{remedy}")


def _curve(chosen: Chosen, cell: Cell, x: str, options: Options) -> tuple[CellSettings, Curve] | None:
    """Return the curve of a cell, and its settings with the metric; None without a finite value."""
    curves = zip(cell.curves(), cell.trials.diverged[cell.rows], strict=True)
    known = [(curve, bool(lost)) for curve, lost in curves if len(curve)]
    trials, metric, settings = _held(known), cell.measure.metric, cell.settings
    if trials.empty:
        return None
    holes = trials.isna().any().to_numpy() & ~np.array([lost for _, lost in known])
    counts = {"diverged": sum(lost for _, lost in known), "gaps": int(holes.sum())}
    counts["stopped"] = sum(curve.index[-1] < trials.index[-1] for curve, lost in known if not lost)
    doubt = None
    if metric.better > 0:
        doubt, of_ais = _doubts(cell)
        counts |= of_ais
    if options.smooth > 1:
        trials = trials.apply(_running_mean, width=options.smooth)
    place = _place(cell, x)
    trials.index = place(trials.index)
    trials = trials.loc[slice(*options.xlim)]
    if trials.empty:
        return None
    if doubt is not None:
        doubt = doubt.set_axis(place(doubt.index)).reindex(trials.index).fillna(0)
    bound = chosen.bounds.get((settings["experiment"], settings["data"])) if metric.better > 0 else None
    scaled = None if bound is None else bound * float(cell.scale[0])
    return {**settings, "metric": metric.column}, Curve(
        (), (), settings["data"], metric, trials, counts, scaled, doubt
    )


def _held(known: Sequence[tuple[pd.Series, bool]]) -> pd.DataFrame:
    """Return finite values (updates, trials); trials that stopped hold their last value, if not diverged."""
    if not known:
        return pd.DataFrame()
    updates = np.unique(np.concatenate([curve.index for curve, _ in known])).astype(float)
    held = [curve.reindex(updates, method=None if lost else "ffill") for curve, lost in known]
    trials = pd.concat(held, axis=1, keys=range(len(held)))
    return trials.replace([np.inf, -np.inf], np.nan).dropna(how="all")


def _doubts(cell: Cell) -> tuple[pd.Series | None, dict[str, int]]:
    """Return the share of trials whose estimates by AIS have too few effective runs, and their numbers."""
    row, frames = cell.trials.frame.iloc[cell.rows[0]], cell.frames()
    known = [frame.set_index("update") for frame in frames if "effective_sample_size" in frame]
    if not known:
        return None, {"unjudged": int(row["evaluate_method"] == "ais")}
    sizes = pd.concat([frame["effective_sample_size"] for frame in known], axis=1)
    doubtful = sizes < fewest_effective(row["evaluate_runs"])
    counts = {"doubtful": int(doubtful.sum().sum()), "estimates": int(sizes.count().sum())}
    counts["disproved"] = int((sizes == 0).sum().sum())
    unjudged = int(row["evaluate_method"] == "ais" and len(known) < len(frames))
    return doubtful.sum(axis=1) / sizes.count(axis=1), counts | {"unjudged": unjudged}


def _running_mean(values: pd.Series, width: float) -> pd.Series:
    """Return means over ``width`` updates around each row, in which every update weighs alike.

    An update between rows has the value of the nearest one. So rows that stand close together, as in the
    window of a recorder, weigh no more than others.
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


def x_of(options: Options, cells: Sequence[CellSettings]) -> str:
    """Return the x axis: by default what the grid counts trainings in, epochs or updates."""
    return options.x or ("epochs" if all(text_of(cell.get("epochs")) for cell in cells) else "updates")


def _place(cell: Cell, x: str) -> Callable[[pd.Index], pd.Index]:
    """Return where updates stand on the x axis."""
    curves = [curve for curve in cell.frames() if len(curve)]
    ends = [curve["update"].iloc[-1] for curve in curves] or [1]
    epochs = sum(curve["epoch"].iloc[-1] for curve in curves) / max(sum(ends), 1)  # an update
    if x == "epochs":
        return lambda updates: updates * epochs
    if x == "seconds":
        seconds = mean(cell.trials.numbers("seconds")[cell.rows])
        return lambda updates: updates * (seconds / max(np.mean(ends), 1))
    if x == "gradient-steps":
        first = float(cell.settings.get("pretraining_epochs") or 0) / epochs if epochs else 0.0
        return lambda updates: updates + first
    return lambda updates: updates
