"""The training loop against the paper: Algorithm 1 = Algorithm 2, flips, the enhanced gradient."""

import itertools

import numpy as np
import pytest

from cbm_cli.kernels.offsets import Means
from cbm_cli.kernels.states import log_partition, mean_log_likelihood
from cbm_cli.kernels.random import NOISE
from cbm_cli.kernels.state import State
from cbm_cli.kernels.step import ascend
from tests.oracles import (
    copied,
    joint,
    learn,
    log_likelihoods,
    plan,
    random_state,
    sigmoid,
    states,
    uniform,
)
from tests.test_sampling import plain_restart, plain_sweeps

ROWS = states(5)[[1, 2, 4, 8, 16, 17, 30]].astype(np.uint8)


def exact_plan(scheme="dd", **changes):
    return plan(5, 3, len(ROWS), scheme, exact=True, **changes)


def parameters(state):
    return np.concatenate([state.W.ravel(), state.b, state.c]).astype(float)


def test_the_plain_gradient_is_the_derivative_of_the_log_likelihood():
    its = exact_plan("00", learning_rate=np.float32(1e-2))
    state = random_state(5, 3, its, seed=1)._replace(mu=np.zeros(5, np.float32), lam=np.zeros(3, np.float32))
    before = parameters(state)
    learn(state, ROWS, its, 0, 1)
    step = (parameters(state) - before) / 1e-2

    def likelihood(theta):
        return log_likelihoods(theta[:15].reshape(5, 3), theta[15:20], theta[20:], ROWS).mean()

    for k, unit in enumerate(np.eye(len(before))):
        slope = (likelihood(before + 1e-5 * unit) - likelihood(before - 1e-5 * unit)) / 2e-5
        assert step[k] == pytest.approx(slope, abs=5e-5)


def algorithm_2(state, rows, its, updates):
    """The paper's Algorithm 2 in float64, with exact expectations; returns the plain machine at its end."""
    W, b, c, mu, lam = (array.astype(float) for array in state[:5])
    b, c = b + W @ lam, c + W.T @ mu  # to the centered parameters
    x = rows.astype(float)
    X, H = states(len(b)), states(len(c))
    for update in range(updates):
        hd = sigmoid((x - mu) @ W + c)
        p, _ = joint(W, b, c, mu, lam)
        xm, hm = p.sum(axis=1) @ X, p.sum(axis=0) @ H
        noise_x, noise_h = noises(its, update, len(b), len(c))
        new_mu = (its.visible_mix * [x.mean(0), xm, np.ones_like(xm), noise_x]).sum(axis=0)
        new_lam = (its.hidden_mix * [hd.mean(0), hm, np.ones_like(hm), noise_h]).sum(axis=0)

        if its.offsets_before:
            b, c, mu, lam = reparameterised(W, b, c, (mu, lam), (new_mu, new_lam), its)
        model = (X - mu).T @ p @ (H - lam)
        gradient = (x - mu).T @ (hd - lam) / len(x) - model
        W = W + its.learning_rate * gradient
        b = b + its.learning_rate * (x.mean(0) - xm)
        c = c + its.learning_rate * (hd.mean(0) - hm)
        if not its.offsets_before:
            b, c, mu, lam = reparameterised(W, b, c, (mu, lam), (new_mu, new_lam), its)
    return np.concatenate([W.ravel(), b - W @ lam, c - W.T @ mu]), mu, lam


def reparameterised(W, b, c, old, new, its):
    """Eqs. (transform_b), (transform_c), and the moving average of the offsets."""
    (mu, lam), (new_mu, new_lam) = old, new
    nu, kappa = its.sliding_visible, its.sliding_hidden
    b, c = b + kappa * W @ (new_lam - lam), c + nu * W.T @ (new_mu - mu)
    return b, c, (1 - nu) * mu + nu * new_mu, (1 - kappa) * lam + kappa * new_lam


def noises(its, update, n, m):
    padded = n + -n % 4
    u = uniform(int(its.seed), update, NOISE, padded + m)
    return u[:n], u[padded:]


