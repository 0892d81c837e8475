"""The training loop against the reference: samplers, offsets, options, random
settings.
"""

import itertools

import numpy as np
import pytest
from cbm_cli import reference as ref
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.kernels.machine import Machine
from cbm_cli.kernels.memory import aligned, aligned_zeros
from cbm_cli.kernels.plan import ALL_STATES, INDEPENDENT
from cbm_cli.kernels.step import Gradient, ascend
from cbm_cli.trial.learner import Learner
from numpy.testing import assert_allclose, assert_equal

from tests import fuzz
from tests.networks import THREE, TWO, visible_rows
from tests.oracles import (
    Trainer,
    advance,
    batch_of,
    departure,
    learn,
    plan,
    random_state,
    wide,
)
from tests.processes import nightly
from tests.trainings import FIXED, STEPS, coins, rbm_settings

WAYS = {
    "PCD-1": {},
    "CD-1": {"restart": True},
    "PT_3": {"temperatures": 3},
    "exact": {"exact": True},
}


@pytest.mark.parametrize("way", WAYS)
def test_the_step_of_aa_b_is_the_enhanced_gradient_of_the_same_samples(way):
    """Eqs. (1)-(3), to rounding."""
    rows = visible_rows((5, 3))[[1, 4, 7, 12, 17, 22, 30]]
    its = plan((5, 3), len(rows), "aa", learning_rate=1.0, **WAYS[way])
    state = random_state((5, 3), its, seed=3)
    trainer = Trainer(state, its)
    before, data = wide(state[:3]), trainer.data_phase(rows.astype(float))
    model, _ = trainer.model_phase(data, trainer.h, 0, its.exact)
    learn(state, rows, its, 0, 1)
    step = [new - old for new, old in zip(wide(state[:3]), before, strict=True)]
    for found, expected in zip(step, ref.enhanced_gradient(data, model), strict=True):
        assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


# As users write it

SIX, SEED = (6, 3), 2024
BATCH, UPDATES = 4, 12  # 13 rows are 3 batches of an epoch; the last row is dropped
STEP, FOLLOWED = STEPS["momentum and decay"]
KNOBS = STEPS | {
    "fewer chains": ({"chains": 3}, {"rows": 3}),
    "more chains": ({"chains": 9, "sampler": "PCD-2"}, {"rows": 9, "steps": 2}),
    "everything with tempering": (
        {"sampler": "PT_3-2", "sliding_factor": FIXED} | STEP,
        {"temperatures": 3, "steps": 2, "sliding": [*FIXED.values()]} | FOLLOWED,
    ),
}
SOURCES = {  # of the model means of offsets, and of the gradient
    "own chains": ({"offsets_from": "independent"}, {"offsets_from": INDEPENDENT}),
    "own ladder": (
        {"offsets_from": "independent", "sampler": "PT_4"},
        {"offsets_from": INDEPENDENT, "temperatures": 4},
    ),
    "own chains at the batch": (
        {"offsets_from": "independent", "sampler": "CD-1", "gradient_from": "exact"},
        {"offsets_from": INDEPENDENT, "restart": True, "exact": True},
    ),
    "exact means": (
        {"offsets_from": "exact", "sampler": "PCD-2"},
        {"offsets_from": ALL_STATES, "steps": 2},
    ),
    "exact gradients": ({"gradient_from": "exact"}, {"exact": True}),
    "random": ({"offsets_from": "random", "offsets": "0m^b_s"}, {"scheme": "0r"}),
}


def learner_of(layers, **changes):
    its = {
        "model": {
            "kind": "rbm" if len(layers) == 2 else "dbm",
            "hidden": list(layers[1:]),
        }
    }
    its |= {
        "offsets": f"{'dama'[: len(layers)]}^b_s",
        "weight_scale": 0.7,
        "batch": BATCH,
    }
    its |= {"sliding_factor": {"visible": 0.2, "hidden": 0.3}, "updates": UPDATES}
    learner = Learner(rbm_settings(**its | changes), coins(layers[0]), SEED)
    learner.plan = learner.plan._replace(tolerance=np.float32(1e-7), rounds=1000)
    return learner


LEARNING = [
    *itertools.product([SIX, TWO, THREE], KNOBS),
    *((SIX, name) for name in SOURCES),
]


