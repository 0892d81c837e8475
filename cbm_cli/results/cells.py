"""Cells: the trials of one method at one setting, and every number that is told of them.

Tables, marks, pictures, pages, comparisons with the paper, ``cbm best`` and Python read cells and nothing
else, so that a value is the same wherever it is shown.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli.errors import CbmError
from cbm_cli.results.inventory import CellSettings
from cbm_cli.results.metrics import FACTS, Metric, default_metric, fewest_effective, measured
from cbm_cli.results.outcome import at_most, believed
from cbm_cli.results.store import Store
from cbm_cli.text import STATISTICS, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Source = Callable[[str], Store]  # returns what holds the curves of an experiment
MAX_OF_MEAN = "max-of-mean"  # the statistic that rests on curves


class Measure(NamedTuple):
    """What is told of trials."""

    metric: Metric
    scale: str = "per-sample"  # or total: nats per row times the rows of the metric's part
    statistic: str = "max"  # one of `STATISTICS`; of costs the best is the minimum


class Choice(NamedTuple):
    """What a cell shows of settings whose value is chosen, and what decided."""

    values: Mapping[str, Any]  # by column of summary.csv
    measure: Measure
    mean: float  # of the measure
    complete: bool  # whether all trials of all values are there
    at_end: bool  # whether it is the lowest or the highest of three numbers or more


class Trials:
    """Finished trials, the rows of ``summary.csv``, and the stores that hold their curves, by experiment."""

    def __init__(self, frame: "pd.DataFrame", source: Source | None = None) -> None:
        self.frame, self.source = frame, source and cache(source)
        self._columns: dict[str, Floats] = {}
        self._last: dict[str, tuple[Any, list[pd.DataFrame]]] = {}

    def numbers(self, column: str) -> Floats:
        """Return a column; NaN where it is missing."""
        if column not in self._columns:
            known = column in self.frame
            values = self.frame[column].to_numpy(float) if known else np.full(len(self.frame), np.nan)
            self._columns[column] = values
        return self._columns[column]

    @cached_property
    def diverged(self) -> NDArray[np.bool_]:
        """Whether parameters were not finite any more."""
        return ~np.isnan(self.numbers("diverged"))

    @cached_property
    def watched(self) -> Metric | None:
        """The metric of the validation part that was watched in training, if there is one."""
        metrics = map(Metric, measured(self.frame))
        return next((metric for metric in metrics if metric.part == "valid" and metric.better), None)

    @cached_property
    def updates_of_an_epoch(self) -> Floats:
        """Return the updates of an epoch: the mini-batches of the training rows."""
        import pandas as pd

        batch = pd.to_numeric(self.frame.get("batch", pd.Series(index=self.frame.index)), errors="coerce")
        rows = self.numbers("n_train")
        return rows // np.fmin(batch.to_numpy(), rows)  # one if the batch is full

    @cached_property
    def of_runs(self) -> Mapping[str, NDArray[np.intp]]:
        """Return the rows of each run-id."""
        return self.frame.groupby("run_id").indices if len(self.frame) else {}

    def store(self, experiment: str) -> Store:
        """Return what holds the curves of an experiment."""
        if self.source is None:
            raise CbmError(f"{experiment}: there are no curves beside its summary", "missing")
        return self.source(experiment)

    def read(self, kind: str, rows: NDArray[np.intp]) -> "list[pd.DataFrame]":
        """Return the ``curves`` or ``records`` of some trials of a run; those read last are held."""
        wanted = tuple(rows.tolist())
        if self._last.get(kind, (None,))[0] != wanted:
            columns = (self.frame[name].iloc[rows] for name in ("experiment", "run_id", "trial"))
            found: list[pd.DataFrame] = []
            for (experiment, run_id), places in groupby(zip(*columns, strict=True), key=lambda it: it[:2]):
                store, numbers = self.store(experiment), [number for *_, number in places]
                if kind == "curves":
                    found += store.curves(run_id, numbers)
                else:
                    found += [store.records(run_id, number) for number in numbers]
            self._last[kind] = wanted, found
        return self._last[kind][1]


@dataclass(frozen=True, eq=False)
class Cell:
    """The finished trials of one run, and what is told of them, in the scale and statistic of a table.

    Trials in which the metric was not measured are left out, unless they diverged; where it was measured in
    none, none is planned.
    """

    settings: CellSettings  # by column of summary.csv, and the run-id
    trials: Trials
    rows: NDArray[np.intp]  # of the finished trials among all
    measure: Measure
    asked: int = 0  # trials that the experiment asks for
    choice: Choice | None = None  # of settings that are not among the others

    def measured(self, measure: Measure) -> "Cell":
        """Return the same trials by another measure."""
        return replace(self, measure=measure)

    @property
    def every_setting(self) -> CellSettings:
        """The settings, with those whose value is chosen."""
        return {**self.settings, **(self.choice.values if self.choice else {})}

    @property
    def evaluated(self) -> bool:
        """Whether the metric is of the final machine, by ``cbm evaluate``."""
        return is_evaluated(self.trials.frame, self.measure.metric)

    # One number for each trial

    @cached_property
    def _known(self) -> NDArray[np.intp]:
        value = self._of_all(self.measure.statistic)
        return np.flatnonzero(~np.isnan(value) | self.trials.diverged[self.rows])

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The numbers of the trials."""
        return self.trials.numbers("trial")[self.rows[self._known]].astype(int)

    @property
    def stopped(self) -> NDArray[np.bool_]:
        """Whether the parameters of each trial were not finite any more."""
        return self.trials.diverged[self.rows[self._known]]

    @property
    def best(self) -> Floats:
        """The best value over training: the maximum, of costs the minimum."""
        return self._of_all("max")[self._known]

    @property
    def final(self) -> Floats:
        """The last value."""
        return self._of_all("final")[self._known]

    @cached_property
    def value(self) -> Floats:
        """The value that the table shows."""
        return self._of_all(self.measure.statistic)[self._known]

    @cached_property
    def bounded(self) -> NDArray[np.bool_]:
        """Whether the value of each trial is what is proved, in place of an estimate that it disproves."""
        if self.measure.statistic == MAX_OF_MEAN and not self.evaluated:
            column, update = at_most(self.measure.metric.column), self.best_update
            limits = np.array([_value_at(curve, column, update) for curve in self.frames()])
        else:
            limits = self.trials.numbers(self._limit)[self.rows]
        return (self.value == limits[self._known] * self.scale[self._known]) & np.isfinite(self.value)

    @property
    def values(self) -> dict[int, float]:
        """The value that the table shows, by trial."""
        return dict(zip(self.numbers.tolist(), self.value.tolist(), strict=True))

    @property
    def epochs(self) -> Floats:
        """The epoch of the lowest cost, or validation cost, of the trials that did not diverge."""
        rows = self.rows[self._known[~self.stopped]]
        return self.trials.numbers(self._moment)[rows] / self.trials.updates_of_an_epoch[rows]

    # One number for the cell

    @cached_property
    def n(self) -> int:
        """Finished trials, diverged ones included."""
        return len(self._known)

    @property
    def planned(self) -> int:
        """Trials that the experiment asks for."""
        return self.asked if self.n or not len(self.rows) else 0

    @property
    def complete(self) -> bool:
        """Whether every planned trial is there."""
        return self.n >= self.planned

    @cached_property
    def mean(self) -> float:
        """Mean of the finite values; NaN if there is none."""
        return mean(self.value)

    @cached_property
    def std(self) -> float:
        """Standard deviation (n - 1 in the denominator) of the finite values; NaN for fewer than two."""
        values = finite(self.value)
        return float(values.std(ddof=1)) if len(values) > 1 else np.nan

    @property
    def best_update(self) -> float:
        """Mean update of the best value, or of the best validation value where the statistic rests on it."""
        if self.measure.statistic == MAX_OF_MEAN:
            return self._at_best_mean[1]
        return mean(self.trials.numbers(self._moment)[self.rows[self._known]])

    @cached_property
    def diverged(self) -> int:
        """Trials with non-finite parameters or a non-finite value."""
        return int((self.stopped | ~np.isfinite(self.value)).sum())

    @property
    def first_divergence(self) -> float:
        """The first update at which parameters were not finite; NaN where they always were."""
        updates = finite(self.trials.numbers("diverged")[self.rows])
        return float(updates.min()) if len(updates) else np.nan

    @property
    def doubtful(self) -> int:
        """Trials whose last estimate of log Z rests on few runs of AIS, or is disproved."""
        return int(self.doubts.sum())

    @property
    def doubts(self) -> NDArray[np.bool_]:
        """Whether that is so of each trial."""
        if self.evaluated:
            return self._is_doubtful[self._known]
        effective = self.trials.numbers("effective_sample_size_final")[self.rows[self._known]]
        runs = self.trials.numbers("evaluate_runs")[self.rows[self._known]]
        return np.array([a < fewest_effective(b) for a, b in zip(effective, runs, strict=True)], bool)

    @property
    def made(self) -> Counter[str]:
        """How values by ``cbm evaluate`` were made, in words, and in how many trials."""
        frame, method = self.trials.frame, self.measure.metric.column.rpartition("_")[2]
        columns = {fact: frame.get(f"{method}_{fact}") for fact in FACTS}
        return Counter(
            ", ".join(
                words.format(_plain(column.iloc[row]))
                for (fact, words), column in zip(FACTS.items(), columns.values(), strict=True)
                if column is not None and column.iloc[row] == column.iloc[row]
            )
            for row in self.rows[self._known]
        )

    # Curves

    @cached_property
    def scale(self) -> Floats:
        """What nats per row are multiplied by, for each finished trial."""
        if self.measure.scale != "total" or not self.measure.metric.better:
            return np.ones(len(self.rows))
        return self.trials.numbers(f"n_{self.measure.metric.part}")[self.rows]

    def frames(self, kind: str = "curves") -> "list[pd.DataFrame]":
        """Return the curves or the ``records`` of the finished trials as written, in nats per row."""
        return self.trials.read(kind, self.rows)

    def curves(self) -> "list[pd.Series]":
        """Return the metric of each finished trial by update, from its curve or else its records."""
        column, found = self.measure.metric.column, self.frames()
        if not all(column in one and len(one) for one in found):
            pairs = zip(found, self.frames("records"), strict=True)
            found = [one if column in one and len(one) else other for one, other in pairs]
        scaled = zip(found, self.scale, strict=True)
        return [_curve(frame.set_index("update"), column) * scale for frame, scale in scaled]

    @property
    def _moment(self) -> str:
        """The column with the updates of the best values."""
        watched = self.trials.watched if self.measure.statistic == "best-valid" else None
        return f"{statistic_column(self.trials.frame, watched or self.measure.metric, 'max')}_update"

    def _of_all(self, statistic: str) -> Floats:
        """Return a statistic of all finished trials."""
        if statistic == MAX_OF_MEAN:
            return self._at_best_mean[0]
        column = statistic_column(self.trials.frame, self.measure.metric, statistic)
        values = self.trials.numbers(column)[self.rows]
        if self.evaluated:
            most = self.trials.numbers(self._limit)[self.rows]
            values = np.where(self._is_doubtful & (values > most), most, values)
        return values * self.scale

    @property
    def _is_doubtful(self) -> NDArray[np.bool_]:
        """Which estimates of `cbm evaluate` are doubtful."""
        method = self.measure.metric.column.rpartition("_")[2]
        return self.trials.numbers(f"{method}_doubtful")[self.rows] > 0

    @property
    def _limit(self) -> str:
        """The column with what is proved of the value."""
        metric, statistic = self.measure.metric.column, self.measure.statistic
        if self.evaluated:
            quantity, _, method = metric.rpartition("_")
            return f"{at_most(quantity)}_{method}"
        return f"{at_most(metric)}_{statistic.replace('-', '_')}"

    @cached_property
    def _at_best_mean(self) -> tuple[Floats, float]:
        """Each trial's value where their mean is best, and the update; from kept summaries or from curves."""
        columns = best_of_mean_columns(self.measure.metric.column)
        values, updates = (self.trials.numbers(column)[self.rows] for column in columns)
        if not np.isnan(values).all() or self.trials.source is None or not len(self.rows):
            return values * self.scale, mean(updates)
        curves = [curve.iloc[1:] for curve in self.curves()]  # the untrained machine does not count
        if any(curve.empty for curve in curves):
            return values, np.nan
        return _at_best_mean(curves, self.trials.diverged[self.rows], self.measure.metric.better)


