"""Sheets: what Markdown and LaTeX make of names, notes and numbers."""

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from cbm_cli.sheets import Group, Label, Sheet, Value, latex_of, markdown_of

from tests.builders import cbm

KEPT = Path(__file__).parents[2] / "reproduction/results"
NAMES = ["my_survey & 50%", "[1] a*b", "* {x}", r"\input{y} ^~", "a|b <c> #1 $2"]
NOTES = [
    "Maximum of 12 rows, from -21.3 to 1e-05: mean ± standard deviation.",
    "Bold: best (α = 0.05; smallest possible p: 6e-08). Shown as [n=done/planned].",
]


def sheet_of(names, *values, **more):
    """A sheet with a row for each name, whose values are the same."""
    header = [Label.of("name"), *(Label.of(f"η = -{i}.5") for i in range(len(values)))]
    rows = [[Label.of(name), *values] for name in names]
    return Sheet(header, [Group(Label.of(names[0]), rows)], **more)


def lines_of(sheet, format="latex"):
    return sheet.render(format).splitlines()


# LaTeX


def test_numbers_of_a_column_are_aligned_without_phantoms():
    """A minus sign behind anything else would be set as a subtraction."""
    group = Group(
        None,
        [
            [Label.of("a"), Value("-98.40", "0.24", "-9.1", mark="bold")],
            [Label.of("b"), Value("≤ -1.2e+04", "–", "-110.2", "b", "n=3/6")],
            [Label.of("c"), Value("–", flags="n=0/6")],
        ],
    )
    lines = lines_of(Sheet([Label.of("name"), Label.of("x")], [group]))
    assert r"\begin{tabular}{lr@{}l@{\,}c@{\,}r@{}l@{\;}r@{}l}" in lines
    assert r"name & \multicolumn{7}{c}{x} \\" in lines
    cells = r"a & $\mathbf{-98}$ & $\mathbf{.40}$ & $\pm$ & $0$ & $.24$ & ($-9.1$) &  "
    assert cells + r"\\" in lines
    cells = r"b & $\le -1$ & $.2 \times 10^{4}$ & $\pm$ & -- &  & ($-110.2$) & "
    assert cells + r"$^{\mathrm{b}}$ {[}n=3/6{]} \\" in lines
    assert r"c & \multicolumn{7}{c}{-- {[}n=0/6{]}} \\" in lines
    assert not re.search(r"phantom|\d-", "".join(lines))


def test_parts_that_no_value_of_a_column_has_take_no_space():
    (line,) = [
        line
        for line in lines_of(sheet_of(["a"], Value("1.5"), Value("2", "3")))
        if "tabular}{" in line and "begin" in line
    ]
    assert line.endswith(r"{lr@{}lr@{}l@{\,}c@{\,}r@{}l}")


def test_the_caption_has_two_sentences_and_the_other_notes_are_below():
    latex = sheet_of(["a"], Value("1"), notes=NOTES, name="my table_1").render("latex")
    caption = re.search(r"\\caption{(.*)}\n", latex)[1]
    assert caption == (
        r"Maximum of 12 rows, from $-21.3$ to $1 \times 10^{-5}$: mean $\pm$ standard "
        r"deviation. Bold: best ($\alpha$ = 0.05; smallest possible p: "
        r"$6 \times 10^{-8}$)."
    )
    assert r"\parbox{\linewidth}{\footnotesize Shown as {[}n=done/planned{]}.}" in latex
    assert r"\label{tab:mytable_1}" in latex


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("[1]", "{[}1{]}"),
        ("*", "{*}"),
        ("a--b", "a-{}-b"),
        ("-3, a-3, (-0.5), 2e5", "$-3$, a-3, ($-0.5$), $2 \\times 10^{5}$"),
        ("run-1e5 v1.2.3 x_3e5 7,200", r"run-1e5 v1.2.3 x\_3e5 7,200"),
    ],
)
def test_text_is_set_as_it_is_and_numbers_as_mathematics(text, latex):
    assert latex_of(text) == latex
    assert Label.of(text).latex == latex


def test_a_note_of_several_lines_is_one_paragraph():
    latex = sheet_of(["a"], Value("1"), notes=["One\n\ntwo."]).render("latex")
    assert r"\caption{One two.}" in latex


def test_no_row_begins_with_what_the_line_before_would_take_as_its_option():
    for line in lines_of(sheet_of(["[x]", "*y", "[z"], Value("1"))):
        assert not line.startswith(("[", "*"))


