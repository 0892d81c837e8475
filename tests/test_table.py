"""Tables: their contents, the whole text in every format, and the command."""

import io
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from math import nan

import pandas as pd
import pytest

from cbm_cli.cli import common
from cbm_cli.cli.table import table as command
from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.results import Results
from cbm_cli.sheets import Document, Group, Label, Sheet, Value
from cbm_cli.statistics import build_table
from cbm_cli.statistics.wilcoxon import TESTS
from tests.builders import GRID, cbm

TABLE = {
    "rows": ["sampler", "learning_rate"],
    "columns": ["offsets"],
    "groups": ["data"],
    "scale": "total",
    "metric": "train_log_likelihood",
}
UP = [-5.0, -5.1, -5.2, -5.3, -5.4, -5.5]
DOWN = [-5.2, -5.4, -5.6, -5.8, -6.0, -6.2]  # below UP in every pair
NEAR = [-5.1, -5.0, -5.3, -5.2, -5.5, -5.4]  # as often above as below


def planned(data="shifting-bar", sampler="PT_10", learning_rate=0.1, offsets="00", **more):
    name = f"{data}/{sampler}/{learning_rate}/{offsets}" + "".join(f"/{v}" for v in more.values())
    settings = {"data": data, "sampler": sampler, "learning_rate": learning_rate, "offsets": offsets}
    return {"run_id": name, **settings, "model_hidden": 4, **more}


def finished(cell, maxima, finals=-9.0, diverged=None):
    column = "train_log_likelihood"
    common = {"experiment": "small", **cell, "n_train": 10, "n_test": nan, f"{column}_final": finals}
    return [
        {**common, "trial": trial, f"{column}_max": value, f"{column}_max_update": 50 * (trial + 1)}
        | {"diverged": diverged if value == float("-inf") else None}
        for trial, value in enumerate(maxima)
    ]


def manifest(cells, trials=6, **table):
    words = {"experiment": "small", "description": "A small table."}
    return words | {"trials": trials, "table": TABLE | table, "cells": cells}


def build(runs, trials=6, frame=None, **choices):
    """A table of cells with their maxima, in order; scale and table_metric go to the manifest."""
    table = {name: choices.pop(name) for name in [*choices] if name in ("scale", "table_metric")}
    table = {name.removeprefix("table_"): value for name, value in table.items()}
    rows = [row for cell, maxima in runs for row in finished(cell, maxima, diverged=700)]
    frame = pd.DataFrame(rows) if frame is None else frame
    return build_table(frame, manifest([cell for cell, _ in runs], trials, **table), **choices)


def shown(table, format="text", split=None, width=None):
    return table.document(split).render(format, width)


@pytest.fixture
def small():
    """Two data sets; complete, tied, incomplete, empty, unplanned and diverged cells."""
    scheme = {"offsets": "dd^l_s"}
    runs = [
        (planned(**scheme), UP),
        (planned(), DOWN),
        (planned(sampler="CD-1", learning_rate=0.05, **scheme), NEAR),
        (planned(sampler="CD-1", learning_rate=0.05), UP),
        (planned("mnist", **scheme), [*UP[:5], float("-inf")]),
        (planned("mnist"), DOWN[:3]),
        (planned("mnist", sampler="CD-1", **scheme), []),
    ]
    return build(runs)


WHAT = (
    "Maximum train log-likelihood during training, of all 10 rows: "
    "mean ± standard deviation (mean of the final values) over 3 to 6 trials."
)
RULE = (
    "best of the row, or not significantly different from it (two-sided Wilcoxon signed-rank test, α = 0.05, "
    "no correction; smallest possible p with 6 pairs: 0.031). "
    "With 6 pairs a difference is significant only where all pairs agree in direction."
)
FEW = (
    "best of a row with too few pairs for the test to find any difference "
    "(smallest possible p with 3 pairs: 0.25, α = 0.05); no significance is claimed."
)
MISSING = "INCOMPLETE: 2 of 7 cells lack trials, shown as [n=done/planned]."
DIVERGED = "1 trial diverged: counted in the cell, left out of its means where not finite, last in the test."
NOTES = [WHAT, f"Bold: {RULE} Underlined: {FEW}", MISSING, DIVERGED]

TEXT = f"""\
A small table.

 Algorithm-η    dd^l_s                                00
 ───────────────────────────────────────────────────────────────────────────────────
 shifting-bar
 PT_10-0.1      *-52.50 ± 1.87 (-90.0)                 -57.00 ± 3.74 (-90.0)
 CD-1-0.05      *-52.50 ± 1.87 (-90.0)                *-52.50 ± 1.87 (-90.0)

 mnist
 PT_10-0.1       -52.00 ± 1.58 (-90.0) [1 diverged]   _-54.00 ± 2.00 (-90.0) [n=3/6]
 CD-1-0.1        – [n=0/6]                             –

{WHAT}
*: {RULE} _: {FEW}
{MISSING}
{DIVERGED}
"""

