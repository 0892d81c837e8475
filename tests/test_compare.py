"""Published beside obtained: matching, differences in standard errors, marks, counts."""

import gzip
import json
import math
import re
import shutil
from math import nan, sqrt
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy import stats

from cbm_cli.grid.read import read_grid
from cbm_cli.paper import MISMATCHES
from cbm_cli.paper import comparison as module
from cbm_cli.paper.comparison import SWAPPED, compare
from cbm_cli.paper.mismatches import known_reason
from cbm_cli.paper.published import IDENTITY, match, paper_settings, published_cells
from cbm_cli.paper.scoreboard import score, scoreboard
from cbm_cli.results import Results
from cbm_cli.text import text_of
from tests.builders import cbm, problems_of, refusal
from tests.golden import outputs

SCHEMES = ["aa^b", "dd^l_s", "d0", "00"]
# Table 2, Bars & Stripes, CD-1, 0.1: mean, spread, final mean and mark of the four schemes.
TABLE_2_CD = {
    "aa^b": (-60.85, 1.91, -69.1, True),
    "dd^l_s": (-60.41, 2.08, -68.8, True),
    "d0": (-60.88, 3.95, -70.9, True),
    "00": (-65.05, 3.60, -78.1, False),
}
MAIN = {"table": "standard-methods-bars-mnist"}
TABLE_2 = yaml.safe_load("""
  {data: bars-and-stripes, data_name: bars-and-stripes, data_size: 3, data_flip: false,
  data_binarise: threshold, data_threshold: 0.5, model_kind: rbm, model_hidden: 4, offsets: aa^b,
  sampler: CD-1, learning_rate: 0.1, ladders: 1, sliding_factor_visible: 0.01, sliding_factor_hidden: 0.01,
  weight_scale: 0.01, updates: 50000, epochs: null, batch: full, evaluate_every: 50 updates}""")


def run(maxima, *, finals=None, **settings):
    """Rows of summary.csv of one run of Table 2, in totals over 16 rows."""
    cell = TABLE_2 | settings
    cell.setdefault("init", "zero" if cell["offsets"] in ("00", "d0") else "inverse-sigmoid")
    values = {
        "train_log_likelihood_max": [value / 16 for value in maxima],
        "train_log_likelihood_final": [value / 16 for value in finals or [value - 8 for value in maxima]],
        "train_log_likelihood_max_update": 1000,
    }
    name = "/".join(str(cell[c]) for c in IDENTITY if c in cell)
    common = {"run_id": name, "trial": range(len(maxima)), "n_train": 16, "diverged": nan}
    return pd.DataFrame(common | cell | values)


def around(mean, n=8, width=1.0):
    """n values with this mean, evenly spaced."""
    return [mean + width * (i - (n - 1) / 2) for i in range(n)]


def table_2(n=8, sampler="CD-1", **means):
    """All four schemes of a row; by default the published means, a method above another in every pair."""
    values = {scheme: means.get(scheme, TABLE_2_CD[scheme][0]) for scheme in SCHEMES}
    return [
        run(around(mean, n), finals=around(TABLE_2_CD[scheme][2], n), offsets=scheme, sampler=sampler)
        for scheme, mean in values.items()
    ]


def shown(comparison, format="text", coloured=False):
    return comparison.document().render(format, coloured)


def line(comparison, **where):
    (found,) = (cell for cell in comparison.cells.to_dict("records") if where.items() <= cell.items())
    return found


def counts(comparison):
    """Of each line of the summary: the pairs of numbers of which one is a part of the other."""
    return [re.findall(r"(\d+ of \d+) ", text) for text in comparison.summary()]


def notes(comparison, word):
    """The lines of the caption with a word."""
    return [note for note in comparison.notes() if word in note]


def incomplete(frame, **choices):
    """Why no trial can be compared."""
    error = refusal(compare, frame, **choices)
    assert error.kinds == ("incomplete",)
    return str(error)


