"""From a trial's settings and data to the numbers that the kernels work on."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from cbm_cli.datasets import Dataset
from cbm_cli.grid.offsets import LETTERS, Scheme
from cbm_cli.grid.settings import Settings
from cbm_cli.kernels import state as codes
from cbm_cli.kernels.layout import Layout
from cbm_cli.kernels.state import Array, Plan, State

_DIRECTIONS = {"joint": codes.JOINT, "marginal": codes.MARGINAL, "diagonal": codes.DIAGONAL}
_SCALES = {"none": codes.UNSCALED, "standard": codes.TO_STANDARD, "centered": codes.TO_CENTERED}
_SOURCES = {"independent": codes.INDEPENDENT, "exact": codes.ALL_STATES}


def layout_of(settings: Settings, data: Dataset) -> Layout:
    """The layers of a machine on this data."""
    return Layout((data.width, *settings.model.hidden_layers(data.width)))


def batch_rows(settings: Settings, data: Dataset) -> int:
    """Rows of a batch."""
    return len(data.train) if settings.batch == "full" else settings.batch


def total_updates(settings: Settings, data: Dataset) -> int:
    """Updates of the whole training; the last incomplete batch of an epoch is dropped."""
    return settings.updates or settings.epochs * (len(data.train) // batch_rows(settings, data))


def updates_of(interval: str, settings: Settings, data: Dataset) -> int:
    """Updates in an interval such as ``50 updates`` or ``1 epoch``."""
    number, unit = interval.split()
    return int(number) * (len(data.train) // batch_rows(settings, data) if unit.startswith("epoch") else 1)


def make_plan(settings: Settings, data: Dataset, seed: int) -> Plan:
    """Put the settings into the numbers of a Plan; the seed is the key of every random number."""
    scheme, sampler, layout = (
        Scheme.parse(settings.offsets),
        settings.parsed_sampler,
        layout_of(settings, data),
    )
    batch, sliding, gradient = batch_rows(settings, data), settings.sliding_factor, settings.gradient
    mixes = [_mix(letter, size, settings) for letter, size in zip(scheme.letters, layout.sizes, strict=True)]
    return Plan(
        seed=np.uint64(seed),
        learning_rate=np.float32(settings.learning_rate.start),
        visible_mix=layout.side(mixes, odd=False),
        hidden_mix=layout.side(mixes, odd=True),
        sliding_visible=np.float32(sliding.visible if scheme.sliding else 1),
        sliding_hidden=np.float32(sliding.hidden if scheme.sliding else 1),
        offsets_before=scheme.before,
        offsets_from=_SOURCES.get(settings.offsets_from, codes.SAME),
        batch=batch,
        batches=len(data.train) // batch,
        shuffled=settings.batch != "full",
        unit=np.float32(1 / data.levels),
        ladders=settings.ladders if sampler.temperatures > 1 else batch,
        temperatures=sampler.temperatures,
        steps=sampler.steps,
        restart=sampler.restart,
        exact=sampler.exact or settings.gradient_from == "exact",
        fast_learning_rate=np.float32(settings.fast_rate),
        fast_decay=np.float32(settings.fast_decay),
        to_hidden=np.float32(1),
        to_visible=np.float32(1),
        visible=data.width,
        spans=layout.spans(),
        tolerance=np.float32(settings.mean_field.tolerance),
        rounds=settings.mean_field.rounds,
        gibbs=int(settings.data_phase.removeprefix("gibbs-")) if "gibbs" in settings.data_phase else 0,
        direction=_DIRECTIONS[gradient.fisher] if gradient.kind == "natural" else codes.CENTERED,
        sampled_fisher=gradient.estimate == "samples",
        damping=np.float32(gradient.added_damping),
        iterations=gradient.iterations,
        scale_to=_SCALES[gradient.scale_to],
    )


def _mix(letter: str, units: int, settings: Settings) -> Array:
    """What the offsets of a layer are made of, (4, units)."""
    data, model, half, noise = LETTERS["r" if settings.offsets_from == "random" and letter != "0" else letter]
    return np.tile(np.array([[data], [model], [half / 2], [noise]], np.float32), (1, units))


def initial_state(settings: Settings, data: Dataset, plan: Plan, seed: int) -> State:
    """The machine, offsets and chains before the first update.

    W ~ N(0, weight_scale^2) between neighbouring layers; b is the inverse sigmoid of the data mean clipped
    to [0.001, 0.999], or zero; all other biases are 0. Offsets start at the data mean and 1/2 (0 for the
    letter 0, 1/2 for h and r), chains at uniformly random states. Weights and chains depend on the seed
    alone: trial k starts from the same weights in every cell of an experiment.
    """
    layout = layout_of(settings, data)
    sizes = layout.sizes
    weights = np.random.Generator(np.random.Philox(key=[seed, 1]))
    blocks = [settings.weight_scale * weights.standard_normal(pair) for pair in pairwise(sizes)]
    mean = data.train.mean(axis=0, dtype=np.float64) / data.levels
    clipped = np.clip(mean, 0.001, 0.999)
    bias = np.log(clipped / (1 - clipped)) if settings.init == "inverse-sigmoid" else np.zeros(sizes[0])
    biases = [bias, *map(np.zeros, sizes[1:])]
    letters = Scheme.parse(settings.offsets).letters
    offsets = [
        np.full(size, 0.0 if letter == "0" else 0.5) for letter, size in zip(letters, sizes, strict=True)
    ]
    if letters[0] in "dma":
        offsets[0] = mean
    return make_state(settings, plan, layout, (blocks, biases, offsets), seed)


def make_state(
    settings: Settings,
    plan: Plan,
    layout: Layout,
    machine: tuple[Sequence[np.ndarray], Sequence[np.ndarray], Sequence[np.ndarray]],
    seed: int,
) -> State:
    """A state with fresh chains around the weights, plain biases and offsets of every layer."""
    blocks, biases, offsets = machine
    n, m = layout.width, layout.height
    chains = np.random.Generator(np.random.Philox(key=[seed, 2]))
    rows = plan.ladders * plan.temperatures
    swift = 1 if settings.fast_rate else 0
    arrays = State(
        W=layout.flat_weights(blocks),
        b=layout.side(biases, odd=False),
        c=layout.side(biases, odd=True),
        mu=layout.side(offsets, odd=False),
        lam=layout.side(offsets, odd=True),
        h=chains.random((rows, m)) < 0.5,
        aside_h=chains.random((rows if plan.offsets_from == codes.INDEPENDENT else 0, m)) < 0.5,
        fast_W=np.zeros((swift * n, swift * m)),
        fast_b=np.zeros(swift * n),
        fast_c=np.zeros(swift * m),
        rounds=np.zeros(3),
    )
    return State(*(array.astype(np.float32) for array in arrays))


def machine_arrays(state: State, layout: Layout, kind: str = "rbm") -> dict[str, np.ndarray]:
    """The machine in the documented form of machine files: centered parameters and their offsets.

    Biases are stored in float64 as those of the centered energy, Eqs. (transform_b), (transform_c), so that
    reading the file back gives the plain machine to the last bit.
    """
    W, b, c, mu, lam = (np.asarray(array, dtype=np.float64) for array in state[:5])
    arrays = {"kind": np.array(kind)}
    arrays |= {f"weights_{k}": block.copy() for k, block in enumerate(layout.weights(state.W))}
    arrays |= {f"biases_{k}": bias for k, bias in enumerate(layout.layers(b + W @ lam, c + W.T @ mu))}
    return arrays | {
        f"offsets_{k}": offset.copy() for k, offset in enumerate(layout.layers(state.mu, state.lam))
    }
