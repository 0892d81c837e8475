"""Early stopping of Boltzmann machines by what is evaluated of the validation part."""

import io
from pathlib import Path

import numpy as np
import pytest
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.grid.settings import Trial
from cbm_cli.machines.files import read_machine
from cbm_cli.machines.likelihood import Method, Parts, evaluate
from cbm_cli.trial.loop import run_trial

from tests.trainings import rbm_settings


def data():
    rows = np.random.default_rng(3).random((53, 9)) < np.random.default_rng(3).random(9)
    return Dataset("few", *np.split(rows[:52].astype(np.uint8), [12]))


METHODS = {"likelihood": "exact", "pseudo-likelihood": "pseudo"}
COLUMNS = {"likelihood": "log_likelihood", "pseudo-likelihood": "pseudo_likelihood"}
DEEP = {"model": {"kind": "dbm", "hidden": [3, 2]}, "offsets": "ddd^b_s"}


def settings(metric, how=None, **changes):
    its = {"early_stopping": {"metric": metric} | how} if how else {}
    its |= {"evaluate": {"method": METHODS[metric], "every": "10 updates"}}
    return rbm_settings(
        **{"updates": 400, "learning_rate": 0.3, "batch": 5} | its | changes
    )


def valid_of(machine, metric="likelihood"):
    np.savez(stream := io.BytesIO(), **machine)
    parts = Parts({"valid": data().valid}, 1.0, np.zeros(9, np.float32))
    machine = read_machine(Path("m.npz"), stream.getvalue())
    found = evaluate(machine, parts, Method(METHODS[metric]))[1]["valid"]
    return found[COLUMNS[metric]]["mean"]


@pytest.mark.parametrize(
    ("metric", "changes", "look_ahead", "tolerance"),
    [
        ("pseudo-likelihood", {}, 2, 0.001),
        ("likelihood", DEEP, 2, 0.05),
        ("likelihood", {}, 3, 100),  # at the first evaluations that can tell
        ("likelihood", {"evaluate": {"every": "1 updates"}}, 5, 1),  # epochs have 2
    ],
)
def test_training_stops_where_the_metric_has_not_improved(
    monkeypatch, metric, changes, look_ahead, tolerance
):
    monkeypatch.setattr(
        "cbm_cli.trial.loop._IMPROVEMENT", tolerance
    )  # sooner than by 0.00001
    its = settings(metric, {"look_ahead": look_ahead}, **changes)
    stopped = run_trial(Trial("x", its, 0, 1), data())
    values = stopped.curve[1:, stopped.columns.index(f"valid_{COLUMNS[metric]}")]
    improves = np.diff(values) > tolerance
    assert len(values) < 40
    assert not improves[-look_ahead:].any()
    runs = np.lib.stride_tricks.sliding_window_view(improves, look_ahead).any(axis=1)
    assert runs[:-1].all()  # not earlier
    best = int(values.argmax())
    assert stopped.converged == stopped.curve[1 + best, 1]
    assert valid_of(stopped.best_machine, metric) == pytest.approx(
        values[best], abs=1e-4
    )


def test_epoch_of_convergence_may_be_a_part_of_one(monkeypatch):
    """With an evaluation an update and one epoch in all, epochs are no whole numbers,
    and never 0 unless the best is the start.
    """
    monkeypatch.setattr("cbm_cli.trial.loop._IMPROVEMENT", 100)
    often = {"method": "exact", "every": "3 updates"}
    rows = np.random.default_rng(3).integers(0, 2, (200, 6)).astype(np.uint8)
    few = Dataset("few", rows, rows[:20])
    how = settings("likelihood", {"look_ahead": 2}, evaluate=often, batch=5)
    stopped = run_trial(Trial("x", how, 0, 1), few)  # 40 updates an epoch
    valid = stopped.curve[1:, stopped.columns.index("valid_log_likelihood")]
    assert stopped.converged == 3 * (1 + int(valid.argmax())) / 40
    assert 0 < stopped.converged < 0.5


def test_an_estimate_that_is_not_believed_is_never_the_best(monkeypatch):
    first = lambda name, row: row[name] if row["update"] == 10 else np.nan  # noqa: E731
    monkeypatch.setattr("cbm_cli.trial.loop.believed", first)
    found = run_trial(Trial("x", settings("likelihood"), 0, 1), data())
    assert valid_of(found.best_machine) == pytest.approx(found.curve[1, 3], abs=1e-4)
    assert found.curve[:, 3].argmax() > 1
