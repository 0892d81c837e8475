"""Names of the columns of curves, records and summaries, and which of their values are better."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cbm_cli.results.outcome import better

if TYPE_CHECKING:
    import pandas as pd

_PARTS = ("train", "valid", "test")
_EVALUATED = r"_(exact|ais|pseudo)$"  # suffix of the columns of cbm evaluate
# How the values of cbm evaluate were made, and in which words that is told; {} is the value
FACTS = {
    "temperatures": "{} temperatures",
    "runs": "{} runs",
    "base": "{}",
    "rows": "{} rows",
    "seed": "seed {}",
    "version": "{}",
}
_NAMES = {
    "log_likelihood": "log-likelihood",
    "lower_bound": "lower bound of the log-likelihood",
    "pseudo_likelihood": "pseudo-likelihood",
}
# The first that was measured is shown by default
_SHOWN = "log_likelihood", "cost", "lower_bound", "pseudo_likelihood"


@dataclass(frozen=True)
class Metric:
    """A column of curves or records, such as ``test_lower_bound`` or ``weight_norm``."""

    column: str

    @property
    def part(self) -> str:
        """Part of the data that it is a mean over: train, valid, test, or empty."""
        first = self.column.partition("_")[0]
        return first if first in _PARTS else ""

    @property
    def better(self) -> int:
        """1 if more is better (likelihoods, bounds), -1 if less is (costs), 0 for all others."""
        return better(re.sub(_EVALUATED, "", self.column)) if self.part else 0

    @property
    def name(self) -> str:
        """In words, without the part."""
        name = self.column.removeprefix(f"{self.part}_")
        return _NAMES.get(name, name.replace("_", " ").replace("log ", "log-"))

    def unit(self, scale: str = "per-sample", rows: Sequence[int] = ()) -> str:
        """Say what a value is of: ``per row`` or ``of all 8 rows``; empty for what is no mean over rows.

        ``rows`` are the numbers of rows of the data sets; several are not said.
        """
        if not self.better or scale != "total":
            return "per row" if self.better else ""
        return f"of all {rows[0]:,} rows" if len(rows) == 1 else "of all rows"


def fewest_effective(runs: int) -> float:
    """Return the effective sample size of AIS that is no longer doubtful: a tenth of the runs, 2 at least."""
    return max(2.0, runs / 10)


def measured(columns: Iterable[str]) -> list[str]:
    """Return the metrics in ``summary.csv``: those of curves and records, then those of cbm evaluate."""
    columns = list(columns)
    own = [column.removesuffix("_final") for column in columns if column.endswith("_final")]
    return own + [column for column in columns if re.search(_EVALUATED, column) and Metric(column).better]


def default_metric(frame: "pd.DataFrame") -> str | None:
    """Return the metric to show of ``summary.csv`` if none is named, or None if nothing was evaluated.

    The log-likelihood, else the cost of an auto encoder, else the lower bound of a deep machine: of the test
    part, or of the training part if some trials have no test part.
    """
    for name in _SHOWN:
        there = [f"{part}_{name}" for part in ("test", "train", "valid") if f"{part}_{name}_final" in frame]
        if there:
            return max(there, key=lambda one: frame[f"{one}_final"].notna().sum())  # the first of equals
    return None
