"""Tables: their contents, and their cells in every format. Whole outputs are in
tests/golden.
"""

import re
from itertools import product
from math import inf, nan
from types import SimpleNamespace

import numpy as np
import pandas as pd
from cbm_cli.errors import IncompleteError
from cbm_cli.results.selection import read_cells
from cbm_cli.sheets import Group, Label, Sheet, Value
from cbm_cli.statistics import build_table

from tests.builders import problems_of, refusal
from tests.journals import made_manifest

TABLE = {
    "rows": ["sampler", "learning_rate"],
    "columns": ["offsets"],
    "groups": ["data"],
}
UP = [-5.0, -5.1, -5.2, -5.3, -5.4, -5.5]
DOWN = [-5.2, -5.4, -5.6, -5.8, -6.0, -6.2]  # below UP in every pair
NEAR = [-5.1, -5.0, -5.3, -5.2, -5.5, -5.4]  # as often above as below
OFFSETS = ["dd^b_s", "00"]
BOTH = [(0.1, 0.5), (0.5, 0.5)]


def planned(
    data="shifting-bar", sampler="PT_10", learning_rate=0.1, offsets="00", **more
):
    settings = {"data": data, "sampler": sampler, "learning_rate": learning_rate}
    settings |= {"offsets": offsets} | more
    return {
        "run_id": "/".join(map(str, settings.values())),
        "model_hidden": 4,
        **settings,
    }


def finished(cell, maxima):
    column = "train_log_likelihood"
    known = {
        "experiment": "small",
        "n_train": 10,
        "n_test": nan,
        f"{column}_final": -9.0,
    } | cell
    return [
        known
        | {
            "trial": trial,
            f"{column}_max": value,
            f"{column}_max_update": 50 * (trial + 1),
        }
        | {"diverged": 700 if value == -inf else None}
        for trial, value in enumerate(maxima)
    ]


def build(
    runs, trials=6, frame=None, scale="total", metric=None, statistic=None, **choices
):
    """A table of cells with their maxima, by default of a summary in another order than
    the grid.

    scale and table_metric go to the manifest.
    """
    rows = [row for cell, maxima in reversed(runs) for row in finished(cell, maxima)]
    table = {
        "scale": scale,
        "metric": choices.pop("table_metric", "train_log_likelihood"),
    }
    made = {"experiment": "small", "description": "A small table: 50 % of a_b^2."}
    manifest = made_manifest(
        [cell for cell, _ in runs], trials, **made, **TABLE | table
    )
    frame = pd.DataFrame(rows) if frame is None else frame
    store = SimpleNamespace(
        experiment="small", summary=lambda: frame, manifest=lambda: manifest
    )
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
    return [entry.verdict.name for entry in table.entries]


def notes_of(table):
    return table.sheet().notes


def numbers(table):
    """The numbers in each line of the caption."""
    return [re.findall(r"\d[\d.]*\d|\d", note) for note in notes_of(table)]


LATEX = r"""
PT$_{10}$-0.1 & $-52$ & $.00$ & $\pm$ & $1$ & $.58$ &  {[}1 diverged{]} & \
$\underline{-54}$ & $\underline{.00}$ & $\pm$ & $2$ & $.00$ &  {[}n=3/6{]} \\
 & \multicolumn{6}{c}{($-90.0$)} & \multicolumn{6}{c}{($-90.0$)} \\
CD-1-0.1 & \multicolumn{6}{c}{-- {[}n=0/6{]}} & \multicolumn{6}{c}{--} \\
""".replace("& \\\n$", "& $")


def test_cells_have_marks_and_flags_in_every_format():
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
    small = build(runs)
    good, bad = "-52.50 ± 1.87 (-90.0)", "-57.00 ± 3.74 (-90.0)"
    assert rows_of(small) == [
        ["shifting-bar"],
        ["PT_10-0.1", f"*{good}", bad],
        ["CD-1-0.05", f"*{good}", f"*{good}"],
        ["mnist"],
        [
            "PT_10-0.1",
            "-52.00 ± 1.58 (-90.0) [1 diverged]",
            "_-54.00 ± 2.00 (-90.0) [n=3/6]",
        ],
        ["CD-1-0.1", "– [n=0/6]", "–"],
    ]
    assert LATEX in shown(small, "latex")
    flagged = (
        "-52.00 ± 1.58 (-90.0) [1 diverged] | <u>-54.00</u> ± 2.00 (-90.0) [n=3/6]"
    )
    assert f"| PT₁₀-0.1 | {flagged} |" in shown(small, "markdown")
    counts = [
        tuple(one[it] for it in ("n", "n_planned", "diverged"))
        for one in small.records()
    ]
    assert counts == [(6, 6, 0)] * 4 + [(6, 6, 1), (3, 6, 0), (0, 6, 0)]
    test, weak = ["0.05", "6", "0.031", "6"], ["3", "0.25", "0.05"]
    assert numbers(small) == [["10", "3", "6"], [*test, *weak], ["2", "7"], ["1"]]


