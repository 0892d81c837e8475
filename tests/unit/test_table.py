"""Tables: their contents, and their cells in every format. Whole outputs are in tests/golden."""

import json
import re
from itertools import product
from math import inf, nan
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from cbm_cli.errors import IncompleteError
from cbm_cli.results.selection import read_cells
from cbm_cli.sheets import Group, Label, Sheet, Value
from cbm_cli.statistics import build_table

from tests.builders import problems_of, refusal
from tests.journals import made_manifest

TABLE = {"rows": ["sampler", "learning_rate"], "columns": ["offsets"], "groups": ["data"]}
UP = [-5.0, -5.1, -5.2, -5.3, -5.4, -5.5]
DOWN = [-5.2, -5.4, -5.6, -5.8, -6.0, -6.2]  # below UP in every pair
NEAR = [-5.1, -5.0, -5.3, -5.2, -5.5, -5.4]  # as often above as below
OFFSETS = ["dd^b_s", "00"]
BOTH = [(0.1, 0.5), (0.5, 0.5)]


def planned(data="shifting-bar", sampler="PT_10", learning_rate=0.1, offsets="00", **more):
    settings = {"data": data, "sampler": sampler, "learning_rate": learning_rate}
    settings |= {"offsets": offsets} | more
    return {"run_id": "/".join(map(str, settings.values())), "model_hidden": 4, **settings}


def finished(cell, maxima, finals=-9.0, diverged=None):
    column = "train_log_likelihood"
    known = {"experiment": "small", "n_train": 10, "n_test": nan, f"{column}_final": finals} | cell
    return [
        known
        | {"trial": trial, f"{column}_max": value, f"{column}_max_update": 50 * (trial + 1)}
        | {"diverged": diverged if value == -inf else None}
        for trial, value in enumerate(maxima)
    ]


def build(runs, trials=6, frame=None, scale="total", **choices):
    """A table of cells with their maxima, by default of a summary in another order than the grid.

    scale and table_metric go to the manifest.
    """
    rows = [row for cell, maxima in reversed(runs) for row in finished(cell, maxima, diverged=700)]
    table = {"scale": scale, "metric": choices.pop("table_metric", "train_log_likelihood")}
    made = {"experiment": "small", "description": "A small table: 50 % of a_b^2."}
    manifest = made_manifest([cell for cell, _ in runs], trials, **made, **TABLE | table)
    return table_of(pd.DataFrame(rows) if frame is None else frame, manifest, **choices)


def table_of(frame, manifest, metric=None, statistic=None, curves=None, **choices):
    """A table of a store that holds such a summary, and curves: a function of run-id and trial."""
    store = SimpleNamespace(experiment="small", summary=lambda: frame, manifest=lambda: manifest)
    store.curves = lambda run_id, trials: [curves(run_id, trial) for trial in trials]
    store.nothing_yet = lambda: IncompleteError("small: nothing yet")
    (cells,) = read_cells([store], metric, statistic)
    return build_table(cells, **choices)


def of_offsets(*maxima, **choices):
    """A table of one row: one scheme for each list of maxima."""
    schemes = (planned(offsets=offsets) for offsets in ("00", "d0", "aa^b", "dd^b"))
    return build([*zip(schemes, maxima, strict=False)], **choices)


def refused(*arguments, **choices):
    """The option and the words of what a table refuses."""
    error = refusal(build, *arguments, **choices)
    return problems_of(error)[0][0], str(error)


def shown(table, format="text"):
    return table.sheet().render(format)


def rows_of(table):
    """Groups and rows of the text, cell by cell."""
    lines = [line.strip() for line in shown(table).splitlines() if line.startswith(" ")]
    return [re.split(" {2,}", line) for line in lines[2:]]


def marks_of(table):
    letters = {"best": "B", "bold": "b", "underlined": "u"}
    verdicts = (entry.verdict for entry in table.entries)
    return ["".join(letters[name] * getattr(it, name) for name in letters) for it in verdicts]


def notes_of(table):
    return table.sheet().notes


def numbers(table):
    """The numbers in each line of the caption."""
    return [re.findall(r"\d[\d.]*\d|\d", note) for note in notes_of(table)]


