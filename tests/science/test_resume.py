"""A trial that is stopped anywhere and goes on ends in the same bytes as one that ran through."""

import itertools

import numpy as np
import pytest
from cbm_cli.grid.settings import Settings, Trial
from cbm_cli.results import Outcome, Store
from cbm_cli.trial import loop as trial_loop
from cbm_cli.trial.loop import run_trial
from numpy.testing import assert_equal

from tests.trainings import THREE_PARTS, TRAININGS, finish_in_pieces, rbm_settings


def settings(**changes):
    base = {"offsets": "aa^b_s", "sampler": "PT_3", "updates": 60, "batch": 5}
    return rbm_settings(**base | {"evaluate": {"every": 7}} | changes)


def same(one, other):
    assert one.columns == other.columns
    for kind in ("curve", "machine", "best_machine", "pretrained", "converged"):
        assert_equal(getattr(one, kind), getattr(other, kind))


def test_a_pause_waits_for_the_end_of_an_evaluation(monkeypatch):
    """A stretch that is shorter than an evaluation still adds a row or updates."""
    monkeypatch.setattr(trial_loop, "LONGEST_CALL", 0.0)
    monkeypatch.setattr("cbm_cli.machines.estimates.LONGEST_CALL", 0.0)  # dozens an evaluation
    how = {"method": "ais", "every": 20, "temperatures": 50, "runs": 10}
    trial = Trial("test", settings(evaluate=how, updates=20), 0, 1)
    result, stretches = None, 0
    while not isinstance(result, Outcome):
        asked = itertools.count()
        pause = {"should_pause": lambda asked=asked: next(asked) > 0, "should_stop": bool}
        result = run_trial(trial, THREE_PARTS, result, **pause)
        stretches += 1
        assert stretches <= 20 + 2  # a call of one update each, and the evaluations at 0 and 20
    same(result, run_trial(trial, THREE_PARTS))


STOPPED = [
    "PT",
    "CD with batches of all rows",
    "second sampler",
    "AIS",
    "early stopping",
    "DBM",
    "pre-training",
]


@pytest.mark.parametrize("name", STOPPED)
def test_stopping_at_random_points_changes_no_byte(tmp_path, monkeypatch, name):
    monkeypatch.setattr(trial_loop, "LONGEST_CALL", 0.0)  # the most places to stop at
    length = {"epochs": 10} if name == "early stopping" else {"epochs": None, "updates": 30}
    trial = Trial("test", Settings(**TRAININGS[name] | length), 0, 1)
    whole = run_trial(trial, THREE_PARTS)
    assert whole.converged == (4 if name == "early stopping" else None)
    store = Store(tmp_path / "test")

    def run(since, should_pause):
        return run_trial(trial, THREE_PARTS, since, should_pause=should_pause)

    result, stops = finish_in_pieces(run, store, 0.1 if name == "AIS" else 0.3, name)
    assert len(stops) > 2
    assert len({stage for stage, _ in stops}) == (3 if name == "pre-training" else 1)
    same(result, whole)
    store.write("run", trial, result, "course")
    assert not store.state_path("course", "run", 0).exists()


def test_a_value_that_is_not_finite_is_a_divergence_at_its_update():
    """Parameters of 1e38 are finite, sums of them are not."""
    trials = [Trial("test", settings(learning_rate=rate), 0, 1) for rate in (1e30, 3e38)]
    outcomes = [run_trial(trial, THREE_PARTS) for trial in trials]
    assert [outcome.diverged for outcome in outcomes] == [None, 7]
    assert [outcome.curve[-1, 0] for outcome in outcomes] == [60, 7]
    assert (outcomes[0].curve[:, 2:] < 0).all()
    assert np.isfinite(outcomes[1].curve[:-1]).all()
    assert np.isnan(outcomes[1].curve[-1, 2:]).all()
