"""What `cbm run` says: about running trials, data, times, and what to do next."""

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
from cbm_cli.execution import Agenda, Ending, Job, forecast, forecast_run, make_agenda, slow_jobs
from cbm_cli.execution.forecast import Span, _Cost
from cbm_cli.grid.read import read_grid
from cbm_cli.grid.settings import Settings, TableSpec, Trial
from cbm_cli.results import Store
from cbm_cli.trial.loop import run_trial
from tests.builders import GRID, cbm, summary

MODELS = {
    "rbm": {"model": {"kind": "rbm", "hidden": 3}, "offsets": "dd", "sampler": "CD-1"},
    "dbm": {"model": {"kind": "dbm", "hidden": [3, 2]}, "offsets": "ddd", "sampler": "CD-1"},
    "auto-encoder": {"model": {"kind": "auto-encoder", "hidden": 3}, "offsets": "dd"},
}
ROWS = np.random.default_rng(3).integers(0, 2, (40, 6)).astype(np.uint8)


@pytest.fixture
def grid(tmp_path, monkeypatch):
    """Return a function that writes a grid; the working folder is a new one."""
    monkeypatch.chdir(tmp_path)
    Path("grid.yaml").write_text(GRID)
    return lambda text: Path("grid.yaml").write_text(text)


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
    ("kind", "method", "words"),
    [
        ("rbm", None, "train log-likelihood -7.25 per row"),
        ("rbm", "ais", "train log-likelihood -7.25 per row"),
        ("rbm", "none", ""),
        ("dbm", None, "train log-likelihood -7.25 per row"),
        ("dbm", "ais", "train lower bound of the log-likelihood -7.25 per row"),
        ("dbm", "none", ""),
        ("auto-encoder", None, "train cost -7.25 per row"),
        ("auto-encoder", "none", ""),
    ],
)
def test_the_latest_value_has_its_name(kind, method, words):
    one, display = job(kind, method)
    display.listen(*one.key, 4, -7.25)
    assert display.running[one.key] == (4, f"update 4, {words}" if words else "update 4")
    display.listen(*one.key, 8, np.nan)  # pre-training has no value
    assert display.running[one.key] == (8, "update 8")
    display.finished(one, SimpleNamespace(curve=np.array([[20, 1, -7.25]]), diverged=None))
    title = "bars-and-stripes dd" if kind != "dbm" else "bars-and-stripes ddd"
    assert display.latest.startswith(title)
    assert display.latest.endswith(f"trial 0: {words}" if words else "trial 0")
    assert not display.running
    assert display._status().startswith("1 of 1 trials")


@pytest.mark.parametrize(
    ("scale", "parts", "words"),
    [
        ("total", None, "train log-likelihood -16.00 of all 8 rows"),
        ("total", "test", "test log-likelihood -10.00 of all 5 rows"),
        ("total", "test+train", "train log-likelihood -16.00 of all 8 rows"),
        ("total", "valid+test", "test log-likelihood -10.00 of all 5 rows"),
        ("per-sample", "test", "test log-likelihood -2.00 per row"),
    ],
)
def test_progress_has_the_scale_of_the_table_and_calls_a_trial_diverged(scale, parts, words):
    one, display = job("rbm", None, parts, scale)
    display.listen(*one.key, 4, -2.0)
    assert display.running[one.key] == (4, f"update 4, {words}")
    display.finished(one, SimpleNamespace(curve=np.array([[20, 1, np.nan]]), diverged=1234))
    assert display.latest.endswith("trial 0: diverged at update 1,234")


