"""Pictures of every kind, read back and compared with the files of real results; the paper's figures."""

import os
import re
import shutil
import subprocess
import sys
from itertools import combinations, product
from pathlib import Path
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.text import Text
from PIL import Image

import cbm_cli as cbm_api
from cbm_cli.errors import CbmError
from cbm_cli.report import learned
from cbm_cli.report.chosen import Options
from cbm_cli.report.panels import Page, compose
from cbm_cli.report.ranks import Ranks, groups_of, ranks_panels
from cbm_cli.results import Results, Store
from tests.builders import cbm, problems_of, put_machine, run_grid
from tests.processes import nightly

# isort: off
from tests.pictures import (
    bounds_of, caption_of, curves_of, figure_of, grey, legend_of, look_of, numbers_in, panels_of, texts_of,
    ticks_of, tiles_of, trials_of, weights_of,
)  # fmt: skip

ROOT = Path(__file__).parents[1]
BAR = "{name: shifting-bar, size: 4, bar: 1}"
GRID = f"""
defaults: {{trials: 3, seed: 5, model: {{kind: rbm, hidden: 3}}, batch: full, updates: 20}}
experiments:
  toys: {{data: [{{name: bars-and-stripes, size: 2}}, {BAR}], offsets: [00, dd^b_s, aa^b], sampler: CD-1,
    learning_rate: [0.1, 0.05], evaluate: {{method: exact, every: 10}}, table: {{scale: total}},
    record: {{what: weight_norms+bias_norms+offset_error+gradient_angles, every: 10}}}}
  other-offsets-short: {{data: {BAR}, trials: 1, sampler: exact, learning_rate: 0.05,
    offsets: [dd, mm, aa, dm, md, d0, 0d, m0, 0m, 00, hh]}}
  divergence: {{data: {BAR}, trials: 1, sampler: PT_4, learning_rate: 0.1,
    offsets: [00, dd^b, aa^b, mm^b, rr^b], evaluate: {{method: exact, every: 10}}}}
"""
DEEP = """
  {}-short: {{data: {{path: rows.npy, test: rows.npy}}, model: {{kind: dbm, hidden: [4, 3]}}, sampler: PCD-1,
    offsets: [000, ddd^b_s], learning_rate: 0.05, pretraining: {{epochs: {}}}, batch: 4, trials: 1,
    evaluate: {{method: ais, every: 10, parts: test, temperatures: 20, runs: 10}}}}
"""
BAR_NAME = "shifting-bar:size=4,bar=1"
BARS = "0000 1100 0011 1111 0000 1010 0101 1111"
BARS = np.array([[*map(int, row)] for row in BARS.split(" ")])
SETS = {"bars-and-stripes": BARS, "shifting-bar": np.eye(4, dtype=int)}
SHAPES = {"bars-and-stripes": (2, 2), "shifting-bar": (1, 4)}
NAMES = {"00": r"$\mathit{00}$", "dd^b_s": "$dd^{b}_{s}$", "aa^b": "$aa^{b}$"}
COLOURS = {"00": "#000000", "dd^b_s": "#009e73", "aa^b": "#d55e00"}
RATES = {0.1: r"$\eta$ = 0.1", 0.05: r"$\eta$ = 0.05"}
SOME = ["--select", "learning_rate=0.1"]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures")
    np.save(folder / "rows.npy", np.eye(4))
    deep = DEEP.format("dbm-mnist", 0) + DEEP.format("dbm-caltech", "[0, 2]")
    names = ("toys", "other-offsets-short", "dbm-mnist-short", "dbm-caltech-short", "divergence")
    return run_grid(GRID + deep, *names, folder=folder)


@pytest.fixture(scope="module")
def toys(results):
    return trials_of(results, "toys")


@pytest.fixture(scope="module")
def values(toys):
    """The best value of each trial but for that before the first update, and the last."""
    groups = toys[toys["update"] > 0].groupby(["data", "learning_rate", "offsets", "trial"])
    found = groups["train_log_likelihood"].agg(["max", "last"])
    return found.mul(toys.groupby("data")["n_train"].first(), axis=0, level="data")


