"""The settings of one cell of a grid, validated and frozen; trials repeat a cell with other seeds."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from cbm_cli.datasets import check, title_of
from cbm_cli.errors import CbmError
from cbm_cli.grid.offsets import Scheme
from cbm_cli.grid.samplers import Sampler


class Frozen(BaseModel):
    """A validated, immutable record that refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Misfit(ValueError):
    """A value that does not go with the others; ``field`` is the one to look at first."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def _canonical(kind: type[Scheme] | type[Sampler]) -> AfterValidator:
    def parse(text: str) -> str:
        try:
            return str(kind.parse(text))
        except CbmError as error:
            raise ValueError(str(error)) from None

    return AfterValidator(parse)


def _every(text: object) -> str:
    match = re.fullmatch(r"(\d+)\s*(updates?|epochs?)?", str(text).strip())
    if match is None or int(match[1]) < 1:
        raise ValueError("write a number of updates (50) or of epochs (1 epoch)")
    unit = (match[2] or "update").rstrip("s")
    return f"{match[1]} {unit}" + ("s" if int(match[1]) > 1 else "")


def _parts(text: object) -> str:
    known, asked = ("train", "valid", "test"), str(text).split("+")
    if not set(asked) <= set(known):
        raise ValueError("write parts as train, test or train+valid+test")
    return "+".join(part for part in known if part in asked)


OffsetText = Annotated[str, _canonical(Scheme), Field(description="Offset scheme: dd^b_s, aa^b, d0, 00, ...")]
SamplerText = Annotated[
    str, _canonical(Sampler), Field(description="CD-k, PCD-k, FPCD-k, PT_c, PT_c-k or exact")
]
Interval = Annotated[str, BeforeValidator(_every), Field(description="Updates (50) or epochs (1 epoch)")]
Parts = Annotated[str, BeforeValidator(_parts)]
FileName = Annotated[str, Field(min_length=1)]
OF_FILES = ("path", "valid", "test", "drop_last")
"""Fields of ``data:`` that are for files."""
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=1)]


class Data(Frozen):
    """A data set by name, or one read from files; with the options that go with it.

    Paths stay as the grid has them, relative to the grid's folder.
    """

    name: str | None = Field(None, description="A data set; with path: what to call it, default: the file's")
    size: Count | None = Field(None, description="Bars & Stripes: side; Shifting Bar: number of pixels")
    bar: Count | None = Field(None, description="Shifting Bar: pixels that are on")
    flip: bool = Field(False, description="Exchange zeros and ones")
    binarise: Literal["threshold", "sample", "none", "refuse"] = Field(
        "threshold", description="What becomes of grey values; those of files are refused unless you say"
    )
    threshold: Annotated[float, Field(ge=0, lt=1)] = Field(0.5, description="Grey values above it are on")
    path: FileName | None = Field(None, description="A file of rows; NPZ and MAT may hold all parts")
    valid: FileName | None = Field(None, description="With path: a file of rows for validation")
    test: FileName | None = Field(None, description="With path: a file of rows for testing")
    drop_last: bool = Field(False, description="With path: the last column is no unit (AMAT: a label)")

    @model_validator(mode="before")
    @classmethod
    def _refuses_grey_files(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("path") and "binarise" not in given:
            return given | {"binarise": "threshold" if "threshold" in given else "refuse"}
        return given

    @model_serializer(mode="wrap")
    def _without_files(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave the fields of files out where there are none: a named data set is what it always was."""
        unused = () if self.path or self.valid or self.test or self.drop_last else OF_FILES
        return {field: value for field, value in dump(self).items() if field not in unused}

    @model_validator(mode="after")
    def _takes_its_options(self) -> "Data":
        try:
            check(**self.model_dump(exclude={"flip"}))
        except CbmError as error:
            raise ValueError(str(error)) from None
        if self.bar and self.bar >= self.size:
            raise ValueError(f"bar must be less than size {self.size}, not {self.bar}")
        return self

    @property
    def title(self) -> str:
        """Name in tables: ``flipped-shifting-bar`` for a flipped ``shifting-bar``."""
        name = self.name or title_of(self.path)
        return f"flipped-{name}" if self.flip else name


class Model(Frozen):
    """The machine."""

    kind: Literal["rbm"] = Field(description="Kind of machine")
    hidden: Count = Field(description="Hidden units")

    @property
    def layers(self) -> int:
        """Layers of units, the visible one included; a scheme has one letter each."""
        return 2


class SlidingFactor(Frozen):
    """Weight of the newest mean in the moving average of ``_s`` schemes."""

    visible: Fraction = 0.01
    hidden: Fraction = 0.01


class Evaluate(Frozen):
    """What is measured during training, and how often."""

    method: Literal["exact", "ais", "none"] = Field("exact", description="Log-likelihood, or nothing")
    every: Interval | None = Field(None, description="Default: 50 updates, or 1 epoch where epochs are given")
    parts: Parts | None = Field(
        None, description="Parts that are evaluated: train+test; default: all there are"
    )
    rows: Count | None = Field(None, description="Evaluate a fixed subsample of this many rows of each part")
    temperatures: Annotated[int, Field(ge=3)] = Field(14_500, description="AIS: inverse temperatures")
    runs: Annotated[int, Field(ge=2)] = Field(100, description="AIS: independent runs")
    base: Literal["base-rate", "uniform"] = Field("base-rate", description="AIS: the machine it starts from")


