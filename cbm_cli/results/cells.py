"""Cells: the trials of one method at one setting, and every number about them.

Tables, marks, pictures, pages, comparisons with the paper, ``cbm best`` and Python read
cells and nothing else, so that a value is the same wherever it is shown.
"""

import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli.choices import STATISTICS
from cbm_cli.errors import CbmError
from cbm_cli.grid.settings import Settings, TableSpec
from cbm_cli.results.columns import Columns, Key, Row, key_of
from cbm_cli.results.journal import Manifest, Run
from cbm_cli.results.metrics import (
    Metric,
    believed,
    default_metric,
    fewest_effective,
    measured,
    valid_metric,
)
from cbm_cli.results.reader import Store
from cbm_cli.text import did_you_mean

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]
# How the values of cbm evaluate were made, in words; {} is the value
FACTS = {"temperatures": "{} temperatures", "runs": "{} runs", "rows": "{} rows"}
FACTS |= {"seed": "seed {}", "version": "{}"}
MAX_OF_MEAN = "max-of-mean"  # the statistic that rests on curves


class Measure(NamedTuple):
    """What is told of trials."""

    metric: Metric
    scale: str = (
        "per-sample"  # or total: nats per row times the rows of the metric's part
    )
    statistic: str = "max"  # one of `STATISTICS`; of costs the best is the minimum


class Picked(NamedTuple):
    """The chosen settings of a cell, and the measure that decided."""

    values: Row
    measure: Measure
    mean: float  # of the measure
    complete: bool  # whether all trials of all values are there
    at_end: bool  # whether it is the lowest or the highest of three numbers or more


class Trials:
    """Finished trials of an experiment, the rows of ``summary.csv``, and the files of
    these trials.

    Attributes
    ----------
    frame : DataFrame
        The summary.
    numbers : callable
        Returns a column of it; NaN where it is missing.
    read : callable
        Returns ``curves`` or ``records`` of trials of a run: kind, run-id, numbers.
    diverged : array of bool
        Whether parameters were not finite any more.
    """

    def __init__(self, frame: "pd.DataFrame", store: Store) -> None:
        self.frame, self.store = frame, store
        self.numbers = cache(self._numbers)
        self.read = lru_cache(2)(self._read)
        self.diverged = ~np.isnan(self.numbers("diverged"))

    def _numbers(self, name: str) -> Floats:
        if name in self.frame:
            return self.frame[name].to_numpy(float)
        return np.full(len(self.frame), np.nan)

    def _read(self, kind: str, *trials: Any) -> "list[pd.DataFrame]":
        return getattr(self.store, kind)(*trials)


class AtBestMean(NamedTuple):
    """Values of trials at the evaluation where their mean is best."""

    values: Floats
    limits: Floats  # proved ones; NaN where there are none
    update: float