@pytest.fixture
def small():
    """Two data sets; complete, tied, incomplete, empty, unplanned and diverged cells."""
    scheme = {"offsets": "dd^l_s"}
    runs = [
        (planned(**scheme), UP),
        (planned(), DOWN),
        (planned(sampler="CD-1", learning_rate=0.05, **scheme), NEAR),
        (planned(sampler="CD-1", learning_rate=0.05), UP),
        (planned("mnist", **scheme), [*UP[:5], -inf]),
        (planned("mnist"), DOWN[:3]),
        (planned("mnist", sampler="CD-1", **scheme), []),
    ]
    return build(runs)


LATEX = r"""
\multicolumn{7}{l}{\emph{mnist}} \\
PT$_{10}$-0.1 & $-52$ & $.00$ & $\pm 1.58\;(-90.0)$ [1 diverged] & $\underline{-54}$ & \
$\underline{.00}$ & $\pm 2.00\;(-90.0)$ [n=3/6] \\
CD-1-0.1 & \multicolumn{3}{c}{-- [n=0/6]} & \multicolumn{3}{c}{--} \\
""".replace("\\\n$", "$")


def test_cells_have_marks_and_flags_in_every_format(small):
    good, bad = "-52.50 ± 1.87 (-90.0)", "-57.00 ± 3.74 (-90.0)"
    assert rows_of(small) == [
        ["shifting-bar"],
        ["PT_10-0.1", f"*{good}", bad],
        ["CD-1-0.05", f"*{good}", f"*{good}"],
        ["mnist"],
        ["PT_10-0.1", "-52.00 ± 1.58 (-90.0) [1 diverged]", "_-54.00 ± 2.00 (-90.0) [n=3/6]"],
        ["CD-1-0.1", "– [n=0/6]", "–"],
    ]
    assert LATEX in shown(small, "latex")
    markdown = shown(small, "markdown")
    assert f"| PT₁₀-0.1 | **-52.50**{good[6:]} | {bad} |" in markdown
    flagged = "-52.00 ± 1.58 (-90.0) [1 diverged] | <u>-54.00</u> ± 2.00 (-90.0) [n=3/6]"
    assert f"| {flagged} |" in markdown


def test_records_and_caption_have_the_numbers_of_the_cells(small):
    names = ["data", "n", "n_planned", "mean", "max_update", "p_value", "effect_size", "n_pairs"]
    names += ["diverged"]
    records = pd.DataFrame(small.records())[names].astype(object)
    assert [tuple(row) for row in records.where(records.notna(), None).to_numpy()] == [
        ("shifting-bar", 6, 6, pytest.approx(-52.5), 175, None, None, None, 0),
        ("shifting-bar", 6, 6, pytest.approx(-57), 175, 0.03125, 1, 6, 0),
        ("shifting-bar", 6, 6, pytest.approx(-52.5), 175, None, None, None, 0),
        ("shifting-bar", 6, 6, pytest.approx(-52.5), 175, 1, 0, 6, 0),
        ("mnist", 6, 6, pytest.approx(-52), 175, None, None, None, 1),
        ("mnist", 3, 6, pytest.approx(-54), 100, None, None, None, 0),
        ("mnist", 0, 6, None, None, None, None, None, 0),
    ]
    assert marks_of(small) == ["Bb", "", "Bb", "b", "", "Bu", ""]
    test, weak = ["0.05", "6", "0.031", "6"], ["3", "0.25", "0.05"]
    assert numbers(small) == [["10", "3", "6"], [*test, *weak], ["2", "7"], ["1"]]
    assert all(note in shown(small, "markdown") for note in notes_of(small))
    for alpha, all_agree in (("0.0625", ["6"]), ("0.07", [])):  # of one pair of six against
        found = numbers(of_offsets(UP, DOWN, alpha=float(alpha)))[1]
        assert found == [alpha, "6", "0.031", *all_agree]
    more = notes_of(of_offsets(UP, DOWN, test="rank-sum", correction="holm"))[1]
    assert all(word in more for word in ("rank-sum", "Holm", "0.05", "6 trials: 0.0022"))
    _, *others = of_offsets(UP, DOWN, DOWN, correction="holm", alpha=0.1).records()
    assert [(it["p_value"], it["p_value_holm"]) for it in others] == [(2 / 64, 4 / 64)] * 2


def test_a_latex_table_wider_than_a_column_goes_over_both():
    for number, environment in (1, "table"), (3, "table*"):
        latex = shown(of_offsets(*[UP] * number), "latex")
        for end in ("begin", "end"):
            assert latex.count(f"\\{end}{{{environment}}}") == 1
    assert "\\caption" not in Sheet([Label.of("a")], []).render("latex")  # none is empty


