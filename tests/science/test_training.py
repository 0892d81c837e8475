"""The training loop against the reference: samplers, offsets, options, random settings."""

import itertools

import numpy as np
import pytest
from cbm_cli import reference as ref
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.kernels.machine import Machine, aligned, aligned_empty
from cbm_cli.kernels.plan import ALL_STATES, INDEPENDENT
from cbm_cli.kernels.step import Gradient, ascend
from cbm_cli.trial.learner import Learner
from numpy.testing import assert_allclose, assert_array_equal, assert_equal

from tests import fuzz
from tests.networks import FOUR, THREE, TWO, visible_rows
from tests.oracles import Trainer, advance, batch_of, flat, learn, plan, random_state, wide
from tests.processes import nightly
from tests.trainings import FIXED, STEPS, coins, rbm_settings


def assert_same_state(state, trainer):
    its = trainer.its
    if not its.exact:
        assert_array_equal(state.h, trainer.h)
    if its.offsets_from == INDEPENDENT:
        assert_array_equal(state.aside_h, trainer.aside_h)
        assert (state.aside_h != state.h).any()
    assert_allclose(flat(*state[:3]), flat(*trainer.theta), atol=3e-5)  # float32, not float64
    assert_allclose(np.concatenate(state[3:5]), np.concatenate(trainer.offsets), atol=1e-5)
    assert (state.velocity is not None) == (its.momentum > 0)
    if state.velocity is not None:
        assert_allclose(flat(*state.velocity[:3]), flat(*trainer.velocity), atol=3e-5)


# Machines of one or several hidden layers

SMALL = (5, 3)
LAYER_ROWS = {layers: visible_rows(layers)[[1, 4, 7, 12, 17, 22, 30]] for layers in (SMALL, TWO)}
LAYER_ROWS |= {layers: visible_rows(layers)[[1, 3, 4, 6]] for layers in (THREE, FOUR)}


WAYS = {
    "PCD-1": {},
    "PCD-2": {"steps": 2},
    "CD-1": {"restart": True},
    "CD-3": {"restart": True, "steps": 3},
    "PT_3": {"temperatures": 3},
    "exact": {"exact": True},
    "doubled up": {"to_hidden": 2.0},
    "doubled down": {"to_visible": 2.0},
}
DEEP_WAYS = [way for way in WAYS if "doubled" not in way]


EACH = [*((SMALL, way) for way in WAYS), *itertools.product([TWO, THREE, FOUR], DEEP_WAYS)]


@pytest.mark.parametrize("scheme", ["00000", "aaaaa", "mrhda"])
@pytest.mark.parametrize(("layers", "way"), EACH)
def test_updates_are_those_of_the_reference(layers, way, scheme):
    rows, slides = LAYER_ROWS[layers], {"before": scheme[0] in "0a", "sliding": (0.3, 0.2)}
    its = plan(layers, len(rows), scheme[: len(layers)], **slides, **WAYS[way])
    state = random_state(layers, its, seed=5, scale=0.7)
    trainer = Trainer(state, its)
    for update in range(4 if len(layers) > 2 else 12):
        trainer.update(rows, update)
        learn(state, rows, its, update, update + 1)
        assert_same_state(state, trainer)
    below, above = (np.repeat(range(k, len(layers), 2), layers[k::2]) for k in (0, 1))
    connected = np.abs(below[:, None] - above) == 1
    assert_array_equal(trainer.connected, connected)
    assert (state.W[~connected] == 0).all()
    assert state.rounds[1:].tolist() == [0 if layers == SMALL else 4, 0]


