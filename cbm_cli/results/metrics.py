"""Names of the columns of curves, records and summaries, and which of their values are better."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from cbm_cli.results.outcome import better

_PARTS = ("train", "valid", "test")
_EVALUATED = r"_(exact|ais|raise)$"  # suffix of the columns of cbm evaluate
_NAMES = {
    "log_likelihood": "log-likelihood",
    "lower_bound": "lower bound of the log-likelihood",
    "tighter_bound": "tighter bound of the log-likelihood",
}
# The default metric is the first of these that was measured.
_PREFERRED = (
    *("train_log_likelihood", "test_log_likelihood", "valid_log_likelihood"),
    *("test_cost", "train_cost", "valid_cost"),
    *("test_lower_bound", "train_lower_bound", "valid_lower_bound"),
)


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


def fewest_effective(runs: int) -> float:
    """Return the effective sample size of AIS that is no longer doubtful: a tenth of the runs, 2 at least."""
    return max(2.0, runs / 10)


def measured(columns: Iterable[str]) -> list[str]:
    """Return the metrics in ``summary.csv``: those of curves and records, then those of cbm evaluate."""
    columns = list(columns)
    own = [column.removesuffix("_final") for column in columns if column.endswith("_final")]
    return own + [column for column in columns if re.search(_EVALUATED, column) and Metric(column).better]


def default_metric(measured: Iterable[str]) -> str | None:
    """Return the metric to show if none is named, or None if nothing was evaluated.

    The log-likelihood, first of the training part; else the cost of an auto encoder or the lower bound of a
    deep machine, first of the test part.
    """
    measured = set(measured)
    return next((metric for metric in _PREFERRED if metric in measured), None)
