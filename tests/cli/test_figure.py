"""Pictures of every kind, compared with the files of real results."""

import shutil
from itertools import combinations, product

import cbm_cli
import numpy as np
import pytest
from cbm_cli.report import learned
from cbm_cli.results import Results, Store
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.text import Text
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image

from tests import pictures as seen
from tests.builders import cbm, holds, problems_of, refusal, run_grid
from tests.journals import put_machine
from tests.processes import start_cbm

GRID = """
defaults: {trials: 3, seed: 5, model: {kind: rbm, hidden: 3}, batch: full, updates: 20}
experiments:
  toys: {data: [{name: bars-and-stripes, size: 2}, {name: shifting-bar, size: 4, bar: 1}],
    offsets: [00, dd^b_s, aa^b], sampler: CD-1, learning_rate: [0.1, 0.05], table: {scale: total},
    evaluate: {method: exact, every: 10}, record: {what: weight_norms+bias_norms, every: 10}}
  deep: {data: {path: rows.npy}, model: {kind: dbm, hidden: [4, 3]}, trials: 1, offsets: 000,
    sampler: PCD-1, learning_rate: 0.1, batch: 4, evaluate: none}
"""
BARS = ["0000", "1100", "0011", "1111", "0000", "1010", "0101", "1111"]
SETS = {
    "bars-and-stripes": np.array([[*map(int, row)] for row in BARS]),
    "shifting-bar": np.eye(4),
}
SHAPES = {"bars-and-stripes": (2, 2), "shifting-bar": (1, 4)}
NAMES = {"00": r"$\mathit{00}$", "dd^b_s": "$dd^{b}_{s}$", "aa^b": "$aa^{b}$"}
COLOURS = "#000000", "#009e73", "#d55e00"
SOME, ON_BARS = ["--select", "learning_rate=0.1"], ["--select", "data=bars-and-stripes"]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures")
    np.save(folder / "rows.npy", np.eye(4))
    return run_grid(GRID, "toys", "deep", folder=folder)


@pytest.fixture(scope="module")
def toys(results):
    return seen.trials_of(results, "toys")


def chosen(trials, learning_rate=0.1, **settings):
    """Rows of the trials with these settings."""
    for column, value in {"learning_rate": learning_rate, **settings}.items():
        trials = trials[trials[column] == value]
    return trials


def machine(trials, trial=0, **settings):
    return seen.weights_of(chosen(trials, trial=trial, **settings)["machine"].iloc[0])


def activities(machine, rows):
    """Mean activities of the hidden units, in decreasing order."""
    inputs = (rows - machine["offsets_0"]) @ machine["weights_0"] + machine["biases_1"]
    return np.sort((1 / (1 + np.exp(-inputs))).mean(axis=0))[::-1]