LATEX = r"""\midrule
\multicolumn{7}{l}{\emph{mnist}} \\
PT$_{10}$-0.1 & $-52$ & $.00$ & $\pm 1.58\;(-90.0)$ [1 diverged] & $\underline{-54}$ & $\underline{.00}$ \
& $\pm 2.00\;(-90.0)$ [n=3/6] \\
CD-1-0.1 & \multicolumn{3}{c}{-- [n=0/6]} & \multicolumn{3}{c}{--} \\
\bottomrule
\end{tabular}
\caption{CAPTION}
\label{tab:small}
\end{table}
""".replace("\\\n&", "&").replace(
    "CAPTION",
    " ".join(["A small table.", *NOTES]).replace("±", r"$\pm$").replace("α", r"$\alpha$"),
)

HTML = f"""\
<table>
<caption>A small table.</caption>
<thead>
<tr><th>Algorithm-η</th><th>ddˡₛ</th><th>00</th></tr>
</thead>
<tbody>
<tr><th colspan="3">shifting-bar</th></tr>
<tr><th>PT₁₀-0.1</th><td><strong>-52.50</strong> ± 1.87 (-90.0)</td><td>-57.00 ± 3.74 (-90.0)</td></tr>
<tr><th>CD-1-0.05</th><td><strong>-52.50</strong> ± 1.87 (-90.0)</td>\
<td><strong>-52.50</strong> ± 1.87 (-90.0)</td></tr>
</tbody>
<tbody>
<tr><th colspan="3">mnist</th></tr>
<tr><th>PT₁₀-0.1</th><td>-52.00 ± 1.58 (-90.0) [1 diverged]</td>\
<td><u>-54.00</u> ± 2.00 (-90.0) [n=3/6]</td></tr>
<tr><th>CD-1-0.1</th><td>– [n=0/6]</td><td>–</td></tr>
</tbody>
<tfoot>
<tr><td colspan="3">{"<br>".join(NOTES)}</td></tr>
</tfoot>
</table>
"""

CSV = """\
data,sampler,learning_rate,offsets,n,n_planned,mean,std,final_mean,max_update,\
p_value,effect_size,n_pairs,best,bold,underlined,better_by_test,diverged
shifting-bar,PT_10,0.1,dd^l_s,6,6,-52.5,1.870828693,-90,175,,,,True,True,False,False,0
shifting-bar,PT_10,0.1,00,6,6,-57,3.741657387,-90,175,0.03125,1,6,False,False,False,False,0
shifting-bar,CD-1,0.05,dd^l_s,6,6,-52.5,1.870828693,-90,175,,,,True,True,False,False,0
shifting-bar,CD-1,0.05,00,6,6,-52.5,1.870828693,-90,175,1,0,6,False,True,False,False,0
mnist,PT_10,0.1,dd^l_s,6,6,-52,1.58113883,-90,175,,,,False,False,False,False,1
mnist,PT_10,0.1,00,3,6,-54,2,-90,100,,,,True,False,True,False,0
mnist,CD-1,0.1,dd^l_s,0,6,,,,,,,,False,False,False,False,0
"""


@pytest.mark.parametrize(("format", "whole"), [("text", TEXT), ("html", HTML), ("csv", CSV)])
def test_whole_output(small, format, whole):
    assert shown(small, format) == whole


def test_markdown_and_latex_have_marks_and_flags(small):
    text = shown(small, "markdown")
    assert "| PT₁₀-0.1 | **-52.50** ± 1.87 (-90.0) | -57.00 ± 3.74 (-90.0) |" in text
    assert "| -52.00 ± 1.58 (-90.0) [1 diverged] | <u>-54.00</u> ± 2.00 (-90.0) [n=3/6] |" in text
    assert text.endswith("\n\n".join(["", *NOTES]) + "\n")
    latex = shown(small, "latex")  # tests/golden has a whole one
    assert r"CD-1-0.05 & $\mathbf{-52}$ & $\mathbf{.50}$ & $\pm 1.87\;(-90.0)$ & $\mathbf{-52}$" in latex
    assert latex.endswith(LATEX)


def test_terminal_gets_bold_and_underline_and_no_stars(small):
    text = shown(small, width=200)
    assert "\x1b[1m-52.50 ± 1.87 (-90.0)\x1b[0m" in text
    assert "\x1b[4m-54.00 ± 2.00 (-90.0) [n=3/6]\x1b[0m" in text
    assert "\x1b[33mINCOMPLETE" in text
    assert "ddˡₛ" in text
    assert "*" not in text


def lines_of(text):
    return [re.sub(r"\x1b\[[\d;]*m", "", line) for line in text.splitlines()]


