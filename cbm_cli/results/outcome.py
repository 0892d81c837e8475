"""The outcome of a trial, or its progress when it is interrupted."""

import json
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbm_cli.results.metrics import (
    Metric,
    believed,
    best_of,
    better,
    valid_metric,
)

LONG = 60.0  # seconds of a training whose end is kept, for longer ones
MachineArrays = dict[str, NDArray[Any]]  # in the documented form of machine files
_FACTS = (
    "update",
    "seconds",
    "recorded",
    "stage",
    "computer",
    "flaws",
)  # of progress, in JSON
_GROUPS = ("best_machine", "pending", "pretrained")  # of arrays


@dataclass
class Progress:
    """Everything that a trial needs to resume; training is a pure function of it."""

    # machine, offsets and chains after ``update`` updates: kernels.machine.State
    state: Any
    update: int = 0
    curve: list[list[float]] = field(
        default_factory=list
    )  # evaluations so far, as in Outcome
    best_machine: MachineArrays | None = (
        None  # at the best evaluation of a validation part, if any
    )
    seconds: float = 0.0  # spent so far
    recorded: tuple[str, ...] = ()  # columns of the recorders
    records: list[NDArray[np.float64]] = field(
        default_factory=list
    )  # their rows so far, group by group
    pending: MachineArrays = field(
        default_factory=dict
    )  # snapshots that are not recorded yet
    stage: int = (
        0  # layers that are pre-trained; ``update`` counts the updates of the stage
    )
    pretrained: MachineArrays = field(
        default_factory=dict
    )  # weights, plain biases and offsets of them
    computer: dict[str, str] = field(
        default_factory=dict
    )  # where it was trained, as in kernels.computer
    flaws: dict[str, str] = field(
        default_factory=dict
    )  # of the user's recorders: why they gave no columns

    def copy(self) -> "Progress":
        """Return a copy that does not change when the original is trained and
        evaluated.
        """
        state = self.state and self.state.copy()
        return replace(
            self,
            state=state,
            curve=[*self.curve],
            records=[*self.records],
            flaws={**self.flaws},
        )

    def arrays(self, start: str = "") -> MachineArrays:
        """Return the arrays of a progress file of a trial that started from
        ``start``.
        """
        facts = {name: getattr(self, name) for name in _FACTS}
        arrays: MachineArrays = {
            "curve": np.array(self.curve, dtype=np.float64),
            "records": np.empty(0),
            "facts": np.array(json.dumps(facts | {"start": start})),
        }
        if self.records:
            arrays["records"] = np.concatenate(self.records)
        for name, array in self.state._asdict().items():
            if array is not None:
                arrays[f"state.{name}"] = array
        for group in _GROUPS:
            for name, array in (getattr(self, group) or {}).items():
                arrays[f"{group}.{name}"] = array
        return arrays


@dataclass(frozen=True)
class Outcome:
    """The curve and the machines of a finished trial."""

    columns: tuple[
        str, ...
    ]  # ``update``, ``epoch``, then <part>_<metric> such as train_log_likelihood
    curve: NDArray[
        np.float64
    ]  # (evaluations, columns), the first at update 0; nats per sample
    machine: MachineArrays  # the final one
    diverged: int | None  # update at which parameters were first found not to be finite
    seconds: float  # spent on training and evaluating
    rows: dict[str, int] = field(
        default_factory=dict
    )  # number of rows by part of the data
    best_machine: MachineArrays | None = None
    recorded: tuple[
        str, ...
    ] = ()  # ``update``, then the columns of the recorders; empty without recorders
    records: NDArray[np.float64] | None = None  # (updates, recorded)
    # Epoch of the lowest validation cost, if early stopping ended the trial
    converged: float | None = None
    pretrained: MachineArrays = field(default_factory=dict)
    end: Progress | None = (
        # of a `LONG` one, before the last evaluation: where a longer one continues
        None
    )
    computer: dict[str, str] = field(default_factory=dict)  # as in Progress
    flaws: dict[str, str] = field(default_factory=dict)  # as in Progress

    def summary(self) -> dict[str, float | int]:
        """Return the best and final values of every metric, and the update of the best,
        after update 0.

        The best of likelihoods and bounds is the maximum, ``_max``, of costs the
        minimum, ``_min``. With a validation part there are also the values at its best
        evaluation, and ``_start`` is the value of the untrained machine. Other columns,
        and those of recorders, have only a final value. Each of these values of an
        estimate comes with its proved limit.
        """
        row: dict[str, float | int] = {}
        columns = dict(zip(self.columns, self.curve[1:].T, strict=True))
        curve = {name: believed(name, columns) for name in self.columns[2:]}
        for name, values in curve.items():
            if better(name):
                row |= self._best_of_metric(name, curve)
            row[f"{name}_final"] = float(values[-1])
        watched = valid_metric(self.columns)
        if watched:
            best = best_of(curve[watched], better(watched))
            for name, values in curve.items():
                if better(name.removesuffix("_at_most")):
                    row[f"{name}_best_valid"] = float(values[best])
        if self.records is not None and len(self.records):
            last = self.records[-1, 1:].tolist()
            for name, value in zip(self.recorded[1:], last, strict=True):
                row[f"{name}_final"] = value
        return row

    def _best_of_metric(
        self, name: str, curve: dict[str, NDArray[np.float64]]
    ) -> dict[str, float | int]:
        """Return the best value of a metric, its update and limit, and the value of the
        untrained machine.
        """
        sign, at_most = better(name), Metric(name).at_most
        end = "max" if sign == 1 else "min"
        best = best_of(curve[name], sign)
        value = float(curve[name][best])
        row: dict[str, float | int] = {
            f"{name}_{end}": value if np.isfinite(value) else -sign * np.inf,
            f"{name}_{end}_update": int(self.curve[1 + best, 0]),
        }
        if at_most in curve:
            row[f"{at_most}_{end}"] = float(curve[at_most][best])
        row[f"{name}_start"] = float(self.curve[0, self.columns.index(name)])
        return row
