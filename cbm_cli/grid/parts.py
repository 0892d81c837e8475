"""The nested settings of a cell: its machine, how it learns, and what is measured."""

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    WithJsonSchema,
    field_serializer,
    model_serializer,
    model_validator,
)

from cbm_cli.datasets.spec import DataSpec, FileName
from cbm_cli.grid.values import (
    Count,
    Fraction,
    Frozen,
    Interval,
    Misfit,
    NotNegative,
    Parts,
    Positive,
    WholeNumber,
    text_of_form,
    whole,
)
from cbm_cli.text import CONTROL, WHOLE, did_you_mean, shortened, whole_numbers

RECORDERS = {  # names of functions in trial/recorders.py, and of their columns
    "log_likelihood": ("log_likelihood",),
    "weight_norms": ("weight_norm", "weight_row_norm", "weight_column_norm"),
    "bias_norms": tuple(
        f"{name}_bias_norm" for name in ("visible", "hidden", "centered_visible", "centered_hidden")
    ),
    "offset_values": ("lam_0",),
    "offset_error": ("visible_offset_error", "hidden_offset_error"),
    "gradient_angles": ("angle_natural_standard", "angle_natural_centered"),
    "gradient_norms": ("standard_gradient_norm", "centered_gradient_norm"),
    "hidden_activity": ("hidden_activity_mean", "hidden_activity_extreme"),
    "reconstruction_error": ("reconstruction_error",),
    "free_energy_gap": ("free_energy_gap",),
    "pseudo_likelihood": ("pseudo_likelihood",),
}
OWN_RECORDER = r"[^=@-].*\.py:[A-Za-z_]\w*"  # file.py:function


class Data(DataSpec, Frozen):  # type: ignore[misc]  # serialisers may take info, or not
    """A data set by name, or one read from files; paths are relative to the grid's folder."""


# The machine


def _sizes(value: object) -> int | tuple[int, ...] | Literal["half"]:
    """Read ``500``, ``500-500``, a list of numbers, or ``half``."""
    text = "-".join(map(str, value)) if isinstance(value, list | tuple) else str(value).strip()
    if text == "half":
        return "half"
    try:
        sizes = tuple(whole_numbers(text.split("-"), "sizes", 1))
    except ValueError:
        shown = "a mapping" if isinstance(value, dict) else shortened(text)
        raise ValueError(
            f"must be whole numbers of 1 or more, one per hidden layer, as in 500 or 500-500, not {shown}"
        ) from None
    return sizes if len(sizes) > 1 else sizes[0]


_ONE_LAYER = [{"type": "integer", "minimum": 1}, {"const": "half"}]
_LAYER_TEXT = {"type": "string", "pattern": rf"^\s*{WHOLE}\s*$"}
_LAYERS = {"type": "string", "pattern": rf"^\s*{WHOLE}(\s*-\s*{WHOLE})*\s*$"}
Sizes = Annotated[
    int | tuple[int, ...] | Literal["half"],
    BeforeValidator(_sizes),
    WithJsonSchema(
        {
            "anyOf": [
                *(*_ONE_LAYER, _LAYERS),
                {"type": "array", "items": {"anyOf": [*_ONE_LAYER, _LAYER_TEXT]}, "minItems": 1},
            ]
        }
    ),
]


