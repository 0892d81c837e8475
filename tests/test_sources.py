"""Where the means of offsets and the samples of the gradient come from, against a plain reference."""

import itertools

import numpy as np
import pytest

from cbm_cli.datasets import load
from cbm_cli.grid.settings import Settings
from cbm_cli.kernels.random import ASIDE
from cbm_cli.trial.start import initial_state, make_plan
from tests.oracles import MIXES, copied, joint, learn, sigmoid, states
from tests.test_sampling import plain_restart, plain_sweeps
from tests.test_training import noises

DATA = load("bars-and-stripes", size=2)
ROWS = DATA.train.astype(float)


def settings(offsets="mm^b", **changes):
    fixed = {
        "data": {"name": "bars-and-stripes", "size": 2},
        "model": {"kind": "rbm", "hidden": 3},
        "learning_rate": 0.2,
        "weight_scale": 0.7,
        "updates": 10,
        "batch": "full",
    }
    return Settings(**fixed | {"offsets": offsets, "sampler": "PCD-1"} | changes)


def begun(its):
    plan = make_plan(its, DATA, seed=3)
    return plan, initial_state(its, DATA, plan, seed=3)


def of_model(W, b, c):
    """<x h'>, <x>, <h> by the sum over all states."""
    p, _ = joint(W, b, c)
    return (
        states(len(b)).T @ p @ states(len(c)),
        p.sum(axis=1) @ states(len(b)),
        p.sum(axis=0) @ states(len(c)),
    )


def of_rows(x, W, c):
    h = sigmoid(x @ W + c)
    return x.T @ h / len(x), x.mean(axis=0), h.mean(axis=0)


class Plain:
    """Training by the paper's Algorithm 1 in plain NumPy, float64, on the kernels' random numbers."""

    def __init__(self, its, plan, state):
        self.its, self.plan = its, plan
        self.machine = [array.astype(float) for array in state[:3]]
        self.fast = [np.zeros_like(array) for array in self.machine]
        self.mu, self.lam = state.mu.astype(float), state.lam.astype(float)
        self.h, self.aside_h = state.h.astype(float), state.aside_h.astype(float)

    def samples(self, chains, update, site, first):
        """Visible samples, and the chains they were taken from."""
        W, _, c = self.machine
        if self.plan.restart:
            chains = plain_restart(sigmoid(ROWS @ W + c), self.plan, update, first)
        felt = [(r + f).astype(np.float32) for r, f in zip(self.machine, self.fast, strict=True)]
        return plain_sweeps(felt, chains, self.plan, update, site)

    def gradient_phase(self, update):
        if self.its.gradient_from == "exact":
            return of_model(*self.machine)
        x, self.h = self.samples(self.h, update, 0, 0)
        return of_rows(x, self.machine[0], self.machine[2])

    def offset_means(self, update, model):
        if self.its.offsets_from == "exact":
            return of_model(*self.machine)[1:]
        if self.its.offsets_from == "independent":
            x, self.aside_h = self.samples(self.aside_h, update, ASIDE, len(ROWS) * len(self.lam))
            return of_rows(x, self.machine[0], self.machine[2])[1:]
        return model[1:]

    def update(self, number):
        W, _, c = self.machine
        data, model = of_rows(ROWS, W, c), self.gradient_phase(number)
        means, noise = self.offset_means(number, model), noises(self.plan, number, *W.shape)
        letters = self.its.offsets[:2]
        if self.its.offsets_from == "random":
            letters = "rr"
        self.mu, self.lam = (
            np.dot(MIXES[letter], np.stack([data[at], means[at - 1], np.ones_like(data[at]), noise[at - 1]]))
            for at, letter in ((1, letters[0]), (2, letters[1]))
        )
        dxh, dx, dh = (of_data - of_model for of_data, of_model in zip(data, model, strict=True))
        dW = dxh - np.outer(self.mu, dh) - np.outer(dx, self.lam)
        step = dW, dx - dW @ self.lam, dh - self.mu @ dW
        self.machine = [a + self.its.learning_rate.start * s for a, s in zip(self.machine, step, strict=True)]
        if self.plan.fast_learning_rate:
            self.fast = [
                0.95 * f + self.its.learning_rate.start * s for f, s in zip(self.fast, step, strict=True)
            ]


SOURCES = [*itertools.product(["same", "independent", "exact", "random"], ["samples", "exact"])]


@pytest.mark.parametrize("sampler", ["CD-1", "PCD-2", "PT_4", "FPCD-1"])
@pytest.mark.parametrize(("offsets_from", "gradient_from"), SOURCES)
def test_offsets_and_gradient_have_the_sources_that_they_are_given(sampler, offsets_from, gradient_from):
    its = settings("am^b", sampler=sampler, offsets_from=offsets_from, gradient_from=gradient_from)
    plan, state = begun(its)
    plain = Plain(its, plan, state)
    for update in range(6):
        plain.update(update)
        learn(state, DATA.train, plan, update, update + 1)
        np.testing.assert_allclose(state.mu, plain.mu, atol=1e-5)
        np.testing.assert_allclose(state.lam, plain.lam, atol=1e-5)
        for found, expected in zip(state[:3], plain.machine, strict=True):
            np.testing.assert_allclose(found, expected, atol=3e-5)
    assert (state.aside_h == plain.aside_h).all()
    assert bool(state.aside_h.size) == (offsets_from == "independent")


@pytest.mark.parametrize("sampler", ["CD-1", "PCD-1", "PT_4"])
@pytest.mark.parametrize("offsets_from", ["independent", "exact", "random"])
def test_the_gradients_samples_do_not_depend_on_where_offsets_come_from(sampler, offsets_from):
    ends = []
    for source in ("same", offsets_from):
        plan, state = begun(settings("mm^l", sampler=sampler, offsets_from=source))
        before = copied(state)
        learn(state, DATA.train, plan, 0, 1)  # later: the first step has the same offsets too
        ends.append((before, state))
    (one, after_one), (other, after_other) = ends
    for name in ("W", "b", "c", "mu", "lam", "h"):
        assert (getattr(one, name) == getattr(other, name)).all()
    for name in ("W", "b", "c", "h"):
        assert (getattr(after_one, name) == getattr(after_other, name)).all()
    assert (after_one.mu != after_other.mu).any()


def test_independent_chains_are_others_than_the_gradients():
    plan, state = begun(settings(offsets_from="independent"))
    assert state.aside_h.shape == state.h.shape
    assert (state.aside_h != state.h).any()
    learn(state, DATA.train, plan, 0, 20)
    assert (state.aside_h != state.h).any()


@pytest.mark.parametrize("scheme", ["0m^b", "d0^b"])
def test_random_offsets_leave_the_layers_without_offsets_alone(scheme):
    plan, state = begun(settings(scheme, offsets_from="random"))
    learn(state, DATA.train, plan, 0, 5)
    offsets = {"mu": state.mu, "lam": state.lam}
    still, moving = ("mu", "lam") if scheme[0] == "0" else ("lam", "mu")
    assert (offsets[still] == 0).all()
    noise = noises(plan, 4, 4, 3)
    assert (offsets[moving] == noise[0 if moving == "mu" else 1]).all()
