"""What fits together: which fields change nothing in a cell, and which contradict each
other.

The rules read the fields of a `Settings`, whose module imports this one.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from cbm_cli.grid.names import Scheme, forms_of
from cbm_cli.letters import LETTERS
from cbm_cli.text import count


class Need(NamedTuple):
    """The purpose of some fields: they change nothing in a cell without it."""

    holds: object  # whether the cell has it, by truth
    fields: tuple[str, ...]  # dotted where nested
    what: str


class Conflict(NamedTuple):
    """A mistake in a cell."""

    field: str  # the one to look at first, dotted where nested; empty: none
    message: str


def needs(s: Any) -> Iterator[Need]:
    """Yield what fields are for."""
    yield from _needs_of_machine(s)
    yield from _needs_of_offsets(s)
    yield from _needs_of_training(s)


def _needs_of_machine(s: Any) -> Iterator[Need]:
    kind = s.model.kind
    has_likelihood = kind != "auto-encoder"
    fields: tuple[str, ...] = ("sampler", "chains", "gradient", "early_stopping.metric")
    yield Need(has_likelihood, fields, "an rbm or a dbm")
    yield Need(kind == "dbm", ("pretraining",), "a dbm")
    fields = ("gradient_from", "offsets_from", "record")
    yield Need(kind == "rbm", fields, "an rbm")
    watches = kind == "auto-encoder" or s.early_stopping.metric
    yield Need(watches, ("early_stopping",), "an auto-encoder, or a metric to watch")
    sampler = s.parsed_sampler
    persistent = " or ".join(forms_of(lambda row: row.persistent))
    yield Need(sampler.persistent, ("chains",), persistent)
    inexact = "samplers that are not exact already"
    yield Need(not sampler.exact, ("gradient_from",), inexact)


def _needs_of_offsets(s: Any) -> Iterator[Need]:
    scheme = s.scheme
    yield Need(scheme.has_offsets, ("offsets_from",), "offsets other than 0")
    is_fresh = not (s.start_from.path or s.start_from.experiment)
    # Layers that were trained before may have other offsets than fixed ones.
    starts_fixed = is_fresh and s.offsets_from != "random"
    for side, rows in (("visible", scheme.rows[:1]), ("hidden", scheme.rows[1:])):
        moves = any(not (row.is_fixed if starts_fixed else row.is_none) for row in rows)
        slides = scheme.sliding and (s.pretraining.epochs or moves)
        what = f"{side} offsets that move with _s, as in dd^b_s"
        yield Need(slides, (f"sliding_factor.{side}",), what)


def _needs_of_training(s: Any) -> Iterator[Need]:
    start = s.start_from
    fields = ("gradient.fisher", "gradient.damping")
    yield Need(s.gradient.kind == "natural", fields, "kind: natural")
    fields = ("record.every", "record.window")
    yield Need(s.record.what, fields, "something to record, as in what: weight_norms")
    epochs = s.pretraining.epochs
    yield Need(epochs, ("pretraining.learning_rate",), "epochs of pre-training")
    what = "the start from an experiment"
    yield Need(start.experiment, ("start_from.machine",), what)
    what = f"fresh machines, not for {start.path}"
    yield Need(not start.path, ("init", "weight_scale"), what)
    what = "mini-batches; a full batch has all rows in every update"
    yield Need(s.batch != "full", ("shuffle",), what)
    fields = ("evaluate.temperatures", "evaluate.runs")
    what = f"method: ais, not {s.evaluation}"
    yield Need(s.evaluation == "ais", fields, what)
    what = "evaluations, not for method: none"
    yield Need(s.evaluation != "none", ("evaluate.rows",), what)


def conflicts(s: Any) -> Iterator[Conflict]:
    """Yield what is wrong with a cell."""
    yield from _of_length(s)
    yield from _of_layers(s)
    yield from _of_rate(s)
    yield from _of_offsets(s)
    yield from _of_sampler(s)
    yield from _of_start(s)
    yield from _of_gradient(s)
    yield from _of_evaluation(s)


def _of_length(s: Any) -> Iterator[Conflict]:
    if bool(s.updates) == bool(s.epochs):
        message = "give the length of training as either updates or epochs"
        yield Conflict("epochs", message)


def _of_layers(s: Any) -> Iterator[Conflict]:
    kind, hidden, layers = s.model.kind, s.model.hidden, s.model.layers
    fits = {
        "rbm": layers == 2 and hidden != "half",
        "dbm": layers > 2,
        "auto-encoder": True,
    }
    if not fits[kind]:
        message = (
            "an rbm has one hidden layer, as 500, a dbm several, as 500-500, and half "
            f"is for auto encoders; this {kind} has {hidden}"
        )
        yield Conflict("model.hidden", message)


def _of_rate(s: Any) -> Iterator[Conflict]:
    rate = s.learning_rate
    message = "a rate decays or changes in steps; give decay and every, or steps"
    if rate.steps and rate.decay:
        yield Conflict("learning_rate.steps", message)
    elif rate.decay and not rate.every:
        yield Conflict("learning_rate.decay", message)
    elif rate.every and not rate.decay:
        yield Conflict("learning_rate.every", message)


def _of_offsets(s: Any) -> Iterator[Conflict]:
    kind, scheme = s.model.kind, s.scheme
    if len(scheme.letters) != s.model.layers:
        letters = count(len(scheme.letters), "letter")
        message = f"{s.offsets} has {letters}; this {kind} needs {s.model.layers}"
        yield Conflict("offsets", message)
    if kind == "auto-encoder" and scheme.needs_model:
        others = [letter for letter in LETTERS if not LETTERS[letter].needs_model]
        message = (
            f"{s.offsets} needs a model mean, which auto encoders do not have; write "
            f"letters of {', '.join(others)}"
        )
        yield Conflict("offsets", message)
    is_data_mean = scheme.rows[0].is_data_mean
    if s.sliding_factor.visible == 0 and scheme.sliding and not is_data_mean:
        message = (
            "0 keeps visible offsets of the letter d at the data mean; "
            f"{s.offsets} has {scheme.letters[0]}"
        )
        yield Conflict("sliding_factor.visible", message)


def _of_sampler(s: Any) -> Iterator[Conflict]:
    if s.model.kind != "auto-encoder" and s.sampler is None:
        yield Conflict("sampler", "is missing")
    if s.pretraining.epochs and not s.parsed_sampler.doubles:
        forms = " or ".join(forms_of(lambda row: row.doubles))
        message = (
            f"layers are pre-trained with {forms}, which double activations; "
            f"{s.sampler} cannot"
        )
        yield Conflict("pretraining", message)


def _of_start(s: Any) -> Iterator[Conflict]:
    start = s.start_from
    if s.pretraining.epochs and (start.path or start.experiment):
        remedy = "remove pretraining or start_from"
        message = f"the layers are those of start_from; {remedy}"
        yield Conflict("pretraining", message)
    if start.path and start.experiment:
        remedy = "give path or experiment"
        message = f"trials start from files or from an experiment; {remedy}"
        yield Conflict("start_from.path", message)


def _of_gradient(s: Any) -> Iterator[Conflict]:
    gradient, scheme = s.gradient, s.scheme
    is_scaled = gradient.kind == "natural" or gradient.scale_to != "none"
    if s.model.kind == "dbm" and is_scaled:
        message = "the natural gradient and scale_to are for RBMs, not a dbm"
        yield Conflict("gradient", message)
    if gradient.kind == "standard" and scheme.has_offsets:
        yield _other_scheme(s, "0")
    if gradient.kind == "enhanced":
        moves = scheme.sliding or not scheme.before
        if set(scheme.letters) != {"a"} or moves:
            yield _other_scheme(s, "a")
        if s.offsets_from != "same":
            message = (
                "the enhanced gradient takes its offsets from the means of the "
                f"gradient, not {s.offsets_from}; write gradient: centered"
            )
            yield Conflict("offsets_from", message)
    if (s.weight_decay.l1 or s.weight_decay.l2) and is_scaled:
        message = (
            "a natural or rescaled gradient would change the share of the weights "
            "that decays; remove it"
        )
        yield Conflict("weight_decay", message)
    if gradient.scale_to == "centered" and not scheme.has_offsets:
        message = (
            f"{s.offsets} has no offsets, and its centered gradient is standard; "
            "write scale_to: standard"
        )
        yield Conflict("gradient", message)


def _other_scheme(s: Any, letter: str) -> Conflict:
    """Return what is wrong with a gradient that is that of one scheme only."""
    kind, scheme = s.gradient.kind, Scheme(letter * s.model.layers)
    message = f"the {kind} gradient is that of {scheme}, not of {s.offsets}"
    return Conflict("gradient", f"{message}; write gradient: centered")


def _of_evaluation(s: Any) -> Iterator[Conflict]:
    kind, method, metric = s.model.kind, s.evaluation, s.early_stopping.metric
    methods = {
        "rbm": ("none", "exact", "ais", "pseudo"),
        "dbm": ("none", "exact", "ais"),
        "auto-encoder": ("none", "cost"),
    }
    if method not in methods[kind]:
        remedy = f"write method: {' or '.join(methods[kind])}"
        message = f"method {method} is not for models of kind {kind}; {remedy}"
        yield Conflict("evaluate", message)
    watches_pseudo = metric == "pseudo-likelihood"
    if metric and (method == "none" or watches_pseudo != (method == "pseudo")):
        message = f"{metric} is not evaluated; the method of evaluate is {method}"
        yield Conflict("early_stopping.metric", message)
