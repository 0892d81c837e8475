"""The settings of one cell of a grid, validated and frozen; trials repeat a cell with other seeds."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, model_validator

from cbm_cli.grid.data import Data
from cbm_cli.grid.fitting import check_fit
from cbm_cli.grid.learning import (
    DataPhase,
    EarlyStopping,
    Gradient,
    LearningRate,
    MeanField,
    Pretraining,
    SlidingFactor,
    StartFrom,
    WeightDecay,
)
from cbm_cli.grid.machine import Model
from cbm_cli.grid.measuring import Evaluate, Record
from cbm_cli.grid.samplers import BACK_PROPAGATION, Sampler
from cbm_cli.grid.values import EVERY_FIELD, Count, Frozen, OffsetText, Positive, SamplerText, Share


class Settings(Frozen):
    """Everything that one trial needs to know but its seed."""

    since_0_2 = frozenset({"chains", "swaps", "shuffle", "momentum", "weight_decay", "start_from"})

    data: Data
    model: Model
    offsets: OffsetText
    sampler: SamplerText | None = Field(None, description="Of the model phase; auto encoders have none")
    learning_rate: LearningRate
    fast_learning_rate: Positive | None = Field(
        None, description="FPCD: of the fast weights; default: the learning rate of the first update"
    )
    fast_decay: Share = Field(0.95, description="FPCD: what an update leaves")
    momentum: Share = Field(0.0, description="What an update keeps of the step before it")
    weight_decay: WeightDecay = WeightDecay()
    ladders: Count = Field(1, description="Independent tempered ladders (PT); must divide the batch")
    chains: Count | None = Field(
        None, description="PCD-k and FPCD-k: persistent chains; default: as many as rows of a batch"
    )
    swaps: Literal["alternate", "both"] = Field(
        "alternate", description="PT: neighbours of even and odd temperatures in turn, or both in every round"
    )
    sliding_factor: SlidingFactor = SlidingFactor()
    gradient: Gradient = Gradient()
    gradient_from: Literal["samples", "exact"] = Field(
        "samples", description="Model phase of the gradient: the sampler's, or over all states"
    )
    offsets_from: Literal["same", "independent", "exact", "random"] = Field(
        "same", description="Means of the offsets: the gradient's, a second sampler's, exact, or random"
    )
    data_phase: DataPhase = "mean-field"
    mean_field: MeanField = MeanField()
    pretraining: Pretraining = Pretraining()
    early_stopping: EarlyStopping = EarlyStopping()
    start_from: StartFrom = StartFrom()
    init: Literal["zero", "inverse-sigmoid"] = Field("inverse-sigmoid", description="Initial visible biases")
    weight_scale: Positive = Field(0.01, description="Standard deviation of the initial weights")
    updates: Count | None = Field(None, description="Length of training in updates (or give epochs)")
    epochs: Count | None = Field(None, description="Length of training in epochs (or give updates)")
    batch: Literal["full"] | Count = Field(100, description="Rows of a mini-batch, or full")
    shuffle: bool = Field(True, description="Rows of the mini-batches come in a new order in every epoch")
    evaluate: Evaluate = Evaluate()
    record: Record = Record()

    @model_validator(mode="after")
    def _fit_together(self) -> "Settings":
        check_fit(self)
        return self

    @property
    def every(self) -> str:
        """Evaluation interval, such as ``50 updates`` or ``1 epoch``."""
        return self.evaluate.every or ("50 updates" if self.updates else "1 epoch")

    @property
    def evaluation(self) -> str:
        """What is measured: ``exact``, ``ais``, ``cost`` or ``none``."""
        return self.evaluate.method or ("cost" if self.model.kind == "auto-encoder" else "exact")

    @property
    def temperatures(self) -> int:
        """Inverse temperatures of AIS."""
        return self.evaluate.temperatures or (29_000 if self.model.kind == "dbm" else 14_500)

    @property
    def parsed_sampler(self) -> Sampler:
        """The sampler; one of default values where there is none."""
        return Sampler.parse(self.sampler) if self.sampler else Sampler()

    @property
    def sampler_name(self) -> str:
        """The sampler as text, or ``back-propagation`` where there is none."""
        return self.sampler or BACK_PROPAGATION

    @property
    def fast_rate(self) -> float:
        """Learning rate of the fast weights; 0 where the sampler has none."""
        return (self.fast_learning_rate or self.learning_rate.start) if self.parsed_sampler.fast else 0.0

    def row(self) -> dict[str, Any]:
        """Every setting as one flat row of plain values: the columns of ``summary.csv``."""
        flat: dict[str, Any] = {"data": self.data.title}
        for field, value in self.model_dump(context=EVERY_FIELD).items():
            if isinstance(value, dict):
                flat |= {f"{field}_{name}": inner for name, inner in value.items()}
            else:
                flat[field] = value
        return flat | {
            "sampler": self.sampler_name,
            "evaluate_method": self.evaluation,
            "evaluate_every": self.every,
            "evaluate_temperatures": self.temperatures,
        }


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
    metric: str | None = Field(
        None, description="What the cells show; default: log-likelihood, cost or lower bound, as there is"
    )
    statistic: Literal["max", "final", "best-valid"] = Field(
        "max", description="Best value over training, last value, or value at the best validation"
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
    sources: tuple["Experiment", ...] = ()  # the experiments that trials of this one start from

    def __iter__(self) -> Iterator[Trial]:
        """Yield trial 0 of every cell, then trial 1: an interrupted run leaves even cells."""
        for number in range(self.trials):
            for settings in self.cells:
                yield Trial(self.name, settings, number, self.seed)
