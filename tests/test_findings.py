"""Findings of the paper on results folders where they hold, where they do not, and where little was run."""

import json
import re
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cbm_cli import reference
from cbm_cli.datasets.catalogue import load
from cbm_cli.grid.read import read_grid
from cbm_cli.grid.settings import Trial
from cbm_cli.results import Outcome, Results, Store, run_id
from cbm_cli.statistics import machine_measures
from cbm_cli.statistics.comparison import match, published_cells
from cbm_cli.statistics.findings import VERDICTS, Evidence, Judged, check_findings, findings, pairs_of
from cbm_cli.text import text_of
from tests.builders import TWO, cbm, coins, layered, machine_file


@cache
def grid():
    return read_grid(Path(__file__).parents[1] / "experiments.yaml")


PLAIN = {"kind": np.array("rbm"), "weights_0": np.zeros((2, 2))}
PROOFS = [one for one in findings() if "claim" in one]


def made(folder, experiment, course, trials=6, chosen=lambda cell: True, machine=lambda cell, trial: PLAIN):
    """Write results of an experiment whose trials have the columns that ``course(cell, trial)`` returns.

    Columns are by update; names without a part of the data are records. ``machine(cell, trial)`` returns the
    arrays of the machine file.
    """
    store, planned = Store(folder / experiment), grid().experiments[experiment]
    names = [run_id(cell, 1, experiment) for cell in planned.cells]
    (folder / experiment).mkdir(parents=True)
    store.write_manifest(planned, names, {}, None)
    for name, cell in zip(names, planned.cells, strict=True):
        for number in range(trials if chosen(cell.row()) else 0):
            columns = {key: np.array(values, float) for key, values in course(cell.row(), number).items()}
            updates = columns.pop("update")
            curve = {key: values for key, values in columns.items() if re.match("train_|valid_|test_", key)}
            recorded = {key: values for key, values in columns.items() if key not in curve}
            outcome = Outcome(
                ("update", "epoch", *curve),
                np.column_stack([updates, updates, *curve.values()]),
                machine(cell.row(), number),
                None,
                1.0,
                {"train": 8, "valid": 8, "test": 8},
                recorded=("update", *recorded) if recorded else (),
                records=np.column_stack([updates, *recorded.values()]) if recorded else None,
            )
            store.write(name, Trial(experiment, cell, number, 1), outcome)
    return folder


def judged(folder):
    return {one.finding["name"]: one for one in check_findings(Results(folder))}


@pytest.mark.parametrize(
    "finding", [one for one in findings() if one not in PROOFS], ids=lambda one: one["name"]
)
def test_every_check_compares_runs_of_the_paper_s_grids_at_full_length(finding):
    runs = pd.DataFrame(
        [
            {"experiment": name, "run_id": f"{name}-{i}"} | cell.row()
            for name in finding["experiments"]
            for i, cell in enumerate(grid().experiments[name].cells)
        ]
    )
    pairs = [pairs_of(finding, check, runs) for check in finding["checks"]]
    assert all(pairs)
    assert sum(map(len, pairs)) == finding["comparisons"] >= finding.get("need", 0)
    assert {"updates", "epochs"} & {*finding["where"]}, "shorter trainings say nothing"
    used = {run for some in pairs for pair in some for run in pair if isinstance(run, str)}
    assert {run.rpartition("-")[0] for run in used} == {*finding["experiments"]}


def test_trainings_of_two_lengths_are_not_compared_and_both_have_to_be_as_stated():
    (finding,) = (one for one in findings() if one["name"] == "deep-mnist")
    runs = pd.DataFrame(
        [
            cell.row() | {"run_id": f"{epochs} {i}", "epochs": epochs}
            for epochs in (300, 1000)
            for i, cell in enumerate(grid().experiments["dbm-mnist"].cells)
        ]
    )
    pairs = pairs_of(finding, finding["checks"][0], runs)
    assert len(pairs) == 8
    assert all(one.split()[0] == other.split()[0] for one, other in pairs)
    evidence = [Evidence(0, *pair, -90, -91, 6, 0.03, int(pair[0].startswith("300")), True) for pair in pairs]
    assert Judged(finding, evidence).verdict == "undecided"
    assert Judged(finding, [one for one in evidence if one.outcome]).verdict == "reproduced"