def test_the_caption_says_what_the_test_can_find():
    for alpha, all_agree in (
        ("0.0625", ["6"]),
        ("0.07", []),
    ):  # of one pair of six against
        found = numbers(of_offsets(UP, DOWN, alpha=float(alpha)))[1]
        assert found == [alpha, "6", "0.031", *all_agree]
    said = notes_of(of_offsets(UP, DOWN, test="rank-sum", correction="holm"))[1]
    assert all(
        word in said for word in ("rank-sum", "Holm", "0.05", "6 trials: 0.0022")
    )
    _, *others = of_offsets(UP, DOWN, DOWN, correction="holm", alpha=0.1).records()
    assert [(it["p_value"], it["p_value_holm"]) for it in others] == [
        (2 / 64, 4 / 64)
    ] * 2


def test_latex_aligns_decimal_points_and_spreads():
    steep, low = [-5.0, -25.0, -45.0], [-150.0, -151.0, -152.0]
    table = build([(planned(), steep), (planned(learning_rate=0.2), low)], 3)
    rows = [line for line in shown(table, "latex").splitlines() if r"\pm" in line]
    assert [row.split(" & ", 1)[1] for row in rows[:2]] == [
        r"$-250$ & $.00$ & $\pm$ & $200$ & $.00$ & ($-90.0$) \\",
        r"$-1510$ & $.00$ & $\pm$ & $10$ & $.00$ & ($-90.0$) \\",
    ]


def test_latex_spells_powers_of_ten():
    for value, spelled in (
        ("-1.2e+04", r"$-1$ & $.2 \times 10^{4}$"),
        ("≤ 2e-05", r"$\le 2 \times 10^{-5}$ & "),
    ):
        group = Group(None, [[Label.of("x"), Value(value, "1e-09")]])
        sheet = Sheet([Label.of("a"), Label.of("b")], [group])
        row = rf"x & {spelled} & $\pm$ & $1 \times 10^{{-9}}$ & "
        assert row in sheet.render("latex")
    latex = shown(build([(planned(learning_rate=1e-05), UP)]), "latex")
    assert r"PT$_{10}$-$1 \times 10^{-5}$ & " in latex
    assert latex.count("{table}") == 2  # wider ones are in tests/golden


def test_rows_are_sorted_by_the_settings_in_the_order_asked():
    """The grid has schemes outside samplers."""
    runs = [
        (planned(offsets=o, sampler=s), UP)
        for o in ("00", "d0")
        for s in ("PT_10", "CD-1")
    ]
    table = build(
        runs, axes={"rows": ["sampler", "offsets"], "columns": ["learning_rate"]}
    )
    assert [row[0] for row in rows_of(table)[1:]] == [
        "PT_10-00",
        "PT_10-d0",
        "CD-1-00",
        "CD-1-d0",
    ]
    assert shown(table).splitlines()[2].split()[0] == "sampler-offsets"


def test_a_test_without_pairs_finds_no_difference():
    assert np.isnan(of_offsets(UP, DOWN, test="rank-sum").records()[1]["difference"])


def test_special_characters_are_escaped():
    latex = shown(build([(planned("a_b & <c>|d"), UP)]), "latex")
    assert r"\emph{a\_b \& $<$c$>$\textbar{}d}" in latex
    assert "50 %" not in latex  # what is expected is no caption of what was found


def test_a_sheet_serves_any_list():
    rows = [
        [Label.of("mnist"), Label.of("784 | 1")],
        [Label.of("dna"), Value("180", "2")],
    ]
    header, records = (
        [Label.of("name"), Label.of("units")],
        [{"name": "a,b", "units": 180}],
    )
    sheet = Sheet(header, [Group(None, rows)], records=lambda: records)
    assert sheet.render().splitlines()[4].split() == ["dna", "180", "±", "2"]
    assert "\\caption" not in sheet.render("latex")  # none is empty
    assert sheet.render("csv") == 'name,units\n"a,b",180\n'
    assert sheet.render("markdown").splitlines()[2] == r"| mnist | 784 \| 1 |"


