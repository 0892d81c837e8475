"""Tables: what is in them, and their whole text in every format."""

import io
import json
import shutil
import subprocess
from html.parser import HTMLParser
from math import nan

import pandas as pd
import pytest
from rich.console import Console

from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.statistics import build_table, render

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
    return [
        {
            "experiment": "small",
            **cell,
            "trial": trial,
            "n_train": 10,
            "n_test": nan,
            "train_log_likelihood_max": value,
            "train_log_likelihood_final": finals,
            "train_log_likelihood_max_update": 50 * (trial + 1),
            "diverged": diverged if value == float("-inf") else None,
        }
        for trial, value in enumerate(maxima)
    ]


def manifest(cells, trials=6, **table):
    return {"description": "A small table.", "trials": trials, "table": TABLE | table, "cells": cells}


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
    rows = [row for cell, maxima in runs for row in finished(cell, maxima, diverged=700)]
    return build_table(pd.DataFrame(rows), manifest([cell for cell, _ in runs]))


WHAT = (
    "Maximum log-likelihood during training summed over the train rows: "
    "mean ± standard deviation (mean of the final values) over 6 trials."
)
RULE = (
    "the best of a row and all that the test cannot tell from it "
    "(two-sided Wilcoxon signed-rank test, α = 0.05, no correction)."
)
FEW = "the best of a row with fewer than 6 pairs, no significance claimed."
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

MARKDOWN = f"""\
**A small table.**

shifting-bar

| Algorithm-η | ddˡₛ | 00 |
| --- | --- | --- |
| PT₁₀-0.1 | **-52.50** ± 1.87 (-90.0) | -57.00 ± 3.74 (-90.0) |
| CD-1-0.05 | **-52.50** ± 1.87 (-90.0) | **-52.50** ± 1.87 (-90.0) |

mnist

| Algorithm-η | ddˡₛ | 00 |
| --- | --- | --- |
| PT₁₀-0.1 | -52.00 ± 1.58 (-90.0) [1 diverged] | <u>-54.00</u> ± 2.00 (-90.0) [n=3/6] |
| CD-1-0.1 | – [n=0/6] | – |

{WHAT}

Bold: {RULE} Underlined: {FEW}

{MISSING}

{DIVERGED}
"""

