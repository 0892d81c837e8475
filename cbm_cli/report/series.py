"""The content of learning curves: the trials of each method, by line and panel."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.report.chosen import Chosen, Options
from cbm_cli.results import ESTIMATES, Metric, default_metric, fewest_effective
from cbm_cli.results.cells import Cell, Measure, mean
from cbm_cli.results.inventory import CellSettings
from cbm_cli.results.selection import Key, key_of
from cbm_cli.text import text_of

NORMS = r"(weight|visible_bias|hidden_bias)(_row|_column)?_norm"
PRESETS = {"norms": NORMS, "offsets": r"lam_\d+|(visible|hidden)_offset_error", "angles": r"angle_.*"}
_RECORDERS = {
    "norms": "weight_norms+bias_norms",
    "offsets": "offset_values+offset_error",
    "angles": "gradient_angles",
}
_TIMES = ("update", "epoch")


@dataclass(frozen=True)
class Curve:
    """One method in one panel."""

    key: Key  # values of the columns that tell lines apart
    panel: Key
    data: str  # title of the data set
    metric: Metric
    # (evaluations, trials), indexed by the x axis; likelihoods and costs in the table's scale. A trial that
    # stopped early keeps its last value, one that diverged has none from there on.
    trials: pd.DataFrame
    bound: float | None  # upper bound in the same scale
    diverged: int  # trials that diverged
    stopped: int  # trials that stopped before others
    gaps: int  # other trials without a finite value at some updates
    estimates: int = 0  # values that rest on an estimate of log Z by AIS
    doubtful: int = 0  # those of too few effective runs
    unjudged: bool = False  # whether there are other estimates by AIS, whose effective runs are not known

    @property
    def mean(self) -> pd.Series:
        """Mean over the trials that are finite."""
        return self.trials.mean(axis=1)

    def line(self, kind: str | None) -> pd.Series:
        """Return what lies within a band: the median between quartiles, else the mean."""
        return self.trials.median(axis=1) if kind == "quartiles" else self.mean

    def band(self, kind: str | None) -> tuple[pd.Series, pd.Series]:
        """Return the ends of a band over the trials."""
        if kind == "quartiles":
            return self.trials.quantile(0.25, axis=1), self.trials.quantile(0.75, axis=1)
        if kind == "trials":
            return self.trials.min(axis=1), self.trials.max(axis=1)
        if kind == "none":
            return self.mean, self.mean
        half = self.trials.std(axis=1, ddof=1).fillna(0)  # of a single trial
        half /= np.sqrt(self.trials.count(axis=1)) if kind == "sem" else 1
        return self.mean - half, self.mean + half


@dataclass(frozen=True)
class Curves:
    """Everything that the panels show."""

    curves: list[Curve]
    lines: list[str]  # columns whose values name the lines
    panels: list[str]
    scale: str


def read_curves(chosen: Chosen, options: Options, preset: str | None = None) -> Curves:
    """Read the curves of metrics, by default the table's, or those of a preset.

    Raises
    ------
    CbmError
        Unknown metric.
    IncompleteError
        Nothing was evaluated or recorded, or has no finite value.
    """
    metrics = metrics_of(chosen, options, preset)
    lines, panels = [*chosen.lines], [*chosen.panels]
    if len(metrics) > 1:
        constant = [c for c in lines if len({key_of(settings, [c]) for settings in chosen.settings}) == 1]
        lines = [column for column in lines if column not in constant] if options.overlay else lines
        (lines if options.overlay else panels).append("metric")
    found = [
        curve
        for cell in chosen.cells
        for curve in _curves(chosen, cell, [*map(Metric, metrics)], (lines, panels), options)
    ]
    if not found:
        raise IncompleteError(f"{', '.join(chosen.stores)}: {', '.join(metrics)} has no finite value to draw")
    return Curves(found, lines, panels, chosen.table["scale"])


def metrics_of(chosen: Chosen, options: Options, preset: str | None = None) -> list[str]:
    """Return the metrics to draw; an error lists the columns that there are."""
    firsts = [replace(cell, rows=cell.rows[:1]) for cell in chosen.cells]
    frames = (frame for first in firsts for kind in ("curves", "records") for frame in first.frames(kind))
    known = dict.fromkeys(c for frame in frames for c in frame if c not in _TIMES)
    there = f"there are {', '.join(known)}" if known else "nothing was evaluated or recorded"
    for name in options.metric:
        if name not in known:
            raise CbmError(f"--metric {name}: no column of the curves or the records; {there}", "unknown")
    names = ", ".join(chosen.stores)
    if preset and not options.metric:
        metrics = [column for column in known if re.fullmatch(PRESETS[preset], column)]
        if not metrics:
            remedy = f"run with `record: {_RECORDERS[preset]}`, or name a column by --metric"
            raise IncompleteError(f"{names}: no {preset} were recorded; {remedy}; {there}")
        return metrics
    usual = chosen.table["metric"] or default_metric(chosen.rows())
    if options.metric or usual in known:
        return [*(options.metric or (usual,))]
    remedy = f"; --metric: {there}" if known else ""
    raise IncompleteError(f"{names}: the results hold no {usual or 'likelihood or cost'} to draw{remedy}")


def _curves(
    chosen: Chosen, cell: Cell, metrics: Sequence[Metric], axes: tuple[Any, Any], options: Options
) -> list[Curve]:
    """Return the curves of a cell, but those without a finite value."""
    place, settings = _place(cell, x_of(options, chosen.settings)), cell.settings
    found = []
    for metric in metrics:
        own = cell.measured(Measure(metric, chosen.table["scale"]))
        lost = own.trials.diverged[own.rows]
        curves = zip(own.curves(), lost, strict=True)
        known = [
            _Known(one.index.to_numpy(float), one.to_numpy(float), gone) for one, gone in curves if len(one)
        ]
        trials = _held(known, options) if known else pd.DataFrame()
        if trials.empty:
            continue
        trials.index = place(trials.index)
        trials = trials.loc[slice(*options.xlim)]
        bound = chosen.bounds.get((settings["experiment"], settings["data"])) if metric.better > 0 else None
        line, panel = (key_of({**settings, "metric": metric.column}, columns) for columns in axes)
        found.append(
            Curve(
                line,
                panel,
                settings["data"],
                metric,
                trials,
                None if bound is None else bound * float(own.scale[0]),
                diverged=sum(one.diverged for one in known),
                stopped=sum(one.updates[-1] < trials.attrs["last"] for one in known if not one.diverged),
                gaps=trials.attrs["gaps"],
                **(_doubts(cell) if metric.better > 0 else {}),
            )
        )
    return [curve for curve in found if not curve.trials.empty]


def _doubts(cell: Cell) -> dict[str, Any]:
    """Return how many values of a cell rest on estimates of log Z, and how many are doubtful."""
    frames, runs = cell.frames(), cell.trials.frame["evaluate_runs"].iloc[cell.rows[0]]
    effective = [curve["effective_sample_size"] for curve in frames if "effective_sample_size" in curve]
    estimated = cell.trials.frame["evaluate_method"].iloc[cell.rows[0]] in ESTIMATES
    return {
        "estimates": sum(one.count() for one in effective),
        "doubtful": sum(int((one < fewest_effective(runs)).sum()) for one in effective),
        "unjudged": len(effective) < len(frames) and estimated,
    }


class _Known(NamedTuple):
    """What is known of a metric in one trial."""

    updates: NDArray[np.float64]  # ascending
    values: NDArray[np.float64]
    diverged: bool

    def at(self, updates: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the values at other updates: the last one before, of a diverged trial none at its end."""
        if len(updates) == len(self.updates):
            return self.values
        place = np.searchsorted(self.updates, updates, side="right") - 1
        there = (self.updates[place] == updates) if self.diverged else place >= 0
        return np.where(there, self.values[place], np.nan)


def _held(known: Sequence[_Known], options: Options) -> pd.DataFrame:
    """Return finite values (evaluations, trials); trials that stopped hold their last value."""
    updates = np.unique(np.concatenate([one.updates for one in known]))
    values = np.column_stack([one.at(updates) for one in known])
    trials = pd.DataFrame(np.where(np.isfinite(values), values, np.nan), index=updates).dropna(how="all")
    lost = np.array([one.diverged for one in known])
    gaps = int((trials.isna().any().to_numpy() & ~lost).sum())
    if options.smooth > 1:
        trials = trials.apply(_running_mean, width=options.smooth)
    trials.attrs |= {"gaps": gaps, "last": updates[-1]}
    return trials


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


def band_of(options: Options, metrics: Iterable[Metric]) -> str:
    """Return the band to draw: by default quartiles, since one far trial stretches a standard deviation.

    Records are shown with the standard deviation.
    """
    return options.band or ("quartiles" if all(metric.better for metric in metrics) else "std")


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
