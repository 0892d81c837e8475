"""What `cbm run` says: about running trials, data, times, and what to do next."""

import json
import re
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cbm_cli.cli import common
from cbm_cli.cli.progress import Display
from cbm_cli.datasets.catalogue import load
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.execution import Agenda, Ending, Failure, Job, forecast, forecast_run, make_agenda
from cbm_cli.execution.forecast import Cost
from cbm_cli.grid.read import read_grid
from cbm_cli.grid.settings import Settings, TableSpec, Trial
from cbm_cli.results import Store
from cbm_cli.trial.loop import run_trial
from tests.builders import GRID, cbm, numbers, problems_of, summary

MODELS = {
    "rbm": {"model": {"kind": "rbm", "hidden": 3}, "offsets": "dd", "sampler": "CD-1"},
    "dbm": {"model": {"kind": "dbm", "hidden": [3, 2]}, "offsets": "ddd", "sampler": "CD-1"},
    "auto-encoder": {"model": {"kind": "auto-encoder", "hidden": 3}, "offsets": "dd"},
}
ROWS = np.random.default_rng(3).integers(0, 2, (40, 6)).astype(np.uint8)
BARS = "{name: bars-and-stripes, size: 2}"


def run(*options, code=0):
    return cbm("run", "grid.yaml", "-j", 0, "--no-table", *options, code=code).stderr


def dry(*options):
    """The numbers of the first line of a dry run: trials, finished before, to run."""
    return numbers(cbm("run", "grid.yaml", "--dry-run", *options).stdout)[0]


def job(kind, method, parts=None, scale="per-sample", begun=0, **changes):
    """A job of 8 rows, and a display of it in an experiment with tables of this scale."""
    settings = Settings(
        data={"name": "bars-and-stripes", "size": 2},
        learning_rate=0.1,
        updates=20,
        evaluate={"method": method, "parts": parts},
        **MODELS[kind] | changes,
    )
    data = load("bars-and-stripes", size=2)
    data = replace(data, test=data.train[:5])
    one = Job(Trial("test", settings, 0, 1), "run", data, (Store(Path("out/test")),), begun=begun)
    experiment = SimpleNamespace(name="test", table=TableSpec(scale=scale))
    return one, Display(Agenda([experiment], {}, {}, {}, [one]))


@pytest.mark.parametrize(
    ("kind", "method", "value"),
    [
        ("rbm", None, "train log-likelihood"),
        ("rbm", "ais", "train log-likelihood"),
        ("rbm", "none", ""),
        ("dbm", None, "train log-likelihood"),
        ("dbm", "ais", "train lower bound"),
        ("auto-encoder", None, "train cost"),
        ("auto-encoder", "none", ""),
    ],
)
def test_the_latest_value_has_its_name(kind, method, value):
    one, display = job(kind, method)
    display.progress(*one.key, 4, -7.25)
    update, words = display.running[one.key]
    assert update == 4
    assert (value in words, "-7.25" in words) == (True, bool(value))
    display.progress(*one.key, 8, np.nan)  # pre-training has no value
    assert display.running[one.key][0] == 8
    assert numbers(display.running[one.key][1]) == [[8]]
    display.finished(one, SimpleNamespace(curve=np.array([[20, 1, -7.25]]), diverged=None))
    assert {"bars-and-stripes", *one.trial.settings.offsets.split()} <= {*display.latest.split()}
    assert (value in display.latest, "-7.25" in display.latest) == (True, bool(value))
    assert not display.running
    assert numbers(display._status())[0][:2] == [1, 1]


@pytest.mark.parametrize(
    ("scale", "parts", "value"),
    [
        ("total", None, ("train", "-16.00", [4, 8])),
        ("total", "test", ("test", "-10.00", [4, 5])),
        ("total", "test+train", ("train", "-16.00", [4, 8])),
        ("total", "valid+test", ("test", "-10.00", [4, 5])),
        ("per-sample", "test", ("test", "-2.00", [4])),
    ],
)
def test_progress_has_the_scale_of_the_table_and_calls_a_trial_diverged(scale, parts, value):
    one, display = job("rbm", None, parts, scale)
    display.progress(*one.key, 4, -2.0)
    words = display.running[one.key][1]
    assert (*re.search(r"(train|test) .*?(-[\d.]+)", words).groups(), numbers(words)[0]) == value
    display.finished(one, SimpleNamespace(curve=np.array([[20, 1, np.nan]]), diverged=1234))
    assert numbers(display.latest)[0][-1] == 1234


def left(display):
    """The seconds left, as the status says them: None where it says none."""
    found = re.search(r"(?:(\d+) min )?(\d+) s left", display._status())
    return found and 60 * int(found[1] or 0) + int(found[2])


