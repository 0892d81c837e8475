"""cbm run from end to end, through the real command line."""

import csv
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from cbm_cli import reference as ref
from cbm_cli.grid.settings import Settings
from cbm_cli.results import Results
from tests.builders import GRID, cbm, files, summary
from tests.oracles import exactly, log_likelihoods, wide


@pytest.fixture
def grid(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("grid.yaml").write_text(GRID)
    return tmp_path


def test_the_curve_of_an_exact_trial_is_that_of_algorithm_2(grid):
    text = GRID.replace("[CD-1, PT_4]", "exact").replace("[00, dd^b_s]", "dd^b_s")
    Path("grid.yaml").write_text(text)
    cbm("run", "grid.yaml", "-o", "out", "-j", 0)
    from cbm_cli.datasets.catalogue import load
    from cbm_cli.grid.read import read_grid
    from cbm_cli.trial.learner import Learner

    (experiment,) = read_grid(Path("grid.yaml")).select()
    rows = load("bars-and-stripes", size=2)
    curves = sorted(Path("out").rglob("*.csv"))
    assert [path.name for path in curves] == ["summary.csv", "trial-000.csv", "trial-001.csv"]
    for trial, path in zip(experiment, curves[1:], strict=True):
        learner = Learner(trial.settings, rows, trial.seed)
        lines = [line.split(",") for line in path.read_text().splitlines()]
        assert lines[0] == ["update", "epoch", "train_log_likelihood"]
        assert [line[:2] for line in lines[1:]] == [[str(u), str(u)] for u in range(0, 101, 20)]
        for update, _, found in lines[1:]:
            state = learner.start()
            start = wide(state[:3]), wide(state[3:5])
            machine, _ = exactly(ref.algorithm_2, *start, rows.train, learner.plan, int(update))
            assert float(found) == pytest.approx(log_likelihoods(*machine, rows.train).mean(), abs=1e-5)


def test_the_summary_holds_the_settings_and_what_the_curve_says(grid):
    cbm("run", "grid.yaml", "-o", "out", "-j", 0)
    rows = summary("out")
    assert len(rows) == 8
    assert [row["offsets"] for row in rows] == ["00"] * 4 + ["dd^b_s"] * 4
    for row in rows:
        with open(f"out/bars/trials/{row['run_id']}/trial-{int(row['trial']):03d}.csv", newline="") as stream:
            curve = [
                (int(line["update"]), float(line["train_log_likelihood"])) for line in csv.DictReader(stream)
            ]
        update, best = max(curve[1:], key=lambda pair: pair[1])  # the start is not part of training
        assert float(row["train_log_likelihood_max"]) == best
        assert int(row["train_log_likelihood_max_update"]) == update
        assert float(row["train_log_likelihood_final"]) == curve[-1][1]
        assert (row["n_train"], row["diverged"]) == ("8", "")
    assert rows[0]["seed"] == rows[2]["seed"] == rows[4]["seed"] != rows[1]["seed"]  # paired by trial


def test_every_way_of_running_gives_the_same_bytes(grid):
    found = []
    for workers in (0, 2):
        cbm("run", "grid.yaml", "-o", workers, "-j", workers)
        timeless = [{k: v for k, v in row.items() if k != "seconds"} for row in summary(str(workers))]
        contents = files(str(workers), ".csv", ".npz")
        contents.pop("bars/summary.csv")
        assert len(contents) == 24  # of 8 trials: curve, machine, end
        found.append((contents, timeless))
    assert found[0] == found[1]


def test_a_second_run_does_nothing_and_more_trials_keep_those_there_are(grid):
    cbm("run", "grid.yaml", "-o", "out", "-j", 0)
    before = {path: path.stat().st_mtime_ns for path in Path("out").rglob("trial-*")}
    result = cbm("run", "grid.yaml", "-o", "out", "-j", 0)
    assert "All 8 trials are done; nothing to run." in result.stderr
    assert {path: path.stat().st_mtime_ns for path in Path("out").rglob("trial-*")} == before
    result = cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--trials", 3)
    assert "8 of 12 trials are done (in earlier runs); 4 to run." in result.stderr
    assert len(summary("out")) == 12
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_other_trials_have_other_seeds_and_other_grids_other_folders(grid):
    cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--set", "seed=6")
    cbm("run", "grid.yaml", "-o", "out", "-j", 0)
    assert len(list(Path("out/bars/trials").iterdir())) == 8
    assert len(summary("out")) == 8
    assert len({row["train_log_likelihood_final"] for row in summary("out")}) == 8


def test_the_same_trial_of_another_experiment_is_not_run_again(grid):
    cbm("run", "grid.yaml", "-o", "out", "-j", 0)
    Path("grid.yaml").write_text(GRID.replace("bars:", "bars-again:"))
    result = cbm("run", "grid.yaml", "-o", "out", "-j", 0)
    assert "All 8 trials are done" in result.stderr
    one, other = files("out/bars/trials", ".csv", ".npz"), files("out/bars-again/trials", ".csv", ".npz")
    assert one == other
    assert {row["experiment"] for row in summary("out", "bars-again")} == {"bars-again"}


@pytest.mark.parametrize("damage", ["truncate", "edit", "record", "value", "machine", "no machine"])
def test_a_damaged_trial_is_named_and_run_again_and_no_other(grid, damage):
    cbm("run", "grid.yaml", "-o", "out", "-j", 0)
    whole = files("out/bars/trials", ".csv", ".npz")
    victim = sorted(Path("out").rglob("trial-001.csv"))[2]
    if damage == "truncate":
        victim.write_bytes(victim.read_bytes()[:40])
    elif damage == "edit":
        victim.write_text(victim.read_text().replace("-", "-0", 1))
    elif damage == "record":
        victim.with_suffix(".json").write_text("{")
    elif damage == "value":
        text = victim.with_suffix(".json").read_text()
        victim.with_suffix(".json").write_text(text.replace('_final": -', '_final": -1', 1))
    elif damage == "machine":
        content = bytearray(victim.with_suffix(".npz").read_bytes())
        content[len(content) // 2] ^= 1
        victim.with_suffix(".npz").write_bytes(content)
    else:
        victim.with_suffix(".npz").unlink()
    times = {path: path.stat().st_mtime_ns for path in Path("out").rglob("trial-*.csv") if path != victim}
    result = cbm("run", "grid.yaml", "-o", "out", "-j", 0)
    assert str(victim.with_suffix("")) in result.stderr
    assert "7 of 8 trials are done (in earlier runs); 1 to run." in result.stderr
    assert files("out/bars/trials", ".csv", ".npz") == whole
    assert {path: path.stat().st_mtime_ns for path in times} == times


def test_a_trial_whose_parameters_are_not_finite_has_diverged(grid):
    cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--set", "weight_decay={l2: 1e4}")
    for row in summary("out"):
        assert row["diverged"] == "20"  # beyond the range of float32; seen at the first evaluation
        assert row["train_log_likelihood_max"] == "-inf"
        assert row["train_log_likelihood_final"] == ""
    assert "diverged" in cbm("table", "out", "bars").stdout


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ("learning_rate=1e-300", "learning_rate"),
        ("learning_rate={start: 1e-46, decay: 0.5, every: 5 updates}", "learning_rate"),
        ("weight_decay={l1: 1e-60}", "weight_decay.l1"),
        ("weight_scale=1e-50", "weight_scale"),
    ],
)
def test_numbers_that_float32_takes_for_zero_are_refused(grid, change, field):
    error = cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--set", change, code=2).stderr
    assert re.search(rf"{re.escape(field)}: 1e-\d+ is 0 in float32; write 1e-45 or more", error)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ("learning_rate=1e39", "learning_rate"),
        ("learning_rate={start: 0.1, steps: 1e39 from 5 updates}", "learning_rate"),
        ("weight_decay={l2: 1e39}", "weight_decay.l2"),
        ("weight_scale=1e39", "weight_scale"),
    ],
)
def test_numbers_beyond_float32_are_refused_before_training(grid, change, field):
    error = cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--set", change, code=2).stderr
    assert f"{field}: must be at most 3.4e+38, the largest float32, not 1e+39" in error
    assert not Path("out").exists()


