"""The settings of one cell of a grid, validated and frozen, and the experiments that
are made of cells.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import pairwise
from operator import attrgetter
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializationInfo,
    ValidationInfo,
    WithJsonSchema,
    model_serializer,
    model_validator,
)

from cbm_cli.choices import Statistic
from cbm_cli.datasets.fields import (
    Count,
    FileName,
    Frozen,
    NotNegative,
    Positive,
    WholeNumber,
    about,
    whole,
)
from cbm_cli.datasets.spec import Data
from cbm_cli.errors import CbmError, FieldError
from cbm_cli.grid.fields import (
    Fraction,
    Interval,
    Open,
    Parts,
    Share,
    UpToOne,
    interval_text,
    spelled,
    text_of_form,
)
from cbm_cli.grid.names import (
    BACK_PROPAGATION,
    OffsetText,
    Sampler,
    SamplerText,
    Scheme,
)
from cbm_cli.grid.rules import conflicts, needs
from cbm_cli.grid.source import Value
from cbm_cli.text import CONTROL, WHOLE, did_you_mean, whole_numbers

RECORDERS = {  # names of functions in trial/recorders.py, and of their columns
    "log_likelihood": ("log_likelihood",),
    "weight_norms": ("weight_norm", "weight_row_norm", "weight_column_norm"),
    "bias_norms": (
        "visible_bias_norm",
        "hidden_bias_norm",
        "centered_visible_bias_norm",
        "centered_hidden_bias_norm",
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
IN_MANIFEST = "manifest"  # context in which settings are written and read again
OWN_RECORDER = r"[^=@-].*\.py:[A-Za-z_]\w*"  # file.py:function


# The machine


def _sizes(value: object) -> int | str:
    """Read ``500``, ``500-500``, a list of numbers, or ``half``; of several layers,
    return ``500-500``.
    """
    layers = value if isinstance(value, list | tuple) else [value]
    text = "-".join(map(str, layers)).strip()
    if text == "half":
        return "half"
    what = "sizes of hidden layers, as 500 or 500-500,"
    sizes = whole_numbers(text.split("-"), what, 1)
    return sizes[0] if len(sizes) == 1 else "-".join(map(str, sizes))


_LAYERS = {"type": "string", "pattern": rf"^\s*{WHOLE}(\s*-\s*{WHOLE})*\s*$"}
_LAYER = [{"type": "integer", "minimum": 1}, {"const": "half"}, _LAYERS]
_LISTED = {"type": "array", "items": {"anyOf": _LAYER}, "minItems": 1}
Sizes = Annotated[
    int | str, BeforeValidator(_sizes), WithJsonSchema({"anyOf": [*_LAYER, _LISTED]})
]


class Model(Frozen):
    """The machine."""

    kind: Literal["rbm", "dbm", "auto-encoder"] = Field(description="Kind of machine")
    hidden: Sizes = Field(
        description="Hidden units; of several layers [500, 500] or 500-500; or half"
    )

    @property
    def layers(self) -> int:
        """Layers of units, the visible one included; a scheme has one letter for
        each.
        """
        return 2 + str(self.hidden).count("-")

    def hidden_layers(self, width: int) -> tuple[int, ...]:
        """Units of each hidden layer above ``width`` visible ones; half of an odd width
        rounds down.
        """
        if self.hidden == "half":
            return (max(1, width // 2),)
        return tuple(map(int, str(self.hidden).split("-")))


# Learning


def _steps(match: re.Match) -> str:
    """Return the canonical text of steps: ``0.01 from 100 epochs + 0.001 from 200
    epochs``.
    """
    steps = list(re.finditer(_STEP, match[0]))
    rates = [float(step[1]) for step in steps]
    firsts = whole_numbers([step[2] for step in steps], "steps")
    units = {step[3] for step in steps}
    is_rising = all(first < second for first, second in pairwise([0, *firsts]))
    is_finite = all(0 < rate < float("inf") for rate in rates)
    if not (is_rising and is_finite and len(units) == 1):
        raise ValueError(_STEPS)
    (unit,) = units
    pairs = zip(rates, firsts, strict=True)
    texts = [f"{rate:.12g} from {interval_text(first, unit)}" for rate, first in pairs]
    return " + ".join(texts)


_STEPS = (
    "write rates above 0 and where they begin, from 1 on, one after the other, all in "
    "updates or all in epochs, as in 0.01 from 100 epochs + 0.001 from 200 epochs"
)
_STEP = rf"([0-9.][0-9.eE_+-]*)\s+from\s+({WHOLE})\s+(update|epoch)s?"
Steps: Any = text_of_form(
    rf"{_STEP}(?:\s+\+\s+{_STEP})*",
    _STEPS,
    _steps,
)


class LearningRate(Frozen):
    """The learning rate: a number, a rate that decays, or one that changes in steps.

    As text: the number, ``0.1 x 0.9 every 10 epochs``, or ``0.1, 0.01 from 100
    epochs``.
    """

    short = ("start",)
    start: Positive = Field(description="Learning rate of the first update")
    decay: Open | None = about(None, "Factor on the rate after every interval")
    every: Interval | None = about(
        None, "Interval of the decay: 500 updates or 10 epochs"
    )
    steps: Steps | None = about(
        None, "Later rates: 0.01 from 100 epochs + 0.001 from 200 epochs"
    )

    @model_serializer(mode="wrap")
    def _dump(self, dump: Callable[[Any], dict], info: SerializationInfo) -> Any:
        """Return a number, or text as tables show it; in a manifest, the fields."""
        if self.constant:
            return self.start
        if info.context != IN_MANIFEST:
            return str(self)
        return {name: part for name, part in dump(self).items() if part is not None}

    def __str__(self) -> str:
        """The rate as tables show it."""
        if self.decay:
            return f"{self.start:.12g} x {self.decay:.12g} every {self.every}"
        if self.steps:
            return f"{self.start:.12g}, {self.steps.replace(' + ', ', ')}"
        return f"{self.start:.12g}"

    @property
    def constant(self) -> bool:
        """Whether all updates have the same rate."""
        return not (self.decay or self.steps)

    def pieces(
        self, updates_of: Callable[[str], int], total: int
    ) -> list[tuple[int, float]]:
        """Return the first update and the rate of each stretch of constant rate in
        ``total`` updates.

        ``updates_of`` turns the text of an interval, such as ``10 epochs``, into
        updates.
        """
        pieces = [(0, self.start)]
        if self.decay and self.every:
            firsts = range(0, total, updates_of(self.every))
            pieces = [
                (first, self.start * self.decay**k) for k, first in enumerate(firsts)
            ]
        later: list[str] = self.steps.split(" + ") if self.steps else []
        for step in later:
            rate, interval = step.split(" from ")
            pieces.append((updates_of(interval), float(rate)))
        return [piece for piece in pieces if piece[0] < total]


class SlidingFactor(Frozen):
    """Weight of the newest mean in the moving average of ``_s`` schemes; a number is
    for both sides.
    """

    short = ("visible", "hidden")
    visible: UpToOne = about(
        0.01, "0: visible offsets of the letter d stay at the mean of all rows"
    )
    hidden: Fraction = about(0.01, "Of hidden offsets")


class WeightDecay(Frozen):
    """Taken from W in every update: learning_rate * (l2 W + l1 sign W); a number is
    l2.
    """

    short = ("l2",)
    l1: NotNegative = about(0.0, "L1 factor, of the signs of the weights")
    l2: NotNegative = about(0.0, "L2 factor, of the weights")


class GradientChoice(Frozen):
    """The direction of an update."""

    short = ("kind",)
    kind: Literal["centered", "standard", "enhanced", "natural"] = about(
        "centered", "centered: by the offset scheme; standard: of 00; enhanced: of aa^b"
    )
    fisher: Literal["joint", "marginal", "diagonal"] = about(
        "joint",
        "natural: covariance of (x h, x, h), of its mean given x, or its diagonal",
    )
    damping: NotNegative = about(
        0.0, "natural: added to the diagonal of the Fisher matrix"
    )
    scale_to: Literal["none", "standard", "centered"] = about(
        "none", "Rescale steps to the length of this gradient"
    )


Watched = Literal["likelihood", "pseudo-likelihood"]


class EarlyStopping(Frozen):
    """When training stops, by its evaluations of the validation part."""

    look_ahead: Count = about(
        5, "Stop after this many evaluations in a row without improvement"
    )
    metric: Watched | None = about(
        None, "RBM, DBM: what is watched. Auto encoders watch their cost"
    )


class Pretraining(Frozen):
    """Layer-wise training of a DBM before the training proper; fields not given are as
    there.
    """

    short = ("epochs",)
    epochs: WholeNumber = about(0, "Length in epochs; 0: none")
    learning_rate: Positive | None = about(
        None, "Default: the first rate of the training"
    )


def _file_of_trial(text: str) -> str:
    if re.search(r"[{}]", re.sub(r"\{trial(:0\d)?d?\}", "", text)):
        raise ValueError(
            "only {trial} and {trial:03d} are known, as in start/trial-{trial:03d}.npz"
        )
    return text


TrialFile = Annotated[FileName, AfterValidator(_file_of_trial)]


class StartFrom(Frozen):
    """The machines that trials start from: files, or the finished trials of another
    experiment.
    """

    short = ("path",)
    path: TrialFile | None = about(
        None, "A machine file; {trial:03d} is the number of the trial"
    )
    experiment: str | None = about(
        None, "An experiment of this grid: its trials of the same number"
    )
    machine: Literal["final", "best-valid"] = about(
        "final", "With experiment: the last machine, or the best on the validation part"
    )

    @classmethod
    def long(cls, value: Any) -> dict[str, Any]:
        """Return what a value without names says: the path of a file, or the name of an
        experiment.
        """
        return {"path" if re.search(r"/|\.npz$", str(value)) else "experiment": value}


# Measuring


def _recorders(value: object) -> str:
    names = [name.strip() for name in str(value).split("+")]
    for name in names:
        is_own = re.fullmatch(OWN_RECORDER, name) and not CONTROL.search(name)
        if name in RECORDERS or is_own:
            continue
        hint = did_you_mean(name, RECORDERS)
        if ".py" in name:
            hint = "; a recorder of your own is written file.py:function"
        shown = name[:60] or "without a name"
        raise FieldError(f"there is no recorder {shown}{hint}")
    return "+".join(dict.fromkeys(names))


def _windows(match: re.Match) -> str:
    spans = re.split(_PLUS, match[0])
    windows = [whole_numbers(span.split("-"), "updates of a window") for span in spans]
    if any(not first < last for first, last in windows):
        raise ValueError(_WINDOW)
    return "+".join(f"{first}-{last}" for first, last in windows)


_WINDOW = (
    "write the first and the last update of a window, as in 1000-1100 or 0-100+500-600"
)
_RECORDER = "|".join((*RECORDERS, OWN_RECORDER))
_SPAN = rf"\s*{WHOLE}\s*-\s*{WHOLE}\s*"
_PLUS = r"(?<![eE])\+"  # between numbers, not within one
Temperatures: Any = whole(3)
Runs: Any = whole(2)
Recorders: Any = spelled(_recorders, rf"({_RECORDER})(\s*\+\s*({_RECORDER}))*")
Windows: Any = text_of_form(rf"{_SPAN}(\+{_SPAN})*", _WINDOW, _windows)


class Evaluate(Frozen):
    """Evaluations during training: the method, and how often."""

    short = ("method",)
    method: Literal["exact", "ais", "pseudo", "none", "cost"] | None = about(
        None,
        (
            "Likelihood: exact or ais; pseudo(-likelihood); cost: of auto encoders; "
            "default: exact or cost"
        ),
    )
    every: Interval | None = about(
        None, "Default: 50 updates, or 1 epoch where epochs are given"
    )
    parts: Parts | None = about(
        None, "Evaluated parts, such as train+test; default: all"
    )
    rows: Count | None = about(
        None, "Evaluate a fixed subsample of this many rows of each part"
    )
    temperatures: Temperatures | None = about(
        None, "AIS: default 14,500, of a DBM 29,000"
    )
    runs: Runs = about(100, "AIS: independent runs")


class Record(Frozen):
    """Quantities that are recorded in addition to the evaluations."""

    short = ("what",)
    what: Recorders | None = about(
        None, "Recorders joined by +; file.py:function runs as your code"
    )
    every: Interval | None = about(None, "Default: at every evaluation")
    window: Windows | None = about(
        None, "Every update from first to last: 1000-1100, 0-100+500-600"
    )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the recorders; the user's own are ``file.py:function``."""
        return tuple(self.what.split("+")) if self.what else ()

    @property
    def windows(self) -> tuple[tuple[int, int], ...]:
        """First and last update of each window."""
        spans: list[str] = self.window.split("+") if self.window else []
        ends = [span.split("-") for span in spans]
        return tuple((int(first), int(last)) for first, last in ends)


