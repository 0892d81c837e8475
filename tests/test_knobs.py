"""Momentum, weight decay, learning rates that change, chains, swaps, offsets that stay, and orders of rows.

Each as users write it, against the functions of the reference on the same random numbers.
"""

import numpy as np
import pytest

from cbm_cli import reference as ref
from cbm_cli.datasets import Dataset
from cbm_cli.grid.settings import Settings
from cbm_cli.kernels.machine import machine_of, pairs_of
from cbm_cli.trial.learner import Learner
from tests import test_auto_encoder as auto_encoders
from tests.oracles import (
    Trainer,
    advance,
    epoch_order,
    flat,
    learn_auto_encoder,
    plan,
    rate_of,
    wide,
)
from tests.test_deep_training import deep_plan

RBM, TWO, THREE = (6, 3), (5, 4, 3), (4, 3, 3, 2)
COUNT, BATCH, SEED, UPDATES = 13, 4, 2024, 12  # 3 batches of an epoch; the last row of its order is dropped

# What is learned with, in settings and in the reference's plan
STEPS = {
    "momentum": ({"momentum": 0.8}, {"momentum": 0.8}),
    "l1": ({"weight_decay": {"l1": 0.05}}, {"l1": 0.05}),
    "l2": ({"weight_decay": {"l2": 0.2}}, {"l2": 0.2}),
    "momentum and decay": (
        {"momentum": 0.8, "weight_decay": {"l1": 0.03, "l2": 0.1}},
        {"momentum": 0.8, "l1": 0.03, "l2": 0.1},
    ),
    "decaying rate": (
        {"learning_rate": {"start": 0.2, "decay": 0.5, "every": "5 updates"}},
        {"learning_rate": [(k, float(ref.decayed_rate(k, 0.2, 0.5, 5))) for k in (0, 5, 10)]},
    ),
    "rates in steps": (
        {"learning_rate": {"start": 0.2, "steps": "0.02 from 1 epoch + 0.3 from 3 epochs"}},
        {"learning_rate": [(0, 0.2), (3, 0.02), (9, 0.3)]},
    ),
    "momentum while rates change": (
        {"momentum": 0.5, "learning_rate": {"start": 0.2, "steps": "0.05 from 4 updates"}},
        {"momentum": 0.5, "learning_rate": [(0, 0.2), (4, 0.05)]},
    ),
    "order of the file": ({"shuffle": False}, {"shuffled": False}),
}
FIXED = {"visible": 0, "hidden": 0.3}
FAST = {"fast_rate": 0.3, "fast_decay": 0.9}
SAMPLED = STEPS | {
    "fewer chains": ({"chains": 3}, {"samples": 3, "ladders": 3}),
    "more chains": ({"chains": 9, "sampler": "PCD-2"}, {"samples": 9, "ladders": 9, "steps": 2}),
    "swaps of all neighbours": (
        {"sampler": "PT_5", "swaps": "both"},
        {"ladders": 1, "temperatures": 5, "swap_both": True},
    ),
    "swaps of all neighbours in two ladders": (
        {"sampler": "PT_4-2", "swaps": "both", "ladders": 2},
        {"ladders": 2, "temperatures": 4, "steps": 2, "swap_both": True},
    ),
    "fixed visible offsets": ({"sliding_factor": FIXED}, {"factors": FIXED}),
    "everything with fast weights": (
        {"sampler": "FPCD-1", "fast_learning_rate": 0.3, "fast_decay": 0.9, "chains": 6, "shuffle": False}
        | STEPS["momentum and decay"][0],
        FAST | {"samples": 6, "ladders": 6, "shuffled": False} | STEPS["momentum and decay"][1],
    ),
    "everything with tempering": (
        {"sampler": "PT_3", "swaps": "both", "sliding_factor": FIXED} | STEPS["momentum and decay"][0],
        {"ladders": 1, "temperatures": 3, "swap_both": True, "factors": FIXED}
        | STEPS["momentum and decay"][1],
    ),
}


def coins(units):
    rng = np.random.default_rng(5)
    rows = (rng.random((COUNT, units)) < rng.random(units)).astype(np.uint8)
    return Dataset("coins", rows, rows)


def learner_of(layers, **changes):
    its = {
        "data": {"name": "mnist"},  # its name; the rows are others
        "model": {"kind": "rbm" if len(layers) == 2 else "dbm", "hidden": list(layers[1:])},
        "offsets": f"{'dam'[: len(layers)]:a<{len(layers)}}^b_s",
        "sampler": "PCD-1",
        "sliding_factor": {"visible": 0.2, "hidden": 0.3},
        "learning_rate": 0.1,
        "weight_scale": 0.7,
        "updates": UPDATES,
        "batch": BATCH,
    }
    if len(layers) > 2:
        its["mean_field"] = {"tolerance": 1e-7, "rounds": 1000}
    return Learner(Settings(**its | changes), coins(layers[0]), SEED)


def plan_of(layers, factors=None, **changes):
    """The plan that the reference follows, put together without the settings."""
    factors = factors or {"visible": 0.2, "hidden": 0.3}
    by_layer = [np.full(n, factors["hidden" if k else "visible"]) for k, n in enumerate(layers)]
    sliding = [np.concatenate(by_layer[k::2]) for k in (0, 1)]
    scheme = f"{'dam'[: len(layers)]:a<{len(layers)}}"
    return deep_plan(layers, BATCH, scheme, sliding=sliding, **changes)