def test_findings_have_names_places_and_sentences_of_their_own():
    for key in ("name", "says"):
        assert len({one[key] for one in findings()}) == len(findings()) > 36
    places = r"6\.\d+, (tables?|figures?|text)|3(\.1)?, (text|appendix [ABC])$"
    assert all(re.match(places, one["place"]) for one in findings())
    assert all(one["says"].endswith(".") and len(one["says"]) < 120 for one in findings())


def test_the_published_values_are_as_the_findings_say(tmp_path):
    """The one trial of a cell has the published maximum, and the published final value where there is one."""
    published = published_cells()
    published = published[published["reading"] == published["sampler"]]
    metric = {"rbm": "log_likelihood", "dbm": "lower_bound", "auto-encoder": "cost"}
    for name in {name for one in findings() for name in one["experiments"]}:
        cells = [cell.row() for cell in grid().experiments[name].cells]
        found = match(published, pd.DataFrame(cells).map(text_of))
        found = found[found["departures"].map(len) == 0]
        found = found.sort_values("final_mean", key=lambda text: text == "")  # those that have one first
        lines = dict([*found.drop_duplicates(["run", "split"]).groupby("run")])

        def course(cell, trial, cells=cells, lines=lines):
            curve = {"update": [0, 1, 2]}
            for line in lines[cells.index(cell)].itertuples():
                best, final = float(line.mean), float(line.final_mean or line.mean)
                part = "valid" if line.model == "auto-encoder" and line.split == "test" else line.split
                first = best + 1000 if line.model == "auto-encoder" else best - 1000
                rows = 8 if line.log_likelihood_scale == "total" else 1
                curve[f"{part}_{metric[line.model]}"] = np.array([first, best, final]) / rows
            return curve

        def published_too(cell, cells=cells, lines=lines):
            return cells.index(cell) in lines

        if lines:
            made(tmp_path, name, course, trials=1, chosen=published_too)
    checked = [one for one in judged(tmp_path).values() if one.evidence and one.finding not in PROOFS]
    whole = [one for one in checked if len(one.evidence) == one.finding["comparisons"]]
    assert len(whole) >= 20
    for one in checked:
        misses = one.finding["comparisons"] - one.needed
        assert sum(not it.means_agree for it in one.evidence) <= misses, one.numbers()


def toy(best, final):
    """A curve of a toy, by its sums over 8 rows."""
    return {"update": [0, 25000, 50000], "train_log_likelihood": np.array([-100, best, final]) / 8}


DIVERGING = {"aa^b": -150, "dm^b": -150, "mm^b": -190}


def figure_8(finals, spread=0.0):
    return lambda cell, trial: toy(-50 - spread * trial, finals.get(cell["offsets"], -50.5) - trial / 10)


@pytest.mark.parametrize(
    ("course", "verdicts"),
    [
        (figure_8(DIVERGING), ["reproduced", "reproduced", "reproduced"]),
        (figure_8({}), ["contradicted", "reproduced", "reproduced"]),  # nothing diverges
        (figure_8(DIVERGING | {"aa^b_s": -120}), ["contradicted", "reproduced", "reproduced"]),
        (figure_8(DIVERGING | {"dd^b": -90}), ["reproduced", "contradicted", "reproduced"]),
        (
            lambda cell, trial: toy(-50 - 9 * cell["offsets"].endswith("_s"), -150),
            ["contradicted", "contradicted", "contradicted"],
        ),
    ],
)
def test_divergence_and_moving_averages(tmp_path, course, verdicts):
    names = (
        "moving-average-prevents-divergence",
        "data-mean-needs-no-average",
        "moving-average-keeps-the-maximum",
    )
    found = judged(made(tmp_path, "no-moving-average", course))
    assert [found[name].verdict for name in names] == verdicts
    others = [one for name, one in found.items() if name not in names and one.finding not in PROOFS]
    assert {one.verdict for one in others} == {"not run"}


def test_few_trials_or_a_part_of_the_runs_decide_nothing(tmp_path):
    name = "moving-average-prevents-divergence"
    few = judged(made(tmp_path / "few", "no-moving-average", figure_8(DIVERGING), trials=5))[name]
    assert (few.verdict, few.trials) == ("undecided", "5")
    assert [few.record()[name] for name in ("as_stated", "means_agree", "compared")] == [0, 4, 4]
    other = judged(made(tmp_path / "other", "no-moving-average", figure_8({}), trials=5))[name]
    assert [other.record()[name] for name in ("as_stated", "means_agree", "compared")] == [0, 2, 4]
    part = made(
        tmp_path / "part", "no-moving-average", figure_8(DIVERGING), chosen=lambda it: "aa" in it["offsets"]
    )
    assert judged(part)[name].verdict == "undecided"
    assert "above 5: 1 of 1 (100.2)" in judged(part)[name].numbers()  # -50 to -150 - trial / 10


