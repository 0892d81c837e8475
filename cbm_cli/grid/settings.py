"""The settings of one cell of a grid, validated and frozen; trials repeat a cell with other seeds."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from typing import Any, Literal

from pydantic import Field, model_validator

from cbm_cli.errors import CbmError, Kind
from cbm_cli.grid.names import BACK_PROPAGATION, Sampler, Scheme
from cbm_cli.grid.parts import (
    Data,
    EarlyStopping,
    Evaluate,
    GradientChoice,
    LearningRate,
    MeanField,
    Model,
    OffsetMeans,
    Pretraining,
    Record,
    SlidingFactor,
    StartFrom,
    WeightDecay,
)
from cbm_cli.grid.source import Where
from cbm_cli.grid.values import (
    Count,
    Frozen,
    Misfit,
    OffsetText,
    Positive,
    SamplerText,
    Share,
    text_of_form,
)
from cbm_cli.text import WHOLE, Statistic, count, whole_numbers

DataPhase: Any = text_of_form(
    rf"mean-field|gibbs-(?!0+$)({WHOLE})",
    "write mean-field, or gibbs-k with k sweeps of 1 or more, as in gibbs-5",
    lambda match: f"gibbs-{whole_numbers([match[1]], 'sweeps k', 1)[0]}" if match[1] else match[0],
)


class Settings(Frozen):
    """Everything that one trial needs to know except its seed."""

    data: Data = Field(description="A data set by name, or files of your own")
    model: Model = Field(description="The machine: its kind and its hidden units")
    offsets: OffsetText = Field(description="Offset scheme, one letter per layer: dd^b_s, aa^b, d0, 00")
    sampler: SamplerText | None = Field(
        None, description="CD-k, PCD-k, FPCD-k, PT_c, PT_c-k or exact; auto encoders have none"
    )
    learning_rate: LearningRate = Field(description="A number, or a rate that decays or changes in steps")
    fast_learning_rate: Positive | None = Field(
        None, description="FPCD: rate of the fast weights; default: the learning rate of the first update"
    )
    fast_decay: Share = Field(0.95, description="FPCD: share of the fast weights that an update leaves")
    momentum: Share = Field(0.0, description="Share of the last step that is added to the next one")
    weight_decay: WeightDecay = Field(WeightDecay(), description="Shrinks the weights; a number is l2")
    ladders: Count = Field(1, description="PT: independent tempered ladders; must divide the batch")
    chains: Count | None = Field(
        None, description="PCD-k and FPCD-k: persistent chains; default: as many as rows of a batch"
    )
    swaps: Literal["alternate", "both"] = Field(
        "alternate", description="PT: neighbours of even and odd temperatures in turn, or both in every round"
    )
    sliding_factor: SlidingFactor = Field(
        SlidingFactor(), description="Schemes with _s: weight of the newest mean in the moving average"
    )
    gradient: GradientChoice = Field(
        GradientChoice(), description="Direction of an update; a word is its kind"
    )
    gradient_from: Literal["samples", "exact"] = Field(
        "samples", description="Model phase of the gradient: the sampler's, or over all states"
    )
    offsets_from: Literal["same", "independent", "exact", "random"] = Field(
        "same", description="Means of the offsets: the gradient's, a second sampler's, exact, or random"
    )
    offset_means: OffsetMeans = Field(
        OffsetMeans(), description="Means in offsets: of probabilities, or of sampled states"
    )
    data_phase: DataPhase = Field("mean-field", description="DBM: mean-field, or gibbs-k with k sweeps")
    mean_field: MeanField = Field(MeanField(), description="DBM: when the mean field has converged")
    pretraining: Pretraining = Field(Pretraining(), description="DBM: layer-wise training; epochs, or fields")
    early_stopping: EarlyStopping = Field(EarlyStopping(), description="Auto encoder: when to stop")
    start_from: StartFrom = Field(StartFrom(), description="Machine files or an experiment to start from")
    init: Literal["zero", "inverse-sigmoid"] = Field("inverse-sigmoid", description="Initial visible biases")
    weight_scale: Positive = Field(0.01, description="Standard deviation of the initial weights")
    updates: Count | None = Field(None, description="Length of training in updates (or give epochs)")
    epochs: Count | None = Field(None, description="Length of training in epochs (or give updates)")
    batch: Literal["full"] | Count = Field(100, description="Rows of a mini-batch, or full")
    shuffle: bool = Field(True, description="Rows of the mini-batches come in a new order in every epoch")
    evaluate: Evaluate = Field(Evaluate(), description="What is evaluated during training, and how often")
    record: Record = Field(Record(), description="What is recorded beside the evaluations")

    @model_validator(mode="after")
    def _check(self) -> "Settings":
        for path, reason in self.unused().items():
            if not path.startswith("sliding_factor"):  # pre-training hands it to layers that do not slide
                raise Misfit(path, f"{path} {reason}", "unsuited")
        self.check()
        return self

    def check(self) -> None:
        """Raise Misfit for settings that contradict each other."""
        if (self.updates is None) == (self.epochs is None):
            kind: Kind = "conflict" if self.updates else "missing"
            raise Misfit("", "give the length of training as either updates or epochs", kind)
        for check in (_check_scheme, _check_sampler, _check_gradient, _check_evaluation):
            check(self)

    def unused(self) -> dict[str, str]:
        """Return the given fields, dotted where nested, that change nothing here, and why."""
        return {path: reason for path, reason in _unused(self) if self.value(path) != default_of(path)}

    def with_defaults(self, paths: Iterable[str]) -> "Settings":
        """Return the same settings with the defaults of some fields, dotted where nested."""
        update: dict[str, Any] = {}
        for path in paths:
            name, _, inner = path.partition(".")
            whole = update.get(name, getattr(self, name))
            update[name] = whole.model_copy(update={inner: default_of(path)}) if inner else default_of(path)
        return self.model_copy(update=update) if update else self

    def value(self, path: str) -> Any:
        """Return the value of a field, dotted where nested."""
        return attrgetter(path)(self)

    @property
    def scheme(self) -> Scheme:
        """The offset scheme, parsed."""
        return Scheme.parse(self.offsets)

    @property
    def parsed_sampler(self) -> Sampler:
        """The sampler, parsed; one with default values where there is none."""
        return Sampler.parse(self.sampler) if self.sampler else Sampler()

    @property
    def sampler_name(self) -> str:
        """The sampler as text, or ``back-propagation`` where there is none."""
        return self.sampler or BACK_PROPAGATION

    @property
    def every(self) -> str:
        """Evaluation interval, such as ``50 updates`` or ``1 epoch``."""
        return self.evaluate.every or ("50 updates" if self.updates else "1 epoch")

    @property
    def evaluation(self) -> str:
        """What is evaluated: ``exact``, ``ais``, ``cost`` or ``none``."""
        return self.evaluate.method or ("cost" if self.model.kind == "auto-encoder" else "exact")

    @property
    def temperatures(self) -> int:
        """Inverse temperatures of AIS."""
        return self.evaluate.temperatures or (29_000 if self.model.kind == "dbm" else 14_500)

    @property
    def fast_rate(self) -> float:
        """Learning rate of the fast weights; 0 where the sampler has none."""
        return (self.fast_learning_rate or self.learning_rate.start) if self.parsed_sampler.fast else 0.0

    def row(self) -> dict[str, Any]:
        """Return every setting as one flat row of plain values: the columns of ``summary.csv``."""
        flat: dict[str, Any] = {"data": self.data.title}
        for name, value in self.model_dump().items():
            if isinstance(value, dict):
                flat |= {f"{name}_{inner}": part for inner, part in value.items()}
            else:
                flat[name] = value
        return flat | {
            "sampler": self.sampler_name,
            "evaluate_method": self.evaluation,
            "evaluate_every": self.every,
            "evaluate_temperatures": self.temperatures,
        }


NESTED: dict[str, type[Frozen]] = {
    name: info.annotation
    for name, info in Settings.model_fields.items()
    if isinstance(info.annotation, type) and issubclass(info.annotation, Frozen)
}


@cache
def default_of(path: str) -> Any:
    """Return the default of a field, dotted where nested."""
    name, _, inner = path.partition(".")
    return NESTED[name].default_of(inner) if inner else Settings.default_of(name)


# Fields that some kinds of machines cannot use: the kinds that can, and what to call them.
_KINDS = {
    **dict.fromkeys(
        ("data_phase", "mean_field"),
        (("dbm",), "the mean field of DBMs; the hidden means of others are exact"),
    ),
    "pretraining": (("dbm",), "the layers of DBMs; there is nothing to pre-train in one layer"),
    "early_stopping": (("auto-encoder",), "auto encoders; other machines have no cost to watch"),
    **dict.fromkeys(("model.encoder", "model.decoder", "model.loss"), (("auto-encoder",), "auto encoders")),
    **dict.fromkeys(("gradient_from", "offsets_from", "record"), (("rbm",), "RBMs")),
    "gradient": (("rbm", "dbm"), "Boltzmann machines; an auto encoder descends its cost"),
    **dict.fromkeys(
        ("sampler", "ladders", "chains", "swaps", "fast_learning_rate", "fast_decay", "offset_means"),
        (("rbm", "dbm"), "Boltzmann machines; an auto encoder learns by back-propagation"),
    ),
}


def _unused(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield the fields, given or not, that change nothing in a cell, and why."""
    kind = settings.model.kind
    for path, (kinds, users) in _KINDS.items():
        if kind not in kinds:
            yield path, f"is for {users}; the model is of kind {kind}"
    if kind != "auto-encoder":
        yield from _unused_by_sampler(settings)
    yield from _unused_by_offsets(settings)
    if kind != "auto-encoder":
        yield from _unused_by_means(settings)
    gradient, record, start = settings.gradient, settings.record, settings.start_from
    if gradient.kind != "natural":
        for name in ("fisher", "estimate", "damping", "iterations"):
            yield f"gradient.{name}", "is for the natural gradient; write kind: natural"
    elif gradient.estimate == "exact":
        yield "gradient.iterations", "is for a Fisher matrix from samples; write estimate: samples"
    if gradient.scale_to == "none":
        yield "gradient.scale_of", "needs scale_to, as in scale_to: standard"
    if not record.what:
        for name in ("every", "window"):
            yield f"record.{name}", "needs something to record, as in what: weight_norms"
    if "offset_values" not in record.names:
        yield "record.units", "is for the recorder offset_values, which is not recorded"
    if not settings.pretraining.epochs:
        for name in Pretraining.model_fields:
            if name != "epochs":
                yield f"pretraining.{name}", "needs epochs of pre-training, as in epochs: 200"
    if not start.experiment:
        yield "start_from.machine", "chooses one of an experiment's two machines; give experiment"
    if start.path:
        for name in ("init", "weight_scale"):
            yield name, f"is for fresh machines; these start from {start.path}"
    if settings.batch == (settings.pretraining.batch or "full") == "full":
        yield "shuffle", "is for mini-batches; a full batch has all rows in every update"
    if settings.evaluation != "ais":
        for name in ("temperatures", "runs", "base"):
            yield f"evaluate.{name}", f"is for method: ais; the method is {settings.evaluation}"
    if settings.evaluation == "none":
        yield "evaluate.rows", "is for evaluations; the method is none"