class Model(Frozen):
    """The machine."""

    kind: Literal["rbm", "dbm", "auto-encoder"] = Field(description="Kind of machine")
    hidden: Sizes = Field(
        description="Hidden units; of several layers [500, 500] or 500-500; auto encoders: also half"
    )

    @model_validator(mode="after")
    def _check(self) -> "Model":
        if self.hidden == "half" and self.kind != "auto-encoder":
            told = f"half is for auto encoders; give the {self.kind} a number of units"
            raise Misfit("hidden", told, "unsuited")
        if self.kind == "rbm" and self.layers > 2:
            told = f"an rbm has one hidden layer, not {self.size}; a dbm has several"
            raise Misfit("hidden", told, "unsuited")
        if self.kind == "dbm" and self.layers == 2:
            remedy = f"write kind: rbm, or two layers as in [{self.hidden}, {self.hidden}]"
            raise Misfit("hidden", f"a dbm with one hidden layer is an RBM; {remedy}", "unsuited")
        return self

    @field_serializer("hidden")
    def _plain(self, hidden: int | tuple[int, ...] | str) -> int | str:
        return self.size if isinstance(hidden, tuple) else hidden

    @property
    def size(self) -> str:
        """Hidden units as text: ``500``, ``500-500`` or ``half``."""
        return "-".join(map(str, self.hidden)) if isinstance(self.hidden, tuple) else str(self.hidden)

    @property
    def layers(self) -> int:
        """Layers of units, the visible one included; a scheme has one letter for each."""
        return 1 + (len(self.hidden) if isinstance(self.hidden, tuple) else 1)

    def hidden_layers(self, width: int) -> tuple[int, ...]:
        """Units of each hidden layer above ``width`` visible ones; half of an odd width rounds down."""
        if self.hidden == "half":
            return (max(1, width // 2),)
        return self.hidden if isinstance(self.hidden, tuple) else (self.hidden,)


# Learning


def _steps(match: re.Match) -> str:
    """Return the canonical text of steps: ``0.01 from 100 epochs + 0.001 from 200 epochs``."""
    steps = [*re.finditer(_STEP, match[0])]
    rates, firsts = [float(step[1]) for step in steps], whole_numbers([step[2] for step in steps], "steps")
    if not all(0 < rate < float("inf") for rate in rates):
        raise ValueError("rates must be finite and greater than 0")
    if len({step[3] for step in steps}) > 1:
        raise ValueError("count all steps in updates, or all in epochs")
    if any(not first < second for first, second in pairwise([0, *firsts])):
        raise ValueError("steps must come one after the other, each 1 or more after the one before")
    units = [step[3] + "s" * (first > 1) for step, first in zip(steps, firsts, strict=True)]
    return " + ".join(
        f"{_exact(rate)} from {first} {unit}" for rate, first, unit in zip(rates, firsts, units, strict=True)
    )


def _exact(number: float) -> str:
    """Return the shortest text that reads as the number, without ``.0``."""
    return f"{number:g}" if float(f"{number:g}") == number else repr(number)


_STEP = rf"([0-9.][0-9.eE_+-]*)\s+from\s+({WHOLE})\s+(update|epoch)s?"
Steps: Any = text_of_form(
    rf"{_STEP}(?:\s+\+\s+{_STEP})*",
    "write rates and where they begin, as in 0.01 from 100 epochs + 0.001 from 200 epochs",
    _steps,
)


class LearningRate(Frozen):
    """The learning rate: a number, a rate that decays, or one that changes in steps.

    As text: the number, ``0.1 x 0.9 every 10 epochs``, or ``0.1, 0.01 from 100 epochs``.
    """

    start: Positive = Field(description="Learning rate of the first update")
    decay: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None, description="Factor on the rate after every interval"
    )
    every: Interval | None = Field(None, description="Interval of the decay: 500 updates or 10 epochs")
    steps: Steps | None = Field(None, description="Later rates: 0.01 from 100 epochs + 0.001 from 200 epochs")

    @model_validator(mode="before")
    @classmethod
    def _from_number(cls, given: Any) -> Any:
        return given if isinstance(given, dict | LearningRate) else {"start": given}

    @model_validator(mode="after")
    def _check(self) -> "LearningRate":
        if self.decay and not self.every:
            raise Misfit("decay", "decay needs an interval, as in every: 10 epochs", "missing")
        if self.every and not self.decay:
            raise Misfit("every", "every needs a decay, as in decay: 0.9", "missing")
        if self.steps and self.decay:
            told = "a rate decays or changes in steps; give decay and every, or steps"
            raise Misfit("steps", told, "conflict")
        return self

    @model_serializer
    def _dump(self) -> float | str:  # type: ignore[override]  # of a form that pydantic knows, too
        return self.start if self.constant else str(self)

    def __str__(self) -> str:
        """The rate as tables show it."""
        if self.decay:
            return f"{_exact(self.start)} x {_exact(self.decay)} every {self.every}"
        if self.steps:
            return f"{_exact(self.start)}, {self.steps.replace(' + ', ', ')}"
        return f"{self.start:g}"

    @property
    def constant(self) -> bool:
        """Whether all updates have the same rate."""
        return not (self.decay or self.steps)

    @property
    def slug(self) -> str:
        """The text as part of a folder's name: ``0.1-x-0.9-every-10-epochs``."""
        return str(self).replace(",", "").replace(" ", "-")

    def pieces(self, updates_of: Callable[[str], int], total: int) -> list[tuple[int, float]]:
        """Return the first update and the rate of each stretch of constant rate in ``total`` updates.

        ``updates_of`` turns the text of an interval, such as ``10 epochs``, into updates.
        """
        pieces = [(0, self.start)]
        if self.decay and self.every:
            firsts = range(0, total, updates_of(self.every))
            pieces = [(first, self.start * self.decay**k) for k, first in enumerate(firsts)]
        later: list[str] = self.steps.split(" + ") if self.steps else []
        for step in later:
            rate, interval = step.split(" from ")
            pieces.append((updates_of(interval), float(rate)))
        return [piece for piece in pieces if piece[0] < total]


class SlidingFactor(Frozen):
    """Weight of the newest mean in the moving average of ``_s`` schemes; a number is for both sides."""

    visible: Annotated[float, Field(ge=0, le=1)] = Field(
        0.01, description="0: visible offsets of the letter d stay at the mean of the whole training part"
    )
    hidden: Fraction = Field(0.01, description="Of hidden offsets")


class WeightDecay(Frozen):
    """Taken from W in every update: learning_rate * (l2 W + l1 sign W); a number is l2."""

    l1: NotNegative = Field(0.0, description="Share of the signs of the weights")
    l2: NotNegative = Field(0.0, description="Share of the weights")


class GradientChoice(Frozen):
    """The direction of an update."""

    kind: Literal["centered", "standard", "enhanced", "natural"] = Field(
        "centered", description="centered: by the offset scheme; standard: of 00; enhanced: of aa^b"
    )
    fisher: Literal["joint", "marginal", "diagonal"] = Field(
        "joint", description="natural: covariance of (x h, x, h), of its mean given x, or its diagonal"
    )
    damping: NotNegative = Field(0.0, description="natural: added to the diagonal of the Fisher matrix")
    scale_to: Literal["none", "standard", "centered"] = Field(
        "none", description="Rescale the update to the length of this gradient"
    )


class EarlyStopping(Frozen):
    """When training stops, by its evaluations of the validation part."""

    look_ahead: Count = Field(5, description="Stop after this many evaluations in a row without improvement")
    metric: Literal["likelihood", "pseudo-likelihood"] | None = Field(
        None,
        description="RBM, DBM: what is watched; default: they do not stop. Auto encoders watch their cost",
    )


class Pretraining(Frozen):
    """Layer-wise training of a DBM before the training proper; fields not given are as there."""

    epochs: WholeNumber = Field(0, description="Length in epochs; 0: none")
    learning_rate: Positive | None = Field(None, description="Default: the first rate of the training")
    doubling: bool = Field(True, description="Double the activations that have one side of two")


def _file_of_trial(text: str) -> str:
    if re.search(r"[{}]", re.sub(r"\{trial(:0\d)?d?\}", "", text)):
        raise ValueError("only {trial} and {trial:03d} are known, as in start/trial-{trial:03d}.npz")
    return text


class StartFrom(Frozen):
    """The machines that trials start from: files, or the finished trials of another experiment."""

    path: Annotated[FileName, AfterValidator(_file_of_trial)] | None = Field(
        None, description="A machine file; {trial:03d} stands for the number of the trial"
    )
    experiment: str | None = Field(
        None, description="An experiment of this grid: its trials of the same number"
    )
    machine: Literal["final", "best-valid"] = Field(
        "final", description="With experiment: the last machine, or the best on the validation part"
    )

    @model_validator(mode="after")
    def _check(self) -> "StartFrom":
        if self.path and self.experiment:
            told = "trials start from files or from an experiment; give path or experiment"
            raise Misfit("path", told, "conflict")
        return self


# Measuring


def _recorders(match: re.Match) -> str:
    names = [name.strip() for name in match[0].split("+")]
    for name in names:
        if name not in RECORDERS and (CONTROL.search(name) or not re.fullmatch(OWN_RECORDER, name)):
            own = "; a recorder of your own is written file.py:function" if ".py" in name else ""
            hint = own or did_you_mean(name, RECORDERS)
            raise Misfit("", f"there is no recorder {name[:60] or 'without a name'}{hint}", "unknown")
    return "+".join(dict.fromkeys(names))


def _windows(match: re.Match) -> str:
    spans = re.split(_PLUS, match[0])
    windows = [whole_numbers(span.split("-"), "updates of a window") for span in spans]
    if any(not first < last for first, last in windows):
        raise ValueError(_WINDOW)
    return "+".join(f"{first}-{last}" for first, last in windows)


_WINDOW = "write the first and the last update of a window, as in 1000-1100 or 0-100+500-600"
_RECORDER = "|".join((*RECORDERS, OWN_RECORDER))
_SPAN = rf"\s*{WHOLE}\s*-\s*{WHOLE}\s*"
_PLUS = r"(?<![eE])\+"  # between numbers, not within one
Temperatures: Any = whole(3)
Runs: Any = whole(2)
Recorders: Any = text_of_form(".*", "", _recorders)
Windows: Any = text_of_form(rf"{_SPAN}(\+{_SPAN})*", _WINDOW, _windows)


class Evaluate(Frozen):
    """What is evaluated during training, and how often."""

    method: Literal["exact", "ais", "pseudo", "none", "cost"] | None = Field(
        None,
        description="Likelihood: exact or ais; pseudo(-likelihood); cost (auto encoders); none. "
        "Default: exact, or cost",
    )
    every: Interval | None = Field(None, description="Default: 50 updates, or 1 epoch where epochs are given")
    parts: Parts | None = Field(None, description="Evaluated parts, such as train+test; default: all")
    rows: Count | None = Field(None, description="Evaluate a fixed subsample of this many rows of each part")
    temperatures: Temperatures | None = Field(
        None,
        description="AIS: inverse temperatures (default: 14,500, of a DBM 29,000)",
    )
    runs: Runs = Field(100, description="AIS: independent runs")


class Record(Frozen):
    """What is recorded beside the evaluations."""

    what: Recorders | None = Field(
        None,
        description="Recorders joined by +, as weight_norms+offset_error; file.py:function runs as your code",
        json_schema_extra={"pattern": rf"^\s*({_RECORDER})(\s*\+\s*({_RECORDER}))*\s*$"},
    )
    every: Interval | None = Field(None, description="Default: at every evaluation")
    window: Windows | None = Field(
        None, description="Record every update from the first to the last: 1000-1100, 0-100+5000-5100"
    )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the recorders; the user's own are ``file.py:function``."""
        return tuple(self.what.split("+")) if self.what else ()

    @property
    def windows(self) -> tuple[tuple[int, int], ...]:
        """First and last update of each window."""
        spans: list[str] = self.window.split("+") if self.window else []
        return tuple((int(first), int(last)) for first, _, last in (span.partition("-") for span in spans))