@dataclass(frozen=True, eq=False)
class Cell:
    """The finished trials of one run, and statistics of them, in the scale and
    statistic of a table.

    Trials in which the metric was not measured are left out, unless they diverged.
    """

    run: Run  # its settings, and the name of its trials
    trials: Trials
    rows: NDArray[np.intp]  # of the finished trials among all
    measure: Measure
    planned: int = 0  # trials that the experiment asks for
    choice: Picked | None = None  # of settings of which it shows the best values

    def by(self, measure: Measure) -> "Cell":
        """Return the same trials by another measure."""
        return replace(self, measure=measure)

    @property
    def run_id(self) -> str:
        """The name of its trials."""
        return self.run.run_id

    @property
    def settings(self) -> Settings:
        """Its settings, typed."""
        return self.run.settings

    @property
    def row(self) -> Row:
        """Its settings by column of ``summary.csv``; all cells have the same."""
        return self.run.row

    @property
    def chosen(self) -> Key:
        """The values of settings that were chosen, as text."""
        return key_of(self.choice.values, self.choice.values) if self.choice else ()

    @property
    def evaluated(self) -> bool:
        """Whether the metric is of the final machine, by ``cbm evaluate``."""
        return is_evaluated(self.trials.frame, self.measure.metric)

    # One number for each finished trial

    def _column(self, name: str) -> Floats:
        return self.trials.numbers(name)[self.rows]

    @cached_property
    def scale(self) -> Floats:
        """The factor for nats per row."""
        metric = self.measure.metric
        if self.measure.scale == "total" and metric.better:
            return self._column(f"n_{metric.part}")
        return np.ones(len(self.rows))

    def _of_all(self, statistic: str) -> Floats:
        if statistic == MAX_OF_MEAN:
            return self._capped(self._at_best_mean.values)
        metric = self.measure.metric
        values = self._column(statistic_column(self.trials.frame, metric, statistic))
        if self.evaluated:
            limits = self._column(self._limit)
            values = np.where(self._flagged & (values > limits), limits, values)
        return self._capped(values * self.scale)

    def _capped(self, values: Any) -> Any:
        """Values, with 0 in place of a log-likelihood above 0: no p(x) exceeds 1."""
        if self.measure.metric.better <= 0:
            return values
        return np.where(np.isfinite(values), np.fmin(values, 0.0), values)

    @property
    def _flagged(self) -> Booleans:
        """Which estimates of `cbm evaluate` are doubtful."""
        method = self.measure.metric.column.rpartition("_")[2]
        return self._column(f"{method}_doubtful") > 0

    @property
    def _limit(self) -> str:
        """The column with the proved limit of the value."""
        metric = self.measure.metric
        if self.evaluated:
            quantity, _, method = metric.column.rpartition("_")
            return f"{Metric(quantity).at_most}_{method}"
        statistic = self.measure.statistic.replace("-", "_")
        return f"{metric.at_most}_{statistic}"

    @property
    def _moment(self) -> str:
        """The column with the updates of the best values."""
        frame, metric = self.trials.frame, self.measure.metric
        if self.measure.statistic == "best-valid":
            metric = Metric(valid_metric(measured(frame)) or metric.column)
        best = statistic_column(frame, metric, "max")
        return f"{best}_update"

    @cached_property
    def _at_best_mean(self) -> AtBestMean:
        """What the trials have where their mean is best.

        The values are those of kept columns, which have no limits, or of curves. A
        trial that stopped early keeps its last value. Evaluations from a trial's
        divergence on do not count, unless it never had a finite value.
        """
        import pandas as pd

        metric = self.measure.metric
        kept = f"{metric.column}_max_of_mean"
        values = self._column(kept)
        unknown = np.full(len(values), np.nan)
        if not np.isnan(values).all() or not len(self.rows):
            update = mean(self._column(f"{kept}_update"))
            return AtBestMean(values * self.scale, unknown, update)
        # the untrained machine does not count
        curves = [curve.iloc[1:] for curve in self.curves()]
        if any(curve.empty for curve in curves):
            return AtBestMean(unknown, unknown, np.nan)
        together = pd.concat(curves, axis=1).sort_index()
        together = together.replace([np.inf, -np.inf], np.nan)
        has_diverged = self.trials.diverged[self.rows]
        held = np.where(has_diverged, together, together.ffill())
        means = held[:, np.isfinite(held).any(axis=0)].mean(axis=1)
        if not np.isfinite(means).any():
            return AtBestMean(unknown, unknown, np.nan)
        best = int(np.nanargmax(metric.better * means))
        update = float(together.index[best])
        limits_at_best = []
        for curve in self.frames():
            by_update = curve.set_index("update").reindex(columns=[metric.at_most])
            limits_at_best.append(by_update[metric.at_most].asof(update))
        limits = np.array(limits_at_best, float) * self.scale
        return AtBestMean(held[best], limits, update)

    # One number for each trial that counts

    @cached_property
    def known(self) -> NDArray[np.intp]:
        """Places among the rows of the trials that count."""
        value = self._of_all(self.measure.statistic)
        return np.flatnonzero(~np.isnan(value) | self.trials.diverged[self.rows])

    def _of_known(self, column: str) -> Floats:
        return self._column(column)[self.known]

    @property
    def stopped(self) -> Booleans:
        """Whether the parameters of each trial were not finite any more."""
        return self.trials.diverged[self.rows[self.known]]

    @cached_property
    def final(self) -> Floats:
        """The last value."""
        return self._of_all("final")[self.known]

    @cached_property
    def value(self) -> Floats:
        """The value that the table shows."""
        return self._of_all(self.measure.statistic)[self.known]

    @property
    def values(self) -> dict[int, float]:
        """The value that the table shows, by trial."""
        trials = self._of_known("trial").astype(int).tolist()
        return dict(zip(trials, self.value.tolist(), strict=True))

    @cached_property
    def bounded(self) -> Booleans:
        """Whether the value of each trial is a limit, proved or 0, in place of an
        estimate above it.
        """
        limits = self._column(self._limit) * self.scale
        if self.measure.statistic == MAX_OF_MEAN and not self.evaluated:
            limits = self._at_best_mean.limits
        is_limit = (self.value == limits[self.known]) | self.impossible
        return is_limit & np.isfinite(self.value)

    @cached_property
    def impossible(self) -> Booleans:
        """Whether the value of each trial is 0, in place of an estimate that no
        log-likelihood can be.
        """
        return (self.value == 0) & (self.measure.metric.better > 0)

    @cached_property
    def doubts(self) -> Booleans:
        """Whether the last estimate of log Z of each trial rests on few runs of AIS, or
        is disproved.
        """
        if self.evaluated:
            return self._flagged[self.known]
        effective = self._of_known("effective_sample_size_final")
        few = effective < fewest_effective(self._of_known("evaluate_runs"))
        return few | ((self.final == 0) & (self.measure.metric.better > 0))

    @property
    def epochs(self) -> Floats:
        """The epoch of the lowest cost, or validation cost, of the trials that did not
        diverge.
        """
        rows = self._of_known("n_train")
        batch = rows
        if self.settings.batch != "full":
            batch = np.fmin(self.settings.batch, rows)
        updates = self._of_known(self._moment) / (rows // batch)
        return updates[~self.stopped]

    @property
    def made(self) -> Counter[str]:
        """How values by ``cbm evaluate`` were made, in words, and in how many
        trials.
        """
        method = self.measure.metric.column.rpartition("_")[2]
        columns = [f"{method}_{fact}" for fact in FACTS]
        facts = self.trials.frame.reindex(columns=columns)
        ways: Counter[str] = Counter()
        for trial in facts.iloc[self.rows[self.known]].to_numpy(object):
            parts = []
            for words, fact in zip(FACTS.values(), trial, strict=True):
                if isinstance(fact, str):
                    parts.append(words.format(fact))
                elif not np.isnan(fact):
                    parts.append(words.format(f"{int(fact):,}"))
            ways[", ".join(parts)] += 1
        return ways

    # One number for the cell

    @cached_property
    def n(self) -> int:
        """Finished trials that count, diverged ones included."""
        return len(self.known)

    @property
    def finished(self) -> int:
        """Finished trials, those in which the metric was not measured included."""
        return len(self.rows)

    @property
    def complete(self) -> bool:
        """Whether every planned trial is finished."""
        return self.finished >= self.planned

    @property
    def partial(self) -> bool:
        """Whether the metric was measured in some of the finished trials only."""
        return 0 < self.n < self.finished

    @cached_property
    def mean(self) -> float:
        """Mean of the finite values; NaN if there is none."""
        return mean(self.value)

    @cached_property
    def std(self) -> float:
        """Standard deviation (n - 1 in the denominator) of the finite values; NaN for
        fewer than two.
        """
        values = finite(self.value)
        return float(values.std(ddof=1)) if len(values) > 1 else np.nan

    @property
    def learned(self) -> bool:
        """Whether training gained more than trials differ; True where that is unknown.

        The gain is the mean of the values less that of the untrained machines.
        """
        metric = self.measure.metric
        start = mean(self._of_known(f"{metric.column}_start") * self.scale[self.known])
        gain = metric.better * (self.mean - start)
        return math.isnan(gain - self.std) or gain > self.std

    @property
    def best_update(self) -> float:
        """Mean update of the best value, or of the best validation value where the
        statistic rests on it.
        """
        if self.measure.statistic == MAX_OF_MEAN:
            return self._at_best_mean.update
        return mean(self._of_known(self._moment))

    @cached_property
    def diverged(self) -> int:
        """Trials with non-finite parameters or a non-finite value."""
        return int((self.stopped | ~np.isfinite(self.value)).sum())

    # Curves

    def frames(self, kind: str = "curves") -> "list[pd.DataFrame]":
        """Return the curves or the ``records`` of the finished trials as written, in
        nats per row.
        """
        numbers = tuple(self._column("trial").astype(int))
        return self.trials.read(kind, self.run_id, numbers)

    def curves(self) -> "list[pd.Series]":
        """Return the metric of each finished trial by update, from its curve or else
        its records.

        A disproved estimate is replaced by its limit; values that were not measured are
        empty.
        """
        column = self.measure.metric.column
        frames = [*self.frames()]
        if any(column not in frame for frame in frames):
            for place, records in enumerate(self.frames("records")):
                if column not in frames[place]:
                    frames[place] = records
        curves = []
        for frame, scale in zip(frames, self.scale, strict=True):
            if column not in frame:
                frame = frame.iloc[:0].assign(**{column: 0.0})
            shown = self._capped(believed(column, frame)) * scale
            curves.append(frame.assign(shown=shown).set_index("update")["shown"])
        return curves


def finite(values: Floats) -> Floats:
    """Return the finite values."""
    return values[np.isfinite(values)]


def mean(values: Floats) -> float:
    """Return the mean of the finite values; NaN if there is none."""
    values = finite(values)
    return float(values.mean()) if len(values) else np.nan


def statistic_column(columns: Container[str], metric: Metric, statistic: str) -> str:
    """Return the column of ``summary.csv`` with a statistic; the best of a cost is its
    minimum.
    """
    if f"{metric.column}_final" not in columns:
        return metric.column
    if statistic == "max" and metric.better < 0:
        return f"{metric.column}_min"
    return f"{metric.column}_{statistic.replace('-', '_')}"


# The cells of an experiment


@dataclass(frozen=True)
class Cells:
    """The cells that an experiment asks for, in the order of its grid."""

    manifest: Manifest
    trials: Trials
    measure: Measure
    cells: Sequence[Cell]

    def __iter__(self) -> Iterator[Cell]:
        return iter(self.cells)

    @property
    def columns(self) -> Columns:
        """The columns of the cells, but for those that are chosen in each."""
        return columns_of_cells(self.cells)


def columns_of_cells(cells: Iterable[Cell]) -> Columns:
    """Return the columns of cells, but for those that are chosen in each."""
    cells = list(cells)
    chosen: set[str] = set()
    for cell in cells:
        if cell.choice:
            chosen.update(cell.choice.values)
    return Columns([cell.row for cell in cells], chosen)


def is_evaluated(columns: Container[str], metric: Metric) -> bool:
    """Whether a metric is of the final machine, by ``cbm evaluate``."""
    return f"{metric.column}_final" not in columns and metric.column in columns


def make_cells(trials: Trials, manifest: Manifest) -> Cells:
    """Return the cells of a manifest, each with its finished trials, without a
    metric.
    """
    measure = Measure(Metric(""))
    rows = trials.frame.groupby("run_id").indices if len(trials.frame) else {}
    cells = []
    for run in {run.run_id: run for run in manifest.cells}.values():
        own = rows.get(run.run_id, np.empty(0, dtype=np.intp))
        cells.append(Cell(run, trials, own, measure, planned=manifest.trials))
    return Cells(manifest, trials, measure, cells)


def measure_asked(
    trials: Trials,
    table: TableSpec,
    metric: str | None = None,
    statistic: str | None = None,
) -> Measure:
    """Return the metric and statistic that are asked for, else the table's, else the
    usual ones.

    The usual statistic is ``best-valid`` where a validation part was evaluated in all
    trials, else ``max``.
    """
    frame, there = trials.frame, measured(trials.frame)
    name = metric or table.metric or default_metric(frame)
    if name is None or not there:
        remedy = f"; choose --metric: there are {', '.join(there)}" if there else ""
        raise CbmError(f"nothing was evaluated (evaluate: method: none){remedy}")
    if name not in there:
        place = f"--metric {name}" if metric else "table.metric"
        hint = did_you_mean(name, there)
        raise CbmError(f"{place}: the results hold no {name}{hint}")
    if statistic and statistic not in STATISTICS:
        hint = did_you_mean(statistic, STATISTICS)
        raise CbmError(f"--statistic {statistic}: unknown{hint}")
    shown = statistic or _usual_statistic(trials, Metric(name), table)
    problem = _lack_of(frame, Metric(name), shown)
    if problem:
        place = "--statistic" if statistic else "table.statistic:"
        raise CbmError(f"{place} {shown}: {problem}")
    return Measure(Metric(name), table.scale, shown)


def _usual_statistic(trials: Trials, metric: Metric, table: TableSpec) -> str:
    """Return the statistic of a table for which none is asked."""
    if is_evaluated(trials.frame, metric) or not metric.better:
        return "final"
    if table.statistic:
        return table.statistic
    at_best_valid = statistic_column(trials.frame, metric, "best-valid")
    is_measured = ~np.isnan(trials.numbers(at_best_valid)) | trials.diverged
    if at_best_valid in trials.frame and is_measured.all():
        return "best-valid"
    return "max"


def _lack_of(frame: "pd.DataFrame", metric: Metric, statistic: str) -> str:
    """Say why a metric has no such statistic; ``""`` where it has."""
    evaluated = is_evaluated(frame, metric)
    # The best of a mean is found in curves, which hold what has a best value.
    kept = "max" if statistic == MAX_OF_MEAN else statistic
    is_there = statistic_column(frame, metric, kept) in frame
    if is_there and (statistic == "final" or not evaluated):
        return ""
    if statistic == "best-valid" and not evaluated:
        return "the data sets have no validation part that was evaluated"
    return f"of {metric.column} there is the final value only; leave it out"