def _unused_by_sampler(settings: Settings) -> Iterator[tuple[str, str]]:
    sampler, name = settings.parsed_sampler, settings.sampler_name
    if not sampler.fast:
        for path in ("fast_learning_rate", "fast_decay"):
            yield path, f"is for FPCD-k; the sampler is {name}"
    if sampler.temperatures == 1:
        yield "swaps", f"is for parallel tempering; {name} has one temperature"
        yield "ladders", f"is for parallel tempering; {name} has one temperature"
    if sampler.restart or sampler.exact or sampler.temperatures > 1:
        remedy = "; for PT_c write ladders" if sampler.temperatures > 1 else ""
        yield "chains", f"is for PCD-k and FPCD-k; the sampler is {name}{remedy}"
    if sampler.exact:
        yield "gradient_from", "is exact already, by the sampler"


def _unused_by_offsets(settings: Settings) -> Iterator[tuple[str, str]]:
    scheme, layers = settings.scheme, settings.pretraining
    if set(scheme.letters) == {"0"}:
        yield "offsets_from", f"has no effect: the offsets of {settings.offsets} stay at zero"
    if layers.epochs and "_s" in (layers.offsets or settings.offsets) and not layers.sliding_factor:
        return  # both factors are used in the layers of the pre-training
    fresh = not (settings.start_from.path or settings.start_from.experiment or layers.epochs)
    constant = "0h" if fresh and settings.offsets_from != "random" else "0"
    for side, letters in (("visible", scheme.letters[:1]), ("hidden", scheme.letters[1:])):
        reason = f"is for schemes with _s, as in dd^b_s; the offsets are {settings.offsets}"
        if scheme.sliding:
            reason = f"has no effect: the {side} offsets of {settings.offsets} are constant"
        if not scheme.sliding or set(letters) <= set(constant):
            yield f"sliding_factor.{side}", reason


