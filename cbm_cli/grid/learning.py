"""How a machine learns: which gradient it climbs, and what goes before and between its updates."""

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_serializer, model_validator

from cbm_cli.grid.offsets import Scheme
from cbm_cli.grid.samplers import Sampler
from cbm_cli.grid.values import (
    Count,
    FileName,
    Fraction,
    Frozen,
    Interval,
    Misfit,
    NotNegative,
    OffsetText,
    Positive,
    SamplerText,
    WholeNumber,
)


def _data_phase(text: object) -> str:
    match = re.fullmatch(r"mean-field|gibbs-0*([1-9]\d*)", str(text).strip())
    if match is None:
        raise ValueError("write mean-field, or gibbs-k with k sweeps of 1 or more, as in gibbs-5")
    return f"gibbs-{match[1]}" if match[1] else "mean-field"


DataPhase = Annotated[
    str, BeforeValidator(_data_phase), Field(description="DBM: mean-field, or gibbs-k with k sweeps")
]


def _steps(text: object) -> str:
    """Return the canonical text of steps: ``0.01 from 100 epochs + 0.001 from 200 epochs``."""
    pattern = re.compile(r"\s*(\S+)\s+from\s+(\d+)\s+(update|epoch)s?\s*")
    steps = [pattern.fullmatch(step) for step in re.split(r"\s\+\s", str(text))]
    try:
        rates, firsts = [float(step[1]) for step in steps], [int(step[2]) for step in steps]
    except (TypeError, ValueError):
        raise ValueError(
            "write rates and where they begin, as in 0.01 from 100 epochs + 0.001 from 200 epochs"
        ) from None
    if not all(0 < rate < float("inf") for rate in rates):
        raise ValueError("rates must be finite and greater than 0")
    if len({step[3] for step in steps}) > 1:
        raise ValueError("count all steps in updates, or all in epochs")
    if any(first >= second for first, second in pairwise([0, *firsts])):
        raise ValueError("steps must come one after the other, each 1 or more after the one before")
    units = [step[3] + "s" * (first > 1) for step, first in zip(steps, firsts, strict=True)]
    return " + ".join(
        f"{_exact(rate)} from {first} {unit}" for rate, first, unit in zip(rates, firsts, units, strict=True)
    )


def _exact(number: float) -> str:
    """Return the shortest text that reads as the number, without ``.0``."""
    return f"{number:g}" if float(f"{number:g}") == number else repr(number)


class LearningRate(Frozen):
    """The learning rate: a number, one that decays, or one that changes in steps.

    Its text is that of the number, ``0.1 x 0.9 every 10 epochs``, or ``0.1, 0.01 from 100 epochs``.
    """

    start: Positive = Field(description="Learning rate of the first update")
    decay: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None, description="What the rate is multiplied by after every interval"
    )
    every: Interval | None = Field(None, description="Interval of the decay: 500 updates or 10 epochs")
    steps: Annotated[str, BeforeValidator(_steps)] | None = Field(
        None, description="Rates that follow: 0.01 from 100 epochs + 0.001 from 200 epochs"
    )

    @model_validator(mode="before")
    @classmethod
    def _from_number(cls, given: Any) -> Any:
        return given if isinstance(given, dict | LearningRate) else {"start": given}

    @model_validator(mode="after")
    def _fits_together(self) -> "LearningRate":
        if self.decay and not self.every:
            raise Misfit("decay", "decay needs an interval, as in every: 10 epochs")
        if self.every and not self.decay:
            raise Misfit("every", "every needs a decay, as in decay: 0.9")
        if self.steps and self.decay:
            raise Misfit("steps", "a rate decays or changes in steps; give decay and every, or steps")
        return self

    @model_serializer
    def _dump(self) -> float | str:
        return self.start if self.constant else str(self)

    def __str__(self) -> str:
        if self.constant:
            return f"{self.start:g}"
        if self.decay:
            return f"{_exact(self.start)} x {_exact(self.decay)} every {self.every}"
        return f"{_exact(self.start)}, {self.steps.replace(' + ', ', ')}"

    @property
    def constant(self) -> bool:
        """Whether all updates have the same rate."""
        return not (self.decay or self.steps)

    @property
    def slug(self) -> str:
        """The text as part of a folder's name: ``0.1-x-0.9-every-10-epochs``."""
        return str(self).replace(",", "").replace(" ", "-")

    def pieces(self, updates_of: Callable[[str], int], total: int) -> list[tuple[int, float]]:
        """Return the stretches of constant rate in ``total`` updates: the first update and the rate of each.

        Parameters
        ----------
        updates_of : callable
            From the text of an interval, such as ``10 epochs``, to its number of updates.
        total : int
            Updates of the training; a longer training begins with the same pieces.
        """
        pieces = [(0, self.start)]
        if self.decay:
            firsts = range(0, total, updates_of(self.every))
            pieces = [(first, self.start * self.decay**k) for k, first in enumerate(firsts)]
        for step in self.steps.split(" + ") if self.steps else ():
            rate, interval = step.split(" from ")
            pieces.append((updates_of(interval), float(rate)))
        return [piece for piece in pieces if piece[0] < total]


