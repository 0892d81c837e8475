"""What a trial has come to: its outcome, or where it stands between two stretches."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Machine = dict[str, NDArray[Any]]  # in the documented form of machine files
_BEST = {"_log_likelihood": 1, "_bound": 1, "_cost": -1}  # whether more or less of a metric is better


@dataclass
class Progress:
    """Everything that a trial needs to go on: training is a pure function of it.

    Attributes
    ----------
    state : named tuple of arrays
        Machine, offsets and chains after ``update`` updates.
    update : int
    curve : list of rows
        Evaluations so far; see Outcome.
    best_machine : Machine or None
        The machine at the best evaluation of the validation part, where there is one.
    seconds : float
        Time spent so far.
    recorded, records : tuple of str, list of arrays
        Columns of the recorders, and what they have found so far, group by group; see Outcome.
    pending : dict of arrays
        Snapshots whose records are not computed yet.
    stage : int
        Layers that are pre-trained; ``update`` counts the updates of the stage.
    pretrained : Machine
        Weights, plain biases and offsets of these layers.
    """

    state: Any
    update: int = 0
    curve: list[list[float]] = field(default_factory=list)
    best_machine: Machine | None = None
    seconds: float = 0.0
    recorded: tuple[str, ...] = ()
    records: list[NDArray[np.float64]] = field(default_factory=list)
    pending: Machine = field(default_factory=dict)
    stage: int = 0
    pretrained: Machine = field(default_factory=dict)

    def copy(self) -> "Progress":
        """Return a copy that training and evaluating the original leave as it is."""
        state = self.state and type(self.state)(*(array.copy() for array in self.state))
        return replace(self, state=state, curve=[*self.curve], records=[*self.records])


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
    recorded : tuple of str
        ``update``, then the columns of the recorders; empty where there are none.
    records : (updates, recorded) float64
    converged : int or None
        Epoch of the lowest validation cost, where early stopping ended the trial.
    pretrained : Machine
        Layers that were pre-trained; see Progress.
    end : Progress or None
        Where the trial stood before its last evaluation: what a longer training goes on from.
    """

    columns: tuple[str, ...]
    curve: NDArray[np.float64]
    machine: Machine
    diverged: int | None
    seconds: float
    rows: dict[str, int] = field(default_factory=dict)
    best_machine: Machine | None = None
    recorded: tuple[str, ...] = ()
    records: NDArray[np.float64] | None = None
    converged: int | None = None
    pretrained: Machine = field(default_factory=dict)
    end: Progress | None = None

    def summary(self) -> dict[str, float | int]:
        """Best and final value and update of the best of every metric, over updates after 0.

        The best of likelihoods and bounds is the maximum, ``_max``, of costs the minimum, ``_min``. Where
        there is a validation part, also the values at its best evaluation; of all other columns, and of
        what was recorded, the final value.
        """
        updates = self.curve[1:, 0].astype(int)
        row: dict[str, float | int] = {}
        for name, column in zip(self.columns[2:], self.curve[1:, 2:].T, strict=True):
            sign = better(name)
            if sign:
                best, end = best_of(column, sign), "max" if sign > 0 else "min"
                row[f"{name}_{end}"] = float(column[best]) if np.isfinite(column[best]) else -sign * np.inf
                row[f"{name}_{end}_update"] = int(updates[best])
            row[f"{name}_final"] = float(column[-1])
        row |= self._at_best_validation()
        if self.records is not None and len(self.records):
            final = zip(self.recorded[1:], self.records[-1, 1:].tolist(), strict=True)
            row |= {f"{name}_final": value for name, value in final}
        return row

    def _at_best_validation(self) -> dict[str, float]:
        name = validation_metric(self.columns)
        if name is None:
            return {}
        best = 1 + best_of(self.curve[1:, self.columns.index(name)], better(name))
        at_best = zip(self.columns, self.curve[best].tolist(), strict=True)
        return {f"{column}_best_valid": value for column, value in at_best if better(column)}


def better(column: str) -> int:
    """1 where more of a column's metric is better, -1 where less is, 0 for what is neither."""
    return next((sign for ending, sign in _BEST.items() if column.endswith(ending)), 0)


def validation_metric(columns: tuple[str, ...]) -> str | None:
    """The column whose best value on the validation part is looked for."""
    return next((name for name in columns if name.startswith("valid_") and better(name)), None)


def best_of(column: NDArray[np.float64], sign: int) -> int:
    """Row of the largest (sign 1) or smallest (-1) value; values that are not finite are the worst."""
    return int(np.where(np.isfinite(column), sign * column, -np.inf).argmax())
