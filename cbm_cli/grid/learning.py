"""How a machine learns: which gradient it climbs, and what goes before and between its updates."""

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from cbm_cli.grid.offsets import Scheme
from cbm_cli.grid.samplers import Sampler
from cbm_cli.grid.values import (
    Count,
    Fraction,
    Frozen,
    Misfit,
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


class SlidingFactor(Frozen):
    """Weight of the newest mean in the moving average of ``_s`` schemes."""

    visible: Fraction = 0.01
    hidden: Fraction = 0.01


class Gradient(Frozen):
    """The direction of an update."""

    kind: Literal["centered", "standard", "enhanced", "natural"] = Field(
        "centered", description="centered: by the offset scheme; standard: of 00; enhanced: of aa"
    )
    fisher: Literal["joint", "marginal", "diagonal"] = Field(
        "joint", description="natural: covariance of (x h, x, h), of its mean given x, or its diagonal"
    )
    estimate: Literal["exact", "samples"] = Field(
        "exact", description="natural: the Fisher matrix over all states, or from samples"
    )
    damping: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        None, description="natural: added to the diagonal; default: 0, or 0.01 from samples"
    )
    iterations: Count = Field(10, description="natural from samples: steps of conjugate gradients")
    scale_to: Literal["none", "standard", "centered"] = Field(
        "none", description="Give the update the length of this gradient"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> "Gradient":
        for field in ("fisher", "estimate", "damping", "iterations"):
            if self.kind != "natural" and getattr(self, field) != Gradient.model_fields[field].default:
                raise Misfit(field, f"{field} is for the natural gradient; write kind: natural")
        if self.estimate == "exact" and self.iterations != Gradient.model_fields["iterations"].default:
            raise Misfit("iterations", "iterations are for a Fisher matrix from samples (estimate: samples)")
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
    tolerance: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        1e-5, description="An improvement is a decrease from an epoch to the next by more"
    )


class Pretraining(Frozen):
    """Layer-wise training of a DBM before the training proper; what is not given is as there."""

    epochs: WholeNumber = Field(0, description="Length in epochs; 0: none")
    learning_rate: Positive | None = None
    offsets: OffsetText | None = Field(None, description="Two letters, for every layer")
    sampler: SamplerText | None = None
    batch: Literal["full"] | Count | None = None
    sliding_factor: Fraction | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> "Pretraining":
        given = [field for field, value in self if field != "epochs" and value is not None]
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
