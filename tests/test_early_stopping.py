"""Early stopping of Boltzmann machines by what is evaluated of the validation part."""

import numpy as np
import pytest

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.grid.settings import Trial
from cbm_cli.machines.likelihood import Method, Parts, evaluate
from cbm_cli.results import run_id
from cbm_cli.trial.checks import check
from cbm_cli.trial.loop import run_trial
from tests.builders import brute_log_likelihoods, finish_in_pieces, rbm_settings, refusal, visible_rows
from tests.oracles import rbm

PLAIN = {"updates": 400, "learning_rate": 0.3, "batch": 5, "sampler": "PCD-1"}
DEEP = {"model": {"kind": "dbm", "hidden": [3, 2]}, "offsets": "ddd^b_s"}
KINDS = {"weights": 2, "biases": 3, "offsets": 3}
METHODS = {"likelihood": "exact", "pseudo-likelihood": "pseudo"}


def data(rows=12, valid=40):
    """Few training rows, which a machine learns by heart, and more validation rows."""
    random = np.random.default_rng(3)
    p = random.random(9)
    train, held = ((random.random((n, 9)) < p).astype(np.uint8) for n in (rows, valid))
    return Dataset("few", train, held)


def settings(metric, how=None, **changes):
    evaluation = {"method": METHODS.get(metric, "exact"), "every": "10 updates"}
    stopping = {"metric": metric} | (how or {}) if metric else {}
    return rbm_settings(**PLAIN, evaluate=evaluation, early_stopping=stopping, **changes)


@pytest.mark.parametrize("look_ahead", [2, 4])
@pytest.mark.parametrize(
    ("metric", "changes"), [("likelihood", {}), ("pseudo-likelihood", {}), ("likelihood", DEEP)]
)
def test_training_stops_where_the_metric_has_not_improved(metric, changes, look_ahead):
    whole = run_trial(Trial("x", settings(None, **changes), 0, 1), data())
    tolerance = 0.05 if changes else 0.001
    own = settings(metric, {"look_ahead": look_ahead, "tolerance": tolerance}, **changes)
    stopped = run_trial(Trial("x", own, 0, 1), data())
    column = stopped.columns.index(
        {"likelihood": "valid_log_likelihood"}.get(metric, "valid_pseudo_likelihood")
    )
    values = stopped.curve[1:, column]
    improves = np.diff(values) > tolerance
    assert len(values) < 40
    assert not improves[-look_ahead:].any()
    runs = np.lib.stride_tricks.sliding_window_view(improves, look_ahead).any(axis=1)
    assert runs[:-1].all()  # not earlier
    best = int(values.argmax())
    assert stopped.converged == round(stopped.curve[1 + best, 1])
    updates = stopped.curve[:, 0]
    np.testing.assert_array_equal(updates, whole.curve[: len(updates), 0])
    machine = stopped.best_machine
    if changes:
        arrays = ([machine[f"{name}_{k}"] for k in range(n)] for name, n in KINDS.items())
        known = brute_log_likelihoods([*arrays], [9, 3, 2])
        places = {tuple(row): place for place, row in enumerate(visible_rows([9, 3, 2]).astype(int).tolist())}
        expected = np.mean([known[places[tuple(row)]] for row in data().valid.tolist()])
        assert expected == pytest.approx(values[best], abs=1e-4)
        return
    W, mu, lam = machine["weights_0"], machine["offsets_0"], machine["offsets_1"]
    plain = rbm(W, machine["biases_0"] - W @ lam, machine["biases_1"] - mu @ W)
    parts = Parts({"valid": data().valid}, 1.0, np.zeros(9, np.float32))
    _, found = evaluate(plain, parts, Method(METHODS[metric], checked=False))
    (quantity,) = (one for one in found["valid"].values() if isinstance(one, dict))
    assert quantity["mean"] == pytest.approx(values[best], abs=1e-4)


def test_stops_and_resumes_change_nothing(tmp_path):
    from cbm_cli.results import Store

    trial = Trial("x", settings("likelihood", {"look_ahead": 3, "tolerance": 0.001}), 0, 1)
    whole = run_trial(trial, data())
    pieces, stops = finish_in_pieces(
        lambda since, pause: run_trial(trial, data(), since, should_pause=pause),
        Store(tmp_path / "x"),
        0.3,
        5,
    )
    assert stops
    np.testing.assert_array_equal(whole.curve, pieces.curve)
    assert whole.converged == pieces.converged


def test_what_cannot_be_watched_is_refused():
    bare = Dataset("bare", data().train)
    error = refusal(check, settings("likelihood"), bare)
    assert (error.field, error.kinds) == ("early_stopping", ("missing",))
    for method, metric in (("exact", "pseudo-likelihood"), ("pseudo", "likelihood"), ("none", "likelihood")):
        changes = {"evaluate": {"method": method}, "early_stopping": {"metric": metric}}
        with pytest.raises(ValueError, match="evaluat"):
            rbm_settings(**changes)


def test_without_a_metric_runs_have_the_names_that_they_had():
    plain = rbm_settings()
    assert "early_stopping_metric" in plain.row()
    assert run_id(plain, 1, "digest") != run_id(
        rbm_settings(early_stopping={"metric": "likelihood"}), 1, "digest"
    )