def test_a_list_wraps_its_last_column_on_a_terminal_and_is_plain_elsewhere(monkeypatch, capsys):
    rows = [("mnist", "digits, of 28x28 grey pixels"), ("dna", "")]
    common.print_list(("name", "about"), rows)
    plain = ["name   about", "mnist  digits, of 28x28 grey pixels", "dna"]
    assert capsys.readouterr().out.splitlines() == plain
    monkeypatch.setattr(common, "_terminal_width", lambda: 30)
    common.print_list(("name", "about"), rows)
    names, rule, *lines = lines_of(capsys.readouterr().out)
    assert (names, {*rule}) == (" name    about", {" ", "─"})
    assert lines == [" mnist   digits, of 28x28", "         grey pixels", " dna"]


FOUR = [(planned(offsets=o), UP) for o in ("00", "d0", "aa^b", "dd^b")]


def test_a_narrow_terminal_gets_parts_that_fit():
    lines = lines_of(shown(build(FOUR), width=70))
    tables = [line for line in lines if line.startswith(" ")]
    assert max(map(len, tables)) <= 70
    assert [line for line in lines if "part" in line] == [f"A small table. (part {i} of 2)" for i in (1, 2)]
    assert len([line for line in tables if "PT₁₀-0.1" in line]) == 2
    assert lines_of(shown(build(FOUR), width=20))[0] == "A small table. (part 1 of 4)"


def test_latex_says_when_it_is_wider_than_the_page():
    latex = shown(build(FOUR), "latex")
    (most,) = re.findall(r"% about \d+ pt wide.*: --split (\d) ", latex)
    assert "% about" not in shown(build(FOUR), "latex", split=int(most))
    assert "% about" in shown(build(FOUR), "latex", split=int(most) + 1)


@pytest.mark.parametrize("number", range(3, 14))
def test_the_parts_that_latex_advises_fit(number):
    letters = ["00", "d0", "aa^b", "dd^b_s", "mm^b", "d0_s", "0m", "dm^l_s", "md", "hh", "aa", "dd", "mm^l_s"]
    table = build([(planned(offsets=o, hidden=i), UP) for i, o in enumerate(letters[:number])])
    for advice in (said for split in (None, 3, 2) for said in table.document(split).too_wide()):
        most = int(re.search(r"--split (\d+) ", advice)[1])
        assert not table.document(most).too_wide()
        assert most == number - 1 or table.document(most + 1).too_wide()


def test_latex_is_balanced_and_every_line_has_all_columns(small):
    for split in (None, 1, "groups"):
        latex = shown(small, "latex", split)
        parts = 1 if split is None else 2
        for name in ("table", "tabular"):
            assert latex.count(f"\\begin{{{name}}}") == latex.count(f"\\end{{{name}}}") == parts
        assert latex.count("{") == latex.count("}")
        assert latex.count("$") % 2 == 0
        for tabular in latex.split("\\begin{tabular}")[1:]:
            spec, _, body = tabular.partition("}\n\\toprule")
            width = len(re.findall("[lr]", spec.replace("{}", "")))
            for line in body.splitlines():
                if line.endswith(r"\\"):
                    spans = [int(n) for n in re.findall(r"multicolumn\{(\d)\}", line)]
                    assert line.count(" & ") + 1 + sum(spans) - len(spans) == width
    assert re.findall(r"label\{(.*)\}", latex) == ["tab:small-1", "tab:small-2"]
    assert [latex.count(note) for note in ("part 1 of 2", "INCOMPLETE")] == [1, 1]


def test_latex_aligns_decimal_points_and_spreads():
    table = build([(planned(), [-5.0, -25.0, -45.0]), (planned(learning_rate=0.2), [-150.0, -151.0, -152.0])])
    found = re.findall(r" & \$(.*?)\$ & \$(.*?)\$ & \$(.*?)\$", shown(table, "latex"))
    assert found == [
        ("-250", ".00", r"\pm 200.00\;(-90.0)"),
        ("-1510", ".00", r"\pm \phantom{0}10.00\;(-90.0)"),
    ]


def test_latex_compiles(small, tmp_path):
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed")
    begin, end = r"\documentclass{article}\usepackage{booktabs}\begin{document}", r"\end{document}"
    (tmp_path / "table.tex").write_text(begin + shown(small, "latex") + end, encoding="utf-8")
    call = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


def test_special_characters_are_escaped():
    cell = planned("a_b & <c>|d")
    table = build_table(pd.DataFrame(finished(cell, UP)), manifest([cell]) | {"description": "50 % of a_b^2"})
    assert r"\emph{a\_b \& $<$c$>$|d}" in shown(table, "latex")
    assert r"\caption{50 \% of a\_b\textasciicircum{}2. Maximum" in shown(table, "latex")
    texts = []
    parser = HTMLParser()
    parser.handle_data = texts.append
    parser.feed(shown(table, "html"))
    assert "a_b & <c>|d" in texts