# A cell


class Settings(Frozen):
    """Everything that one trial needs to know except its seed."""

    data: Data = Field(description="A data set by name, or files of your own")
    model: Model = Field(description="The machine: its kind and its hidden units")
    offsets: OffsetText = Field(
        description="Offset scheme, one letter per layer: dd^b_s, aa^b, d0, 00"
    )
    sampler: SamplerText | None = about(
        None, "CD-k, PCD-k, PT_c, PT_c-k or exact; auto encoders have none"
    )
    learning_rate: LearningRate = Field(
        description="A number, or a rate that decays or changes in steps"
    )
    momentum: Share = about(
        0.0, "Factor on the last step, which is added to the next one"
    )
    weight_decay: WeightDecay = about(
        WeightDecay(), "Shrinks the weights; a number is l2"
    )
    chains: Count | None = about(
        None, "PCD-k: persistent chains; default: the rows of a batch"
    )
    sliding_factor: SlidingFactor = about(
        SlidingFactor(), "Schemes with _s: weight of the newest mean"
    )
    gradient: GradientChoice = about(
        GradientChoice(), "Direction of an update; a word is its kind"
    )
    gradient_from: Literal["samples", "exact"] = about(
        "samples", "Its model phase; exact: over all states"
    )
    offsets_from: Literal["same", "independent", "exact", "random"] = about(
        "same",
        "Means of the offsets: the gradient's, a second sampler's, exact, or random",
    )
    pretraining: Pretraining = about(
        Pretraining(), "DBM: layer-wise training; epochs, or fields"
    )
    early_stopping: EarlyStopping = about(
        EarlyStopping(), "When to stop before the end"
    )
    start_from: StartFrom = about(
        StartFrom(), "Machine files or an experiment to start from"
    )
    init: Literal["zero", "inverse-sigmoid"] = about(
        "inverse-sigmoid", "Initial visible biases"
    )
    weight_scale: Positive = about(0.01, "Standard deviation of the initial weights")
    updates: Count | None = about(
        None, "Length of training in updates (or give epochs)"
    )
    epochs: Count | None = about(None, "Length of training in epochs (or give updates)")
    batch: Literal["full"] | Count = about(100, "Rows of a mini-batch, or full")
    shuffle: bool = about(
        True, "Rows of the mini-batches come in a new order in every epoch"
    )
    evaluate: Evaluate = about(
        Evaluate(), "Evaluations during training: the method, and how often"
    )
    record: Record = about(
        Record(), "Quantities that are recorded in addition to the evaluations"
    )

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> "Settings":
        if info.context == IN_MANIFEST:  # they were checked before they were written
            return self
        for path, reason in self.unused().items():
            # Pre-training hands sliding factors to layers that do not slide.
            if not path.startswith("sliding_factor"):
                raise FieldError(f"{path} {reason}", path)
        self.check()
        return self

    def check(self) -> None:
        """Raise FieldError for settings that contradict each other."""
        for conflict in conflicts(self):
            raise FieldError(conflict.message, conflict.field)

    def unused(self) -> dict[str, str]:
        """Return the given fields, dotted where nested, that change nothing here, and
        why.
        """
        unused: dict[str, str] = {}
        for need in needs(self):
            if need.holds:
                continue
            reason = f"has no effect: it is for {need.what}"
            for name in need.fields:
                for path in paths_of(name):
                    if self.value(path) != default_of(path):
                        unused.setdefault(path, reason)
        return unused

    def with_defaults(self, paths: Iterable[str]) -> "Settings":
        """Return the same settings with the defaults of some fields, dotted where
        nested.
        """
        update: dict[str, Any] = {}
        for path in paths:
            name, _, inner = path.partition(".")
            if inner:
                parts = update.get(name, getattr(self, name))
                update[name] = parts.model_copy(update={inner: default_of(path)})
            else:
                update[name] = default_of(path)
        return self.model_copy(update=update)

    def value(self, path: str) -> Any:
        """Return the value of a field, dotted where nested."""
        return _getter(path)(self)

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
        """Method of evaluation, such as ``exact``; default for auto encoders:
        ``cost``.
        """
        return self.evaluate.method or (
            "cost" if self.model.kind == "auto-encoder" else "exact"
        )

    @property
    def temperatures(self) -> int:
        """Inverse temperatures of AIS."""
        return self.evaluate.temperatures or (
            29_000 if self.model.kind == "dbm" else 14_500
        )

    def row(self) -> dict[str, Any]:
        """Return every setting as one flat row of plain values: the columns of
        ``summary.csv``, the same for all cells.
        """
        row: dict[str, Any] = {"data": self.data.title}
        row |= dict.fromkeys(f"data_{field}" for field in Data.model_fields)
        for name, value in self.__dict__.items():
            row |= columns_of(name, value)
        row["sampler"] = self.sampler_name
        row["evaluate_method"] = self.evaluation
        row["evaluate_every"] = self.every
        row["evaluate_temperatures"] = self.temperatures
        return row

    def in_manifest(self) -> dict[str, Any]:
        """Return the fields that have another value than their default, from which
        `from_manifest` makes the same settings.
        """
        return self.model_dump(mode="json", exclude_defaults=True, context=IN_MANIFEST)

    @classmethod
    def from_manifest(cls, fields: dict[str, Any]) -> "Settings":
        """Return the settings that `in_manifest` has written; rules between fields,
        which may be newer, are not checked.
        """
        return cls.model_validate(fields, context=IN_MANIFEST)


