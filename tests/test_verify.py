"""cbm verify: finished trials run again, here, on another computer, or by a cbm that computes otherwise."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cbm_cli.datasets.catalogue import load
from cbm_cli.errors import CbmError
from cbm_cli.execution import verifying
from cbm_cli.grid.settings import Settings, Trial
from cbm_cli.kernels.computer import combined, computer
from cbm_cli.results import Outcome, Results, Store
from cbm_cli.trial.loop import run_trial
from tests.builders import GRID, cbm, grid_text
from tests.golden.cases import _BASE, CASES
from tests.golden.outputs import unpack

# Experiments of every kind of machine and of start, with data and a recorder of one's own.
EVERYTHING = """
defaults: {trials: 2, seed: 3, updates: 40, batch: full, learning_rate: 0.1, offsets: dd^b}
experiments:
  bars:
    data: {name: bars-and-stripes, size: 2}
    model: {kind: rbm, hidden: 3}
    sampler: CD-1
    evaluate: {method: ais, every: 20, temperatures: 10, runs: 5}
  again:
    data: {name: bars-and-stripes, size: 2}
    model: {kind: rbm, hidden: 3}
    sampler: CD-1
    evaluate: {method: ais, every: 20, temperatures: 10, runs: 5}
  from-bars:
    data: {name: bars-and-stripes, size: 2}
    model: {kind: rbm, hidden: 3}
    sampler: CD-1
    start_from: {experiment: bars}
  from-file:
    data: {name: bars-and-stripes, size: 2}
    model: {kind: rbm, hidden: 3}
    sampler: CD-1
    start_from: {path: "start-{trial}.npz"}
  own:
    data: {path: rows.csv}
    model: {kind: rbm, hidden: 2}
    sampler: CD-1
    record: {what: own.py:norm}
  deep:
    data: {name: bars-and-stripes, size: 2}
    model: {kind: dbm, hidden: [3, 2]}
    offsets: ddd^b
    sampler: CD-1
    pretraining: {epochs: 3}
  encoder:
    data: {name: bars-and-stripes, size: 3, hold_out: 4}
    model: {kind: auto-encoder, hidden: half}
    evaluate: {every: 1 epoch}
