"""Turn settings and data of a trial into the plan and the state that the kernels work
on.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.grid.names import Scheme
from cbm_cli.grid.settings import Settings, SlidingFactor
from cbm_cli.kernels import plan as codes
from cbm_cli.kernels.machine import Layout, State, aligned, pairs_of
from cbm_cli.kernels.plan import OffsetPlan, Plan
from cbm_cli.letters import LETTERS
from cbm_cli.machines import streams
from cbm_cli.machines.models import Layered, kernel_arrays, sides_of
from cbm_cli.reference import inverse_sigmoid

_SOURCES = {"independent": codes.INDEPENDENT, "exact": codes.ALL_STATES}


def layout_of(settings: Settings, data: Dataset) -> Layout:
    """The layers of a machine on this data."""
    return Layout((data.width, *settings.model.hidden_layers(data.width)))


def batch_rows(settings: Settings, data: Dataset) -> int:
    """Rows of a batch."""
    return len(data.train) if settings.batch == "full" else settings.batch


def total_updates(settings: Settings, data: Dataset) -> int:
    """Updates of the whole training; the last incomplete batch of an epoch is
    dropped.
    """
    return settings.updates or updates_of(f"{settings.epochs} epochs", settings, data)


def updates_of(interval: str, settings: Settings, data: Dataset) -> int:
    """Updates in an interval such as ``50 updates`` or ``1 epoch``."""
    number, unit = interval.split()
    return int(number) * (
        len(data.train) // batch_rows(settings, data) if unit.startswith("epoch") else 1
    )


# The plan


def make_plan(settings: Settings, data: Dataset, seed: int) -> Plan:
    """Turn the settings into the numbers of a Plan; the seed is the key of every random
    number.
    """
    sampler, layout, batch = (
        settings.parsed_sampler,
        layout_of(settings, data),
        batch_rows(settings, data),
    )
    total, kind, origin = (
        total_updates(settings, data),
        settings.model.kind,
        settings.offsets_from,
    )
    pieces = settings.learning_rate.pieces(
        lambda text: updates_of(text, settings, data), total
    )
    firsts, rates = zip(*pieces, strict=True)
    decay = settings.weight_decay
    return Plan(
        seed=np.uint64(seed),
        batch=batch,
        rows=settings.chains or batch,
        offsets=_offset_plan(
            settings.scheme, origin, settings.sliding_factor, kind, layout.sizes
        ),
        spans=layout.spans(),
        visible=data.width,
        rates=np.array(rates, np.float32),
        rate_from=np.array(firsts, np.int64),
        momentum=np.float32(settings.momentum),
        l1=np.float32(decay.l1),
        l2=np.float32(decay.l2),
        offsets_from=_SOURCES.get(origin, codes.SAME),
        batches=len(data.train) // batch,
        shuffled=settings.shuffle and settings.batch != "full",
        unit=np.float32(1 / data.levels),
        temperatures=sampler.temperatures,
        steps=sampler.steps,
        restart=sampler.restart,
        exact=sampler.exact or settings.gradient_from == "exact",
    )


@lru_cache
def _offset_plan(
    scheme: Scheme,
    origin: str,
    sliding: SlidingFactor,
    kind: str,
    sizes: tuple[int, ...],
) -> OffsetPlan:
    """Shares and sliding factor of the offset of every unit, which most trials of a run
    have in common.
    """
    mixes, factors = [], []
    for layer, (row, size) in enumerate(zip(scheme.rows, sizes, strict=True)):
        if origin == "random" and not row.is_none:
            row = LETTERS["r"]
        shares = np.array(row.shares, np.float32)
        mixes.append(np.tile(shares[:, None], (1, size)))
        factor = (sliding.hidden if layer else sliding.visible) if scheme.sliding else 1
        factors.append(np.full(size, factor, np.float32))
    mu_mix, lam_mix = sides_of(mixes, mixes, kind)
    noisy = bool(mu_mix[3].any() or lam_mix[3].any())
    return OffsetPlan(
        mu_mix, lam_mix, *sides_of(factors, factors, kind), scheme.before, noisy
    )


# The start


def first_machine(settings: Settings, data: Dataset, seed: int) -> Layered:
    """The machine before the first update, with plain biases.

    W ~ N(0, weight_scale^2) between neighbouring layers, from the seed alone: trial k
    starts from the same weights in every cell of an experiment. The visible biases are
    the inverse sigmoid of the data mean, clipped to [0.001, 0.999], Eq. (17), or zero;
    all other biases are 0. Visible offsets with a share of a mean start at the data
    mean, constant ones at their constant, and all others at 1/2.
    """
    sizes, model = layout_of(settings, data).sizes, settings.model
    normal = streams.generator(seed, streams.START).standard_normal
    weights = [settings.weight_scale * normal(pair) for pair in pairwise(sizes)]
    mean = data.train.mean(axis=0, dtype=np.float64) / data.levels
    biases = [np.zeros(size) for size in sizes]
    if settings.init == "inverse-sigmoid":
        biases[0] = inverse_sigmoid(np.clip(mean, 0.001, 0.999))
    rows = settings.scheme.rows
    offsets = [np.full(size, row.start) for row, size in zip(rows, sizes, strict=True)]
    if rows[0].starts_at_mean:
        offsets[0] = mean
    machine = Layered(model.kind, tuple(weights), tuple(biases), tuple(offsets))
    if model.kind != "auto-encoder":
        return machine
    return machine._replace(
        decoder_biases=tuple(biases[1:-1]), decoder_offsets=tuple(offsets[1:-1])
    )


def state_of(machine: Layered, plan: Plan, seed: int) -> State:
    """The state of a machine, with fresh chains at random states."""
    arrays, random = (
        kernel_arrays(machine),
        streams.generator(seed, streams.CHAINS).random,
    )
    shape = plan.temperatures if plan.temperatures > 1 else plan.rows, len(arrays.c)
    W, b, c, mu, lam = map(aligned, arrays)
    state = State(W, b, c, mu, lam, np.zeros(3, np.int64))
    if machine.kind != "auto-encoder":
        state = state._replace(h=aligned(random(shape) < 0.5))
    if plan.offsets_from == codes.INDEPENDENT:
        state = state._replace(aside_h=aligned(random(shape) < 0.5))
    if plan.momentum > 0:
        W, b, c = (aligned(np.zeros_like(array)) for array in (W, b, c))
        state = state._replace(velocity_W=W, velocity_b=b, velocity_c=c)
    return state


def machine_at(state: State, settings: Settings, sizes: Sequence[int]) -> Layered:
    """The machine of a state; the inverse of `state_of`."""
    kind, machine = settings.model.kind, state.machine
    if kind != "auto-encoder":
        layout = Layout(tuple(sizes))
        biases, offsets = (
            layout.layers(machine.b, machine.c),
            layout.layers(machine.mu, machine.lam),
        )
        return Layered(
            kind, tuple(layout.weights(machine.W)), tuple(biases), tuple(offsets)
        )
    pairs = pairs_of(machine, sizes)
    return Layered(
        kind,
        tuple(pair.W for pair in pairs),
        (pairs[0].b, *(pair.c for pair in pairs)),
        (*(pair.mu for pair in pairs), pairs[-1].lam),
        tuple(pair.b for pair in pairs[1:]),
        tuple(pair.lam for pair in pairs[:-1]),
    )


# A start from another machine


def start_from_machine(
    settings: Settings, data: Dataset, seed: int, machine: Layered
) -> State:
    """Return the state before the first update of a training that starts from a
    machine.

    Weights, plain biases and offsets are those of the machine, so that it is the same
    function under every scheme; offsets of the letter 0 are 0, and offsets of a fixed
    visible layer (``sliding_factor: {visible: 0}``) the data mean. Chains and
    everything else are new. Call `check_machine` first.
    """
    rows = settings.scheme.rows
    offsets = [
        offset * (not row.is_none)
        for offset, row in zip(machine.offsets, rows, strict=True)
    ]
    if not settings.sliding_factor.visible and rows[0].is_data_mean:
        offsets[0] = data.train.mean(axis=0, dtype=np.float64) / data.levels
    inner = [
        offset * (not row.is_none)
        for offset, row in zip(machine.decoder_offsets, rows[1:-1], strict=False)
    ]
    machine = machine._replace(offsets=tuple(offsets), decoder_offsets=tuple(inner))
    return state_of(machine, make_plan(settings, data, seed), seed)


def check_machine(
    settings: Settings, data: Dataset, machine: Layered, path: Path
) -> None:
    """Raise CbmError for a machine of another kind or shape than in the settings."""
    model = settings.model
    if machine.kind != model.kind:
        told = (
            f"{path}: is a machine of kind {machine.kind}; the model is of kind "
            f"{model.kind}"
        )
        raise CbmError(told)
    layers = (data.width, *model.hidden_layers(data.width))
    if machine.sizes != layers:
        found, expected = (
            "-".join(map(str, sizes)) for sizes in (machine.sizes, layers)
        )
        told = (
            f"{path}: has layers of {found} units; the model on {data.name} has "
            f"{expected}"
        )
        raise CbmError(told)