def test_latex_aligns_decimal_points_and_spreads():
    steep, low = [-5.0, -25.0, -45.0], [-150.0, -151.0, -152.0]
    table = build([(planned(), steep), (planned(learning_rate=0.2), low)])
    found = re.findall(r" & \$(.*?)\$ & \$(.*?)\$ & \$(.*?)\$", shown(table, "latex"))
    assert found == [
        ("-250", ".00", r"\pm 200.00\;(-90.0)"),
        ("-1510", ".00", r"\pm \phantom{0}10.00\;(-90.0)"),
    ]


def test_latex_spells_powers_of_ten():
    for value, spelled in (
        ("-1.2e+04", r"$-1$ & $.2 \times 10^{4}$"),
        ("≤ 2e-05", r"$\le 2 \times 10^{-5}$ & $$"),
    ):
        group = Group(None, [[Label.of("x"), Value(value, "1e-09")]])
        sheet = Sheet([Label.of("a"), Label.of("b")], [group])
        assert f"x & {spelled} & " + r"$\pm 1 \times 10^{-9}$" in sheet.render("latex")
    table = build([(planned(learning_rate=1e-05), UP)])
    assert r"PT$_{10}$-$1 \times 10^{-5}$ & " in shown(table, "latex")
    assert "| PT₁₀-1e-05 | " in shown(table, "markdown")


def test_rows_are_sorted_by_the_settings_in_the_order_asked():
    """The grid has schemes outside samplers."""
    runs = [(planned(offsets=o, sampler=s), UP) for o in ("00", "d0") for s in ("PT_10", "CD-1")]
    table = build(runs, axes={"rows": ["sampler", "offsets"], "columns": ["learning_rate"]})
    assert [row[0] for row in rows_of(table)[1:]] == ["PT_10-00", "PT_10-d0", "CD-1-00", "CD-1-d0"]
    assert shown(table).splitlines()[2].split()[0] == "sampler-offsets"


def test_records_have_the_difference_to_the_best_with_its_interval():
    table = of_offsets(UP, DOWN)
    one, other = table.records()
    names = ["difference", "difference_low", "difference_high"]
    assert [one[name] for name in names] == pytest.approx([nan] * 3, nan_ok=True)
    assert [other[name] for name in names] == pytest.approx([-4.5, -7, -2])
    assert [entry.difference for entry in table.entries] == ["", "-4.5 [-7, -2]"]
    costs = auto_encoders(statistic="max").records()[1]
    assert [costs[name] for name in names] == pytest.approx([0.125, 0.1, 0.15])
    assert costs["effect_size"] == 1  # the best is lower, and better
    assert np.isnan(of_offsets(UP, DOWN, test="rank-sum").records()[1]["difference"])


def test_special_characters_are_escaped():
    table = build([(planned("a_b & <c>|d"), UP)])
    assert r"\emph{a\_b \& $<$c$>$|d}" in shown(table, "latex")
    assert "50 %" not in shown(table, "latex")  # what is expected is no caption of what was found
    for format in ("text", "markdown"):
        assert "About: A small table: 50 % of a_b^2." in shown(table, format)


def test_a_sheet_serves_any_list():
    rows = [[Label.of("mnist"), Label.of("784 | 1")], [Label.of("dna"), Value("180", "2")]]
    records = [{"name": "a,b", "x": nan, "y": 0.1}]
    header = [Label.of("name"), Label.of("units")]
    sheet = Sheet(header, [Group(None, rows)], records=lambda: records)
    assert sheet.render().splitlines()[4].split() == ["dna", "180", "±", "2"]
    assert sheet.render("markdown").splitlines()[2] == r"| mnist | 784 \| 1 |"
    assert sheet.render("csv") == 'name,x,y\n"a,b",,0.1\n'
    assert json.loads(sheet.render("json")) == {"cells": [{"name": "a,b", "x": None, "y": 0.1}]}


def test_the_caption_counts_the_trials_of_the_cells_shown():
    for n, trials, caption in (([8, 8], 5, ["8"]), ([8, 6], 8, ["6", "8"]), ([1, 1], 1, ["1"])):
        assert numbers(of_offsets(*((UP * 2)[:k] for k in n), trials=trials))[0] == ["10", *caption]
    eight = [[*its, its[-1] - 0.3, its[-1] - 0.6] for its in (UP, DOWN)]
    pairs = product((0.1, 0.2), OFFSETS)
    cells = [planned(learning_rate=rate, offsets=offsets) for rate, offsets in pairs]
    table = build([*zip(cells, (*eight, UP, DOWN), strict=True)], trials=8)
    assert numbers(table)[1][1:3] == ["6", "0.031"]  # the weaker of the two rows