@lru_cache(maxsize=4096, typed=True)
def columns_of(name: str, value: Any) -> dict[str, Any]:
    """Return the columns of a field, nested or not; the cells of a grid share few
    values of each.
    """
    plain = value.model_dump() if isinstance(value, Frozen) else value
    if not isinstance(plain, dict):
        return {name: plain}
    return {f"{name}_{inner}": part for inner, part in plain.items()}


NESTED: dict[str, type[Frozen]] = {
    name: info.annotation
    for name, info in Settings.model_fields.items()
    if isinstance(info.annotation, type) and issubclass(info.annotation, Frozen)
}


_getter = cache(attrgetter)


@cache
def paths_of(name: str) -> tuple[str, ...]:
    """Return a field, or the parts of a nested one, with dots."""
    if name not in NESTED:
        return (name,)
    return tuple(f"{name}.{part}" for part in NESTED[name].model_fields)


@cache
def default_of(path: str) -> Any:
    """Return the default of a field, dotted where nested."""
    name, _, inner = path.partition(".")
    return (NESTED[name] if inner else Settings).model_fields[inner or name].default


@dataclass(frozen=True, slots=True)
class Trial:
    """One training run: a cell's settings and the number that decides its seed.

    Trial k has the same seed in every cell of an experiment, so that methods are
    compared in pairs.
    """

    experiment: str
    settings: Settings
    number: int
    base_seed: int

    @property
    def seed(self) -> int:
        """64-bit seed of this trial."""
        return _seed_of(self.base_seed, self.number)