def test_a_sheet_serves_any_list():
    rows = [[Label.of("mnist"), Label.of("784 | 1")], [Label.of("dna"), Value("180", "2", mark="bold")]]
    header = [Label.of("name"), Label.of("units")]
    document = Document([Sheet(header, [Group(None, rows)])], records=[{"name": "a,b", "x": nan, "y": 0.1}])
    assert document.render() == "\n name    units\n ────────────────\n mnist   784 | 1\n dna     *180 ± 2\n\n"
    assert document.render("markdown").splitlines()[2:] == [r"| mnist | 784 \| 1 |", "| dna | **180** ± 2 |"]
    assert document.render("csv") == 'name,x,y\n"a,b",,0.1\n'
    assert json.loads(document.render("json")) == {"cells": [{"name": "a,b", "x": None, "y": 0.1}]}


def test_rows_and_columns_follow_the_grid_and_25_trials_are_tested():
    schemes = ["aa^b", "dd^l_s", "d0", "00"]
    runs = [
        (planned("bars", s, rate, scheme), [-5 - schemes.index(scheme) / 10 - t / 100 for t in range(25)])
        for s in ("CD-1", "PCD-1", "PT_10")
        for rate in (0.2, 0.1, 0.05)
        for scheme in schemes
    ]
    frame = pd.DataFrame([row for run in reversed(runs) for row in finished(*run)])
    table = build(runs, trials=25, frame=frame)
    assert [column["offsets"] for column in table.columns] == schemes
    assert [row[0].where["learning_rate"] for row in table.groups[0]] == [0.2, 0.1, 0.05] * 3
    long = pd.DataFrame(map(table.record, table.cells))
    assert long["n"].tolist() == [25] * 36
    assert long["bold"].tolist() == [True, False, False, False] * 9
    assert long["p_value"].dropna().max() < 0.001
    assert len(table.notes()) == 2  # nothing incomplete, nothing diverged
    assert "only where all pairs" not in table.notes()[1]


@pytest.mark.parametrize(
    ("n", "planned_trials", "words"),
    [([8, 8], 5, "over 8 trials."), ([8, 6], 8, "over 6 to 8 trials."), ([1, 1], 1, "over 1 trial.")],
)
def test_the_caption_says_the_trials_of_the_cells_shown(n, planned_trials, words):
    runs = [(planned(offsets=o), UP * 2) for o in ("00", "d0")]
    table = build([(cell, maxima[:k]) for (cell, maxima), k in zip(runs, n, strict=True)], planned_trials)
    assert table.notes()[0].endswith(words)


def test_settings_that_vary_within_a_cell():
    """In a layout that is asked for, they are named; the default layout shows them in its rows."""
    cells = [planned(), planned() | {"run_id": "other", "model_hidden": 8}]
    runs = [(cell, UP) for cell in cells]
    with pytest.raises(
        CbmError, match=r"shifting-bar, PT_10, 0.1, 00 would mix .* model_hidden; name it in --rows"
    ):
        build(runs, axes={"rows": ["sampler", "learning_rate"]})
    assert "shifting-bar, hidden units 8" in shown(build(runs, axes={"groups": ["data", "model_hidden"]}))
    cells = [
        planned(offsets=o, init=i, pretraining_epochs=p, model_hidden=h)
        for p in (0, 200)
        for h in (4, 8)
        for o, i in (("00", "zero"), ("dd^b", "inverse-sigmoid"))  # init follows from offsets: not needed
    ]
    table = build([(cell, UP) for cell in cells])
    assert table.layout.rows == ("sampler", "learning_rate", "model_hidden", "pretraining_epochs")
    lines = [line.split()[0] for line in shown(table).splitlines() if line.startswith(" PT")]
    assert lines == ["PT_10-0.1-4-0", "PT_10-0.1-8-0", "PT_10-0.1-4-200", "PT_10-0.1-8-200"]
    assert [cell.n for cell in table.cells] == [6] * 8
    assert build(FOUR).layout.rows == ("sampler", "learning_rate")  # nothing else varies


def sliding(visible, hidden, units=4):
    return planned(sliding_factor_visible=visible, sliding_factor_hidden=hidden, model_hidden=units)


@pytest.mark.parametrize(
    ("name", "cells", "columns"),
    [
        ("hidden", [sliding(0.1, 0.1, 4), sliding(0.1, 0.1, 8)], ("model_hidden",)),
        ("model.hidden", [sliding(0.1, 0.1, 4), sliding(0.1, 0.1, 8)], ("model_hidden",)),
        ("sliding_factor", [sliding(0.1, 0.1), sliding(0.5, 0.5)], ("sliding_factor_visible",)),
        (
            "sliding_factor",
            [sliding(0.1, 0.1), sliding(0.1, 0.5), sliding(0.5, 0.5)],
            ("sliding_factor_visible", "sliding_factor_hidden"),
        ),
        ("visible", [sliding(0.1, 0.1), sliding(0.5, 0.1)], ("sliding_factor_visible",)),
    ],
)
def test_the_grids_names_are_columns_too(name, cells, columns):
    assert build([(cell, UP) for cell in cells], axes={"columns": [name]}).layout.columns == columns