def machine(trials, trial=0, learning_rate=0.1, **settings):
    """The machine of a trial."""
    for column, value in {"trial": trial, "learning_rate": learning_rate, **settings}.items():
        trials = trials[trials[column] == value]
    (path,) = trials["machine"].unique()
    return weights_of(path)


# Each kind of picture beside its files


METRICS = {
    "curves": "train_log_likelihood",
    "norms": "(weight|visible_bias|hidden_bias)(_row|_column)?_norm",
    "offsets": "(visible|hidden)_offset_error",
    "angles": "angle_natural_[a-z]+",
}


@pytest.mark.parametrize("kind", METRICS)
def test_lines_and_bands_are_statistics_of_the_trials(results, toys, kind):
    average = [] if kind == "curves" else ["--statistic", "mean"]
    figure, _ = figure_of("plot", results, kind, "toys", *SOME, *average)
    metrics, legend = [column for column in toys if re.fullmatch(METRICS[kind], column)], legend_of(figure)
    for (title, axes), (data, metric) in zip(panels_of(figure), product(SETS, metrics), strict=True):
        words = "train log-likelihood (of all rows)" if kind == "curves" else metric.replace("_", " ")
        assert title == data
        assert kind == "angles" or axes.get_ylabel().replace("\n", " ") in ("", words)
        curves = curves_of(axes, legend)
        assert {scheme: legend[name].colour for scheme, name in NAMES.items()} == COLOURS
        assert [*curves] == [*legend] == [*NAMES.values()]
        for scheme, name in NAMES.items():
            own = toys[(toys.data == data) & (toys.offsets == scheme) & (toys.learning_rate == 0.1)]
            table = own.pivot_table(metric, "update", "trial") * (len(SETS[data]) if kind == "curves" else 1)
            line, spread = table.mean(axis=1), table.std(axis=1)
            edges = [line - spread, line + spread]
            if kind == "curves":
                line, edges = table.median(axis=1), [table.quantile(q, axis=1) for q in (0.25, 0.75)]
            assert [*curves[name].line.index] == [*table.index]
            np.testing.assert_allclose(curves[name].line, line)
            np.testing.assert_allclose(curves[name].band, np.column_stack(edges))
    bounds = ["13.86", "5.545"] if kind == "curves" else []  # the likelihood of all rows cannot be higher
    said = caption_of(figure).split(". ")
    assert numbers_in(". ".join(it for it in said if "coincide" not in it)) == ["3", *bounds]


def test_finals_are_the_best_and_the_last_value_of_each_trial(results, values):
    figure, _ = figure_of("plot", results, "finals", "toys")
    for (title, axes), (data, rate) in zip(panels_of(figure), product(SETS, RATES), strict=True):
        assert title == f"{data}, {RATES[rate]}"
        assert axes.get_ylabel() in ("", "train log-likelihood (of all rows)")
        assert ticks_of(axes.xaxis) == dict(enumerate(NAMES.values()))
        dots, bars = iter(axes.collections), iter(axes.lines)
        for (place, scheme), end in product(enumerate(NAMES), ("max", "last")):
            own, side = values[end].loc[data, rate, scheme], place + (0.19 if end == "last" else -0.19)
            cloud, spread, median = next(dots), next(bars), next(bars)
            np.testing.assert_allclose(cloud.get_offsets()[:, 1], own)
            np.testing.assert_allclose(cloud.get_offsets()[:, 0], side, atol=0.1001)
            assert to_hex(cloud.get_edgecolor()[0]) == COLOURS[scheme]
            assert to_hex(cloud.get_facecolor()[0]) == COLOURS[scheme]
            assert (cloud.get_facecolor()[0, 3] == 1) == (end == "last")
            np.testing.assert_allclose(spread.get_ydata(), own.quantile([0.25, 0.75]))
            np.testing.assert_allclose(median.get_ydata(), own.median())
            assert np.mean(median.get_xdata()) == pytest.approx(side) == spread.get_xdata()[0]