def test_a_wide_table_has_values_in_parentheses_below_the_others():
    value = Value("-20.72", "0.77", "-20.8")
    sheet = sheet_of(["a"], value, value, value, Value("1"))
    sheet = replace(sheet, header=[*sheet.header[:-1], Label.of("00, zero")])
    lines = lines_of(sheet)
    cells = r" & $-20$ & $.72$ & $\pm$ & $0$ & $.77$"
    below = r" & \multicolumn{5}{c}{($-20.8$)}"
    assert "a" + 3 * cells + r" & $1$ &  \\" in lines
    assert 3 * below + r" & \multicolumn{2}{c}{} \\" in lines
    assert r"\multicolumn{2}{c}{\shortstack{00\\zero}}" in "".join(lines)
    narrow = lines_of(sheet_of(["a"], value))
    assert r"a & $-20$ & $.72$ & $\pm$ & $0$ & $.77$ & ($-20.8$) \\" in narrow


def compiled(folder, documentclass, body):
    """The log of LaTeX, without an error; where it is not installed, a reason."""
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed (texlive-latex-recommended)")
    packages = r"\usepackage{booktabs,graphicx}"
    text = f"{documentclass}{packages}\\begin{{document}}\n{body}\n\\end{{document}}\n"
    (folder / "a.tex").write_text(text, "utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "a.tex"]
    result = subprocess.run(command, cwd=folder, capture_output=True, timeout=120)
    log = (folder / "a.log").read_text("utf-8", "replace")
    assert result.returncode == 0, log[-3000:]
    return log


@pytest.mark.parametrize("options", ["", "[twocolumn]"])
def test_tables_compile_without_an_overfull_line(tmp_path, options):
    """That of the README, one of three schemes, and one with hostile names."""
    words = [
        ("quickstart",),
        ("standard-methods-bars", "--select", "offsets=00,dd^l_s,aa^b"),
        ("norms-small", "--metric", "weight_norm"),
    ]
    tables = [cbm("table", KEPT, *its, "-f", "latex").stdout for its in words]
    value = Value("-3.47", "0.24", "-11.6", flags="1 diverged", mark="underline")
    few, many = [value] * 2, [value] * 7
    tables += [
        sheet_of(NAMES, *values, notes=[*NOTES, *NAMES], name=NAMES[0]).render("latex")
        for values in (few, many)
    ]
    log = compiled(tmp_path, rf"\documentclass{options}{{article}}", "\n".join(tables))
    assert "Overfull" not in log
    assert "Output written" in log
    assert len(re.findall(r"\[\d+", log)) >= 1


def test_the_quick_start_fits_into_one_column_at_nearly_full_size(tmp_path):
    latex = cbm("table", KEPT, "quickstart", "-f", "latex").stdout
    latex = re.sub(r"\\resizebox.*%", r"\\sbox0{%", latex)
    widths = r"\typeout{\the\wd0, \the\linewidth}"
    body = latex.replace(r"\end{tabular}}", r"\end{tabular}}" + widths)
    log = compiled(tmp_path, r"\documentclass{article}", body)
    width, line = map(float, re.search(r"([\d.]+)pt, ([\d.]+)pt", log).groups())
    assert width < 1.1 * line  # letters of 8 points and more


# Markdown


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("<img src=x onerror=y>", "&lt;img src=x onerror=y&gt;"),
        ("&lt;", "&amp;lt;"),
        ("a|b\\", r"a\|b\\"),
        ("[x](javascript:y) [n=3/6]", r"\[x](javascript:y) [n=3/6]"),
        ("*b* _i_ my_survey `c`", r"\*b\* \_i\_ my_survey \`c\`"),
        ("# head", r"\# head"),
    ],
)
def test_markdown_shows_text_as_it_is(text, markdown):
    assert markdown_of(text) == markdown
    sheet = sheet_of([text], Value("1"), title=text, notes=[text])
    blocks = sheet.render("markdown").split("\n\n")
    assert blocks[:2] == [f"**{markdown}**", markdown]
    assert blocks[2].splitlines()[2] == f"| {markdown} | 1 |"
    assert blocks[3] == f"{markdown}\n"


def test_a_description_of_several_lines_is_one_in_markdown():
    assert sheet_of(["x"], title="a\n\n b").render("markdown").startswith("**a b**\n")


# Text


def test_columns_of_wide_characters_are_aligned():
    """A terminal shows each of them in two columns."""
    lines = lines_of(sheet_of(["日本", "abcd"], Value("1")), "text")
    wide, narrow = (line.split("1")[0] for line in lines[4:6])
    assert len(narrow) == len(wide) + 2
    assert lines[2].count("─") == len("abcd   η = -0.5")
