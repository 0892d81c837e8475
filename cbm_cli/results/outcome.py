"""The outcome of a trial, or its progress when it is interrupted."""

import json
from typing import Any

import msgspec
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
Summary = dict[str, float | int]  # values by column of summary.csv
MachineArrays = dict[str, NDArray[Any]]  # in the documented form of machine files
GROUPS = ("best_machine", "pending", "pretrained")  # of arrays of a progress file
# of progress, in JSON
_FACTS = ("update", "seconds", "recorded", "stage", "computer", "flaws")


class Progress(msgspec.Struct):
    """Everything that a trial needs to resume; training is a pure function of it."""

    # machine, offsets and chains after ``update`` updates: kernels.machine.State
    state: Any
    update: int = 0
    curve: list[list[float]] = []  # evaluations so far, as in Outcome
    # at the best evaluation of a validation part, if any
    best_machine: MachineArrays | None = None
    seconds: float = 0.0  # spent so far
    recorded: tuple[str, ...] = ()  # columns of the recorders
    records: list[NDArray] = []  # their rows so far, group by group
    pending: MachineArrays = {}  # snapshots that are not recorded yet
    # layers that are pre-trained; ``update`` counts the updates of the stage
    stage: int = 0
    pretrained: MachineArrays = {}  # weights, plain biases and offsets of them
    computer: dict[str, str] = {}  # where it was trained, as in kernels.computer
    flaws: dict[str, str] = {}  # of the user's recorders: why they gave no columns

    def copy(self) -> "Progress":
        """Return a copy that does not change when the original is trained and
        evaluated.
        """
        state = self.state and self.state.copy()
        return msgspec.structs.replace(
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
        groups = {"state": self.state._asdict()}
        groups |= {group: getattr(self, group) or {} for group in GROUPS}
        for group, members in groups.items():
            for name, array in members.items():
                if array is not None:
                    arrays[f"{group}.{name}"] = array
        return arrays


class Outcome(msgspec.Struct, frozen=True):
    """The curve and the machines of a finished trial."""

    # ``update``, ``epoch``, then <part>_<metric> such as train_log_likelihood
    columns: tuple[str, ...]
    # (evaluations, columns), the first at update 0; nats per sample
    curve: NDArray
    machine: MachineArrays  # the final one
    diverged: int | None  # update at which parameters were first found not to be finite
    seconds: float  # spent on training and evaluating
    rows: dict[str, int] = {}  # number of rows by part of the data
    best_machine: MachineArrays | None = None
    # ``update``, then the columns of the recorders; empty without recorders
    recorded: tuple[str, ...] = ()
    records: NDArray | None = None  # (updates, recorded)
    # Epoch of the lowest validation cost, if early stopping ended the trial
    converged: float | None = None
    pretrained: MachineArrays = {}
    # of a `LONG` one, before the last evaluation: where a longer one continues
    end: Progress | None = None
    computer: dict[str, str] = {}  # as in Progress
    flaws: dict[str, str] = {}  # as in Progress

    def summary(self) -> Summary:
        """Return the best and final values of every metric, and the update of the best,
        after update 0.

        The best of likelihoods and bounds is the maximum, ``_max``, of costs the
        minimum, ``_min``. With a validation part there are also the values at its best
        evaluation, and ``_start`` is the value of the untrained machine. Other columns,
        and those of recorders, have only a final value. Each of these values of an
        estimate comes with its proved limit.
        """
        row: Summary = {}
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
            names = [f"{name}_final" for name in self.recorded[1:]]
            row |= zip(names, self.records[-1, 1:].tolist(), strict=True)
        return row

    def _best_of_metric(
        self, name: str, curve: dict[str, NDArray[np.float64]]
    ) -> Summary:
        """Return the best value of a metric, its update and limit, and the value of the
        untrained machine.
        """
        sign, at_most = better(name), Metric(name).at_most
        end = "max" if sign == 1 else "min"
        best = best_of(curve[name], sign)
        value = float(curve[name][best])
        if not np.isfinite(value):
            value = -sign * np.inf
        row: Summary = {f"{name}_{end}": value}
        row[f"{name}_{end}_update"] = int(self.curve[1 + best, 0])
        if at_most in curve:
            row[f"{at_most}_{end}"] = float(curve[at_most][best])
        row[f"{name}_start"] = float(self.curve[0, self.columns.index(name)])
        return row