def shown(axes, height, width):
    """The small pictures of axes, which show 0 as black and 1 as white."""
    (image,) = axes.images
    assert (image.get_clim(), image.cmap.name) == ((0, 1), "gray")
    return tiles_of(image.get_array(), height, width, 20 // max(height, width))


def test_filters_are_the_weights_of_each_unit_normalised(results, toys, monkeypatch):
    figure, _ = figure_of("plot", results, "filters", "toys", *SOME)
    for (title, axes), (data, scheme) in zip(panels_of(figure), product(SETS, NAMES), strict=True):
        assert title == f"{data}, {NAMES[scheme]}"
        expected = grey(machine(toys, data=data, offsets=scheme)["weights_0"].T)
        np.testing.assert_allclose(shown(axes, *SHAPES[data])[:3], expected, atol=1e-6)
    trials = trials_of(results, "dbm-mnist-short")
    for number in (2, 100):  # of a second layer: projected, and some may be chosen
        monkeypatch.setattr(learned, "SHOWN", number)
        figure, said = figure_of("plot", results, "filters", "dbm-mnist-short", "--layer", 2)
        assert ("at random" in said) == (number == 2)
        for (_, axes), scheme in zip(panels_of(figure), ("000", "ddd^b_s"), strict=True):
            its = machine(trials, 0, 0.05, offsets=scheme)
            expected = grey((its["weights_0"] @ its["weights_1"]).T)
            tiles = shown(axes, 2, 2)[: min(number, 3)]
            nearest = [int(np.abs(expected - tile).sum(axis=1).argmin()) for tile in tiles]
            assert nearest == sorted({*nearest})
            np.testing.assert_allclose(tiles, expected[nearest], atol=1e-5)


def test_activity_is_the_mean_over_the_training_rows_in_decreasing_order(results, toys):
    figure, _ = figure_of("plot", results, "activity", "toys", *SOME)
    for (title, axes), data in zip(panels_of(figure), SETS, strict=True):
        drawn = {look_of(line, line): line for line in axes.lines if len(line.get_xdata()) > 2}
        assert (title, [*drawn], {*bounds_of(axes)}) == (data, [*legend_of(figure).values()], {0.05, 0.95})
        assert (*axes.get_xlim(), *axes.get_ylim()) == pytest.approx((0, 1, -0.02, 1.02))
        for scheme, name in NAMES.items():
            its, line = machine(toys, data=data, offsets=scheme), drawn[legend_of(figure)[name]]
            inputs = (SETS[data] - its["offsets_0"]) @ its["weights_0"] + its["biases_1"]
            means = np.sort((1 / (1 + np.exp(-inputs))).mean(axis=0))[::-1]
            np.testing.assert_allclose(line.get_ydata(), means, atol=1e-5)
            np.testing.assert_allclose(line.get_xdata(), [1 / 6, 1 / 2, 5 / 6])


def test_samples_are_of_each_cells_machine(results, toys, tmp_path):
    """Machines without weights, whose biases leave one state each."""
    store = Results(shutil.copytree(results, tmp_path / "copy")).store("toys")
    own, some = toys[toys.data == "bars-and-stripes"], ["--select", "data=bars-and-stripes"]
    for scheme, state in (states := dict(zip(NAMES, np.eye(4), strict=False))).items():
        arrays = {name: 0 * array for name, array in machine(own, offsets=scheme).items()}
        (run,) = own[(own.offsets == scheme) & (own.learning_rate == 0.1)]["run_id"].unique()
        put_machine(store, run, 0, arrays | {"kind": np.array("rbm"), "biases_0": 60 * state - 30})
    figure, _ = figure_of("plot", tmp_path / "copy", "samples", "toys", *SOME, *some)
    for (title, axes), scheme in zip(panels_of(figure), states, strict=True):
        assert title == NAMES[scheme]
        np.testing.assert_array_equal(shown(axes, 2, 2), [states[scheme]] * 100)


def test_rows_of_data_sets_are_drawn_in_order(monkeypatch):
    monkeypatch.setattr(learned, "SHOWN", 5)
    names = ("bars-and-stripes:size=2", "shifting-bar:size=4,bar=1")
    figure, _ = figure_of("plot", "data", *names)
    for (title, axes), (data, rows) in zip(panels_of(figure), SETS.items(), strict=True):
        assert (title.startswith(data), numbers_in(title)) == (True, [f"{min(5, len(rows))}", f"{len(rows)}"])
        np.testing.assert_array_equal(shown(axes, *SHAPES[data])[: len(rows[:5])], rows[:5])


@pytest.mark.parametrize(
    ("words", "place", "kind", "content"),
    [
        ("curves toys --xlim 5", "--xlim 5", "value", "0:1000"),
        ("curves toys --ylim 3:1", "--ylim 3:1", "value", "none"),
        ("curves toys --size big", "--size big", "value", "6.5x4"),
        ("offsets other-offsets-short", "other-offsets-short", "incomplete", "record: offset_values"),
        ("finals toys --metric cost", "--metric cost", "unknown", ""),
        ("finals toys --metric weight_norm --metric b", "--metric", "conflict", "2"),
        ("filters toys --layer 2", "--layer 2", "unsuited", "1"),
        ("finals toys --statistic mean", "--statistic mean", "unsuited", "max"),
        ("critical-difference divergence", "critical-difference", "unsuited", "5 methods"),
        ("critical-difference toys --metric weight_norm", "--metric weight_norm", "unsuited", ""),
        ("data", "data", "missing", "cbm plot data"),
        ("cruves toys", "", "missing", "curves"),
    ],
)
def test_what_cannot_be_drawn_is_said(results, tmp_path, words, place, kind, content):
    folder = [] if words == "data" else [results]
    code = 3 if kind == "incomplete" else 2
    said = cbm("plot", *folder, *words.split(), "-o", tmp_path / "p.png", code=code)
    assert problems_of(said) == [(place, "", kind)]
    assert content in said.stderr
    assert not (tmp_path / "p.png").exists()


# Machines by name, captions, fonts, notebooks


@pytest.mark.parametrize("named", ["run", "run of the folder", "file"])
def test_a_machine_is_drawn_by_its_name_or_file(results, toys, tmp_path, named):
    one = toys[(toys.data == "shifting-bar") & (toys.offsets == "aa^b") & (toys.learning_rate == 0.1)]
    path = str(one[one.trial == 1]["machine"].iloc[0])
    its, words, rows = weights_of(path), [path], []
    if named == "file":
        cbm("export", path, "-o", tmp_path / "own.npz")
        words, rows = [tmp_path / "own.npz"], ["--data", BAR_NAME]
    folder = [results] if named == "run of the folder" else []
    words = [path.rpartition("/")[2]] if folder else words
    figure, _ = figure_of("plot", *folder, "filters", *words, *rows)
    ((_, axes),) = panels_of(figure)
    shape = (2, 2) if named == "file" and not rows else (1, 4)
    np.testing.assert_allclose(shown(axes, *shape)[:3], grey(its["weights_0"].T), atol=1e-6)
    figure, _ = figure_of("plot", *folder, "activity", *words, *rows)
    ((_, axes),) = panels_of(figure)
    inputs = (SETS["shifting-bar"] - its["offsets_0"]) @ its["weights_0"] + its["biases_1"]
    means = np.sort((1 / (1 + np.exp(-inputs))).mean(axis=0))[::-1]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), means, atol=1e-5)
    figure, _ = figure_of("plot", *folder, "samples", *words, *rows)
    assert len(panels_of(figure)) == 1


