"""Where the means of offsets and the samples of the gradient come from, against the reference."""

import numpy as np
import pytest
from cbm_cli.datasets.loading import load
from cbm_cli.trial.learner import Learner
from numpy.testing import assert_allclose

from tests.oracles import Trainer, flat, learn, noises
from tests.trainings import rbm_settings

DATA = load("bars-and-stripes", size=2)


def begun(offsets, **changes):
    """The plan and the first state of a training."""
    its = {"offsets": offsets, "learning_rate": 0.2, "batch": "full", "weight_scale": 0.7}
    learner = Learner(rbm_settings(**its | changes), DATA, 3)
    return learner.plan, learner.start()


@pytest.mark.parametrize("sampler", ["CD-1", "PCD-2", "PT_4"])
@pytest.mark.parametrize("offsets_from", ["same", "independent", "exact", "random"])
@pytest.mark.parametrize("gradient_from", ["samples", "exact"])
def test_offsets_and_gradient_have_the_sources_that_they_are_given(
    sampler, offsets_from, gradient_from
):
    how = {"sampler": sampler, "offsets_from": offsets_from, "gradient_from": gradient_from}
    plan, state = begun("am^b", **how)
    assert plan.exact == (gradient_from == "exact")
    trainer = Trainer(state, plan)
    for update in range(4):
        trainer.update(DATA.train, update)
        learn(state, DATA.train, plan, update, update + 1)
        assert_allclose(np.append(state.mu, state.lam), np.concatenate(trainer.offsets), atol=1e-5)
        assert_allclose(flat(*state[:3]), flat(*trainer.theta), atol=3e-5)
    assert (state.aside_h is not None) == (offsets_from == "independent")
    if state.aside_h is not None:
        assert (state.aside_h == trainer.aside_h).all()
        assert (state.aside_h != state.h).any()


@pytest.mark.parametrize("scheme", ["0m^b", "d0^b"])
def test_random_offsets_leave_the_layers_without_offsets_alone(scheme):
    plan, state = begun(scheme, offsets_from="random")
    learn(state, DATA.train, plan, 0, 5)
    for letter, found, noise in zip(
        scheme, (state.mu, state.lam), noises(plan, 4, 4, 3), strict=False
    ):
        assert (found == (0 if letter == "0" else noise)).all()
