"""Turn settings and data of a trial into the plan and the state that the kernels work
on.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.grid.names import Scheme
from cbm_cli.grid.settings import Settings, SlidingFactor
from cbm_cli.kernels import plan as codes
from cbm_cli.kernels.layout import Layout
from cbm_cli.kernels.machine import State, pairs_of
from cbm_cli.kernels.memory import aligned
from cbm_cli.kernels.plan import OffsetPlan, Plan
from cbm_cli.letters import LETTERS, Letter
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
    if not unit.startswith("epoch"):
        return int(number)
    return int(number) * (len(data.train) // batch_rows(settings, data))


# The plan


def make_plan(settings: Settings, data: Dataset, seed: int) -> Plan:
    """Turn the settings into the numbers of a Plan; the seed is the key of every random
    number.
    """

    def updates(interval: str) -> int:
        return updates_of(interval, settings, data)

    sampler, decay = settings.parsed_sampler, settings.weight_decay
    layout, batch = layout_of(settings, data), batch_rows(settings, data)
    pieces = settings.learning_rate.pieces(updates, total_updates(settings, data))
    offsets = _offset_plan(
        settings.scheme,
        settings.offsets_from,
        settings.sliding_factor,
        kind=settings.model.kind,
        sizes=layout.sizes,
    )
    return Plan(
        seed=np.uint64(seed),
        batch=batch,
        rows=settings.chains or batch,
        offsets=offsets,
        spans=layout.spans(),
        visible=data.width,
        rates=np.array([rate for _, rate in pieces], np.float32),
        rate_from=np.array([first for first, _ in pieces], np.int64),
        momentum=np.float32(settings.momentum),
        l1=np.float32(decay.l1),
        l2=np.float32(decay.l2),
        offsets_from=_SOURCES.get(settings.offsets_from, codes.SAME),
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
        factor = sliding.hidden if layer else sliding.visible
        factors.append(np.full(size, factor if scheme.sliding else 1, np.float32))
    mu_mix, lam_mix = sides_of(mixes, mixes, kind)
    mu_factor, lam_factor = sides_of(factors, factors, kind)
    noisy = bool(mu_mix[3].any() or lam_mix[3].any())
    return OffsetPlan(
        mu_mix, lam_mix, mu_factor, lam_factor, before=scheme.before, noisy=noisy
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
    arrays = kernel_arrays(machine)
    random = streams.generator(seed, streams.CHAINS).random
    chains = plan.temperatures if plan.temperatures > 1 else plan.rows
    shape = chains, len(arrays.c)
    W, b, c, mu, lam = map(aligned, arrays)
    state = State(W, b, c, mu, lam, rounds=np.zeros(3, np.int64))
    if machine.kind != "auto-encoder":
        state = state._replace(h=aligned(random(shape) < 0.5))
    if plan.offsets_from == codes.INDEPENDENT:
        state = state._replace(aside_h=aligned(random(shape) < 0.5))
    if plan.momentum > 0:
        state = state._replace(
            velocity_W=aligned(np.zeros_like(W)),
            velocity_b=aligned(np.zeros_like(b)),
            velocity_c=aligned(np.zeros_like(c)),
        )
    return state


def machine_at(state: State, settings: Settings, sizes: Sequence[int]) -> Layered:
    """The machine of a state; the inverse of `state_of`."""
    kind, machine = settings.model.kind, state.machine
    if kind == "auto-encoder":
        pairs = pairs_of(machine, sizes)
        first, last = pairs[0], pairs[-1]
        return Layered(
            kind,
            weights=tuple(pair.W for pair in pairs),
            biases=(first.b, *(pair.c for pair in pairs)),
            offsets=(*(pair.mu for pair in pairs), last.lam),
            decoder_biases=tuple(pair.b for pair in pairs[1:]),
            decoder_offsets=tuple(pair.lam for pair in pairs[:-1]),
        )
    layout = Layout(tuple(sizes))
    return Layered(
        kind,
        weights=tuple(layout.weights(machine.W)),
        biases=tuple(layout.layers(machine.b, machine.c)),
        offsets=tuple(layout.layers(machine.mu, machine.lam)),
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
    offsets = used_offsets(machine.offsets, rows)
    if not settings.sliding_factor.visible and rows[0].is_data_mean:
        offsets[0] = data.train.mean(axis=0, dtype=np.float64) / data.levels
    inner = used_offsets(machine.decoder_offsets, rows[1:-1])
    machine = machine._replace(offsets=tuple(offsets), decoder_offsets=tuple(inner))
    return state_of(machine, make_plan(settings, data, seed), seed)


def used_offsets(offsets: Sequence[NDArray], rows: Sequence[Letter]) -> list[NDArray]:
    """The offsets of layers, with zeros for those that have none by their letters; the
    longer list is cut.
    """
    pairs = zip(offsets, rows, strict=False)
    return [offset * (not row.is_none) for offset, row in pairs]


def check_machine(
    settings: Settings, data: Dataset, machine: Layered, path: Path
) -> None:
    """Raise CbmError for a machine of another kind or shape than in the settings."""
    model = settings.model
    if machine.kind != model.kind:
        raise CbmError(
            f"{path}: is a machine of kind {machine.kind}; the model is of kind "
            f"{model.kind}"
        )
    layers = (data.width, *model.hidden_layers(data.width))
    if machine.sizes != layers:
        raise CbmError(
            f"{path}: has layers of {_dashed(machine.sizes)} units; the model on "
            f"{data.name} has {_dashed(layers)}"
        )


def _dashed(sizes: Sequence[int]) -> str:
    return "-".join(map(str, sizes))