@pytest.mark.parametrize("before", [True, False], ids=["before", "later"])
@pytest.mark.parametrize("sliding", [1.0, 0.1], ids=["batch mean", "moving average"])
@pytest.mark.parametrize("scheme", ["".join(pair) for pair in itertools.product("0dmahr", repeat=2)])
def test_algorithm_1_is_algorithm_2(scheme, sliding, before):
    factors = {"sliding_visible": np.float32(sliding), "sliding_hidden": np.float32(sliding / 2)}
    its = exact_plan(scheme, offsets_before=before, **factors)
    state = random_state(5, 3, its, seed=2)
    expected, mu, lam = algorithm_2(state, ROWS, its, 20)
    learn(state, ROWS, its, 0, 20)
    np.testing.assert_allclose(parameters(state), expected, atol=3e-5)  # float32 against float64
    np.testing.assert_allclose(state.mu, mu, atol=1e-5)
    np.testing.assert_allclose(state.lam, lam, atol=1e-5)


def curve(state, rows, its, updates=40):
    values = []
    for update in range(updates):
        learn(state, rows, its, update, update + 1)
        machine = state[:3]
        values.append(mean_log_likelihood(*machine, rows, np.float32(1), log_partition(*machine)))
    return np.array(values)


def flipped(state):
    """The same machine of the data with every bit flipped: E(1 - x, h) of the one is E(x, h) of the other."""
    return State(
        -state.W, -state.b, state.c + state.W.sum(axis=0), 1 - state.mu, state.lam.copy(), *state[5:]
    )


@pytest.mark.parametrize("scheme", ["dd", "aa", "mm", "dm", "md", "hh", "d0", "h0"])
def test_a_whole_training_does_not_notice_flipped_data_and_offsets(scheme):
    its = exact_plan(scheme, learning_rate=np.float32(0.3), sliding_hidden=np.float32(0.1))
    state = random_state(5, 3, its, seed=5, scale=0.3)
    mirror = flipped(state)
    np.testing.assert_allclose(curve(state, ROWS, its), curve(mirror, 1 - ROWS, its), atol=2e-5)


@pytest.mark.parametrize("scheme", ["00", "0d"])
def test_a_machine_without_visible_offsets_does_notice(scheme):
    its = exact_plan(scheme, learning_rate=np.float32(0.3))
    state = random_state(5, 3, its, seed=5, scale=0.3)._replace(mu=np.zeros(5, np.float32))
    mirror = flipped(state)._replace(mu=np.zeros(5, np.float32))
    difference = curve(state, ROWS, its) - curve(mirror, 1 - ROWS, its)
    assert np.abs(difference).max() > 1e-3  # fifty times the tolerance above


def one_step(scheme, seed=8):
    its = exact_plan(scheme)
    state = random_state(5, 3, its, seed=seed)
    before = copied(state)
    learn(state, ROWS, its, 0, 1)
    return before, State(*((now.astype(float) - then) / 0.1 for now, then in zip(state, before, strict=True)))


def test_aa_is_the_enhanced_gradient():
    before, step = one_step("aa")
    x, h = ROWS.astype(float), sigmoid(ROWS @ before.W.astype(float) + before.c)
    p, _ = joint(*before[:3])
    X, H = states(5), states(3)
    xm, hm = p.sum(axis=1) @ X, p.sum(axis=0) @ H
    dx, dh = x.mean(0) - xm, h.mean(0) - hm
    enhanced = (x - x.mean(0)).T @ (h - h.mean(0)) / len(x) - (X - xm).T @ p @ (H - hm)  # Cho et al. 2011
    np.testing.assert_allclose(step.W, enhanced, atol=2e-5)
    np.testing.assert_allclose(step.b, dx - enhanced @ (h.mean(0) + hm) / 2, atol=2e-5)
    np.testing.assert_allclose(step.c, dh - enhanced.T @ (x.mean(0) + xm) / 2, atol=2e-5)


def test_dm_and_md_share_the_weight_step_of_aa_and_nothing_else():
    aa, dm, md, dd = (one_step(scheme)[1] for scheme in ("aa", "dm", "md", "dd"))
    np.testing.assert_allclose(dm.W, aa.W, atol=2e-5)
    np.testing.assert_allclose(md.W, aa.W, atol=2e-5)
    assert np.abs(dm.b - aa.b).max() > 1e-3
    assert np.abs(dd.W - aa.W).max() > 1e-3


