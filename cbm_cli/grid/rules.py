"""What fits together: which fields change nothing in a cell, and which contradict each
other.

Rules read the fields of a `Settings`, whose module imports this one.
"""

from collections.abc import Iterator
from typing import Any

from cbm_cli.grid.names import Scheme
from cbm_cli.text import count


def needs(s: Any) -> Iterator[tuple[object, str, str]]:
    """Yield what fields are for: whether the settings have it, the fields, dotted where
    nested, its name.
    """
    kind, sampler, layers, start = (
        s.model.kind,
        s.parsed_sampler,
        s.pretraining,
        s.start_from,
    )
    coder, visible, hidden = (
        kind == "auto-encoder",
        s.scheme.letters[:1],
        s.scheme.letters[1:],
    )
    yield not coder, "sampler chains gradient early_stopping.metric", "an rbm or a dbm"
    yield kind == "dbm", "pretraining", "a dbm"
    yield kind == "rbm", "gradient_from offsets_from record", "an rbm"
    yield (
        coder or s.early_stopping.metric,
        "early_stopping",
        "an auto-encoder, or a metric to watch",
    )
    other = sampler.temperatures > 1 or sampler.restart or sampler.exact
    yield not other, "chains", "PCD-k"
    yield not sampler.exact, "gradient_from", "samplers that are not exact already"
    yield {*visible, *hidden} != {"0"}, "offsets_from", "offsets other than 0"
    fresh = not (start.path or start.experiment) and s.offsets_from != "random"
    still = {"0", "h"} if fresh else {"0"}  # pre-trained layers may have other offsets
    for side, letters in (("visible", visible), ("hidden", hidden)):
        moving = s.scheme.sliding and (layers.epochs or {*letters} - still)
        yield (
            moving,
            f"sliding_factor.{side}",
            f"{side} offsets that move with _s, as in dd^b_s",
        )
    yield (
        s.gradient.kind == "natural",
        "gradient.fisher gradient.damping",
        "kind: natural",
    )
    yield (
        s.record.what,
        "record.every record.window",
        "something to record, as in what: weight_norms",
    )
    yield (
        layers.epochs,
        "pretraining.learning_rate pretraining.doubling",
        "epochs of pre-training",
    )
    yield start.experiment, "start_from.machine", "the start from an experiment"
    yield not start.path, "init weight_scale", f"fresh machines, not for {start.path}"
    yield (
        s.batch != "full",
        "shuffle",
        "mini-batches; a full batch has all rows in every update",
    )
    yield (
        s.evaluation == "ais",
        "evaluate.temperatures evaluate.runs",
        f"method: ais, not {s.evaluation}",
    )
    yield s.evaluation != "none", "evaluate.rows", "evaluations, not for method: none"


Conflict = tuple[object, str, str]  # whether it is so, the field, its words