def test_evaluation_can_be_left_out(grid):
    Path("grid.yaml").write_text(GRID.replace("method: exact, every: 20", "method: none"))
    cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--no-table")
    assert len(summary("out")) == 8
    header = next(Path("out").rglob("trial-000.csv")).read_text().splitlines()[0]
    assert header == "update,epoch"


def test_mini_batches_and_epochs_count_as_they_should(grid):
    cbm(
        "run", "grid.yaml", "-o", "out", "-j", 0, "--no-table",
        "--set", "batch=3", "--set", "updates=21", "--set", "evaluate={method: exact, every: 2 epochs}",
    )  # fmt: skip
    lines = next(Path("out").rglob("trial-000.csv")).read_text().splitlines()[1:]
    # 8 rows are 2 batches of 3; the last 2 rows of an epoch are dropped.
    assert [line.split(",")[:2] for line in lines][:3] == [["0", "0"], ["4", "2"], ["8", "4"]]
    assert lines[-1].startswith("21,10.5,")


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_results_are_stored_as_documented(grid):
    cbm("run", "grid.yaml", "-o", "out", "-j", 0)
    manifest = json.loads(Path("out/bars/manifest.json").read_text())
    assert manifest["trials"] == 2
    assert [cell["offsets"] for cell in manifest["cells"]] == ["00", "00", "dd^b_s", "dd^b_s"]
    path = next(Path("out").rglob("*dd-b-s*CD-1*/trial-000.csv"))
    record = json.loads(path.with_suffix(".json").read_text())
    assert record["sha256"] == {end: digest(path.with_suffix(end)) for end in (".npz", ".csv")}
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as machine:
        shapes = {name: machine[name].shape for name in machine.files}
    sizes = {"weights_0": (4, 3), "biases_0": (4,), "biases_1": (3,), "offsets_0": (4,), "offsets_1": (3,)}
    assert shapes == {"kind": ()} | sizes
    options = ["--exact", "--data", "bars-and-stripes:size=2", "--json"]
    shown = json.loads(cbm("evaluate", path.with_suffix(".npz"), *options).stdout)
    last = float(path.read_text().splitlines()[-1].split(",")[-1])
    expected = {"mean": last, "total": last * 8, "n": 8}  # in float32 during training, in float64 of a file
    assert shown["log_likelihood"] == pytest.approx(expected, abs=1e-6)


