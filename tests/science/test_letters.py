"""A letter that is added as CONTRIBUTING says: one row of `LETTERS`, nothing else."""

from itertools import product

import numpy as np
import pytest
from cbm_cli.datasets.loading import load
from cbm_cli.errors import CbmError
from cbm_cli.grid.names import Scheme
from cbm_cli.grid.read import read_grid
from cbm_cli.grid.settings import Settings, Trial
from cbm_cli.letters import LETTERS, Letter
from cbm_cli.trial.loop import run_trial
from cbm_cli.trial.start import first_machine, make_plan

from tests.builders import grid_text

BAR = {"name": "shifting-bar", "size": 4, "bar": 1}
EXACT = {
    "model": {"kind": "rbm", "hidden": 3},
    "sampler": "exact",
    "learning_rate": 1.0,
    "updates": 600,
    "batch": "full",
}


@pytest.fixture
def q(monkeypatch):
    """A letter of three quarters of the data mean and a quarter of the model mean."""
    row = Letter("three quarters of the data mean", data=3 / 4, model=1 / 4)
    monkeypatch.setitem(LETTERS, "q", row)
    yield row
    Scheme.parse.cache_clear()


def settings(offsets, **changes):
    return Settings(**EXACT | {"data": BAR, "offsets": offsets} | changes)


def curve(offsets, flip):
    """Train on a data set or on its flipped one; return the log-likelihoods."""
    data = BAR | {"flip": flip}
    trial = Trial("toy", settings(offsets, data=data), number=0, base_seed=5)
    outcome = run_trial(trial, load(**data))
    return outcome.curve[:, outcome.columns.index("train_log_likelihood")]


def test_a_new_letter_is_in_names_and_messages(q):
    assert str(Scheme.parse("qq_s^b")) == "qq^b_s"
    with pytest.raises(CbmError, match="q three quarters of the data mean"):
        Scheme.parse("xx")


def test_a_new_letter_starts_visible_offsets_at_the_data_mean(q):
    data = load(**BAR)
    machine = first_machine(settings("qq^b"), data, 1)
    assert np.allclose(machine.offsets[0], data.train.mean(axis=0))
    assert np.allclose(machine.offsets[1], 1 / 2)


def test_a_new_letter_mixes_both_means(q):
    plan = make_plan(settings("qq^b"), load(**BAR), seed=1)
    shares = np.transpose([[3 / 4, 1 / 4, 0, 0]] * 4)
    assert np.array_equal(plan.offsets.mu_mix, shares)


def test_training_with_a_new_letter_is_flip_invariant(q):
    for offsets in ("qq^b", "qq^l_s"):
        plain, flipped = (curve(offsets, flip) for flip in (False, True))
        assert plain[-1] > plain[0] + 0.5  # it trains
        # The start alone is not: plain hidden biases are 0 in both.
        assert flipped == pytest.approx(plain, abs=0.004)
    plain, flipped = (curve("00", flip) for flip in (False, True))
    assert np.abs(plain - flipped).max() > 0.02


def test_auto_encoders_refuse_a_new_letter_that_needs_the_model(q):
    text = grid_text("auto-encoder", offsets="qd^b")
    with pytest.raises(CbmError, match=r"qd\^b needs a model mean"):
        read_grid("grid.yaml", text=text)


def test_a_new_letter_needs_no_fixed_mean(q):
    fixed = {"visible": 0, "hidden": 0.1}
    with pytest.raises(ValueError, match="at the data mean; qd\\^b_s has q"):
        settings("qd^b_s", sliding_factor=fixed)


def test_rows_decide_as_the_paper_describes_each_letter():
    assert [*LETTERS] == [*"0dmahr"]
    facts = {letter: set() for letter in LETTERS}
    names = ("is_none", "is_fixed", "is_data_mean", "needs_model", "starts_at_mean")
    for (letter, row), name in product(LETTERS.items(), names):
        if getattr(row, name):
            facts[letter].add(name)
    assert facts == {
        "0": {"is_none", "is_fixed"},
        "d": {"is_data_mean", "starts_at_mean"},
        "m": {"needs_model", "starts_at_mean"},
        "a": {"needs_model", "starts_at_mean"},
        "h": {"is_fixed"},
        "r": set(),
    }
    assert {letter: row.start for letter, row in LETTERS.items()} == {
        "0": 0,
        **dict.fromkeys("dmahr", 1 / 2),
    }
    assert LETTERS["a"].shares == (1 / 2, 1 / 2, 0, 0)