def _curve(frame: "pd.DataFrame", metric: str) -> "pd.Series":
    """Return a metric by update, without estimates that are disproved; empty if it was not measured."""
    if metric not in frame:
        return frame.index[:0].to_series().astype(float)
    return frame.assign(shown=believed(metric, frame))["shown"]


def _value_at(frame: "pd.DataFrame", column: str, update: float) -> float:
    """Return the value of a column at the last evaluation up to an update; NaN if there is none."""
    known = frame[frame["update"] <= update]
    return float(known[column].iloc[-1]) if column in frame and len(known) else np.nan


def _at_best_mean(
    curves: "Sequence[pd.Series]", diverged: NDArray[np.bool_], better: int
) -> tuple[Floats, float]:
    """Return each trial's value where the mean is best, and the update.

    A trial that stopped early keeps its last value. Evaluations from a trial's divergence on do not count,
    unless it never had a finite value.
    """
    import pandas as pd

    together = pd.concat(curves, axis=1).sort_index().replace([np.inf, -np.inf], np.nan)
    held = np.where(diverged, together, together.ffill())
    means = held[:, np.isfinite(held).any(axis=0)].mean(axis=1)
    if not np.isfinite(means).any():
        return np.full(len(curves), np.nan), np.nan
    best = int(np.nanargmax(better * means))
    return held[best], float(together.index[best])


