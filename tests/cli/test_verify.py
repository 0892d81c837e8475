"""cbm verify: finished trials run again, here or on another computer."""

import json
import shutil
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from cbm_cli.datasets.loading import load
from cbm_cli.execution import verify as verifying
from cbm_cli.grid.settings import Settings, Trial
from cbm_cli.kernels.computer import combined, computer
from cbm_cli.results import Outcome, Results, Store
from cbm_cli.results.states import read_progress
from cbm_cli.trial import learner
from cbm_cli.trial.loop import run_trial

from tests.builders import cbm, numbers, problems_of, refusal, run_grid
from tests.golden.cases import _BASE, CASES
from tests.journals import change_manifest, damage, finished_in, lines_of, writing
from tests.networks import file_of

# Experiments of every kind of machine and of start, with data and a recorder of one's
# own.
EVERYTHING = """
defaults: {trials: 2, seed: 3, updates: 40, batch: full, learning_rate: 0.1, offsets: dd^b,
  data: {name: bars-and-stripes, size: 2}, model: {kind: rbm, hidden: 3}, sampler: CD-1}
experiments:
  bars: {evaluate: {method: ais, every: 20, temperatures: 10, runs: 5}}
  from-bars: {start_from: {experiment: bars}}
  from-file: {start_from: {path: "start-{trial}.npz"}}
  own: {data: {path: rows.csv}, record: {what: own.py:norm}}
  deep: {model: {kind: dbm, hidden: [3, 2]}, offsets: ddd^b, pretraining: {epochs: 3}}
  encoder: {data: {name: bars-and-stripes, size: 3, hold_out: 4},
    model: {kind: auto-encoder, hidden: half}, evaluate: {every: 1 epoch}}
"""
NAMES = "bars", "from-bars", "from-file", "own", "deep", "encoder"
RECORDER = (
    "def norm(snapshots, context):\n    return {'norm': "
    "abs(snapshots.W).sum(axis=(1, 2))}\n"
)


def verify(*arguments, sample="all", code=0):
    """What is found of trials, by experiment and number."""
    words = "--sample", sample, "--json", "-j", 0
    lines = cbm("verify", "out", *arguments, *words, code=code).stdout.splitlines()
    return {
        (found["experiment"], found["number"]): found
        for found in map(json.loads, lines)
    }


def verdicts(found):
    return {key: one["verdict"] for key, one in found.items()}


