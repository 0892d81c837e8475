"""The scripts in reproduction/: published values next to obtained ones, findings, and commands of
figures.
"""

import math
import re
import shlex
from importlib import import_module
from math import nan, sqrt
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from cbm_cli.cli import main as cbm_main
from cbm_cli.errors import CbmError
from cbm_cli.grid.read import read_grid
from scipy import stats

ROOT = Path(__file__).parents[2]
GRID = read_grid(ROOT / "experiments.yaml").experiments
SCRIPTS = "compare", "figures", "findings", "pages", "printed", "scoreboard"
with pytest.MonkeyPatch.context() as there:
    there.syspath_prepend(ROOT / "reproduction")  # where Python finds them for the one that it runs
    compare, figures, findings, pages, printed, scoreboard = map(import_module, SCRIPTS)


def trials_of(frame, curves=None):
    """What the scripts read of a results folder with these summaries, and curves by trial."""
    frame = frame if "experiment" in frame else frame.assign(experiment="e")
    long = pd.DataFrame() if curves is None else curves
    results = SimpleNamespace(summaries=lambda: frame)
    results.curves = results.records = lambda _: long
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare.cbm, "open_results", lambda folder: results)
        return compare.KeptTrials()


TOY = {"data": "bars-and-stripes", "data_size": 3, "model_kind": "rbm", "model_hidden": 4}
TOY |= {"offsets": "aa^b", "sampler": "CD-1", "learning_rate": 0.1, "init": "inverse-sigmoid"}
TOY |= {"updates": 50000, "batch": "full", "evaluate_every": "50 updates", "n_train": 16}
# Table 2, Bars & Stripes, CD-1, 0.1: mean and final mean of the four schemes
TABLE_2 = {"aa^b": (-60.85, -69.1), "dd^l_s": (-60.41, -68.8), "d0": (-60.88, -70.9)}
TABLE_2["00"] = -65.05, -78.1


def run(maxima, finals=None, **settings):
    """Rows of one run of table 2, whose likelihoods are given as sums over its 16 rows."""
    cell = TOY | settings
    if cell["offsets"] in ("00", "d0"):
        cell["init"] = "zero"
    values = {"train_log_likelihood_max": np.array(maxima) / 16, "diverged": nan}
    values["train_log_likelihood_final"] = np.array(finals or maxima) / 16
    name = "/".join(map(str, cell.values()))
    return pd.DataFrame({"run_id": name, "trial": range(len(maxima))} | cell | values)


def around(mean, n=8):
    """n evenly spaced values with this mean."""
    return [mean + i - (n - 1) / 2 for i in range(n)]


def row_of_table_2(n=8, **means):
    """All four schemes of a row, by default with the published means."""
    frames = []
    for scheme, (mean, final) in TABLE_2.items():
        maxima = around(means.get(scheme, mean), n)
        frames.append(run(maxima, around(final, n), offsets=scheme))
    return pd.concat(frames)


def lines(comparison, table="standard-methods-bars-mnist"):
    """The cells of a table of the paper, by scheme."""
    return comparison.cells[comparison.cells["table"] == table].set_index("offsets")


def test_difference_in_standard_errors_by_hand():
    frame = run([-61.0, -62.0, -63.0], [-70.0, -72.0, -77.0])
    found = compare.compare(trials_of(frame))
    cell, (own, paper) = lines(found).loc["aa^b"], (1 / 3, 1.91**2 / 25)
    assert cell["z"] == pytest.approx((-62 + 60.85) / sqrt(own + paper + 0.01**2 / 12))
    freedom = (own + paper) ** 2 / (own**2 / 2 + paper**2 / 24)  # Welch's
    assert found.chances["z"][0] == pytest.approx(1 - 2 * stats.t.sf(2, freedom))
    spread = np.var([-70, -72, -77], ddof=1) * (1 / 3 + 1 / 25)
    assert cell["final_z"] == pytest.approx((-73 + 69.1) / sqrt(spread + 0.1**2 / 12))
    lost = pd.concat([frame, run([-math.inf]).assign(trial=3, diverged=700.0)])
    again = lines(compare.compare(trials_of(lost))).loc["aa^b"]
    assert (again["obtained_n"], again["diverged"], again["z"]) == (4, 1, cell["z"])