SAMPLED = {
    "CD-1": {"restart": True},
    "PCD-2": {"steps": 2},
    "PT_4": {"ladders": 1, "temperatures": 4},
    "exact": {"exact": True},
    "FPCD-1": {"fast_learning_rate": np.float32(0.2)},
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
    its = plan(6, 2, 2, batches=3, shuffled=True, learning_rate=np.float32(0))
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


def plain_update(regular, fast, h, rows, its, update):
    """An update of dd^b in plain NumPy: machine, fast weights (Tieleman & Hinton 2009), chains after it."""
    x = rows.astype(float)
    hd = sigmoid(its.to_hidden * x @ regular[0] + regular[2])
    if its.restart:
        h = plain_restart(hd, its, update)
    felt = [(r + f).astype(np.float32) for r, f in zip(regular, fast, strict=True)]
    xm, h = plain_sweeps(felt, h, its, update)
    hm = sigmoid(its.to_hidden * xm @ regular[0] + regular[2])
    mu, lam = x.mean(0), hd.mean(0)
    dW = (x - mu).T @ (hd - lam) / len(x) - (xm - mu).T @ (hm - lam) / len(x)
    dx, dh = x.mean(0) - xm.mean(0), hd.mean(0) - hm.mean(0)
    gradient = [dW, dx - its.to_visible * dW @ lam, dh - its.to_hidden * dW.T @ mu]
    regular = [r + float(its.learning_rate) * g for r, g in zip(regular, gradient, strict=True)]
    rate, left = float(its.fast_learning_rate), float(its.fast_decay)
    return regular, [left * f + rate * g for f, g in zip(fast, gradient, strict=True)], h


SAMPLERS = {
    "CD-1": {"restart": True},
    "CD-3": {"restart": True, "steps": 3},
    "PCD-1": {},
    "PT_4": {"ladders": 1, "temperatures": 4},
    "doubled up": {"to_hidden": np.float32(2)},
    "doubled down": {"to_visible": np.float32(2)},
    "FPCD-1": {"fast_learning_rate": np.float32(0.3), "fast_decay": np.float32(0.9)},
    "FPCD-2": {"steps": 2, "fast_learning_rate": np.float32(0.3), "fast_decay": np.float32(0.9)},
}


@pytest.mark.parametrize("changes", SAMPLERS.values(), ids=SAMPLERS)
def test_sampled_updates_are_those_of_the_plain_reference(changes):
    its = plan(5, 3, 7, **changes)
    state = random_state(5, 3, its, seed=12)
    regular, h = [array.astype(float) for array in state[:3]], state.h.astype(float)
    fast = [np.zeros_like(array) for array in regular]
    for update in range(12):
        regular, fast, h = plain_update(regular, fast, h, ROWS, its, update)
    learn(state, ROWS, its, 0, 12)
    assert (state.h == h).all()
    for found, expected in zip(state[:3], regular, strict=True):
        np.testing.assert_allclose(found, expected, atol=3e-5)
    for found, expected in zip([state.fast_W, state.fast_b, state.fast_c], fast, strict=True):
        if found.size or its.fast_learning_rate:
            np.testing.assert_allclose(found, expected, atol=3e-5)
    assert bool(state.fast_W.size) == bool(its.fast_learning_rate)


@pytest.mark.parametrize(("up", "down"), [(1, 1), (2, 1), (1, 2)])
@pytest.mark.parametrize("side", ["visible", "hidden"])
def test_a_step_with_doubled_activations_does_not_notice_a_flip_either(side, up, down):
    """One step of a machine and of its mirror, of the same means, leaves the one the mirror of the other."""
    rng = np.random.default_rng(3)
    state = random_state(5, 3, plan(5, 3, 4), seed=14)
    contrast = rng.standard_normal((5, 3)).astype(np.float32)
    means = [Means(rng.random(5).astype(np.float32), rng.random(3).astype(np.float32)) for _ in range(2)]
    other, other_means = mirrored(state, side, up, down), [flipped_means(it, side) for it in means]
    dx, dh = (data - model for data, model in zip(*means, strict=True))
    other_contrast = (dh[None] if side == "visible" else dx[:, None]) - contrast
    rate, spans = np.float32(0.3), np.tile([0, 3], (5, 1))
    gains = np.float32(up), np.float32(down)
    ascend(state, spans, contrast, *means, rate, *gains)
    ascend(other, spans, other_contrast, *other_means, rate, *gains)
    expected = mirrored(state, side, up, down)
    for found, array in zip(other[:3], expected[:3], strict=True):
        np.testing.assert_allclose(found, array, atol=3e-6)


def mirrored(state, side, up, down):
    W, b, c, mu, lam = state[:5]
    if side == "visible":
        return state._replace(W=-W, b=-b, c=c + np.float32(up) * W.sum(axis=0), mu=1 - mu)
    return state._replace(W=-W, c=-c, b=b + np.float32(down) * W.sum(axis=1), lam=1 - lam)


def flipped_means(means, side):
    return means._replace(x=1 - means.x) if side == "visible" else means._replace(h=1 - means.h)