def test_the_manifest_names_the_commit_of_the_grid_and_of_no_other_repository(grid):
    cbm("run", "grid.yaml", "-o", "without", "-j", 0, "--no-table")
    assert json.loads(Path("without/bars/manifest.json").read_text())["grid_commit"] is None
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@y.z"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "grid.yaml"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "A grid"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    Path("elsewhere").mkdir()
    os.chdir("elsewhere")
    cbm("run", "../grid.yaml", "-o", "out", "-j", 0, "--no-table")
    assert json.loads(Path("out/bars/manifest.json").read_text())["grid_commit"] == head.strip()


NAMED = """
defaults: {{trials: 1, offsets: 00, sampler: CD-1, learning_rate: 0.1, updates: 20, batch: full}}
experiments:
  "{0}": {{data: &rows {{path: rows.csv, name: "{0}"}}, model: &small {{kind: rbm, hidden: 2}}}}
  again: {{data: *rows, model: *small, start_from: {{experiment: "{0}"}}}}
"""


@pytest.mark.parametrize("name", ["nan", "007", "NA", "null", "1e5", "None", "inf"])
def test_names_that_look_like_numbers_stay_names(grid, name):
    Path("rows.csv").write_text("".join(f"{n & 1},{n >> 1 & 1},{n >> 2 & 1}\n" for n in range(8)))
    Path("grid.yaml").write_text(NAMED.format(name))
    cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--no-table")
    for experiment, start in ((name, ""), ("again", name)):
        facts = {"experiment": experiment, "data": name, "data_name": name, "start_from_experiment": start}
        (row,) = summary("out", experiment)
        assert facts.items() <= row.items()
        (row,) = Results(Path("out")).store(experiment).summary().to_dict("records")
        given = {column: text for column, text in facts.items() if text}
        assert given.items() <= row.items()
    frame = Results(Path("out")).all_summaries()
    assert frame["data"].tolist() == [name] * 2
    assert name in cbm("table", "out", "again", "--rows", "data", "--columns", "offsets").stdout