def test_a_single_trial_borrows_the_published_spread():
    cell = lines(compare.compare(trials_of(run([-62.0])))).loc["aa^b"]
    assert cell["z"] == pytest.approx(-1.15 / sqrt(1.91**2 + 1.91**2 / 25 + 0.01**2 / 12))
    assert math.isnan(cell["final_z"])


def test_marks_are_compared_where_the_whole_row_was_run():
    # 00 lies below as published; aa^b, published bold, lies below dd^l_s in every pair
    frame = row_of_table_2(**{"aa^b": -60.5, "d0": -60.41})
    marks = lines(compare.compare(trials_of(frame)))["marks_agree"]
    assert marks.to_dict() == {"aa^b": False, "dd^l_s": True, "d0": True, "00": True}
    part = frame[frame["offsets"] != "00"]
    for few in (part, row_of_table_2(n=5)):
        assert lines(compare.compare(trials_of(few)))["marks_agree"].isna().all()


def test_pcd_1_is_compared_as_named_and_with_two_sweeps():
    means = {"PCD-1": -90, "PCD-2": -54.75}
    frames = [run(around(mean), offsets="dd^l_s", sampler=s) for s, mean in means.items()]
    found = compare.compare(trials_of(pd.concat(frames)))
    cells = lines(found).set_index("obtained_sampler")
    assert cells["sampler"].tolist() == ["PCD-1", "PCD-1"]
    assert abs(cells.loc["PCD-1", "z"]) > 2 > abs(cells.loc["PCD-2", "z"])
    counts = scoreboard.score(found).set_index("table").loc["2"]
    assert (counts["run"], counts["named"], counts["read"]) == (1, 0, 1)


@pytest.mark.parametrize("departure", [{"updates": 500}, {"evaluate_every": "1 update"}])
def test_runs_with_other_settings_are_named_and_not_compared(departure):
    (name,) = departure
    other = run([-20.0] * 5, **departure)
    with pytest.raises(CbmError, match=name):
        compare.compare(trials_of(other))
    both = compare.compare(trials_of(pd.concat([run([-61.0, -62.0]), other])))
    assert (both.departures, {*both.cells["obtained_n"]}) == ({name: 1}, {2})


def test_of_two_runs_the_one_with_more_trials_is_taken_and_counts_once():
    counts = {"old": 3, "new": 5, "x": 4}
    frames = [run([-61.0] * n).assign(run_id=name) for name, n in counts.items()]
    frame = pd.concat([*frames, *frames])  # of two experiments
    cell = lines(compare.compare(trials_of(frame))).loc["aa^b"]
    assert (cell["run_id"], cell["obtained_n"]) == ("new", 5)


DEEP = {"data": "dna", "model_kind": "dbm", "model_hidden": "200-200", "offsets": "ddd^b_s"}
DEEP |= {"sampler": "PCD-1", "learning_rate": 0.01, "init": "inverse-sigmoid", "batch": 100}
DEEP |= {"pretraining_epochs": 0, "epochs": 5000, "evaluate_every": "50 epochs", "n_train": 9}
DEEP |= {"trial": range(3), "diverged": nan}


def test_tables_9_to_12_show_the_value_where_the_mean_is_best():
    courses = [-99, -88, -91], [-99, -93, -89], [-99, -95, -90]  # of the mean: -92, -90
    columns = {f"{part}_lower_bound_max": -88.0 for part in ("train", "test")}
    columns |= {f"{part}_lower_bound_final": -88.0 for part in ("train", "test")}
    frame = pd.DataFrame({"run_id": "deep"} | DEEP | columns)
    update = {"run_id": "deep", "update": [0, 50, 100]}
    own = [update | {"trial": n, "test_lower_bound": it} for n, it in enumerate(courses)]
    curves = pd.concat(map(pd.DataFrame, own))
    cells = compare.compare(trials_of(frame, curves)).cells
    cell = cells[cells["table"] == "dbm-test"].iloc[0]
    assert cell["published_mean"] == "-89.81"
    assert (cell["obtained_mean"], cell["obtained_std"]) == (-90, 1)
    assert cell["z"] == pytest.approx(-0.19 / sqrt(1 / 3 + 0.13**2 / 10 + 0.01**2 / 12))


