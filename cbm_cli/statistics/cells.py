"""Cells: the trials of one method at one setting, summarised and marked against the best of their row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from cbm_cli.statistics.wilcoxon import CORRECTIONS, FEWEST_PAIRS, TESTS, Outcome

STATISTICS = {"max": "max", "final": "final", "best-valid": "best_valid"}  # and the columns they are in


@dataclass(frozen=True)
class Cell:
    """The trials of one cell of a table.

    Attributes
    ----------
    where : mapping
        Value of every identifying column.
    planned : int
        Trials that the experiment asks for.
    maxima, finals : Series
        Maximum over training (or another statistic) and last value of the metric, indexed by trial, in
        the table's scale.
    max_update : float
        Mean update of the maximum.
    diverged : int
        Trials whose parameters became non-finite, or whose maximum is.
    against_best : Outcome or None
        The test against the best of the row; None for the best itself and where nothing is claimed.
    best, bold, underlined : bool
        Marks. Bold: the best or not told from it; underlined: the best where nothing is claimed.
    """

    where: Mapping[str, Any]
    planned: int
    maxima: pd.Series
    finals: pd.Series
    max_update: float = np.nan
    diverged: int = 0
    against_best: Outcome | None = None
    best: bool = False
    bold: bool = False
    underlined: bool = False

    @property
    def n(self) -> int:
        """Finished trials, diverged ones included."""
        return len(self.maxima)

    @property
    def complete(self) -> bool:
        """Whether every planned trial is there."""
        return self.n >= self.planned

    @property
    def mean(self) -> float:
        """Mean of the finite maxima; NaN if there is none."""
        return _finite(self.maxima).mean()

    @property
    def std(self) -> float:
        """Standard deviation (n - 1 in the denominator) of the finite maxima; NaN for fewer than two."""
        return _finite(self.maxima).std(ddof=1)

    @property
    def final_mean(self) -> float:
        """Mean of the finite last values; NaN if there is none."""
        return _finite(self.finals).mean()

    @property
    def rank(self) -> tuple[bool, float]:
        """Order within a row: by mean, where a trial without a finite maximum counts as minus infinity."""
        return bool(np.isfinite(self.maxima).all()), self.mean

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
            "max_update": self.max_update,
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


def cell_of(
    trials: pd.DataFrame,
    metric: str,
    scale: str,
    where: Mapping[str, Any],
    planned: int = 0,
    statistic: str = "max",
) -> Cell:
    """Summarise finished trials (rows of ``summary.csv``) into a cell without marks.

    Nats per sample are multiplied by the number of rows of the metric's split if the scale is
    ``total``. A metric without statistics of its own (a column that ``cbm evaluate`` added) is taken as
    it is.
    """
    if f"{metric}_final" not in trials:
        alone = {f"{metric}_{name}": trials[metric] for name in ("max", "final", "best_valid")}
        trials = trials.assign(**alone, **{f"{metric}_max_update": np.nan})
    trials = trials.set_index("trial")
    rows = trials[f"n_{metric.split('_')[0]}"].astype(float) if scale == "total" else 1.0
    maxima = trials[f"{metric}_{STATISTICS[statistic]}"].astype(float) * rows
    finals = trials[f"{metric}_final"].astype(float) * rows
    stopped = trials["diverged"].notna() & (trials["diverged"].astype(str) != "")
    return Cell(
        where=where,
        planned=planned,
        maxima=maxima,
        finals=finals,
        max_update=trials[f"{metric}_max_update"].astype(float).mean(),
        diverged=int((stopped | ~np.isfinite(maxima)).sum()),
    )


def mark_row(
    cells: Sequence[Cell | None],
    test: str = "signed-rank",
    alpha: float = 0.05,
    correction: str | None = None,
) -> list[Cell | None]:
    """Mark the best of a row and all that the test cannot tell from it.

    The best has the highest mean; a cell with a trial that never had a finite value comes after all
    cells without one. Bold says of every cell in the row that it is, or is not, as good as the best:
    so if one comparison has fewer than 6 pairs, no significance is claimed in the row, and its best is
    underlined. A row of fewer than two cells with trials has no best.
    """
    filled = [i for i, cell in enumerate(cells) if cell is not None and cell.n]
    candidates = [i for i in filled if not np.isnan(cells[i].mean)]
    if len(filled) < 2 or not candidates:
        return list(cells)
    best = max(candidates, key=lambda i: cells[i].rank)
    outcomes = {i: TESTS[test](cells[best].maxima, cells[i].maxima) for i in filled if i != best}
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
