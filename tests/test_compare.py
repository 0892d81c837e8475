"""Published beside obtained: matching, differences in standard errors, marks, counts."""

import io
import json
from math import nan, sqrt

import pandas as pd
import pytest
from rich.console import Console

from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.statistics import compare, render_comparison
from cbm_cli.statistics.compare import rounding_variance
from cbm_cli.statistics.published import IDENTITY, published_cells

SCHEMES = ["aa^b", "dd^l_s", "d0", "00"]
# Table 2, Bars & Stripes, CD-1, 0.1: mean, spread, final mean and mark of the four schemes.
TABLE_2_CD = {
    "aa^b": (-60.85, 1.91, -69.1, True),
    "dd^l_s": (-60.41, 2.08, -68.8, True),
    "d0": (-60.88, 3.95, -70.9, True),
    "00": (-65.05, 3.60, -78.1, False),
}


def run(maxima, *, finals=None, experiment="bars", run_id=None, **settings):
    """Rows of summary.csv of one run of Table 2, in totals over 16 rows."""
    cell = {
        "data": "bars-and-stripes",
        "data_name": "bars-and-stripes",
        "data_size": 3,
        "data_bar": nan,
        "data_flip": False,
        "data_binarise": "threshold",
        "data_threshold": 0.5,
        "model_kind": "rbm",
        "model_hidden": 4,
        "offsets": "aa^b",
        "sampler": "CD-1",
        "learning_rate": 0.1,
        "ladders": 1,
        "sliding_factor_visible": 0.01,
        "sliding_factor_hidden": 0.01,
        "weight_scale": 0.01,
        "updates": 50000.0,
        "epochs": nan,
        "batch": "full",
        "evaluate_every": "50 updates",
    } | settings
    cell.setdefault("init", "zero" if cell["offsets"] in ("00", "d0") else "inverse-sigmoid")
    name = "/".join(str(cell[c]) for c in IDENTITY if c in cell) if run_id is None else run_id
    finals = [value - 8 for value in maxima] if finals is None else finals
    return pd.DataFrame(
        {
            "experiment": experiment,
            "run_id": name,
            "trial": range(len(maxima)),
            **cell,
            "n_train": 16,
            "train_log_likelihood_max": [value / 16 for value in maxima],
            "train_log_likelihood_final": [value / 16 for value in finals],
            "train_log_likelihood_max_update": 1000,
            "diverged": nan,
        }
    )


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


def line(comparison, **where):
    cells = comparison.cells
    for name, value in where.items():
        cells = cells[cells[name] == value]
    assert len(cells) == 1
    return cells.iloc[0]


def test_published_table_is_read_and_its_original_initialisation_resolved():
    published = published_cells()
    assert set(published["model"]) == {"rbm", "dbm", "auto-encoder"}
    row = published[(published["table"] == "standard-methods-bars-mnist") & (published["sampler"] == "CD-1")]
    row = row[(row["learning_rate"] == "0.1") & (row["dataset"] == "bars-and-stripes")]
    assert list(zip(row["offsets"], row["init"], strict=True)) == [
        ("aa^b", "inverse-sigmoid"),
        ("dd^l_s", "inverse-sigmoid"),
        ("d0", "zero"),
        ("00", "zero"),
    ]
    found = [
        (float(mean), float(std), float(final), best == "yes")
        for mean, std, final, best in row[["mean", "std", "final_mean", "best_in_row"]].to_numpy()
    ]
    assert found == [TABLE_2_CD[scheme] for scheme in SCHEMES]


@pytest.mark.parametrize(
    ("text", "variance"),
    [("-54.75", 1e-4 / 12), ("-152.6", 1e-2 / 12), ("-247", 1 / 12), ("0.00", 1e-4 / 12)],
)
def test_rounding_variance_is_that_of_a_uniform_error(text, variance):
    assert rounding_variance(text) == pytest.approx(variance)