def test_costs_and_epochs_of_auto_encoders_are_next_to_the_published_values():
    settings = {"model_kind": "auto-encoder", "model_hidden": "half", "offsets": "dd^b_s"}
    settings |= {"learning_rate": 0.1, "sampler": "back-propagation", "evaluate_every": "1 epoch"}
    settings["early_stopping_look_ahead"] = 5000
    values = {"valid_cost_min": [34.0, 34.4, 34.8], "valid_cost_final": 35.0, "n_train": 201}
    values |= {"valid_cost_min_update": [420, 440, 460]}  # of 2 updates an epoch
    frame = pd.DataFrame({"run_id": "a"} | DEEP | settings | values)
    cell = compare.compare(trials_of(frame)).cells.iloc[0]
    assert (cell["split"], cell["published_mean"]) == ("test", "34.35117")
    assert cell["obtained_mean"] == 34.4
    error = sqrt(0.16 / 3 + 0.1245**2 / 10 + 1e-10 / 12)
    assert cell["z"] == pytest.approx((34.4 - 34.35117) / error)
    assert (cell["published_epochs"], cell["obtained_epochs"]) == ("216", 220)
    assert cell["epochs_z"] == pytest.approx((220 - 216) / sqrt(100 / 3 + 100 / 10 + 1 / 12))


TOYS = "standard-methods-bars standard-methods-shifting initialisation reparameterisation "
TOYS += "moving-average"
EIGHT = "eight-sets-16 eight-sets-16-two-sweeps eight-sets-200 eight-sets-200-slow"


@pytest.mark.parametrize(
    ("names", "tables", "count"),
    [
        (TOYS, ("standard-methods", "init-", "reparameterization", "moving-average"), 216),
        (EIGHT, "big-rbm", 192),
        ("dbm-eight-sets", "dbm", 64),
        ("auto-encoder", "auto-encoder", 76),
    ],
)
def test_every_published_value_has_its_cell_in_the_grid(names, tables, count):
    cells = printed.published_cells()
    cells = cells[cells["table"].str.startswith(tables)]
    rows = pd.DataFrame([cell.row() for name in names.split() for cell in GRID[name].cells])
    texts = rows.map(lambda value: "" if value is None else printed.text_of(value))
    found = printed.match(cells, texts)
    assert found[~found["departures"].astype(bool)]["line"].nunique() == count


def test_every_known_reason_is_of_published_values():
    cells = printed.published_cells()
    cells = cells.assign(obtained_sampler=cells["reading"]).to_dict("records")
    found = {*map(printed.known_reason, cells)}
    assert {entry["reason"] for entry in printed.mismatches()} <= found


@pytest.fixture(scope="module")
def kept():
    return compare.KeptTrials()


def test_the_scoreboard_of_the_kept_results(kept):
    comparison = compare.compare(kept)
    total = scoreboard.score(comparison).iloc[-1]
    names = ["published", "run", "named", "read", "agreeing", "marks"]
    assert total[names].tolist() == [625, 517, 382, 420, 425, 467]
    printed = "\n".join(table for _, table in comparison.tables())
    disproved = re.findall(r"^.* (\S+) ± \S+ +\| disproved +\| [13] +\| – ", printed, re.M)
    assert disproved == ["-14.70", "-13.13", "-14.22", "-12.54"]
    estimates = comparison.cells[comparison.cells["model"] != "auto-encoder"]
    assert (estimates["obtained_mean"][~estimates["disproved"]] < 0).all()


def test_the_findings_of_the_kept_results(kept):
    counts = findings.count_findings(findings.check_findings(kept))
    assert "30 reproduced, 4 contradicted, 22 undecided, 3 not run" in counts


# Findings


