"""How the settings of a cell must fit together; each check raises Misfit, naming the field to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cbm_cli.grid.offsets import Scheme
from cbm_cli.grid.samplers import Sampler
from cbm_cli.grid.values import Misfit

if TYPE_CHECKING:
    from cbm_cli.grid.settings import Settings

# Where other kinds of machines must leave a field as it is by default: kinds, and what to call them.
_MEANT_FOR = {
    "data_phase": (("dbm",), "the mean field of DBMs; the hidden means of others are exact"),
    "mean_field": (("dbm",), "the mean field of DBMs; the hidden means of others are exact"),
    "pretraining": (("dbm",), "the layers of DBMs; there is nothing to pre-train in one layer"),
    "early_stopping": (("auto-encoder",), "auto encoders; other machines have no cost to watch"),
    "gradient_from": (("rbm",), "RBMs"),
    "offsets_from": (("rbm",), "RBMs"),
    "gradient": (("rbm", "dbm"), "Boltzmann machines; an auto encoder descends its cost"),
    "sampler": (("rbm", "dbm"), "Boltzmann machines; an auto encoder learns by back-propagation"),
    "record": (("rbm",), "RBMs"),
    "ladders": (("rbm", "dbm"), "Boltzmann machines; an auto encoder learns by back-propagation"),
    "chains": (("rbm", "dbm"), "Boltzmann machines; an auto encoder learns by back-propagation"),
    "swaps": (("rbm", "dbm"), "Boltzmann machines; an auto encoder learns by back-propagation"),
}


def check_fit(settings: Settings) -> None:
    """Raise Misfit, or ValueError where no field is to blame, for settings that do not go together."""
    _check_kind(settings)
    _check_scheme(settings)
    if (settings.updates is None) == (settings.epochs is None):
        raise ValueError("give the length of training as either updates or epochs")
    _check_sampler(settings)
    _check_ladders(settings)
    _check_batches(settings)
    _check_gradient(settings)
    _check_sources(settings)
    _check_start(settings)
    _check_evaluation(settings)


def _check_kind(settings: Settings) -> None:
    kind = settings.model.kind
    for field, (kinds, meant) in _MEANT_FOR.items():
        if kind not in kinds and getattr(settings, field) != type(settings).default_of(field):
            raise Misfit(field, f"{field} is for {meant}; the model is of kind {kind}")


def _check_scheme(settings: Settings) -> None:
    model, letters = settings.model, Scheme.parse(settings.offsets).letters
    if len(letters) != model.layers:
        raise Misfit(
            "offsets",
            f"offset scheme {settings.offsets} has {len(letters)} letter{'s' * (len(letters) > 1)}; "
            f"{_a(model.kind)} of {model.layers} layers needs {model.layers}",
        )
    if settings.sliding_factor.visible == 0 and "_s" in settings.offsets and letters[0] != "d":
        raise Misfit(
            "sliding_factor",
            f"visible: 0 keeps visible offsets of the letter d at the data mean; in {settings.offsets} they "
            f"have the letter {letters[0]}: give more than 0",
        )
    if model.kind == "auto-encoder" and set(letters) & set("ma"):
        raise Misfit(
            "offsets",
            f"offset scheme {settings.offsets} takes the model mean (m, a), which an auto encoder has not; "
            "write 0, d, h or r",
        )


def _check_sampler(settings: Settings) -> None:
    if settings.model.kind != "auto-encoder" and settings.sampler is None:
        raise Misfit("sampler", "is missing")
    sampler = settings.parsed_sampler
    if settings.model.kind == "dbm" and sampler.fast:
        raise Misfit("sampler", f"{settings.sampler} is for RBMs; for a dbm write PCD-k, CD-k or PT_c")
    if settings.fast_learning_rate and not sampler.fast:
        raise Misfit(
            "fast_learning_rate",
            f"fast_learning_rate is for FPCD-k; the sampler is {settings.sampler_name}",
        )
    if settings.fast_decay != type(settings).default_of("fast_decay") and not sampler.fast:
        raise Misfit("fast_decay", f"fast_decay is for FPCD-k; the sampler is {settings.sampler_name}")
    if settings.chains and (sampler.restart or sampler.exact or sampler.temperatures > 1):
        remedy = "; for PT_c write ladders" if sampler.temperatures > 1 else ""
        raise Misfit("chains", f"chains are for PCD-k and FPCD-k; the sampler is {settings.sampler}{remedy}")
    if settings.swaps != "alternate" and sampler.temperatures == 1:
        raise Misfit(
            "swaps", f"swaps are for parallel tempering; {settings.sampler_name} has one temperature"
        )


def _check_ladders(settings: Settings) -> None:
    if settings.ladders == 1:
        return
    sampler = settings.parsed_sampler
    pretraining = Sampler.parse(settings.pretraining.sampler or settings.sampler)
    if sampler.temperatures == pretraining.temperatures == 1:
        raise Misfit("ladders", f"ladders are for parallel tempering; {settings.sampler} has one temperature")
    for batch in (settings.batch, settings.pretraining.batch or settings.batch):
        if batch != "full" and batch % settings.ladders:
            raise Misfit("ladders", f"must divide the batch; {batch} is no multiple of {settings.ladders}")


def _check_batches(settings: Settings) -> None:
    batches = {settings.batch, settings.pretraining.batch or settings.batch}
    if not settings.shuffle and batches == {"full"}:
        raise Misfit("shuffle", "shuffle is for mini-batches; a full batch has all rows in every update")


def _check_gradient(settings: Settings) -> None:
    gradient, letters = settings.gradient, set(Scheme.parse(settings.offsets).letters)
    if settings.model.kind == "dbm" and (gradient.kind == "natural" or gradient.scale_to != "none"):
        raise Misfit("gradient", "the natural gradient and scale_to are for RBMs; the model is of kind dbm")
    for kind, letter, meaning in (("standard", "0", "without offsets"), ("enhanced", "a", "centered by a")):
        if gradient.kind == kind and letters != {letter}:
            remedy = f"write offsets: {letter * settings.model.layers}, or gradient: centered"
            raise Misfit(
                "gradient", f"the {kind} gradient is the one {meaning}, not {settings.offsets}; {remedy}"
            )
    if gradient.estimate == "samples" and (
        settings.parsed_sampler.exact or settings.gradient_from == "exact"
    ):
        raise Misfit(
            "gradient",
            "estimate: samples takes the Fisher matrix of the model phase's samples, and an exact phase has "
            "none; write estimate: exact",
        )
    if gradient.scale_to == "centered" and letters == {"0"}:
        raise Misfit(
            "gradient",
            f"scale_to: centered needs offsets; without any, as in {settings.offsets}, the centered gradient "
            "is the standard one: write scale_to: standard",
        )


def _check_sources(settings: Settings) -> None:
    if settings.offsets_from == "random" and set(Scheme.parse(settings.offsets).letters) == {"0"}:
        raise Misfit(
            "offsets_from", f"the offsets of {settings.offsets} stay at zero; leave offsets_from out"
        )


def _check_start(settings: Settings) -> None:
    start = settings.start_from
    if (start.path or start.experiment) and settings.pretraining.epochs:
        raise Misfit("pretraining", "the layers are those of start_from; leave out pretraining or start_from")


def _check_evaluation(settings: Settings) -> None:
    kind, method = settings.model.kind, settings.evaluate.method
    if kind == "auto-encoder" and method in ("exact", "ais"):
        raise Misfit(
            "evaluate",
            f"method {method} estimates a likelihood, and an auto encoder has no normalised likelihood; "
            "it is judged by its cost: write method: cost",
        )
    if kind != "auto-encoder" and method == "cost":
        raise Misfit(
            "evaluate", f"method cost is for auto encoders; {_a(kind)} has a likelihood: exact or ais"
        )


def _a(kind: str) -> str:
    return f"{'a' if kind == 'dbm' else 'an'} {kind}"