def test_settings_that_vary_within_a_cell():
    runs = [(cell, UP) for cell in (planned(), planned() | {"run_id": "other", "model_hidden": 8})]
    _, words = refused(runs, axes={"rows": ["sampler", "learning_rate"]})
    assert all(name in words for name in ("shifting-bar, PT_10, 0.1, 00", "model_hidden", "--rows"))
    groups = rows_of(build(runs, axes={"groups": ["data", "model_hidden"]}))[::2]
    assert groups == [["shifting-bar, hidden units 4"], ["shifting-bar, hidden units 8"]]
    inits = {"00": "zero", "dd^b": "inverse-sigmoid"}  # which follow from offsets: not needed
    varied = product((0, 200), (4, 8), inits.items())
    names = "offsets", "init", "pretraining_epochs", "model_hidden"
    cells = [planned(**dict(zip(names, (*init, p, h), strict=True))) for p, h, init in varied]
    table = build([(cell, UP) for cell in cells])
    assert table.layout.rows == ("sampler", "learning_rate", "model_hidden", "pretraining_epochs")
    stubs = [f"PT_10-0.1-{rest}" for rest in ("4-0", "4-200", "8-0", "8-200")]
    assert [row[0] for row in rows_of(table)[1:]] == stubs


def test_the_grids_names_are_columns_too():
    sides = [f"sliding_factor_{side}" for side in ("visible", "hidden")]
    for name, others, columns in (
        ("sliding_factor", [(0.5, 0.5)], sides[:1]),
        ("sliding_factor", BOTH, sides),
        ("visible", [(0.5, 0.1)], sides[:1]),
    ):
        cells = [planned(**dict(zip(sides, its, strict=True))) for its in ((0.1, 0.1), *others)]
        table = build([(cell, UP) for cell in cells], axes={"columns": [name]})
        assert [*table.layout.columns] == columns


# Auto encoders, deep machines, and what was recorded


def trained(cell, best, epochs=()):
    """Rows of summary.csv of an auto encoder: lowest test cost and its epoch by trial."""
    epochs, costs = np.array(epochs or [200] * len(best)), np.array(best)
    values = {"min": costs, "final": costs + 1, "best_valid": costs + 0.5}
    values["min_update"] = 10 * epochs
    rows = {f"test_cost_{name}": column for name, column in values.items()}
    rows |= {"valid_cost_min_update": 10 * epochs - 20, "trial": range(len(best))}
    rows |= {"diverged": np.where(np.isinf(costs), 100, nan), "n_test": 10}
    return pd.DataFrame(cell | rows | {"n_train": 100, "batch": 10}).to_dict("records")


LOW = [0.5, 0.51, 0.52, 0.53, 0.54, 0.55]
HIGH = [0.6, 0.62, 0.64, 0.66, 0.68, 0.7]  # above LOW in every pair


def auto_encoders(**choices):
    cells = [planned("bars", "back-propagation", *place) for place in product((0.1, 0.5), OFFSETS)]
    best = LOW, HIGH, [*LOW[:5], inf], HIGH
    epochs = [100, 200, 300, 500, 100, 100], (), (), ()
    rows = [row for of in zip(cells, best, epochs, strict=True) for row in trained(*of)]
    choices |= {"frame": pd.DataFrame(rows), "scale": "per-sample", "table_metric": None}
    return build([(cell, []) for cell in cells], **choices)


def test_the_lowest_cost_is_the_best_and_its_epoch_is_next_to_it():
    table = auto_encoders(statistic="max")
    assert rows_of(table)[1:] == [
        ["back-propagation-0.1", "*0.52500 ± 0.0187 (217)", "0.65000 ± 0.0374 (200)"],
        ["back-propagation-0.5", "*0.52000 ± 0.0158 (200) [1 diverged]", "*0.65000 ± 0.0374 (200)"],
    ]
    long = pd.DataFrame(table.records())
    assert long["p_value"].tolist()[1] == pytest.approx(2 / 2**6)
    assert long["epochs_to_convergence"][0] == pytest.approx(1300 / 6)
    assert long["min_update"][0] == pytest.approx(13000 / 6)