# Auto encoders, deep machines, and what was recorded


def trained(cell, best, epochs=()):
    """Rows of summary.csv of an auto encoder: lowest test cost and its epoch (of 10 updates) by trial."""
    common = {**cell, "n_test": 10, "n_train": 100, "batch": 10}
    return [
        {**common, "trial": trial, "test_cost_min": value, "test_cost_final": value + 1}
        | {"test_cost_best_valid": value + 0.5, "test_cost_min_update": 10 * epoch}
        | {"valid_cost_min_update": 10 * epoch - 20}
        | {"diverged": 100 if value == float("inf") else None}
        for trial, (value, epoch) in enumerate(zip(best, epochs or [200] * len(best), strict=True))
    ]


LOW = [0.5, 0.51, 0.52, 0.53, 0.54, 0.55]
HIGH = [0.6, 0.62, 0.64, 0.66, 0.68, 0.7]  # above LOW in every pair
OFFSETS = ["dd^b_s", "00"]


def auto_encoders(metric=None, **choices):
    cells = [
        planned(sampler="back-propagation", offsets=o, learning_rate=r) for r in (0.1, 0.5) for o in OFFSETS
    ]
    rows = [
        *trained(cells[0], LOW, [100, 200, 300, 500, 100, 100]),
        *trained(cells[1], HIGH),
        *trained(cells[2], [*LOW[:5], float("inf")]),
        *trained(cells[3], HIGH),
    ]
    return build_table(pd.DataFrame(rows), manifest(cells, scale="per-sample", metric=metric), **choices)


COST_TEXT = """\
A small table.

 Algorithm-η            dd^b_s                                 00
 ─────────────────────────────────────────────────────────────────────────────────────
 shifting-bar
 back-propagation-0.1   *0.52500 ± 0.0187 (217)                 0.65000 ± 0.0374 (200)
 back-propagation-0.5   *0.52000 ± 0.0158 (200) [1 diverged]   *0.65000 ± 0.0374 (200)

Minimum test cost during training, per row: mean ± standard deviation \
(mean epoch of the lowest cost) over 6 trials.
"""


def test_the_lowest_cost_is_the_best_and_its_epoch_stands_beside_it():
    table = auto_encoders()
    assert shown(table).startswith(COST_TEXT)
    assert r"$\mathbf{0}$ & $\mathbf{.52500}$ & $\pm 0.0187\;(217)$" in shown(table, "latex")
    long = pd.DataFrame(map(table.record, table.cells))
    assert long["p_value"].tolist()[1] == pytest.approx(2 / 2**6)
    assert long["epochs_to_convergence"].tolist() == pytest.approx([1300 / 6, 200, 200, 200])
    assert long["min_update"].tolist() == pytest.approx([13000 / 6, 2000, 2000, 2000])


@pytest.mark.parametrize(
    ("statistic", "value", "words"),
    [
        ("max", 0.525, "Minimum test cost during training, per row"),
        ("final", 1.525, "Final test cost, per row"),
        ("best-valid", 1.025, "Test cost at the best validation value, per row"),
    ],
)
def test_statistics_of_a_cost(statistic, value, words):
    table = auto_encoders(statistic=statistic)
    assert table.cells[0].mean == pytest.approx(value)
    assert table.notes()[0].startswith(f"{words}: mean")


CURVES = {  # by trial, from the untrained machine on: its maximum does not count
    "level": ([-1, -9, -5, -8], [-1, -9, -7, -2]),
    "one diverges": ([-1, -9, -5, -8], [-1, -9, -7, -2], [-1, -3, nan, nan]),
    "one stops early": ([-1, -9, -5], [-1, -9, -7, -2]),
    "one never was finite": ([-1, -9, -5, -8], [-1, nan, nan, nan]),
}


