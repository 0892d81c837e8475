"""Cells: the trials of one method at one setting, summarised and marked against the best of their row."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cbm_cli.results import Metric
from cbm_cli.statistics.wilcoxon import TESTS, Significance, holm

Floats = NDArray[np.float64]
MAX_OF_MEAN = "max-of-mean"  # the statistic that needs curves


@dataclass(frozen=True)
class Cell:
    """The trials of one cell of a table."""

    where: Mapping[str, Any]  # value of every identifying column
    planned: int  # trials that the experiment asks for
    values: dict[int, float]  # by trial: best over training (or another statistic), in the table's scale
    finals: Floats = field(default_factory=lambda: np.empty(0))  # last values, in the same scale
    best_update: float = np.nan  # mean update of the best value
    diverged: int = 0  # trials with non-finite parameters or a non-finite value
    epochs: Floats = field(default_factory=lambda: np.empty(0))  # of the lowest cost
    against_best: Significance | None = None  # None for the best itself and in rows without one
    claimed: bool = True  # whether the row has enough pairs to claim significance
    best: bool = False
    bold: bool = False  # best of the row, or not significantly different from it
    underlined: bool = False  # best of a row that claims no significance
    better_by_test: bool = False  # significantly better than the best of the row, which has the better mean
    disputed: bool = False  # best of a row that has such a cell

    @property
    def n(self) -> int:
        """Finished trials, diverged ones included."""
        return len(self.values)

    @property
    def complete(self) -> bool:
        """Whether every planned trial is there."""
        return self.n >= self.planned

    @property
    def mean(self) -> float:
        """Mean of the finite values; NaN if there is none."""
        return mean(np.array([*self.values.values()]))

    @property
    def std(self) -> float:
        """Standard deviation (n - 1 in the denominator) of the finite values; NaN for fewer than two."""
        values = finite(np.array([*self.values.values()]))
        return float(values.std(ddof=1)) if len(values) > 1 else np.nan

    @property
    def mark(self) -> str:
        """``bold``, ``underline`` or nothing."""
        return "bold" if self.bold else "underline" if self.underlined else ""


def finite(values: Floats) -> Floats:
    """Return the finite values."""
    return values[np.isfinite(values)]


def mean(values: Floats) -> float:
    """Return the mean of the finite values; NaN if there is none."""
    values = finite(values)
    return float(values.mean()) if len(values) else np.nan


@dataclass(frozen=True)
class Measured:
    """One metric of many trials (rows of ``summary.csv``), as arrays in the scale of a table."""

    trial: NDArray[np.int64]
    value: Floats  # the statistic that a table shows
    final: Floats
    best_update: Floats
    epochs: Floats  # of the lowest cost; of the lowest validation cost if the statistic rests on it
    diverged: NDArray[np.bool_]

    @classmethod
    def of(cls, frame: pd.DataFrame, metric: str, scale: str, statistic: str = "max") -> "Measured":
        """Read a metric from ``summary.csv``.

        Nats per sample are multiplied by the number of rows of the metric's part if the scale is ``total``.
        A metric without statistics of its own (a column that ``cbm evaluate`` added) is taken as it is.
        """
        measure = Metric(metric)

        def numbers(column: str) -> Floats:
            return frame[column].to_numpy(float) if column in frame else np.full(len(frame), np.nan)

        moment = statistic if statistic == MAX_OF_MEAN else "max"
        column, final, best = (
            statistic_column(frame, measure, name) for name in (statistic, "final", moment)
        )
        rows = numbers(f"n_{measure.part}") if scale == "total" and measure.better else 1.0
        lowest = "valid_cost_min" if statistic == "best-valid" else f"{measure.column}_min"
        batch = pd.to_numeric(frame.get("batch", pd.Series(index=frame.index)), errors="coerce").to_numpy()
        batches = numbers("n_train") // np.fmin(batch, numbers("n_train"))  # one if the batch is full
        return cls(
            frame["trial"].to_numpy(int),
            numbers(column) * rows,
            numbers(final) * rows,
            numbers(f"{best}_update"),
            numbers(f"{lowest}_update") / batches,
            (frame["diverged"].notna() & (frame["diverged"].astype(str) != "")).to_numpy(),
        )

    def cell(self, rows: NDArray[np.int64], where: Mapping[str, Any], planned: int = 0) -> Cell:
        """Summarise some trials into a cell without marks.

        Trials in which the metric was not measured are left out; if it was measured in none, none is planned.
        """
        known = rows[~np.isnan(self.value[rows]) | self.diverged[rows]]
        values, stopped = self.value[known], self.diverged[known]
        return Cell(
            where=where,
            planned=planned if len(known) or not len(rows) else 0,
            values=dict(zip(self.trial[known].tolist(), values.tolist(), strict=True)),
            finals=self.final[known],
            best_update=mean(self.best_update[known]),
            diverged=int((stopped | ~np.isfinite(values)).sum()),
            epochs=self.epochs[known[~stopped]],
        )


def statistic_column(columns: Container[str], metric: Metric, statistic: str) -> str:
    """Return the column of ``summary.csv`` with a statistic; the best of a cost is its minimum."""
    if f"{metric.column}_final" not in columns:
        return metric.column
    if statistic == "max" and metric.better < 0:
        return f"{metric.column}_min"
    return f"{metric.column}_{statistic.replace('-', '_')}"


class Marking(NamedTuple):
    """How the best of a row is found, and what it is tested with."""

    better: int = 1  # 1: the highest mean, -1: the lowest, 0: no best is marked
    test: str = "signed-rank"
    alpha: float = 0.05
    correction: str | None = None  # or holm, over the comparisons within a row


def mark_row(cells: Sequence[Cell | None], marking: Marking) -> list[Cell | None]:
    """Mark the best of a row and every cell that is not significantly different from it.

    A cell with a trial that never had a finite value comes after all cells without one. Bold says of every
    cell in the row whether it is as good as the best: so if one comparison has too few pairs to find any
    difference, no significance is claimed in the row, and its best is underlined. A row of fewer than two
    cells with trials has no best.

    A few far trials can make a mean worse whose cell is better in nearly all pairs. A cell that is so by the
    test is bold, too, and `better_by_test`; the best by the mean is `disputed`.
    """
    better, test, alpha, correction = marking
    filled = {i: cell for i, cell in enumerate(cells) if cell is not None and cell.n}
    candidates = [i for i, cell in filled.items() if not np.isnan(cell.mean)]
    if not better or len(filled) < 2 or not candidates:
        return list(cells)
    best = max(
        candidates,
        key=lambda i: (all(map(np.isfinite, filled[i].values.values())), better * filled[i].mean),
    )
    goodness = {
        i: {trial: better * value for trial, value in cell.values.items()} for i, cell in filled.items()
    }
    found = {i: TESTS[test](goodness[best], goodness[i]) for i in filled if i != best}
    if correction:
        adjusted = dict(zip(found, holm([one.p_value for one in found.values()]), strict=True))
        found = {
            i: replace(one, p_value=adjusted[i], smallest_p=min(1.0, one.smallest_p * len(found)))
            for i, one in found.items()
        }
    claimed = all(one.powered(alpha) for one in found.values())
    ahead = {
        i: one.powered(alpha) and one.p_value < alpha and one.effect_size < 0 for i, one in found.items()
    }
    marks: Any = {"best": True, "bold": claimed, "underlined": not claimed, "disputed": any(ahead.values())}
    marked = list(cells)
    marked[best] = replace(filled[best], claimed=claimed, **marks)
    for i, one in found.items():
        bold = claimed and (one.p_value >= alpha or ahead[i])
        marked[i] = replace(filled[i], against_best=one, bold=bold, claimed=claimed, better_by_test=ahead[i])
    return marked