def of_machine(s: Any) -> Iterator[Conflict]:
    """Yield what would be wrong with lengths, layers, offsets, samplers and starts."""
    model, rate, layers, start = s.model, s.learning_rate, s.pretraining, s.start_from
    kind, sampler, letters = model.kind, s.parsed_sampler, s.scheme.letters
    coder, dbm = kind == "auto-encoder", kind == "dbm"
    told = "give the length of training as either updates or epochs"
    yield s.updates is s.epochs is None, "", told
    yield s.updates and s.epochs, "", told
    told = f"half is for auto encoders; give the {kind} a number of units"
    yield model.hidden == "half" and not coder, "model.hidden", told
    told = f"an rbm has one hidden layer, not {model.hidden}; a dbm has several"
    yield kind == "rbm" and model.layers > 2, "model.hidden", told
    told = (
        f"a dbm has several hidden layers; write kind: rbm, or [{model.hidden}, "
        f"{model.hidden}]"
    )
    yield dbm and model.layers == 2, "model.hidden", told
    yield (
        rate.decay and not rate.every,
        "learning_rate.decay",
        "also needs every: 10 epochs",
    )
    yield rate.every and not rate.decay, "learning_rate.every", "also needs decay: 0.9"
    told = "a rate decays or changes in steps; give decay and every, or steps"
    yield rate.steps and rate.decay, "learning_rate.steps", told
    told = (
        f"offset scheme {s.offsets} has {count(len(letters), 'letter')}; this "
        f"{kind} needs {model.layers}"
    )
    quoted = '; in JSON write "00" in quotes' if s.offsets == "0" else ""
    yield len(letters) != model.layers, "offsets", told + quoted
    told = (
        f"auto encoders have no model mean (m, a), as in {s.offsets}; write 0, d, "
        "h or r"
    )
    yield coder and {*letters} & {*"ma"}, "offsets", told
    fixed = s.sliding_factor.visible == 0 and s.scheme.sliding and letters[0] != "d"
    told = (
        f"0 keeps visible offsets of the letter d at the data mean; {s.offsets} "
        f"has {letters[0]}"
    )
    yield fixed, "sliding_factor.visible", told
    yield not coder and s.sampler is None, "sampler", "is missing"
    told = (
        "layers are pre-trained with CD-k or PCD-k, which double activations; "
        f"{s.sampler} cannot"
    )
    tempered = sampler.temperatures > 1 or sampler.exact
    yield layers.epochs and tempered, "pretraining", told
    told = "the layers are those of start_from; remove pretraining or start_from"
    yield layers.epochs and (start.path or start.experiment), "pretraining", told
    told = "trials start from files or from an experiment; give path or experiment"
    yield start.path and start.experiment, "start_from.path", told


def of_gradient(s: Any) -> Iterator[Conflict]:
    """Yield what would be wrong with the gradient."""
    model, gradient, letters = s.model, s.gradient, s.scheme.letters
    scaled = gradient.kind == "natural" or gradient.scale_to != "none"
    told = "the natural gradient and scale_to are for RBMs, not a dbm"
    yield model.kind == "dbm" and scaled, "gradient", told
    for name, letter in (("standard", "0"), ("enhanced", "a")):
        scheme = Scheme(letter * model.layers)
        moves = name == "enhanced" and (s.scheme.sliding or not s.scheme.before)
        told = (
            f"the {name} gradient is that of {scheme}, not of {s.offsets}; write "
            "gradient: centered"
        )
        other = letters != scheme.letters or moves
        yield gradient.kind == name and other, "gradient", told
    told = (
        "a natural or rescaled gradient would change the share of the weights that "
        "decays; remove it"
    )
    decays = s.weight_decay.l1 or s.weight_decay.l2
    yield decays and scaled, "weight_decay", told
    told = (
        f"{s.offsets} has no offsets, and its centered gradient is standard; write "
        "scale_to: standard"
    )
    yield gradient.scale_to == "centered" and {*letters} == {"0"}, "gradient", told


def of_evaluation(s: Any) -> Iterator[Conflict]:
    """Yield what would be wrong with evaluations and what rests on them."""
    kind, method, metric = s.model.kind, s.evaluate.method, s.early_stopping.metric
    coder = kind == "auto-encoder"
    told = (
        f"an auto encoder has no likelihood, which {method} is about; write "
        "method: cost"
    )
    yield coder and method in ("exact", "ais"), "evaluate", told
    watched = s.evaluation != "none" and (metric == "pseudo-likelihood") == (
        s.evaluation == "pseudo"
    )
    told = f"{metric} is not evaluated; the method of evaluate is {s.evaluation}"
    yield metric and not watched, "early_stopping.metric", told
    told = f"method pseudo is for RBMs; the model is of kind {kind}"
    yield kind != "rbm" and method == "pseudo", "evaluate", told
    told = f"method cost is for auto encoders; write exact or ais for the {kind}"
    yield not coder and method == "cost", "evaluate", told