def test_failed_trials_are_told_with_the_path_of_the_details(grid):
    Path("bad.py").write_text("import sys\ndef f(snapshots, context):\n    sys.exit(3)\n")
    text = GRID.replace("    table:", "    record: {what: bad.py:f, every: 50}\n    table:")
    Path("grid.yaml").write_text(text)
    said = cbm("run", "grid.yaml", "-o", "out", "-j", 0, code=1).stderr
    pattern = "out/bars/trials/*/trial-*.error.txt"
    assert f"8 trials failed; the same command tries again. Details: {pattern}" in said
    assert len([*Path().glob(pattern)]) == 8
    one = GRID.replace("[CD-1, PT_4]", "CD-1").replace("[00, dd^b_s]", "00").replace("trials: 2", "trials: 1")
    one = one.replace("    table:", "    record: {what: bad.py:f, every: 50}\n    table:")
    Path("grid.yaml").write_text(one)
    said = cbm("run", "grid.yaml", "-o", "one", "-j", 0, code=1).stderr
    (path,) = Path().glob("one/bars/trials/*/trial-000.error.txt")
    assert f"1 trial failed; the same command tries again. Details: {path}" in said


def test_ctrl_c_keeps_what_is_finished_and_says_how_to_go_on(grid):
    text = GRID.replace("trials: 2", "trials: 250").replace("every: 20", "every: 5000")
    text = text.replace("updates: 100", "updates: 150000")
    text += "    when: [{if: {offsets: dd^b_s, sampler: CD-1}, set: {updates: 30000000}}]\n"
    Path("grid.yaml").write_text(text)
    command = [sys.executable, "-m", "cbm_cli.cli", "run", "grid.yaml", "-o", "out", "-j", "2"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 90  # of the third trial; a long one is under way by then
    while len(list(Path().rglob("trial-*.csv"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    asked = time.monotonic()
    _, stderr = process.communicate(timeout=30)
    assert time.monotonic() - asked < 5
    assert process.returncode == 130, stderr
    assert "1,000 trials finished in this run" in stderr
    assert "run grid.yaml -o out -j 2" in stderr
    assert "Traceback" not in stderr
    done = len(list(Path().rglob("trial-*.csv")))
    assert done >= 3
    assert len(summary("out")) == done
    assert not list(Path().rglob("*.part"))
    assert list(Path().rglob("*.state.npz"))


def test_pictures_are_drawn_of_the_default_folder_or_of_a_named_one(grid):
    cbm("run", "grid.yaml", "-j", 0, "--no-table")
    for words in (["curves"], ["results", "curves"], ["results/", "curves", "bars"], ["curves", "bars"]):
        cbm("plot", *words, "-o", "curves.png")
        assert Path("curves.png").read_bytes().startswith(b"\x89PNG")
        Path("curves.png").unlink()
    for words in ([], ["results"], ["results", "lines"]):
        assert "cbm plot [RESULTS] curves" in cbm("plot", *words, "-o", "curves.png", code=2).stderr


def test_settings_canonicalise_what_is_the_same():
    cell = {
        "data": {"name": "mnist"},
        "model": {"kind": "rbm", "hidden": 2},
        "learning_rate": 0.1,
        "epochs": 1,
    }
    one = Settings(offsets="dd_s^b", sampler="PT_10-1", **cell)
    assert one == Settings(offsets="dd^b_s", sampler="PT_10", **cell)


def test_what_lists_and_reads_does_not_import_what_computes(grid):
    cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--no-table")
    heavy = ["numba", "pandas", "numpy", "pydantic", "scipy.stats", "rich"]
    for command, needed in (
        ("--help", set()),
        ("run grid.yaml --list", {"pydantic"}),
        ("table out", {"numpy", "pandas", "pydantic"}),  # the settings say which columns are texts
    ):
        code = "import sys; from cbm_cli.cli import main; main(sys.argv[1:], standalone_mode=False); "
        code += f"print(*(name for name in {heavy} if name in sys.modules))"
        shown = subprocess.run([sys.executable, "-c", code, *command.split()], capture_output=True, text=True)
        assert set(shown.stdout.splitlines()[-1].split()) == needed, shown