def _file_of_trial(text: str) -> str:
    if re.search(r"[{}]", re.sub(r"\{trial(:0\d)?d?\}", "", text)):
        raise ValueError("knows {trial} and {trial:03d} alone, as in start/trial-{trial:03d}.npz")
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
    def _fits_together(self) -> "StartFrom":
        if self.path and self.experiment:
            raise Misfit("path", "trials start from files or from an experiment; give path or experiment")
        if self.machine != "final" and not self.experiment:
            raise Misfit("machine", "machine chooses one of an experiment's two; give experiment")
        return self

    def file_of(self, number: int) -> str:
        """Return the path of a trial's machine file."""
        return self.path.format(trial=number)


class SlidingFactor(Frozen):
    """Weight of the newest mean in the moving average of ``_s`` schemes."""

    visible: Annotated[float, Field(ge=0, le=1)] = Field(
        0.01, description="0: visible offsets of the letter d stay at the mean of the whole training part"
    )
    hidden: Fraction = 0.01


class WeightDecay(Frozen):
    """What every update takes from the weights W: learning_rate * (l2 W + l1 sign W)."""

    l1: NotNegative = 0.0
    l2: NotNegative = 0.0


class Gradient(Frozen):
    """The direction of an update."""

    since_0_2 = frozenset({"scale_of"})

    kind: Literal["centered", "standard", "enhanced", "natural"] = Field(
        "centered", description="centered: by the offset scheme; standard: of 00; enhanced: of aa"
    )
    fisher: Literal["joint", "marginal", "diagonal"] = Field(
        "joint", description="natural: covariance of (x h, x, h), of its mean given x, or its diagonal"
    )
    estimate: Literal["exact", "samples"] = Field(
        "exact", description="natural: the Fisher matrix over all states, or from samples"
    )
    damping: NotNegative | None = Field(
        None, description="natural: added to the diagonal; default: 0, or 0.01 from samples"
    )
    iterations: Count = Field(10, description="natural from samples: steps of conjugate gradients")
    scale_to: Literal["none", "standard", "centered"] = Field(
        "none", description="Give the update the length of this gradient"
    )
    scale_of: Literal["all", "weights"] = Field(
        "all", description="With scale_to: lengths are those of all components, or of the weights alone"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> "Gradient":
        for field in ("fisher", "estimate", "damping", "iterations"):
            if self.kind != "natural" and getattr(self, field) != Gradient.model_fields[field].default:
                raise Misfit(field, f"{field} is for the natural gradient; write kind: natural")
        if self.estimate == "exact" and self.iterations != Gradient.model_fields["iterations"].default:
            raise Misfit("iterations", "iterations are for a Fisher matrix from samples (estimate: samples)")
        if self.scale_of != "all" and self.scale_to == "none":
            raise Misfit("scale_of", "scale_of needs scale_to, as in scale_to: standard")
        return self

    @property
    def added_damping(self) -> float:
        """What is added to the diagonal of the Fisher matrix."""
        if self.damping is not None:
            return self.damping
        return 0.01 if self.estimate == "samples" else 0.0


class MeanField(Frozen):
    """When the data phase of a DBM has converged."""

    tolerance: Positive = Field(1e-4, description="Largest change of a mean in the last round")
    rounds: Count = Field(100, description="Rounds at most")


class EarlyStopping(Frozen):
    """When an auto encoder has learned enough, by its cost on the validation part."""

    look_ahead: Count = Field(5, description="Epochs in a row without improvement after which it stops")
    tolerance: NotNegative = Field(
        1e-5, description="An improvement is a decrease from an epoch to the next by more"
    )


class Pretraining(Frozen):
    """Layer-wise training of a DBM before the training proper; what is not given is as there."""

    since_0_2 = frozenset({"doubling"})

    epochs: WholeNumber = Field(0, description="Length in epochs; 0: none")
    learning_rate: Positive | None = None
    offsets: OffsetText | None = Field(None, description="Two letters, for every layer")
    sampler: SamplerText | None = None
    batch: Literal["full"] | Count | None = None
    sliding_factor: Fraction | None = None
    doubling: bool = Field(True, description="Double the activations that have one side of two")

    @model_validator(mode="after")
    def _fits_together(self) -> "Pretraining":
        given = [field for field, value in self if value != type(self).default_of(field)]
        if given and not self.epochs:
            raise Misfit(given[0], f"{given[0]} needs epochs of pre-training, as in epochs: 200")
        letters = len(Scheme.parse(self.offsets).letters) if self.offsets else 2
        if letters != 2:
            raise Misfit(
                "offsets",
                f"offset scheme {self.offsets} has {letters} letter{'s' * (letters > 1)}; "
                "layers are pre-trained as RBMs, which need 2",
            )
        if self.sampler and Sampler.parse(self.sampler).fast:
            raise Misfit("sampler", "layers are pre-trained without fast weights; write PCD-k, CD-k or PT_c")
        return self