def test_statistics_of_a_cost_by_default_at_the_best_validation_value():
    for statistic, value, words in (
        ("max", 0.525, "Minimum test cost during"),
        ("final", 1.525, "Final test cost"),
        (None, 1.025, "Test cost at the best validation value"),
    ):
        table = auto_encoders(statistic=statistic)
        assert table.entries[0].cell.mean == pytest.approx(value)
        assert notes_of(table)[0].startswith(words)


LEVEL = [[-1, -9, -5, -8], [-1, -9, -7, -2]]  # the maximum of the untrained machine counts not


@pytest.mark.parametrize(
    ("curves", "values", "update"),  # by trial
    [
        (LEVEL, [-8, -2], 150),  # means -9, -6, -5; of the maxima -3.5
        ([*LEVEL, [-1, -3, nan, nan]], [-9, -9, -3], 50),  # nothing counts from a divergence on
        ([LEVEL[0][:3], LEVEL[1]], [-5, -2], 150),  # one stops early
    ],
)
def test_the_maximum_of_the_mean_is_one_evaluation_for_all_trials(curves, values, update):
    cell = planned()
    rows = finished(cell, [max(curve[1:]) for curve in curves])
    for row, curve in zip(rows, curves, strict=True):
        row["diverged"] = 60 if curve[-1] != curve[-1] else None

    def curve(run_id, trial):
        assert run_id == cell["run_id"]
        updates = range(0, 50 * len(curves[trial]), 50)
        return pd.DataFrame({"update": updates, "train_log_likelihood": curves[trial]})

    choices = {"statistic": "max-of-mean", "curves": curve, "scale": "per-sample"}
    table = build([(cell, [])], frame=pd.DataFrame(rows), **choices)
    found = table.entries[0].cell
    assert [value for value in found.values.values() if value == value] == values
    assert (found.mean, found.best_update) == (sum(values) / len(values), update)
    assert "mean over trials" in notes_of(table)[0]


def with_column(**columns):
    """Two cells, and more columns: a function of (cell, trial) each."""
    cells = [planned(offsets=o) for o in OFFSETS]
    rows = [(i, row) for i, cell in enumerate(cells) for row in finished(cell, UP)]
    rows = [row | {name: f(i, row["trial"]) for name, f in columns.items()} for i, row in rows]
    return pd.DataFrame(rows), [(cell, UP) for cell in cells]


def test_records_have_a_final_value_and_a_test_where_their_best_is_named():
    frame, runs = with_column(weight_norm_final=lambda cell, trial: 10 + 10 * cell + trial)
    table = build(runs, frame=frame, metric="weight_norm")
    assert rows_of(table)[1][1:] == ["12.5 ± 1.9", "22.5 ± 1.9"]
    assert "best='lowest'" in notes_of(table)[1]
    for best, marks in (("lowest", ["Bb", ""]), ("highest", ["", "Bb"])):
        tested = build(runs, frame=frame, metric="weight_norm", best=best)
        assert marks_of(tested) == marks
        assert [one["p_value"] for one in tested.records()].count(2 / 2**6) == 1
    assert refused(runs, frame=frame, metric="weight_norm", statistic="max")[0] == "--statistic max"
    _, words = refused(runs, frame=frame.filter(regex="^(?!train_)"), table_metric=None)
    assert all(word in words for word in ("--metric", "weight_norm"))


def test_trials_whose_estimate_is_doubtful_or_impossible_are_counted():
    frame, runs = with_column(
        effective_sample_size_final=lambda cell, trial: 9.9 if trial == 3 else 10.0,
        evaluate_runs=lambda cell, trial: 100,
        weight_norm_final=lambda cell, trial: 1.0 + trial,
    )
    plain = notes_of(build(runs, frame=frame, metric="weight_norm"))
    doubtful = notes_of(build(runs, frame=frame))
    assert [re.findall(r"\d+", note) for note in doubtful if "AIS" in note] == [["2"]]
    assert not any("AIS" in note for note in plain)
    above = of_offsets([*UP[:5], 0.5], [2.0, *UP[1:]])
    assert numbers(above)[-1] == ["2", "0"]  # trials above 0
    assert [row.startswith("≤ ") for row in rows_of(above)[1][1:]] == [True, True]


def test_a_cell_with_an_impossible_value_is_not_compared():
    row = of_offsets([*UP[:5], 0.5], UP, DOWN)
    assert marks_of(row)[0] == ""
    assert marks_of(row)[1:] == marks_of(of_offsets(UP, DOWN))


