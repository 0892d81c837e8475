"""From a trial's settings and data to the numbers that the kernels work on, for machines of every kind."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from cbm_cli.datasets import Dataset
from cbm_cli.grid.names import LETTERS, Scheme
from cbm_cli.grid.settings import Settings
from cbm_cli.kernels import plan as codes
from cbm_cli.kernels.machine import Layout, Machine, State, machine_of, pairs_of
from cbm_cli.kernels.plan import OffsetPlan, Plan
from cbm_cli.machines import streams
from cbm_cli.machines.files import Layered

_SOURCES = {"independent": codes.INDEPENDENT, "exact": codes.ALL_STATES}
_ACTIVATIONS = {"sigmoid": codes.SIGMOID, "tanh": codes.TANH, "relu": codes.RELU, "linear": codes.LINEAR}
_INVERSES = {
    "sigmoid": lambda mean: np.log(mean / (1 - mean)),
    "tanh": np.arctanh,
    "relu": lambda mean: mean,
    "linear": lambda mean: mean,
}


def layout_of(settings: Settings, data: Dataset) -> Layout:
    """The layers of a machine on this data."""
    return Layout((data.width, *settings.model.hidden_layers(data.width)))


def batch_rows(settings: Settings, data: Dataset) -> int:
    """Rows of a batch."""
    return len(data.train) if settings.batch == "full" else settings.batch


def total_updates(settings: Settings, data: Dataset) -> int:
    """Updates of the whole training; the last incomplete batch of an epoch is dropped."""
    return settings.updates or updates_of(f"{settings.epochs} epochs", settings, data)


def updates_of(interval: str, settings: Settings, data: Dataset) -> int:
    """Updates in an interval such as ``50 updates`` or ``1 epoch``."""
    number, unit = interval.split()
    return int(number) * (len(data.train) // batch_rows(settings, data) if unit.startswith("epoch") else 1)


# The plan


def make_plan(settings: Settings, data: Dataset, seed: int) -> Plan:
    """Put the settings into the numbers of a Plan; the seed is the key of every random number."""
    sampler, layout, batch = settings.parsed_sampler, layout_of(settings, data), batch_rows(settings, data)
    total = total_updates(settings, data)
    pieces = settings.learning_rate.pieces(lambda text: updates_of(text, settings, data), total)
    firsts, rates = zip(*pieces, strict=True)
    tempered, decay, model = sampler.temperatures > 1, settings.weight_decay, settings.model
    samples = (settings.chains or 0) if not tempered else 0
    return Plan(
        seed=np.uint64(seed),
        batch=batch,
        offsets=_offset_plan(settings, layout.sizes),
        spans=layout.spans(),
        visible=data.width,
        rates=np.array(rates, np.float32),
        rate_from=np.array(firsts, np.int64),
        momentum=np.float32(settings.momentum),
        l1=np.float32(decay.l1),
        l2=np.float32(decay.l2),
        offsets_from=_SOURCES.get(settings.offsets_from, codes.SAME),
        batches=len(data.train) // batch,
        shuffled=settings.shuffle and settings.batch != "full",
        unit=np.float32(1 / data.levels),
        samples=samples or batch,
        ladders=settings.ladders if tempered else samples or batch,
        temperatures=sampler.temperatures,
        steps=sampler.steps,
        swap_both=settings.swaps == "both",
        restart=sampler.restart,
        exact=sampler.exact or settings.gradient_from == "exact",
        fast_rate=np.float32(settings.fast_rate),
        fast_decay=np.float32(settings.fast_decay),
        tolerance=np.float32(settings.mean_field.tolerance),
        rounds=settings.mean_field.rounds,
        gibbs=int(settings.data_phase.removeprefix("gibbs-")) if "gibbs" in settings.data_phase else 0,
        encoder=_ACTIVATIONS[model.encoder],
        decoder=_ACTIVATIONS[model.decoder],
        squared=model.loss == "squared",
    )


def _offset_plan(settings: Settings, sizes: Sequence[int]) -> OffsetPlan:
    """What the offset of every unit is made of, and how fast it follows."""
    scheme, sliding = Scheme.parse(settings.offsets), settings.sliding_factor
    mixes, factors = [], []
    for layer, (letter, size) in enumerate(zip(scheme.letters, sizes, strict=True)):
        noisy = settings.offsets_from == "random" and letter != "0"
        data, model, half, noise = LETTERS["r" if noisy else letter]
        mixes.append(np.tile(np.array([[data], [model], [half / 2], [noise]], np.float32), (1, size)))
        factor = (sliding.hidden if layer else sliding.visible) if scheme.sliding else 1
        factors.append(np.full(size, factor, np.float32))
    kind = settings.model.kind
    mu_mix, lam_mix = _sides(mixes, mixes, kind)
    noisy = bool(mu_mix[3].any() or lam_mix[3].any())
    return OffsetPlan(mu_mix, lam_mix, *_sides(factors, factors, kind), scheme.before, noisy)


def _sides(lower: Sequence[NDArray], upper: Sequence[NDArray], kind: str) -> tuple[NDArray, NDArray]:
    """What x and h hold, from an array (..., n_l) per layer, where layers are at the bottom or top of a pair.

    Even and odd layers of a Boltzmann machine; all layers but the last, and all but the first, of an auto
    encoder, whose inner layers are on both sides.
    """
    chosen = (lower[:-1], upper[1:]) if kind == "auto-encoder" else (lower[0::2], upper[1::2])
    return tuple(np.concatenate(layers, axis=-1) for layers in chosen)


# The start


def first_machine(settings: Settings, data: Dataset, seed: int) -> Layered:
    """The machine before the first update, without offsets in its biases.

    W ~ N(0, weight_scale^2) between neighbouring layers, from the seed alone: trial k starts from the same
    weights in every cell of an experiment. The visible biases are the inverse activation of the data mean
    clipped to [0.001, 0.999], or zero; all other biases are 0. Offsets start at the data mean and, for hidden
    units, at their activation of 0; at 0 for the letter 0, and at 1/2 for h and r.
    """
    sizes, model = layout_of(settings, data).sizes, settings.model
    normal = streams.generator(seed, streams.START).standard_normal
    weights = [settings.weight_scale * normal(pair) for pair in pairwise(sizes)]
    mean = data.train.mean(axis=0, dtype=np.float64) / data.levels
    biases = [np.zeros(size) for size in sizes]
    if settings.init == "inverse-sigmoid":
        biases[0] = _INVERSES[model.decoder](np.clip(mean, 0.001, 0.999))
    letters = Scheme.parse(settings.offsets).letters
    offsets, of_decoder = (
        [np.full(size, _first_offset(letter, function)) for letter, size in zip(letters, sizes, strict=True)]
        for function in (model.encoder, model.decoder)
    )
    if letters[0] in "dma":
        offsets[0] = mean
    machine = Layered(model.kind, tuple(weights), tuple(biases), tuple(offsets))
    if model.kind != "auto-encoder":
        return machine
    return machine._replace(
        decoder_biases=tuple(biases[1:-1]),
        decoder_offsets=tuple(of_decoder[1:-1]),
        encoder=model.encoder,
        decoder=model.decoder,
        loss=model.loss,
    )


def _first_offset(letter: str, activation: str) -> float:
    return {"0": 0.0, "h": 0.5, "r": 0.5}.get(letter, 0.5 if activation == "sigmoid" else 0.0)


def state_of(machine: Layered, settings: Settings, plan: Plan, seed: int) -> State:
    """The state around a machine, with fresh chains at random states."""
    kind, layout = machine.kind, Layout(machine.sizes)
    decoded = [*machine.biases[:1], *machine.decoder_biases, machine.biases[-1]]
    given = [*machine.offsets[:1], *machine.decoder_offsets, machine.offsets[-1]]
    if kind == "auto-encoder":
        W = np.concatenate([block.ravel() for block in machine.weights])
        b, c = _sides(decoded, machine.biases, kind)
        mu, lam = _sides(machine.offsets, given, kind)
    else:
        W = layout.flat_weights(machine.weights)
        (b, c), (mu, lam) = (_sides(layers, layers, kind) for layers in (machine.biases, machine.offsets))
    chains = streams.generator(seed, streams.CHAINS)
    rows, m = 0 if kind == "auto-encoder" else plan.chains * plan.temperatures, len(c)
    aside = rows if plan.offsets_from == codes.INDEPENDENT else 0
    parameters, none = (W, b, c), (np.zeros((0, 0)), np.zeros(0), np.zeros(0))
    arrays = State(
        *(W, b, c, mu, lam),
        *(chains.random((count, m)) < 0.5 for count in (rows, aside)),
        *(map(np.zeros_like, parameters) if plan.fast_rate > 0 else none),
        *(map(np.zeros_like, parameters) if plan.momentum > 0 else none),
        np.zeros(3),
    )
    return State(*(array.astype(np.float32) for array in arrays))


def machine_at(state: State, settings: Settings, sizes: Sequence[int]) -> Layered:
    """The machine that a state holds; the inverse of `state_of`."""
    model, machine = settings.model, machine_of(state)
    if model.kind == "auto-encoder":
        pairs: tuple[Machine, ...] = pairs_of(machine, sizes)
        return Layered(
            model.kind,
            tuple(pair.W for pair in pairs),
            (pairs[0].b, *(pair.c for pair in pairs)),
            (*(pair.mu for pair in pairs), pairs[-1].lam),
            tuple(pair.b for pair in pairs[1:]),
            tuple(pair.lam for pair in pairs[:-1]),
            model.encoder,
            model.decoder,
            model.loss,
        )
    layout = Layout(tuple(sizes))
    biases, offsets = layout.layers(machine.b, machine.c), layout.layers(machine.mu, machine.lam)
    return Layered(model.kind, *map(tuple, (layout.weights(machine.W), biases, offsets)))