def test_published_table_is_read_and_its_original_initialisation_resolved():
    published = published_cells()
    assert set(published["model"]) == {"rbm", "dbm", "auto-encoder"}
    where = MAIN | {"dataset": "bars-and-stripes", "sampler": "CD-1"}
    row = published[(published[[*where, "learning_rate"]] == [*where.values(), "0.1"]).all(axis=1)]
    assert row["offsets"].tolist() == SCHEMES
    assert row["init"].tolist() == ["inverse-sigmoid"] * 2 + ["zero"] * 2
    numbers = row[["mean", "std", "final_mean"]].astype(float).assign(best=row["best_in_row"] == "yes")
    assert [*map(tuple, numbers.to_numpy().tolist())] == [*TABLE_2_CD.values()]


def test_rounding_is_a_uniform_error_and_chance_is_student_s():
    found = [*map(module.rounding_variance, ("-54.75", "-152.6", "-247", "0.00"))]
    assert found == pytest.approx([1e-4 / 12, 1e-2 / 12, 1 / 12, 1e-4 / 12])
    shares = {math.inf: 0.9545, 1: 2 * math.atan(2) / math.pi, 2: 2 / math.sqrt(6), 0: nan}
    found = [*map(module.within_by_chance, shares)]
    assert found == pytest.approx([*shares.values()], abs=1e-4, nan_ok=True)


def test_difference_in_standard_errors_by_hand():
    values, finals = [-61.0, -62.0, -63.0], [-70.0, -72.0, -77.0]
    comparison = compare(run(values, finals=finals))
    found, (own, paper) = line(comparison, **MAIN), (1 / 3, 1.91**2 / 25)
    freedom = (own + paper) ** 2 / (own**2 / 2 + paper**2 / 24)  # Welch's
    assert comparison.chances["z"][0] == pytest.approx(1 - 2 * stats.t.sf(2, freedom))
    assert (found["obtained_mean"], found["obtained_std"]) == (pytest.approx(-62), pytest.approx(1))
    assert found["z"] == pytest.approx((-62 + 60.85) / sqrt(1 / 3 + 1.91**2 / 25 + 0.01**2 / 12))
    assert found["difference"] == pytest.approx(-1.15)
    variance = ((-70 + 73) ** 2 + (-72 + 73) ** 2 + (-77 + 73) ** 2) / 2
    assert found["final_difference"] == pytest.approx(-73 + 69.1)
    assert found["final_z"] == pytest.approx((-73 + 69.1) / sqrt(variance / 3 + variance / 25 + 0.1**2 / 12))
    diverged = run([*values, -float("inf")])
    diverged.loc[3, "diverged"] = 700
    again = line(compare(diverged), **MAIN)
    assert (again["obtained_n"], again["diverged"], again["z"]) == (4, 1, found["z"])


def test_a_single_trial_borrows_the_published_spread_and_has_no_final_z():
    found = line(compare(run([-62.0])), **MAIN)
    assert found["z"] == pytest.approx(-1.15 / sqrt(1.91**2 + 1.91**2 / 25 + 0.01**2 / 12))
    assert pd.isna(found["final_z"])


def test_marks_of_a_whole_row_agree_or_not():
    # As published: 00 is below; aa^b, though published bold, is below dd^l_s in every pair: no mark.
    comparison = compare(pd.concat(table_2(**{"aa^b": -60.5, "d0": -60.41})))
    cells = comparison.cells[comparison.cells["table"] == MAIN["table"]].set_index("offsets")
    marks = cells[["published_bold", "obtained_bold", "marks_agree"]].astype(bool).T.to_dict("list")
    assert marks == {
        "aa^b": [True, False, False],
        "dd^l_s": [True, True, True],
        "d0": [True, True, True],
        "00": [False, False, True],
    }
    assert counts(comparison)[-1] == ["4 of 4", "3 of 4"]


@pytest.mark.parametrize("frames", [table_2()[:3], table_2(n=5)])
def test_no_marks_without_the_whole_row_or_with_few_pairs(frames):
    comparison = compare(pd.concat(frames))
    assert comparison.cells["marks_agree"].isna().all()
    assert len(counts(comparison)[-1]) == 1  # no marks are counted


