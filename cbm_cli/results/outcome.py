"""The outcome of a trial, or its progress when it is interrupted; names of its
columns.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cbm_cli.arrays import read_npz
from cbm_cli.errors import CbmError
from cbm_cli.kernels.machine import State
from cbm_cli.kernels.memory import aligned

if TYPE_CHECKING:
    import pandas as pd

LONG = 60.0  # seconds of a training whose end is kept, for longer ones
MachineArrays = dict[str, NDArray[Any]]  # in the documented form of machine files
# Whether more or less of a metric is better
_BEST = {"_log_likelihood": 1, "_pseudo_likelihood": 1, "_bound": 1, "_cost": -1}
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
        state = {
            name: array
            for name, array in self.state._asdict().items()
            if array is not None
        }
        groups = {"state": state} | {
            name: getattr(self, name) or {} for name in _GROUPS
        }
        facts = {name: getattr(self, name) for name in _FACTS} | {"start": start}
        return {
            f"{group}.{name}": array
            for group, its in groups.items()
            for name, array in its.items()
        } | {
            "curve": np.array(self.curve, dtype=np.float64),
            "records": np.concatenate(self.records) if self.records else np.empty(0),
            "facts": np.array(json.dumps(facts)),
        }


def read_progress(path: Path, start: str = "") -> Progress | None:
    """Read the progress of a trial that started from ``start``; None without a file or
    for another start.
    """
    if not path.is_file():
        return None
    try:
        arrays = read_npz(path)
        facts = json.loads(str(arrays["facts"]))
        if facts.pop("start") != start:
            return None
        groups: dict[str, Any] = {group: {} for group in ("state", *_GROUPS)}
        for group, _, name in map(str.partition, arrays, "." * len(arrays)):
            if name:
                groups[group][name] = arrays[f"{group}.{name}"]
        state: dict[str, Any] = {
            name: aligned(array) for name, array in groups.pop("state").items()
        }
        if not all(array.size for array in state.values()):
            raise ValueError("kernels do not expect empty arrays")
        state["rounds"] = arrays["state.rounds"].astype(
            np.int64
        )  # whole: counts may exceed 2^24
        groups["best_machine"] = groups["best_machine"] or None
        records = [arrays["records"]] if arrays["records"].size else []
        facts["recorded"] = tuple(facts["recorded"])
        return Progress(
            State(**state),
            curve=arrays["curve"].tolist(),
            records=records,
            **groups,
            **facts,
        )
    except (CbmError, ValueError, KeyError, TypeError):
        raise CbmError(
            f"{path}: was cut short or damaged; this trial starts from the beginning"
        ) from None


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
        raw = dict(zip(self.columns, self.curve[1:].T, strict=True))
        curve = {name: believed(name, raw) for name in self.columns[2:]}
        for name, column in curve.items():
            if sign := better(name):
                best, end, most = (
                    best_of(column, sign),
                    "max" if sign == 1 else "min",
                    Metric(name).at_most,
                )
                row[f"{name}_{end}"] = (
                    float(column[best]) if np.isfinite(column[best]) else -sign * np.inf
                )
                row[f"{name}_{end}_update"] = int(raw["update"][best])
                if most in curve:
                    row[f"{most}_{end}"] = float(curve[most][best])
                start = self.columns.index(name)
                row[f"{name}_start"] = float(self.curve[0, start])
            row[f"{name}_final"] = float(column[-1])
        if watched := valid_metric(self.columns):
            best = best_of(curve[watched], better(watched))
            shown = [name for name in curve if better(name.removesuffix("_at_most"))]
            row |= {f"{name}_best_valid": float(curve[name][best]) for name in shown}
        if self.records is not None and len(self.records):
            values = zip(self.recorded[1:], self.records[-1, 1:].tolist(), strict=True)
            row |= {f"{name}_final": value for name, value in values}
        return row


def better(column: str) -> int:
    """Return 1 if more of a column's metric is better, -1 if less is, 0 for other
    columns.
    """
    return next((sign for ending, sign in _BEST.items() if column.endswith(ending)), 0)


def believed(metric: str, columns: Mapping[str, Any]) -> Any:
    """Return a column of a curve, with the proved limit in place of each estimate above
    it.
    """
    values, most = columns[metric], columns.get(Metric(metric).at_most)
    if most is None:
        return values
    return np.where(
        (columns["effective_sample_size"] == 0) & (values > most), most, values
    )


def valid_metric(columns: Sequence[str]) -> str | None:
    """Return the column that chooses the best machine on the validation part, if there
    is one.
    """
    return next(
        (name for name in columns if name.startswith("valid_") and better(name)), None
    )


def best_of(column: NDArray[np.float64], sign: int) -> int:
    """Return the row of the largest (sign 1) or smallest (-1) value; non-finite values
    are the worst.
    """
    return int(np.where(np.isfinite(column), sign * column, -np.inf).argmax())


# Names of columns

_EVALUATED = r"_(exact|ais|pseudo)$"  # suffix of the columns of cbm evaluate
_IN_WORDS = {
    "log_likelihood": "log-likelihood",
    "lower_bound": "lower bound of the log-likelihood",
    "pseudo_likelihood": "pseudo-likelihood",
    "tighter_bound": "tighter bound of the log-likelihood",
}
# The first that was measured is shown by default
_USUAL = "log_likelihood", "cost", "lower_bound", "pseudo_likelihood"


@dataclass(frozen=True)
class Metric:
    """A column of curves or records, such as ``test_lower_bound`` or
    ``weight_norm``.
    """

    column: str

    @property
    def part(self) -> str:
        """Part of the data that it is a mean over: train, valid, test, or empty."""
        first = self.column.partition("_")[0]
        return first if first in ("train", "valid", "test") else ""

    @property
    def better(self) -> int:
        """1 if more is better (likelihoods, bounds), -1 if less is (costs), 0 for all
        others.
        """
        return better(re.sub(_EVALUATED, "", self.column)) if self.part else 0

    @property
    def at_most(self) -> str:
        """Column with what is proved of it: how large it can be."""
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
        if not self.better or scale != "total":
            return "per row" if self.better else ""
        return f"of all {rows[0]:,} rows" if len(rows) == 1 else "of all rows"


def fewest_effective(runs: Any) -> Any:
    """Return the effective sample size of AIS that is no longer doubtful: a tenth of
    the runs, 2 at least.
    """
    return np.fmax(2.0, runs / 10)


def measured(columns: Iterable[str]) -> list[str]:
    """Return the metrics in ``summary.csv``: those of curves and records, then those of
    cbm evaluate.
    """
    columns = list(columns)
    own = [
        column.removesuffix("_final") for column in columns if column.endswith("_final")
    ]
    return own + [
        column
        for column in columns
        if re.search(_EVALUATED, column) and Metric(column).better
    ]


def default_metric(frame: "pd.DataFrame") -> str | None:
    """Return the metric to show of ``summary.csv`` if none is named, or None if nothing
    was evaluated.

    The log-likelihood, else the cost of an auto encoder, else the lower bound of a deep
    machine: of the test part, or of the training part if some trials have no test part.
    """
    for name in _USUAL:
        there = [
            f"{part}_{name}"
            for part in ("test", "train", "valid")
            if f"{part}_{name}_final" in frame
        ]
        if there:
            return max(
                there, key=lambda one: frame[f"{one}_final"].notna().sum()
            )  # the first of equals
    return None
