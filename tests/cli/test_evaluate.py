"""cbm evaluate: over results of which some have diverged or are damaged, and over
files.
"""

import csv
import json
import re
import shutil
from contextlib import closing
from io import StringIO
from itertools import islice
from pathlib import Path

import cbm_cli as cbm_package
import numpy as np
import pandas as pd
import pytest
from cbm_cli.datasets.loading import load
from cbm_cli.execution.evaluate import _columns, evaluate_trials
from cbm_cli.machines.likelihood import Method
from cbm_cli.results.journal import Journal

from tests import networks as nets
from tests.builders import GRID, arrays, cbm, holds, numbers, run_grid, summary
from tests.journals import as_text, change_record, writing
from tests.pictures import figure_of


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    words = [
        "--set",
        "sampler=CD-1",
        "--set",
        "updates=40",
        "--set",
        "weight_decay=[0,1e30]",
    ]
    return run_grid(GRID, *words, folder=tmp_path_factory.mktemp("evaluate"))


@pytest.fixture(autouse=True)
def folder(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(made, "out")


def sound():
    """Rows of the trials that have not diverged."""
    return [row for row in summary("out") if row["diverged"] == ""]


def test_diverged_trials_are_named_and_the_others_evaluated():
    result = cbm("evaluate", "out", "--exact", "-j", 0)
    column = "train_log_likelihood_exact"
    assert all((row["diverged"] == "") == (row[column] != "") for row in summary("out"))
    for number in range(2):
        assert result.stderr.count(f"trial {number} of rbm-3") == 2
    _, head, *cells = map(str.split, result.stdout.splitlines())
    places = [head.index(name) for name in ("offsets", column, "trials")]
    shown = [tuple(cell[place] for place in places) for cell in cells]
    found = (
        pd.DataFrame(sound()).astype({column: float}).groupby("offsets")[column].mean()
    )
    assert shown == [(scheme, f"{mean:.4f}", "2") for scheme, mean in found.items()]
    lines = cbm("evaluate", "out", "--exact", "--json", "-j", 0).stdout.splitlines()
    told = {"experiment", "trial", column, "exact_log_z", "exact_rows", "exact_version"}
    assert [json.loads(line).keys() for line in lines] == [told] * 4


def test_a_trial_that_diverged_before_its_first_update_is_left_out():
    key = sound()[0]["run_id"], 1
    change_record("out/bars", key, lambda record: record["row"].update(diverged=0))
    said = cbm("evaluate", "out", "--exact", "-j", 0).stderr
    assert f"trial 1 of {key[0]} has diverged" in said
    (row,) = (
        row for row in summary("out") if (row["run_id"], row["trial"]) == (key[0], "1")
    )
    assert row["train_log_likelihood_exact"] == ""


@pytest.mark.parametrize(("machine", "jobs"), [("", 0), (as_text(b"no machine"), 2)])
def test_damaged_trials_are_named_and_change_the_exit_code(machine, jobs):
    command = "evaluate", "out", "--exact", "-j", jobs
    run = sound()[0]["run_id"]
    change_record("out/bars", (run, 1), lambda record: record.update(machine=machine))
    assert holds(cbm(*command, code=3).stderr, f"trial 1 of {run}")
    assert [row["train_log_likelihood_exact"] != "" for row in sound()].count(True) == 3
    assert len(cbm(*command, "--json", code=3).stdout.splitlines()) == 3


AIS = ("--ais", "--temperatures", 30, "--runs", 5)
TABLE = ("table", "out", "bars", "--metric", "train_log_likelihood_ais")


def stop_after(trials, again=False, **how):
    """Evaluate some trials, as if the command were stopped then."""
    with writing("out/bars") as writer:
        evaluation = evaluate_trials(writer, Method(**how), again=again)
        with closing(evaluation):
            return [*islice((one for one in evaluation if not one.diverged), trials)]


def test_an_evaluation_continues_where_it_stopped():
    stop_after(3, name="ais", temperatures=30, runs=5)
    result = cbm("evaluate", "out", *AIS, "-j", 0)
    assert [3] in numbers(result.stderr)
    assert {row["ais_temperatures"] for row in sound()} == {"30"}
    whole = Path("out/bars/summary.csv").read_bytes()
    assert cbm("evaluate", "out", *AIS, "-j", 0).stdout == result.stdout
    assert (
        cbm("evaluate", "out", *AIS, "-j", 2, "--again").stdout == result.stdout
    )  # by workers
    assert Path("out/bars/summary.csv").read_bytes() == whole


def test_values_of_other_settings_are_replaced_only_with_again():
    cbm("evaluate", "out", *AIS, "-j", 0)
    careful, rows = Path("out/bars/trials.jsonl").read_bytes(), summary("out")
    hasty = ("evaluate", "out", "--ais", "--temperatures", 10, "--runs", 3, "-j", 0)
    said = cbm(*hasty, code=3).stderr
    assert holds(said, "temperatures 30, now 10|runs 5, now 3|--again")
    assert "columns added" not in said
    assert Path("out/bars/trials.jsonl").read_bytes() == careful
    cbm("evaluate", "out", "--exact", "-j", 0)  # another method is no other setting
    assert [row["ais_log_z"] for row in summary("out")] == [
        row["ais_log_z"] for row in rows
    ]
    cbm(*hasty, "--again")
    assert {row["ais_temperatures"] for row in sound()} == {"10"}
    assert not {row["ais_log_z"] for row in sound()} & {
        row["ais_log_z"] for row in rows
    }


def test_values_that_are_replaced_leave_no_column_of_the_old_ones():
    cbm("evaluate", "out", *AIS, "-j", 0)
    row = sound()[0]
    key = row["run_id"], int(row["trial"])
    stale = {"test_log_likelihood_ais": -1.0, "ais_old_final": 2.0}
    change_record("out/bars", key, lambda record: record["row"].update(stale))
    cbm("evaluate", "out", *AIS, "-j", 0, "--again")
    (line,) = Journal(Path("out/bars/trials.jsonl")).lines([key])
    assert "test_log_likelihood_ais" not in line.row
    assert line.row["ais_old_final"] == 2.0  # of a recorder


def test_errors_of_log_z_are_independent_over_trials_and_the_same_over_cells():
    data = load("shifting-bar", size=nets.RBM[0], bar=1)
    machines = [
        arrays(**nets.machine_file(nets.layered(nets.RBM, seed), "rbm"))
        for seed in range(6)
    ]

    def log_z(seed, number, machine, cell="run"):
        method = Method("ais", temperatures=20, runs=10, seed=seed)
        file = Path(f"{cell}:{number}"), machine
        answer = _columns((method, number, 1), file, data, bool, bool)
        assert answer["ais_seed"] == seed
        return answer["ais_log_z"]

    found = [
        [log_z(seed, number, machine) for number, machine in enumerate(machines)]
        for seed in range(200)
    ]
    correlations = np.corrcoef(np.transpose(found))[np.triu_indices(6, 1)]
    assert abs(correlations.mean()) < 0.06  # with one seed for all trials 0.2
    assert abs(correlations).max() < 0.28  # four standard errors
    again = [log_z(5, number, machines[0], "another") for number in (0, 1, 0)]
    assert again[0] == again[2] == found[5][0] != again[1]


def test_without_rows_annealing_starts_at_the_visible_biases_of_the_machine():
    """Without weights that is the machine itself, however few temperatures there
    are.
    """
    biases = np.array([3.0, -4.0, 5.0, -6.0, 2.0], np.float32)
    machine = nets.machine_file(nets.layered((5, 3), 1), "rbm")
    machine |= {"weights_0": np.zeros((5, 3), np.float32), "biases_0": biases}
    np.savez("m.npz", **machine)
    answers = [
        json.loads(cbm("evaluate", "m.npz", "--json", *words).stdout)["log_z"]
        for words in (["--exact"], ["--ais", "--temperatures", 3, "--runs", 2])
    ]
    assert answers[0] == pytest.approx(answers[1], abs=1e-4)
    assert cbm_package.load("m.npz").log_partition(
        "ais", temperatures=3, runs=2
    ) == pytest.approx(answers[0], abs=1e-4)


def test_a_table_shows_how_its_values_were_made_and_that_they_differ():
    cbm("evaluate", "out", *AIS, "-j", 0)
    assert "30 temperatures, 5 runs" in cbm(*TABLE).stdout
    assert "MIXED" not in cbm(*TABLE).stdout
    for changed, words in (({"seed": 2}, "seed 2"), ({"runs": 6}, "6 runs")):
        stop_after(1, True, **{"name": "ais", "temperatures": 30, "runs": 5} | changed)
        assert holds(cbm(*TABLE).stdout, f"MIXED|{words}")
    assert "MIXED" in figure_of("plot", "out", "finals", *TABLE[2:])[1]
    records = csv.DictReader(cbm(*TABLE, "-f", "csv").stdout.splitlines())
    assert any(holds(one["evaluated_with"], "6 runs|seed 1") for one in records)


def test_tables_and_pictures_count_doubtful_evaluations_and_show_what_is_proved():
    cbm("evaluate", "out", *AIS, "-j", 0)
    assert not {"DOUBTFUL", "≤"} & {*cbm(*TABLE).stdout.replace(":", "").split()}
    one, other, *_ = sound()  # of one cell
    proved = {"ais_doubtful": 1.0, "train_log_likelihood_at_most_ais": -36.25}
    key = one["run_id"], int(one["trial"])
    change_record("out/bars", key, lambda record: record["row"].update(proved))
    figure, said = figure_of("plot", "out", "finals", *TABLE[2:])
    assert holds(said, "Open|1")
    clouds = [cloud for axes in figure.axes for cloud in axes.collections]
    dots = [tuple(face) for cloud in clouds for face in cloud.get_facecolor()]
    assert dots.count((1, 1, 1, 1)) == 1
    figure, said = figure_of("plot", "out", "settings", *TABLE[2:])
    assert holds(said, "Open|1")
    lines = [line for axes in figure.axes for line in axes.lines]
    hollow = [line for line in lines if line.get_markerfacecolor() == "white"]
    assert sum(len(line.get_xdata()) for line in hollow) == 1
    told = cbm(*TABLE).stdout
    assert "DOUBTFUL: the last log Z of 1 trial " in told
    assert "≤: at most. The proved bound disproves the estimates of 1 trial;" in told
    total = float(other["n_train"])  # the scale of this grid's table
    mean = total * (-36.25 + float(other["train_log_likelihood_ais"])) / 2
    assert f"≤ {mean:.2f} ± " in told
    cells = pd.read_csv(StringIO(cbm(*TABLE, "--format", "csv").stdout))
    assert cells["at_most"].sum() == 1


def test_pseudo_likelihoods_of_results_and_files_are_those_of_python():
    cbm("evaluate", "out", "--pseudo", "-j", 0)
    row = sound()[0]
    name, bars = f"out/{row['run_id']}:{row['trial']}", "bars-and-stripes:size=2"
    rows = cbm_package.data("bars-and-stripes", size=2)["train"]
    expected = cbm_package.load(name).pseudo_likelihood(rows).mean()
    assert float(row["train_pseudo_likelihood_pseudo"]) == pytest.approx(expected)
    told = json.loads(
        cbm("evaluate", name, "--pseudo", "--data", bars, "--json").stdout
    )
    assert told["pseudo_likelihood"]["mean"] == pytest.approx(expected)


def test_a_machine_is_evaluated_on_every_part_of_the_data():
    np.savez("m.npz", **nets.machine_file(nets.layered(nets.RBM, 1), "rbm"))
    rows = nets.visible_rows(nets.RBM)
    np.savez("rows.npz", train=rows[:9], test=rows[9:])
    np.save("test.npy", rows[9:])
    words = "m.npz", "--exact", "--data"
    train, test = map(
        json.loads, cbm("evaluate", *words, "rows.npz", "--json").stdout.splitlines()
    )
    assert (train["part"], train["log_likelihood"]["n"], test.pop("part")) == (
        "train",
        9,
        "test",
    )
    assert test == json.loads(cbm("evaluate", *words, "test.npy", "--json").stdout)
    shown = cbm("evaluate", *words, "rows.npz").stdout
    assert re.search(
        rf"(?s)train\n.*\(9 rows\).*test\n.*\({len(rows) - 9} rows\)", shown
    )
    Path("narrow.svm").write_text(
        "1 1:1 3:1\n-1 2:1\n"
    )  # as wide as the machine all the same
    assert "(2 rows)" in cbm("evaluate", *words, "narrow.svm").stdout


@pytest.mark.parametrize(("layers", "kind"), [(nets.RBM, "rbm"), (nets.THREE, "dbm")])
def test_without_rows_log_z_and_its_proved_bound_are_printed(layers, kind):
    machine = nets.layered(layers, 1)
    np.savez("m.npz", **nets.machine_file(machine, kind))
    expected = np.logaddexp.reduce(
        -nets.layered_energy(machine, nets.all_states(layers))
    )
    exact = json.loads(cbm("evaluate", "m.npz", "--exact", "--json").stdout)
    assert exact["log_z_centered"] == pytest.approx(expected, abs=1e-5)
    said = cbm("evaluate", "m.npz", "--ais", "--json", "--temperatures", "1000")
    found = json.loads(said.stdout)
    assert (
        abs(found["log_z_centered"] - expected)
        < 4 * found["log_z_standard_error"] + 1e-3
    )
    assert found["runs"] == 100
    assert exact["log_z"] - 2 < found["log_z_at_least"] < exact["log_z"] + 1e-4
    assert exact["log_z"] - 1e-4 < found["log_z_at_most"] < exact["log_z"] + 1e-4
    assert holds(said.stderr, "m.npz|--data|log Z|chains")
    assert not {"log_likelihood", "lower_bound", "part"} & found.keys()


def test_a_doubtful_estimate_of_a_deep_machine_advises_more_temperatures():
    np.savez("m.npz", **nets.machine_file(nets.layered(nets.TWO, 1, scale=5.0)))
    np.savez("rows.npz", train=(rows := nets.visible_rows(nets.TWO)), test=rows)
    few = "--ais", "--runs", 2, "--temperatures", 3
    said = cbm("evaluate", "m.npz", *few, "--data", "rows.npz", "--json")
    assert [json.loads(line)["doubtful"] for line in said.stdout.splitlines()] == [
        True,
        True,
    ]
    [warning] = filter(
        None, said.stderr.splitlines()
    )  # once: log Z is that of both parts
    assert holds(warning, "m.npz|--temperatures")
