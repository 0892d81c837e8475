"""Where the means of offsets and the samples of the gradient come from, against the reference."""

import itertools

import numpy as np
import pytest

from cbm_cli.datasets.catalogue import load
from cbm_cli.grid.settings import Settings
from cbm_cli.trial.learner import Learner
from tests.oracles import Trainer, copied, flat, learn, noises

DATA = load("bars-and-stripes", size=2)


def begun(offsets="mm^b", **changes):
    """The plan and the first state of a training."""
    fixed = {"model": {"kind": "rbm", "hidden": 3}, "learning_rate": 0.2, "updates": 10, "batch": "full"}
    fixed |= {"data": {"name": "bars-and-stripes", "size": 2}, "weight_scale": 0.7, "sampler": "PCD-1"}
    learner = Learner(Settings(**fixed | {"offsets": offsets} | changes), DATA, 3)
    return learner.plan, learner.start()


SOURCES = [*itertools.product(["same", "independent", "exact", "random"], ["samples", "exact"])]


@pytest.mark.parametrize("sampler", ["PCD-2", "PT_4", "FPCD-1"])
@pytest.mark.parametrize(("offsets_from", "gradient_from"), SOURCES)
def test_offsets_and_gradient_have_the_sources_that_they_are_given(sampler, offsets_from, gradient_from):
    plan, state = begun("am^b", sampler=sampler, offsets_from=offsets_from, gradient_from=gradient_from)
    trainer = Trainer(state, plan)
    for update in range(4):
        trainer.update(DATA.train, update)
        learn(state, DATA.train, plan, update, update + 1)
        for found, expected in zip(state[3:5], trainer.offsets, strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-5)
        np.testing.assert_allclose(flat(*state[:3]), flat(*trainer.theta), atol=3e-5)
    assert (state.aside_h == trainer.aside_h).all()
    assert bool(state.aside_h.size) == (offsets_from == "independent")


@pytest.mark.parametrize("sampler", ["CD-1", "PCD-1", "PT_4"])
@pytest.mark.parametrize("offsets_from", ["independent", "exact", "random"])
def test_the_gradients_samples_do_not_depend_on_where_offsets_come_from(sampler, offsets_from):
    ends = []
    for source in ("same", offsets_from):
        plan, state = begun("mm^l", sampler=sampler, offsets_from=source)
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
    plan, state = begun(offsets_from="independent")
    assert state.aside_h.shape == state.h.shape
    assert (state.aside_h != state.h).any()
    learn(state, DATA.train, plan, 0, 20)
    assert (state.aside_h != state.h).any()


@pytest.mark.parametrize("scheme", ["0m^b", "d0^b"])
def test_random_offsets_leave_the_layers_without_offsets_alone(scheme):
    plan, state = begun(scheme, offsets_from="random")
    learn(state, DATA.train, plan, 0, 5)
    offsets = {"mu": state.mu, "lam": state.lam}
    still, moving = ("mu", "lam") if scheme[0] == "0" else ("lam", "mu")
    assert (offsets[still] == 0).all()
    noise = noises(plan, 4, 4, 3)
    assert (offsets[moving] == noise[0 if moving == "mu" else 1]).all()