@pytest.mark.parametrize(
    ("name", "values", "update"),
    [
        ("level", [-8, -2], 150),  # means -9, -6, -5; of the maxima -3.5
        ("one diverges", [-9, -9, -3], 50),  # nothing counts from there on
        ("one stops early", [-5, -2], 150),
        ("one never was finite", [-5], 100),
    ],
)
def test_the_maximum_of_the_mean_is_one_evaluation_for_all_trials(name, values, update):
    curves, cell = CURVES[name], planned()
    rows = finished(cell, [max(curve[1:]) for curve in curves])
    for row, curve in zip(rows, curves, strict=True):
        row["diverged"] = 60 if curve[-1] != curve[-1] else None

    def curve(experiment, run_id, trial):
        assert (experiment, run_id) == ("small", cell["run_id"])
        updates = range(0, 50 * len(curves[trial]), 50)
        return pd.DataFrame({"update": updates, "train_log_likelihood": curves[trial]})

    table = build(
        [(cell, [])], frame=pd.DataFrame(rows), statistic="max-of-mean", curve=curve, scale="per-sample"
    )
    found = table.cells[0]
    assert [value for value in found.values.values() if value == value] == values
    assert (found.mean, found.best_update) == (sum(values) / len(values), update)
    assert found.n == len(curves)
    assert table.notes()[0].startswith(
        "Maximum during training of the train log-likelihood's mean over trials, per row"
    )


def test_the_table_of_a_deep_machine_shows_its_bound():
    bound = "test_lower_bound"
    common = {**planned(), f"{bound}_max_update": 5, "n_test": 10, "diverged": None}
    rows = [{**common, "trial": i, f"{bound}_max": v, f"{bound}_final": v - 1} for i, v in enumerate(UP)]
    table = build([(planned(), [])], frame=pd.DataFrame(rows), table_metric=None)
    assert (table.metric, table.cells[0].mean) == ("test_lower_bound", pytest.approx(-52.5))
    assert table.notes()[0].startswith(
        "Maximum test lower bound of the log-likelihood during training, of all 10 rows: "
    )


def with_column(**columns):
    """Two cells, and more columns: a function of (cell, trial) each."""
    cells = [planned(offsets=o) for o in OFFSETS]
    rows = [
        row | {name: f(i, row["trial"]) for name, f in columns.items()}
        for i, cell in enumerate(cells)
        for row in finished(cell, UP)
    ]
    return pd.DataFrame(rows), [(cell, UP) for cell in cells]


def test_records_have_a_final_value_and_a_test_where_their_best_is_named():
    frame, runs = with_column(weight_norm_final=lambda cell, trial: 10 + 10 * cell + trial)
    table = build(runs, frame=frame, metric="weight_norm")
    assert "  12.5 ± 1.9    22.5 ± 1.9\n" in shown(table)
    assert table.notes()[0] == "Final weight norm: mean ± standard deviation over 6 trials."
    assert "No test" in table.notes()[1]
    assert "--best lowest" in table.notes()[1]
    for best, text in (
        ("lowest", " *12.5 ± 1.9    22.5 ± 1.9\n"),
        ("highest", "  12.5 ± 1.9   *22.5 ± 1.9\n"),
    ):
        tested = build(runs, frame=frame, metric="weight_norm", best=best)
        assert text in shown(tested)
        assert "Bold: best of the row" in tested.notes()[1]
        assert [tested.record(c)["p_value"] for c in tested.cells].count(2 / 2**6) == 1
    with pytest.raises(CbmError, match="--statistic max: of weight_norm there is the final value only"):
        build(runs, frame=frame, metric="weight_norm", statistic="max")
    with pytest.raises(CbmError, match=r"nothing was evaluated .*; choose --metric: there are weight_norm"):
        build(runs, frame=frame.filter(regex="^(?!train_)"), table_metric=None)


def test_last_estimates_that_rest_on_few_runs_of_ais_are_counted():
    frame, runs = with_column(
        effective_sample_size_final=lambda cell, trial: 9.9 if trial == 3 else 10.0,
        evaluate_runs=lambda cell, trial: 100,
        weight_norm_final=lambda cell, trial: 1.0 + trial,
    )
    said = "The last log Z of 2 trials rests on fewer than a tenth of the runs of AIS"
    assert sum(note.startswith(said) for note in build(runs, frame=frame).notes()) == 1
    assert not any("AIS" in note for note in build(runs, frame=frame, metric="weight_norm").notes())


def test_likelihoods_above_zero_are_counted():
    cell, other = planned(), planned(offsets="dd^b")
    table = build([(cell, [*UP[:5], 0.5]), (other, [2.0, *UP[1:]])])
    assert sum(note.startswith("2 trials above 0, which no log-likelihood is") for note in table.notes()) == 1
    assert "above 0" not in " ".join(build([(cell, UP), (other, DOWN)]).notes())


@pytest.mark.parametrize(
    ("methods", "metric", "advice"),
    [
        (["exact", "exact"], None, False),
        (["ais", "exact"], None, True),
        (["ais", "ais"], "train_log_likelihood_exact", False),
        (["exact", "exact"], "train_log_likelihood_ais", True),
    ],
)
def test_only_estimates_get_advice_on_temperatures(methods, metric, advice):
    frame, runs = with_column(
        evaluate_method=lambda cell, trial: methods[cell],
        train_log_likelihood_exact=lambda cell, trial: 0.5,
        train_log_likelihood_ais=lambda cell, trial: 0.5,
    )
    frame["train_log_likelihood_max"] = 0.5
    (said,) = (note for note in build(runs, frame=frame, metric=metric).notes() if "above 0" in note)
    assert said.startswith("12 trials above 0, which no log-likelihood is")
    assert ("temperatures" in said) == advice


