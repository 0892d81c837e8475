"""Cells: the trials of one method at one setting, and every number about them.

Tables, marks, pictures, pages, comparisons with the paper, ``cbm best`` and Python read
cells and nothing else, so that a value is the same wherever it is shown.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli.choices import STATISTICS
from cbm_cli.errors import CbmError
from cbm_cli.grid.settings import Settings, TableSpec
from cbm_cli.results.columns import Columns, Row
from cbm_cli.results.journal import Manifest, Run
from cbm_cli.results.outcome import (
    Metric,
    believed,
    default_metric,
    fewest_effective,
    measured,
    valid_metric,
)
from cbm_cli.results.store import Store
from cbm_cli.text import did_you_mean

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
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

    values: Mapping[str, Any]  # by column of summary.csv
    measure: Measure
    mean: float  # of the measure
    complete: bool  # whether all trials of all values are there
    at_end: bool  # whether it is the lowest or the highest of three numbers or more


class Trials:
    """Finished trials of an experiment, the rows of ``summary.csv``, and what is kept
    of them.

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
        none = np.full(len(frame), np.nan)
        self.frame, self.store = frame, store
        self.numbers = cache(
            lambda name: frame[name].to_numpy(float) if name in frame else none
        )
        self.read = lru_cache(2)(
            lambda kind, run_id, numbers: getattr(store, kind)(run_id, numbers)
        )
        self.diverged = ~np.isnan(self.numbers("diverged"))


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

    def measured(self, measure: Measure) -> "Cell":
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
    def evaluated(self) -> bool:
        """Whether the metric is of the final machine, by ``cbm evaluate``."""
        return is_evaluated(self.trials.frame, self.measure.metric)

    # One number for each finished trial

    def _column(self, name: str) -> Floats:
        return self.trials.numbers(name)[self.rows]

    @cached_property
    def scale(self) -> Floats:
        """The factor for nats per row."""
        metric, scale, _ = self.measure
        is_total = scale == "total" and metric.better
        return self._column(f"n_{metric.part}") if is_total else np.ones(len(self.rows))

    def _of_all(self, statistic: str) -> Floats:
        if statistic == MAX_OF_MEAN:
            return self._possible(self._at_best_mean[0])
        values = self._column(
            statistic_column(self.trials.frame, self.measure.metric, statistic)
        )
        if self.evaluated:
            most = self._column(self._limit)
            values = np.where(self._flagged & (values > most), most, values)
        return self._possible(values * self.scale)

    def _possible(self, values: Any) -> Any:
        """Values of which no log-likelihood is above 0: for rows in [0, 1], log p(x) is
        never so.
        """
        return np.where(
            np.isfinite(values) & (self.measure.metric.better > 0),
            np.fmin(values, 0.0),
            values,
        )

    @property
    def _flagged(self) -> NDArray[np.bool_]:
        """Which estimates of `cbm evaluate` are doubtful."""
        method = self.measure.metric.column.rpartition("_")[2]
        return self._column(f"{method}_doubtful") > 0

    @property
    def _limit(self) -> str:
        """The column with the proved limit of the value."""
        quantity, _, method = self.measure.metric.column.rpartition("_")
        if self.evaluated:
            return f"{Metric(quantity).at_most}_{method}"
        return (
            f"{self.measure.metric.at_most}_{self.measure.statistic.replace('-', '_')}"
        )

    @property
    def _moment(self) -> str:
        """The column with the updates of the best values."""
        frame, (metric, _, statistic) = self.trials.frame, self.measure
        watched = valid_metric(measured(frame)) if statistic == "best-valid" else None
        return (
            f"{statistic_column(frame, Metric(watched or metric.column), 'max')}_update"
        )

    @cached_property
    def _at_best_mean(self) -> tuple[Floats, Floats, float]:
        """Each trial's value where their mean is best, its proved limit, and the
        update.

        Of kept columns, which have no limits, or of curves. A trial that stopped early
        keeps its last value. Evaluations from a trial's divergence on do not count,
        unless it never had a finite value.
        """
        import pandas as pd

        kept = f"{self.measure.metric.column}_max_of_mean"
        values, updates = self._column(kept), self._column(f"{kept}_update")
        none, most = np.full(len(values), np.nan), self.measure.metric.at_most
        if not np.isnan(values).all() or not len(self.rows):
            return values * self.scale, none, mean(updates)
        curves = [
            curve.iloc[1:] for curve in self.curves()
        ]  # the untrained machine does not count
        if any(curve.empty for curve in curves):
            return none, none, np.nan
        together = (
            pd.concat(curves, axis=1).sort_index().replace([np.inf, -np.inf], np.nan)
        )
        held = np.where(self.trials.diverged[self.rows], together, together.ffill())
        means = held[:, np.isfinite(held).any(axis=0)].mean(axis=1)
        if not np.isfinite(means).any():
            return none, none, np.nan
        best = int(np.nanargmax(self.measure.metric.better * means))
        update = float(together.index[best])
        known = [
            curve.set_index("update").reindex(columns=[most])[most]
            for curve in self.frames()
        ]
        return (
            held[best],
            np.array([limit.asof(update) for limit in known], float) * self.scale,
            update,
        )

    # One number for each trial that counts

    @cached_property
    def known(self) -> NDArray[np.intp]:
        """Places among the rows of the trials that count."""
        value = self._of_all(self.measure.statistic)
        return np.flatnonzero(~np.isnan(value) | self.trials.diverged[self.rows])

    def _of_known(self, column: str) -> Floats:
        return self._column(column)[self.known]

    @property
    def stopped(self) -> NDArray[np.bool_]:
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
        return dict(
            zip(map(int, self._of_known("trial")), self.value.tolist(), strict=True)
        )

    @cached_property
    def bounded(self) -> NDArray[np.bool_]:
        """Whether the value of each trial is a limit, proved or 0, in place of an
        estimate above it.
        """
        limits = self._column(self._limit) * self.scale
        if self.measure.statistic == MAX_OF_MEAN and not self.evaluated:
            limits = self._at_best_mean[1]
        return ((self.value == limits[self.known]) | self.impossible) & np.isfinite(
            self.value
        )

    @cached_property
    def impossible(self) -> NDArray[np.bool_]:
        """Whether the value of each trial is 0, in place of an estimate that no
        log-likelihood can be.
        """
        return (self.value == 0) & (self.measure.metric.better > 0)

    @cached_property
    def doubts(self) -> NDArray[np.bool_]:
        """Whether the last estimate of log Z of each trial rests on few runs of AIS, or
        is disproved.
        """
        if self.evaluated:
            return self._flagged[self.known]
        effective, runs = map(
            self._of_known, ("effective_sample_size_final", "evaluate_runs")
        )
        few = effective < fewest_effective(runs)
        return few | ((self.final == 0) & (self.measure.metric.better > 0))

    @property
    def epochs(self) -> Floats:
        """The epoch of the lowest cost, or validation cost, of the trials that did not
        diverge.
        """
        import pandas as pd

        places, rows = self.rows[self.known], self._of_known("n_train")
        batches = self.trials.frame.reindex(columns=["batch"]).iloc[places, 0]
        batch = pd.to_numeric(batches, errors="coerce").to_numpy()
        updates = self._of_known(self._moment) / (
            rows // np.fmin(batch, rows)
        )  # one if the batch is full
        return updates[~self.stopped]

    @property
    def made(self) -> Counter[str]:
        """How values by ``cbm evaluate`` were made, in words, and in how many
        trials.
        """
        method, ways, frame = (
            self.measure.metric.column.rpartition("_")[2],
            Counter[str](),
            self.trials.frame,
        )
        there = {
            it: words
            for fact, words in FACTS.items()
            if (it := f"{method}_{fact}") in frame
        }
        for row in frame[[*there]].iloc[self.rows[self.known]].itertuples(index=False):
            facts = (
                (words, fact)
                for words, fact in zip(there.values(), row, strict=True)
                if fact == fact
            )
            told = (
                words.format(it if isinstance(it, str) else f"{int(it):,}")
                for words, it in facts
            )
            ways[", ".join(told)] += 1
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
        return not gain <= self.std  # not a number: nothing to compare with

    @property
    def best_update(self) -> float:
        """Mean update of the best value, or of the best validation value where the
        statistic rests on it.
        """
        if self.measure.statistic == MAX_OF_MEAN:
            return self._at_best_mean[2]
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
        return self.trials.read(
            kind, self.run_id, tuple(self._column("trial").astype(int))
        )

    def curves(self) -> "list[pd.Series]":
        """Return the metric of each finished trial by update, from its curve or else
        its records.

        Of estimates that are disproved there is the limit; what was not measured is
        empty.
        """
        column, found = self.measure.metric.column, self.frames()
        if not all(column in one and len(one) for one in found):
            pairs = zip(found, self.frames("records"), strict=True)
            found = [
                one if column in one and len(one) else other for one, other in pairs
            ]
        curves = []
        for frame, scale in zip(found, self.scale, strict=True):
            known = frame if column in frame else frame.iloc[:0].assign(**{column: 0.0})
            shown = self._possible(believed(column, known)) * scale
            curves.append(known.assign(shown=shown).set_index("update")["shown"])
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


