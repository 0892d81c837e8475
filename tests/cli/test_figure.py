"""Pictures of every kind, read back and compared with the files of real results; the paper's
figures.
"""

import os
import shutil
import subprocess
import sys
from itertools import combinations, product
from pathlib import Path

import cbm_cli as cbm_api
import matplotlib as mpl
import numpy as np
import pytest
from cbm_cli.report import learned
from cbm_cli.report.chosen import Options
from cbm_cli.report.kinds import draw
from cbm_cli.report.panels import compose
from cbm_cli.results import Results, Store
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.text import Text
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image

from tests.builders import cbm, holds, problems_of, refusal, run_grid
from tests.journals import put_machine
from tests.pictures import (
    bounds_of,
    caption_of,
    curves_of,
    figure_of,
    grey,
    legend_of,
    look_of,
    numbers_in,
    panels_of,
    ticks_of,
    tiles_of,
    trials_of,
    weights_of,
)
from tests.processes import nightly

ROOT = Path(__file__).parents[2]
BAR = "{name: shifting-bar, size: 4, bar: 1}"
GRID = f"""
defaults: {{trials: 3, seed: 5, model: {{kind: rbm, hidden: 3}}, batch: full, updates: 20}}
experiments:
  toys: {{data: [{{name: bars-and-stripes, size: 2}}, {BAR}], sampler: CD-1,
    offsets: [00, dd^b_s, aa^b], learning_rate: [0.1, 0.05],
    evaluate: {{method: exact, every: 10}}, table: {{scale: total}},
    record: {{what: weight_norms+bias_norms+offset_error+gradient_angles, every: 10}}}}
  other-offsets-short: {{data: {BAR}, trials: 1, sampler: exact, learning_rate: 0.05,
    offsets: [dd, mm, aa, dm, md, d0, 0d, m0, 0m, 00, hh]}}
  divergence: {{data: {BAR}, trials: 1, sampler: PT_4, learning_rate: 0.1,
    offsets: [00, dd^b, aa^b, mm^b, rr^b], evaluate: {{method: exact, every: 10}}}}
"""
DEEP = """
  {}-short: {{data: {{path: rows.npy, test: rows.npy}}, model: {{kind: dbm, hidden: [4, 3]}},
    sampler: PCD-1, offsets: [000, ddd^b_s], learning_rate: 0.05, pretraining: {{epochs: {}}},
    batch: 4, trials: 1,
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


def activities(machine, rows):
    """Mean activities of the hidden units, in decreasing order."""
    inputs = (rows - machine["offsets_0"]) @ machine["weights_0"] + machine["biases_1"]
    return np.sort((1 / (1 + np.exp(-inputs))).mean(axis=0))[::-1]


def machine(trials, trial=0, learning_rate=0.1, **settings):
    """The machine of a trial."""
    for column, value in {"trial": trial, "learning_rate": learning_rate, **settings}.items():
        trials = trials[trials[column] == value]
    (path,) = trials["machine"].unique()
    return weights_of(path)


# Each kind of picture with its files


def test_curves_of_a_record_are_those_of_the_files(results, toys):
    figure, _ = figure_of("plot", results, "curves", "toys", *SOME, "--metric", "weight_norm")
    for (title, axes), data in zip(panels_of(figure), SETS, strict=True):
        assert title == data
        curves = curves_of(axes, legend_of(figure))
        for scheme, name in NAMES.items():
            own = toys[(toys.data == data) & (toys.offsets == scheme) & (toys.learning_rate == 0.1)]
            table = own.pivot_table("weight_norm", "update", "trial")
            assert_allclose(curves[name].line, table.median(axis=1))
            quartiles = [table.quantile(q, axis=1) for q in (0.25, 0.75)]
            assert_allclose(curves[name].band, np.column_stack(quartiles))


def test_finals_are_the_best_and_the_last_value_of_each_trial(results, values):
    figure, _ = figure_of("plot", results, "finals", "toys")
    for (title, axes), (data, rate) in zip(panels_of(figure), product(SETS, RATES), strict=True):
        assert title == f"{data}, {RATES[rate]}"
        assert axes.get_ylabel() in ("", "train log-likelihood (of all rows)")
        assert ticks_of(axes.xaxis) == dict(enumerate(NAMES.values()))
        dots, bars = iter(axes.collections), iter(axes.lines)
        for (place, scheme), end in product(enumerate(NAMES), ("max", "last")):
            own, side = values[end].loc[data, rate, scheme], place + 0.38 * (end == "last") - 0.19
            cloud, spread, median = next(dots), next(bars), next(bars)
            assert_allclose(cloud.get_offsets()[:, 1], own)
            assert_allclose(cloud.get_offsets()[:, 0], side, atol=0.1001)
            assert to_hex(cloud.get_edgecolor()[0]) == COLOURS[scheme]
            assert to_hex(cloud.get_facecolor()[0]) == COLOURS[scheme]
            assert (cloud.get_facecolor()[0, 3] == 1) == (end == "last")
            assert_allclose(spread.get_ydata(), own.quantile([0.25, 0.75]))
            assert_allclose(median.get_ydata(), own.median())
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
        assert_allclose(shown(axes, *SHAPES[data])[:3], expected, atol=1e-6)
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
            assert_allclose(tiles, expected[nearest], atol=1e-5)


def test_activity_is_the_mean_over_the_training_rows_in_decreasing_order(results, toys):
    figure, _ = figure_of("plot", results, "activity", "toys", *SOME)
    for (title, axes), data in zip(panels_of(figure), SETS, strict=True):
        drawn = {look_of(line, line): line for line in axes.lines if len(line.get_xdata()) > 2}
        assert title == data
        assert [*drawn] == [*legend_of(figure).values()]
        assert {*bounds_of(axes)} == {0.05, 0.95}
        assert (*axes.get_xlim(), *axes.get_ylim()) == pytest.approx((0, 1, -0.02, 1.02))
        for scheme, name in NAMES.items():
            its, line = machine(toys, data=data, offsets=scheme), drawn[legend_of(figure)[name]]
            assert_allclose(line.get_ydata(), activities(its, SETS[data]), atol=1e-5)
            assert_allclose(line.get_xdata(), [1 / 6, 1 / 2, 5 / 6])
    two = ["--select", "offsets=00,aa^b"]
    figure, _ = figure_of("plot", results, "activity", "toys", *SOME, *two)
    assert [*legend_of(figure)] == [NAMES["00"], NAMES["aa^b"]]


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
        assert_array_equal(shown(axes, 2, 2), [states[scheme]] * 100)


def test_rows_of_data_sets_are_drawn_in_order(monkeypatch):
    monkeypatch.setattr(learned, "SHOWN", 5)
    names = ("bars-and-stripes:size=2", "shifting-bar:size=4,bar=1")
    figure, _ = figure_of("plot", "data", *names)
    for (title, axes), (data, rows) in zip(panels_of(figure), SETS.items(), strict=True):
        assert title.startswith(data)
        assert numbers_in(title) == [f"{min(5, len(rows))}", f"{len(rows)}"]
        assert_array_equal(shown(axes, *SHAPES[data])[: len(rows[:5])], rows[:5])


# Machines by name, captions, fonts, notebooks


@pytest.mark.parametrize("named", ["run", "run of the folder", "own.npz", "own.bin", "own"])
def test_a_machine_is_drawn_by_its_name_or_file(results, toys, tmp_path, named):
    own = toys[(toys.data == "shifting-bar") & (toys.learning_rate == 0.1) & (toys.trial == 1)]
    path = str(own[own.offsets == "aa^b"]["machine"].iloc[0])
    its, words, title = weights_of(path), [path], f"shifting-bar, {RATES[0.1]}, $aa^{{b}}$, trial 1"
    if named == "run of the folder":
        words = [results, path.rpartition("/")[2]]
    if named.startswith("own"):
        cbm("export", path, "-o", tmp_path / "own.npz")
        (tmp_path / "own.npz").rename(tmp_path / named)
        words, title = [tmp_path / named, "--data", BAR_NAME], "own"
    *folder, name = words[:2] if named == "run of the folder" else words[:1]
    kinds = ("filters", "activity", "samples")
    calls = [["plot", *folder, kind, name, *words[len(folder) + 1 :]] for kind in kinds]
    filters, activity, samples = (panels_of(figure_of(*call)[0]) for call in calls)
    assert [title for title, _ in filters] == [title]
    assert_allclose(shown(filters[0][1], 1, 4)[:3], grey(its["weights_0"].T), atol=1e-6)
    means = activities(its, SETS["shifting-bar"])
    assert_allclose(activity[0][1].lines[0].get_ydata(), means, atol=1e-5)
    assert len(samples) == 1


def test_single_trials_are_drawn_by_their_names(results, toys):
    own = toys[(toys.data == "shifting-bar") & (toys.learning_rate == 0.1)]
    pairs = (("00", 1), ("aa^b", 2))
    names = {scheme: own[(own.offsets == scheme) & (own.trial == n)] for scheme, n in pairs}
    words = [its["machine"].iloc[0] for its in names.values()]
    figure, _ = figure_of("plot", "curves", *words)
    ((_, axes),) = panels_of(figure)
    curves = curves_of(axes, legend_of(figure))
    assert numbers_in(caption_of(figure)) == ["5.545"]  # the bound, and no number of trials
    assert [*curves] == [NAMES[scheme] for scheme in names]
    for scheme, its in names.items():
        assert_allclose(curves[NAMES[scheme]].line, 4 * its["train_log_likelihood"])
        assert curves[NAMES[scheme]].band is None


def test_what_a_machine_file_or_a_data_set_lacks_is_said_of_its_own_name(toys, tmp_path):
    cbm("export", toys["machine"].iloc[0], "-o", file := tmp_path / "own.npz")
    picture = ["-o", tmp_path / "p.png"]
    for words, place in (
        (["curves", file], str(file)),
        (["data", "mnits"], "mnits"),
        (["data", "shifting-bar:size=4"], "shifting-bar:size=4"),
        (["filters", tmp_path / "none.npz"], str(tmp_path / "none.npz")),
    ):
        said = cbm("plot", *words, *picture, code=2).stderr
        assert said.startswith(f"Error: {place}: ")


def test_the_data_of_a_machine_file_must_be_named(toys, tmp_path):
    cbm("export", toys["machine"].iloc[0], "-o", tmp_path / "own.npz")
    said = cbm("plot", "activity", tmp_path / "own.npz", "-o", tmp_path / "p.png", code=2)
    assert problems_of(said) == [(str(tmp_path / "own.npz"), "")]
    assert "--data" in said.stderr


def test_the_caption_is_said_and_the_description_of_the_file(results, tmp_path):
    said = cbm("plot", results, "curves", "toys", *SOME, "-o", tmp_path / "p.png").stderr
    about = Image.open(tmp_path / "p.png").info["Description"]
    assert about.startswith("Median over 3 trials, band: quartiles.")
    assert about in said
    figure, _ = figure_of("plot", results, "curves", "toys", *SOME)
    texts = [text.get_text() for text in figure.findobj(Text)]
    assert not any("trials" in text for text in texts)  # it is not in the picture


def test_a_title_replaces_that_of_a_panel_and_is_above_several(results):
    one = ["plot", results, "curves", "toys", *SOME]
    for words, titles, above in (
        ([], ["bars-and-stripes", "shifting-bar"], None),
        (["--title", "a $ b"], ["bars-and-stripes", "shifting-bar"], r"a \$ b"),
        (["--title", ""], ["", ""], None),
        (["--select", "data=shifting-bar", "--title", "Bar"], ["Bar"], None),
    ):
        figure, _ = figure_of(*one, *words)
        assert [title for title, _ in panels_of(figure)] == titles
        assert (figure.get_suptitle() or None) == above


def test_results_plot_in_a_notebook_shows_what_the_command_draws(results, tmp_path):
    frames = cbm_api.open_results(results)
    select = {"data": "shifting-bar", "learning_rate": [0.1, 0.05], "offsets": ["00", "aa^b"]}
    picture = frames.plot("curves", "toys", select=select, size="page", metric="weight_norm")
    words = "--select data=shifting-bar --select learning_rate=0.1,0.05 --select offsets=00,aa^b"
    words = [*words.split(), "--metric", "weight_norm", "--size", "page", "-o", tmp_path / "p.png"]
    cbm("plot", results, "curves", "toys", *words)
    assert picture._repr_png_() == (tmp_path / "p.png").read_bytes()
    assert (len(picture.figure.axes), "Median over 3 trials" in picture.caption) == (2, True)
    best = cbm("best", results, "toys").stdout.split()[0]
    for kind, name, options, told in (
        ("curvs", "toys", {}, "curvs|curves"),
        ("curves", "toys", {"size": "A4"}, "A4"),
        ("curves", "toys", {"metrik": "weight_norm"}, "metrik|metric"),
        ("filters", best, {"select": {"learning_rate": 0.1}}, "select"),
    ):
        assert holds(refusal(frames.plot, kind, name, **options), told)


def test_panels_in_which_a_name_looks_otherwise_have_their_own_legends(results):
    select = [("data", "shifting-bar"), ("offsets", "00"), ("learning_rate", "0.1")]
    metrics, names = ["weight_norm", "hidden_bias_norm"], ["weight", "hidden bias"]
    parts = [Options(select, metric=order, panels=[]) for order in (metrics, metrics[::-1])]
    panels = [it for part in parts for it in draw(Results(results), "curves", ["toys"], part)]
    figure = compose(panels).figure
    for (title, axes), order in zip(panels_of(figure), (names, names[::-1]), strict=True):
        assert title == ""
        assert [*curves_of(axes, legend_of(axes))] == [*legend_of(axes)] == order
        figure.draw_without_rendering()
        legend, name = axes.get_legend().get_window_extent(), axes.xaxis.label.get_window_extent()
        assert 0 <= legend.y0 < legend.y1 < name.y0
    assert not figure.legends


# One style, and texts that fit


def drawn_texts(figure):
    """The boxes of all texts that are drawn, by text."""
    FigureCanvasAgg(figure).draw()
    hidden = {text for axes in figure.axes if not axes.get_visible() for text in axes.findobj(Text)}
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        for tick in axis.get_major_ticks():
            if not (low <= tick.get_loc() <= high and axis.axes.axison):
                hidden |= {tick.label1, tick.label2}
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text not in hidden]
    return [
        (text.get_text(), text.get_window_extent()) for text in texts if text.get_text().strip()
    ]


RATE = "--select learning_rate=0.1"
LAID_OUT = ["finals toys --size page", f"finals toys {RATE} --size column"]
LAID_OUT += ["curves dbm-caltech-short --x gradient-steps --size page"]
BY_NIGHT = [f"curves toys --metric hidden_bias_norm {RATE} --select data=shifting-bar"]
BY_NIGHT += [f"curves toys --metric weight_norm --metric visible_bias_norm {RATE} --size column"]
BY_NIGHT += [f"filters toys {RATE} --size column"]


@pytest.mark.parametrize("words", [*LAID_OUT, *nightly(*BY_NIGHT)])
def test_texts_lie_within_the_figure_and_apart(results, words):
    figure, _ = figure_of("plot", results, *words.split())
    texts, whole = drawn_texts(figure), figure.bbox
    assert len(texts) > 5
    for text, box in texts:
        assert whole.x0 - 1 < box.x0 < box.x1 < whole.x1 + 1, text
        assert whole.y0 - 1 < box.y0 < box.y1 < whole.y1 + 1, text
    for (text, one), (other, two) in combinations(texts, 2):
        across = min(one.x1, two.x1) - max(one.x0, two.x0)
        down = min(one.y1, two.y1) - max(one.y0, two.y0)
        assert min(across, down) < 1, (text, other)


@pytest.mark.parametrize("kind", ["report", *nightly("filters", "process")])
def test_a_users_own_style_and_backend_change_no_picture(results, tmp_path, monkeypatch, kind):
    rules = {"lines.linewidth": 9, "axes.facecolor": "red", "image.origin": "lower"}
    rules |= {"savefig.bbox": "tight", "savefig.transparent": True, "savefig.dpi": 30}
    rules |= {"axes.grid": True, "text.usetex": True}
    call = ["plot", results, kind.replace("process", "curves"), "toys", "-o", "p.png", *SOME]
    call = ["report", results, "toys", "-o", "page.html"] if kind == "report" else call
    written = []
    for own in ({}, rules):
        folder = tmp_path / f"run{len(written)}"
        folder.mkdir()
        monkeypatch.chdir(folder)
        if own and kind == "process":
            lines = [f"{key}: {value}" for key, value in own.items()]
            (folder / "matplotlibrc").write_text("\n".join(lines))
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
def test_filters_are_of_the_first_trial_that_did_not_diverge(
    results, toys, monkeypatch, diverged, trials
):
    summary = Store.summary

    def some_diverged(store):
        rows = summary(store)
        places = zip(rows["offsets"].astype(str).replace("0", "00"), rows["trial"], strict=True)
        return rows.assign(diverged=[20.0 if place in diverged else np.nan for place in places])

    monkeypatch.setattr(Store, "summary", some_diverged)
    bars = "--select", "data=bars-and-stripes"
    figure, _ = figure_of("plot", results, "filters", "toys", *SOME, *bars)
    for (title, axes), scheme, trial in zip(panels_of(figure), NAMES, trials, strict=True):
        its = machine(toys, trial, data="bars-and-stripes", offsets=scheme)
        assert_allclose(shown(axes, 2, 2)[:3], grey(its["weights_0"].T), atol=1e-6)
        assert title == NAMES[scheme] + f", trial {trial}" * bool(trial)
    assert "the first trial that did not diverge" in caption_of(figure)


def test_trials_that_have_all_diverged_have_no_machine_to_show(results, toys, monkeypatch):
    summary = Store.summary
    monkeypatch.setattr(Store, "summary", lambda store: summary(store).assign(diverged=20.0))
    said = cbm("plot", results, "filters", "toys", "-o", "p.png", code=3)
    assert problems_of(said) == [(toys["run_id"].iloc[0], "")]
