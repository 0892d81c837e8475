"""What one trial leaves behind."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Outcome:
    """The curve and the machine of a finished trial.

    Attributes
    ----------
    columns : tuple of str
        ``update``, ``epoch``, then ``<split>_<metric>`` such as ``train_log_likelihood``.
    curve : (evaluations, columns) float64
        One row per evaluation, the first at update 0; log-likelihoods in nats per sample.
    machine : dict of arrays
        The final machine in the documented form of machine files.
    diverged : int or None
        Update at which parameters were first seen not to be finite.
    seconds : float
        Time spent training and evaluating.
    rows : dict
        Rows of each part of the data, by split.
    """

    columns: tuple[str, ...]
    curve: NDArray[np.float64]
    machine: dict[str, NDArray[Any]]
    diverged: int | None
    seconds: float
    rows: dict[str, int] = field(default_factory=dict)

    def summary(self) -> dict[str, float | int]:
        """Maximum, final value and update of the maximum of every metric, over updates after 0."""
        updates, values = self.curve[1:, 0].astype(int), self.curve[1:, 2:]
        row: dict[str, float | int] = {}
        for name, column in zip(self.columns[2:], values.T, strict=True):
            finite = np.where(np.isfinite(column), column, -np.inf)
            best = int(finite.argmax())
            row[f"{name}_max"] = float(finite[best])
            row[f"{name}_final"] = float(column[-1])
            row[f"{name}_max_update"] = int(updates[best])
        return row