def test_only_estimates_get_advice_on_temperatures():
    columns = {f"train_log_likelihood_{method}": lambda *_: 0.5 for method in ("exact", "ais")}
    for methods, metric, advice in (
        (["ais", "exact"], None, True),
        (["exact", "exact"], None, False),
        (["ais", "ais"], "train_log_likelihood_exact", False),
    ):
        made = {"evaluate_method": lambda cell, _, its=methods: its[cell]} | columns
        frame, runs = with_column(**made)
        frame["train_log_likelihood_max"] = 0.5
        notes = notes_of(build(runs, frame=frame, metric=metric))
        (said,) = (note for note in notes if re.search(r"\b12\b.*above 0", note))
        assert ("evaluate.temperatures" in said) == advice


def test_a_value_at_the_best_validation_value_is_refused_where_there_is_none():
    frame, runs = with_column(train_log_likelihood_ais=lambda *_: -1.0)
    for end, words in ("", "no validation part"), ("_ais", "final value only"):
        metric = f"train_log_likelihood{end}"
        place, told = refused(runs, frame=frame, metric=metric, statistic="best-valid")
        assert place == "--statistic best-valid"
        assert words in told


STEADY = [-5 - i / 100 for i in range(25)]
LUCKY = [value + 1 if i != 7 else -1000.0 for i, value in enumerate(STEADY)]  # one disaster


def test_a_row_shows_where_mean_and_test_disagree():
    table = of_offsets(LUCKY, STEADY, trials=25)
    lucky, steady = "[better by test]", "[best by mean]"
    assert numbers(table)[2] == ["1"]
    for format in ("text", "markdown", "latex"):
        (line,) = (line for line in shown(table, format).splitlines() if steady in line)
        assert lucky in line.partition(steady)[0]
    assert [one["better_by_test"] for one in table.records()] == [True, False]
    assert marks_of(table) == ["b", "Bb"]
    gone = of_offsets([value if value > -999 else -inf for value in LUCKY], STEADY, trials=25)
    assert "diverged" in notes_of(gone)[2]  # it comes last, though its mean is higher


def test_machines_of_a_kind_without_the_metric_are_blank_and_not_incomplete():
    cells = [planned(model_kind=kind) for kind in ("rbm", "auto-encoder")]
    frame = pd.DataFrame(finished(cells[0], UP) + trained(cells[1], LOW))
    table = build([(cell, []) for cell in cells], frame=frame, table_metric=None)
    assert table.cells.measure.metric.column == "train_log_likelihood"
    assert table.layout.rows[-1] == "model_kind"
    assert rows_of(table)[2] == ["PT_10-0.1-auto-encoder", "–"]
    assert numbers(table) == [["6"]]  # nothing incomplete or diverged


def test_a_marked_difference_shows_in_the_digits():
    for other, cells in (
        (-0.27004, ["*-2.7000 ± 0.0000 (-90.000)", "-2.7004 ± 0.0000 (-90.000)"]),
        (-0.27, ["*-2.70 ± 0.00 (-90.0)", "*-2.70 ± 0.00 (-90.0)"]),
        ([-0.2695, -0.2706], ["*-2.70 ± 0.00 (-90.0)", "*-2.70 ± 0.01 (-90.0)"]),
    ):
        assert rows_of(of_offsets([-0.27] * 6, np.resize(other, 6)))[1][1:] == cells


def test_refused_choices_name_the_option_and_the_remedy():
    for options, place, named in (
        ({"axes": {"rows": ["learnin_rate"]}}, "--rows learnin_rate", "learning_rate"),
        ({"axes": {"columns": ["factor"]}}, "--columns factor", "a_factor, b_factor"),
        ({"axes": {"rows": ["data"], "columns": ["data"]}}, "", "data"),
        ({"test": "rank-sums"}, "--test rank-sums", "did you mean rank-sum?"),
        ({"metric": "train_log"}, "--metric train_log", "train_log_likelihood"),
    ):
        said = refused([(planned(a_factor=1, b_factor=2), UP)], **options)
        assert said[0] == place
        assert named in said[1]


def test_no_trials_and_no_evaluation_are_said():
    assert refused([(planned(), [])])[0] == "small"
    bare = pd.DataFrame(finished(planned(), UP)).filter(regex="^(?!train_)")
    assert "evaluate" in refused([(planned(), UP)], frame=bare)[1]