def test_single_trials_are_drawn_by_their_names(results, toys):
    own = toys[(toys.data == "shifting-bar") & (toys.learning_rate == 0.1)]
    names = {
        scheme: own[(own.offsets == scheme) & (own.trial == n)] for scheme, n in (("00", 1), ("aa^b", 2))
    }
    words = [its["machine"].iloc[0].removesuffix(":best") for its in names.values()]
    figure, _ = figure_of("plot", "curves", *words)
    ((_, axes),) = panels_of(figure)
    curves = curves_of(axes, legend_of(figure))
    assert [*curves] == [NAMES[scheme] for scheme in names]
    for scheme, its in names.items():
        np.testing.assert_allclose(curves[NAMES[scheme]].line, 4 * its["train_log_likelihood"])
        assert curves[NAMES[scheme]].band is None


def test_a_file_does_not_say_which_rows_it_has_learned(toys, tmp_path):
    cbm("export", toys["machine"].iloc[0], "-o", tmp_path / "own.npz")
    said = cbm("plot", "activity", tmp_path / "own.npz", "-o", tmp_path / "p.png", code=2)
    assert problems_of(said) == [(str(tmp_path / "own.npz"), "", "missing")]
    assert "--data" in said.stderr


def test_the_caption_is_said_and_written_beside_the_picture(results, tmp_path):
    said = cbm("plot", results, "curves", "toys", *SOME, "-o", tmp_path / "p.png", "--caption").stderr
    text = (tmp_path / "p.txt").read_text("utf-8").strip()
    assert text in said
    assert text.startswith("Median over 3 trials, band: quartiles.")
    about, *texts = Image.open(tmp_path / "p.png").info["Description"].split("\n")
    assert (about, [it for it in texts if "trials" in it]) == (text, [])  # it is not in the picture
    assert any("bars-and-stripes" in it for it in texts)