def test_the_caption_counts_the_trials_of_the_cells_shown():
    for n, trials, caption in (
        ([8, 8], 5, ["8"]),
        ([8, 6], 8, ["6", "8"]),
        ([1, 1], 1, ["1"]),
    ):
        assert numbers(of_offsets(*((UP * 2)[:k] for k in n), trials=trials))[0] == [
            "10",
            *caption,
        ]
    eight = [[*its, its[-1] - 0.3, its[-1] - 0.6] for its in (UP, DOWN)]
    caption = numbers(of_offsets(*eight, DOWN, trials=8))[1]
    assert caption[1:3] == ["6", "0.031"]  # the weaker of two tests


def test_settings_that_vary_within_a_cell():
    runs = [
        (cell, UP)
        for cell in (planned(), planned() | {"run_id": "other", "model_hidden": 8})
    ]
    _, words = refused(runs, axes={"rows": ["sampler", "learning_rate"]})
    assert all(
        name in words
        for name in ("shifting-bar, PT_10, 0.1, 00", "model_hidden", "--rows")
    )
    groups = rows_of(build(runs, axes={"groups": ["data", "model_hidden"]}))[::2]
    assert groups == [
        ["shifting-bar, hidden units 4"],
        ["shifting-bar, hidden units 8"],
    ]
    inits = {
        "00": "zero",
        "dd^b": "inverse-sigmoid",
    }  # which follow from offsets: not needed
    varied = product((0, 200), (4, 8), inits.items())
    runs = [
        (
            planned(
                offsets=offsets,
                init=init,
                pretraining_epochs=epochs,
                model_hidden=hidden,
            ),
            UP,
        )
        for epochs, hidden, (offsets, init) in varied
    ]
    table = build(runs)
    assert table.layout.rows == (
        "sampler",
        "learning_rate",
        "model_hidden",
        "pretraining_epochs",
    )
    stubs = [f"PT_10-0.1-{rest}" for rest in ("4-0", "4-200", "8-0", "8-200")]
    assert [row[0] for row in rows_of(table)[1:]] == stubs


def test_the_grids_names_are_columns_too():
    sides = [f"sliding_factor_{side}" for side in ("visible", "hidden")]
    for factors, columns in (
        ([(0.1, 0.1), (0.5, 0.5)], sides[:1]),
        ([(0.1, 0.1), *BOTH], sides),
    ):
        cells = [planned(**dict(zip(sides, its, strict=True))) for its in factors]
        table = build(
            [(cell, UP) for cell in cells], axes={"columns": ["sliding_factor"]}
        )
        assert [*table.layout.columns] == columns


# What was recorded, and estimates

RUNS = [(planned(offsets=offsets), UP) for offsets in OFFSETS]
FRAME = pd.DataFrame([row for run in RUNS for row in finished(*run)])


def test_records_have_a_final_value_and_a_test_where_their_best_is_named():
    frame = FRAME.assign(weight_norm_final=[*range(10, 16), *range(20, 26)])
    table = build(RUNS, frame=frame, metric="weight_norm")
    assert rows_of(table)[1][1:] == ["12.5 ± 1.9", "22.5 ± 1.9"]
    assert "best='lowest'" in notes_of(table)[1]
    for best, marks in (("lowest", ["bold", ""]), ("highest", ["", "bold"])):
        assert (
            marks_of(build(RUNS, frame=frame, metric="weight_norm", best=best)) == marks
        )
    assert (
        refused(RUNS, frame=frame, metric="weight_norm", statistic="max")[0]
        == "--statistic max"
    )
    _, words = refused(RUNS, frame=frame.filter(regex="^(?!train_)"), table_metric=None)
    assert all(word in words for word in ("--metric", "weight_norm"))


def test_trials_whose_estimate_is_doubtful_are_counted():
    few = np.where(FRAME["trial"] == 3, 9.9, 10.0)
    frame = FRAME.assign(
        effective_sample_size_final=few, evaluate_runs=100, weight_norm_final=1.0
    )
    plain = notes_of(build(RUNS, frame=frame, metric="weight_norm"))
    doubtful = notes_of(build(RUNS, frame=frame))
    assert [re.findall(r"\d+", note) for note in doubtful if "AIS" in note] == [["2"]]
    assert not any("AIS" in note for note in plain)


