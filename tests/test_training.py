"""The training loop against the reference: Algorithm 2, flips, the enhanced gradient, samplers."""

import itertools

import numpy as np
import pytest

from cbm_cli import reference as ref
from tests.oracles import (
    Trainer,
    exactly,
    flat,
    learn,
    log_likelihoods,
    mean_log_p,
    mirrored,
    plan,
    random_state,
    states,
    wide,
)

ROWS = states(5)[[1, 2, 4, 8, 16, 17, 30]].astype(np.uint8)


def exact_plan(scheme="dd", **changes):
    return plan(5, 3, len(ROWS), scheme, exact=True, **changes)


def test_the_plain_gradient_is_the_derivative_of_the_log_likelihood():
    its = exact_plan("00", learning_rate=1e-2)
    state = random_state(5, 3, its, seed=1)._replace(mu=np.zeros(5, np.float32), lam=np.zeros(3, np.float32))
    before = flat(*state[:3])
    learn(state, ROWS, its, 0, 1)
    step = (flat(*state[:3]) - before) / 1e-2

    def likelihood(theta):
        return log_likelihoods(theta[:15].reshape(5, 3), theta[15:20], theta[20:], ROWS).mean()

    for k, unit in enumerate(np.eye(len(before))):
        slope = (likelihood(before + 1e-5 * unit) - likelihood(before - 1e-5 * unit)) / 2e-5
        assert step[k] == pytest.approx(slope, abs=5e-5)


@pytest.mark.parametrize("before", [True, False], ids=["before", "later"])
@pytest.mark.parametrize("sliding", [1.0, 0.1], ids=["batch mean", "moving average"])
@pytest.mark.parametrize("scheme", ["".join(pair) for pair in itertools.product("0dmahr", repeat=2)])
def test_exact_updates_are_those_of_algorithm_2(scheme, sliding, before):
    its = exact_plan(scheme, before=before, sliding=(sliding, sliding / 2))
    state = random_state(5, 3, its, seed=2)
    theta, offsets = exactly(ref.algorithm_2, wide(state[:3]), wide(state[3:5]), ROWS, its, 20)
    learn(state, ROWS, its, 0, 20)
    np.testing.assert_allclose(flat(*state[:3]), flat(*theta), atol=3e-5)  # float32 against float64
    for found, expected in zip(state[3:5], offsets, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)


def curve(state, rows, its, updates=40):
    values = []
    for update in range(updates):
        learn(state, rows, its, update, update + 1)
        values.append(mean_log_p(state[:3], rows))
    return np.array(values)


@pytest.mark.parametrize("scheme", ["dd", "aa", "mm", "dm", "md", "hh", "d0", "h0"])
def test_a_whole_training_does_not_notice_flipped_data_and_offsets(scheme):
    its = exact_plan(scheme, learning_rate=0.3, sliding=(1, 0.1))
    state = random_state(5, 3, its, seed=5, scale=0.3)
    mirror = mirrored(state)
    np.testing.assert_allclose(curve(state, ROWS, its), curve(mirror, 1 - ROWS, its), atol=2e-5)


@pytest.mark.parametrize("scheme", ["00", "0d"])
def test_a_machine_without_visible_offsets_does_notice(scheme):
    its = exact_plan(scheme, learning_rate=0.3)
    state = random_state(5, 3, its, seed=5, scale=0.3)._replace(mu=np.zeros(5, np.float32))
    mirror = mirrored(state)._replace(mu=np.zeros(5, np.float32))
    difference = curve(state, ROWS, its) - curve(mirror, 1 - ROWS, its)
    assert np.abs(difference).max() > 1e-3  # fifty times the tolerance above


@pytest.mark.parametrize("scheme", ["aa", "dm", "md"])
def test_aa_is_the_enhanced_gradient_and_dm_and_md_share_its_weight_step(scheme):
    its = exact_plan(scheme)
    state = random_state(5, 3, its, seed=8)
    W, b, c = wide(state[:3])
    enhanced = ref.enhanced_gradient(ref.batch(ROWS, ref.hidden_mean(ROWS, W, c)), ref.model_phase(W, b, c))
    learn(state, ROWS, its, 0, 1)
    same = slice(None) if scheme == "aa" else slice(0, W.size)
    step = (flat(*state[:3]) - flat(W, b, c)) / 0.1
    np.testing.assert_allclose(step[same], flat(*enhanced)[same], atol=2e-5)


SAMPLED = {
    "CD-1": {"restart": True},
    "PCD-2": {"steps": 2},
    "PT_4": {"ladders": 1, "temperatures": 4},
    "exact": {"exact": True},
    "FPCD-1": {"fast_rate": 0.2},
}


@pytest.mark.parametrize("sampler", SAMPLED)
@pytest.mark.parametrize("letters", ["dd", "ar"])
def test_training_can_be_cut_anywhere(sampler, letters):
    rows = np.random.default_rng(4).integers(0, 2, (23, 6)).astype(np.uint8)
    its = plan(6, 3, 4, letters, batches=5, shuffled=True, **SAMPLED[sampler])
    whole, pieces = random_state(6, 3, its, seed=1), random_state(6, 3, its, seed=1)
    learn(whole, rows, its, 0, 60)
    cuts = [0, 1, 2, 7, 8, 33, 59, 60]
    for first, last in itertools.pairwise(cuts):
        learn(pieces, rows, its, first, last)
    for one, other in zip(whole, pieces, strict=True):
        assert one.tobytes() == other.tobytes()


def test_an_epoch_shows_every_row_once():
    rows = np.eye(6, dtype=np.uint8)
    its = plan(6, 2, 2, batches=3, shuffled=True, learning_rate=0)
    state = random_state(6, 2, its, seed=1)
    for epoch in range(5):
        seen = np.zeros(6)
        for update in range(3 * epoch, 3 * epoch + 3):
            learn(state, rows, its, update, update + 1)
            seen += state.mu * 2  # the visible offset is the mean of the batch of two
        np.testing.assert_allclose(seen, np.ones(6), atol=1e-6)


def test_a_moving_average_that_slides_by_one_is_none():
    its = exact_plan("dd")
    state = random_state(5, 3, its, seed=9)
    learn(state, ROWS, its, 0, 1)
    np.testing.assert_allclose(state.mu, ROWS.mean(axis=0), atol=1e-6)


SAMPLERS = {
    "CD-1": {"restart": True},
    "CD-3": {"restart": True, "steps": 3},
    "PCD-1": {},
    "PT_4": {"ladders": 1, "temperatures": 4},
    "doubled up": {"to_hidden": 2.0},
    "doubled down": {"to_visible": 2.0},
    "FPCD-1": {"fast_rate": 0.3, "fast_decay": 0.9},
    "FPCD-2": {"steps": 2, "fast_rate": 0.3, "fast_decay": 0.9},
}


@pytest.mark.parametrize("changes", SAMPLERS.values(), ids=SAMPLERS)
def test_sampled_updates_are_those_of_the_reference(changes):
    its = plan(5, 3, 7, **changes)
    state = random_state(5, 3, its, seed=12)
    trainer = Trainer(state, its)
    for update in range(12):
        trainer.update(ROWS, update)
    learn(state, ROWS, its, 0, 12)
    assert (state.h == trainer.h).all()
    np.testing.assert_allclose(flat(*state[:3]), flat(*trainer.theta), atol=3e-5)
    if its.fast_rate:
        fast = state.fast_W, state.fast_b, state.fast_c
        np.testing.assert_allclose(flat(*fast), flat(*trainer.fast), atol=3e-5)
    assert bool(state.fast_W.size) == bool(its.fast_rate)