STEADY = [-5 - i / 100 for i in range(25)]
LUCKY = [value + 1 if i != 7 else -1000.0 for i, value in enumerate(STEADY)]  # one disaster


def test_a_row_says_where_mean_and_test_disagree():
    table = build([(planned(), LUCKY), (planned(offsets="dd^b"), STEADY)], trials=25)
    said = "In 1 row mean and test disagree: [better by test] marks cells that are significantly better"
    assert sum(note.startswith(said) for note in table.notes()) == 1
    lucky, steady = "[better by test]", "[best by mean]"
    for format in ("text", "markdown", "latex", "html"):
        text = shown(table, format)
        assert text.index(lucky) < text.index(steady)
        (line,) = (line for line in text.splitlines() if steady in line and lucky in line)
        assert line.count({"text": "*", "markdown": "**", "latex": "mathbf", "html": "<strong>"}[format]) >= 2
    records = pd.read_csv(io.StringIO(shown(table, "csv")))
    assert records["better_by_test"].tolist() == [True, False]
    assert records["best"].tolist() == [False, True]
    assert records["p_value"][0] < 1e-4
    gone = [value + 1 if i != 7 else float("-inf") for i, value in enumerate(STEADY)]
    said = " ".join(build([(planned(), gone), (planned(offsets="dd^b"), STEADY)], trials=25).notes())
    assert "a cell with a diverged trial comes after all others" in said  # the other mean is higher
    agreed = build([(planned(), UP), (planned(offsets="dd^b"), DOWN)])
    assert "disagree" not in " ".join(agreed.notes())
    assert not any(cell.better_by_test for cell in agreed.cells)


def test_settings_are_words_in_every_format():
    cells = [planned(offsets=o, pretraining_epochs=e) for o in OFFSETS for e in (0, 200)]
    axes = {"rows": ["sampler", "learning_rate", "pretraining_epochs"], "columns": ["offsets", "hidden"]}
    table = build([(cell, UP) for cell in cells], axes=axes)
    for format, corner in (("text", "η"), ("markdown", "η"), ("latex", "$\\eta$"), ("html", "η")):
        text = shown(table, format)
        assert f"Algorithm-{corner}-pretraining epochs" in text
        assert "hidden units 4" in text
        assert "_epochs" not in text.replace("\\", "")
        assert "model" not in text


def test_results_of_cbm_evaluate_are_of_the_final_machine():
    frame, runs = with_column(train_log_likelihood_ais=lambda cell, trial: -5 - trial / 10)
    table = build(runs, frame=frame, metric="train_log_likelihood_ais")
    assert table.notes()[0] == (
        "Train log-likelihood (AIS) of the final machine, of all 10 rows: "
        "mean ± standard deviation over 6 trials."
    )
    assert "*-52.50 ± 1.87   *-52.50 ± 1.87\n" in shown(table)
    with pytest.raises(CbmError, match=r"--statistic max: .* of the final machine only"):
        build(runs, frame=frame, metric="train_log_likelihood_ais", statistic="max")


def test_machines_of_a_kind_without_the_metric_are_blank_and_not_incomplete():
    cells = [planned(model_kind=kind) for kind in ("rbm", "auto-encoder")]
    frame = pd.DataFrame(finished(cells[0], UP) + trained(cells[1], LOW))
    table = build_table(frame, manifest(cells, metric=None))
    assert (table.metric, table.layout.rows[-1]) == ("train_log_likelihood", "model_kind")
    assert [cell.n for cell in table.cells] == [6, 0]
    assert "PT_10-0.1-auto-encoder    –\n" in shown(table)
    assert "over 6 trials." in table.notes()[0]
    assert not any("INCOMPLETE" in note or "diverged" in note for note in table.notes())


@pytest.mark.parametrize(
    ("digits", "other", "text"),
    [
        (None, -0.27004, "*-2.7000 ± 0.0000 (-90.000)   -2.7004 ± 0.0000 (-90.000)"),
        (None, -0.28, "*-2.70 ± 0.00 (-90.0)   -2.80 ± 0.00 (-90.0)"),
        (None, -0.27, "*-2.70 ± 0.00 (-90.0)   *-2.70 ± 0.00 (-90.0)"),
        (1, -0.27004, "*-2.7 ± 0.0 (-90)   -2.7 ± 0.0 (-90)"),
        (5, -0.28, "*-2.70000 ± 0.00000 (-90.0000)   -2.80000 ± 0.00000 (-90.0000)"),
    ],
)
def test_a_marked_difference_shows_in_the_digits(digits, other, text):
    runs = [(planned(offsets=o), [v] * 6) for o, v in (("00", -0.27), ("d0", other))]
    assert text in re.sub(" +-", "   -", shown(build(runs, digits=digits))).replace("  *", "   *").replace(
        "    ", "   "
    )


