"""What `cbm run` says: about running trials, data, times, and what to do next."""

import re
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from cbm_cli import machine
from cbm_cli.datasets.loading import load
from cbm_cli.execution import precompile
from cbm_cli.execution.agenda import Agenda, Job, make_agenda
from cbm_cli.execution.run import RunProgress, seconds_to_do
from cbm_cli.execution.work import Failure
from cbm_cli.grid.read import read_grid
from cbm_cli.grid.settings import Settings, Trial
from cbm_cli.results import Progress, Store

from tests.builders import (
    GRID,
    cbm,
    dry,
    grid_text,
    holds,
    numbers,
    problems_of,
    summary,
)

BARS = "{name: bars-and-stripes, size: 2}"


def run(*options, code=0):
    return cbm("run", "grid.yaml", "-j", 0, *options, code=code).stderr


def job(**changes):
    """A job of 20 updates, and the progress of a run of it."""
    data = {"name": "bars-and-stripes", "size": 2}
    plain = {"model": {"kind": "rbm", "hidden": 3}, "offsets": "dd", "sampler": "CD-1"}
    its = Settings(
        **plain | {"data": data, "learning_rate": 0.1, "updates": 20} | changes
    )
    one = Job(Trial("test", its, 0, 1), "run", load(**data), (Store(Path("out/test")),))
    return one, RunProgress(Agenda([], {}, {}, {}, [one]))


@pytest.mark.parametrize(
    ("diverged", "told"),
    [
        (None, ": train log likelihood -7.25 per row"),
        (1234, ": diverged at update 1,234"),
    ],
)
def test_the_latest_trial_is_shown_with_its_first_value_or_as_diverged(diverged, told):
    one, display = job()
    display.progress(one, Progress(None, 8))
    assert f"{one.title}: update 8 (40%)" in display.words()[0]
    curve = np.array([[0, 0, -9.0, 3.0], [20, 1, -7.25, 2.0]])
    columns = "update", "epoch", "train_log_likelihood", "test_cost"
    display.finished(
        one, SimpleNamespace(columns=columns, curve=curve, diverged=diverged)
    )
    (words,) = display.words()
    assert words.endswith(f"{one.title}{told}")
    assert numbers(words)[0][:2] == [1, 1]


def test_pretraining_is_named_and_counts_as_work():
    deep = {"model": {"kind": "dbm", "hidden": [3, 2]}, "offsets": "ddd"}
    one, display = job(**deep, batch=2, pretraining={"epochs": 5})
    layer = 5 * 4  # epochs and batches
    assert one.share(Progress(None, 10, stage=1)) == (layer + 10) / (2 * layer + 20)
    for stage, told in (
        (1, "trial 0: pre-training, update 10 "),
        (2, "trial 0: update 10 "),
    ):
        display.progress(one, Progress(None, 10, stage=stage))
        assert told in display.words()[0]


def test_a_failed_trial_is_said_at_once_and_counts_as_made():
    one, display = job()
    said = []
    display.message = said.append
    display.progress(one, Progress(None, 8))
    display.failed(one, Failure("no memory"))
    assert said == [f"failed: {one.title}: no memory"]
    assert (display.share(), display.failures) == (1, 1)
    assert numbers(display.words()[0])[0][:2] == [0, 1]


def test_the_time_left_is_told_from_half_a_percent_on():
    _, display = job()
    display.started -= 10.0
    display.total, told = 1000, []
    for display.done in (4, 6):
        told.append("left" in display.words()[0])
    assert told == [False, True]


@pytest.mark.parametrize(
    ("begun", "first"), [(0, "3 min 10 s left"), (10, "1 min 30 s left")]
)
def test_the_time_left_leaves_work_of_earlier_runs_out(monkeypatch, begun, first):
    one, display = job()
    one, display.started = replace(one, state=Path("state") if begun else None), 0
    for update, told in ((begun, "s; "), (begun + 1, first), (17, ", 30 s left")):
        monkeypatch.setattr(time, "monotonic", lambda: 10 * (update - begun))  # noqa: B023
        display.progress(one, Progress(None, update))
        assert told in display.words()[0]
        assert ("left" in display.words()[0]) == (update > begun)


def test_no_time_is_left_where_the_last_evaluation_runs(monkeypatch):
    one, display = job()
    display.started = 0
    monkeypatch.setattr(time, "monotonic", lambda: 300.0)
    display.progress(one, Progress(None, 19))
    assert "16 s left" in display.words()[0]
    display.progress(one, Progress(None, 20))
    assert "left" not in display.words()[0]