def test_pretraining_is_named_and_counts_as_work(monkeypatch):
    one, display = job("dbm", None, batch=2, pretraining={"epochs": 5})
    before = 2 * 5 * 4  # layers, epochs and batches
    made = []
    run_trial(one.trial, one.data, report=lambda update, value: made.append(update))
    assert made == sorted(made)
    assert {before // 2, before} <= {*made}  # each layer ends with a report
    assert made[-1] > before
    monkeypatch.setattr(display, "started", time.monotonic() - 60)
    display.progress(*one.key, (before + 20) // 2, np.nan)
    assert "pre-training" in display._status()
    assert left(display) == pytest.approx(60, abs=1)
    display.progress(*one.key, before + 3, np.nan)
    assert 3 in numbers(display._status())[0]
    assert "pre-training" not in display._status()


def test_the_time_left_is_that_of_the_latest_rate_without_work_of_earlier_runs(monkeypatch):
    one, display = job("rbm", None, begun=10)
    monkeypatch.setattr(display, "started", time.monotonic() - 60)
    assert left(display) is None
    display.progress(*one.key, 15, np.nan)
    assert left(display) == pytest.approx(60, abs=1)
    one, display = job("rbm", None)
    display.started, now = 0, 0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    for update in range(21):  # at half the speed after update 5
        now = 10 * update if update <= 5 else 50 + 20 * (update - 5)
        display.progress(*one.key, update, np.nan)
        said = left(display)
        assert said == 20 * (20 - update) or not 8 < update < 18


def test_the_progress_of_a_run_is_in_a_file_as_it_is_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one, display = job("rbm", None)
    display.files = {Path("progress.json")}
    display.started -= 60
    display.progress(*one.key, 10, -7.25)
    facts = json.loads(Path("progress.json").read_text())
    assert [facts[name] for name in ("trials", "finished", "failed", "latest")] == [1, 0, 0, ""]
    assert (facts["seconds"], facts["seconds_left"]) == (pytest.approx(60, abs=1), pytest.approx(60, abs=2))
    assert facts["running"] == [
        "bars-and-stripes dd^b CD-1 0.1 trial 0: update 10, train log-likelihood -7.25 per row"
    ]
    display.failed(one, Failure("it failed"))
    assert [display.facts()[name] for name in ("finished", "failed", "running")] == [0, 1, []]
    with display:
        pass
    assert not Path("progress.json").exists()


def test_half_of_an_odd_width_is_said_to_round_down_once(grid):
    for width in (5, 6):
        np.savez(f"w{width}.npz", train=np.eye(width, dtype=np.uint8), valid=np.eye(width, dtype=np.uint8))
    text = "data: [{path: w5.npz}, {path: w6.npz}], model: {kind: auto-encoder, hidden: half}, batch: full"
    grid(f"experiments: {{halves: {{{text}, offsets: [00, dd], learning_rate: [0.1, 0.2], epochs: 2}}}}")
    said = cbm("run", "grid.yaml", "--dry-run").stderr
    assert numbers(said).count([5, 2]) == 1
    assert not [line for line in numbers(said) if line == [6, 3]]
    assert re.search(r"^w5.npz: 5 \w+ x 5 \w+, 20.0%", said, re.M)


# ---- Counts ----


def test_every_trial_is_counted_once(grid):
    more = GRID.partition("experiments:\n")[2].replace("bars:", "more:")
    grid(GRID + more.replace("[00, dd^b_s]", "[00, aa]"))
    assert [2, 16, 4] in numbers(cbm("run", "grid.yaml", "-o", "out", "--dry-run").stderr)
    assert dry("-o", "out") == [12, 0, 12]
    run("bars", "-o", "out")
    # The four shared trials are copied by a run, and count as finished in a dry run already.
    assert dry("-o", "out") == [12, 8, 4]
    assert not Path("out/more").exists()
    assert [8, 12, 4] in numbers(run("-o", "out"))
    assert [len(summary("out", name)) for name in ("bars", "more")] == [8, 8]


def test_one_is_singular(grid):
    grid(GRID.replace("[CD-1, PT_4]", "CD-1").replace("[00, dd^b_s]", "00"))
    said = cbm("run", "grid.yaml", "--list").stdout
    said += cbm("run", "grid.yaml", "--trials", 1, "--dry-run", "-j", 1).stdout
    said += run("--trials", 1) + run("--trials", 1)
    assert re.search(r"\b1 cell, 2 trials\b", said)
    assert re.search(r"\b1 trial\b", said)
    assert re.search(r"\b1 worker\b", said)
    assert not re.search(r"\b1 (cell|trial|worker)s\b", said)


# ---- What next ----


def test_next_steps_can_be_typed_where_cbm_is_not_on_the_path(grid, monkeypatch):
    Path("bin").mkdir()
    for name in ("cbm", "activate"):
        Path("bin", name).touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", ["bin/cbm"])
    monkeypatch.setenv("PATH", "/nowhere")
    assert common.program() == "bin/cbm"
    said = run()
    for command in (
        "bin/cbm plot results curves bars -o curves.png\n",
        "bin/cbm table results bars",
        "bin/activate",
    ):
        assert command in said
    assert "compare" not in said  # the paper has no such trials
    monkeypatch.setenv("PATH", str(Path("bin").absolute()))
    assert common.program() == "cbm"
    assert "activate" not in run()
    shutil.copytree("bin", "other")
    monkeypatch.setattr(sys, "argv", ["other/cbm"])  # the shell would find another one
    assert common.program() == "other/cbm"
    monkeypatch.setattr(sys, "argv", ["/x/cbm_cli/cli/__main__.py"])
    assert common.program() == f"{sys.executable} -m cbm_cli.cli"


def test_compare_is_suggested_where_there_is_a_published_value(grid):
    paper = GRID.replace("size: 2", "size: 3").replace("hidden: 3", "hidden: 4")
    paper = paper.replace("[CD-1, PT_4]", "CD-1").replace("[00, dd^b_s]", "dd^l_s")
    grid(paper.replace("updates: 100", "updates: 50000").replace("every: 20", "every: 50"))
    assert run("--trials", 1).rstrip().endswith("cbm paper compare")


# ---- How long it takes ----


def agenda_of(tmp_path, *changes):
    text = GRID
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "grid.yaml"
    path.write_text(text)
    return make_agenda(read_grid(path).select(), tmp_path / "out", adopt=False, folder=tmp_path)


@pytest.fixture
def costs(monkeypatch):
    """Set the costs of every trial: beginning, update, evaluation."""
    return lambda *seconds: monkeypatch.setattr(forecast, "cost_of", lambda job: Cost(*seconds))


def test_a_forecast_counts_start_updates_pretraining_and_evaluations(costs):
    costs(0.5, 0.001, 0.1)
    how = {"method": "ais", "every": "100 epochs", "temperatures": 1000}
    changes = {"offsets": "ddd^b", "epochs": 300, "batch": 4, "evaluate": how}  # 2 updates an epoch
    deep = Settings(
        data={"name": "bars-and-stripes", "size": 2},
        learning_rate=0.1,
        pretraining={"epochs": 200},
        **MODELS["dbm"] | changes,
    )
    jobs = [Job(Trial("test", deep, n, 1), "run", load("bars-and-stripes", size=2), ()) for n in range(3)]
    found, alone, many = (forecast_run(Agenda([], {}, {}, {}, jobs), workers) for workers in (2, 0, 100))
    trial = 0.5 + 4 * 0.1 + 0.001 * 2 * 500  # evaluations at 0, 100, 200 and 300 epochs
    assert found.trial == pytest.approx(trial)
    assert found.run == pytest.approx(forecast._START + 3 * trial / 2)
    assert found.known == 0
    assert alone.run == pytest.approx(forecast._START + 3 * trial)
    assert many.run >= trial  # a run takes as long as its longest trial


def test_finished_trials_of_a_cell_are_its_forecast(finished, costs):
    costs(0.0, 1.0, 0.0)
    agenda = agenda_of(finished, ("trials: 2", "trials: 3"), ("[CD-1, PT_4]", "CD-1"))
    seconds = agenda.stores["bars"].seconds()
    past = [seconds[one.run_id] for one in agenda.jobs]
    assert [len(seconds) for seconds in past] == [2, 2]
    means = [*map(np.mean, past)]
    found = forecast_run(agenda, 1)
    assert found.known == 2
    assert found.run == pytest.approx(forecast._START + sum(means))
    assert found.trial == pytest.approx(max(means))


def test_a_dry_run_says_how_long_it_takes_and_makes_nothing(grid, costs):
    costs(0.0, 0.01, 0.0)
    said = cbm("run", "grid.yaml", "-o", "out", "--dry-run", "-j", 2).stdout.splitlines()[1]
    seconds, workers = numbers(said)[0]
    assert (seconds - forecast._START, workers) == (pytest.approx(8 * 100 * 0.01 / 2, abs=1), 2)
    assert not Path("out").exists()


@pytest.mark.parametrize(("batch", "remedy"), [("full", "batch: 100"), ("100", "epochs")])
def test_a_trial_of_hours_is_warned_of_before_it_runs(grid, costs, monkeypatch, batch, remedy):
    costs(0.0, 0.1, 0.0)
    np.savez("rows.npz", train=np.tile(ROWS, (75, 1)))
    text = GRID.replace(BARS, "{path: rows.npz}").replace("100", "50000")
    grid(text.replace("batch: full", f"batch: {batch}").replace("every: 20", "every: 50000"))
    (said,) = [
        line
        for line in cbm("run", "grid.yaml", "--dry-run", "-j", 1).stderr.splitlines()
        if "warning" in line
    ]
    assert "rows 00 CD-1 0.1 trial 0" in said
    assert "1 h 23 min" in said
    assert remedy in said
    monkeypatch.setattr("cbm_cli.execution.run_agenda", lambda *_, **__: Ending())
    monkeypatch.setattr("cbm_cli.execution.compile_kernels", lambda *_: None)
    assert said in cbm("run", "grid.yaml", "-j", 1).stderr


COSTS = {  # seconds of an update and of an evaluation, measured (docs/benchmarks.md, docs/scale.md)
    "PCD-1 784x500": ({"model": 500}, 1.6e-3, 0.0),
    "CD-1 784x16": ({"model": 16, "sampler": "CD-1"}, 1.7e-4, 0.0),
    "PT_20 784x500": ({"model": 500, "sampler": "PT_20"}, 21e-3, 0.0),
    "exact 784x16": ({"model": 16, "evaluate": {"method": "exact"}}, 1.7e-4, 0.06),
}


@pytest.mark.parametrize("name", COSTS)
def test_costs_are_those_of_a_measurement_within_a_factor_of_two(name):
    given, update, evaluation = COSTS[name]
    given = {"sampler": "PCD-1", "evaluate": {"method": "none"}} | given
    given["model"] = {"kind": "rbm", "hidden": given["model"]}
    how = Settings(data={"name": "mnist"}, offsets="dd^b_s", learning_rate=0.1, epochs=1, **given)
    data = Dataset("rows", np.zeros((6000, 784), np.uint8))
    found = forecast.cost_of(Job(Trial("test", how, 0, 1), "run", data, ()))
    assert update / 2 < found.update < 2 * update
    assert evaluation / 2 <= found.evaluation <= 2 * evaluation


def test_cells_without_finished_trials_take_as_much_longer_as_those_with(finished):
    few = agenda_of(finished, ("trials: 2", "trials: 3"), ("[CD-1, PT_4]", "CD-1"), ("[00, dd^b_s]", "00"))
    more = agenda_of(
        finished, ("trials: 2", "trials: 3"), ("[CD-1, PT_4]", "CD-1"), ("[00, dd^b_s]", "[00, dd^b]")
    )
    (past,) = [np.mean(few.stores["bars"].seconds()[one.run_id]) for one in few.jobs]
    new = [one for one in more.jobs if one.run_id != few.jobs[0].run_id]
    assert len(new) == 3
    assert forecast_run(more, 1).run == pytest.approx(
        forecast._START + past * (1 + len(new))
    )  # cost the same


# ---- Missing data ----


def test_what_is_there_can_be_run_without_the_rest(grid):
    grid(GRID.replace(BARS, f"[{BARS}, {{path: gone.npz}}]"))
    refused = cbm("run", "grid.yaml", "-j", 0, code=2)
    assert [field for _, field, _ in problems_of(refused)] == ["bars.data.path"]
    assert "gone.npz" in refused.stderr
    assert "--available" in refused.stderr
    assert [1, 2] in numbers(refused.stderr)
    assert "gone" in cbm("run", "grid.yaml", "--list").stdout
    for _ in range(2):  # the second time all trials are done, and what was asked for is still incomplete
        assert re.search(r"^bars: .*\bgone$", run("--available", code=3), re.M)
    assert [*Store(Path("results/bars")).summary()["data"]] == ["bars-and-stripes"] * 8
    np.savez("gone.npz", train=ROWS)
    said = run("--available")
    assert [8, 16, 8] in numbers(said)
    assert "bars: " not in said


def test_nothing_runs_where_all_data_are_missing(grid):
    grid(GRID.replace(BARS, "{path: gone.npz}"))
    assert [kind for *_, kind in problems_of(cbm("run", "grid.yaml", "--available", code=3))] == [
        "incomplete"
    ]
    assert "--available" not in cbm("run", "grid.yaml", code=2).stderr
    assert not Path("results").exists()


def test_rates_are_excluded_for_substitutes_too():
    sets = "[rcv1, rcv1-valid, web, web-reshuffled]"
    path = Path(__file__).parents[1] / "experiments.yaml"
    rates = {}
    for cell in read_grid(path, {"data": sets}, None, ["auto-encoder"]).experiments["auto-encoder"].cells:
        rates.setdefault(cell.data.name, set()).add(cell.learning_rate.start)
    assert rates == {"rcv1": {0.1, 0.5}, "rcv1-valid": {0.1, 0.5}, "web": {0.1}, "web-reshuffled": {0.1}}