def test_counts_of_values_within_two_standard_errors():
    # Spread of 8 evenly spaced values: sqrt(6); 00 is off by 10.
    comparison = compare(pd.concat(table_2(**{"00": -75.05})))
    within = comparison.cells[comparison.cells["table"] == MAIN["table"]]
    assert within["z"].abs().gt(2).tolist() == [False, False, False, True]
    # Table 7 repeats dd^l_s at 0.1, which counts once. aa^b and d0, published bold, are below it.
    assert len(comparison.cells) == 5
    assert counts(comparison) == [["4 of 4"], ["3 of 4", "2 of 4"]]
    assert re.findall(r"\d+", comparison.notes()[0]) == ["4", "32"]  # runs and trials


def test_pcd_2_is_counted_instead_of_pcd_1_and_beside_it():
    frames = [
        run(around(-54.75), offsets="dd^l_s", sampler="PCD-1"),  # as published
        run(around(-30.0), offsets="dd^l_s", sampler="PCD-2"),  # far off
        run(around(-60.41), offsets="dd^l_s", sampler="CD-1"),
    ]
    comparison = compare(pd.concat(frames))
    assert counts(comparison)[-2:] == [["2 of 2"], ["1 of 2"]]
    assert ["PCD-2" in text for text in comparison.summary()[-2:]] == [False, True]
    assert comparison.cells["obtained_sampler"].tolist() == ["CD-1", "PCD-1", "PCD-2"] * 2
    second = line(comparison, **MAIN, obtained_sampler="PCD-2")
    assert (second["sampler"], second["published_mean"]) == ("PCD-1", "-54.75")
    titles = [text for text in shown(comparison).splitlines() if text.startswith("Table ")]
    assert ["PCD-2" in title for title in titles] == [False, False, True, True]


def test_of_two_runs_the_longer_list_of_trials_is_taken_and_a_shared_run_counts_once():
    runs = {"old": [-61.0] * 3, "new": [-62.0] * 5, "x": [-63.0] * 4}
    frames = [run(maxima).assign(run_id=name) for name, maxima in runs.items()]
    found = line(compare(pd.concat([*frames, *frames])), **MAIN)  # of two experiments
    assert (found["run_id"], found["obtained_n"]) == ("new", 5)


def test_what_cannot_be_compared_is_said():
    incomplete(pd.DataFrame())
    incomplete(run([-61.0], model_hidden=5))
    assert "rbm on rcv1-valid" in incomplete(run([-61.0], data="rcv1-valid"))
    other = {"data": SWAPPED, "learning_rate": 0.01}
    for name, value in {"epochs": 100, "early_stopping_tolerance": 1e-3, "model_loss": "squared"}.items():
        assert name in incomplete(auto_encoder([44.3], **other, **{name: value}))


# Deep machines (tables 11, 12) and auto encoders (table 13)

DBM = yaml.safe_load("""
  {data: dna, model_kind: dbm, model_hidden: 200-200, offsets: ddd^b_s, sampler: PCD-1, learning_rate: 0.01,
  init: inverse-sigmoid, pretraining_epochs: 0, data_phase: mean-field, gradient_kind: centered,
  gradient_scale_to: none, gradient_from: samples, offsets_from: same, ladders: 1, updates: null,
  epochs: 5000, sliding_factor_visible: 0.01, sliding_factor_hidden: 0.01, weight_scale: 0.01, batch: 100,
  evaluate_every: 50 epochs}""")
AUTO_ENCODER = DBM | yaml.safe_load("""
  {model_kind: auto-encoder, model_hidden: half, model_encoder: sigmoid, model_decoder: sigmoid,
  model_loss: cross-entropy, offsets: dd^b_s, sampler: back-propagation, learning_rate: 0.1,
  evaluate_every: 1 epoch, early_stopping_look_ahead: 5000, early_stopping_tolerance: 1.0e-5}""")