def test_difference_in_standard_errors_by_hand():
    values, finals = [-61.0, -62.0, -63.0], [-70.0, -72.0, -77.0]
    found = line(compare(run(values, finals=finals)), table="standard-methods-bars-mnist")
    assert found["obtained_mean"] == pytest.approx(-62)
    assert found["obtained_std"] == pytest.approx(1)
    assert found["z"] == pytest.approx((-62 + 60.85) / sqrt(1 / 3 + 1.91**2 / 25 + 0.01**2 / 12))
    assert found["difference"] == pytest.approx(-1.15)
    variance = ((-70 + 73) ** 2 + (-72 + 73) ** 2 + (-77 + 73) ** 2) / 2
    assert found["final_difference"] == pytest.approx(-73 + 69.1)
    assert found["final_z"] == pytest.approx((-73 + 69.1) / sqrt(variance / 3 + variance / 25 + 0.1**2 / 12))


def test_a_single_trial_borrows_the_published_spread_and_has_no_final_z():
    found = line(compare(run([-62.0])), table="standard-methods-bars-mnist")
    assert found["z"] == pytest.approx(-1.15 / sqrt(1.91**2 + 1.91**2 / 25 + 0.01**2 / 12))
    assert pd.isna(found["final_z"])


def test_diverged_trials_are_left_out_of_the_mean_and_counted():
    rows = run([-61.0, -62.0, -63.0, -float("inf")])
    rows.loc[3, "diverged"] = 700
    found = line(compare(rows), table="standard-methods-bars-mnist")
    assert (found["obtained_n"], found["diverged"]) == (4, 1)
    assert found["z"] == pytest.approx((-62 + 60.85) / sqrt(1 / 3 + 1.91**2 / 25 + 0.01**2 / 12))


def test_marks_of_a_whole_row_agree_or_not():
    # As published: 00 is below; aa^b, though published bold, is below dd^l_s in every pair: no mark.
    comparison = compare(pd.concat(table_2(**{"aa^b": -60.5, "d0": -60.41})))
    marks = {
        scheme: line(comparison, table="standard-methods-bars-mnist", offsets=scheme) for scheme in SCHEMES
    }
    assert {s: (m["published_bold"], m["obtained_bold"], m["marks_agree"]) for s, m in marks.items()} == {
        "aa^b": (True, False, False),
        "dd^l_s": (True, True, True),
        "d0": (True, True, True),
        "00": (False, False, True),
    }
    assert "3 of 4 significance marks agree" in comparison.summary()[-1]


@pytest.mark.parametrize("frames", [table_2()[:3], table_2(n=5)])
def test_no_marks_without_the_whole_row_or_with_few_pairs(frames):
    comparison = compare(pd.concat(frames))
    assert comparison.cells["marks_agree"].isna().all()
    assert comparison.summary()[-1].endswith("0 of 0 significance marks agree")


def test_counts_of_values_within_two_standard_errors():
    # Spread of 8 evenly spaced values: sqrt(6); 00 is off by 10.
    comparison = compare(pd.concat(table_2(**{"00": -75.05})))
    within = comparison.cells[comparison.cells["table"] == "standard-methods-bars-mnist"]
    assert within["z"].abs().gt(2).tolist() == [False, False, False, True]
    # Table 7 repeats dd^l_s at 0.1, without its row. aa^b and d0, published bold, are below it in every pair.
    assert comparison.summary() == [
        "4 of 4 published final values within 2 standard errors",
        "4 of 5 published values within 2 standard errors, 2 of 4 significance marks agree",
    ]


def test_pcd_2_is_counted_in_place_of_pcd_1_and_beside_it():
    frames = [
        run(around(-54.75), offsets="dd^l_s", sampler="PCD-1"),  # as published
        run(around(-30.0), offsets="dd^l_s", sampler="PCD-2"),  # far off
        run(around(-60.41), offsets="dd^l_s", sampler="CD-1"),
    ]
    comparison = compare(pd.concat(frames))
    assert comparison.summary()[-2:] == [
        "4 of 4 published values within 2 standard errors, 0 of 0 significance marks agree",
        "With PCD-2 in place of PCD-1: "
        "2 of 4 published values within 2 standard errors, 0 of 0 significance marks agree",
    ]
    second = line(comparison, table="standard-methods-bars-mnist", obtained_sampler="PCD-2")
    assert second["sampler"] == "PCD-1"
    assert second["published_mean"] == "-54.75"
    assert "published PCD-1 beside PCD-2" in render_comparison(comparison)