class Settings(Frozen):
    """Everything that one trial needs to know but its seed."""

    data: Data
    model: Model
    offsets: OffsetText
    sampler: SamplerText
    learning_rate: Positive
    fast_learning_rate: Positive | None = Field(
        None, description="FPCD: of the fast weights; default: the learning rate"
    )
    fast_decay: Annotated[float, Field(ge=0, lt=1)] = Field(0.95, description="FPCD: what an update leaves")
    ladders: Count = Field(1, description="Independent tempered ladders (PT); must divide the batch")
    sliding_factor: SlidingFactor = SlidingFactor()
    init: Literal["zero", "inverse-sigmoid"] = Field("inverse-sigmoid", description="Initial visible biases")
    weight_scale: Positive = Field(0.01, description="Standard deviation of the initial weights")
    updates: Count | None = Field(None, description="Length of training in updates (or give epochs)")
    epochs: Count | None = Field(None, description="Length of training in epochs (or give updates)")
    batch: Literal["full"] | Count = Field(100, description="Rows of a mini-batch, or full")
    evaluate: Evaluate = Evaluate()

    @model_validator(mode="after")
    def _fit_together(self) -> "Settings":
        letters = Scheme.parse(self.offsets).letters
        if len(letters) != self.model.layers:
            raise Misfit(
                "offsets",
                f"offset scheme {self.offsets} has {len(letters)} letter{'s' * (len(letters) > 1)}; "
                f"an {self.model.kind} of {self.model.layers} layers needs {self.model.layers}",
            )
        if (self.updates is None) == (self.epochs is None):
            raise ValueError("give the length of training as either updates or epochs")
        if self.fast_learning_rate and not Sampler.parse(self.sampler).fast:
            raise Misfit(
                "fast_learning_rate", f"fast_learning_rate is for FPCD-k; the sampler is {self.sampler}"
            )
        if self.ladders > 1 and Sampler.parse(self.sampler).temperatures == 1:
            raise Misfit("ladders", f"ladders are for parallel tempering; {self.sampler} has one temperature")
        if self.batch != "full" and self.batch % self.ladders:
            raise Misfit("ladders", f"must divide the batch; {self.batch} is no multiple of {self.ladders}")
        return self

    @property
    def every(self) -> str:
        """Evaluation interval, such as ``50 updates`` or ``1 epoch``."""
        return self.evaluate.every or ("50 updates" if self.updates else "1 epoch")

    @property
    def fast_rate(self) -> float:
        """Learning rate of the fast weights; 0 where the sampler has none."""
        return (self.fast_learning_rate or self.learning_rate) if Sampler.parse(self.sampler).fast else 0.0

    def record(self) -> dict[str, Any]:
        """Every setting as one flat row of plain values: the columns of ``summary.csv``."""
        flat: dict[str, Any] = {"data": self.data.title}
        for field, value in self.model_dump().items():
            if isinstance(value, dict):
                flat |= {f"{field}_{name}": inner for name, inner in value.items()}
            else:
                flat[field] = value
        flat["evaluate_every"] = self.every
        return flat


@dataclass(frozen=True)
class Trial:
    """One training run: a cell's settings and the number that decides its seed.

    Trial k has the same seed in every cell of an experiment, so that methods are compared in pairs.
    """

    experiment: str
    settings: Settings
    number: int
    base_seed: int

    @property
    def seed(self) -> int:
        """64-bit seed of this trial."""
        import numpy as np

        return int(np.random.SeedSequence([self.base_seed, self.number]).generate_state(1, np.uint64)[0])


class TableSpec(Frozen):
    """How ``cbm table`` lays an experiment out: names of columns of ``summary.csv``."""

    rows: tuple[str, ...] = ("sampler", "learning_rate")
    columns: tuple[str, ...] = ("offsets",)
    groups: tuple[str, ...] = ("data",)
    scale: Literal["total", "per-sample"] = Field(
        "per-sample", description="Log-likelihood summed over the rows, or their mean"
    )
    metric: str = Field("train_log_likelihood", description="What the cells show")
    statistic: Literal["max", "final", "best-valid"] = Field(
        "max", description="Maximum over training, last value, or value at the best validation"
    )


@dataclass(frozen=True)
class Experiment:
    """A named experiment: its cells, how often each is run, and how its table looks."""

    name: str
    description: str
    trials: int
    seed: int
    cells: tuple[Settings, ...]
    table: TableSpec

    def __iter__(self) -> Iterator[Trial]:
        """Yield trial 0 of every cell, then trial 1: an interrupted run leaves even cells."""
        for number in range(self.trials):
            for settings in self.cells:
                yield Trial(self.name, settings, number, self.seed)