def test_a_font_that_is_not_there_is_refused_and_one_that_is_there_is_used(results, tmp_path):
    words = ["plot", results, "curves", "toys", *SOME, "--font"]
    said = cbm(*words, "DejaVu Sans Momo", "-o", tmp_path / "p.png", code=2)
    assert problems_of(said) == [("--font DejaVu Sans Momo", "", "unknown")]
    assert "DejaVu Sans Mono" in said.stderr
    figure, _ = figure_of(*words, "DejaVu Sans Mono")
    assert {it.get_fontfamily()[0] for it in figure.findobj(Text)} == {"DejaVu Sans Mono"}


def test_results_plot_in_a_notebook_shows_what_the_command_draws(results, tmp_path):
    frames = cbm_api.open_results(results)
    select = {"data": "shifting-bar", "learning_rate": [0.1, 0.05], "offsets": ["00", "aa^b"]}
    picture = frames.plot("curves", "toys", select=select, size="page", metric="weight_norm")
    words = "--select data=shifting-bar --select learning_rate=0.1,0.05 --select offsets=00,aa^b"
    words = [*words.split(), "--metric", "weight_norm", "--size", "page", "-o", tmp_path / "p.png"]
    cbm("plot", results, "curves", "toys", *words)
    assert picture._repr_png_() == (tmp_path / "p.png").read_bytes()
    assert (len(picture.figure.axes), "Median over 3 trials" in picture.caption) == (2, True)
    with pytest.raises(CbmError, match=r"curvs.*curves"):
        frames.plot("curvs", "toys")
    with pytest.raises(CbmError, match="'A4'"):  # which was no size
        frames.plot("curves", "toys", size="A4")
    with pytest.raises(CbmError, match=r"metrik.*metric"):
        frames.plot("curves", "toys", metrik="weight_norm")
    best = cbm("best", results, "toys").stdout.split()[0]
    with pytest.raises(CbmError, match="select"):  # which named machines ignored
        frames.plot("filters", best, select={"learning_rate": 0.1})


# Critical differences of hand-made scores

LADDER = [-4.0, -3.0, -2.0, -1.0]
METHODS = {"00": r"$\mathit{00}$", "d0": r"$\mathit{d0}$"}
METHODS |= {scheme: f"${scheme[:2]}^{{b}}$" for scheme in ("dd^b", "aa^b", "mm^b")}