def toys(finals, n=6, updates=50000):
    """Rows of no-moving-average: a maximum of -50 and these final values, by scheme."""
    frames = []
    for number, cell in enumerate(GRID["no-moving-average"].cells):
        row = cell.row()
        last = (finals.get(row["offsets"], -50.5) - np.arange(n) / 10) / 8
        row |= {"run_id": str(number), "trial": range(n), "n_train": 8}
        row |= {"train_log_likelihood_max": -50 / 8, "train_log_likelihood_final": last}
        frames.append(pd.DataFrame(row))
    return pd.concat(frames).assign(experiment="no-moving-average", diverged=nan)


DIVERGING = {"aa^b": -150, "dm^b": -150, "mm^b": -190}
BELOW = "moving-average-prevents-divergence", "data-mean-needs-no-average"


@pytest.mark.parametrize(
    ("finals", "trials", "verdicts"),
    [
        (DIVERGING, 6, ["reproduced", "reproduced"]),
        ({}, 6, ["contradicted", "reproduced"]),  # nothing diverges
        (DIVERGING | {"dd^b": -90}, 6, ["reproduced", "contradicted"]),
        (DIVERGING, 5, ["undecided", "undecided"]),  # too few pairs for the test
    ],
)
def test_a_finding_is_reproduced_contradicted_or_undecided(finals, trials, verdicts):
    found = findings.check_findings(trials_of(toys(finals, trials)))
    judged = {one.finding["name"]: one.verdict for one in found}
    assert [judged[name] for name in BELOW] == verdicts
    assert judged["deep-mnist"] == "not run"


@pytest.mark.parametrize(
    ("of", "number"),
    [
        ({"at": 3}, 10000),
        ({"reach": 1.5}, 2),
        ({"reach": 1e6}, math.inf),
        ({"mean": [0, 10000]}, 5000),  # over updates, not over rows
        ({"at": 20000}, nan),
    ],
)
def test_numbers_of_the_course_are_read_from_curves(of, number):
    curve = {"update": [0, 1, 2, 10000], "train_x": [0.0, nan, 2.0, 10000.0]}
    curves = pd.DataFrame({"run_id": "r", "trial": 0} | curve)
    trials = trials_of(pd.DataFrame({"run_id": ["r"], "trial": [0]}), curves)
    found = findings.number_of_course("r", trials, "train_x", of, 1.0)[0]
    assert found == pytest.approx(number, rel=1e-12, nan_ok=True)


@pytest.mark.parametrize("number", range(59))
def test_every_check_compares_runs_of_the_grid(number):
    finding = findings.findings()[number]
    cells = [cell for name in finding["experiments"] for cell in GRID[name].cells]
    rows = pd.DataFrame([cell.row() | {"run_id": f"{n}"} for n, cell in enumerate(cells)])
    pairs = [findings.pairs_of(finding, check, rows) for check in finding["checks"]]
    assert all(pairs)
    assert sum(map(len, pairs)) == finding["comparisons"] >= finding.get("need", 0)


# Figures


def test_every_panel_is_a_plot_command_of_experiments_of_the_grid():
    plot = cbm_main.get_command(None, "plot")
    runs = pd.DataFrame({"experiment": [], "run_id": [], "data": [], "offsets": []})
    panels = [it for figure in figures.figures().values() for it in figure["parts"]]
    for panel in panels:
        words = shlex.split(panel["plot"])
        with plot.make_context("plot", ["results", *words, "-o", "none.png"]):
            assert words[0] == "data" or words[1] in GRID
        assert "trial" in panel or figures.command(panel, runs) == words


def test_a_panel_of_a_single_trial_names_the_trials_of_its_runs():
    cells = {"run_id": ["a", "b", "c"], "offsets": ["00", "dd^b", "aa^b"]}
    runs = pd.DataFrame({"experiment": "divergence"} | cells)
    panel = {"trial": 2, "plot": "curves divergence --select 'offsets=dd^b,aa^b' --metric lam_0"}
    assert figures.command(panel, runs) == ["curves", "b:2", "c:2", "--metric", "lam_0"]


def test_the_pages_are_what_the_script_makes():
    for name, text in pages.pages().items():
        path = pages.PAGES / name
        assert path.read_text("utf-8") == text, f"{name}: run python reproduction/pages.py"