def machines(settings, best, metric, final=None, **columns):
    """Rows of summary.csv of one run, with the best of a metric on both parts."""
    end = "min" if metric == "cost" else "max"
    values = {end: best, "final": best if final is None else final, f"{end}_update": 1000}
    values = {
        f"{part}_{metric}_{name}": of for part in ("train", "valid", "test") for name, of in values.items()
    }
    common = {"run_id": "/".join(map(str, settings.values())), "trial": range(len(best)), "diverged": nan}
    return pd.DataFrame(common | settings | values | {"n_train": 9, "n_test": 9} | columns)


def deep(best, final=None, **settings):
    return machines(DBM | settings, best, "lower_bound", final)


def auto_encoder(best, at=216, trained=5000, **settings):
    """Rows of one run, by the epochs, of 2 updates, of the lowest validation and training costs."""
    lowest = {"valid_cost_min_update": 2 * np.array(at), "train_cost_min_update": 2 * trained}
    return machines(AUTO_ENCODER | settings, best, "cost", **lowest | {"n_train": 201})


def test_bounds_of_deep_machines_stand_beside_the_published_values_by_hand():
    found = compare(deep([-89.0, -90.0, -91.0], final=[-92.0, -93.0, -94.0]))
    test = line(found, table="dbm-test")
    assert (test["published_mean"], test["hidden"], test["obtained_mean"]) == ("-89.81", "200-200", -90)
    assert test["z"] == pytest.approx(-0.19 / sqrt(1 / 3 + 0.13**2 / 10 + 0.01**2 / 12))
    assert test["final_z"] == pytest.approx((-93 + 92.57) / sqrt(1 / 3 + 1 / 10 + 0.01**2 / 12))
    assert line(found, table="dbm-train")["published_mean"] == "-62.00"
    assert found.missing == {"dbm": 62}
    assert "Table 11: dna, 200-200 hidden, test lower bound of the log-likelihood per row\n" in shown(found)
    assert notes(found, "62 DBM")


@pytest.mark.parametrize(("read", "mean"), [(True, -90), (False, -88)])
def test_tables_9_to_12_are_compared_with_the_maximum_of_the_mean(read, mean):
    """The trials' own maxima are at other evaluations, and higher."""
    courses = [-99, -88, -91], [-99, -93, -89], [-99, -95, -90]  # of the mean: -92, -90

    def source(experiment):
        assert experiment == "deep"
        return SimpleNamespace(curves=lambda run_id, trials: [*map(curve, trials)])

    def curve(trial):
        columns = {f"{part}_lower_bound": courses[trial] for part in ("train", "test")}
        return pd.DataFrame({"update": [0, 50, 100]} | columns)

    frame = pd.concat([deep([-88.0] * 3).assign(experiment="deep"), run([-61.0])])
    found = compare(frame, source if read else None)
    test = line(found, table="dbm-test")
    assert (test["obtained_mean"], test["obtained_std"]) == (mean, pytest.approx(1 if read else 0))
    if read:
        assert test["z"] == pytest.approx(-0.19 / sqrt(1 / 3 + 0.13**2 / 10 + 0.01**2 / 12))
    assert ["curves" in note for note in notes(found, "ables 9 to 12")] == [not read]  # which are missing
    assert line(found, **MAIN)["obtained_mean"] == -61  # the toys are means of maxima


def test_published_test_costs_are_compared_with_the_paper_s_validation_rows():
    for data, part, published in (("dna", "valid", "34.35117"), (SWAPPED, "test", "44.45882")):
        rows = auto_encoder([9.0, 9.0], data=data)
        rows[f"{part}_cost_min"] = [1.0, 2.0]
        found = line(compare(rows), split="test")
        assert (found["published_mean"], found["obtained_mean"]) == (published, 1.5)