def store_of(scores, flips=(), sizes=(), finals=None, **facts):
    """Results of methods with these best and final scores, a row for each data set, and more facts of all."""
    cells, rows = [], []
    for i, its in enumerate(zip(scores, finals or scores, strict=True)):
        name = f"set{i - (i in flips)}"
        data = {"data": f"{'flipped-' * (i in flips)}{name}", "data_name": name, "data_flip": i in flips}
        data |= {"data": "set", "data_name": "set", "data_size": sizes[i]} if sizes else {}
        for scheme, *of_trial in zip(METHODS, *its, strict=False):
            cells.append({"run_id": f"{i}/{scheme}", "offsets": scheme, **data})
            names = "train_log_likelihood_max", "train_log_likelihood_final"
            trial = {"run_id": f"{i}/{scheme}", "trial": 0, "n_train": 1, "diverged": None}
            rows.append(trial | dict(zip(names, of_trial, strict=True)) | facts)
    layout = {"rows": ["sampler"], "columns": ["offsets"], "groups": ["data"]}
    table = layout | {"scale": "total", "metric": None}
    manifest = {"table": table, "cells": cells, "upper_bounds": {}, "trials": 1}
    store = SimpleNamespace(manifest=lambda: manifest, summary=lambda: pd.DataFrame(rows))
    return SimpleNamespace(store=lambda _: store)


def drawn_ranks(scores, flips=(), sizes=()):
    """The numbers of the caption, the written ranks, the axes and the ends of the bars."""
    picture = compose(ranks_panels(store_of(scores, flips, sizes), ["e"], Options()), Page())
    (axes,) = picture.figure.axes
    bars = [line.get_xdata() for line in axes.lines if line.get_linewidth() == 2.5]
    return numbers_in(picture.caption), ranks_in(axes), axes, bars


def ranks_in(axes):
    """The mean ranks that are written beside the methods."""
    written = (text.split("  ") for text in texts_of(axes).values() if "$" in text)
    return {name: float(rank) for name, rank in written}


def test_methods_are_ranked_by_the_value_that_is_asked_for():
    scores, finals = [LADDER, LADDER], [LADDER[::-1], LADDER[::-1]]
    for statistic, ranks in (("max", [4, 3, 2, 1]), ("final", [1, 2, 3, 4])):
        panels = ranks_panels(store_of(scores, finals=finals), ["e"], Options(statistic=statistic))
        (axes,) = compose(panels, Page()).figure.axes
        assert ranks_in(axes) == dict(zip(METHODS.values(), ranks, strict=False))


def test_ranks_and_critical_difference_are_those_of_demsar():
    """The AUC of four classifiers on 14 data sets: Table 6 and sections 3.2.2, 3.2.3 of Demsar 2006."""
    table = """
    .763 .768 .771 .798  .599 .591 .590 .569  .954 .971 .968 .967  .628 .661 .654 .657  .882 .888 .886 .898
    .936 .931 .916 .931  .661 .668 .609 .685  .583 .583 .563 .625  .775 .838 .866 .875  1 1 1 1
    .940 .962 .965 .962  .619 .666 .614 .669  .972 .981 .9751 .975  .957 .978 .946 .970"""
    scores, means = np.array(table.split(), dtype=float).reshape(14, 4).tolist(), [3.143, 2.000, 2.893, 1.964]
    _, written, axes, bars = drawn_ranks(scores)
    assert [written[name] for name in [*METHODS.values()][:4]] == pytest.approx(means, abs=6e-3)
    stems = [line for line in axes.lines if len(line.get_xdata()) == 3]
    drawn = {to_hex(line.get_color()): line.get_xdata()[0] for line in stems}
    colours = dict(zip(["#000000", "#0072b2", "#009e73", "#d55e00"], means, strict=True))
    assert drawn == pytest.approx(colours, abs=5e-4)
    np.testing.assert_allclose(bars, [[1.964 - 0.04, 3.143 + 0.04]], atol=1e-3)
    (width,) = [np.ptp(line.get_xdata()) for line in axes.lines if line.get_marker() == "|"]
    assert width == pytest.approx(1.25, abs=5e-3)
    assert texts_of(axes)[1 + width / 2, -1.25].endswith("1.25")


