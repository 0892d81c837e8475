"""The settings of one cell of a grid, validated and frozen; trials repeat a cell with other seeds."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache
from operator import attrgetter
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from cbm_cli.errors import CbmError, Kind
from cbm_cli.grid.names import BACK_PROPAGATION, Sampler, Scheme
from cbm_cli.grid.parts import (
    Data,
    EarlyStopping,
    Evaluate,
    GradientChoice,
    LearningRate,
    Model,
    Pretraining,
    Record,
    SlidingFactor,
    StartFrom,
    WeightDecay,
)
from cbm_cli.grid.source import Value
from cbm_cli.grid.values import (
    Count,
    Frozen,
    Misfit,
    OffsetText,
    Positive,
    SamplerText,
    Share,
)
from cbm_cli.text import Statistic, count, did_you_mean


class Settings(Frozen):
    """Everything that one trial needs to know except its seed."""

    data: Data = Field(description="A data set by name, or files of your own")
    model: Model = Field(description="The machine: its kind and its hidden units")
    offsets: OffsetText = Field(description="Offset scheme, one letter per layer: dd^b_s, aa^b, d0, 00")
    sampler: SamplerText | None = Field(
        None, description="CD-k, PCD-k, PT_c, PT_c-k or exact; auto encoders have none"
    )
    learning_rate: LearningRate = Field(description="A number, or a rate that decays or changes in steps")
    momentum: Share = Field(0.0, description="Share of the last step that is added to the next one")
    weight_decay: WeightDecay = Field(WeightDecay(), description="Shrinks the weights; a number is l2")
    chains: Count | None = Field(
        None, description="PCD-k: persistent chains; default: as many as rows of a batch"
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
    pretraining: Pretraining = Field(Pretraining(), description="DBM: layer-wise training; epochs, or fields")
    early_stopping: EarlyStopping = Field(EarlyStopping(), description="When to stop before the end")
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
        for path, kind, problem in _CONFLICTS:
            if told := problem(self):
                raise Misfit(path, told, kind)

    def unused(self) -> dict[str, str]:
        """Return the given fields, dotted where nested, that change nothing here, and why."""
        found: dict[str, str] = {}
        for paths, values, defaults, reason in _fields_of_rules():
            if (given := values(self)) != defaults and (told := reason(self)):
                changed = zip(paths, given, defaults, strict=True)
                found = {path: told for path, value, default in changed if value != default} | found
        return found

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
        """What is evaluated, such as ``exact``; ``cost`` of auto encoders by default."""
        return self.evaluate.method or ("cost" if self.model.kind == "auto-encoder" else "exact")

    @property
    def temperatures(self) -> int:
        """Inverse temperatures of AIS."""
        return self.evaluate.temperatures or (29_000 if self.model.kind == "dbm" else 14_500)

    @property
    def resolved(self) -> dict[str, Any]:
        """Columns whose value follows from other settings where none is given."""
        return {
            "sampler": self.sampler_name,
            "evaluate_method": self.evaluation,
            "evaluate_every": self.every,
            "evaluate_temperatures": self.temperatures,
        }

    def row(self) -> dict[str, Any]:
        """Return every setting as one flat row of plain values: the columns of ``summary.csv``."""
        flat: dict[str, Any] = {"data": self.data.title}
        for name, value in self.__dict__.items():
            flat |= columns_of(name, value)
        return flat | self.resolved


@lru_cache(maxsize=4096, typed=True)
def columns_of(name: str, value: Any) -> dict[str, Any]:
    """Return the columns of a field, nested or not; the cells of a grid share few values of each."""
    plain = value.model_dump() if isinstance(value, Frozen) else value
    return (
        {f"{name}_{inner}": part for inner, part in plain.items()}
        if isinstance(plain, dict)
        else {name: plain}
    )


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


def _for(kinds: str, users: str) -> Callable[[Settings], Any]:
    """Return why fields that are for some kinds of machines, called ``users``, change nothing in others."""
    return lambda s: (
        s.model.kind not in kinds.split() and f"is for {users}; the model is of kind {s.model.kind}"
    )


# Fields, dotted where nested, and why they change nothing in settings ``s``; nothing where they do.
_UNUSED: tuple[tuple[str, Callable[[Settings], Any]], ...] = (
    ("pretraining", _for("dbm", "the layers of DBMs; there is nothing to pre-train in one layer")),
    ("early_stopping.metric", _for("rbm dbm", "Boltzmann machines; an auto encoder stops by its cost")),
    ("early_stopping.look_ahead",
     lambda s: s.model.kind != "auto-encoder" and not s.early_stopping.metric
     and f"needs a metric to watch in an {s.model.kind}, as in metric: likelihood"),
    ("gradient_from offsets_from record", _for("rbm", "RBMs")),
    ("gradient", _for("rbm dbm", "Boltzmann machines; an auto encoder descends its cost")),
    ("sampler chains",
     _for("rbm dbm", "Boltzmann machines; an auto encoder learns by back-propagation")),
    ("chains",
     lambda s: (s.parsed_sampler.temperatures > 1 or s.parsed_sampler.restart or s.parsed_sampler.exact)
     and f"is for PCD-k; the sampler is {s.sampler_name}"),
    ("gradient_from", lambda s: s.parsed_sampler.exact and "is exact already, by the sampler"),
    ("offsets_from",
     lambda s: {*s.scheme.letters} == {"0"} and f"has no effect: the offsets of {s.offsets} stay at zero"),
    ("sliding_factor.visible", lambda s: _still(s, "visible", s.scheme.letters[:1])),
    ("sliding_factor.hidden", lambda s: _still(s, "hidden", s.scheme.letters[1:])),
    ("gradient.fisher gradient.damping",
     lambda s: s.gradient.kind != "natural" and "is for the natural gradient; write kind: natural"),
    ("record.every record.window",
     lambda s: not s.record.what and "needs something to record, as in what: weight_norms"),
    (" ".join(f"pretraining.{name}" for name in Pretraining.model_fields if name != "epochs"),
     lambda s: not s.pretraining.epochs and "needs epochs of pre-training, as in epochs: 200"),
    ("start_from.machine",
     lambda s: not s.start_from.experiment
     and "chooses one of an experiment's two machines; give experiment"),
    ("init weight_scale",
     lambda s: s.start_from.path and f"is for fresh machines; these start from {s.start_from.path}"),
    ("shuffle",
     lambda s: s.batch == "full"
     and "is for mini-batches; a full batch has all rows in every update"),
    ("evaluate.temperatures evaluate.runs",
     lambda s: s.evaluation != "ais" and f"is for method: ais; the method is {s.evaluation}"),
    ("evaluate.rows", lambda s: s.evaluation == "none" and "is for evaluations; the method is none"),
)  # fmt: skip


@cache
def _fields_of_rules() -> list[tuple[list[str], Callable[[Settings], tuple], tuple, Callable]]:
    """Return the rules of `_UNUSED`: fields, what gets their values, their defaults, the reason."""
    rules = [(paths.split(), reason) for paths, reason in _UNUSED]
    return [(paths, _getter(paths), tuple(map(default_of, paths)), reason) for paths, reason in rules]


def _getter(paths: list[str]) -> Callable[[Settings], tuple]:
    values = attrgetter(*paths)
    return values if len(paths) > 1 else lambda settings: (values(settings),)


def _still(s: Settings, side: str, letters: str) -> str:
    """Return why the sliding factor of a side changes nothing; ``""`` where it does."""
    if s.pretraining.epochs and s.scheme.sliding:
        return ""  # both factors are used in the layers of the pre-training
    fresh = not (s.start_from.path or s.start_from.experiment)
    constant = "0h" if fresh and s.offsets_from != "random" else "0"
    if not s.scheme.sliding:
        return f"is for schemes with _s, as in dd^b_s; the offsets are {s.offsets}"
    moving = {*letters} - {*constant}
    return "" if moving else f"has no effect: the {side} offsets of {s.offsets} are constant"


# Fields that contradict others: which one to look at, the kind of the problem, and what it is in ``s``.
_CONFLICTS: tuple[tuple[str, Kind, Callable[[Settings], Any]], ...] = (
    ("", "missing",
     lambda s: s.updates is s.epochs is None and "give the length of training as either updates or epochs"),
    ("", "conflict",
     lambda s: s.updates and s.epochs and "give the length of training as either updates or epochs"),
    ("offsets", "unsuited",
     lambda s: len(s.scheme.letters) != s.model.layers
     and f"offset scheme {s.offsets} has {count(len(s.scheme.letters), 'letter')}; this {s.model.kind} of "
     f"{s.model.layers} layers needs {s.model.layers}"
     + '; in JSON write "00" in quotes' * (s.offsets == "0")),
    ("sliding_factor.visible", "conflict",
     lambda s: s.sliding_factor.visible == 0 and s.scheme.sliding and s.scheme.letters[0] != "d"
     and f"0 keeps visible offsets of the letter d at the data mean; in {s.offsets} they have the letter "
     f"{s.scheme.letters[0]}: give more than 0"),
    ("offsets", "unsuited",
     lambda s: s.model.kind == "auto-encoder" and {*s.scheme.letters} & {*"ma"}
     and f"offset scheme {s.offsets} uses the model mean (m, a); auto encoders have none: "
     "write 0, d, h or r"),
    ("sampler", "missing", lambda s: s.model.kind != "auto-encoder" and s.sampler is None and "is missing"),
    ("pretraining", "conflict",
     lambda s: s.pretraining.epochs and (s.parsed_sampler.temperatures > 1 or s.parsed_sampler.exact)
     and f"layers are pre-trained with CD-k or PCD-k, which double activations; {s.sampler} cannot"),
    ("pretraining", "conflict",
     lambda s: (s.start_from.path or s.start_from.experiment) and s.pretraining.epochs
     and "the layers are those of start_from; remove pretraining or start_from"),
    ("gradient", "unsuited",
     lambda s: s.model.kind == "dbm" and (s.gradient.kind == "natural" or s.gradient.scale_to != "none")
     and "the natural gradient and scale_to are for RBMs; the model is of kind dbm"),
    ("gradient", "conflict", lambda s: _other_offsets(s, "standard", "0", "without offsets")),
    ("gradient", "conflict", lambda s: _other_offsets(s, "enhanced", "a", "centered by a")),
    ("weight_decay", "conflict",
     lambda s: (s.weight_decay.l1 or s.weight_decay.l2)
     and (s.gradient.kind == "natural" or s.gradient.scale_to != "none")
     and "a natural or rescaled gradient would change the share of the weights that decays; remove "
     "weight_decay, or write gradient: centered"),
    ("gradient", "conflict",
     lambda s: s.gradient.scale_to == "centered" and {*s.scheme.letters} == {"0"}
     and f"scale_to: centered needs offsets; without any, as in {s.offsets}, the centered gradient is the "
     "standard one: write scale_to: standard"),
    ("evaluate", "unsuited",
     lambda s: s.model.kind == "auto-encoder" and s.evaluate.method in ("exact", "ais")
     and f"method {s.evaluate.method} estimates a likelihood, and an auto encoder has no normalised "
     "likelihood; it is judged by its cost: write method: cost"),
    ("early_stopping.metric", "conflict",
     lambda s: s.early_stopping.metric
     and (s.evaluation == "none"
          or (s.early_stopping.metric == "pseudo-likelihood") != (s.evaluation == "pseudo"))
     and f"{s.early_stopping.metric} is not evaluated; the method of evaluate is {s.evaluation}"),
    ("evaluate", "unsuited",
     lambda s: s.model.kind != "rbm" and s.evaluate.method == "pseudo"
     and f"method pseudo is for RBMs; the model is of kind {s.model.kind}"),
    ("evaluate", "unsuited",
     lambda s: s.model.kind != "auto-encoder" and s.evaluate.method == "cost"
     and f"method cost is for auto encoders; write exact or ais for the {s.model.kind}"),
)  # fmt: skip


def _other_offsets(s: Settings, kind: str, letter: str, meaning: str) -> str | None:
    scheme = Scheme(letter * s.model.layers)
    moving = kind == "enhanced" and (s.scheme.sliding or not s.scheme.before)
    if s.gradient.kind != kind or (s.scheme.letters == scheme.letters and not moving):
        return None
    remedy = f"write offsets: {scheme}, or gradient: centered"
    return f"the {kind} gradient is the one {meaning}, not {s.offsets}; {remedy}"


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


_MACHINE = {"model": {"kind": "rbm", "hidden": 1}, "offsets": "00", "sampler": "CD-1"}
COLUMNS = ("experiment", *Settings(data={"name": "mnist"}, **_MACHINE, learning_rate=1, epochs=1).row())


def meant(name: str, known: Iterable[str]) -> list[str]:
    """Return the known columns, or fields, that a name may mean, its own first.

    ``model.hidden``, ``model_hidden`` and ``hidden`` are the same; what the model has comes before others.
    """
    name, spelled = name.replace(".", "_"), {one.replace(".", "_"): one for one in known}
    ends = [one for one in spelled if one.endswith(f"_{name}")]
    found = next((one for one in (name, f"model_{name}") if one in spelled), None)
    return [spelled[one] for one in ([found] if found else ends)]


def _column(text: str) -> str:
    """Return the column that a name means, or the name of a setting of several columns."""
    name = text.replace(".", "_")
    found = [name] if name in NESTED else meant(text, COLUMNS)
    if len(found) > 1:
        raise Misfit("", f"several columns are called {text}; name one of {', '.join(found)}", "unknown")
    if not found:
        raise Misfit("", f"there is no column {text}{did_you_mean(name, COLUMNS)}", "unknown")
    return found[0]


Columns = Annotated[
    tuple[Annotated[str, AfterValidator(_column)], ...],
    BeforeValidator(lambda given: [given] if isinstance(given, str) else given),
]
AXES = ("rows", "columns", "groups")  # of tables


class TableSpec(Frozen):
    """How ``cbm table`` lays an experiment out: names of columns of ``summary.csv``."""

    rows: Columns = Field(("sampler", "learning_rate"), description="Settings shown as rows")
    columns: Columns = Field(("offsets",), description="Settings shown as columns")
    groups: Columns = Field(("data",), description="Settings shown as groups of rows")
    scale: Literal["total", "per-sample"] = Field(
        "per-sample", description="Log-likelihood summed over the rows, or their mean"
    )
    metric: str | None = Field(
        None,
        description="What is shown; default: log-likelihood, cost or lower bound, of test rows if there are",
    )
    statistic: Statistic | None = Field(
        None,
        description="Best value over training (max), last value, value at the best validation, or value "
        "where the mean over trials is best; default: max, with choose: best-valid where it is known",
    )
    choose: Columns = Field(
        (), description="Settings of which each cell shows the best value, by the part that is named by"
    )
    by: Literal["valid", "train", "test"] | None = Field(
        None, description="With choose: part of the data whose mean decides; default: valid"
    )

    @model_validator(mode="after")
    def _check(self) -> "TableSpec":
        """Refuse columns that are named twice, and leave out of the default axes what another one names."""
        if self.by and not self.choose:
            raise Misfit("by", "has no effect without choose, as in choose: learning_rate", "unsuited")
        taken: dict[str, str] = {}
        for axis in (axis for axis in (*AXES, "choose") if axis in self.model_fields_set):
            for column in getattr(self, axis):
                if column in taken:
                    raise Misfit(axis, f"{column} is among the {taken[column]}; name it once", "conflict")
                taken[column] = axis
        for axis in {*AXES} - self.model_fields_set:
            self.__dict__[axis] = tuple(column for column in getattr(self, axis) if column not in taken)
        return self

    def within(self, cells: Collection[Settings]) -> "TableSpec":
        """Return the same with the columns of settings that have several: those that vary, or the first."""
        rows = [cell.row() for cell in cells]

        def spread(name: str) -> list[str]:
            parts = [column for column in COLUMNS if column.startswith(f"{name}_")] if name in NESTED else []
            if name in COLUMNS or not parts:
                return [name]
            return [part for part in parts if len({row.get(part) for row in rows}) > 1] or parts[:1]

        axes = (*AXES, "choose")
        return self.model_copy(
            update={axis: tuple(c for name in getattr(self, axis) for c in spread(name)) for axis in axes}
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
    value_of: Callable[[Settings, str], Value | None] = field(
        default=lambda cell, path: None, compare=False, repr=False
    )  # what the grid gives to a field of a cell

    def __iter__(self) -> Iterator[Trial]:
        """Yield trial 0 of every cell, then trial 1: an interrupted run leaves even cells."""
        for number in range(self.trials):
            for settings in self.cells:
                yield Trial(self.name, settings, number, self.seed)

    def located(self, cell: Settings, error: CbmError, within: str = "") -> str:
        """Return an error's message after the place of its field: ``grid.yaml:9: toy.batch: ...``.

        The field of the error may be one ``within`` another. A field that the grid leaves out has the place
        of the experiment.
        """
        path = ".".join(filter(None, (within, error.field)))
        value = self.value_of(cell, path)
        place = "" if value is None else str(value.place)
        return ": ".join(filter(None, (place, f"{self.name}.{path}".rstrip("."), error.message)))