def test_settings_asked_for_leave_the_default_axes():
    runs = [(planned(sampler=s, offsets=o), UP) for s in ("CD-1", "PCD-1") for o in ("00", "d0")]
    layout = build(runs, axes={"columns": ["sampler"], "rows": ["offsets"]}).layout
    assert (layout.groups, layout.rows, layout.columns) == (("data",), ("offsets",), ("sampler",))
    assert build(runs, axes={"groups": ["sampler"]}).layout.rows == ("learning_rate",)


def test_per_sample_scale_leaves_the_values():
    table = build([(planned(), UP)], scale="per-sample")
    assert table.cells[0].mean == pytest.approx(-5.25)
    assert "train log-likelihood during training, per row" in table.notes()[0]


@pytest.mark.parametrize(("number", "words"), [(6, "Left out: 6 trials"), (1, "Left out: 1 trial of")])
def test_trials_of_runs_no_longer_asked_for_are_left_out_and_counted(number, words):
    gone = planned() | {"run_id": "older"}
    frame = pd.DataFrame(finished(planned(), UP) + finished(gone, DOWN[:number]))
    table = build([(planned(), UP)], frame=frame)
    assert table.cells[0].n == 6
    assert words in table.notes()[-1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rows": ["learnin_rate"]}, "--rows learnin_rate: no such column; did you mean learning_rate"),
        ({"columns": ["factor"]}, "--columns factor: several columns .* name one of a_factor, b_factor"),
        ({"rows": ["data"], "columns": ["data"]}, "data is named in both --rows and --columns"),
        ({"metric": "test_log_likelihood"}, "no metric .*; did you mean train_log_likelihood"),
        ({"statistic": "best-valid"}, "--statistic best-valid: .* no validation part"),
    ],
)
def test_refused_choices_name_the_option_and_the_remedy(options, words):
    axes = {name: options[name] for name in options if name in ("rows", "columns")}
    choices = {name: options[name] for name in options if name not in axes}
    with pytest.raises(CbmError, match=words):
        build([(planned(a_factor=1, b_factor=2), UP)], axes=axes, **choices)


def test_no_trials_and_no_evaluation_are_said():
    with pytest.raises(IncompleteError, match="no finished trial"):
        build([(planned(), [])])
    bare = pd.DataFrame(finished(planned(), UP)).filter(regex="^(?!train_)")
    with pytest.raises(CbmError, match="nothing was evaluated"):
        build([(planned(), UP)], frame=bare)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("table")
    (folder / "grid.yaml").write_text(GRID)
    cbm("run", folder / "grid.yaml", "-o", folder / "results", "-j", "0", "--no-table")
    return folder / "results"


@pytest.mark.parametrize(
    ("words", "code", "shown_words"),
    [
        ("--columns sliding_factor --rows offsets,sampler", 0, "sliding factor visible 0.01"),
        ("--columns hidden --rows offsets,sampler --digits 0", 0, "hidden units 3"),
        ("--split 1 -f latex", 0, r"\label{tab:bars-2}"),
        ("--split groups -f markdown", 0, "ddᵇₛ"),
        ("--split 0", 2, "--split 0: write"),
        ("--metric a --metric b", 2, "--metric: given 2 times (a, b)"),
        ("--format markdwn", 2, "'markdown'"),
        ("--test signed", 2, "'signed-rank'"),
        ("--alpha 1.5", 2, "0<x<1"),
        ("--digits -1", 2, "0<=x<=15"),
    ],
)
def test_the_command(results, words, code, shown_words):
    assert shown_words in cbm("table", results, *words.split(), code=code).output


def test_choices_of_the_command_are_those_of_the_tests():
    choices = {parameter.name: parameter.type for parameter in command.params}
    assert [*choices["test"].choices] == [*TESTS]


def test_the_command_reads_the_curves_for_the_maximum_of_the_mean(results):
    cells = json.loads(cbm("table", results, *["--statistic", "max-of-mean", "-f", "json"]).stdout)["cells"]
    store = Results(results).store("bars")
    runs = {(cell["offsets"], cell["sampler"]): cell["run_id"] for cell in store.manifest()["cells"]}
    assert len(cells) == len(runs) == 4
    for cell in cells:
        run = runs[cell["offsets"], cell["sampler"]]
        curves = pd.concat([store.curve(run, trial).iloc[1:] for trial in range(2)])
        means = 8 * curves.groupby("update")["train_log_likelihood"].mean()  # summed over the 8 rows
        assert (cell["mean"], cell["max_update"]) == (pytest.approx(means.max()), means.idxmax())