def make_cells(trials: Trials, manifest: Manifest, measure: Measure) -> Cells:
    """Return the cells of a manifest, each with its finished trials."""
    none = np.empty(0, dtype=np.intp)
    rows = trials.frame.groupby("run_id").indices if len(trials.frame) else {}
    cells = [
        Cell(run, trials, rows.get(run.run_id, none), measure, manifest.trials)
        for run in {run.run_id: run for run in manifest.cells}.values()
    ]
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
    frame, known = trials.frame, measured(trials.frame)
    name = metric or table.metric or default_metric(frame)
    if name is None or not known:
        remedy = f"; choose --metric: there are {', '.join(known)}" if known else ""
        raise CbmError(f"nothing was evaluated (evaluate: method: none){remedy}")
    if name not in known:
        place = f"--metric {name}" if metric else "table.metric"
        raise CbmError(
            f"{place}: the results hold no {name}{did_you_mean(name, known)}"
        )
    if statistic and statistic not in STATISTICS:
        raise CbmError(
            f"--statistic {statistic}: unknown{did_you_mean(statistic, STATISTICS)}"
        )
    chosen = Metric(name)
    evaluated, recorded = is_evaluated(frame, chosen), not chosen.better
    usual = "max"
    at_best_valid = statistic_column(frame, chosen, "best-valid")
    if at_best_valid in frame:
        is_measured = ~np.isnan(trials.numbers(at_best_valid))
        if np.all(is_measured | trials.diverged):
            usual = "best-valid"
    shown = statistic or (
        "final" if evaluated or recorded else table.statistic or usual
    )
    # The best of a mean is found in curves, which hold what has a best value.
    column = "max" if shown == MAX_OF_MEAN else shown
    if (evaluated and shown != "final") or statistic_column(
        frame, chosen, column
    ) not in frame:
        told = f"of {name} there is the final value only; leave it out"
        if shown == "best-valid" and not evaluated:
            told = "the data sets have no validation part that was evaluated"
        raise CbmError(
            f"{'--statistic' if statistic else 'table.statistic:'} {shown}: {told}"
        )
    return Measure(chosen, table.scale, shown)