@pytest.mark.parametrize("way", ["CD-1", "CD-3", "PCD-1", "PCD-2", "PT_3", "exact"])
def test_the_step_of_aa_b_is_the_enhanced_gradient_of_the_same_samples(way):
    """Eqs. (1)-(3), to rounding."""
    rows = LAYER_ROWS[SMALL]
    its = plan(SMALL, len(rows), "aa", learning_rate=1.0, **WAYS[way])
    state = random_state(SMALL, its, seed=3)
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
    "two sweeps before swaps": ({"sampler": "PT_4-2"}, {"temperatures": 4, "steps": 2}),
    "fixed visible offsets": ({"sliding_factor": FIXED}, {"sliding": [*FIXED.values()]}),
}
LADDER = {"sampler": "PT_3", "sliding_factor": FIXED} | STEP
KNOBS["everything with tempering"] = LADDER, {"temperatures": 3, "sliding": (0, 0.3)} | FOLLOWED
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
    its = {"model": {"kind": "rbm" if len(layers) == 2 else "dbm", "hidden": list(layers[1:])}}
    its |= {"offsets": f"{'dama'[: len(layers)]}^b_s", "weight_scale": 0.7, "batch": BATCH}
    its |= {"sliding_factor": {"visible": 0.2, "hidden": 0.3}, "updates": UPDATES}
    learner = Learner(rbm_settings(**its | changes), coins(layers[0]), SEED)
    learner.plan = learner.plan._replace(tolerance=np.float32(1e-7), rounds=1000)
    return learner


LEARNING = [*itertools.product([SIX, TWO, THREE], KNOBS), *((SIX, name) for name in SOURCES)]


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
        assert_same_state(state, trainer)


def test_the_first_biases_of_units_that_never_change_are_those_of_a_clipped_mean():
    rows = np.uint8([[0, 1, 0], [0, 1, 1]])
    state = Learner(rbm_settings(batch="full"), Dataset("stuck", rows), SEED).start()
    assert_allclose(state.b, ref.inverse_sigmoid(np.array([0.001, 0.999, 0.5])), rtol=1e-6)


def test_rounds_of_mean_field_are_counted_from_one_evaluation_to_the_next():
    learner = learner_of(TWO)
    learner.plan = learner.plan._replace(tolerance=np.float32(1e-9), rounds=2)
    state = learner.start()
    advance(learner, state, 0, 5)
    assert learner.columns[-2:] == ("mean_field_rounds", "mean_field_failures")
    assert learner.evaluate(state, 5, lambda: False)[-2:] == [2, 5]
    assert_equal(learner.evaluate(state, 5, lambda: False)[-2:], [np.nan, 0])


def test_fixed_visible_offsets_are_the_mean_of_the_whole_training_part():
    learner = learner_of(SIX, sliding_factor=FIXED, offsets="d0^b_s")
    state = learner.start()
    advance(learner, state, 0, UPDATES)
    assert_allclose(state.mu, learner.data.train.mean(axis=0), atol=1e-7)
    assert not state.lam.any()


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
    gradient = Gradient(*map(aligned, (dW, dx, dh)), its.spans, aligned_empty(m))
    ascend(machine, gradient, its, np.float32(rate))
    dW, dx, dh, mu, lam = wide((dW, dx, dh, mu, lam))
    centered = dW - np.outer(mu, dh) - np.outer(dx, lam)
    step = float(np.float32(rate)) * ref.plain_step((centered, dx, dh), mu, lam)[2]
    assert np.abs(machine.c - (c + step)).max() <= 0.51 * np.spacing(np.float32(size))


def test_work_arrays_begin_at_a_cache_line():
    for array in (*map(aligned_empty, (1, 17, (3, 5), (100, 784))), aligned(np.arange(15.0))):
        assert array.ctypes.data % 64 == 0


COUNTS = [(False, 600, 150), (True, 65, 40), *nightly((True, 600, 200))]


@pytest.mark.parametrize(("deep", "largest", "count"), COUNTS)
def test_random_settings_make_the_updates_of_the_reference(deep, largest, count):
    """Of 1 to 513 units, with all ways to multiply bits."""
    rng = np.random.default_rng(2)
    found = [fuzz.differences(fuzz.random_case(rng, deep, largest)) for _ in range(count)]
    assert [line for lines in found for line in lines] == []