@pytest.mark.parametrize(("effective", "doubtful"), [(3.9, ["12", "12"]), (4.0, [])])
def test_ranks_by_doubtful_estimates_say_how_many_there_are(effective, doubtful):
    """Of 40 runs at least 4 must be effective."""
    facts = {"evaluate_runs": 40, "effective_sample_size_final": effective}
    (panel,) = ranks_panels(store_of([LADDER] * 3, **facts), ["e"], Options())
    sure = ranks_panels(store_of([LADDER] * 3), ["e"], Options())[0].notes
    assert numbers_in(" ".join(note for note in panel.notes if note not in sure)) == doubtful


@pytest.mark.parametrize("seed", range(5))
def test_bars_join_exactly_the_methods_within_the_critical_difference(seed):
    ranks = Ranks([], np.random.default_rng(seed).uniform(1, 6, 6).round(1), 5, 0.01, 1.5)
    bars = groups_of(ranks)
    for one, two in combinations(sorted(ranks.mean), 2):
        joined = any(first <= one and two <= last for first, last in bars)
        assert joined == (two <= one + ranks.critical) or one == two


def test_a_test_is_significant_below_alpha_and_not_at_it():
    at, below, above = (Ranks([], np.arange(4), 5, p, 1.5) for p in (0.05, 0.0499, 0.06))
    assert [it.barred for it in (at, below, above)] == [False, True, False]
    assert at.test.replace("0.05", "") == above.test.replace("0.06", "") != below.test.replace("0.05", "")


@pytest.mark.parametrize(
    ("scores", "numbers", "barred"),
    [
        ([LADDER] * 8, ["8", "2.5e-05", "0.05"], True),
        ([LADDER, LADDER, LADDER[::-1]], ["3", "0.8"], False),
        ([[-1.0] * 4] * 5, ["5", "1"], False),
        ([[-2.0, -1.0]] * 5, ["5", "0.062"], False),
        ([[-2.0, -1.0 - i / 99] for i in range(6)], ["6", "0.031"], False),
    ],
)
def test_bars_need_a_significant_test_of_all_methods(scores, numbers, barred):
    said, written, axes, bars = drawn_ranks(scores)
    assert " ".join(said).replace("- ", "-").split() == ["1", *numbers]
    assert bool(bars) == any(line.get_marker() == "|" for line in axes.lines) == barred
    ranks = pd.DataFrame(scores).rank(axis=1, ascending=False).mean().round(2)
    assert written == dict(zip(METHODS.values(), ranks, strict=False))


def test_a_set_and_its_flip_count_as_one():
    scores = [LADDER[:3], [-1.0, -8.0, -2.0], LADDER[:3]]
    assert drawn_ranks(scores)[0][1] == "3"
    numbers, written, *_ = drawn_ranks(scores, flips=[1])  # means -2.5, -5.5, -2
    assert numbers[1] == "2"
    assert written == {METHODS["dd^b"]: 1.0, METHODS["00"]: 2.5, METHODS["d0"]: 2.5}


def test_sizes_of_one_name_are_data_sets_of_one_panel():
    numbers, written, *_ = drawn_ranks([LADDER[:3], [-1.0, -8.0, -2.0], LADDER[:3]], sizes=[2, 3, 4])
    assert numbers[1] == "3"
    assert sorted(written.values()) == [1.33, 2.33, 2.33]