def test_a_run_shared_by_experiments_counts_once():
    twice = [run([-61.0, -62.0, -63.0], experiment=name) for name in ("one", "two")]
    assert line(compare(pd.concat(twice)), table="standard-methods-bars-mnist")["obtained_n"] == 3


def test_of_two_runs_the_longer_list_of_trials_is_taken():
    frames = [run([-61.0] * 3, run_id="old"), run([-62.0] * 5, run_id="new"), run([-63.0] * 4, run_id="x")]
    found = line(compare(pd.concat(frames)), table="standard-methods-bars-mnist")
    assert (found["run_id"], found["obtained_n"]) == ("new", 5)


@pytest.mark.parametrize(
    "departure",
    [
        {"updates": 500.0},
        {"ladders": 16},
        {"weight_scale": 0.1},
        {"sliding_factor_hidden": 0.5},
        {"batch": "8"},
        {"data_size": 2},
        {"evaluate_every": "1 update"},
    ],
)
def test_runs_with_other_settings_are_counted_but_not_compared(departure):
    frames = [run([-61.0, -62.0]), run([-20.0] * 9, run_id="other", **departure)]
    comparison = compare(pd.concat(frames))
    assert line(comparison, table="standard-methods-bars-mnist")["obtained_n"] == 2
    (name,) = departure
    assert f"Not compared: 1 run with settings not the paper's ({name} in 1)." in comparison.notes()
    with pytest.raises(IncompleteError, match=name):
        compare(frames[1])


def test_initialisation_decides_which_published_value_is_meant():
    shifting = {
        "data": "flipped-shifting-bar",
        "data_name": "shifting-bar",
        "data_size": 9,
        "data_bar": 1,
        "data_flip": True,
        "learning_rate": 0.2,
        "offsets": "00",
    }
    comparison = compare(run([-21.0, -22.0], init="inverse-sigmoid", **shifting))
    assert comparison.cells["table"].tolist() == ["init-00-flipped-shifting-bar"]
    assert comparison.cells["published_mean"].tolist() == ["-21.49"]
    comparison = compare(run([-28.0, -28.1], init="zero", **shifting))
    assert comparison.cells["table"].tolist() == [
        "standard-methods-shifting-bar",
        "init-00-flipped-shifting-bar",
    ]
    assert comparison.cells["published_mean"].nunique() == 1


def test_mnist_is_per_sample_and_its_misprint_is_noted():
    mnist = {"data": "mnist", "data_name": "mnist", "data_size": nan, "model_hidden": 16}
    mnist |= {"updates": nan, "epochs": 100, "batch": 100, "evaluate_every": "1 epoch", "learning_rate": 0.01}
    rows = run([-250.0 * 16, -244.2 * 16], sampler="PT_10", **mnist)
    comparison = compare(rows)
    found = line(comparison, dataset="mnist")
    assert found["obtained_mean"] == pytest.approx(-247.1)
    assert found["z"] == pytest.approx(0, abs=1e-9)
    assert any("misprint" in note for note in comparison.notes())
    assert not any("misprint" in note for note in compare(run([-61.0])).notes())


def test_what_cannot_be_compared_is_said():
    with pytest.raises(IncompleteError, match="no finished trials"):
        compare(pd.DataFrame())
    with pytest.raises(IncompleteError, match="no trial can be compared"):
        compare(run([-61.0], model_hidden=5))


NOTES = [
    "Difference: obtained less published, in standard errors of both means and the published value's "
    "rounding. Published final values have no spread: the obtained one stands for both.",
    "Marks: bold in its row, published/obtained; obtained by the signed-rank test (α = 0.05) where the "
    "whole row was run with 6 pairs or more.",
    "480 published RBM values have no comparable trial here.",
]
FINALS = "4 of 4 published final values within 2 standard errors"
MAXIMA = "4 of 5 published values within 2 standard errors, 2 of 4 significance marks agree"
SUMMARY = [FINALS, MAXIMA]