def tiles(axes, height, width):
    """The small pictures of axes, which show 0 as black and 1 as white."""
    (image,) = axes.images
    assert (image.get_clim(), image.cmap.name) == ((0, 1), "gray")
    return seen.tiles_of(image.get_array(), height, width, 20 // max(height, width))


def test_curves_of_a_record_are_those_of_the_files(results, toys):
    figure, _ = seen.figure_of(
        "plot", results, "curves", "toys", *SOME, "--metric", "weight_norm"
    )
    for (title, axes), data in zip(seen.panels_of(figure), SETS, strict=True):
        assert title == data
        curves = seen.curves_of(axes, seen.legend_of(figure))
        for scheme, name in NAMES.items():
            own = chosen(toys, data=data, offsets=scheme)
            table = own.pivot_table("weight_norm", "update", "trial")
            assert_allclose(curves[name].line, table.median(axis=1))
            assert_allclose(curves[name].band, table.quantile([0.25, 0.75], axis=1).T)


def test_finals_are_the_best_and_the_last_value_of_each_trial(results, toys):
    figure, _ = seen.figure_of("plot", results, "finals", "toys", *SOME)
    for (title, axes), data in zip(seen.panels_of(figure), SETS, strict=True):
        assert title == data
        assert seen.ticks_of(axes.xaxis) == dict(enumerate(NAMES.values()))
        dots, bars = iter(axes.collections), iter(axes.lines)
        for (place, scheme), end in product(enumerate(NAMES), ("max", "last")):
            own = chosen(toys[toys["update"] > 0], data=data, offsets=scheme)
            found = own.groupby("trial")["train_log_likelihood"].agg(end) * len(
                SETS[data]
            )
            side = place + 0.38 * (end == "last") - 0.19
            cloud, spread, median = next(dots), next(bars), next(bars)
            assert_allclose(cloud.get_offsets()[:, 1], found)
            assert_allclose(cloud.get_offsets()[:, 0], side, atol=0.1001)
            assert to_hex(cloud.get_edgecolor()[0]) == COLOURS[place]
            assert (cloud.get_facecolor()[0, 3] == 1) == (end == "last")
            assert_allclose(spread.get_ydata(), found.quantile([0.25, 0.75]))
            assert_allclose(median.get_ydata(), found.median())
            assert (
                np.mean(median.get_xdata())
                == pytest.approx(side)
                == spread.get_xdata()[0]
            )


def test_filters_are_the_weights_of_each_unit_normalised(results, toys, monkeypatch):
    figure, _ = seen.figure_of("plot", results, "filters", "toys", *SOME)
    cells = product(SETS, NAMES)
    for (title, axes), (data, scheme) in zip(
        seen.panels_of(figure), cells, strict=True
    ):
        assert title == f"{data}, {NAMES[scheme]}"
        expected = seen.grey(machine(toys, data=data, offsets=scheme)["weights_0"].T)
        assert_allclose(tiles(axes, *SHAPES[data])[:3], expected, atol=1e-6)
    monkeypatch.setattr(
        learned, "SHOWN", 2
    )  # of a second layer: projected, two at random
    figure, said = seen.figure_of("plot", results, "filters", "deep", "--layer", 2)
    assert "at random" in said
    its = seen.weights_of(seen.trials_of(results, "deep")["machine"].iloc[0])
    ((_, axes),) = seen.panels_of(figure)
    expected, found = (
        seen.grey((its["weights_0"] @ its["weights_1"]).T),
        tiles(axes, 2, 2)[:2],
    )
    nearest = [int(np.abs(expected - tile).sum(axis=1).argmin()) for tile in found]
    assert nearest == sorted({*nearest})
    assert_allclose(found, expected[nearest], atol=1e-5)


def test_activity_is_the_mean_over_the_training_rows_in_decreasing_order(results, toys):
    figure, _ = seen.figure_of("plot", results, "activity", "toys", *SOME)
    looks = seen.legend_of(figure)
    for (title, axes), data in zip(seen.panels_of(figure), SETS, strict=True):
        drawn = {
            seen.look_of(line, line): line
            for line in axes.lines
            if len(line.get_xdata()) > 2
        }
        assert title == data
        assert [*drawn] == [*looks.values()]
        assert {*seen.bounds_of(axes)} == {0.05, 0.95}
        assert (*axes.get_xlim(), *axes.get_ylim()) == pytest.approx(
            (0, 1, -0.02, 1.02)
        )
        for scheme, name in NAMES.items():
            means = activities(machine(toys, data=data, offsets=scheme), SETS[data])
            line = drawn[looks[name]]
            assert_allclose(
                line.get_xydata(), np.c_[[1 / 6, 1 / 2, 5 / 6], means], atol=1e-5
            )


def test_samples_are_of_each_cells_machine(results, toys, tmp_path):
    """Machines without weights, whose biases leave one state each."""
    store = Results(shutil.copytree(results, tmp_path / "copy")).store("toys")
    for scheme, state in zip(NAMES, np.eye(4), strict=False):
        own = chosen(toys, data="bars-and-stripes", offsets=scheme)
        arrays = {name: 0 * array for name, array in machine(own).items()}
        arrays |= {"kind": np.array("rbm"), "biases_0": 60 * state - 30}
        put_machine(store, own["run_id"].iloc[0], 0, arrays)
    figure, _ = seen.figure_of(
        "plot", tmp_path / "copy", "samples", "toys", *SOME, *ON_BARS
    )
    drawn = zip(seen.panels_of(figure), NAMES.values(), np.eye(4)[:3], strict=True)
    for (title, axes), name, state in drawn:
        assert title == name
        assert_array_equal(tiles(axes, 2, 2), [state] * 100)


def test_rows_of_data_sets_are_drawn_in_order(monkeypatch):
    monkeypatch.setattr(learned, "SHOWN", 5)
    sets = "bars-and-stripes:size=2", "shifting-bar:size=4,bar=1"
    figure, _ = seen.figure_of("plot", "data", *sets)
    for (title, axes), (data, rows) in zip(
        seen.panels_of(figure), SETS.items(), strict=True
    ):
        assert title.startswith(data)
        assert seen.numbers_in(title) == [f"{min(5, len(rows))}", f"{len(rows)}"]
        assert_array_equal(tiles(axes, *SHAPES[data])[: len(rows[:5])], rows[:5])


def test_grey_rows_are_drawn_as_shares_of_white(tmp_path):
    np.save(tmp_path / "grey.npy", np.array([[0, 51, 102, 255]], np.uint8))
    source = f"{tmp_path / 'grey.npy'}:binarise=none,scale=255"
    figure, _ = seen.figure_of("plot", "data", source)
    assert_allclose(tiles(figure.axes[0], 2, 2), [[0, 0.2, 0.4, 1]])


@pytest.mark.parametrize("is_own", [False, True])
def test_a_machine_is_drawn_by_its_name_or_file(results, toys, tmp_path, is_own):
    path = chosen(toys, data="shifting-bar", trial=1, offsets="aa^b")["machine"].iloc[0]
    where, data = [results, path.rpartition("/")[2]], []
    title = "own" if is_own else r"shifting-bar, $\eta$ = 0.1, $aa^{b}$, trial 1"
    if is_own:
        cbm("export", path, "-o", tmp_path / "own.npz")
        where = [(tmp_path / "own.npz").rename(tmp_path / "own")]
        data = ["--data", "shifting-bar:size=4,bar=1"]
    drawn = {}
    for kind in ("filters", "activity", "samples"):
        figure, _ = seen.figure_of("plot", *where[:-1], kind, where[-1], *data)
        ((told, drawn[kind]),) = seen.panels_of(figure)
        assert told == title or kind != "filters"
        assert not figure.legends  # of one machine
    weights = seen.weights_of(path)
    expected = seen.grey(weights["weights_0"].T)
    assert_allclose(tiles(drawn["filters"], 1, 4)[:3], expected, atol=1e-6)
    means = activities(weights, SETS["shifting-bar"])
    assert_allclose(drawn["activity"].lines[0].get_ydata(), means, atol=1e-5)
    assert drawn["samples"].images


def test_single_trials_are_drawn_by_their_names(results, toys):
    own = chosen(toys, data="shifting-bar")
    trials = [
        chosen(own, offsets=scheme, trial=n) for scheme, n in (("00", 1), ("aa^b", 2))
    ]
    figure, _ = seen.figure_of(
        "plot", "curves", *(its["machine"].iloc[0] for its in trials)
    )
    ((_, axes),) = seen.panels_of(figure)
    curves = seen.curves_of(axes, seen.legend_of(figure))
    assert seen.numbers_in(figure.caption) == [
        "5.545"
    ]  # the bound, no number of trials
    assert [*curves] == [NAMES["00"], NAMES["aa^b"]]
    for curve, its in zip(curves.values(), trials, strict=True):
        assert_allclose(curve.line, 4 * its["train_log_likelihood"])
        assert curve.band is None
    run_id = trials[0]["run_id"].iloc[0]
    said = cbm("plot", results, "curves", f"{run_id}:9", "-o", "p.png", code=3)
    assert problems_of(said) == [("toys", "")]


def test_the_caption_is_said_and_in_the_file(results, tmp_path):
    said = cbm(
        "plot", results, "curves", "toys", *SOME, "-o", tmp_path / "p.png"
    ).stderr
    about = Image.open(tmp_path / "p.png").info["Description"]
    assert about.startswith("Median over 3 trials, band: quartiles.")
    assert about in said


@pytest.mark.parametrize(
    ("words", "titles", "above"),
    [
        (["--title", "a $ b"], [*SETS], r"a \$ b"),
        (["--title", ""], ["", ""], ""),
        ([*ON_BARS, "--title", "Bar"], ["Bar"], ""),
    ],
)
def test_a_title_replaces_that_of_a_panel_and_is_above_several(
    results, words, titles, above
):
    figure, _ = seen.figure_of("plot", results, "activity", "toys", *SOME, *words)
    assert [title for title, _ in seen.panels_of(figure)] == titles
    assert figure.get_suptitle() == above


def test_results_plot_in_a_notebook_shows_what_the_command_draws(results, tmp_path):
    frames = cbm_cli.open_results(results)
    select = {"learning_rate": 0.1, "offsets": ["00", "aa^b"]}
    picture = frames.plot(
        "curves", "toys", select=select, size="page", metric="weight_norm"
    )
    words = [
        *SOME,
        "--select",
        "offsets=00,aa^b",
        "--metric",
        "weight_norm",
        "--size",
        "page",
    ]
    cbm("plot", results, "curves", "toys", *words, "-o", tmp_path / "p.png")
    assert picture._repr_png_() == (tmp_path / "p.png").read_bytes()
    for words, options, told in (
        (("curvs", "toys"), {}, "curvs|curves"),
        (("curves", "toys"), {"size": "A4"}, "A4"),
        (("filters", "rbm-3_00:0"), {"select": {"learning_rate": 0.1}}, "select"),
    ):
        assert holds(refusal(frames.plot, *words, **options), told)


LAID_OUT = [
    "finals toys --size page",
    "filters toys --select learning_rate=0.1 --size column",
]
LAID_OUT += ["curves toys --metric weight_norm --metric visible_bias_norm --size 6.5x5"]


@pytest.mark.parametrize("words", LAID_OUT)
def test_texts_lie_within_the_figure_and_apart(results, words):
    figure, _ = seen.figure_of("plot", results, *words.split())
    FigureCanvasAgg(figure).draw()
    hidden = {
        text
        for axes in figure.axes
        if not axes.get_visible()
        for text in axes.findobj(Text)
    }
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        for tick in axis.get_major_ticks():
            if not (low <= tick.get_loc() <= high and axis.axes.axison):
                hidden |= {tick.label1, tick.label2}
    texts = [
        text
        for text in figure.findobj(Text)
        if text.get_visible() and text not in hidden
    ]
    boxes = [
        (it.get_text(), it.get_window_extent()) for it in texts if it.get_text().strip()
    ]
    assert len(boxes) > 5
    for text, box in boxes:
        assert -1 < box.x0 < box.x1 < figure.bbox.x1 + 1, text
        assert -1 < box.y0 < box.y1 < figure.bbox.y1 + 1, text
    for (text, one), (other, two) in combinations(boxes, 2):
        apart = max(one.x0, two.x0) > min(one.x1, two.x1) - 1
        assert apart or max(one.y0, two.y0) > min(one.y1, two.y1) - 1, (text, other)


def test_a_users_own_style_and_a_missing_backend_change_no_picture(results, tmp_path):
    style = (
        "lines.linewidth: 9|axes.facecolor: red|image.origin: lower|axes.grid: True|"
    )
    style += (
        "savefig.bbox: tight|savefig.transparent: True|savefig.dpi: "
        "30|text.usetex: True"
    )
    (tmp_path / "matplotlibrc").write_text(style.replace("|", "\n"))
    backend = {"MPLBACKEND": "no_such_backend"}
    report, filters = (
        ("report", results, "toys", "-o"),
        ("plot", results, "filters", "toys", "-o"),
    )
    for name, words in (("page.html", report), ("filters.png", filters)):
        cbm(*words, tmp_path / f"here-{name}")
        process = start_cbm(*words, name, cwd=tmp_path, env=backend)
        assert process.wait(60) == 0, process.stderr.read()
        assert (tmp_path / name).read_bytes() == (
            tmp_path / f"here-{name}"
        ).read_bytes()


def test_filters_are_of_the_first_trial_that_did_not_diverge(
    results, toys, monkeypatch
):
    summary, words = (
        Store.summary,
        ["plot", results, "filters", "toys", *SOME, *ON_BARS],
    )
    diverged = {0: 20.0, 1: 20.0}

    def some_diverged(store):
        rows = summary(store)
        return rows.assign(diverged=rows["trial"].map(diverged))

    monkeypatch.setattr(Store, "summary", some_diverged)
    figure, _ = seen.figure_of(*words)
    for (title, axes), scheme in zip(seen.panels_of(figure), NAMES, strict=True):
        its = machine(toys, 2, data="bars-and-stripes", offsets=scheme)
        assert_allclose(tiles(axes, 2, 2)[:3], seen.grey(its["weights_0"].T), atol=1e-6)
        assert title == f"{NAMES[scheme]}, trial 2"
    assert "the first trial that did not diverge" in figure.caption
    diverged[2] = 20.0
    place = chosen(toys, data="bars-and-stripes")["run_id"].iloc[0]
    assert problems_of(cbm(*words, "-o", "p.png", code=3)) == [(place, "")]


def test_columns_of_a_file_are_put_into_the_order_of_the_machines_names(toys, tmp_path):
    """The first column of the file is the last visible unit."""
    arrays = machine(toys, data="shifting-bar", offsets="aa^b")
    arrays |= {"kind": np.array("rbm"), "names": np.array(["a", "b", "c", "d"])}
    np.savez(tmp_path / "named.npz", **arrays)
    rows = np.array([[0, 0, 0, 1], [0, 0, 1, 1], [1, 0, 1, 1]])
    lines = ["d,c,b,a", *(",".join(map(str, row[::-1])) for row in rows)]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    words = ["--data", tmp_path / "rows.csv"]
    figure, _ = seen.figure_of("plot", "activity", tmp_path / "named.npz", *words)
    ((_, axes),) = seen.panels_of(figure)
    assert_allclose(axes.lines[0].get_ydata(), activities(arrays, rows), atol=1e-5)


def test_more_machines_than_panels_that_can_be_read_are_refused(toys, tmp_path):
    path = chosen(toys, data="shifting-bar", offsets="aa^b")["machine"].iloc[0]
    cbm("export", path, "-o", tmp_path / "0.npz")
    names = [tmp_path / f"{place}.npz" for place in range(25)]
    for name in names[1:]:
        shutil.copy(names[0], name)
    for kind, given in (("filters", names), ("data", ["shifting-bar"] * 25)):
        said = cbm("plot", kind, *given, "-o", "p.png", code=2).output
        assert "25 panels are too many to read (at most 24)" in said