def test_methods_of_equal_rank_do_not_hide_each_other():
    axes = drawn_ranks([[-1.0] * 5] * 3)[2]
    marks = [(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines if line.get_marker() != "None"]
    assert len({*marks}) == len(marks) == 5


def test_a_missing_score_ranks_last():
    scores = [LADDER, [-100.0, np.nan, -2.0, -1.0]]
    assert drawn_ranks(scores)[1] == dict(zip(METHODS.values(), [3.5, 3.5, 2.0, 1.0], strict=False))


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


WORDS = {  # pictures, and their sizes
    "norms toys --select learning_rate=0.1": "column",
    "norms toys --select learning_rate=0.1 --select data=bars-and-stripes": "page",
    "norms toys --select learning_rate=0.1 --select data=shifting-bar": None,
    "finals toys": "page",
    "finals toys --select learning_rate=0.1": "column",
    "curves dbm-caltech-short --x gradient-steps": "page",
    "filters toys --select learning_rate=0.1": "column",
}


@pytest.mark.parametrize("kind", ["report", *nightly("filters", "process")])
def test_a_users_own_style_and_backend_change_no_picture(results, tmp_path, monkeypatch, kind):
    rules = {"lines.linewidth": 9, "axes.facecolor": "red", "image.origin": "lower", "savefig.bbox": "tight"}
    rules |= {"axes.grid": True, "savefig.transparent": True, "savefig.dpi": 30, "text.usetex": True}
    call = ["plot", results, kind.replace("process", "curves"), "toys", "-o", "p.png", *SOME]
    call = ["report", results, "toys", "-o", "page.html"] if kind == "report" else call
    written = []
    for own in ({}, rules):
        folder = tmp_path / f"run{len(written)}"
        folder.mkdir()
        monkeypatch.chdir(folder)
        if own and kind == "process":
            (folder / "matplotlibrc").write_text("\n".join(f"{key}: {value}" for key, value in own.items()))
            others = {"PYTHONPATH": str(ROOT), "MPLBACKEND": "nonsense"}
            command = [sys.executable, "-m", "cbm_cli.cli", *map(str, call)]
            subprocess.run(command, env=os.environ | others, check=True)
        else:
            with mpl.rc_context(own):
                cbm(*call)
        files = [path for path in sorted(folder.rglob("*")) if path.suffix in (".png", ".html")]
        written.append([path.read_bytes() for path in files])
    assert written[0] == written[1] != []


# Which trial is shown


@pytest.mark.parametrize(
    ("diverged", "trials"),
    [
        ({}, [0, 0, 0]),
        ({("00", 0)}, [1, 0, 0]),
        ({("00", 0), ("aa^b", 0), ("dd^b_s", 0), ("dd^b_s", 1)}, [1, 2, 1]),
    ],
)
def test_filters_are_of_the_first_trial_that_did_not_diverge(results, toys, monkeypatch, diverged, trials):
    summary = Store.summary

    def some_diverged(store):
        rows = summary(store)
        places = zip(rows["offsets"].astype(str).replace("0", "00"), rows["trial"], strict=True)
        return rows.assign(diverged=[20.0 if place in diverged else np.nan for place in places])

    monkeypatch.setattr(Store, "summary", some_diverged)
    figure, _ = figure_of("plot", results, "filters", "toys", *SOME, "--select", "data=bars-and-stripes")
    for (_, axes), scheme, trial in zip(panels_of(figure), NAMES, trials, strict=True):
        its = machine(toys, trial, data="bars-and-stripes", offsets=scheme)
        np.testing.assert_allclose(shown(axes, 2, 2)[:3], grey(its["weights_0"].T), atol=1e-6)
    usual = max(trials, key=trials.count)
    words = ("00", "ddᵇₛ", "aaᵇ")
    others = [f"trial {it} of {name}" for name, it in zip(words, trials, strict=True) if it != usual]
    assert caption_of(figure).endswith(", ".join([f"trial {usual}", *others]) + ".")


def test_of_trials_that_have_all_diverged_there_is_no_machine_to_show(results, toys, monkeypatch):
    summary = Store.summary
    monkeypatch.setattr(Store, "summary", lambda store: summary(store).assign(diverged=20.0))
    said = cbm("plot", results, "filters", "toys", "-o", "p.png", code=3)
    assert problems_of(said) == [(toys["run_id"].iloc[0], "", "incomplete")]