@pytest.mark.parametrize(("layers", "name"), LEARNING)
def test_boltzmann_machines_learn_as_in_the_reference(layers, name):
    """The plan of the reference is put together without the settings."""
    given, followed = (KNOBS | SOURCES)[name]
    learner, scheme = learner_of(layers, **given), "dama"[: len(layers)]
    its = plan(layers, BATCH, **{"scheme": scheme, "sliding": (0.2, 0.3)} | followed)
    state, shuffled = learner.start(), followed.get("shuffled", True)
    trainer = Trainer(state, its)
    for update in range(UPDATES):
        trainer.update(batch_of(learner.data.train, its, update, shuffled), update)
        advance(learner, state, update, update + 1)
        flips, error = departure(state, trainer)
        assert (flips, error < 3e-5) == (0, True)  # float32, not float64
    assert (state.velocity is not None) == (its.momentum > 0)
    below, above = (np.repeat(range(k, len(layers), 2), layers[k::2]) for k in (0, 1))
    assert (
        state.W[np.abs(below[:, None] - above) != 1] == 0
    ).all()  # of layers that are apart


def test_the_first_biases_of_units_that_never_change_are_those_of_a_clipped_mean():
    rows = np.uint8([[0, 1, 0], [0, 1, 1]])
    state = Learner(rbm_settings(batch="full"), Dataset("stuck", rows), SEED).start()
    assert_allclose(
        state.b, ref.inverse_sigmoid(np.array([0.001, 0.999, 0.5])), rtol=1e-6
    )


def test_rounds_of_mean_field_are_counted_from_one_evaluation_to_the_next():
    learner = learner_of(TWO)
    learner.plan = learner.plan._replace(tolerance=np.float32(1e-9), rounds=2)
    state = learner.start()
    advance(learner, state, 0, 5)
    assert learner.columns[-2:] == ("mean_field_rounds", "mean_field_failures")
    assert learner.evaluate(state, 5, lambda: False)[-2:] == [2, 5]
    assert_equal(learner.evaluate(state, 5, lambda: False)[-2:], [np.nan, 0])


def test_means_over_many_rows_are_exact():
    """One float32 sum is off by 5e-4 after 60,000 rows."""
    rows = np.ones((200_000, 3), np.uint8)
    rows[:, 1], rows[::7, 2] = 0, 0
    its = plan((3, 2), len(rows), rows=4)
    state = random_state((3, 2), its, seed=1)
    hidden = ref.hidden_mean(rows, *wide((state.W, state.c))).mean(axis=0)
    learn(state, rows, its, 0, 1)
    assert_allclose(state.mu, rows.mean(axis=0), atol=1e-7)
    assert_allclose(state.lam, hidden, atol=3e-7)  # most of it by float32 sigmoids


@pytest.mark.parametrize(("size", "rate"), [(1, 1e-4), (20, 1e-5)])
def test_a_step_of_the_hidden_bias_is_rounded_once(size, rate):
    """Float32 allows one rounding at the size of c."""
    rng, n, m = np.random.default_rng(size), 784, 50
    W, b, c = (np.float32(rng.normal(0, 0.1, shape)) for shape in ((n, m), n, m))
    c = np.float32(size * np.sign(c))
    mu, lam, dx, dh = (np.float32(rng.random(units)) for units in (n, m, n, m))
    dW, dx, dh = np.float32(rng.normal(0, 0.01, (n, m))), dx / 50, dh / 50
    its, machine = plan((n, m), 1), Machine(*map(aligned, (W, b, c, mu, lam)))
    gradient = Gradient(*map(aligned, (dW, dx, dh)), its.spans, aligned_zeros(m))
    ascend(machine, gradient, its, np.float32(rate))
    dW, dx, dh, mu, lam = wide((dW, dx, dh, mu, lam))
    centered = dW - np.outer(mu, dh) - np.outer(dx, lam)
    step = float(np.float32(rate)) * ref.plain_step((centered, dx, dh), mu, lam)[2]
    assert np.abs(machine.c - (c + step)).max() <= 0.51 * np.spacing(np.float32(size))


def test_work_arrays_begin_at_a_cache_line():
    for array in (
        *map(aligned_zeros, (1, 17, (3, 5), (100, 784))),
        aligned(np.arange(15.0)),
    ):
        assert array.ctypes.data % 64 == 0


COUNTS = [(False, 600, 100), (True, 33, 60), *nightly((True, 600, 200))]


@pytest.mark.parametrize(("deep", "largest", "count"), COUNTS)
def test_random_settings_make_the_updates_of_the_reference(deep, largest, count):
    """Of 1 to 513 units, with all ways to multiply bits."""
    rng = np.random.default_rng(2)
    found = [fuzz.difference(rng, deep, largest) for _ in range(count)]
    assert [*filter(None, found)] == []