TOYS = "updates: 500, ladders: 16, weight_scale: 0.1, sliding_factor_hidden: 0.5, batch: 8, data_size: 2"
DEEP = "epochs: 300, data_phase: gibbs-1, gradient_from: exact, offsets_from: independent, evaluate_rows: 100"
MORE = {"gradient_kind": "natural", "data_hold_out": 100, "pretraining_learning_rate": 0.1}
DEPARTURES = [(run, {name: value}) for name, value in yaml.safe_load(f"{{{TOYS}}}").items()]
DEPARTURES += [(deep, {name: value}) for name, value in (yaml.safe_load(f"{{{DEEP}}}") | MORE).items()]


@pytest.mark.parametrize(("machine", "departure"), [*DEPARTURES, (run, {"evaluate_every": "1 update"})])
def test_runs_with_other_settings_are_counted_but_not_compared(machine, departure):
    (name,) = departure
    epochs = {"pretraining_epochs": 200} if name.startswith("pretraining") else {}
    other = machine([-20.0] * 5, **epochs, **departure).assign(run_id="other")
    assert name in incomplete(other)
    found = compare(pd.concat([machine([-61.0, -62.0]), other]))
    assert (found.not_comparable, found.departures) == (1, {name: 1})
    assert {*found.cells["obtained_n"]} == {2}
    assert len(notes(found, f"{name} in 1")) == 1


def test_the_same_said_outright_or_by_an_older_version_is_no_departure():
    same = deep([-89.8], pretraining_epochs=200, pretraining_learning_rate=0.01, gradient_kind="centered")
    older = run([-61.0, -62.0])
    assert "gradient_kind" not in older
    found = compare(pd.concat([older, same]))
    assert found.cells["model"].tolist()[-2:] == ["dbm"] * 2
    assert (len({*found.cells["run_id"]}), found.not_comparable) == (2, 0)


def test_costs_and_epochs_of_auto_encoders_stand_beside_the_published_values_by_hand():
    found = compare(auto_encoder([34.0, 34.4, 34.8], [210, 220, 230]))
    test, train = found.cells.to_dict("records")
    assert (test["published_mean"], test["split"], test["obtained_mean"]) == ("34.35117", "test", 34.4)
    assert test["z"] == pytest.approx((34.4 - 34.35117) / sqrt(0.16 / 3 + 0.1245**2 / 10 + 1e-10 / 12))
    assert (test["published_epochs"], test["obtained_epochs"]) == ("216", 220)
    assert test["epochs_z"] == pytest.approx((220 - 216) / sqrt(100 / 3 + 100 / 10 + 1 / 12))
    assert pd.isna(test["final_z"])
    assert (train["split"], train["published_mean"], train["obtained_epochs"]) == ("train", "11.70726", 5000)
    assert "34.35117 ± 0.1245   34.40000 ± 0.4000" in shown(found)
    assert counts(found) == [["2 of 2"], ["1 of 2"]]
    assert notes(found, "early_stopping: {look_ahead: 5000}")


def test_published_values_of_5000_epochs_are_compared_with_runs_that_do_not_stop_early():
    stopped, fast = {"early_stopping_look_ahead": 5}, {"data": "adult", "learning_rate": 0.5}
    assert "early_stopping_look_ahead" in incomplete(auto_encoder([34.3, 34.4], **stopped))
    assert len(compare(auto_encoder([0.37, 0.38], **fast, **stopped)).cells) == 2
    assert "early_stopping_look_ahead" in incomplete(auto_encoder([0.37, 0.38], **fast))


def test_the_lowest_cost_of_a_whole_row_is_the_marked_one():
    other = {"data": "mushrooms", "learning_rate": 0.5, "early_stopping_look_ahead": 5}
    frames = [  # in the paper dd^b_s is the best of test, 00 of train
        auto_encoder([0.08, 0.09], 3173, 3178, **other),
        auto_encoder([0.10, 0.11], 2936, 2941, offsets="00", **other),
    ]
    cells = compare(pd.concat(frames)).cells
    assert cells["split"].tolist() == ["test", "test", "train", "train"]
    assert cells["obtained_bold"].tolist() == [True, False, True, False]
    assert cells["marks_agree"].tolist() == [True, True, False, False]
    assert compare(frames[0]).cells["obtained_bold"].isna().all()