def test_a_home_that_cannot_be_written_is_named_with_the_variable_that_helps(
    monkeypatch, tmp_path
):
    one, _ = job()
    monkeypatch.setattr(precompile, "MARKS", tmp_path)
    for name in ("run_tiny", "_compile_for"):
        monkeypatch.setattr(precompile, name, lambda *_: None)
    for place, lines in (("cbm-kernels-x", 1), ("cbm", 0)):
        said = []
        cache = tmp_path / place / "kernels-y"
        monkeypatch.setattr(precompile.compiling, "CACHE", cache)
        precompile.precompile([one], said.append)
        named = [line for line in said if "CBM_KERNEL_CACHE" in line]
        assert len(named) == lines
        assert all("\n" not in line for line in said)
        for mark in tmp_path.glob("compiled-*"):
            mark.unlink()


def test_data_are_described_before_a_run_and_half_of_an_odd_width_rounds_down(grid):
    rows = np.eye(5, dtype=np.uint8)
    np.savez("w5.npz", train=rows, valid=rows)
    grid(grid_text("auto-encoder", data="{path: w5.npz}", batch="full"))
    assert re.search(r"^w5.npz: 5 \w+ x 5 \w+, 20.0%", run(), re.M)
    assert machine.load("toy:0").sizes == (5, 2)


def test_a_trial_of_two_experiments_is_trained_once_and_kept_by_both(grid):
    more = GRID.partition("experiments:\n")[2].replace("bars:", "more:")
    grid(GRID + more.replace("[00, dd^b_s]", "[00, aa]"))
    assert [2, 16, 4] in numbers(cbm("run", "grid.yaml", "--dry-run").stderr)
    assert dry() == [12, 0, 12]
    run("bars")
    assert dry() == [12, 4, 8]  # each experiment holds all of its trials
    assert [4, 12, 8] in numbers(run())
    run("-o", "at-once")
    both = [*summary("at-once"), *summary("at-once", "more")]
    seconds = [row["seconds"] for row in both if row["offsets"] == "00"]
    assert seconds[:4] == seconds[4:] != []


def test_a_dry_run_counts_and_with_finished_trials_shows_how_long_the_others_take(
    finished,
):
    said = cbm(
        "run", "grid.yaml", "-o", "new", "--dry-run", "-j", 2
    ).stdout.splitlines()
    assert (len(said), numbers(said[0])) == (1, [[8, 0, 8]])
    assert not Path("new").exists()
    changes = {"sampler": "CD-1", "offsets": "[00, dd^b]"}
    cells = read_grid(Path("grid.yaml"), changes, trials=3).select()
    agenda = make_agenda(cells, finished / "out", folder=finished)
    lines = agenda.stores["bars"].lines()
    there = next(lines[job.run_id] for job in agenda.jobs if job.run_id in lines)
    past = [line.seconds for line in there.values()]
    assert len(agenda.jobs) == 4  # three are of a cell without finished trials
    forecasts = [seconds_to_do(agenda, workers) for workers in (1, 3, 9)]
    assert forecasts == pytest.approx(np.mean(past) * np.array([4, 2, 1]))
    more = cbm("run", "grid.yaml", "-o", "out", "--trials", 3, "--dry-run")
    assert "finished trials" in more.stdout


def test_what_is_there_can_be_run_without_the_rest(grid):
    grid(GRID.replace(BARS, f"[{BARS}, {{path: gone.npz}}]"))
    refused = cbm("run", "grid.yaml", "-j", 0, code=2)
    assert [field for _, field in problems_of(refused)] == ["bars.data.path"]
    assert holds(refused.stderr, "gone.npz|--available")
    assert [1, 2] in numbers(refused.stderr)
    listed = cbm("ls", "grid.yaml").stdout
    assert listed.startswith("bars (default): ")
    assert "gone" in listed
    for _ in range(2):  # the second time some still lack
        assert re.search(r"^bars: .*\bgone$", run("--available", code=3), re.M)
    np.savez("gone.npz", train=np.eye(6))
    said = run("--available")
    assert [8, 16, 8] in numbers(said)
    assert "bars: " not in said
    grid(GRID.replace(BARS, "{path: lost.npz}"))  # where all are missing
    lost = "run", "grid.yaml", "-o", "lost"
    cbm(*lost, "--available", code=3)
    assert "--available" not in cbm(*lost, code=2).stderr
    assert not Path("lost").exists()