@pytest.mark.parametrize(("trials", "verdict"), [(1, "not run"), (2, "undecided"), (9, "reproduced")])
def test_one_trial_has_no_spread(tmp_path, trials, verdict):
    def course(cell, trial):
        wide = 1 + trial % 3 if cell["offsets"] in ("00", "d0^b_s") else trial / 100
        return {"update": [0, 60000, 120000], "test_log_likelihood": [-200, -80 - wide, -90]}

    found = judged(made(tmp_path, "big-rbm-mnist", course, trials))
    assert found["big-mnist-spread"].verdict == verdict
    assert found["big-mnist"].verdict != "not run"


def test_numbers_are_sums_over_the_rows_and_name_the_runs(tmp_path):
    found = judged(made(tmp_path, "no-moving-average", figure_8(DIVERGING)))
    one = found["moving-average-prevents-divergence"]
    checks = "fall of aa^b_s, dm^b_s below 3: 2 of 2 (0.75)", "fall of aa^b, dm^b above 5: 2 of 2 (100.2)"
    assert one.numbers() == "; ".join(checks)


@pytest.mark.parametrize(
    ("final", "verdict"),
    [({"dd^b": -40}, "reproduced"), ({}, "undecided"), ({"dd^b": -40, "0d": -30}, "contradicted")],
)
def test_one_side_and_both(tmp_path, final, verdict):
    course = lambda cell, trial: toy(-60, final.get(cell["offsets"], -45) - trial / 10)  # noqa: E731
    assert judged(made(tmp_path, "other-offsets", course))["both-layers-above-one"].verdict == verdict


@pytest.mark.parametrize(("near", "far"), [(20, 60), (60, 20)])
def test_angles_are_means_of_the_records(tmp_path, near, far):
    def course(cell, trial):
        reached = 10 if cell["gradient_kind"] == "natural" else 5000
        return {
            "update": [0, 10, 100, 5000, 10000],
            "train_log_likelihood": [-3, -1.73 if reached == 10 else -3, -1.73, -1.73, -1.73],
            "angle_natural_centered": [near + trial, near, near, 90, 90],  # after update 200: not counted
            "angle_natural_standard": [far + trial, far, far, 0, 0],
        }

    def needed(cell):
        own_length = cell["gradient_fisher"] == "joint" and cell["gradient_scale_to"] == "none"
        return own_length or cell["gradient_kind"] == "centered"

    found = judged(made(tmp_path, "natural-gradient", course, chosen=needed))
    one = found["closer-to-natural"]
    assert one.verdict == ("reproduced" if near < far else "contradicted")
    assert {(round(e.value - e.other), e.n) for e in one.evidence} == {(near - far, 6)}
    assert found["natural-is-fast"].verdict == "reproduced"
    assert {e.value for e in found["natural-is-fast"].evidence} == {10}
    assert found["centered-is-shorter"].verdict == "undecided"  # both reach the value at once


def test_numbers_are_means_over_the_trials_in_which_both_sides_have_one(tmp_path):
    def course(cell, trial):
        late = cell["gradient_scale_to"] == "standard"
        reached = 1000 + 1000 * trial + 500 * late
        values = -3 if late and trial == 5 else -1.73  # which never reaches the value
        return {"update": [0, reached, 10000], "train_log_likelihood": [-3, values, values]}

    found = judged(made(tmp_path, "natural-gradient", course))["centered-is-shorter"]
    (one,) = found.evidence
    assert (one.value, one.other, one.n) == (3500, 3000, 6)
    assert found.verdict == "contradicted"


def test_means_are_over_updates_not_over_rows(tmp_path):
    def course(cell, trial):
        return {
            "update": [0, 1, 2, 3, 10000],  # four rows in a window of the recorder
            "train_log_likelihood": [-3, -3, -3, -3, -1.73],
            "angle_natural_centered": [trial, np.nan, trial, trial, trial + 90],
            "angle_natural_standard": [40] * 5,
        }

    found = judged(made(tmp_path, "natural-gradient", course))["closer-to-natural-elsewhere"]
    assert found.verdict == "contradicted"
    assert [e.value for e in found.evidence] == [pytest.approx(45 + 2.5, abs=0.02)] * 4