@cache
def _seed_of(base: int, number: int) -> int:
    """The seed of the trials of one number in all experiments of one seed."""
    import numpy as np

    # Both as two words of 32 bits, low ones first: SeedSequence takes a longer number
    # for more words, which others have.
    words = np.array([base, number], "<u8").view("<u4").reshape(2, 2).T.ravel()
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0])


_MACHINE = {"model": {"kind": "rbm", "hidden": 1}, "offsets": "00", "sampler": "CD-1"}
COLUMNS = (
    "experiment",
    *Settings(data={"name": "mnist"}, **_MACHINE, learning_rate=1, epochs=1).row(),
)


def meant(name: str, known: Iterable[str]) -> list[str]:
    """Return the known columns, or fields, that a name may mean, its own first.

    ``model.hidden``, ``model_hidden`` and ``hidden`` are the same; what the model has
    comes before others.
    """
    word = name.replace(".", "_")
    spelled = {column.replace(".", "_"): column for column in known}
    for exact in (word, f"model_{word}"):
        if exact in spelled:
            return [spelled[exact]]
    return [column for text, column in spelled.items() if text.endswith(f"_{word}")]


def parts_of(name: str) -> list[str]:
    """Return the columns of a setting: its own, or of a nested one those of its
    parts.

    >>> parts_of("weight_decay")
    ['weight_decay_l1', 'weight_decay_l2']
    """
    if name in COLUMNS or name not in NESTED:
        return [name]
    return [column for column in COLUMNS if column.startswith(f"{name}_")]


