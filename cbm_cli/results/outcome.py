"""What a trial has come to: its outcome, or where it stands between two stretches."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbm_cli.kernels.state import State

Machine = dict[str, NDArray[Any]]  # in the documented form of machine files


@dataclass
class Progress:
    """Everything that a trial needs to go on: training is a pure function of it.

    Attributes
    ----------
    state : State
        Machine, offsets and chains after ``update`` updates.
    update : int
    curve : list of rows
        Evaluations so far; see Outcome.
    best_machine : Machine or None
        The machine at the best evaluation of the validation part, where there is one.
    seconds : float
        Time spent so far.
    """

    state: State
    update: int = 0
    curve: list[list[float]] = field(default_factory=list)
    best_machine: Machine | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """The curve and the machines of a finished trial.

    Attributes
    ----------
    columns : tuple of str
        ``update``, ``epoch``, then ``<split>_<metric>`` such as ``train_log_likelihood``.
    curve : (evaluations, columns) float64
        One row per evaluation, the first at update 0; log-likelihoods in nats per sample.
    machine : Machine
        The final machine.
    diverged : int or None
        Update at which parameters were first seen not to be finite.
    seconds : float
        Time spent training and evaluating.
    rows : dict
        Rows of each part of the data, by split.
    best_machine : Machine or None
        The machine at the best evaluation of the validation part, where there is one.
    """

    columns: tuple[str, ...]
    curve: NDArray[np.float64]
    machine: Machine
    diverged: int | None
    seconds: float
    rows: dict[str, int] = field(default_factory=dict)
    best_machine: Machine | None = None

    def summary(self) -> dict[str, float | int]:
        """Maximum, final value and update of the maximum of every log-likelihood, over updates after 0.

        Where there is a validation part, also the values at its best evaluation; of all other columns,
        the final value.
        """
        updates = self.curve[1:, 0].astype(int)
        row: dict[str, float | int] = {}
        for name, column in zip(self.columns[2:], self.curve[1:, 2:].T, strict=True):
            if name.endswith("_log_likelihood"):
                best = _best(column)
                row[f"{name}_max"] = float(column[best]) if np.isfinite(column[best]) else -np.inf
                row[f"{name}_max_update"] = int(updates[best])
            row[f"{name}_final"] = float(column[-1])
        if "valid_log_likelihood" in self.columns:
            best = _best(self.curve[1:, self.columns.index("valid_log_likelihood")])
            for place, name in enumerate(self.columns):
                if name.endswith("_log_likelihood"):
                    row[f"{name}_best_valid"] = float(self.curve[1 + best, place])
        return row


def _best(column: NDArray[np.float64]) -> int:
    return int(np.where(np.isfinite(column), column, -np.inf).argmax())