LATEX = r"""% needs \usepackage{booktabs}
\begin{table}
\centering
\small
\begin{tabular}{lll}
\toprule
Algorithm-$\eta$ & $dd^{l}_{s}$ & $\mathit{00}$ \\
\midrule
\multicolumn{3}{l}{\emph{shifting-bar}} \\
PT$_{10}$-0.1 & $\mathbf{-52.50} \pm 1.87\;(-90.0)$ & $-57.00 \pm 3.74\;(-90.0)$ \\
CD-1-0.05 & $\mathbf{-52.50} \pm 1.87\;(-90.0)$ & $\mathbf{-52.50} \pm 1.87\;(-90.0)$ \\
\midrule
\multicolumn{3}{l}{\emph{mnist}} \\
PT$_{10}$-0.1 & $-52.00 \pm 1.58\;(-90.0)$ [1 diverged] & $\underline{-54.00} \pm 2.00\;(-90.0)$ [n=3/6] \\
CD-1-0.1 & \mbox{--} [n=0/6] & \mbox{--} \\
\bottomrule
\end{tabular}
\caption{CAPTION}
\end{table}
""".replace(
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
p_value,effect_size,n_pairs,best,bold,underlined,diverged
shifting-bar,PT_10,0.1,dd^l_s,6,6,-52.5,1.870828693,-90,175,,,,True,True,False,0
shifting-bar,PT_10,0.1,00,6,6,-57,3.741657387,-90,175,0.03125,1,6,False,False,False,0
shifting-bar,CD-1,0.05,dd^l_s,6,6,-52.5,1.870828693,-90,175,,,,True,True,False,0
shifting-bar,CD-1,0.05,00,6,6,-52.5,1.870828693,-90,175,1,0,6,False,True,False,0
mnist,PT_10,0.1,dd^l_s,6,6,-52,1.58113883,-90,175,,,,False,False,False,1
mnist,PT_10,0.1,00,3,6,-54,2,-90,100,,,,True,False,True,0
mnist,CD-1,0.1,dd^l_s,0,6,,,,,,,,False,False,False,0
"""


@pytest.mark.parametrize(
    ("format", "whole"),
    [("text", TEXT), ("markdown", MARKDOWN), ("latex", LATEX), ("html", HTML), ("csv", CSV)],
)
def test_whole_output(small, format, whole):
    assert render(small, format) == whole


def test_json_holds_the_long_form_and_the_caption(small):
    written = json.loads(render(small, "json"))
    cells = written.pop("cells")
    assert written == {
        "title": "A small table.",
        "metric": "train_log_likelihood",
        "scale": "total",
        "test": "signed-rank",
        "alpha": 0.05,
        "correction": None,
        "layout": {"groups": ["data"], "rows": ["sampler", "learning_rate"], "columns": ["offsets"]},
        "notes": NOTES,
    }
    expected = pd.read_csv(io.StringIO(CSV), dtype={"offsets": str}).to_dict("records")
    for cell, row in zip(cells, expected, strict=True):
        known = {name: value for name, value in row.items() if not pd.isna(value)}
        assert {name: value for name, value in cell.items() if value is not None} == pytest.approx(known)


def test_terminal_gets_bold_and_underline_and_no_stars(small):
    console = Console(
        force_terminal=True, color_system="standard", width=200, file=io.StringIO(), no_color=False
    )
    text = render(small, "text", console)
    assert "\x1b[1m-52.50 ± 1.87 (-90.0)\x1b[0m" in text
    assert "\x1b[4m-54.00 ± 2.00 (-90.0) [n=3/6]\x1b[0m" in text
    assert "ddˡₛ" in text
    assert "*" not in text
    assert console.file.getvalue() == ""


@pytest.mark.parametrize("options", [{"no_color": True, "force_terminal": True}, {"force_terminal": False}])
def test_no_color_and_non_terminals_get_the_plain_text(small, options):
    assert render(small, "text", Console(file=io.StringIO(), width=40, **options)) == TEXT


def test_latex_is_balanced(small):
    latex = render(small, "latex")
    for name in ("table", "tabular"):
        assert latex.count(f"\\begin{{{name}}}") == latex.count(f"\\end{{{name}}}") == 1
    assert latex.count("{") == latex.count("}")
    assert latex.count("$") % 2 == 0
    lines = [line for line in latex.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert len(lines) == 5
    assert {line.count("&") for line in lines} == {2}


def test_latex_compiles(small, tmp_path):
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed")
    document = (
        r"\documentclass{article}\usepackage{booktabs}\begin{document}"
        + render(small, "latex")
        + r"\end{document}"
    )
    (tmp_path / "table.tex").write_text(document, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


def test_special_characters_are_escaped():
    cell = planned("a_b & <c>")
    table = build_table(pd.DataFrame(finished(cell, UP)), manifest([cell]) | {"description": "50 % of a_b^2"})
    latex, page = render(table, "latex"), render(table, "html")
    assert r"\emph{a\_b \& $<$c$>$}" in latex
    assert r"\caption{50 \% of a\_b\textasciicircum{}2. Maximum" in latex
    texts = []
    parser = HTMLParser()
    parser.handle_data = texts.append
    parser.feed(page)
    assert "a_b & <c>" in texts


def test_order_is_that_of_the_grid():
    cells = [planned(learning_rate=r, offsets=o) for r in (0.2, 0.1, 0.05) for o in ("d0", "00", "aa^b")]
    rows = [row for cell in reversed(cells) for row in finished(cell, UP)]
    table = build_table(pd.DataFrame(rows), manifest(cells))
    assert table.columns == (("d0",), ("00",), ("aa^b",))
    assert [row.values for row in table.groups[0].rows] == [("PT_10", 0.2), ("PT_10", 0.1), ("PT_10", 0.05)]


def test_25_trials_of_a_paper_table():
    schemes = ["aa^b", "dd^l_s", "d0", "00"]
    cells = [
        planned("bars-and-stripes", sampler, rate, scheme)
        for sampler in ("CD-1", "PCD-1", "PT_10")
        for rate in (0.1, 0.05, 0.01)
        for scheme in schemes
    ]
    rows = []
    for cell in cells:
        lead = schemes.index(cell["offsets"])
        rows += finished(cell, [-5 - lead / 10 - trial / 100 for trial in range(25)])
    table = build_table(pd.DataFrame(rows), manifest(cells, trials=25))
    long = table.long()
    assert len(long) == 36
    assert (long["n"] == 25).all()
    assert long["bold"].tolist() == [True, False, False, False] * 9
    assert long["p_value"].dropna().max() < 0.001
    assert len(table.notes()) == 2  # nothing incomplete, nothing diverged


def test_a_setting_that_varies_within_an_asked_for_cell_is_named():
    cells = [planned(), planned() | {"run_id": "other", "model_hidden": 8}]
    rows = [row for cell in cells for row in finished(cell, UP)]
    with pytest.raises(CbmError) as error:
        build_table(pd.DataFrame(rows), manifest(cells), rows=["sampler", "learning_rate"])
    assert str(error.value) == (
        "the cell shifting-bar, PT_10, 0.1, 00 would mix runs that differ in model_hidden; "
        "name it in --rows, --columns or --groups"
    )
    table = build_table(pd.DataFrame(rows), manifest(cells), groups=["data", "model_hidden"])
    assert "shifting-bar, model hidden 8" in render(table)


def test_what_varies_within_a_cell_of_the_default_layout_goes_to_the_rows():
    cells = [
        planned(offsets=o, init=i, pretraining_epochs=p, model_hidden=h)
        for p in (0, 200)
        for h in (4, 8)
        for o, i in (("00", "zero"), ("dd^b", "inverse-sigmoid"))  # init follows from offsets: not needed
    ]
    rows = [row for cell in cells for row in finished(cell, UP)]
    table = build_table(pd.DataFrame(rows), manifest(cells))
    assert table.layout.rows == ("sampler", "learning_rate", "model_hidden", "pretraining_epochs")
    lines = [line.split()[0] for line in render(table).splitlines() if line.startswith(" PT")]
    assert lines == ["PT_10-0.1-4-0", "PT_10-0.1-8-0", "PT_10-0.1-4-200", "PT_10-0.1-8-200"]
    assert [cell.n for cell in table.cells] == [6] * 8


def test_a_default_layout_that_tells_its_cells_apart_stays_as_it_is(small):
    assert small.layout.rows == ("sampler", "learning_rate")


# Auto encoders, deep machines, and what was recorded


def trained(cell, best, epochs=(), **columns):
    """Rows of summary.csv of an auto encoder: lowest test cost and epochs to convergence by trial."""
    return [
        {
            **cell,
            "trial": trial,
            "n_test": 10,
            "epochs": 500,
            "test_cost_min": value,
            "test_cost_final": value + 1,
            "test_cost_best_valid": value + 0.5,
            "test_cost_min_update": 10,
            "epochs_to_convergence": converged,
            "diverged": 100 if value == float("inf") else None,
            **columns,
        }
        for trial, (value, converged) in enumerate(zip(best, epochs or [200] * len(best), strict=True))
    ]


LOW = [0.5, 0.51, 0.52, 0.53, 0.54, 0.55]
HIGH = [0.6, 0.62, 0.64, 0.66, 0.68, 0.7]  # above LOW in every pair


def auto_encoders(metric=None, **choices):
    cells = [
        planned(sampler="back-propagation", offsets=o, learning_rate=r) for r in (0.1, 0.5) for o in OFFSETS
    ]
    rows = [
        *trained(cells[0], LOW, [100, 200, 300, None, 100, 100]),
        *trained(cells[1], HIGH),
        *trained(cells[2], [*LOW[:5], float("inf")]),
        *trained(cells[3], HIGH),
    ]
    about = manifest(cells, scale="per-sample", metric=metric)
    return build_table(pd.DataFrame(rows), about, **choices)


OFFSETS = ["dd^b_s", "00"]
COST_TEXT = """\
A small table.

 Algorithm-η            dd^b_s                                 00
 ─────────────────────────────────────────────────────────────────────────────────────
 shifting-bar
 back-propagation-0.1   *0.52500 ± 0.0187 (217)                 0.65000 ± 0.0374 (200)
 back-propagation-0.5   *0.52000 ± 0.0158 (200) [1 diverged]   *0.65000 ± 0.0374 (200)

Minimum cost during training per test sample: mean ± standard deviation \
(mean of the epochs to convergence, all epochs where a trial did not converge) over 6 trials.
"""


def test_the_lowest_cost_is_the_best_and_the_epochs_to_convergence_stand_beside_it():
    table = auto_encoders()
    assert render(table).startswith(COST_TEXT)
    assert "$\\mathbf{0.52500} \\pm 0.0187\\;(217)$" in render(table, "latex")
    long = table.long()
    assert long["p_value"].tolist()[1] == pytest.approx(2 / 2**6)
    assert long["epochs_to_convergence"].tolist() == pytest.approx([1300 / 6, 200, 200, 200])
    assert (long["min_update"] == 10).all()


def test_statistics_of_a_cost():
    assert auto_encoders(statistic="final").cells[0].mean == pytest.approx(1.525)
    valid = auto_encoders(statistic="best-valid")
    assert valid.cells[0].mean == pytest.approx(1.025)
    assert valid.notes()[0].startswith("At the best validation value, cost per test sample: mean")


def deep(bounds, **more):
    cell = planned(offsets="000")
    rows = [
        {
            **cell,
            "trial": trial,
            "n_test": 10,
            "diverged": None,
            "test_lower_bound_max": value,
            "test_lower_bound_final": value - 1,
            "test_lower_bound_max_update": 5,
            **more,
        }
        for trial, value in enumerate(bounds)
    ]
    return pd.DataFrame(rows), manifest([cell], metric=None)


def test_the_table_of_a_deep_machine_shows_its_bound():
    table = build_table(*deep(UP))
    assert (table.metric, table.cells[0].mean) == ("test_lower_bound", pytest.approx(-52.5))
    assert table.notes()[0].startswith(
        "Maximum lower bound of the log-likelihood during training summed over"
    )


def test_what_was_recorded_has_a_final_value_and_no_marks():
    cells = [planned(offsets=o) for o in OFFSETS]
    rows = [
        row | {"weight_norm_final": base + row["trial"]}
        for cell, base in zip(cells, (10, 20), strict=True)
        for row in finished(cell, UP)
    ]
    frame = pd.DataFrame(rows)
    table = build_table(frame, manifest(cells), metric="weight_norm")
    assert "  12.5 ± 1.9    22.5 ± 1.9\n" in render(table)
    assert table.notes() == ["Final weight norm: mean ± standard deviation over 6 trials."]
    with pytest.raises(CbmError, match="--statistic max: of weight_norm there is the final value only"):
        build_table(frame, manifest(cells), metric="weight_norm", statistic="max")
    bare = frame.filter(regex="^(?!train_)")
    with pytest.raises(CbmError, match=r"nothing was evaluated .*; choose --metric: there are weight_norm"):
        build_table(bare, manifest(cells, metric=None))


def test_machines_of_a_kind_without_the_metric_are_blank_and_not_incomplete():
    cells = [planned(model_kind=kind) for kind in ("rbm", "auto-encoder")]
    frame = pd.DataFrame(finished(cells[0], UP) + trained(cells[1], LOW))
    table = build_table(frame, manifest(cells, metric=None))
    assert (table.metric, table.layout.rows[-1]) == ("train_log_likelihood", "model_kind")
    assert [cell.n for cell in table.cells] == [6, 0]
    assert "PT_10-0.1-auto-encoder    –\n" in render(table)
    assert "over 6 trials." in table.notes()[0]
    assert not any("INCOMPLETE" in note or "diverged" in note for note in table.notes())


def test_what_is_asked_for_leaves_the_default_axes():
    cells = [planned(sampler=s, offsets=o) for s in ("CD-1", "PCD-1") for o in ("00", "d0")]
    rows = [row for cell in cells for row in finished(cell, UP)]
    layout = build_table(pd.DataFrame(rows), manifest(cells), columns=["sampler"], rows=["offsets"]).layout
    assert (layout.groups, layout.rows, layout.columns) == (("data",), ("offsets",), ("sampler",))
    layout = build_table(pd.DataFrame(rows), manifest(cells), groups=["sampler"]).layout
    assert layout.rows == ("learning_rate",)


def test_per_sample_scale_leaves_the_values():
    cell = planned()
    table = build_table(pd.DataFrame(finished(cell, UP)), manifest([cell], scale="per-sample"))
    assert table.cells[0].mean == pytest.approx(-5.25)
    assert "per train sample" in table.notes()[0]


def test_trials_of_runs_no_longer_asked_for_are_left_out_and_counted():
    kept, gone = planned(), planned() | {"run_id": "older"}
    table = build_table(pd.DataFrame(finished(kept, UP) + finished(gone, DOWN)), manifest([kept]))
    assert table.cells[0].n == 6
    assert table.notes()[-1] == "Left out: 6 trials of runs that the experiment no longer asks for."


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"rows": ["sampler", "learnin_rate"]},
            "--rows learnin_rate: no such column; did you mean learning_rate?",
        ),
        ({"rows": ["data"], "columns": ["data"]}, "data is named in both --rows and --columns; name it once"),
        (
            {"metric": "test_log_likelihood"},
            "no metric test_log_likelihood; did you mean train_log_likelihood?",
        ),
        ({"test": "signed rank"}, "--test signed rank: no such test; did you mean signed-rank?"),
        ({"correction": "bonferroni"}, "--correction bonferroni: no such correction; there are holm"),
        ({"alpha": 1.5}, "--alpha 1.5 must lie between 0 and 1"),
    ],
)
def test_what_cannot_be_made_is_said(options, message):
    cell = planned()
    with pytest.raises(CbmError) as error:
        build_table(pd.DataFrame(finished(cell, UP)), manifest([cell]), **options)
    assert message in str(error.value)


def test_no_trials_and_no_evaluation_are_said():
    cell = planned()
    with pytest.raises(IncompleteError, match="no finished trial"):
        build_table(pd.DataFrame(), manifest([cell]))
    bare = pd.DataFrame(finished(cell, UP)).filter(regex="^(?!train_)")
    with pytest.raises(CbmError, match="nothing was evaluated"):
        build_table(bare, manifest([cell]))


def test_unknown_format_is_said(small):
    with pytest.raises(CbmError, match="--format markdwn: no such format; did you mean markdown"):
        render(small, "markdwn")
