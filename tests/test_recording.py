"""Snapshots and records on the way of a training: taken where asked for, the same bytes however it ran."""

import csv
import itertools
import random
from pathlib import Path

import numpy as np
import pytest

from cbm_cli.datasets import load
from cbm_cli.grid.settings import Settings, Trial
from cbm_cli.kernels.machine import empty_trail
from cbm_cli.results import Progress, Store
from cbm_cli.trial import recorders
from cbm_cli.trial import loop as trial_loop
from cbm_cli.trial.learner import Learner
from cbm_cli.trial.recorders import Context, Recording, record
from cbm_cli.trial.loop import run_trial
from tests.builders import GRID, cbm, files, summary
from tests.oracles import advance, copied, learn, log_likelihoods, plan, random_state, states
from tests.test_recorders import example_of_the_docs

ROWS = states(5)[[1, 2, 4, 8, 16, 17, 30]].astype(np.uint8)
MARKS = np.array([0, 3, 7, 8, 19])


# Trails


@pytest.mark.parametrize("order", ["b", "l"], ids=["before", "later"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"sampler": "exact"}, {"sampler": "PT_3"}, {"gradient": {"scale_to": "standard"}}],
    ids=["PCD-1", "exact", "PT_3", "scaled"],
)
def test_snapshots_are_the_states_that_stopping_finds(changes, order):
    learner = Learner(settings({}, offsets=f"am^{order}_s", **changes), DATA, 1)
    state = random_state(*learner.sizes, learner.plan, seed=1)
    trail, start = empty_trail(*learner.sizes, MARKS), copied(state)
    advance(learner, state, 0, 20, trail)
    for k, mark in enumerate(MARKS):
        stopped = copied(start)
        advance(learner, stopped, 0, mark)
        for name in "Wbc":
            np.testing.assert_array_equal(getattr(trail, name)[k], getattr(stopped, name))
        if order == "b":
            advance(learner, stopped, mark, mark + 1)  # offsets that have moved before this step
        for name in ("mu", "lam"):
            np.testing.assert_array_equal(getattr(trail, name)[k], getattr(stopped, name))


def test_a_trail_changes_no_training_and_is_filled_piece_by_piece():
    its = plan(5, 3, len(ROWS))
    bare, whole, pieces = (random_state(5, 3, its, seed=1) for _ in range(3))
    trail, seen = empty_trail(5, 3, MARKS), []
    learn(bare, ROWS, its, 0, 20)
    learn(whole, ROWS, its, 0, 20, trail)
    for first, last in itertools.pairwise([0, 1, 7, 8, 20]):
        part = empty_trail(5, 3, MARKS[(first <= MARKS) & (last > MARKS)])
        learn(pieces, ROWS, its, first, last, part)
        seen.append(part)
    for one, other, third in zip(bare, whole, pieces, strict=True):
        assert one.tobytes() == other.tobytes() == third.tobytes()
    for together, *parts in zip(trail, *seen, strict=True):
        np.testing.assert_array_equal(np.concatenate(parts), together)


# Records of a trial


DATA = load("bars-and-stripes", size=2)


def settings(record, **changes):
    base = {
        "data": {"name": "bars-and-stripes", "size": 2},
        "model": {"kind": "rbm", "hidden": 3},
        "offsets": "aa^b_s",
        "sampler": "PCD-1",
        "learning_rate": 0.1,
        "updates": 60,
        "batch": 4,
        "evaluate": {"every": 20},
        "record": record,
    }
    return Settings(**base | changes)


def run(its, **options):
    return run_trial(Trial("test", its, 0, 1), DATA, **options)


WHEN = [
    ({}, [0, 20, 40, 60]),
    ({"every": 25}, [0, 25, 50, 60]),
    ({"every": "2 epochs"}, range(0, 61, 4)),
    ({"window": "7-11"}, [0, 7, 8, 9, 10, 11, 20, 40, 60]),
    ({"window": "0-2+58-90"}, [0, 1, 2, 20, 40, 58, 59, 60]),
    ({"every": 1}, range(61)),
]


@pytest.mark.parametrize(("when", "updates"), WHEN)
def test_records_are_of_the_updates_asked_for_and_of_the_end(when, updates):
    outcome = run(settings({"what": "weight_norms"} | when))
    assert outcome.recorded == ("update", "weight_norm", "weight_row_norm", "weight_column_norm")
    assert outcome.records[:, 0].tolist() == list(updates)


def test_a_record_is_that_of_the_machine_that_stopping_finds():
    names = ("log_likelihood", "bias_norms", "offset_error", "gradient_norms")
    its = settings({"what": "+".join(names), "every": 13})
    learner = Learner(its, DATA, Trial("test", its, 0, 1).seed)
    outcome = run(its)
    for row in outcome.records[:-1]:
        state, update = learner.start(), int(row[0])
        trail = empty_trail(4, 3, np.array([update]))
        learn(state, DATA.train, learner.plan, 0, update)
        machine = copied(state)[:3]
        learn(state, DATA.train, learner.plan, update, update + 1, trail)
        found = record(names, trail, Context(DATA, its, (), 0))
        np.testing.assert_allclose(row[1:], [values[0] for values in found.values()], rtol=1e-12)
        assert row[1] == pytest.approx(log_likelihoods(*machine, DATA.train).mean(), abs=2e-6)