def test_a_cell_with_an_impossible_value_is_counted_and_not_compared():
    row = of_offsets([*UP[:4], 0.5, 2.0], UP, DOWN)
    assert numbers(row)[-1] == ["2", "0"]  # trials above 0
    assert rows_of(row)[1][1].startswith("≤ ")
    assert marks_of(row)[0] == ""
    assert marks_of(row)[1:] == marks_of(of_offsets(UP, DOWN))


def test_only_estimates_get_advice_on_temperatures():
    ends = (
        "train_log_likelihood_max",
        "train_log_likelihood_exact",
        "train_log_likelihood_ais",
    )
    for methods, metric, advice in (
        (["ais", "exact"], None, True),
        (["exact", "exact"], None, False),
        (["ais", "ais"], "train_log_likelihood_exact", False),
    ):
        frame = FRAME.assign(
            evaluate_method=np.repeat(methods, 6), **dict.fromkeys(ends, 0.5)
        )
        notes = notes_of(build(RUNS, frame=frame, metric=metric))
        (said,) = (note for note in notes if re.search(r"\b12\b.*above 0", note))
        assert ("evaluate.temperatures" in said) == advice
    ais = {"metric": "train_log_likelihood_ais", "statistic": "best-valid"}
    assert "final value only" in refused(RUNS, frame=frame, **ais)[1]


def test_a_row_shows_where_mean_and_test_disagree():
    steady = [-5 - i / 100 for i in range(25)]
    lucky = [
        value + 1 if i != 7 else -1000.0 for i, value in enumerate(steady)
    ]  # one disaster
    table = of_offsets(lucky, steady, trials=25)
    assert numbers(table)[2] == ["1"]
    cells = rows_of(table)[1][1:]
    assert [cell[0] for cell in cells] == ["*", "*"]
    flags = [cell.rpartition("[")[2] for cell in cells]
    assert flags == ["better by test]", "best by mean]"]


def test_machines_of_a_kind_without_the_metric_are_blank_and_not_incomplete():
    cells = [planned(model_kind=kind) for kind in ("rbm", "auto-encoder")]
    costs = [cells[1] | {"trial": n, "test_cost_final": 0.5} for n in range(6)]
    frame = pd.DataFrame(finished(cells[0], UP) + costs)
    table = build([(cell, []) for cell in cells], frame=frame, table_metric=None)
    assert table.cells.measure.metric.column == "train_log_likelihood"
    assert table.layout.rows[-1] == "model_kind"
    assert rows_of(table)[2] == ["PT_10-0.1-auto-encoder", "–"]
    # nothing incomplete or diverged; the last note says that it was not measured
    assert numbers(table) == [["10", "6"], []]
    assert "not measured in any trial of the cell" in shown(table)


def test_a_marked_difference_shows_in_the_digits():
    for other, cells in (
        (-0.27004, ["*-2.7000 ± 0.0000 (-90.000)", "-2.7004 ± 0.0000 (-90.000)"]),
        (-0.27, ["*-2.70 ± 0.00 (-90.0)", "*-2.70 ± 0.00 (-90.0)"]),
        ([-0.2695, -0.2706], ["*-2.70 ± 0.00 (-90.0)", "*-2.70 ± 0.01 (-90.0)"]),
        # nine digits are the most
        (
            -0.27 - 3e-11,
            [
                "*-2.700000000 ± 0.000000000 (-90.00000000)",
                "-2.700000000 ± 0.000000000 (-90.00000000)",
            ],
        ),
    ):
        assert rows_of(of_offsets([-0.27] * 6, np.resize(other, 6)))[1][1:] == cells


def test_refused_choices_name_the_option_and_the_remedy():
    for options, place, named in (
        ({"axes": {"rows": ["learnin_rate"]}}, "--rows learnin_rate", "learning_rate"),
        ({"axes": {"columns": ["factor"]}}, "--columns factor", "a_factor, b_factor"),
        ({"axes": {"rows": ["data"], "columns": ["data"]}}, "", "data"),
        ({"metric": "train_log"}, "--metric train_log", "train_log_likelihood"),
        ({"statistic": "best-valid"}, "--statistic best-valid", "no validation part"),
    ):
        said = refused([(planned(a_factor=1, b_factor=2), UP)], **options)
        assert said[0] == place
        assert named in said[1]
