"""Cells: the trials of one method at one setting, summarised and marked against the best of their row."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from cbm_cli.results import Metric
from cbm_cli.statistics.wilcoxon import CORRECTIONS, FEWEST_PAIRS, TESTS, Outcome

STATISTICS = ("max", "final", "best-valid")  # max: the best, which is the minimum of a cost


@dataclass(frozen=True)
class Cell:
    """The trials of one cell of a table.

    Attributes
    ----------
    where : mapping
        Value of every identifying column.
    planned : int
        Trials that the experiment asks for.
    values, finals : Series
        Best value over training (or another statistic) and last value of the metric, indexed by trial, in
        the table's scale.
    best_update : float
        Mean update of the best value.
    diverged : int
        Trials whose parameters became non-finite, or whose value is.
    better : int
        1 where more of the metric is better, -1 where less is, 0 where neither: no best is marked then.
    epochs : Series
        Of costs: epochs to convergence, indexed by trial; all epochs of trials that did not converge.
    against_best : Outcome or None
        The test against the best of the row; None for the best itself and where nothing is claimed.
    best, bold, underlined : bool
        Marks. Bold: the best or not told from it; underlined: the best where nothing is claimed.
    """

    where: Mapping[str, Any]
    planned: int
    values: pd.Series
    finals: pd.Series
    best_update: float = np.nan
    diverged: int = 0
    better: int = 1
    epochs: pd.Series = field(default_factory=lambda: pd.Series(dtype=float))
    against_best: Outcome | None = None
    best: bool = False
    bold: bool = False
    underlined: bool = False

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
        return _finite(self.values).mean()

    @property
    def std(self) -> float:
        """Standard deviation (n - 1 in the denominator) of the finite values; NaN for fewer than two."""
        return _finite(self.values).std(ddof=1)

    @property
    def final_mean(self) -> float:
        """Mean of the finite last values; NaN if there is none."""
        return _finite(self.finals).mean()

    @property
    def rank(self) -> tuple[bool, float]:
        """Order within a row, the best last: by mean, where a trial without a finite value is the worst."""
        return bool(np.isfinite(self.values).all()), self.better * self.mean

    @property
    def goodness(self) -> pd.Series:
        """The values, turned so that more is better."""
        return self.better * self.values

    def long(self) -> dict[str, Any]:
        """One line of the long form: where the cell is, then everything known about it."""
        test = self.against_best or Outcome(np.nan, np.nan, 0)
        return {
            **self.where,
            "n": self.n,
            "n_planned": self.planned,
            "mean": self.mean,
            "std": self.std,
            "final_mean": self.final_mean,
            **({"epochs_to_convergence": self.epochs.mean()} if self.better < 0 else {}),
            "min_update" if self.better < 0 else "max_update": self.best_update,
            "p_value": test.p_value,
            "effect_size": test.effect_size,
            "n_pairs": test.n_pairs if self.against_best else None,
            "best": self.best,
            "bold": self.bold,
            "underlined": self.underlined,
            "diverged": self.diverged,
        }


def _finite(values: pd.Series) -> pd.Series:
    return values[np.isfinite(values)]


def narrowed(trials: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Rows of ``summary.csv`` with the columns that ``cell_of`` reads: a cell is cheaper to cut."""
    read = {"run_id", "trial", "diverged", "epochs", "epochs_to_convergence", f"n_{Metric(metric).part}"}
    return trials[[column for column in trials if column in read or column.startswith(metric)]]


def cell_of(
    trials: pd.DataFrame,
    metric: str,
    scale: str,
    where: Mapping[str, Any],
    planned: int = 0,
    statistic: str = "max",
) -> Cell:
    """Summarise finished trials (rows of ``summary.csv``) into a cell without marks.

    Nats per sample are multiplied by the number of rows of the metric's part if the scale is ``total``. A
    metric without statistics of its own (a column that ``cbm evaluate`` added) is taken as it is. Trials in
    which the metric was not measured are left out: where it is so in all, none is planned.
    """
    measure, finished = Metric(metric), trials.set_index("trial")
    column, final, best = (statistic_column(trials, measure, name) for name in (statistic, "final", "max"))
    stopped = finished["diverged"].notna() & (finished["diverged"].astype(str) != "")
    known = finished[column].notna() | stopped
    trials, stopped = finished[known], stopped[known]
    rows = trials[f"n_{measure.part}"].astype(float) if scale == "total" and measure.better else 1.0
    values = trials[column].astype(float) * rows
    return Cell(
        where=where,
        planned=planned if known.any() or finished.empty else 0,
        values=values,
        finals=trials[final].astype(float) * rows,
        best_update=_floats(trials, f"{best}_update").mean(),
        diverged=int((stopped | ~np.isfinite(values)).sum()),
        better=measure.better,
        epochs=_epochs(trials[~stopped]) if measure.better < 0 else pd.Series(dtype=float),
    )


def statistic_column(columns: Container[str], metric: Metric, statistic: str) -> str:
    """Where ``summary.csv`` has a statistic of a metric: the best of a cost is under ``_min``."""
    if f"{metric.column}_final" not in columns:
        return metric.column
    endings = {"max": "min" if metric.better < 0 else "max", "final": "final", "best-valid": "best_valid"}
    return f"{metric.column}_{endings[statistic]}"


def _floats(trials: pd.DataFrame, column: str) -> pd.Series:
    """A column of numbers; NaN where the results have none of it."""
    return trials.get(column, pd.Series(np.nan, trials.index)).astype(float)


def _epochs(trials: pd.DataFrame) -> pd.Series:
    """Epochs to convergence, or all epochs where a trial did not converge."""
    return _floats(trials, "epochs_to_convergence").fillna(_floats(trials, "epochs"))


def mark_row(
    cells: Sequence[Cell | None],
    test: str = "signed-rank",
    alpha: float = 0.05,
    correction: str | None = None,
) -> list[Cell | None]:
    """Mark the best of a row and all that the test cannot tell from it.

    The best has the highest mean, of costs the lowest; a cell with a trial that never had a finite value
    comes after all cells without one. Bold says of every cell in the row that it is, or is not, as good as
    the best: so if one comparison has fewer than 6 pairs, no significance is claimed in the row, and its
    best is underlined. A row of fewer than two cells with trials has no best, nor has one of a metric of
    which neither more nor less is better.
    """
    filled = [i for i, cell in enumerate(cells) if cell is not None and cell.n and cell.better]
    candidates = [i for i in filled if not np.isnan(cells[i].mean)]
    if len(filled) < 2 or not candidates:
        return list(cells)
    best = max(candidates, key=lambda i: cells[i].rank)
    outcomes = {i: TESTS[test](cells[best].goodness, cells[i].goodness) for i in filled if i != best}
    tested = corrected({i: o for i, o in outcomes.items() if o.n_pairs >= FEWEST_PAIRS}, correction)
    claimed = len(tested) == len(outcomes)
    marked = list(cells)
    marked[best] = replace(cells[best], best=True, bold=claimed, underlined=not claimed)
    for i, outcome in tested.items():
        marked[i] = replace(cells[i], against_best=outcome, bold=claimed and outcome.p_value >= alpha)
    return marked


def corrected(outcomes: Mapping[int, Outcome], correction: str | None) -> dict[int, Outcome]:
    """Adjust the p-values of a row's comparisons by ``holm``, or leave them as they are (None)."""
    if correction is None:
        return dict(outcomes)
    p_values = CORRECTIONS[correction]([outcome.p_value for outcome in outcomes.values()])
    return {
        i: replace(outcome, p_value=p) for (i, outcome), p in zip(outcomes.items(), p_values, strict=True)
    }
