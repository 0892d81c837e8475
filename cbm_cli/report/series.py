"""The content of learning curves: the trials of each method, by line and panel."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.report.chosen import Chosen, Options
from cbm_cli.results import Metric, default_metric, fewest_effective
from cbm_cli.statistics.layout import CellSettings, Key, key_of
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
    estimates: int  # values that rest on an estimate of log Z by AIS
    doubtful: int  # those of too few effective runs
    unjudged: bool  # whether there are other estimates by AIS, whose effective runs are not known

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
        constant = [column for column in lines if len({key_of(cell, [column]) for cell in chosen.cells}) == 1]
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
    firsts = [
        (chosen.store(cell), cell["run_id"], chosen.trials(cell)["trial"].iloc[0]) for cell in chosen.cells
    ]
    frames = (read(run_id, trial) for s, run_id, trial in firsts for read in (s.curve, s.records))
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
    rows = pd.concat([chosen.trials(cell) for cell in chosen.cells])
    usual = chosen.table["metric"] or default_metric(rows)
    if options.metric or usual in known:
        return [*(options.metric or (usual,))]
    remedy = f"; --metric: {there}" if known else ""
    raise IncompleteError(f"{names}: the results hold no {usual or 'likelihood or cost'} to draw{remedy}")


def _curves(
    chosen: Chosen, cell: CellSettings, metrics: Sequence[Metric], axes: tuple[Any, Any], options: Options
) -> list[Curve]:
    """Return the curves of a cell, but those without a finite value."""
    store, rows, run_id = chosen.store(cell), chosen.trials(cell), cell["run_id"]
    frames = [[curve] for curve in store.curves(run_id, rows["trial"])]
    if any(metric.column not in frames[0][0] for metric in metrics):
        for pair, trial in zip(frames, rows["trial"], strict=True):
            pair.append(store.records(run_id, trial))
    place = _place(cell, rows, [curve for curve, *_ in frames], x_of(options, chosen.cells))
    effective = [curve["effective_sample_size"] for curve, *_ in frames if "effective_sample_size" in curve]
    unjudged = len(effective) < len(frames) and rows["evaluate_method"].iloc[0] == "ais"
    few = [one < fewest_effective(rows["evaluate_runs"].iloc[0]) for one in effective]
    lost, found = rows["diverged"].notna(), []
    for metric in metrics:
        known = [
            _Known(frame["update"].to_numpy(float), frame[metric.column].to_numpy(float), gone)
            for pair, gone in zip(frames, lost, strict=True)
            if (frame := next((f for f in pair if metric.column in f and len(f)), None)) is not None
        ]
        total = chosen.table["scale"] == "total" and metric.better
        scale = float(rows[f"n_{metric.part}"].iloc[0]) if total else 1.0
        trials = _held(known, options) * scale if known else pd.DataFrame()
        if trials.empty:
            continue
        trials.index = place(trials.index)
        low, high = options.xlim
        trials = trials.loc[slice(low, high)]
        bound = chosen.bounds.get((cell["experiment"], cell["data"])) if metric.better > 0 else None
        line, panel = (key_of({**cell, "metric": metric.column}, columns) for columns in axes)
        found.append(
            Curve(
                line,
                panel,
                cell["data"],
                metric,
                trials,
                None if bound is None else bound * scale,
                diverged=sum(one.diverged for one in known),
                stopped=sum(one.updates[-1] < trials.attrs["last"] for one in known if not one.diverged),
                gaps=trials.attrs["gaps"],
                estimates=sum(one.count() for one in effective) if metric.better > 0 else 0,
                doubtful=sum(map(sum, few)) if metric.better > 0 else 0,
                unjudged=unjudged and metric.better > 0,
            )
        )
    return [curve for curve in found if not curve.trials.empty]


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


def _place(
    cell: CellSettings, rows: pd.DataFrame, curves: Sequence[pd.DataFrame], x: str
) -> Callable[[pd.Index], pd.Index]:
    """Return where updates stand on the x axis."""
    ends = [curve["update"].iloc[-1] for curve in curves if len(curve)] or [1]
    epochs = sum(curve["epoch"].iloc[-1] for curve in curves if len(curve)) / max(sum(ends), 1)  # an update
    if x == "epochs":
        return lambda updates: updates * epochs
    if x == "seconds":
        return lambda updates: updates * (rows["seconds"].mean() / max(np.mean(ends), 1))
    if x == "gradient-steps":
        first = float(cell.get("pretraining_epochs") or 0) / epochs if epochs else 0.0
        return lambda updates: updates + first
    return lambda updates: updates