def _plain(value: Any) -> str:
    """A fact in words; numbers of a column with gaps are floats."""
    return value if isinstance(value, str) else f"{int(value):,}"


def finite(values: Floats) -> Floats:
    """Return the finite values."""
    return values[np.isfinite(values)]


def mean(values: Floats) -> float:
    """Return the mean of the finite values; NaN if there is none."""
    values = finite(values)
    return float(values.mean()) if len(values) else np.nan


def best_of_mean_columns(metric: str) -> tuple[str, str]:
    """Return the columns of kept summaries with the value and the update where the mean is best."""
    return f"{metric}_max_of_mean", f"{metric}_max_of_mean_update"


def statistic_column(columns: Container[str], metric: Metric, statistic: str) -> str:
    """Return the column of ``summary.csv`` with a statistic; the best of a cost is its minimum."""
    if f"{metric.column}_final" not in columns:
        return metric.column
    if statistic == "max" and metric.better < 0:
        return f"{metric.column}_min"
    return f"{metric.column}_{statistic.replace('-', '_')}"


# The cells of an experiment


@dataclass(frozen=True)
class Cells:
    """The cells that an experiment asks for, in the order of its grid."""

    manifest: Mapping[str, Any]
    trials: Trials
    measure: Measure
    cells: Sequence[Cell]

    def __iter__(self) -> Iterator[Cell]:
        return iter(self.cells)

    @property
    def evaluated(self) -> bool:
        """Whether the metric is of the final machine, by ``cbm evaluate``."""
        return is_evaluated(self.trials.frame, self.measure.metric)

    @property
    def estimated(self) -> bool:
        """Whether the metric is an estimate."""
        if self.evaluated:
            return not self.measure.metric.column.endswith("_exact")
        return {*self.trials.frame.get("evaluate_method", [])} != {"exact"}


