"""A trial ends in the same bytes if it is stopped, continued, or evaluated by
Python.
"""

import itertools

import numpy as np
import pytest
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.grid.settings import Settings, Trial
from cbm_cli.kernels.compiling import specialised
from cbm_cli.kernels.likelihood import evaluate_exactly, make_exact
from cbm_cli.results import Outcome, Progress, Store
from cbm_cli.trial import learner
from cbm_cli.trial import loop as trial_loop
from cbm_cli.trial.loop import run_trial
from numpy.testing import assert_equal

from tests.journals import writing
from tests.trainings import RBM, THREE_PARTS, TRAININGS, finish_in_pieces, rbm_settings


def same(one, other):
    assert one.columns == other.columns
    for kind in (
        "curve",
        "records",
        "machine",
        "best_machine",
        "pretrained",
        "converged",
    ):
        assert_equal(getattr(one, kind), getattr(other, kind))


def test_a_pause_waits_for_the_end_of_an_evaluation(monkeypatch):
    """A stretch that is shorter than an evaluation still adds a row or updates."""
    monkeypatch.setattr(trial_loop, "LONGEST_CALL", 0.0)
    monkeypatch.setattr(
        "cbm_cli.machines.estimates.LONGEST_CALL", 0.0
    )  # dozens an evaluation
    how = {"method": "ais", "every": 20, "temperatures": 50, "runs": 10}
    trial = Trial("test", rbm_settings(evaluate=how, updates=20, batch=5), 0, 1)
    result, stretches = None, 0
    while not isinstance(result, Outcome):
        asked = itertools.count()
        pause = {
            "should_pause": lambda asked=asked: next(asked) > 0,
            "should_stop": bool,
        }
        result = run_trial(trial, THREE_PARTS, result, **pause)
        stretches += 1
        assert (
            stretches <= 20 + 2
        )  # a call of one update each, and the evaluations at 0 and 20
    same(result, run_trial(trial, THREE_PARTS))


@pytest.mark.parametrize("name", TRAININGS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_stopping_and_evaluations_in_python_change_no_byte(tmp_path, monkeypatch, name):
    both = (Settings(**TRAININGS[name] | {"epochs": n}) for n in (8, 10))
    shorter, trial = (Trial("test", settings, 0, 1) for settings in both)
    whole, stages = run_trial(trial, THREE_PARTS), 3 if name == "pre-training" else 1
    assert whole.converged == (4 if name == "early stopping" else None)
    assert whole.diverged == (32 if name == "divergence" else None)
    store = Store(tmp_path / "test")

    def run(
        since, should_pause
    ):  # an interrupted training goes on to any longer length
        its = trial if since else shorter
        return run_trial(its, THREE_PARTS, since, should_pause=should_pause)

    with monkeypatch.context() as short:
        short.setattr(trial_loop, "LONGEST_CALL", 0.0)  # the most places to stop at
        result, stops = finish_in_pieces(
            run, store, 0.1 if name == "AIS" else 0.3, name
        )
    assert len(stops) > 2
    assert len({stage for stage, _ in stops}) == stages
    same(result, whole)
    with writing(store.folder) as writer:
        writer.write("run", trial, result, "course")
    assert not store.state_path("course", "run", 0).exists()
    monkeypatch.setattr(learner, "make_exact", lambda *_: None)
    same(run_trial(trial, THREE_PARTS), whole)


def test_evaluations_of_a_training_draw_random_numbers_of_their_own():
    """Of one machine: another update or trial gives another estimate, the same one the
    same.
    """
    how = {"method": "ais", "every": 4, "temperatures": 20, "runs": 5}
    settings = Settings(**RBM | {"evaluate": how})
    state = learner.Learner(settings, THREE_PARTS, 1).start()
    state.W[:] *= 10  # so that estimates vary
    estimates = [
        tuple(
            learner.Learner(settings, THREE_PARTS, seed).evaluate(state, update, bool)
        )
        for seed, update in [(1, 0), (1, 4), (1, 8), (2, 0), (2, 4), (1, 0)]
    ]
    assert len({*estimates}) == 5
    assert estimates[0] == estimates[-1]


def test_seconds_are_those_of_all_stretches():
    trial, asked = Trial("test", Settings(**RBM), 0, 1), itertools.count()
    earlier = Progress(None, seconds=1000.0)
    paused = run_trial(trial, THREE_PARTS, earlier, lambda: next(asked) > 0)
    assert isinstance(paused, Progress)
    assert 1000 < paused.seconds < 1400
    before = paused.seconds
    assert before < run_trial(trial, THREE_PARTS, paused).seconds < before + 400


def test_grey_rows_are_evaluated_as_by_python():
    rows = np.random.default_rng(5).integers(0, 256, (20, 6)).astype(np.uint8)
    way = learner.Learner(Settings(**RBM), Dataset("grey", rows, levels=255), 1)
    state = way.start()
    call = state, way.exact, np.inf, np.empty(1)
    assert specialised(evaluate_exactly, *call)(*call)
    way.exact = None
    assert way.evaluate(state, 0, bool) == call[-1].tolist()


def test_larger_machines_are_evaluated_by_python():
    rows = np.zeros((300, 20), np.uint8)
    assert make_exact([rows], 1.0, 4, -1)
    assert make_exact([rows], 1.0, 8, -1) is None  # products of packed rows
    assert make_exact([rows[:2]], 1.0, 13, -1) is None  # 2^13 states