"""
RECORDER = "def norm(snapshots, context):\n    return {'norm': abs(snapshots.W).sum(axis=(1, 2))}\n"


def verify(*arguments, code=0):
    """Verdicts of a command, by experiment and number of the trial."""
    lines = cbm("verify", "out", *arguments, "--json", "-j", 0, code=code).stdout.splitlines()
    return {(found["experiment"], found["number"]): found for found in map(json.loads, lines)}


def verdicts(*arguments, code=0):
    return {key: found["verdict"] for key, found in verify(*arguments, code=code).items()}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def everything(folder):
    np.savetxt("rows.csv", np.eye(4, dtype=int), "%d", ",")
    Path("own.py").write_text(RECORDER)
    settings = Settings(**_BASE | {"updates": 1, "batch": 2, "model": {"kind": "rbm", "hidden": 3}})
    for number in range(2):
        outcome = run_trial(Trial("start", settings, number, 1), load("bars-and-stripes", size=2))
        np.savez(f"start-{number}.npz", **outcome.machine)
    Path("grid.yaml").write_text(EVERYTHING)
    names = "bars", "again", "from-bars", "from-file", "own", "deep", "encoder"
    cbm("run", "grid.yaml", *names, "-o", "out", "-j", 0, "--no-table")
    return names


@pytest.fixture
def bars(folder):
    Path("grid.yaml").write_text(GRID)
    return lambda: cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--no-table")


def test_every_kind_of_trial_has_the_same_bytes(everything):
    found = verdicts("--all")
    assert found == {(name, number): "same bytes" for name in everything for number in range(2)}


def test_what_cannot_be_rerun_says_why(everything, monkeypatch):
    Path("rows.csv").unlink()
    np.savez("start-1.npz", **dict(np.load("start-0.npz")))
    Path("out/bars").rename("out/moved")
    found = verify("--all")
    reasons = {key: one["reason"] for key, one in found.items() if one["verdict"] == "cannot be rerun"}
    assert {key[0] for key in reasons} == {"own", "from-file", "from-bars"}
    assert "rows.csv" in reasons["own", 0]
    assert "start-1.npz: is another machine" in reasons["from-file", 1]
    assert ("from-file", 0) not in reasons
    assert "bars" in reasons["from-bars", 0]
    Path("rows.csv").write_text("0,1\n1,0\n1,1\n")
    assert "have changed" in verify("own", "--all", code=3)["own", 0]["reason"]
    monkeypatch.setattr(verifying, "KERNEL_VERSION", 99)
    assert "this cbm has kernel version 99" in verify("deep", code=3)["deep", 0]["reason"]


def test_own_recorders_run_only_with_their_own_text_and_by_leave(everything):
    left_out = verify("own", "--no-code", code=3)["own", 0]
    assert (left_out["verdict"], "--no-code" in left_out["reason"]) == ("cannot be rerun", True)
    Path("own.py").write_text(RECORDER.replace("abs", "2 * abs"))
    assert "have changed" in verify("own", code=3)["own", 0]["reason"]


def test_results_of_an_older_cbm_are_completed_by_another_run(bars, monkeypatch):
    bars()
    whole = Store.manifest
    with monkeypatch.context() as older:
        older.setattr(
            Store, "manifest", lambda self: {k: v for k, v in whole(self).items() if k != "settings"}
        )
        assert "cbm run completes it" in verify("--sample", 1, code=3)["bars", 0]["reason"]
    bars()
    assert {*verdicts("--all").values()} == {"same bytes"}


def test_a_sample_is_random_and_repeatable(bars):
    bars()
    lines = {seed: cbm("verify", "out", "--sample", 3, "--seed", seed, "-j", 0).stdout for seed in range(5)}
    assert {text.count("same bytes") for text in lines.values()} == {3}
    assert len({*lines.values()}) > 2
    assert cbm("verify", "out", "--sample", 3, "--seed", 4, "-j", 0).stdout == lines[4]
    assert cbm("verify", "out", "--share", 0.3, "-j", 0).stdout.count("same bytes") == 3  # of 8
    assert "only one of them" in cbm("verify", "out", "--sample", 3, "--all", code=2).stderr


def test_damage_is_named_without_a_rerun(bars):
    bars()
    victim = next(Path("out").rglob("trial-001.csv"))
    text = victim.read_text()
    victim.write_text(text[:-2] + ("1" if text[-2] == "0" else "0") + "\n")
    found = cbm("verify", "out", "--sample", 1, "-j", 0, code=1)
    assert "trial 1: damaged" in found.stdout
    assert victim.name in found.stdout
    assert found.stdout.count("same bytes") == 1


def moved(monkeypatch, relative):
    """Let trials start from weights that are larger, relatively, than they should be."""
    from cbm_cli.trial import learner

    first = learner.first_machine

    def first_machine(*arguments):
        machine = first(*arguments)
        return machine._replace(weights=tuple(W * (1 + relative) for W in machine.weights))

    monkeypatch.setattr(learner, "first_machine", first_machine)


def elsewhere(monkeypatch):
    """Let trials say that they run on another computer."""
    monkeypatch.setattr(
        "cbm_cli.trial.loop.computer", lambda: computer() | {"cpu": "Another", "blas": "its own"}
    )


def test_on_the_same_computer_only_the_same_bytes_will_do(bars, monkeypatch):
    with monkeypatch.context() as wrong:
        moved(wrong, 1e-6)
        bars()
    found = verify("--all", code=1)
    assert {one["verdict"] for one in found.values()} == {"different"}
    assert all("computers are of one kind" in one["reason"] for one in found.values())


@pytest.mark.parametrize(("relative", "verdict"), [(0, "same bytes"), (1e-7, "equal within rounding")])
def test_another_computer_may_round_differently(bars, monkeypatch, relative, verdict):
    with monkeypatch.context() as other:
        moved(other, relative)
        elsewhere(other)
        bars()
    found = verify("--all")
    assert {one["verdict"] for one in found.values()} == {verdict}
    if relative:
        assert all("cpu: Another, here" in one["reason"] for one in found.values())
        assert all("blas: its own, here" in one["reason"] for one in found.values())


def test_another_computer_is_no_excuse_for_other_numbers(bars, monkeypatch):
    with monkeypatch.context() as wrong:
        moved(wrong, 1e-3)
        elsewhere(wrong)
        bars()
    found = verify("--all", code=1)
    assert {one["verdict"] for one in found.values()} == {"different"}
    assert all("rounding explains" in one["reason"] for one in found.values())


@pytest.mark.parametrize(
    "name", ["PCD-1-dd-later", "dbm-ddd", "dbm-pretraining", "encoder", "ais", "recorders"]
)
def test_courses_that_part_by_rounding_are_equal_and_those_of_another_rate_are_not(tmp_path, name):
    """In 400 updates at large rates, sampled units turn over; yet the first evaluations tell rates apart."""
    from tests.golden.cases import DATA

    data, changes = CASES[name]
    fields = {**_BASE, **changes, "updates": 400, "learning_rate": 0.3}
    trial, runs = Trial("test", Settings(**fields), 0, 1), {}

    def values(title, its=trial, relative=0.0):
        now = run_trial(its, DATA[data], should_pause=lambda: True)
        W = now.state.W
        W *= 1 + relative * np.random.default_rng(0).uniform(-1, 1, W.shape).astype(np.float32)
        store = Store(tmp_path / title)
        store.write("run", its, run_trial(its, DATA[data], now))
        runs[title] = verifying._values(store, ("run", 0))
        return runs[title]

    here = values("here")
    doubts = {
        "rounding": verifying._distances(values("rounding", relative=2**-23), here),
        "rate": verifying._distances(
            values("rate", replace(trial, settings=Settings(**fields | {"learning_rate": 0.3006}))), here
        ),
    }
    doubts = {title: verifying._Doubt(None, None, "", found) for title, found in doubts.items()}
    for move in verifying.MOVES:
        far = verifying._distances(values(f"moved-{move}", relative=move), here)
        for doubt in doubts.values():
            for array, distance in far.items():
                doubt.moved[array] = verifying._farther(distance, doubt.moved.get(array, distance))
    assert doubts["rounding"].is_settled(), doubts["rounding"].farthest()
    assert not doubts["rate"].is_settled()


def test_a_real_other_blas_is_named_and_equal_within_rounding(folder):
    text = grid_text(
        "rbm",
        model="{kind: rbm, hidden: 40}",
        data="{name: bars-and-stripes, size: 4}",
        epochs="20",
        batch="10",
    )
    Path("grid.yaml").write_text(text)
    command = [
        sys.executable,
        "-m",
        "cbm_cli.cli",
        "run",
        "grid.yaml",
        "-o",
        "out",
        "-j",
        "0",
        "--trials",
        "2",
    ]
    subprocess.run(
        command, env=os.environ | {"OPENBLAS_CORETYPE": "Nehalem"}, check=True, capture_output=True
    )
    kept = json.loads(next(Path("out").rglob("trial-000.json")).read_bytes())["computer"]["blas"]
    if kept == computer()["blas"]:
        pytest.skip(f"this BLAS has one kernel: {kept}")
    found = verify("--all")
    assert {one["verdict"] for one in found.values()} <= {"same bytes", "equal within rounding"}
    assert all(kept in one["reason"] for one in found.values() if one["reason"])


def test_results_name_the_computer(bars):
    bars()
    facts = json.loads(next(Path("out").rglob("trial-000.json")).read_bytes())["computer"]
    assert facts == computer()
    assert facts.keys() == {"cpu", "kernels", "blas", "threads", "libc", "llvm"}
    assert facts["threads"] == "1"
    assert all(facts.values())
    machine = json.loads(Path("out/bars/manifest.json").read_bytes())["machine"]
    assert facts.items() <= machine.items()


def test_a_trial_that_moves_between_computers_names_both(tmp_path, monkeypatch):
    trial, data = (
        Trial("test", Settings(**_BASE | {"updates": 20, "batch": 2}), 0, 1),
        load("bars-and-stripes", size=2),
    )
    elsewhere(monkeypatch)
    paused = run_trial(trial, data, should_pause=lambda: True)
    monkeypatch.undo()
    store = Store(tmp_path / "test")
    store.write_progress("run", 0, paused)
    outcome = run_trial(trial, data, store.progress("run", 0))
    assert isinstance(outcome, Outcome)
    assert outcome.computer["cpu"] == f"Another + {computer()['cpu']}"
    assert outcome.computer["kernels"] == computer()["kernels"]
    assert combined(outcome.computer, computer()) == outcome.computer


def test_settings_survive_the_manifest():
    for data, changes in CASES.values():
        cell = Settings(**{**_BASE, **changes, "updates": 20})
        kept = json.loads(json.dumps(cell.model_dump(mode="json", exclude_defaults=True)))
        assert Settings(**kept) == cell, data


def test_experiments_that_start_from_each_other_are_refused(everything, monkeypatch):
    whole = Store.manifest

    def twisted(self):
        manifest = whole(self)
        if self.experiment == "bars":
            manifest["settings"] = [
                one | {"start_from": {"experiment": "from-bars"}} for one in manifest["settings"]
            ]
        return manifest

    monkeypatch.setattr(Store, "manifest", twisted)
    with pytest.raises(CbmError, match="starts from an experiment that starts from it"):
        verifying._experiment(Results(Path("out")), "bars")


@pytest.mark.parametrize("command", ["verify", "evaluate"])
def test_results_without_a_finished_trial_are_incomplete(bars, command):
    bars()
    for name in ("trials", "recent", "summary.csv"):
        path = Path("out/bars") / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    assert "bars: no trial is finished yet" in cbm(command, "out", code=3).stderr


def test_results_of_0_1_0_cannot_be_rerun(tmp_path):
    folder = tmp_path / "old"
    unpack(folder)
    said = cbm("verify", folder, "bars", "--sample", 3, code=3)
    lines = said.stdout.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert "cannot be rerun (" in line
        assert "bars/manifest.json: written by cbm 0.1.0 (kernel version 1); this cbm has kernel" in line
    assert "3 trials: 3 cannot be rerun" in said.stderr
