"""Metrics: names of the columns of curves and of the summary, and which values are
better.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

_PARTS = ("train", "valid", "test")
# Whether more or less of a metric is better, by the end of its name
_BETTER = {"_log_likelihood": 1, "_pseudo_likelihood": 1, "_bound": 1, "_cost": -1}
_EVALUATED = r"_(exact|ais|pseudo)$"  # suffix of the columns of cbm evaluate
_IN_WORDS = {
    "log_likelihood": "log-likelihood",
    "lower_bound": "lower bound of the log-likelihood",
    "pseudo_likelihood": "pseudo-likelihood",
    "tighter_bound": "tighter bound of the log-likelihood",
}
# The first that was measured is shown by default
_USUAL = ("log_likelihood", "cost", "lower_bound", "pseudo_likelihood")


@dataclass(frozen=True)
class Metric:
    """A column of curves or records, such as ``test_lower_bound`` or
    ``weight_norm``.

    Examples
    --------
    >>> metric = Metric("test_log_likelihood")
    >>> metric.part, metric.better, metric.name, metric.unit("total", [8])
    ('test', 1, 'log-likelihood', 'of all 8 rows')
    """

    column: str

    @property
    def part(self) -> str:
        """Part of the data that it is a mean over: train, valid, test, or empty."""
        first = self.column.partition("_")[0]
        return first if first in _PARTS else ""

    @property
    def better(self) -> int:
        """1 if more is better (likelihoods, bounds), -1 if less is (costs), 0 for all
        others.
        """
        if not self.part:
            return 0
        return better(re.sub(_EVALUATED, "", self.column))

    @property
    def at_most(self) -> str:
        """Column with the proved limit: how large it can be."""
        return f"{self.column}_at_most"

    @property
    def name(self) -> str:
        """In words, without the part."""
        name = self.column.removeprefix(f"{self.part}_")
        return _IN_WORDS.get(name, name.replace("_", " ").replace("log ", "log-"))

    def unit(self, scale: str = "per-sample", rows: Sequence[int] = ()) -> str:
        """Return the unit of a value: ``per row`` or ``of all 8 rows``; empty if it is
        not a mean over rows.

        ``rows`` are the numbers of rows of the data sets; several are not said.
        """
        if not self.better:
            return ""
        if scale != "total":
            return "per row"
        return f"of all {rows[0]:,} rows" if len(rows) == 1 else "of all rows"


def better(column: str) -> int:
    """Return 1 if more of a column's metric is better, -1 if less is, 0 for other
    columns.
    """
    for ending, sign in _BETTER.items():
        if column.endswith(ending):
            return sign
    return 0


def believed(metric: str, columns: Mapping[str, Any]) -> Any:
    """Return a column of a curve, with the proved limit in place of each estimate that
    it disproves.
    """
    values, limits = columns[metric], columns.get(Metric(metric).at_most)
    if limits is None:
        return values
    is_disproved = (columns["effective_sample_size"] == 0) & (values > limits)
    return np.where(is_disproved, limits, values)


def best_of(column: NDArray[np.float64], sign: int) -> int:
    """Return the row of the largest (sign 1) or smallest (-1) value; non-finite values
    are the worst.
    """
    return int(np.where(np.isfinite(column), sign * column, -np.inf).argmax())


def fewest_effective(runs: Any) -> Any:
    """Return the effective sample size of AIS that is no longer doubtful: a tenth of
    the runs, 2 at least.
    """
    return np.fmax(2.0, runs / 10)


# Which metrics there are


def valid_metric(columns: Iterable[str]) -> str | None:
    """Return the column that chooses the best machine on the validation part, if there
    is one.
    """
    for name in columns:
        if name.startswith("valid_") and better(name):
            return name
    return None


def measured(columns: Iterable[str]) -> list[str]:
    """Return the metrics in ``summary.csv``: those of curves and records, then those of
    cbm evaluate.

    >>> measured(["trial", "train_log_likelihood_final", "train_log_likelihood_ais"])
    ['train_log_likelihood', 'train_log_likelihood_ais']
    """
    during: list[str] = []
    afterwards: list[str] = []
    for column in columns:
        if column.endswith("_final"):
            during.append(column.removesuffix("_final"))
        elif re.search(_EVALUATED, column) and Metric(column).better:
            afterwards.append(column)
    return during + afterwards


def ranked(columns: Iterable[str]) -> list[str]:
    """Return the metrics in ``summary.csv`` of which more or less is better."""
    return [name for name in measured(columns) if Metric(name).better]


def default_metric(frame: "pd.DataFrame") -> str | None:
    """Return the metric to show of ``summary.csv`` if none is named, or None if nothing
    was evaluated.

    The log-likelihood, else the cost of an auto encoder, else the lower bound of a deep
    machine: of the test part, or of the training part if some trials have no test part.
    """
    for name in _USUAL:
        columns = [f"{part}_{name}_final" for part in ("test", "train", "valid")]
        columns = [column for column in columns if column in frame]
        if columns:
            trials = frame[columns].notna().sum()
            return str(trials.idxmax()).removesuffix("_final")  # the first of equals
    return None