def test_the_recorded_likelihood_is_the_curves():
    outcome = run(settings({"what": "log_likelihood"}))
    np.testing.assert_array_equal(outcome.records, outcome.curve[:, [0, 2]])
    assert outcome.summary()["log_likelihood_final"] == outcome.curve[-1, 2]


def test_a_training_is_the_same_with_recorders_and_without():
    bare = run(settings({}))
    assert (bare.recorded, bare.records) == ((), None)
    recorded = run(settings({"what": "weight_norms+offset_error", "every": 1}))
    assert recorded.curve.tobytes() == bare.curve.tobytes()
    for name, array in bare.machine.items():
        assert array.tobytes() == recorded.machine[name].tobytes()


def test_a_recorder_that_writes_into_its_snapshots_changes_no_machine():
    def careless(snapshots, context):
        snapshots.W[:] = 0
        return {"nothing": np.zeros(len(snapshots.update))}

    found = run(settings({"what": "mine.py:careless"}), recorders={"mine.py:careless": careless})
    for name, array in run(settings({})).machine.items():
        assert array.tobytes() == found.machine[name].tobytes()


def together(snapshots, context):
    """How many snapshots a recorder saw at once: what rounding may depend on."""
    return {"together": np.full(len(snapshots.update), float(len(snapshots.update)))}


def test_a_stretch_has_no_more_snapshots_than_a_group(monkeypatch):
    monkeypatch.setattr(recorders, "GROUP_BYTES", 4 * 5 * 4 * 3)
    its = settings({"what": "weight_norms", "window": "7-17"})
    records = Recording(its, DATA, 1, {}, 60)
    first, seen = 0, []
    while first < 60:
        trail, last = records.trail(first, 60)
        assert trail.W.shape == (len(trail.update), 4, 3)
        assert len(trail.update) <= 3
        assert ((trail.update >= first) & (trail.update < last)).all()
        seen += trail.update.tolist()
        first = last
    assert seen == [0, *range(7, 18), 20, 40]


@pytest.mark.parametrize("when", [when for when, _ in WHEN])
@pytest.mark.parametrize("bytes_of_a_group", [4 * 5 * 4 * 3, 32_000_000])  # three snapshots, or all
def test_records_are_the_same_bytes_wherever_a_trial_was_stopped(
    tmp_path, monkeypatch, when, bytes_of_a_group
):
    monkeypatch.setattr(recorders, "GROUP_BYTES", bytes_of_a_group)
    its = settings({"what": "weight_norms+bias_norms+offset_error+mine.py:together"} | when)
    mine = {"mine.py:together": together}
    whole, store, dice = run(its, recorders=mine), Store(tmp_path), random.Random(str(when))
    monkeypatch.setattr(trial_loop, "LONGEST_CALL", 0.0)  # the shortest calls: the most places to stop at
    stopping, stops = {"recorders": mine, "should_pause": lambda: dice.random() < 0.3}, 0
    result = run(its, **stopping)
    while isinstance(result, Progress):
        stops += 1
        store.write_progress("run", 0, result)
        result = run(its, since=store.progress("run", 0), **stopping)
    assert stops > 3
    assert result.recorded == whole.recorded
    assert result.records.tobytes() == whole.records.tobytes()
    assert result.curve.tobytes() == whole.curve.tobytes()


def test_long_calls_record_the_same_as_short_ones(monkeypatch):
    its = settings({"what": "weight_norms", "every": 1})
    short = run(its)
    monkeypatch.setattr(trial_loop, "LONGEST_CALL", 1e9)
    assert run(its).records.tobytes() == short.records.tobytes()


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_what_diverged_has_no_values_and_ends_the_records():
    outcome = run(settings({"what": "weight_norms", "every": 1}, learning_rate=1e39))
    assert outcome.diverged == 20
    assert outcome.records[:, 0].tolist() == list(range(20))
    assert np.isfinite(outcome.records[0]).all()
    assert np.isnan(outcome.records[5:, 1:]).all()


# From end to end


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(example_of_the_docs())
    return tmp_path


def write_grid(what="weight_norms+mine.py:filter_cosine", more=""):
    record = f"    record: {{what: {what}, every: 10, window: 41-43}}\n{more}"
    Path("grid.yaml").write_text(GRID.replace("    table:", f"{record}    table:"))


def records_of(path):
    with open(path, newline="") as stream:
        return list(csv.DictReader(stream))


