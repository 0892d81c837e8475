"""Learning curves and records of methods, read from the trials of cells."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd

from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.report.chosen import Chosen, choose
from cbm_cli.report.ends import refuse_outside
from cbm_cli.report.lines import Curve, Curves, line_panels, summarised
from cbm_cli.report.options import Limits, Options
from cbm_cli.report.panels import Panel
from cbm_cli.report.style import LARGEST
from cbm_cli.results import Metric, Results
from cbm_cli.results.cells import Cell, Measure, mean
from cbm_cli.results.columns import key_of
from cbm_cli.results.metrics import default_metric, fewest_effective

_TIMES = ("update", "epoch")  # columns of curves that are no metric


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
    metrics = metrics_of(chosen, options)
    lines, panels = list(chosen.lines), list(chosen.panels)
    if len(metrics) > 1:
        if options.panels is None or "metric" in options.panels:
            panels.append("metric")
        else:
            lines = [*chosen.columns.varying(lines), "metric"]
    chosen.refuse_too_many(lines, "lines", metrics)
    chosen.refuse_too_many(panels, "panels", metrics)
    x = options.x or "updates"
    if not options.x and all(cell.settings.epochs for cell in chosen.cells):
        x = "epochs"  # as the grid counts trainings
    curves = []
    for cell, column in product(chosen.cells, metrics):
        measure = Measure(Metric(column), chosen.table.scale)
        curve = _curve(chosen, cell.by(measure), x, options)
        if curve is not None:
            row = {**cell.row, "metric": column}
            key, panel = key_of(row, lines), key_of(row, panels)
            curves.append(replace(curve, key=key, panel=panel))
    place = f"{chosen.names}: {', '.join(metrics)}"
    indices = [curve.trials.index for curve in curves]
    refuse_outside("x", indices, options.xlim, place)
    between = []
    for curve in curves:
        trials = _between(curve.trials, options.xlim)
        if len(trials):
            between.append(replace(curve, trials=trials))
    drawn = Curves(
        curves=between or curves,
        lines=lines,
        panels=panels,
        scale=chosen.table.scale,
        xlabel=x.replace("-", " "),
        notes=chosen.notes,
    )
    return line_panels(drawn, options)


def metrics_of(chosen: Chosen, options: Options) -> list[str]:
    """Return the metrics to draw; an error lists the columns that there are."""
    columns: dict[str, None] = {}
    for cell in chosen.cells:
        first = replace(cell, rows=cell.rows[:1])
        for frame in [*first.frames("curves"), *first.frames("records")]:
            columns |= dict.fromkeys(frame)
    metrics = [column for column in columns if column not in _TIMES]
    there = "nothing was evaluated or recorded"
    if metrics:
        there = f"there are {', '.join(metrics)}"
    for name in options.metric:
        if name not in metrics:
            raise CbmError(
                f"--metric {name}: no column of the curves or the records; {there}"
            )
    if options.metric:
        return list(options.metric)
    usual = chosen.table.metric or default_metric(chosen.rows())
    if usual in metrics:
        return [usual]
    lacking = usual or "likelihood or cost"
    message = f"{chosen.names}: the results hold no {lacking} to draw"
    raise IncompleteError(f"{message}; --metric: {there}" if metrics else message)


def _curve(chosen: Chosen, cell: Cell, x: str, options: Options) -> Curve | None:
    """Return the curve of a cell, without its keys; None without a finite value."""
    metric = cell.measure.metric
    curves, diverged = [], []
    has_diverged = cell.trials.diverged[cell.rows]
    for curve, is_lost in zip(cell.curves(), has_diverged, strict=True):
        if len(curve):
            curves.append(curve)
            diverged.append(bool(is_lost))
    if not curves:
        return None
    trials = _held(curves, diverged)
    is_too_large = (trials.abs() >= LARGEST).any()
    trials = trials.where(trials.abs() < LARGEST).dropna(how="all")
    if trials.empty:
        return None
    has_gap = is_too_large | trials.isna().any()
    ends = np.array([curve.index[-1] for curve in curves])
    is_sound = ~np.array(diverged)
    counts = {
        "diverged": sum(diverged),
        "gaps": int((has_gap & is_sound).sum()),
        "stopped": int(((ends < trials.index[-1]) & is_sound).sum()),
    }
    doubt, estimates = _doubts(cell, trials.index)
    if options.smooth > 1:
        trials = trials.apply(_running_mean, width=options.smooth)
    first, step = _steps(cell, x)
    trials.index = doubt.index = first + trials.index * step
    data = cell.settings.data.title
    bound = chosen.bounds[cell.run.experiment].get(data)
    if bound is not None and metric.better > 0:
        bound *= float(cell.scale[0])
    else:
        bound = None
    return Curve(
        key=(),
        panel=(),
        data=data,
        metric=metric,
        trials=trials,
        doubt=doubt,
        counts=counts | estimates,
        bound=bound,
        choice=chosen.choice(cell),
        start=summarised(trials.iloc[:2], options.average)["line"],
    )


def _held(curves: Sequence[pd.Series], diverged: Sequence[bool]) -> pd.DataFrame:
    """Return curves side by side; one that stopped keeps its last value, and one that
    diverged ends.
    """
    updates = np.unique(np.concatenate([curve.index for curve in curves]))
    held = []
    for curve, is_lost in zip(curves, diverged, strict=True):
        method = None if is_lost else "ffill"
        held.append(curve.reindex(updates.astype(float), method=method))
    return pd.concat(held, axis=1, keys=range(len(held)))


def _steps(cell: Cell, x: str) -> tuple[float, float]:
    """Return where the x axis has update 0, and the length of an update on it.

    Gradient steps begin after as many epochs as the pre-training of a layer, as in
    figures 14 and 17 of the paper.
    """
    curves = [curve for curve in cell.frames() if len(curve)]
    updates = [curve["update"].iloc[-1] for curve in curves] or [1]
    epochs = [curve["epoch"].iloc[-1] for curve in curves]
    epoch = sum(epochs) / max(sum(updates), 1)  # of an update
    if x == "epochs":
        return 0.0, epoch
    if x == "seconds":
        seconds = cell.trials.numbers("seconds")[cell.rows]
        return 0.0, mean(seconds) / max(np.mean(updates), 1)
    if x == "gradient-steps" and epoch:
        return cell.settings.pretraining.epochs / epoch, 1.0
    return 0.0, 1.0


def _between(trials: pd.DataFrame, ends: Limits) -> pd.DataFrame:
    """Return the part of curves between ends of the x axis, at which they have the
    value of their line.
    """
    first, last = trials.index[[0, -1]]
    inner = []
    for end in ends:
        if end is not None and first < end < last and end not in trials.index:
            inner.append(end)
    if inner:
        trials = trials.reindex(trials.index.union(inner))
        trials.loc[inner] = trials.interpolate("index").loc[inner]
    return trials.loc[slice(*ends)]


def _doubts(cell: Cell, evaluated: pd.Index) -> tuple[pd.Series, dict[str, int]]:
    """Return the share of trials whose estimates by AIS have too few effective runs,
    and their numbers.
    """
    column = "effective_sample_size"
    sizes = []
    for frame in cell.frames():
        if column in frame:
            sizes.append(frame.set_index("update")[column])
    if cell.measure.metric.better <= 0 or not sizes:
        return pd.Series(0.0, evaluated), {}
    table = pd.concat(sizes, axis=1)
    runs = cell.trials.frame["evaluate_runs"].iloc[cell.rows[0]]
    doubtful = table < fewest_effective(runs)
    counts = {
        "doubtful": int(doubtful.sum().sum()),
        "estimates": int(table.count().sum()),
        "disproved": int((table == 0).sum().sum()),
    }
    share = doubtful.sum(axis=1) / table.count(axis=1)
    return share.reindex(evaluated), counts


def _running_mean(values: pd.Series, width: float) -> pd.Series:
    """Return means over ``width`` updates around each row, in which every update weighs
    alike.

    An update between rows has the value of the nearest one. So rows that are close
    together, as in the window of a recorder, weigh no more than others.
    """
    finite = values.dropna()
    x = finite.index.to_numpy(float)
    if len(x) < 2:
        return values
    middles = (x[1:] + x[:-1]) / 2
    edges = np.concatenate([x[:1], middles, x[-1:]])
    sums = np.append(0.0, np.cumsum(finite.to_numpy() * np.diff(edges)))
    first = (x - width / 2).clip(x[0])
    last = (x + width / 2).clip(max=x[-1])
    totals = np.interp(last, edges, sums) - np.interp(first, edges, sums)
    means = pd.Series(totals / (last - first), finite.index)
    return means.reindex(values.index)