def said(sample, *words, code=0):
    """Lines of stdout, and the last of stderr."""
    result = cbm("verify", "out", "--sample", sample, *words, "-j", 0, code=code)
    return result.stdout.splitlines(), result.stderr.splitlines()[-1]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Results of every kind, and a copy of them: they know the path of their grid."""
    folder = tmp_path_factory.mktemp("everything")
    np.savetxt(folder / "rows.csv", np.eye(4, dtype=int), "%d", ",")
    (folder / "own.py").write_text(RECORDER)
    for number in range(2):
        np.savez(folder / f"start-{number}.npz", **file_of((4, 3), "rbm", seed=number))
    run_grid(EVERYTHING, *NAMES, folder=folder, output="out")
    return folder, shutil.copytree(folder, tmp_path_factory.mktemp("kept") / "copy")


@pytest.fixture
def everything(made, monkeypatch):
    folder, copy = made
    shutil.rmtree(folder)
    monkeypatch.chdir(shutil.copytree(copy, folder))


def test_every_kind_of_trial_has_the_same_bytes(everything):
    assert verdicts(verify()) == dict.fromkeys(product(NAMES, range(2)), "same bytes")


def test_what_cannot_be_rerun_shows_why(everything, monkeypatch):
    Path("rows.csv").unlink()
    np.savez("start-1.npz", **dict(np.load("start-0.npz")))
    Path("out/bars").rename("out/moved")
    found = {
        key: one for key, one in verify().items() if one["verdict"] != "same bytes"
    }
    causes = {
        ("own", 0): "rows.csv",
        ("own", 1): "rows.csv",
        ("from-file", 1): "start-1.npz",
    }
    causes |= {("from-bars", 0): "'bars'", ("from-bars", 1): "'bars'"}
    assert {*verdicts(found).values()} == {"cannot be run again"}
    assert found.keys() == causes.keys()
    assert all(cause in found[key]["reason"] for key, cause in causes.items())
    Path("rows.csv").write_text("0,1\n1,0\n1,1\n")
    assert {*verdicts(verify("own", code=3)).values()} == {"cannot be run again"}
    monkeypatch.setattr(verifying, "KERNEL_VERSION", 99)
    assert "99" in verify("deep", code=3)["deep", 0]["reason"]


def test_own_recorders_run_only_with_their_own_text_and_by_leave(everything):
    left_out = verify("own", "--no-code", code=3)["own", 0]
    assert left_out["verdict"] == "cannot be run again"
    assert "--no-code" in left_out["reason"]
    Path("own.py").write_text(RECORDER.replace("abs", "2 * abs"))
    assert verdicts(verify("own", code=3))["own", 0] == "cannot be run again"


EVIL = "open('ran', 'w').close()\n" + RECORDER


def test_no_line_of_a_recorder_runs_before_its_text_is_compared(everything):
    Path("own.py").write_text(EVIL)
    found = verify("own", code=3)["own", 0]
    assert found["verdict"] == "cannot be run again"
    assert "recorders" in found["reason"]
    assert not Path("ran").exists()
    cbm("evaluate", "out", "own", "--exact", "-j", 0)
    assert not Path("ran").exists()


@pytest.mark.parametrize("grid_folder", ["", ".", "HERE", "HERE/out"])
def test_a_recorder_that_comes_with_the_results_never_runs(everything, grid_folder):
    """Whoever forges a manifest can forge the run-ids, too, so that all of it fits."""
    Path("out/evil.py").write_text(EVIL.replace("norm", "f"))
    Path("grid.yaml").write_text(EVERYTHING.replace("own.py:norm", "out/evil.py:f"))
    cbm("run", "grid.yaml", "own", "-o", "out", "-j", 0)
    Path("ran").unlink()
    folder = grid_folder.replace("HERE", str(Path.cwd()))
    name = "evil.py:f" if grid_folder.endswith("out") else "out/evil.py:f"

    def forge(manifest):
        manifest["grid_folder"] = folder
        for cell in manifest["cells"]:
            cell["settings"]["record"]["what"] = name

    change_manifest("out/own", forge)
    found = verify("own", code=3)["own", 0]
    assert found["verdict"] == "cannot be run again"
    assert "comes with results" in found["reason"]
    assert not Path("ran").exists()


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="has no such link")
@pytest.mark.parametrize(
    ("folder", "file"), [("/proc/self/cwd", ""), ("/", "proc/self/cwd/")]
)
def test_a_recorder_next_to_the_results_is_not_found_by_a_link(
    everything, folder, file
):
    Path("evil.py").write_text(EVIL.replace("norm", "f"))
    Path("grid.yaml").write_text(EVERYTHING.replace("own.py:norm", "evil.py:f"))
    cbm("run", "grid.yaml", "own", "-o", "out", "-j", 0)
    Path("ran").unlink()

    def forge(manifest):
        manifest["grid_folder"] = folder
        for cell in manifest["cells"]:
            cell["settings"]["record"]["what"] = f"{file}evil.py:f"

    change_manifest("out/own", forge)
    assert verify("own", code=3)["own", 0]["verdict"] == "cannot be run again"
    assert not Path("ran").exists()


def test_a_sample_is_drawn_at_random_each_time(finished):
    every = said("all")[0]
    samples = [said(3)[0] for _ in range(6)]
    assert all(len(few) == 3 and {*few} < {*every} for few in samples)
    assert len({*map(tuple, samples)}) > 1  # all alike once in 500 million times
    drawn = cbm("verify", "out", "--sample", 3, "-j", 0)
    assert "Drew 3 of 8 finished trials at random" in drawn.stderr
    assert [len(every), len(said(10)[0])] == [8, 8]
    assert said(3)[1].endswith(": 3 same bytes")


def test_damage_is_named_without_a_rerun(finished):
    victim, *_ = [key for key in lines_of() if key[1] == 1]
    damage("out/bars", victim)
    lines, _ = said(1, code=1)
    (line,) = [line for line in lines if "trials.jsonl: line" in line]
    assert f"{victim[0]} trial 1: damaged" in line
    assert sum("same bytes" in line for line in lines) == 1


def elsewhere(monkeypatch):
    """Let trials say that they run on another computer."""
    another = computer() | {"cpu": "Another", "blas": "its own"}
    monkeypatch.setattr("cbm_cli.trial.loop.computer", lambda: another)


@pytest.mark.parametrize("other", [False, True])
def test_a_difference_is_named_and_with_another_computer_what_it_has(
    grid, monkeypatch, other
):
    first = learner.first_machine

    def first_machine(*arguments):
        machine = first(*arguments)
        return machine._replace(weights=tuple(W * (1 + 1e-7) for W in machine.weights))

    with monkeypatch.context() as there:
        there.setattr(learner, "first_machine", first_machine)
        if other:
            elsewhere(there)
        cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--trials", 1)
    here = computer()
    made = (
        f"cpu: Another, here {here['cpu']}; blas: its own, here {here['blas']}"
        if other
        else ""
    )
    expected = {("different", made)}
    assert {
        (one["verdict"], one["made"]) for one in verify(code=1).values()
    } == expected
    last = said(3, code=1)[1]
    assert numbers(last)[0][0] == 3
    assert last.endswith(made)
    assert ("this computer" in last) == (not other)


CURVE = {"update": [0, 20, 40], "train_cost": [3, 2, 1.5], "valid_cost": [4, 3, 2]}
NORM = {"update": [0, 10, 20], "norm": [np.nan, 1, 2]}


def outcome(curve=CURVE, norm=NORM, weights=(0.5, -1), best=None):
    machine = {
        "weights_0": np.array([*weights, np.nan, np.inf], np.float32)
    }  # it has diverged
    curve, records = CURVE | curve, norm and NORM | norm
    rows = [its and np.array([*its.values()], float).T for its in (curve, records)]
    best = best and {"weights_0": np.array(best, np.float32)}
    recorded = {"recorded": tuple(records or ()), "records": rows[1]}
    return Outcome(
        tuple(curve), rows[0], machine, None, 1.0, best_machine=best, **recorded
    )


LOWER, LATER = (
    {"train_cost": [3, 2.5, 9], "valid_cost": [4, 2, 9]},
    {"train_cost": [3, 2.5, 1]},
)
CUT = {name: column[:2] for name, column in CURVE.items()}


@pytest.mark.parametrize(
    ("told", "other"),
    [
        ("", {}),
        ("weights_0 of the final machine", {"weights": (0.5, -0.75)}),
        ("weights_0 of the best machine", {"best": (0.5, 1)}),
        ("train_cost at update 20", {"curve": LOWER, "weights": (9, 9)}),
        ("norm at update 10", {"curve": LATER, "norm": {"norm": [np.nan, 1.25, 2]}}),
        ("curve at update 40", {"curve": CUT}),
        ("the columns of the records", {"norm": None}),
    ],
)
def test_the_first_difference_is_named(tmp_path, told, other):
    trial = Trial("test", Settings(**_BASE | {"updates": 20, "batch": 2}), 0, 1)
    store = Store(tmp_path / "it")
    with writing(store.folder) as writer:
        writer.write("run", trial, outcome())
    assert (
        verifying._first_difference(store, store.line("run", 0), outcome(**other))
        == told
    )


def test_results_name_the_computer(finished):
    store = Store(Path("out/bars"))
    facts = store.line(*finished_in(store)[0]).made
    assert all(facts.pop(name) for name in ("cbm", "kernel", "numpy", "numba"))
    assert facts == computer()
    assert facts.keys() == {"cpu", "kernels", "blas", "threads", "libc", "llvm"}
    assert facts["threads"] == "1"
    assert all(facts.values())
    assert facts.items() <= store.manifest().machine.items()


def test_a_trial_that_moves_between_computers_names_both(tmp_path, monkeypatch):
    trial = Trial("test", Settings(**_BASE | {"updates": 20, "batch": 2}), 0, 1)
    data = load("bars-and-stripes", size=2)
    elsewhere(monkeypatch)
    paused = run_trial(trial, data, should_pause=lambda: True)
    monkeypatch.undo()
    store = Store(tmp_path / "test")
    with writing(store.folder) as writer:
        writer.write_progress("run", 0, paused, "course")
    outcome = run_trial(
        trial, data, read_progress(store.state_path("course", "run", 0))
    )
    assert outcome.computer["cpu"] == f"Another + {computer()['cpu']}"
    assert combined(outcome.computer, computer()) == outcome.computer


RATES = (
    {"start": 0.1, "decay": 0.5, "every": "10 epochs"},
    {"start": 0.1, "steps": "0.01 from 100 epochs + 0.001 from 200 epochs"},
)
OF_FILES = (
    {"path": "a.csv"},
    {"path": "a.csv", "hold_out": 0.2, "rows": "last"},
    {"path": "a.csv", "columns": ["a", 3], "scale": 16, "binarise": "sample"},
    {"name": "mnist", "binarise": "none", "flip": True},
)


def test_settings_survive_the_manifest():
    every = [changes for _, changes in CASES.values()]
    every += [{"learning_rate": rate} for rate in RATES]
    every += [{"data": data} for data in OF_FILES]
    for changes in every:
        cell = Settings(**{**_BASE, **changes, "updates": 20})
        kept = json.loads(json.dumps(cell.in_manifest()))
        assert Settings.from_manifest(kept) == cell


def test_experiments_that_start_from_each_other_are_refused(everything):
    def change(manifest):
        for cell in manifest["cells"]:
            cell["settings"]["start_from"] = {"experiment": "from-bars"}

    change_manifest("out/bars", change)
    error = refusal(verifying._experiment_again, Results(Path("out")), "bars")
    assert problems_of(error) == [("out/bars/manifest.json", "")]
