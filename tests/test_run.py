"""cbm run from end to end, through the real command line."""

import csv
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cbm_cli import reference as ref
from cbm_cli.datasets.catalogue import load
from cbm_cli.grid.read import read_grid
from cbm_cli.results import Results
from cbm_cli.trial.learner import Learner
from tests.builders import GRID, cbm, files, numbers, problems_of, summary, trials_of
from tests.oracles import exactly, log_likelihoods, wide

SINGLE = GRID.replace("[CD-1, PT_4]", "CD-1").replace("[00, dd^b_s]", "00").replace("trials: 2", "trials: 1")


def run(*options, out="out", code=0):
    """Run the grid in this process; return what is said."""
    return cbm("run", "grid.yaml", "-o", out, "-j", 0, "--no-table", *options, code=code).stderr


def times(pattern="trial-*"):
    return {path: path.stat().st_mtime_ns for path in Path("out").rglob(pattern)}


def test_the_curve_of_an_exact_trial_is_that_of_algorithm_2(grid):
    Path("grid.yaml").write_text(GRID.replace("[CD-1, PT_4]", "exact").replace("[00, dd^b_s]", "dd^b_s"))
    run()
    (experiment,) = read_grid(Path("grid.yaml")).select()
    rows = load("bars-and-stripes", size=2)
    curves = sorted(Path("out").rglob("trial-*.csv"))
    assert [path.name for path in curves] == ["trial-000.csv", "trial-001.csv"]
    for trial, path in zip(experiment, curves, strict=True):
        learner = Learner(trial.settings, rows, trial.seed)
        head, *lines = [line.split(",") for line in path.read_text().splitlines()]
        assert head == ["update", "epoch", "train_log_likelihood"]
        assert [line[:2] for line in lines] == [[str(u), str(u)] for u in range(0, 101, 20)]
        for update, _, found in lines:
            state = learner.start()
            start = wide(state[:3]), wide(state[3:5])
            machine, _ = exactly(ref.algorithm_2, *start, rows.train, learner.plan, int(update))
            assert float(found) == pytest.approx(log_likelihoods(*machine, rows.train).mean(), abs=1e-5)


def test_the_summary_holds_the_settings_and_what_the_curve_says(finished):
    rows = summary("out")
    assert [row["offsets"] for row in rows] == ["00"] * 4 + ["dd^b_s"] * 4
    for row in rows:
        with open(f"out/bars/trials/{row['run_id']}/trial-{int(row['trial']):03d}.csv", newline="") as stream:
            pairs = [
                (int(line["update"]), float(line["train_log_likelihood"])) for line in csv.DictReader(stream)
            ]
        update, best = max(pairs[1:], key=lambda pair: pair[1])  # the start is not part of training
        assert float(row["train_log_likelihood_max"]) == best
        assert int(row["train_log_likelihood_max_update"]) == update
        assert float(row["train_log_likelihood_final"]) == pairs[-1][1]
        assert (row["n_train"], row["diverged"]) == ("8", "")
    assert rows[0]["seed"] == rows[2]["seed"] == rows[4]["seed"] != rows[1]["seed"]  # paired by trial


def test_trials_on_workers_have_the_same_bytes(finished):
    cbm("run", "grid.yaml", "-o", "two", "-j", 2, "--no-table")
    assert len(trials_of("out")) == 24  # of 8 trials: curve, machine, end
    assert trials_of("two") == trials_of("out")
    one, two = ([row | {"seconds": ""} for row in summary(folder)] for folder in ("out", "two"))
    assert one == two


def test_a_second_run_does_nothing_and_more_trials_keep_those_there_are(finished):
    before = times()
    assert [8] in numbers(run())
    assert times() == before
    assert [8, 12, 4] in numbers(run("--trials", 3))
    assert len(summary("out")) == 12
    assert times().items() >= before.items()


def test_other_trials_have_other_seeds_and_other_grids_other_folders(finished):
    before = summary("out")
    run("--set", "seed=6")
    assert len(list(Path("out/bars/trials").iterdir())) == 8
    assert len({row["train_log_likelihood_final"] for row in (*before, *summary("out"))}) == 16


def test_the_same_trial_of_another_experiment_is_not_run_again(finished):
    Path("grid.yaml").write_text(GRID.replace("bars:", "bars-again:"))
    assert [8] in numbers(run())
    assert files("out/bars/trials", ".csv", ".npz") == files("out/bars-again/trials", ".csv", ".npz")
    assert {row["experiment"] for row in summary("out", "bars-again")} == {"bars-again"}


def middle_bit(content):
    at = len(content) // 2
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