TEXT = (
    """\
Table 2: bars-and-stripes, 4 hidden

 Algorithm-η   offsets   published       obtained        n   z        published final   obtained final   \
difference   z      bold
 RULE_2
 CD-1-0.1      aa^b      -60.85 ± 1.91   -63.00 ± 1.87   6   -2.5 !   -69.1             -69.1            \
+0.0         +0.0   yes/no !
 CD-1-0.1      dd^l_s    -60.41 ± 2.08   -60.41 ± 1.87   6   +0.0     -68.8             -68.8            \
+0.0         +0.0   yes/yes
 CD-1-0.1      d0        -60.88 ± 3.95   -60.88 ± 1.87   6   +0.0     -70.9             -70.9            \
+0.0         +0.0   yes/no !
 CD-1-0.1      00        -65.05 ± 3.60   -65.05 ± 1.87   6   +0.0     -78.1             -78.1            \
+0.0         +0.0   no/no

Table 7: bars-and-stripes, 4 hidden

 Algorithm-η   offsets   published       obtained        n   z      published final   obtained final   \
difference   z   bold
 RULE_7
 CD-1-0.1      dd^l_s    -60.41 ± 2.08   -60.41 ± 1.87   6   +0.0   –                 -68.8            \
–            –   yes/–

""".replace("RULE_2", "─" * 132).replace("RULE_7", "─" * 124)
    + "\n".join([*NOTES, "", *SUMMARY, ""])
)

HEADER = (
    "| Algorithm-η | offsets | published | obtained | n | z | published final | obtained final | "
    "difference | z | bold |\n" + "|" + " --- |" * 11
)
MARKDOWN = f"""\
**Table 2: bars-and-stripes, 4 hidden**

{HEADER}
| CD-1-0.1 | aaᵇ | -60.85 ± 1.91 | -63.00 ± 1.87 | 6 | -2.5 ! | -69.1 | -69.1 | +0.0 | +0.0 | yes/no ! |
| CD-1-0.1 | ddˡₛ | -60.41 ± 2.08 | -60.41 ± 1.87 | 6 | +0.0 | -68.8 | -68.8 | +0.0 | +0.0 | yes/yes |
| CD-1-0.1 | d0 | -60.88 ± 3.95 | -60.88 ± 1.87 | 6 | +0.0 | -70.9 | -70.9 | +0.0 | +0.0 | yes/no ! |
| CD-1-0.1 | 00 | -65.05 ± 3.60 | -65.05 ± 1.87 | 6 | +0.0 | -78.1 | -78.1 | +0.0 | +0.0 | no/no |

**Table 7: bars-and-stripes, 4 hidden**

{HEADER}
| CD-1-0.1 | ddˡₛ | -60.41 ± 2.08 | -60.41 ± 1.87 | 6 | +0.0 | – | -68.8 | – | – | yes/– |

{NOTES[0]}

{NOTES[1]}

{NOTES[2]}

- {FINALS}
- {MAXIMA}
"""


@pytest.fixture(scope="module")
def whole():
    return compare(pd.concat(table_2(n=6, **{"aa^b": -63})))


@pytest.mark.parametrize(("format", "text"), [("text", TEXT), ("markdown", MARKDOWN)])
def test_whole_output(whole, format, text):
    assert render_comparison(whole, format) == text


def test_csv_and_json_hold_every_cell(whole):
    table = pd.read_csv(io.StringIO(render_comparison(whole, "csv")), dtype={"offsets": str})
    assert table.columns.tolist() == whole.cells.columns.tolist()
    assert table["offsets"].tolist() == [*SCHEMES, "dd^l_s"]
    written = json.loads(render_comparison(whole, "json"))
    assert (written["summary"], written["notes"]) == (SUMMARY, NOTES)
    last, first = written["cells"][-1], written["cells"][0]
    assert (last["table"], last["final_z"], last["marks_agree"]) == ("reparameterization-order", None, None)
    assert (first["obtained_mean"], first["z"]) == pytest.approx((-63.0, table["z"][0]))
    assert first["marks_agree"] is False


def test_terminal_shows_disagreement_in_colour(whole):
    console = Console(force_terminal=True, color_system="standard", width=200, file=io.StringIO())
    console.no_color = False
    text = render_comparison(whole, "text", console)
    assert "\x1b[1;31m-2.5 !\x1b[0m" in text
    assert "\x1b[1;31myes/no !\x1b[0m" in text


def test_unknown_format_is_said(whole):
    with pytest.raises(CbmError, match="--format latex: no such format"):
        render_comparison(whole, "latex")