def _unused_by_means(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield the fields of ``offset_means`` where no offset takes such a mean from samples."""
    letters = settings.scheme.letters
    layers = settings.pretraining.epochs  # whose letters may be others
    used = {"visible": letters[0] in "ma", "hidden": bool(set(letters[1:]) & set("dma"))}
    used["hidden"] |= bool(layers)
    used["visible"] |= bool(layers)
    exact = settings.parsed_sampler.exact or settings.gradient_from == "exact"
    if settings.offsets_from == "exact" or (exact and settings.offsets_from == "same"):
        used["visible"] = False
    if settings.offsets_from == "random":
        used = {"visible": False, "hidden": False}
    needs = {
        "visible": "the model mean of visible units (m, a) from samples",
        "hidden": "means of hidden units",
    }
    for side, taken in used.items():
        if not taken:
            yield (
                f"offset_means.{side}",
                f"is for offsets that take {needs[side]}; these are {settings.offsets}",
            )


def _check_scheme(settings: Settings) -> None:
    model, letters = settings.model, settings.scheme.letters
    if len(letters) != model.layers:
        raise Misfit(
            "offsets",
            f"offset scheme {settings.offsets} has {count(len(letters), 'letter')}; "
            f"this {model.kind} of {model.layers} layers needs {model.layers}",
            "unsuited",
        )
    if settings.sliding_factor.visible == 0 and settings.scheme.sliding and letters[0] != "d":
        raise Misfit(
            "sliding_factor.visible",
            f"0 keeps visible offsets of the letter d at the data mean; in {settings.offsets} they have the "
            f"letter {letters[0]}: give more than 0",
            "conflict",
        )
    if model.kind == "auto-encoder" and set(letters) & set("ma"):
        raise Misfit(
            "offsets",
            f"offset scheme {settings.offsets} uses the model mean (m, a); auto encoders have none: "
            "write 0, d, h or r",
            "unsuited",
        )


def _check_sampler(settings: Settings) -> None:
    kind, start, layers = settings.model.kind, settings.start_from, settings.pretraining
    if kind != "auto-encoder" and settings.sampler is None:
        raise Misfit("sampler", "is missing", "missing")
    if kind == "dbm" and settings.parsed_sampler.fast:
        told = f"{settings.sampler} is for RBMs; for a dbm write PCD-k, CD-k or PT_c"
        raise Misfit("sampler", told, "unsuited")
    for batch in (settings.batch, layers.batch or settings.batch):
        if batch != "full" and batch % settings.ladders:
            told = f"must divide the batch; {batch} is no multiple of {settings.ladders}"
            raise Misfit("ladders", told, "conflict")
    if (start.path or start.experiment) and layers.epochs:
        told = "the layers are those of start_from; remove pretraining or start_from"
        raise Misfit("pretraining", told, "conflict")


def _check_gradient(settings: Settings) -> None:
    gradient, letters = settings.gradient, set(settings.scheme.letters)
    if settings.model.kind == "dbm" and (gradient.kind == "natural" or gradient.scale_to != "none"):
        told = "the natural gradient and scale_to are for RBMs; the model is of kind dbm"
        raise Misfit("gradient", told, "unsuited")
    for kind, letter, meaning in (("standard", "0", "without offsets"), ("enhanced", "a", "centered by a")):
        if gradient.kind == kind and letters != {letter}:
            remedy = f"write offsets: {letter * settings.model.layers}, or gradient: centered"
            told = f"the {kind} gradient is the one {meaning}, not {settings.offsets}; {remedy}"
            raise Misfit("gradient", told, "conflict")
    if gradient.estimate == "samples" and (
        settings.parsed_sampler.exact or settings.gradient_from == "exact"
    ):
        raise Misfit(
            "gradient",
            "estimate: samples takes the Fisher matrix of the model phase's samples, and an exact phase has "
            "none; write estimate: exact",
            "conflict",
        )
    if gradient.scale_to == "centered" and letters == {"0"}:
        raise Misfit(
            "gradient",
            f"scale_to: centered needs offsets; without any, as in {settings.offsets}, the centered gradient "
            "is the standard one: write scale_to: standard",
            "conflict",
        )


def _check_evaluation(settings: Settings) -> None:
    kind, method = settings.model.kind, settings.evaluate.method
    if kind == "auto-encoder" and method in ("exact", "ais"):
        raise Misfit(
            "evaluate",
            f"method {method} estimates a likelihood, and an auto encoder has no normalised likelihood; "
            "it is judged by its cost: write method: cost",
            "unsuited",
        )
    if kind != "auto-encoder" and method == "cost":
        told = f"method cost is for auto encoders; write exact or ais for the {kind}"
        raise Misfit("evaluate", told, "unsuited")


@dataclass(frozen=True, slots=True)
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

        # Both as two words of 32 bits: SeedSequence takes a longer number for more words, which others have.
        words = [word for half in (0, 32) for word in (self.base_seed >> half, self.number >> half)]
        sequence = np.random.SeedSequence([word & 0xFFFFFFFF for word in words])
        return int(sequence.generate_state(1, np.uint64)[0])


AXES = ("rows", "columns", "groups")  # of tables


class TableSpec(Frozen):
    """How ``cbm table`` lays an experiment out: names of columns of ``summary.csv``."""

    rows: tuple[str, ...] = Field(("sampler", "learning_rate"), description="Settings shown as rows")
    columns: tuple[str, ...] = Field(("offsets",), description="Settings shown as columns")
    groups: tuple[str, ...] = Field(("data",), description="Settings shown as groups of rows")
    scale: Literal["total", "per-sample"] = Field(
        "per-sample", description="Log-likelihood summed over the rows, or their mean"
    )
    metric: str | None = Field(
        None,
        description="What is shown; default: log-likelihood, cost or lower bound, of test rows if there are",
    )
    statistic: Statistic = Field(
        "max",
        description="Best value over training, last value, value at the best validation, or value where the "
        "mean over trials is best",
    )

    @model_validator(mode="before")
    @classmethod
    def _default_axes(cls, given: Any) -> Any:
        """Leave out of the default axes what another axis names."""
        if not isinstance(given, Mapping):
            return given
        named = {column for axis in given.keys() & {*AXES} for column in given[axis]}
        left = {axis: tuple(c for c in cls.default_of(axis) if c not in named) for axis in AXES}
        return left | {**given}


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
    places: Mapping[Settings, Mapping[str, Where]] = field(default_factory=dict, compare=False, repr=False)

    def __iter__(self) -> Iterator[Trial]:
        """Yield trial 0 of every cell, then trial 1: an interrupted run leaves even cells."""
        for number in range(self.trials):
            for settings in self.cells:
                yield Trial(self.name, settings, number, self.seed)

    def located(self, cell: Settings, error: CbmError, within: str = "") -> str:
        """Return an error's message after the place of its field: ``grid.yaml:9:5: toy.batch: ...``.

        The field of the error may be one ``within`` another. A field that the grid leaves out has the place
        of the experiment.
        """
        path = ".".join(filter(None, (within, error.field)))
        label = f"{self.name}.{path}" if path else self.name
        if (places := self.places.get(cell)) is None:
            return f"{label}: {error.message}"
        known = next((one for one in (path, path.partition(".")[0]) if one in places), "")
        return f"{places[known].place('value' if known else 'key')}: {label}: {error.message}"