def test_ones_own_recorder_is_recorded_here_and_on_workers(folder):
    write_grid()
    cbm("run", "grid.yaml", "-o", "here", "-j", 0, "--no-table")
    cbm("run", "grid.yaml", "-o", "there", "-j", 1, "--no-table")
    here, there = files("here", ".csv", ".npz"), files("there", ".csv", ".npz")
    for found in (here, there):
        found.pop("bars/summary.csv")  # it has the seconds
    assert here == there
    paths = sorted(Path("here").rglob("*.records.csv"))
    assert len(paths) == 8
    for path in paths:
        rows = records_of(path)
        assert [int(row["update"]) for row in rows] == [*range(0, 41, 10), 41, 42, 43, *range(50, 101, 10)]
        assert list(rows[0])[1:] == ["weight_norm", "weight_row_norm", "weight_column_norm", "filter_cosine"]
        with np.load(path.with_name(path.name.replace(".records.csv", ".npz"))) as machine:
            W = machine["weights_0"].astype(float)
        unit = W / np.linalg.norm(W, axis=0)
        cosines = np.abs(unit.T @ unit)[np.triu_indices(3, 1)]
        assert float(rows[-1]["filter_cosine"]) == pytest.approx(cosines.mean(), rel=1e-6)
        assert float(rows[-1]["weight_norm"]) == pytest.approx(np.linalg.norm(W), rel=1e-6)
    assert all(float(row["filter_cosine_final"]) > 0 for row in summary("here"))
    assert "All 8 trials are done" in cbm("run", "grid.yaml", "-o", "here", "-j", 0).stderr


def test_another_recorder_in_the_same_file_is_run_afresh(folder):
    write_grid()
    cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--no-table")
    text = Path("mine.py").read_text()
    Path("mine.py").write_text(text.replace('{"filter_cosine": (', '{"filter_cosine": 1 + ('))
    assert "nothing to run" not in cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--no-table").stderr
    assert all(float(row["filter_cosine_final"]) > 1 for row in summary("out"))


@pytest.mark.parametrize(
    ("what", "source", "words"),
    [
        ("mine.py:cosine", None, "mine.py has no function cosine; did you mean"),
        ("other.py:f", None, "other.py: No such file or directory; paths are relative to the grid's folder"),
        ("mine.py:f", "def f(s, c:\n", "mine.py, line 1: SyntaxError"),
        ("weight_norm", None, "there is no recorder weight_norm; did you mean weight_norms"),
        ("mine.py", None, "there is no recorder mine.py; a recorder of your own is written file.py:function"),
    ],
)
def test_a_recorder_that_cannot_be_is_refused_before_anything_runs(folder, what, source, words):
    write_grid(what)
    if source:
        Path("mine.py").write_text(source)
    assert words in cbm("run", "grid.yaml", "-o", "out", "-j", 0, code=2).stderr
    assert not Path("out").exists()


@pytest.mark.parametrize("jobs", [0, 1])
def test_a_recorder_that_fails_fails_its_trials_with_file_and_line(folder, jobs):
    write_grid("mine.py:f")
    Path("mine.py").write_text("def f(snapshots, context):\n    return {'mine': 1 / 0}\n")
    result = cbm("run", "grid.yaml", "-o", "out", "-j", jobs, "--no-table", code=1)
    assert "8 trials failed" in result.stderr
    assert "record: mine.py, line 2, in f: ZeroDivisionError: division by zero" in result.stderr
    assert not list(Path("out").rglob("trial-*.csv"))
    assert "ZeroDivisionError" in next(Path("out").rglob("*.error.txt")).read_text()


def test_a_column_that_two_recorders_give_is_refused(folder):
    write_grid("weight_norms+mine.py:f")
    Path("mine.py").write_text("def f(s, c):\n    return {'weight_norm': 1.0 * s.update}\n")
    result = cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--no-table", code=1)
    assert "mine.py:f gives a column weight_norm, which is there already; rename it" in result.stderr


def test_a_copied_trial_brings_its_records(folder):
    write_grid()
    cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--no-table")
    Path("grid.yaml").write_text(Path("grid.yaml").read_text().replace("bars:", "bars-again:"))
    assert "All 8 trials are done" in cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--no-table").stderr
    one, other = files("out/bars/trials", ".csv"), files("out/bars-again/trials", ".csv")
    assert one == other
    assert sum(name.endswith(".records.csv") for name in other) == 8


def test_every_kind_of_file_stands_in_the_docs(folder):
    write_grid()
    cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--no-table")
    docs = Path(__file__).resolve().parents[1] / "docs" / "formats.md"
    text = docs.read_text(encoding="utf-8")
    trials = Path("out").glob("*/trials/*/*-000*")
    kinds = {path.name.replace("-000", "-007") for path in trials}
    assert "ends/<run-id without length>/trial-007-2000.npz " in text
    assert kinds == {"trial-007.csv", "trial-007.npz", "trial-007.json", "trial-007.records.csv"}
    for kind in kinds:
        assert f"trials/<run-id>/{kind} " in text