PAPER = read_grid(Path(__file__).parents[1] / "experiments.yaml")


SMALL = ("standard-methods", "init-", "reparameterization", "moving-average")  # tables 2 to 8


@pytest.mark.parametrize(
    ("names", "tables", "lines", "others"),
    [
        ("quickstart toy-tables no-moving-average", SMALL, 216, 4),
        ("mnist-16", SMALL, 77, 42),
        ("eight-sets", "big-rbm", 192, 0),
        ("dbm-eight-sets dbm-eight-sets-two-sweeps", "dbm", 64, 0),
        ("auto-encoder", "auto-encoder", 76, 0),
    ],
)
def test_every_published_value_has_its_cell_with_all_settings(names, tables, lines, others):
    cells = [(cell.row(), one) for one in PAPER.select(names.split()) for cell in one.cells]
    runs, published = pd.DataFrame([row for row, _ in cells]).map(text_of), published_cells()
    found = match(published[published["table"].str.startswith(tables)], runs)
    found = found[~found["departures"].astype(bool)]
    assert (found["line"].nunique(), len(runs) - found["run"].nunique()) == (lines, others)
    for line in found.itertuples():
        experiment = cells[line.run][1]
        scale = "total" if line.log_likelihood_scale == "total" else "per-sample"
        assert (experiment.table.scale, str(experiment.trials)) == (scale, line.trials)


def test_the_settings_of_the_paper_name_columns_of_summary_csv():
    columns = {name for one in PAPER.experiments.values() for name in one.cells[0].row()}
    assert all({*settings} <= columns for settings in paper_settings().values())
    assert {*published_cells()["settings"]} == {*paper_settings()}


@pytest.fixture(scope="module")
def whole():
    return compare(pd.concat(table_2(n=6, **{"aa^b": -63})))


def test_every_format_shows_what_does_not_agree(whole):
    text = shown(whole)
    assert " CD-1-0.1      aa^b      -60.85 ± 1.91   -63.00 ± 1.87   6   -2.5 !   -69.1 " in text
    marks = ["yes/no !", "yes/yes", "yes/no !", "no/no"]
    assert [line.split("   ")[-1].strip() for line in text.splitlines()[4:8]] == marks
    assert text.splitlines()[13].endswith("–            –   yes/–")  # table 7, not a whole row
    assert "| CD-1-0.1 | aaᵇ | -60.85 ± 1.91 | -63.00 ± 1.87 | 6 | -2.5 ! |" in shown(whole, "markdown")
    assert r"CD-1-0.1 & $aa^{b}$ & -60.85 $\pm$ 1.91" in shown(whole, "latex")
    for alert in ("-2.5 !", "yes/no !"):
        assert f"\x1b[1;31m{alert}\x1b[0m" in shown(whole, coloured=True)
    assert counts(whole) == [["4 of 4"], ["3 of 4", "2 of 4"]]
    assert [re.findall(r"\d\.\d ± \d\.\d", text) for text in whole.summary()] == [
        ["3.6 ± 0.6"],
        ["3.7 ± 0.5"],
    ]
    numbers = [re.findall(r"\d+", note) for note in whole.notes()]
    assert (numbers[0], numbers[1][-1], numbers[-1]) == (["4", "24"], "10", ["480"])


# The scoreboard

KNOWN = yaml.safe_load(MISMATCHES.read_text(encoding="utf-8"))
REASONS = [entry["reason"] for entry in KNOWN]


def test_every_known_reason_is_of_published_values():
    cells = published_cells()
    cells = cells.assign(obtained_sampler=cells["reading"])
    found = {known_reason(cell) for cell in cells.to_dict("records")}
    assert {*REASONS} <= found
    for entry in KNOWN:
        for name, known in entry["where"].items():
            for value in known if isinstance(known, list) else [known]:
                assert (cells[name] == str(value)).any(), (name, value)


