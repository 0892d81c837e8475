"""Pictures of every kind from real results, and the paper's figures."""

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from cbm_cli.cli.figure import _drawings, _part
from cbm_cli.errors import IncompleteError
from cbm_cli.grid.read import read_grid
from cbm_cli.machines.files import read_machine
from cbm_cli.paper import FIGURES
from cbm_cli.report import learned
from cbm_cli.report.chosen import Options
from cbm_cli.report.finals import Ranks, critical_drawing, groups_of, ranks_of
from cbm_cli.report.kinds import KINDS, draw
from cbm_cli.report.panels import Page, compose
from cbm_cli.results import Results, Store
from cbm_cli.statistics.layout import select
from tests.builders import cbm

ROOT = Path(__file__).parents[1]
EXPERIMENTS = ROOT / "experiments.yaml"
PYTHON = [sys.executable, "-m", "cbm_cli.cli"]
PAPER = yaml.load(FIGURES.read_text(), yaml.BaseLoader)
GRID = """
defaults: {trials: 3, seed: 5}
experiments:
  toys:
    data: [{name: bars-and-stripes, size: 2}, {name: shifting-bar, size: 4, bar: 1}]
    model: {kind: rbm, hidden: 3}
    offsets: [00, dd^b_s, aa^b]
    sampler: CD-1
    learning_rate: [0.1, 0.05]
    updates: 40
    batch: full
    evaluate: {method: exact, every: 20}
    record: {what: weight_norms+bias_norms+offset_error+gradient_angles, every: 20}
  other-offsets-short:
    data: {name: bars-and-stripes, size: 2}
    model: {kind: rbm, hidden: 2}
    offsets: [dd, mm, aa, dm, md, d0, 0d, m0, 0m, 00, hh]
    sampler: exact
    learning_rate: 0.05
    updates: 20
    batch: full
    trials: 1
  divergence:
    data: {name: shifting-bar, size: 4, bar: 1}
    model: {kind: rbm, hidden: 2}
    offsets: [00, dd^b, aa^b, mm^b, rr^b]
    sampler: PT_4
    learning_rate: 0.1
    updates: 20
    batch: full
    evaluate: {method: exact, every: 10}
    trials: 1
"""
DEEP = """
  {}-short:
    data: {{path: rows.npy, test: rows.npy}}
    model: {{kind: dbm, hidden: [4, 3]}}
    offsets: [000, ddd^b_s]
    sampler: PCD-1
    learning_rate: 0.05
    pretraining: {{epochs: {}}}
    epochs: 4
    batch: 4
    evaluate: {{method: ais, every: 2 epochs, parts: test, temperatures: 20, runs: 10}}
    trials: 1
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures")
    np.save(folder / "rows.npy", np.eye(4))
    (folder / "grid.yaml").write_text(
        GRID + DEEP.format("dbm-mnist", 0) + DEEP.format("dbm-caltech", "[0, 2]")
    )
    names = ("toys", "other-offsets-short", "dbm-mnist-short", "dbm-caltech-short", "divergence")
    cbm("run", folder / "grid.yaml", *names, "-o", folder / "results", "-j", 0, "--no-table")
    return folder / "results"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "data"])
def test_every_kind_is_drawn(results, tmp_path, kind):
    some = [] if kind == "heatmap" else ["--select", "learning_rate=0.1", "--select", "offsets=00,dd^b_s"]
    cbm("plot", results, kind, "toys", "-o", tmp_path / "p.png", "--size", "column", "--number", 4, *some)
    assert (tmp_path / "p.png").stat().st_size > 5000


def test_rows_of_data_sets_are_drawn(tmp_path):
    names = ("bars-and-stripes:size=2", "shifting-bar:size=4,bar=1")
    cbm("plot", "data", *names, "-o", tmp_path / "p.png")
    assert (tmp_path / "p.png").stat().st_size > 3000


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("curves toys --xlim 5", "--xlim 5: write LOW:HIGH"),
        ("curves toys --ylim 3:1", "or none for the uncut axis"),
        ("curves toys --size big", "--size big: write column, page, or WxH"),
        ("curves toys --title $x", None),
        (r"curves toys --title $\frac$", "cannot be read as a formula"),
        ("curves toys --metric lam_0", "no column of the curves or the records; there are"),
        ("offsets other-offsets-short", "record: offset_values"),
        ("finals toys --metric cost", "not in the results"),
        ("finals toys --metric weight_norm --metric train_log_likelihood", "this picture shows one"),
        ("filters toys --layer 2", "--layer 2: the machine has 1 hidden layer"),
        ("critical-difference other-offsets-short", "11 methods on 1 data set"),
        ("critical-difference toys --metric weight_norm", "cannot be ranked"),
        ("heatmap other-offsets-short", "needs two settings that vary"),
        ("data nothing", "no such file or data set"),
        ("curves toys nothing", "no results of 'nothing'"),
    ],
)
def test_what_cannot_be_drawn_is_said(results, tmp_path, words, complaint):
    kind, *others = words.split()
    folder = [] if kind == "data" else [results]
    code = 0 if complaint is None else 3 if kind == "offsets" else 2
    said = cbm("plot", *folder, kind, *others, "-o", tmp_path / "p.png", code=code).stderr
    assert (complaint or "wrote") in said


# Critical differences


def test_ranks_and_critical_difference_are_those_of_demsar():
    """The AUC of four classifiers on 14 data sets: Table 6 and sections 3.2.2, 3.2.3 of Demsar 2006."""
    table = """
    .763 .768 .771 .798  .599 .591 .590 .569  .954 .971 .968 .967  .628 .661 .654 .657  .882 .888 .886 .898
    .936 .931 .916 .931  .661 .668 .609 .685  .583 .583 .563 .625  .775 .838 .866 .875  1 1 1 1
    .940 .962 .965 .962  .619 .666 .614 .669  .972 .981 .9751 .975  .957 .978 .946 .970"""
    ranks = ranks_of(np.array(table.split(), dtype=float).reshape(14, 4), [("a",), ("b",), ("c",), ("d",)])
    np.testing.assert_allclose(ranks.mean, [3.143, 2.000, 2.893, 1.964], atol=5e-4)
    assert ranks.critical == pytest.approx(1.25, abs=5e-3)
    assert ranks.p < 0.05


@pytest.mark.parametrize("seed", range(20))
def test_bars_join_exactly_the_methods_within_the_critical_difference(seed):
    random = np.random.default_rng(seed)
    ranks = Ranks([], random.uniform(1, 6, 6).round(1), 5, 0.01, 1.5)
    bars = groups_of(ranks)
    for one, two in itertools.combinations(sorted(ranks.mean), 2):
        joined = any(first <= one and two <= last for first, last in bars)
        assert joined == (two <= one + ranks.critical) or one == two


def drawn_ranks(scores, flips=(), sizes=()):
    """The caption, the axes and the bars of methods with these scores, a row for each data set."""
    cells = [
        {"run_id": f"{i}/{j}", "offsets": scheme, "data": f"{'flipped-' * (i in flips)}set{i - (i in flips)}"}
        | {"data_name": f"set{i - (i in flips)}", "data_flip": i in flips}
        | ({"data": "set", "data_name": "set", "data_size": sizes[i]} if sizes else {})
        for i in range(len(scores))
        for j, scheme in enumerate(("00", "d0", "dd^b", "aa^b", "mm^b")[: len(scores[0])])
    ]
    rows = pd.DataFrame(
        [
            {"run_id": f"{i}/{j}", "trial": 0, "n_train": 4, "diverged": None}
            | {f"train_log_likelihood_{end}": score for end in ("max", "final")}
            for i, its in enumerate(scores)
            for j, score in enumerate(its)
        ]
    )
    table = {
        "rows": ["sampler"],
        "columns": ["offsets"],
        "groups": ["data"],
        "scale": "total",
        "metric": None,
    }
    store = SimpleNamespace(
        manifest=lambda: {"table": table, "cells": cells, "upper_bounds": {}}, summary=lambda: rows
    )
    drawing = critical_drawing(SimpleNamespace(reader=lambda _: store), ["e"], Options())
    axes = compose(drawing, Page()).axes[0]
    return "; ".join(drawing.notes), axes, [line for line in axes.lines if line.get_linewidth() == 2.5]


LADDER = [[-4.0, -3.0, -2.0, -1.0]]


@pytest.mark.parametrize(
    ("scores", "said", "bars"),
    [
        (LADDER * 8, "8 data sets, Friedman p = 2.5e-05; bars", True),
        ([*LADDER * 2, LADDER[0][::-1]], "Friedman p = 0.8: no significant difference, so no bars", False),
        ([[-1.0] * 4] * 5, "Friedman p = 1: no significant difference, so no bars", False),
        ([[-2.0, -1.0]] * 5, "5 data sets, signed-rank test p = 0.062: no significant difference", False),
        ([[-2.0, -1.0 - i / 99] for i in range(6)], "6 data sets, signed-rank test p = 0.031", False),
    ],
)
def test_bars_need_a_significant_test_of_all_methods(scores, said, bars):
    caption, axes, drawn = drawn_ranks(scores)
    assert said in caption
    assert bool(drawn) == bars
    assert any("critical difference" in text.get_text() for text in axes.texts) == bars
    assert ("bars: differences" in caption) == bars
    ranks = [float(text.get_text().split()[-1]) for text in axes.texts if "$" in text.get_text()]
    assert len(ranks) == len(scores[0])  # methods have ranks, with bars or without


def test_a_set_and_its_flip_count_as_one():
    scores = [[-4.0, -3.0, -2.0], [-1.0, -8.0, -2.0], [-4.0, -3.0, -2.0]]
    apart, _, _ = drawn_ranks(scores)
    assert "3 data sets, Friedman" in apart
    together, axes, _ = drawn_ranks(scores, flips=[1])  # means -2.5, -5.5, -2
    assert "2 data sets (a set and its flip count as one, by their mean), Friedman" in together
    texts = [text.get_text() for text in axes.texts]
    assert [float(text.split()[-1]) for text in texts if "$" in text] == [1.0, 2.5, 2.5]


def test_sizes_of_one_name_are_data_sets_of_one_panel():
    scores = [[-4.0, -3.0, -2.0], [-1.0, -8.0, -2.0], [-4.0, -3.0, -2.0]]
    caption, axes, _ = drawn_ranks(scores, sizes=[2, 3, 4])
    assert "; 3 data sets, Friedman" in caption
    texts = [text.get_text() for text in axes.texts]
    assert [float(text.split()[-1]) for text in texts if "$" in text] == [1.33, 2.33, 2.33]


def test_methods_of_equal_rank_do_not_hide_each_other():
    _, axes, _ = drawn_ranks([[-1.0] * 5] * 3)
    marks = [(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines if line.get_marker() != "None"]
    assert len({*marks}) == len(marks) == 5


def test_a_missing_score_ranks_last():
    ranks = ranks_of(np.array([[1.0, 2.0, np.nan], [3.0, 2.0, np.nan]]), [("a",), ("b",), ("c",)])
    np.testing.assert_allclose(ranks.mean, [1.5, 1.5, 3.0])


# The paper's figures


@pytest.fixture(scope="module")
def experiments():
    return read_grid(EXPERIMENTS).experiments


def test_the_table_has_every_figure_with_data():
    assert [*map(int, PAPER)] == [*range(2, 18)]


@pytest.mark.parametrize("number", PAPER)
def test_figures_draw_cells_that_the_grids_have(experiments, number):
    assert PAPER[number]["shows"].endswith(".")
    for part in map(_part, PAPER[number]["parts"]):
        assert part.kind in KINDS
        assert part.options.title or part.kind == "norms"
        if part.kind != "data":
            cells = [cell.row() for name in part.names for cell in experiments[name].cells]
            assert select(cells, part.options.select)


def test_a_figure_is_drawn_and_a_short_experiment_stands_in(results, tmp_path):
    said = cbm("figure", 7, results, "-o", tmp_path / "f.svg", "--size", "page").stderr
    assert "other-offsets-short is drawn for other-offsets" in said
    svg = (tmp_path / "f.svg").read_text()
    assert "(a) both layers centered" in svg
    assert "(b) one layer centered, or none" in svg


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (("9", "-o", "f.png"), 3, "run experiments.yaml big-rbm-mnist -o"),
        (("3", "-o", "f.png"), 3, "has no results of standard-methods-bars"),
        (("5", "-o", "f.png"), 3, "(norm of the weights)"),
        (("1", "-o", "f.png"), 2, "the figures are 2 to 17"),
        (("7",), 2, "-o FILE.png"),
        (("7", "-o", "f.doc"), 2, "suffix"),
    ],
)
def test_a_figure_that_cannot_be_drawn_says_why(results, words, code, complaint):
    number, *others = words
    assert complaint in cbm("figure", number, results, *others, code=code).stderr


@pytest.mark.parametrize(
    ("number", "drawn", "missing", "reasons", "to_run"),
    [
        (6, [], ["2 (offsets from another chain)"], ["no results of divergence-causes"], "divergence-causes"),
        (14, [], ["2 (with pre-training)"], ["pretraining_epochs=200: no such value"], "dbm-mnist"),
        (
            15,
            ["(a) 000", "(b) "],
            ["3 (000, pre-trained), 4 (ddd^b_s, pre-trained)"],
            ["pretraining_epochs=200"],
            "dbm-mnist",
        ),
        (16, ["second layer, without pre-training"], ["2 (second"], ["pretraining_epochs=200"], "dbm-mnist"),
        (
            17,
            ["test"],
            ["2 (test, pre-trained), 4 (train, pre-trained)", "3 (train)"],
            ["pretraining_epochs=500: no such value; there are 0, 2", "there are test_lower_bound"],
            "dbm-caltech",
        ),
    ],
)
def test_a_figure_has_the_panels_that_there_are_and_says_what_it_lacks(
    results, tmp_path, number, drawn, missing, reasons, to_run
):
    said = cbm("figure", number, results, "-o", tmp_path / "f.svg").stderr
    svg = (tmp_path / "f.svg").read_text()
    assert all(title in svg for title in drawn)
    assert "pre-trained" not in svg
    assert svg.count('id="axes_') == len(drawn or [1])
    for text in (*(f"missing panel {it}" for it in missing), *reasons):
        assert text in said
    assert f"run experiments.yaml {to_run} -o" in said


def test_a_panel_is_drawn_without_the_experiments_that_were_not_run(results, capsys):
    calls = ["curves divergence big-divergence --title Both", "curves big-divergence --title One"]
    (drawn,) = _drawings("11", calls, results)
    assert [panel.title for panel in drawn.panels] == [("Both",)]
    said = capsys.readouterr().err
    assert f"panel 1 (Both) is not complete: {results} has no results of big-divergence\n" in said
    assert f"missing panel 2 (One): {results} has no results of big-divergence\n" in said
    assert "for what is missing run: " in said
    assert f"run experiments.yaml big-divergence -o {results}" in said


def test_figures_are_listed():
    listed = cbm("figure", "list").stdout
    assert "big-divergence, big-divergence-full-batch" in listed
    assert len(listed.splitlines()) == 17


# One style, and texts that fit


def drawn_texts(figure):
    """The boxes of all texts that are drawn, by text."""
    FigureCanvasAgg(figure).draw()
    hidden = {text for axes in figure.axes if not axes.get_visible() for text in axes.findobj(Text)}
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            beyond = [t for t in axis.get_major_ticks() if not (low <= t.get_loc() <= high and axes.axison)]
            hidden |= {label for tick in beyond for label in (tick.label1, tick.label2)}
    texts = (text for text in figure.findobj(Text) if text not in hidden and text.get_text().strip())
    return [(text.get_text(), text.get_window_extent()) for text in texts if text.get_visible()]


@pytest.mark.parametrize("size", ["column", "page", None])
@pytest.mark.parametrize(
    "words",
    [
        "curves toys --metric train_log_likelihood",
        "norms toys --select learning_rate=0.1",
        "norms toys --select learning_rate=0.1 --select data=bars-and-stripes",
        "finals toys",
        "activity toys --select learning_rate=0.1",
        "curves dbm-caltech-short --x gradient-steps",
        "filters toys --number 4 --select learning_rate=0.1",
    ],
)
def test_texts_lie_within_the_figure_and_apart(results, words, size):
    figure = compose(draw(Results(results), _part(words)), Page(size=size))
    texts, whole = drawn_texts(figure), figure.bbox
    assert len(texts) > 5
    for text, box in texts:
        assert box.x0 > whole.x0 - 1, text
        assert box.y0 > whole.y0 - 1, text
        assert box.x1 < whole.x1 + 1, text
        assert box.y1 < whole.y1 + 1, text
    for (text, one), (other, two) in itertools.combinations(texts, 2):
        common = min(one.x1, two.x1) - max(one.x0, two.x0), min(one.y1, two.y1) - max(one.y0, two.y0)
        assert min(common) < 1, (text, other)


@pytest.mark.parametrize("kind", ["curves", "filters", "report", "features"])
def test_a_users_own_style_and_backend_change_no_picture(results, tmp_path, kind):
    rules = ["text.usetex: True", "lines.linewidth: 9", "axes.facecolor: red", "image.origin: lower"]
    rules += ["axes.grid: True", "savefig.bbox: tight", "savefig.transparent: True", "savefig.dpi: 30"]
    (tmp_path / "matplotlibrc").write_text("\n".join(rules))
    store = Results(results).store("toys")
    machine = store.path(store.manifest()["cells"][0]["run_id"], 0, ".npz")
    call = {
        "report": ["report", str(results), "toys", "-o", "page.html"],
        "features": ["features", str(machine), "--data", "bars-and-stripes:size=2", "-o", "f"],
    }.get(kind, ["plot", str(results), kind, "toys", "-o", "p.png", "--select", "learning_rate=0.1"])
    written = []
    for own in ({}, {"MATPLOTLIBRC": str(tmp_path / "matplotlibrc"), "MPLBACKEND": "nonsense"}):
        folder = tmp_path / f"run{len(written)}"
        folder.mkdir()
        subprocess.run(
            [*PYTHON, *call], cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)} | own, check=True
        )
        files = [path for path in sorted(folder.rglob("*")) if path.suffix in (".png", ".html")]
        assert files
        written.append([path.read_bytes() for path in files])
    assert written[0] == written[1]


# Which trial is shown


@pytest.mark.parametrize(
    ("diverged", "said"),
    [
        ({}, "of trial 0"),
        ({("00", 0): 20.0}, r"of trial 0, trial 1 of $\mathit{00}$"),
        (
            {("00", 0): 20.0, ("aa^b", 0): 20.0, ("dd^b_s", 0): 20.0, ("dd^b_s", 1): 40.0},
            "of trial 1, trial 2 of",
        ),
    ],
)
@pytest.mark.parametrize("kind", ["filters", "samples", "activity"])
def test_the_caption_names_the_trial_that_is_shown(results, monkeypatch, kind, diverged, said):
    """Of each cell the machine of the first trial that did not diverge is read, and named."""
    summary = Store.summary

    def some_diverged(store):
        rows = summary(store)
        places = zip(rows["offsets"].astype(str).replace("0", "00"), rows["trial"], strict=True)
        return rows.assign(diverged=[diverged.get(place, np.nan) for place in places])

    read = []
    monkeypatch.setattr(Store, "summary", some_diverged)
    monkeypatch.setattr(learned, "read_machine", lambda path: read.append(path) or read_machine(path))
    some = "--select data=bars-and-stripes --select learning_rate=0.1 --number 4"
    drawing = draw(Results(results), _part(f"{kind} toys {some}"))
    assert said in drawing.notes[-1]
    shown = [int(re.search(r"trial-(\d+)", path.name)[1]) for path in read]
    expected = [
        min({0, 1, 2} - {t for s, t in diverged if s == scheme}) for scheme in ("00", "dd^b_s", "aa^b")
    ]
    assert shown == expected
    usual = max(expected, key=expected.count)
    named = [usual] * 3
    for trial in re.findall(r", trial (\d+) of", drawing.notes[-1]):
        named.remove(usual)
        named.append(int(trial))
    assert sorted(named) == sorted(expected)


def test_a_trial_that_diverged_is_not_drawn(results, monkeypatch):
    summary = Store.summary
    monkeypatch.setattr(Store, "summary", lambda store: summary(store).assign(diverged=20.0))
    with pytest.raises(IncompleteError, match="trial 1 has diverged; leave it out"):
        draw(Results(results), _part("filters toys --trial 1"))
    with pytest.raises(IncompleteError, match="every trial has diverged"):
        draw(Results(results), _part("filters toys"))