DAMAGES = {  # the file's ending, and what it holds then
    "truncated": (".csv", lambda content: content[:40]),
    "edited": (".csv", lambda content: content.replace(b"-", b"-0", 1)),
    "record": (".json", lambda content: b"{"),
    "value": (".json", lambda content: content.replace(b'_final": -', b'_final": -1', 1)),
    "machine": (".npz", middle_bit),
    "no machine": (".npz", None),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_trial_is_named_and_run_again_and_no_other(finished, damage):
    whole = trials_of("out")
    victim = sorted(Path("out").rglob("trial-001.csv"))[2]
    suffix, harm = DAMAGES[damage]
    path = victim.with_suffix(suffix)
    path.write_bytes(harm(path.read_bytes())) if harm else path.unlink()
    before = times("trial-*.csv")
    said = run()
    assert str(victim.with_suffix("")) in said
    assert [7, 8, 1] in numbers(said)
    assert trials_of("out") == whole
    assert {path for path, when in times("trial-*.csv").items() if before[path] != when} == {victim}


def test_a_trial_whose_parameters_are_not_finite_has_diverged(grid):
    run("--set", "weight_decay={l2: 1e4}")
    for row in summary("out"):
        assert row["diverged"] == "20"  # beyond the range of float32; seen at the first evaluation
        assert row["train_log_likelihood_max"] == "-inf"
        assert row["train_log_likelihood_final"] == ""
    assert "diverged" in cbm("table", "out", "bars").stdout


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ("learning_rate=1e-300", "learning_rate"),  # 0 in float32
        ("learning_rate={start: 1e-46, decay: 0.5, every: 5 updates}", "learning_rate"),
        ("weight_decay={l1: 1e-60}", "weight_decay.l1"),
        ("weight_scale=1e-50", "weight_scale"),
        ("learning_rate=1e39", "learning_rate"),
        ("learning_rate={start: 0.1, steps: 1e39 from 5 updates}", "learning_rate"),
        ("weight_decay={l2: 1e39}", "weight_decay.l2"),
        ("weight_scale=1e39", "weight_scale"),
    ],
)
def test_numbers_that_float32_does_not_hold_are_refused_before_training(grid, change, field):
    refused = cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--set", change, code=2)
    assert {named for _, named, _ in problems_of(refused)} == {f"bars.{field}"}
    assert ("3.4e+38" if "39" in change else "1e-45") in refused.stderr
    assert not Path("out").exists()


def test_batches_and_epochs_count_as_they_should_and_evaluation_can_be_left_out(grid):
    run("--set", "batch=3", "--set", "updates=21", "--set", "evaluate={method: exact, every: 2 epochs}")
    lines = next(Path("out").rglob("trial-000.csv")).read_text().splitlines()[1:]
    # 8 rows are 2 batches of 3; the last 2 rows of an epoch are dropped.
    assert [line.split(",")[:2] for line in lines][:3] == [["0", "0"], ["4", "2"], ["8", "4"]]
    assert lines[-1].startswith("21,10.5,")
    run("--set", "evaluate={method: none}", out="none")
    assert len(summary("none")) == 8
    assert next(Path("none").rglob("trial-000.csv")).read_text().splitlines()[0] == "update,epoch"


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_results_are_stored_as_documented(finished):
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


def test_the_manifest_names_the_commit_of_the_grid_and_of_no_other_repository(finished):
    assert json.loads(Path("out/bars/manifest.json").read_text())["grid_commit"] is None
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@y.z"]
    for words in ("init -q", "add grid.yaml", "commit -q -m Grid"):
        subprocess.run([*git, *words.split()], check=True)
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
    run()
    for experiment, start in ((name, ""), ("again", name)):
        facts = {"experiment": experiment, "data": name, "data_name": name, "start_from_experiment": start}
        (row,) = summary("out", experiment)
        assert facts.items() <= row.items()
        (row,) = Results(Path("out")).store(experiment).summary().to_dict("records")
        assert {column: text for column, text in facts.items() if text}.items() <= row.items()
    assert Results(Path("out")).all_summaries()["data"].tolist() == [name] * 2
    assert name in cbm("table", "out", "again", "--rows", "data", "--columns", "offsets").stdout


def test_failed_trials_are_told_with_the_path_of_the_details_and_run_again(grid, monkeypatch):
    pattern = "out/bars/trials/*/trial-*.error.txt"
    with monkeypatch.context() as broken:
        broken.setattr("cbm_cli.execution.worker.run_trial", lambda *_: 1 / 0)
        said = run(code=1)
        assert pattern in said
        assert [8] in numbers(said)
        assert len([*Path().glob(pattern)]) == 8
        assert "ZeroDivisionError" in next(Path().glob(pattern)).read_text()
        assert not times("trial-*.csv")
        Path("grid.yaml").write_text(SINGLE)
        (path,) = Path().glob("out/bars/trials/*_00_CD-1_*/trial-000.error.txt")
        assert str(path) in run(code=1)
    run()
    assert len(times("trial-*.csv")) == 1
    assert not path.exists()


def test_what_lists_and_reads_does_not_import_what_computes(finished):
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