def test_pretraining_is_named_and_counts_as_work(monkeypatch):
    one, display = job("dbm", None, batch=2, pretraining={"epochs": 5})
    before = 2 * 5 * 4  # layers, epochs and batches
    made = []
    run_trial(one.trial, one.data, report=lambda update, value: made.append(update))
    assert made == sorted(made)
    assert {before // 2, before} <= {*made}  # each layer ends with a report
    assert made[-1] > before
    monkeypatch.setattr(display, "started", time.monotonic() - 60)
    display.listen(*one.key, (before + 20) // 2, np.nan)
    assert "pre-training, update" in display._status()
    assert "1 min 00 s left" in display._status()
    display.listen(*one.key, before + 3, np.nan)
    assert "update 3" in display._status()
    assert "pre-training" not in display._status()


def test_work_of_earlier_runs_does_not_shorten_the_time_left(monkeypatch):
    one, display = job("rbm", None, begun=10)
    monkeypatch.setattr(display, "started", time.monotonic() - 60)
    assert "left" not in display._status()
    display.listen(*one.key, 15, np.nan)
    assert "1 min 00 s left" in display._status()


def test_the_time_left_is_that_of_the_latest_rate(monkeypatch):
    one, display = job("rbm", None)
    display.started, now = 0, 0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    for update in range(21):  # at half the speed after update 5
        now = 10 * update if update <= 5 else 50 + 20 * (update - 5)
        display.listen(*one.key, update, np.nan)
        said = display._status()
        if 8 < update < 18:
            assert f"{20 * (20 - update) // 60} min {20 * (20 - update) % 60:02} s left" in said


def test_half_of_an_odd_width_is_said_to_round_down_once(grid):
    for width in (5, 6):
        np.savez(f"w{width}.npz", train=np.eye(width, dtype=np.uint8), valid=np.eye(width, dtype=np.uint8))
    grid("""
experiments:
  halves:
    data: [{path: w5.npz}, {path: w6.npz}]
    model: {kind: auto-encoder, hidden: half}
    offsets: [00, dd]
    learning_rate: [0.1, 0.2]
    batch: full
    epochs: 2
""")
    said = cbm("run", "grid.yaml", "--dry-run").stderr
    assert said.count("half of 5 visible units rounds down to 2 hidden ones") == 1
    assert said.count("half of") == 1
    assert re.search(r"w5.npz: 5 rows x 5 units, 20.0% ones", said)


# ---- Counts ----


def test_every_trial_is_counted_once(grid):
    more = GRID.partition("experiments:\n")[2].replace("bars:", "more:")
    grid(GRID + more.replace("[00, dd^b_s]", "[00, aa]"))
    result = cbm("run", "grid.yaml", "-o", "out", "--dry-run")
    assert "2 experiments with 16 trials; 4 are the same as others and run once" in result.stderr
    assert "12 trials: 0 finished before, 12 to run" in result.stdout
    cbm("run", "grid.yaml", "bars", "-o", "out", "-j", 0, "--no-table")
    # The four shared trials are copied by a run, and count as finished in a dry run already.
    said = cbm("run", "grid.yaml", "-o", "out", "--dry-run").stdout
    assert "12 trials: 8 finished before, 4 to run" in said
    assert not Path("out/more").exists()
    said = cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--no-table").stderr
    assert "8 of 12 trials are done (in earlier runs); 4 to run." in said
    assert [len(summary("out", name)) for name in ("bars", "more")] == [8, 8]


def test_one_is_singular(grid):
    grid(GRID.replace("[CD-1, PT_4]", "CD-1").replace("[00, dd^b_s]", "00"))
    assert "bars (default): 1 cell, 2 trials" in cbm("run", "grid.yaml", "--list").stdout
    dry = cbm("run", "grid.yaml", "--trials", 1, "--dry-run", "-j", 1).stdout
    assert "1 trial: 0 finished before, 1 to run" in dry
    assert "on 1 worker " in dry
    cbm("run", "grid.yaml", "--trials", 1, "-j", 0, "--no-table")
    said = cbm("run", "grid.yaml", "--trials", 1, "-j", 0, "--no-table").stderr
    assert "The trial is done; nothing to run." in said


# ---- What next ----


def test_next_steps_can_be_typed_where_cbm_is_not_on_the_path(grid, monkeypatch):
    Path("bin").mkdir()
    for name in ("cbm", "activate"):
        Path("bin", name).touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", ["bin/cbm"])
    monkeypatch.setenv("PATH", "/nowhere")
    assert common.program() == "bin/cbm"
    said = cbm("run", "grid.yaml", "-j", 0, "--no-table").stderr
    assert "Next:  bin/cbm plot results curves bars -o curves.png\n       bin/cbm table results bars" in said
    assert "source bin/activate" in said
    assert "compare" not in said  # the paper has no such trials
    monkeypatch.setenv("PATH", str(Path("bin").absolute()))
    assert common.program() == "cbm"
    assert "activate" not in cbm("run", "grid.yaml", "-j", 0, "--no-table").stderr
    shutil.copytree("bin", "other")
    monkeypatch.setattr(sys, "argv", ["other/cbm"])  # the shell would find another one
    assert common.program() == "other/cbm"
    monkeypatch.setattr(sys, "argv", ["/x/cbm_cli/cli/__main__.py"])
    assert common.program() == f"{sys.executable} -m cbm_cli.cli"


def test_compare_is_suggested_where_there_is_a_published_value(grid):
    paper = (
        GRID.replace("size: 2", "size: 3").replace("hidden: 3", "hidden: 4").replace("[CD-1, PT_4]", "CD-1")
    )
    paper = paper.replace("[00, dd^b_s]", "dd^l_s").replace("updates: 100", "updates: 50000")
    grid(paper.replace("every: 20", "every: 50"))
    said = cbm("run", "grid.yaml", "-j", 0, "--no-table", "--trials", 1).stderr
    assert said.rstrip().endswith("cbm compare")


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
    """Set the costs of every trial: beginning, update, later update, evaluation."""
    monkeypatch.setattr(forecast, "compile_kernels", lambda *_: None)
    return lambda *seconds: monkeypatch.setattr(forecast, "_cost", lambda job: _Cost(*seconds))


def test_a_forecast_counts_start_updates_pretraining_and_evaluations(tmp_path, costs):
    costs(0.5, 0.001, 0.004, 0.1)
    deep = Settings(
        data={"name": "bars-and-stripes", "size": 2},
        model={"kind": "dbm", "hidden": [3, 2]},
        offsets="ddd^b",
        sampler="CD-1",
        learning_rate=0.1,
        epochs=300,
        batch=4,  # of 8 rows: 2 updates per epoch
        pretraining={"epochs": 200},
        evaluate={"method": "ais", "every": "100 epochs", "temperatures": 1000},
    )
    data = load("bars-and-stripes", size=2)
    jobs = [Job(Trial("test", deep, n, 1), "run", data, ()) for n in range(3)]
    found = forecast_run(Agenda([], {}, {}, {}, jobs), 2)
    fixed = 0.5 + 4 * 0.1  # evaluations at 0, 100, 200 and 300 epochs
    low, high = fixed + 0.001 * 2 * 500, forecast._BUSY * (fixed + 0.001 * 2 * 200 + 0.004 * 2 * 300)
    assert found.trial == pytest.approx((low, high))
    assert found.run.low == pytest.approx(forecast._START + 3 * low / 2)
    assert found.run.high == pytest.approx(forecast._START + 3 * high / 2 + 3 * forecast._WRITING)
    assert found.known == 0
    alone = forecast_run(Agenda([], {}, {}, {}, jobs), 0)
    assert alone.run.low == pytest.approx(forecast._START + 3 * low)
    many = forecast_run(Agenda([], {}, {}, {}, jobs), 100)
    assert many.run.high >= high  # a run takes as long as its longest trial


def test_finished_trials_of_a_cell_are_its_forecast(tmp_path, costs):
    costs(0.0, 1.0, 1.0, 0.0)
    (tmp_path / "first.yaml").write_text(GRID)
    cbm("run", tmp_path / "first.yaml", "-o", tmp_path / "out", "-j", 0, "--no-table")
    agenda = agenda_of(tmp_path, ("trials: 2", "trials: 3"), ("[CD-1, PT_4]", "CD-1"))
    assert len(agenda.jobs) == 2
    past = [agenda.stores["bars"].seconds(one.run_id) for one in agenda.jobs]
    assert [len(seconds) for seconds in past] == [2, 2]
    found = forecast_run(agenda, 1)
    assert found.known == 2
    assert found.run.low == pytest.approx(forecast._START + sum(map(min, past)))
    assert found.trial == Span(*next((min(s), max(s)) for s in past if max(s) == max(map(max, past))))


def test_an_update_of_mean_field_is_also_timed_with_large_weights(tmp_path, monkeypatch):
    machine = ("{kind: rbm, hidden: 3}", "{kind: dbm, hidden: [3, 2]}")
    (one, *_) = agenda_of(tmp_path, machine, ("[00, dd^b_s]", "000"), ("[CD-1, PT_4]", "CD-1")).jobs
    weights, seconds = [], forecast._update_seconds

    def timed(learner, state):
        weights.append(float(state.W[state.W != 0].std()))
        return seconds(learner, state)

    monkeypatch.setattr(forecast, "_update_seconds", timed)
    cost = forecast._cost(one)
    assert len(weights) == 2
    assert weights[1] > 10 * weights[0]
    assert cost.later_update >= cost.update > 0


def test_a_dry_run_says_how_long_it_takes(grid):
    result = cbm("run", "grid.yaml", "-o", "out", "--dry-run", "-j", 2)
    assert re.search(
        r"^about .*\d+ s on 2 workers \(by timing updates and evaluations\)$", result.stdout, re.M
    )
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("batch", "remedy"), [("full", "batch: 100 takes 1/30"), ("100", "fewer updates or epochs")]
)
def test_a_trial_of_hours_is_warned_of_before_it_runs(grid, costs, monkeypatch, batch, remedy):
    costs(0.0, 0.1, 0.2, 0.0)
    np.savez("rows.npz", train=np.tile(ROWS, (75, 1)))
    text = GRID.replace("{name: bars-and-stripes, size: 2}", "{path: rows.npz}").replace("100", "50000")
    grid(text.replace("batch: full", f"batch: {batch}").replace("every: 20", "every: 50000"))
    dry = cbm("run", "grid.yaml", "--dry-run", "-j", 1)
    said = next(line for line in dry.stderr.splitlines() if line.startswith("warning"))
    assert "a trial such as rows 00 CD-1 0.1 trial 0 takes about 1 h 23 min to 4 h 26 min" in said
    assert remedy in said
    monkeypatch.setattr("cbm_cli.execution.run_agenda", lambda *_, **__: Ending())
    monkeypatch.setattr("cbm_cli.execution.slow_jobs", lambda agenda: agenda.jobs[:1])
    monkeypatch.setattr("cbm_cli.execution.compile_kernels", lambda *_: None)
    assert said in cbm("run", "grid.yaml", "-j", 1).stderr


def test_long_trials_are_found_without_timing(tmp_path):
    assert not slow_jobs(agenda_of(tmp_path))
    many = ("updates: 100", "updates: 4000000000"), ("every: 20", "every: 4000")
    slow = slow_jobs(agenda_of(tmp_path, *many), 3e12)
    assert [one.trial.settings.sampler for one in slow] == ["PT_4", "PT_4"]


# ---- Missing data ----

TWO_SETS = GRID.replace(
    "{name: bars-and-stripes, size: 2}", "[{name: bars-and-stripes, size: 2}, {path: gone.npz}]"
)


def test_what_is_there_can_be_run_without_the_rest(grid):
    grid(TWO_SETS)
    said = cbm("run", "grid.yaml", "-j", 0, code=2).stderr
    assert "gone.npz" in said
    assert "1 of 2 data sets are here; add --available" in said
    assert "missing data: gone;" in cbm("run", "grid.yaml", "--list").stdout
    for _ in range(2):  # the second time all trials are done, and what was asked for is still incomplete
        result = cbm("run", "grid.yaml", "-j", 0, "--available", code=3)
        assert "bars: left out, the data are missing: gone" in result.stderr
    assert len(summary("results")) == 8
    assert {row["data"] for row in summary("results")} == {"bars-and-stripes"}
    np.savez("gone.npz", train=ROWS)
    said = cbm("run", "grid.yaml", "-j", 0, "--available", "--no-table").stderr
    assert "8 of 16 trials are done" in said
    assert "left out" not in said


def test_nothing_runs_where_all_data_are_missing(grid):
    grid(GRID.replace("{name: bars-and-stripes, size: 2}", "{path: gone.npz}"))
    assert "nothing was run" in cbm("run", "grid.yaml", "--available", code=3).stderr
    assert "--available" not in cbm("run", "grid.yaml", code=2).stderr
    assert not Path("results").exists()


def test_rates_are_excluded_for_substitutes_too():
    sets = "[rcv1, rcv1-valid, web, web-reshuffled]"
    path = Path(__file__).parents[1] / "experiments.yaml"
    grid = read_grid(path, {"data": sets}, None, ["auto-encoder"])
    rates = {}
    for cell in grid.experiments["auto-encoder"].cells:
        rates.setdefault(cell.data.name, set()).add(cell.learning_rate.start)
    assert rates == {"rcv1": {0.1, 0.5}, "rcv1-valid": {0.1, 0.5}, "web": {0.1}, "web-reshuffled": {0.1}}
