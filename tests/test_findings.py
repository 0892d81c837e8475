"""Findings of the paper on results folders where they hold, where they do not, and where little was run."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from cbm_cli.datasets.catalogue import load
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.grid.read import read_grid
from cbm_cli.grid.settings import Trial
from cbm_cli.machines.files import read_machine
from cbm_cli.paper import machine_measures
from cbm_cli.paper.findings import (
    VERDICTS,
    Evidence,
    Judged,
    check_findings,
    findings,
    findings_document,
    pairs_of,
)
from cbm_cli.paper.published import match, published_cells
from cbm_cli.results import Outcome, Results, Store, run_ids
from cbm_cli.text import text_of
from tests.builders import TWO, cbm, coins, layered, machine_file

GRID = read_grid(Path(__file__).parents[1] / "experiments.yaml").experiments
PLAIN = {"kind": np.array("rbm"), "weights_0": np.zeros((2, 2))}


def made(folder, experiment, course, trials=6, chosen=bool, machine=lambda cell, trial: PLAIN, first=0):
    """Write results of an experiment whose trials have the columns that ``course(cell, trial)`` returns.

    Columns are by update; names without a part of the data are records. ``machine(cell, trial)`` returns the
    arrays of the machine file.
    """
    store, planned = Store(folder / experiment), GRID[experiment]
    names = [run_ids(cell, 1, f"{experiment} {cell.data.title}")[0] for cell in planned.cells]
    (folder / experiment).mkdir(parents=True)
    store.write_manifest(planned, names, {}, None)
    for name, cell in zip(names, planned.cells, strict=True):
        for number in range(first, trials if chosen(cell.row()) else first):
            columns = {key: np.array(values, float) for key, values in course(cell.row(), number).items()}
            updates = columns.pop("update")
            curve = {key: values for key, values in columns.items() if re.match("train_|valid_|test_", key)}
            recorded = {key: values for key, values in columns.items() if key not in curve}
            rows = np.column_stack([updates, updates, *curve.values()])
            outcome = Outcome(
                ("update", "epoch", *curve), rows, machine(cell.row(), number), None, 1.0,
                {"train": 8, "valid": 8, "test": 8}, recorded=("update", *recorded) if recorded else (),
                records=np.column_stack([updates, *recorded.values()]) if recorded else None,
            )  # fmt: skip
            store.write(name, Trial(experiment, cell, number, 1), outcome)
    store.flush()
    return folder


def judged(folder, *experiment, **options):
    """What is found in a folder, by name, after results of an experiment are `made` in it."""
    results = Results(made(folder, *experiment, **options) if experiment else folder)
    return {one.finding["name"]: one for one in check_findings(results.all_summaries(), results.store)}


def runs_of(*experiments, **settings):
    """A frame of all runs of experiments; their ids are names and numbers."""
    cells = [(name, number, cell) for name in experiments for number, cell in enumerate(GRID[name].cells)]
    return pd.DataFrame([cell.row() | {"run_id": f"{name}-{n}"} | settings for name, n, cell in cells])


@pytest.mark.parametrize("finding", findings(), ids=lambda it: it["name"])
def test_every_check_compares_runs_of_the_paper_s_grids_at_full_length(finding):
    runs = runs_of(*finding["experiments"])
    pairs = [pairs_of(finding, check, runs) for check in finding["checks"]]
    assert all(pairs)
    assert sum(map(len, pairs)) == finding["comparisons"] >= finding.get("need", 0)
    assert {"updates", "epochs"} & {*finding["where"]}, "shorter trainings say nothing"
    used = {run for some in pairs for pair in some for run in pair if isinstance(run, str)}
    assert {run.rpartition("-")[0] for run in used} == {*finding["experiments"]}
    assert re.match(r"6\.\d+, (tables?|figures?|text)|3(\.1)?, (text|appendix [ABC])$", finding["place"])
    assert len(finding["says"]) < 120
    for key in ("name", "says"):
        assert len({one[key] for one in findings()}) == len(findings()) > 36


def test_trainings_of_two_lengths_are_not_compared_and_both_have_to_be_as_stated():
    (finding,) = (one for one in findings() if one["name"] == "deep-mnist")
    runs = pd.concat([runs_of("dbm-mnist", epochs=epochs) for epochs in (300, 1000)])
    runs["run_id"] = [f"{epochs} {run}" for epochs, run in zip(runs["epochs"], runs["run_id"], strict=True)]
    pairs = pairs_of(finding, finding["checks"][0], runs)
    assert len(pairs) == 8
    assert all(one.split()[0] == other.split()[0] for one, other in pairs)
    evidence = [Evidence(0, *pair, -90, -91, 6, 0.03, int(pair[0].startswith("300")), True) for pair in pairs]
    assert Judged(finding, evidence).verdict == "undecided"
    assert Judged(finding, [one for one in evidence if one.outcome]).verdict == "reproduced"


def test_the_published_values_are_as_the_findings_say(tmp_path):
    """The one trial of a cell has the published maximum, and the published final value where there is one."""
    published = published_cells()
    published = published[published["reading"] == published["sampler"]]
    metric = {"rbm": "log_likelihood_max", "dbm": "lower_bound_max", "auto-encoder": "cost_min"}
    trials = []
    for name in {name for one in findings() for name in one["experiments"]}:
        cells = [cell.row() for cell in GRID[name].cells]
        found = match(published, pd.DataFrame(cells).map(text_of))
        found = found[found["departures"].map(len) == 0]
        found = found.sort_values("final_mean", key=lambda text: text == "")  # those that have one first
        for run, lines in found.drop_duplicates(["run", "split"]).groupby("run"):
            trial = {"experiment": name, "run_id": f"{name} {run}", "trial": 0, "diverged": None}
            for line in lines.itertuples():
                part = "valid" if line.model == "auto-encoder" and line.split == "test" else line.split
                rows = 8 if line.log_likelihood_scale == "total" else 1
                column = f"{part}_{metric[line.model]}"
                trial[column] = float(line.mean) / rows
                trial[f"{column[:-4]}_final"] = float(line.final_mean or line.mean) / rows
            trials.append(cells[run] | trial | {f"n_{part}": 8 for part in ("train", "valid", "test")})
    found = check_findings(pd.DataFrame(trials), lambda name: Store(tmp_path / name))  # without curves
    judged = [one for one in found if one.evidence]
    assert sum(len(one.evidence) == one.finding["comparisons"] for one in judged) >= 20
    for one in judged:
        misses = one.finding["comparisons"] - one.needed
        assert sum(not it.means_agree for it in one.evidence) <= misses, one.numbers()


def toy(best, final):
    """A curve of a toy, by its sums over 8 rows."""
    return {"update": [0, 25000, 50000], "train_log_likelihood": np.array([-100, best, final]) / 8}


DIVERGING = {"aa^b": -150, "dm^b": -150, "mm^b": -190}


def figure_8(finals):
    return lambda cell, trial: toy(-50, finals.get(cell["offsets"], -50.5) - trial / 10)


BELOW = (
    "moving-average-prevents-divergence",
    "data-mean-needs-no-average",
    "moving-average-keeps-the-maximum",
)
LOST = lambda cell, trial: toy(-50, (-np.inf if trial else -60) if cell["offsets"] in DIVERGING else -50)  # noqa: E731


@pytest.mark.parametrize(
    ("course", "verdicts"),
    [
        (LOST, ["reproduced"] * 3),  # a trial without a finite value counts as the lowest
        (figure_8({}), ["contradicted", "reproduced", "reproduced"]),  # nothing diverges
        (figure_8(DIVERGING | {"aa^b_s": -120}), ["contradicted", "reproduced", "reproduced"]),
        (figure_8(DIVERGING | {"dd^b": -90}), ["reproduced", "contradicted", "reproduced"]),
        (lambda cell, trial: toy(-50 - 9 * cell["offsets"].endswith("_s"), -150), ["contradicted"] * 3),
    ],
)
def test_divergence_and_moving_averages_are_as_stated_or_contradicted(tmp_path, course, verdicts):
    found = judged(tmp_path, "no-moving-average", course)
    assert [found[name].verdict for name in BELOW] == verdicts


@pytest.mark.parametrize(("finals", "means_agree"), [(DIVERGING, 4), ({}, 2)])
def test_few_trials_decide_nothing(tmp_path, finals, means_agree):
    few = judged(tmp_path, "no-moving-average", figure_8(finals), trials=5)[BELOW[0]]
    assert (few.verdict, few.trials) == ("undecided", "5")
    assert [few.record()[name] for name in ("as_stated", "means_agree", "compared")] == [0, means_agree, 4]


def test_a_part_of_the_runs_decides_nothing_nor_does_an_experiment_without_trials(tmp_path):
    made(tmp_path, "divergence", figure_8({}), trials=0)
    part = {"chosen": lambda cell: "aa" in cell["offsets"]}
    one = judged(tmp_path, "no-moving-average", figure_8(DIVERGING), **part)[BELOW[0]]
    assert one.verdict == "undecided"
    assert "above 5: 1 of 1 (100.2)" in one.numbers()  # -50 to -150 - trial / 10


@pytest.mark.parametrize(("trials", "verdict"), [(1, "not run"), (2, "undecided"), (9, "reproduced")])
def test_one_trial_has_no_spread(tmp_path, trials, verdict):
    def course(cell, trial):
        wide = 1 + trial % 3 if cell["offsets"] in ("00", "d0^b_s") else trial / 100
        return {"update": [0, 60000, 120000], "test_log_likelihood": [-200, -80 - wide, -90]}

    found = judged(tmp_path, "big-rbm-mnist", course, trials)
    assert found["big-mnist-spread"].verdict == verdict
    assert found["big-mnist"].verdict != "not run"


@pytest.mark.parametrize(
    ("final", "verdict"),
    [({"dd^b": -40}, "reproduced"), ({}, "undecided"), ({"dd^b": -40, "0d": -30}, "contradicted")],
)
def test_one_side_and_both(tmp_path, final, verdict):
    course = lambda cell, trial: toy(-60, final.get(cell["offsets"], -45) - trial / 10)  # noqa: E731
    assert judged(tmp_path, "other-offsets", course)["both-layers-above-one"].verdict == verdict


@pytest.mark.parametrize(("early", "verdict"), [(-40, "reproduced"), (-50, "contradicted")])
def test_a_value_at_an_update_is_the_first_from_there_on(tmp_path, early, verdict):
    def course(cell, trial):
        ahead = cell["offsets_from"] == "same" and cell["offsets"] != "dd^b"
        values = np.array([-90, -80, early if ahead else -45, -30]) - trial / 10
        return {"update": [0, 9000, 11000, 50000], "train_log_likelihood": values / 8}

    one = judged(tmp_path, "divergence-causes", course)["faster-at-first"]
    assert one.verdict == verdict
    assert {round(e.value + 0.25) for e in one.evidence} == {early, -45}


@pytest.mark.parametrize(("near", "far"), [(20, 60), (60, 20)])
def test_angles_are_means_of_the_records(tmp_path, near, far):
    def course(cell, trial):
        reached = -1.73 if cell["gradient_kind"] == "natural" else -3
        return {
            "update": [0, 10, 100, 5000, 10000],
            "train_log_likelihood": [-3, reached, reached, -1.73, -1.73],
            "angle_natural_centered": [near + trial, near, near, 90, 90],  # after update 200: not counted
            "angle_natural_standard": [far + trial, far, far, 0, 0],
        }

    def needed(cell):
        own_length = cell["gradient_fisher"] == "joint" and cell["gradient_scale_to"] == "none"
        return own_length or cell["gradient_kind"] == "centered"

    found = judged(tmp_path, "natural-gradient", course, chosen=needed)
    one = found["closer-to-natural"]
    assert one.verdict == ("reproduced" if near < far else "contradicted")
    assert {(round(e.value - e.other), e.n) for e in one.evidence} == {(near - far, 6)}
    assert found["natural-is-fast"].verdict == "reproduced"
    assert {e.value for e in found["natural-is-fast"].evidence} == {10}
    assert found["centered-is-shorter"].verdict == "undecided"  # both reach the value at once


def test_numbers_are_means_over_the_trials_in_which_both_sides_have_one(tmp_path):
    def course(cell, trial):
        late = cell["gradient_scale_to"] == "standard"
        values = -3 if late and trial == 5 else -1.73  # which never reaches the value
        updates = [0, 1000 + 1000 * trial + 500 * late, 10000]
        return {"update": updates, "train_log_likelihood": [-3, values, values]}

    found = judged(tmp_path, "natural-gradient", course)["centered-is-shorter"]
    (one,) = found.evidence
    assert (one.value, one.other, one.n, found.verdict) == (3500, 3000, 6, "contradicted")


def test_means_are_over_updates_not_over_rows(tmp_path):
    def course(cell, trial):
        return {
            "update": [0, 1, 2, 3, 10000],  # four rows in a window of the recorder
            "train_log_likelihood": [-3, -3, -3, -3, -1.73],
            "angle_natural_centered": [trial, np.nan, trial, trial, trial + 90],
            "angle_natural_standard": [40] * 5,
        }

    found = judged(tmp_path, "natural-gradient", course)["closer-to-natural-elsewhere"]
    assert found.verdict == "contradicted"
    assert [e.value for e in found.evidence] == [pytest.approx(45 + 2.5, abs=0.02)] * 4


def test_the_lower_cost_is_the_better(tmp_path):
    def course(cell, trial):
        cost = 0.5 if cell["offsets"] == "dd^b_s" else 0.6
        columns = {"valid_cost": [9, cost + trial, 3 + cost], "train_cost": [9, cost, cost]}
        return {"update": [0, 9, 18]} | columns

    few = {"chosen": lambda cell: cell["data"] in ("connect4", "mushrooms", "rcv1")}
    found = judged(tmp_path, "auto-encoder", course, **few)
    assert [one.outcome for one in found["auto-encoders"].evidence] == [1, 1, 1, 1]
    assert found["auto-encoders"].verdict == "undecided"  # on two of nine data sets
    assert found["auto-encoders-rcv1"].verdict == found["auto-encoders-training"].verdict == "contradicted"


def test_the_command_lists_all_and_tells_what_was_not_run(tmp_path):
    """Results in which schemes of model means diverge without a moving average, as in the paper."""
    found = judged(tmp_path, "no-moving-average", figure_8(DIVERGING))
    assert [found[name].verdict for name in BELOW] == ["reproduced"] * 3
    assert {one.verdict for name, one in found.items() if name not in BELOW} == {"not run"}
    # Numbers are sums over the rows and name the runs
    checks = "fall of aa^b_s, dm^b_s below 3: 2 of 2 (0.75)", "fall of aa^b, dm^b above 5: 2 of 2 (100.2)"
    assert found[BELOW[0]].numbers() == "; ".join(checks)
    command = "paper", "compare", tmp_path, "--findings"
    records = json.loads(findings_document([*found.values()]).render("json"))["cells"]
    assert records == [it.record() for it in found.values()]
    text = cbm(*command).stdout
    assert re.search(r"a-mean-needs-no-average +6\.5, figure 8 \(b\) +reproduced +1 of 1 +1 of 1 +6\n", text)
    counts = [3, 0, 0, len(findings()) - 3]
    said = ", ".join(f"{number} {verdict}" for number, verdict in zip(counts, VERDICTS, strict=True))
    assert f"{said}." in text.splitlines()[-1]
    assert ": standard-methods-bars, " in text  # of those not run
    assert cbm(*command, "--scoreboard", code=2).error.kinds == ("conflict",)
    (tmp_path / "empty").mkdir()
    empty = cbm("paper", "compare", tmp_path / "empty", "--findings", code=3)
    assert empty.error.kinds == ("incomplete",)


@pytest.mark.parametrize(
    ("units", "verdict"), [(("000",), "reproduced"), (("ddd^b_s", "aaa^b_s"), "contradicted")]
)
def test_filters_and_activity_of_deep_machines_are_compared(tmp_path, monkeypatch, units, verdict):
    """The machines of some schemes have equal filters, and units that are always on or off."""

    def machine(cell, trial):
        W, b, offsets = layered(TWO, seed=trial)
        b[2], W[0] = np.zeros(3), 0.01 * W[0]
        if cell["offsets"] in units:
            b[2] = np.array([-5.0, 5.0, 5.0]) - trial / 10
            W[1] = W[1] if cell["pretraining_epochs"] else W[1][:, :1] + 0.01 * W[1]
        return machine_file((W, b, offsets))

    data = coins(5)
    monkeypatch.setattr(machine_measures, "_load", lambda spec, folder: data)
    found = judged(tmp_path, "dbm-mnist", lambda cell, trial: {"update": [0]}, machine=machine)
    assert found["deep-activity"].verdict == verdict
    assert {one.n for one in found["deep-activity"].evidence} == {6}
    filters = found["deep-filters"].evidence[0]
    assert filters.outcome == (1 if verdict == "reproduced" else -1)
    assert 0.9 < max(filters.value, filters.other) <= 1
    monkeypatch.setattr(machine_measures, "_load", load)  # of files that are not there
    monkeypatch.setenv("CBM_DATA_DIR", str(tmp_path / "empty"))
    assert judged(tmp_path)["deep-activity"].verdict == "not run"


@pytest.mark.parametrize("levels", [1, 255])
def test_the_spread_of_activity_is_over_units_of_means_over_rows(tmp_path, monkeypatch, levels):
    machine = layered((5, 3), seed=1)
    np.savez(tmp_path / "m.npz", **machine_file(machine, "rbm"))
    (W,), (_, c), (mu, _) = machine
    data = Dataset("grey", levels * coins(5).train, levels=levels)
    monkeypatch.setattr(machine_measures, "_load", lambda spec, folder: data)
    monkeypatch.setattr(machine_measures, "spec_of", lambda cell: None)
    store = SimpleNamespace(manifest=dict)
    found = machine_measures.activity_spread(read_machine(tmp_path / "m.npz"), store, {})
    means = (1 / (1 + np.exp(-((coins(5).train - mu) @ W + c)))).mean(axis=0)
    assert found == pytest.approx(means.std(), rel=1e-5)