def is_evaluated(columns: Container[str], metric: Metric) -> bool:
    """Whether a metric is of the final machine, by ``cbm evaluate``."""
    return f"{metric.column}_final" not in columns and metric.column in columns


def make_cells(trials: Trials, manifest: Mapping[str, Any], measure: Measure) -> Cells:
    """Return the cells of a manifest, each with its finished trials."""
    none = np.empty(0, dtype=np.intp)
    settings = {cell["run_id"]: cell for cell in manifest["cells"]}
    cells = [
        Cell(cell, trials, trials.of_runs.get(run_id, none), measure, manifest["trials"])
        for run_id, cell in settings.items()
    ]
    return Cells(manifest, trials, measure, cells)


def measure_of(
    trials: Trials,
    table: Mapping[str, Any],
    metric: str | None = None,
    statistic: str | None = None,
) -> Measure:
    """Return the metric and statistic that are asked for, else the table's, else the usual ones.

    The usual statistic is ``best-valid`` where a validation part was evaluated, else ``max``.
    """
    frame, known = trials.frame, measured(trials.frame)
    name = metric or table["metric"] or default_metric(frame)
    if name is None or not known:
        remedy = f"; choose --metric: there are {', '.join(known)}" if known else ""
        raise CbmError(f"nothing was evaluated (evaluate: method: none){remedy}", "missing")
    if name not in known:
        place = f"--metric {name}" if metric else "table.metric"
        raise CbmError(f"{place}: the results hold no {name}{did_you_mean(name, known)}", "unknown")
    if statistic and statistic not in STATISTICS:
        raise CbmError(f"--statistic {statistic}: unknown{did_you_mean(statistic, STATISTICS)}", "unknown")
    chosen = Metric(name)
    evaluated, recorded = is_evaluated(frame, chosen), not chosen.better
    usual = "best-valid" if statistic_column(frame, chosen, "best-valid") in frame else "max"
    shown = statistic or ("final" if evaluated or recorded else table.get("statistic") or usual)
    if evaluated and shown != "final":
        raise CbmError(
            f"--statistic {shown}: {name} is known of the final machine only; leave it out", "unsuited"
        )
    # The best of a mean is found in curves, which hold what has a best value.
    on_curves = shown == MAX_OF_MEAN and trials.source is not None
    if statistic_column(frame, chosen, "max" if on_curves else shown) not in frame:
        if shown == "best-valid":
            raise CbmError(
                "--statistic best-valid: the data sets have no validation part that was evaluated", "missing"
            )
        raise CbmError(
            f"--statistic {shown}: of {name} there is the final value only; leave it out", "unsuited"
        )
    return Measure(chosen, table["scale"], shown)