def test_the_scoreboard_counts_all_published_values_as_named_and_as_read():
    frames = [
        *table_2(n=6),
        run(around(-90.0), offsets="dd^l_s", sampler="PCD-1"),  # far off; also in table 7
        run(around(-54.75), offsets="dd^l_s", sampler="PCD-2"),  # as published
        run(around(-10.0), offsets="dd^l_s", sampler="PT_10"),
        deep([-89.8, -89.9]),
    ]
    found = compare(pd.concat(frames))
    rows = score(found).set_index("table")
    assert rows.index.tolist() == [*map(str, range(2, 14)), "sum"]
    names = ["published", "run", "fewest_trials", "most_trials", "named", "read"]
    assert rows.loc[["2", "7", "3"], names].to_numpy().tolist() == [
        [64, 6, 6, 8, 4, 5],
        [32, 3, 6, 8, 1, 2],
        [72, 0, 0, 0, 0, 0],
    ]
    assert rows.loc["sum", ["published", "run"]].tolist() == [625, 11]
    assert tuple(rows.loc["2", ["agreeing", "marks"]]) == (2, 4)  # of the one whole row
    document = scoreboard(found, "More.")
    text, (how, *reasons) = document.render("text"), document.notes
    assert re.search(r"\n 2 +64 +6 +58 +6 to 8 +4 +5 +2 of 4\n", text)
    assert re.search(r"\n 3 +72 +0 +72 +– +– +– +–\n", text)
    *_, beyond, limit, by_chance = re.findall(r"\d+", how)
    assert (beyond, limit) == ("3", "2")
    # Of 11 values with 2 to 8 trials: 5% for many degrees of freedom, at most 30% for one.
    assert 11 * 0.0455 <= int(by_chance) <= 11 * 0.3
    assert [re.findall(r"\d+", reason)[0] for reason in reasons[:2]] == ["2", "3"]
    assert sum(known in reasons[0] for known in REASONS) == 1  # dd^l_s with PCD-1 in two tables
    # dd^l_s with PT_10 in two tables, and the deep machine on training rows
    assert re.search(r"table \d: .* PT_10 0\.1 \(\+.*; table 12: ", reasons[1])
    assert text.endswith("More.\n")


def test_results_are_compared_and_counted_by_the_command(tmp_path):
    results = outputs.unpack(tmp_path)
    whole = Results(results)
    document = compare(whole.all_summaries(), whole.store).document()
    found = json.loads(document.render("json"))["cells"]
    values = [(one["offsets"], round(one["obtained_mean"], 2), round(one["z"], 1)) for one in found]
    assert values[:2] == [("aa^b", -61.92, -0.8), ("dd^l_s", -61.39, -0.9)]
    assert values[2:] == [("d0", -59.64, 1.5), ("00", -67.09, -0.6), ("dd^l_s", -61.39, -0.9)]
    shown = cbm("paper", "compare", results).stdout
    assert all(f"{one['obtained_mean']:.2f}" in shown for one in found)
    board = cbm("paper", "compare", results, "--scoreboard").stdout
    counted = re.findall(r"^ (2|7|sum) +(.*?) +–$", board, re.M)
    assert [line.split() for _, line in counted] == [
        ["64", "4", "60", "2", "4", "4"],
        ["32", "1", "31", "2", "1", "1"],
        ["625", "5", "620", "2", "5", "5"],
    ]
    assert re.findall(r"\d+", board.rstrip().splitlines()[-1]) == ["59", "0", "0", "0", "59"]  # findings


def test_kept_results_that_were_edited_are_refused(tmp_path):
    kept = Path(__file__).parents[1] / "reproduction/results/moving-average"
    victim = shutil.copytree(kept, tmp_path / kept.name) / "trials.jsonl.gz"
    victim.write_bytes(gzip.compress(gzip.decompress(victim.read_bytes()).replace(b"-5", b"-4", 1)))
    refused = cbm("paper", "compare", tmp_path, code=2)
    assert problems_of(refused) == [(str(victim), "", "changed")]