def only_meant(name: str, known: Collection[str]) -> str:
    """Return the known column, or field, that a name means; FieldError for none and for
    several.
    """
    names = meant(name, known)
    if not names:
        raise FieldError(f"there is no {name}{did_you_mean(name, known)}")
    if len(names) > 1:
        raise FieldError(f"several are called {name}; name one of {', '.join(names)}")
    return names[0]


def _setting(text: str) -> str:
    """Return the column that a name means, or the name of a setting of several
    columns.
    """
    name = text.replace(".", "_")
    return name if name in NESTED else only_meant(text, COLUMNS)


def _listed(names: object) -> object:
    return [names] if isinstance(names, str) else names


ColumnNames = Annotated[
    tuple[Annotated[str, AfterValidator(_setting)], ...],
    BeforeValidator(_listed),
    WithJsonSchema(
        {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
    ),
]
AXES = ("rows", "columns", "groups")  # of tables


class TableSpec(Frozen):
    """How ``cbm table`` lays an experiment out: names of columns of ``summary.csv``."""

    rows: ColumnNames = about(("sampler", "learning_rate"), "Settings shown as rows")
    columns: ColumnNames = about(("offsets",), "Settings shown as columns")
    groups: ColumnNames = about(("data",), "Settings shown as groups of rows")
    scale: Literal["total", "per-sample"] = about(
        "per-sample", "Sum over the rows, or their mean"
    )
    metric: str | None = about(
        None, "The value in the cells; default: log-likelihood, cost or lower bound"
    )
    statistic: Statistic | None = about(
        None, "Which value over training; default: best-valid, or max"
    )
    choose: ColumnNames = about(
        (), "Settings to choose in each cell by the mean on a part"
    )
    by: Literal["valid", "train", "test"] | None = about(
        None, "The part that choose goes by; default: valid"
    )

    @model_validator(mode="after")
    def _check(self) -> "TableSpec":
        """Refuse columns that are named twice, and leave out of the default axes what
        another one names.
        """
        if self.by and not self.choose:
            raise FieldError(
                "has no effect without choose, as in choose: learning_rate", "by"
            )
        taken: dict[str, str] = {}
        for axis in (*AXES, "choose"):
            if axis not in self.model_fields_set:
                continue
            for column in getattr(self, axis):
                if column in taken:
                    place = f"is among the {taken[column]}"
                    raise FieldError(f"{column} {place}; name it once", axis)
                taken[column] = axis
        for axis in set(AXES) - self.model_fields_set:
            free = [column for column in getattr(self, axis) if column not in taken]
            self.__dict__[axis] = tuple(free)
        return self


def _nothing(cell: Settings, path: str) -> None:
    """The place of a field of an experiment that is not from a file."""


@dataclass(frozen=True)
class Experiment:
    """A named experiment: its cells, how often each is run, and how its table looks."""

    name: str
    description: str
    trials: int
    seed: int
    cells: tuple[Settings, ...]
    table: TableSpec
    # the experiments that trials of this one start from
    sources: tuple["Experiment", ...] = ()
    # what the grid gives to a field of a cell
    value_of: Callable[[Settings, str], Value | None] = field(
        default=_nothing, compare=False, repr=False
    )
    notes: tuple[str, ...] = field(default=(), compare=False)  # what a reader may miss

    def __iter__(self) -> Iterator[Trial]:
        """Yield trial 0 of every cell, then trial 1: an interrupted run leaves even
        cells.
        """
        for number in range(self.trials):
            for settings in self.cells:
                yield Trial(self.name, settings, number, self.seed)

    def located(self, cell: Settings, error: CbmError, within: str = "") -> str:
        """Return an error's message after the place of its field: ``grid.yaml:9:
        toy.batch: ...``.

        The field of the error may be one ``within`` another. A field that the grid
        leaves out has the place of the experiment.
        """
        path = ".".join(filter(None, (within, error.field)))
        message = f"{self.name}.{path}".rstrip(".") + f": {error.message}"
        value = self.value_of(cell, path)
        return message if value is None else f"{value.place}: {message}"