def test_a_trial_without_a_finite_value_counts_as_the_lowest(tmp_path):
    def course(cell, trial):
        lost = cell["offsets"] in DIVERGING
        return toy(-50, -np.inf if lost and trial else -60 if lost else -50)

    one = judged(made(tmp_path, "no-moving-average", course))["moving-average-prevents-divergence"]
    assert one.verdict == "reproduced"


def test_the_lower_cost_is_the_better(tmp_path):
    def course(cell, trial):
        better = 0.5 if cell["offsets"] == "dd^b_s" else 0.6
        return {
            "update": [0, 9, 18],
            "valid_cost": [9, better + trial, 3 + better],
            "train_cost": [9, better, better],
        }

    few = "connect4", "mushrooms", "rcv1"
    found = judged(made(tmp_path, "auto-encoder", course, chosen=lambda cell: cell["data"] in few))
    assert [one.outcome for one in found["auto-encoders"].evidence] == [1, 1, 1, 1]
    assert found["auto-encoders"].verdict == "undecided"  # on two of nine data sets
    assert found["auto-encoders-rcv1"].verdict == found["auto-encoders-training"].verdict == "contradicted"


def test_the_command_lists_all_and_tells_what_was_not_run(tmp_path):
    made(tmp_path, "no-moving-average", figure_8(DIVERGING))
    text = cbm("compare", tmp_path, "--findings").stdout
    assert text.splitlines()[-1] == (
        f"{len(findings())} findings of prose and figures: 3 reproduced, 4 confirmed, 0 contradicted, "
        f"0 undecided, {len(findings()) - 7} not run."
    )
    assert re.search(
        r"data-mean-needs-no-average +6\.5, figure 8 \(b\) +reproduced +1 of 1 +1 of 1 +6\n", text
    )
    assert "Not run, of experiments.yaml: standard-methods-bars, " in text
    records = json.loads(cbm("compare", tmp_path, "--findings", "-f", "json").stdout)["cells"]
    assert {one["verdict"] for one in records} <= {*VERDICTS}
    assert "one of them" in cbm("compare", tmp_path, "--findings", "--scoreboard", code=2).stderr


@pytest.mark.parametrize("equation", [None, "flip", "plain_step", "transform"])
def test_what_the_paper_proves_is_confirmed_by_its_equations_and_by_no_others(
    tmp_path, monkeypatch, equation
):
    made(tmp_path, "no-moving-average", figure_8({}), trials=1)
    if equation:
        right = getattr(reference, equation)
        wrong = {
            "flip": lambda theta, offsets, f, g: (right(theta, offsets, f, g)[0], offsets),  # offsets stay
            "plain_step": lambda step, mu, lam: step,  # biases of the centered machine
            "transform": lambda theta, old, new: theta,
        }
        monkeypatch.setattr(reference, equation, wrong[equation])
    verdicts = [judged(tmp_path)[one["name"]].verdict for one in PROOFS]
    assert set(verdicts) == ({"confirmed", "contradicted"} if equation else {"confirmed"})


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
    found = judged(made(tmp_path, "dbm-mnist", lambda cell, trial: {"update": [0]}, machine=machine))
    assert found["deep-activity"].verdict == verdict
    assert {one.n for one in found["deep-activity"].evidence} == {6}
    filters = found["deep-filters"].evidence[0]
    assert filters.outcome == (1 if verdict == "reproduced" else -1)
    assert 0.9 < max(filters.value, filters.other) <= 1
    monkeypatch.setattr(machine_measures, "_load", load)  # of files that are not there
    monkeypatch.setenv("CBM_DATA_DIR", str(tmp_path / "empty"))
    assert judged(tmp_path)["deep-activity"].verdict == "not run"


def test_experiments_without_finished_trials_change_nothing(tmp_path):
    made(tmp_path, "divergence", figure_8({}), trials=0)
    found = judged(made(tmp_path, "no-moving-average", figure_8(DIVERGING)))
    assert found["moving-average-prevents-divergence"].verdict == "reproduced"


def test_a_folder_without_results_is_refused(tmp_path):
    assert "no results" in cbm("compare", tmp_path, "--findings", code=3).stderr