def batch_of(rows, update, shuffled=True, size=BATCH):
    """The rows of an update."""
    batches = len(rows) // size
    order, k = epoch_order(len(rows), SEED, update // batches, shuffled), update % batches
    return rows[order[k * size : (k + 1) * size]]


@pytest.mark.parametrize(
    ("layers", "name"),
    [
        (layers, name)
        for layers in (RBM, TWO, THREE)
        for name in SAMPLED
        if layers == RBM or "fast" not in name
    ],
)
def test_boltzmann_machines_learn_as_in_the_reference(layers, name):
    given, followed = SAMPLED[name]
    learner, its = learner_of(layers, **given), plan_of(layers, **followed)
    state, shuffled = learner.start(), followed.get("shuffled", True)
    trainer = Trainer(state, its)
    for update in range(UPDATES):
        trainer.update(batch_of(learner.data.train, update, shuffled), update)
        advance(learner, state, update, update + 1)
        np.testing.assert_array_equal(state.h, trainer.h)
        np.testing.assert_allclose(flat(*state[:3]), flat(*trainer.theta), atol=3e-5)
        for found, expected in zip(state[3:5], trainer.offsets, strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-5)
    beside = {"velocity": its.momentum > 0, "fast": its.fast_rate > 0}
    for kind, wanted in beside.items():
        found = [getattr(state, f"{kind}_{parameter}") for parameter in "Wbc"]
        assert all(bool(array.size) == wanted for array in found)
        if wanted:
            np.testing.assert_allclose(flat(*found), flat(*getattr(trainer, kind)), atol=3e-5)


@pytest.mark.parametrize("name", SAMPLED)
def test_every_one_of_them_changes_the_training(name):
    plain, changed = learner_of(RBM), learner_of(RBM, **SAMPLED[name][0])
    ends = []
    for learner in (plain, changed):
        ends.append(learner.start())
        advance(learner, ends[-1], 0, UPDATES)
    assert np.abs(ends[0].W - ends[1].W).max() > 1e-3  # 30 times the tolerance above


def test_fixed_visible_offsets_are_the_mean_of_the_whole_training_part():
    learner = learner_of(RBM, sliding_factor=FIXED, offsets="d0^b_s")
    state = learner.start()
    advance(learner, state, 0, UPDATES)
    np.testing.assert_allclose(state.mu, learner.data.train.mean(axis=0), atol=1e-7)
    assert not state.lam.any()


# Auto encoders


AUTO_ENCODERS = STEPS | {
    "fixed visible offsets": ({"sliding_factor": FIXED}, {}),
    "two hidden layers": (
        {"hidden": (4, 3), "sliding_factor": FIXED} | STEPS["momentum and decay"][0],
        STEPS["momentum and decay"][1],
    ),
    "squared errors": (
        {"encoder": "tanh", "decoder": "linear", "loss": "squared"} | STEPS["momentum and decay"][0],
        STEPS["momentum and decay"][1],
    ),
}


def plain_pairs(state, sizes):
    """(theta, offsets) of neighbouring layers, without offsets in the biases."""
    return [(wide(pair[:3]), wide(pair[3:])) for pair in pairs_of(machine_of(state), sizes)]


def reference_descent(pairs, velocity, x, learner, its, update):
    """Move the offsets and descend the cost in the plain parameters, with momentum and weight decay."""
    nothing = [tuple(np.zeros_like(offset) for offset in offsets) for _, offsets in pairs]
    kinds = learner.settings.model.encoder, learner.settings.model.decoder

    def centered(offsets):
        return [
            (ref.transform(theta, zero, to), to)
            for (theta, _), zero, to in zip(pairs, nothing, offsets, strict=True)
        ]

    now = [offsets for _, offsets in pairs]
    y, z = ref.auto_encode(x, centered(now), *kinds)
    new = auto_encoders.moved_offsets(pairs, y, z, learner, update)
    gradients = ref.back_propagate(x, centered(new), *kinds, learner.settings.model.loss)
    for k, ((theta, _), (dW, db, dc)) in enumerate(zip(pairs, gradients, strict=True)):
        dW = dW - ref.weight_decay(theta[0], float(its.l1), float(its.l2))
        step = ref.plain_step((dW, db, dc), *new[k])
        velocity[k] = ref.accumulate(velocity[k], step, -rate_of(its, update), float(its.momentum))
    return [
        (ref.ascend(theta, v, 1), offsets)
        for (theta, _), v, offsets in zip(pairs, velocity, new, strict=True)
    ]


@pytest.mark.parametrize("name", AUTO_ENCODERS)
def test_auto_encoders_learn_as_in_the_reference(name):
    given, followed = AUTO_ENCODERS[name]
    scheme = "d" * (1 + np.size(given.get("hidden", 3))) + "^b_s"
    its = {"scheme": scheme, "sliding_factor": {"visible": 0.2, "hidden": 0.3}, "batch": BATCH} | given
    learner = Learner(auto_encoders.settings(**its), coins(6), SEED)
    state, rows, shuffled = learner.start(), learner.data.train, followed.get("shuffled", True)
    reference = plan(1, 1, BATCH, **{"learning_rate": 0.2} | followed)
    pairs = plain_pairs(state, learner.sizes)
    velocity = [tuple(np.zeros_like(array) for array in theta) for theta, _ in pairs]
    for update in range(UPDATES):
        x = batch_of(rows, update, shuffled).astype(float)
        pairs = reference_descent(pairs, velocity, x, learner, reference, update)
        learn_auto_encoder(state, learner.sizes, rows, learner.plan, update, update + 1)
        auto_encoders.same_pairs(plain_pairs(state, learner.sizes), pairs, atol=5e-5)
