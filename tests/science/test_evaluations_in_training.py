"""Exact evaluations that the training loop makes itself: the bytes of those in Python."""

from itertools import count

import numpy as np
import pytest
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.grid.settings import Trial
from cbm_cli.kernels.states import make_exact
from cbm_cli.results import Progress
from cbm_cli.trial import learner
from cbm_cli.trial.loop import run_trial

from tests.trainings import rbm_settings

RNG = np.random.default_rng(5)
ROWS = [(RNG.random((n, 6)) < 0.4).astype(np.uint8) for n in (30, 250, 9)]
PARTS = Dataset("rows", ROWS[0], valid=ROWS[2], test=ROWS[1])
GREY = Dataset("grey", RNG.integers(0, 256, (20, 6)).astype(np.uint8), levels=255)
ASIDE = {"sampler": "PT_4", "offsets_from": "independent"}
TRIALS = {
    "PCD-1": ({}, Dataset("rows", ROWS[0])),
    "PT_4, another sampler for offsets": (ASIDE, PARTS),
    "more hidden units than visible ones": ({"model": {"kind": "rbm", "hidden": 9}}, PARTS),
    "grey rows, momentum": ({"momentum": 0.5}, GREY),
    "a last evaluation alone": ({"evaluate": {"every": 99}}, PARTS),
    "natural": ({"gradient": {"kind": "natural"}, "sampler": "exact", "offsets": "00"}, PARTS),
    "recorded": ({"record": {"what": "weight_norms", "every": 3, "window": "20-40"}}, PARTS),
    "diverges": ({"learning_rate": 3e38, "evaluate": {"every": 1}}, PARTS),
    "one part": ({"evaluate": {"every": 7, "parts": "test"}}, PARTS),
}


def outcome(name, pause=lambda: False):
    changes, data = TRIALS[name]
    base = {"updates": 100, "batch": 10, "evaluate": {"every": 7}}
    trial = Trial("test", rbm_settings(**base | changes), 0, 1)
    made = run_trial(trial, data, should_pause=pause)
    while isinstance(made, Progress):
        made = run_trial(trial, data, made, should_pause=pause)
    machines = [made.machine, made.best_machine or {}]
    arrays = [made.curve, *(array for machine in machines for array in machine.values())]
    arrays += [] if made.records is None else [made.records]
    return made.columns, made.diverged, [array.tobytes() for array in arrays]


@pytest.mark.parametrize("name", TRIALS)
def test_a_trial_ends_in_the_same_bytes_as_if_python_made_its_evaluations(name, monkeypatch):
    made, asked = [], learner.Learner.advance_through
    counting = lambda *given: (made.append(1), asked(*given))[1]  # noqa: E731
    monkeypatch.setattr(learner.Learner, "advance_through", counting)
    found, turns = outcome(name), count()
    assert found[1] == (2 if name == "diverges" else None)
    assert made
    assert outcome(name, lambda: next(turns) % 3 == 2) == found  # stopped after every other call
    monkeypatch.setattr(learner, "make_exact", lambda *_: None)
    made.clear()
    assert outcome(name) == found
    assert not made


def test_larger_machines_are_evaluated_by_python():
    rows = np.zeros((300, 20), np.uint8)
    assert make_exact([rows], 1.0, 4, -1)
    assert make_exact([rows], 1.0, 8, -1) is None  # products of packed rows
    assert make_exact([rows[:2]], 1.0, 13, -1) is None  # 2^13 states
