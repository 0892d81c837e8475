"""Greedy layer-wise pre-training of deep Boltzmann machines by RBMs (Salakhutdinov &
Hinton 2009).

Layer l + 1 is the hidden layer of an RBM on the mean activity of layer l. An inner
layer of the deep machine has neighbours on both sides, in its RBM on one side only. So
the bottom-up activations of the first RBM and the top-down activations of the last one
are doubled in training, and the weights in between are halved afterwards. An inner
layer gets the mean of the two biases from its RBMs, and the offset from the RBM below.
"""

from typing import NamedTuple

import numpy as np

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.grid.settings import Settings, SlidingFactor
from cbm_cli.kernels.machine import Machine, State, empty_trail
from cbm_cli.kernels.plan import Plan
from cbm_cli.kernels.training import Training
from cbm_cli.machines import streams
from cbm_cli.machines.models import Layered
from cbm_cli.reference import gains_of_layer, hidden_mean, pretrained
from cbm_cli.results import Progress
from cbm_cli.trial.start import (
    first_machine,
    layout_of,
    make_plan,
    state_of,
    total_updates,
    used_offsets,
)

_LEVELS = 255  # mean activities go to the next layer in steps of 1/255, as grey values


class Stage(NamedTuple):
    """The training of one layer."""

    settings: Settings
    data: Dataset
    plan: Plan
    seed: int
    updates: int


class LayerTraining:
    """The stages before the training of a deep machine; none without pre-training."""

    def __init__(self, settings: Settings, data: Dataset, seed: int) -> None:
        self.settings, self.data, self.seed = settings, data, seed
        self.sizes = layout_of(settings, data).sizes
        self.stages = len(self.sizes) - 1 if settings.pretraining.epochs else 0
        self.updates = updates_of_layer(settings, data)
        self._stages: dict[int, Stage] = {}  # the current one, once it is needed
        self._training: Training | None = None

    def is_done(self, now: Progress) -> bool:
        """Whether all layers are pre-trained."""
        return now.stage >= self.stages

    def first_state(self, now: Progress) -> State:
        """The state before the first update of the stage."""
        stage = self._stage_of(now)
        machine = first_machine(stage.settings, stage.data, stage.seed)
        return state_of(machine, stage.plan, stage.seed)

    def advance(self, now: Progress, at_once: int) -> None:
        """Make up to ``at_once`` updates; at the end of a layer, keep it and start the
        next one.
        """
        stage = self._stage_of(now)
        stop = min(stage.updates, now.update + at_once)
        if self._training is None or self._training.state is not now.state:
            self._training = Training(now.state, stage.data.train, stage.plan)
        self._training(empty_trail(*now.state.W.shape), now.update, stop)
        now.update = stop
        if stop < stage.updates:
            return
        for name, array in now.state.machine._asdict().items():
            now.pretrained[f"{name}_{now.stage}"] = array.copy()
        now.stage, now.update = now.stage + 1, 0
        if not self.is_done(now):
            now.state = self.first_state(now)

    def machine(self, now: Progress) -> Layered:
        """The deep machine, made of the layers."""
        rbms = []
        for k in range(self.stages):
            arrays = (now.pretrained[f"{name}_{k}"] for name in Machine._fields)
            W, b, c, mu, lam = arrays
            rbms.append(((W, b, c), (mu, lam)))
        weights, biases, offsets = pretrained(rbms)
        used = used_offsets(offsets, self.settings.scheme.rows)
        return Layered("dbm", tuple(weights), tuple(biases), tuple(used))

    def _stage_of(self, now: Progress) -> Stage:
        k = now.stage
        if k not in self._stages:
            data = self._data_of(now)
            settings = _settings_of(self.settings, k, self.sizes[k + 1])
            seed = streams.seed_of(self.seed, streams.LAYERS, k)
            up, down = gains_of_layer(k, self.stages)
            plan = make_plan(settings, data, seed)._replace(
                to_hidden=np.float32(up), to_visible=np.float32(down)
            )
            updates = total_updates(settings, data)
            self._stages = {k: Stage(settings, data, plan, seed, updates)}
        return self._stages[k]

    def _data_of(self, now: Progress) -> Dataset:
        """The data, or the mean activity of the last pre-trained layer."""
        rows, levels = self.data.train, self.data.levels
        if now.stage == 0:
            return Dataset(self.data.name, rows, levels=levels)
        for k in range(now.stage):
            up, _ = gains_of_layer(k, self.stages)
            W, c = now.pretrained[f"W_{k}"], now.pretrained[f"c_{k}"]
            means = []
            for part in np.array_split(rows, max(1, len(rows) // 1000)):
                x = part / np.float32(levels)
                means.append(hidden_mean(up * x, W, c))
            grey = np.round(_LEVELS * np.concatenate(means))
            rows, levels = grey.astype(np.uint8), _LEVELS
        return Dataset(f"layer {now.stage} of {self.data.name}", rows, levels=levels)


def updates_of_layer(settings: Settings, data: Dataset) -> int:
    """Return the number of updates that pre-train one layer, which is the same for all;
    0 without it.
    """
    if not settings.pretraining.epochs:
        return 0
    return total_updates(_settings_of(settings, 0, 1), data)


def pretraining_facts(settings: Settings) -> dict | None:
    """All settings that the result of pre-training depends on, besides data and seed;
    None without it.
    """
    if not settings.pretraining.epochs:
        return None
    layers = [
        _settings_of(settings, layer, 1).model_dump(mode="json", exclude={"data"})
        for layer in range(settings.model.layers - 1)
    ]
    return {"model": settings.model.hidden, "layers": layers}


def _settings_of(settings: Settings, layer: int, hidden: int) -> Settings:
    """Settings of the RBM between two layers; by default those of the training."""
    how, sliding = settings.pretraining, settings.sliding_factor
    if layer and not sliding.visible:  # only the data have a fixed mean
        sliding = SlidingFactor(visible=sliding.hidden, hidden=sliding.hidden)
    letters = settings.scheme.letters[layer : layer + 2]
    return Settings(
        data=settings.data,
        model={"kind": "rbm", "hidden": hidden},
        offsets=str(settings.scheme._replace(letters=letters)),
        sampler=settings.sampler,
        learning_rate=how.learning_rate or settings.learning_rate.start,
        sliding_factor=sliding,
        init=settings.init,
        weight_scale=settings.weight_scale,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        epochs=how.epochs,
        batch=settings.batch,
        shuffle=settings.shuffle,
        chains=settings.chains,
        evaluate={"method": "none"},
    )
