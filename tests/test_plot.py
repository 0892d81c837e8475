"""Learning curves: what is drawn, for hand-made results."""

from math import nan

import numpy as np
import pandas as pd
import pytest

from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.report import plot_curves
from cbm_cli.report.chosen import Options
from cbm_cli.report.curves import COLOURS, curves_drawing, curves_figure, places_of_marks
from cbm_cli.report.panels import Page, compose
from cbm_cli.report.series import _running_mean
from cbm_cli.report.style import SCHEMES, looks_of, scheme_look
from cbm_cli.results import Results
from tests.builders import cbm

UPDATES = np.arange(0, 1001, 50)


class HandMade:
    """Results of one experiment, each cell with a function from (update, trial) to nats per sample."""

    def __init__(
        self, cells, trials=4, bounds=None, records=None, lengths=None, diverged=(), effective=None, **table
    ):
        self.cells = {cell["run_id"]: cell for cell in cells}
        self.values = {cell["run_id"]: cell.pop("values") for cell in cells}
        self.trials, self.bounds = trials, bounds
        self.recorded, self.lengths, self.diverged = records or {}, lengths or {}, diverged
        self.effective = effective
        layout = {"rows": ["sampler", "learning_rate"], "columns": ["offsets"], "groups": ["data"]}
        self.table = layout | {"scale": "total", "metric": "train_log_likelihood"} | table
        self.column = "test_cost" if self.table["metric"] == "test_cost" else "train_log_likelihood"

    def reader(self, _):
        return self

    def manifest(self):
        return {"table": self.table, "cells": list(self.cells.values()), "upper_bounds": self.bounds}

    def runs(self):
        return set(self.cells)

    def unfinished(self, run_id):
        return {0, 1}, {2}

    def summary(self):
        known = [(run_id, trial) for run_id in self.cells for trial in range(self.trials)]
        frame = pd.DataFrame(known, columns=["run_id", "trial"])
        diverged = [500.0 if trial in self.diverged else nan for trial in frame["trial"]]
        frame = frame.assign(evaluate_runs=40, evaluate_method="ais" if self.effective else "exact")
        return frame.assign(n_train=16, diverged=diverged, **{f"{self.column}_final": 0.0})

    def curve(self, run_id, trial):
        updates = UPDATES[: self.lengths.get(trial)]
        values = [self.values[run_id](update, trial) for update in updates]
        curve = pd.DataFrame({"update": updates, "epoch": updates, self.column: values})
        return curve.assign(effective_sample_size=self.effective(updates)) if self.effective else curve

    def curves(self, run_id, trials):
        return [self.curve(run_id, trial) for trial in trials]

    def records(self, run_id, trial):
        columns = {name: [f(update, trial) for update in UPDATES] for name, f in self.recorded.items()}
        return pd.DataFrame({"update": UPDATES, **columns} if columns else {"update": []})


def rising(top=-3.0):
    """From -6 towards ``top``; trials 0 to 3 lie 0, 0.1, 0.2 and 0.7 above."""
    return lambda update, trial: top - (top + 6) * np.exp(-update / 100) + [0, 0.1, 0.2, 0.7][trial % 4]


def cell(offsets="00", sampler="CD-1", learning_rate=0.1, data="bars-and-stripes", values=None, **more):
    run_id = f"{data}/{sampler}/{learning_rate}/{offsets}/{more}"
    settings = {"data": data, "sampler": sampler, "learning_rate": learning_rate, "offsets": offsets}
    return {"run_id": run_id, **settings, "init": "zero", "values": values or rising(), **more}


def grid(schemes=("aa^b", "00"), samplers=("CD-1", "PT_10"), rates=(0.1, 0.05), **more):
    return [cell(o, s, r, **more) for s in samplers for r in rates for o in schemes]


def visible(figure):
    return [axes for axes in figure.axes if axes.get_visible()]


def titles(figure):
    return [axes.get_title() for axes in visible(figure)]


def means(axes):
    """The drawn mean curves, without the bound."""
    return [line for line in axes.lines if len(line.get_xdata()) == len(UPDATES)]


def marks(axes):
    """The markers of the mean curves."""
    return [line for line in axes.lines if line.get_linestyle() == "None"]


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def ylabel(figure):
    return visible(figure)[0].get_ylabel()


def caption(figure):
    return figure.legends[0].get_title().get_text().replace("\n", " ")


def test_one_panel_per_sampler_and_rate_and_one_line_per_scheme():
    figure = curves_figure(HandMade(grid()), "e")
    samplers, rates = ("CD-1", r"PT$_{10}$"), (r"$\eta$ = 0.1", r"$\eta$ = 0.05")
    assert titles(figure) == [f"{sampler}, {rate}" for sampler in samplers for rate in rates]
    assert [len(means(axes)) for axes in visible(figure)] == [2, 2, 2, 2]
    assert legend(figure) == ["$aa^{b}$", r"$\mathit{00}$"]


def test_line_is_the_median_and_band_the_quartiles_in_the_scale_of_the_table():
    (axes,) = visible(curves_figure(HandMade([cell()]), "e"))
    base = np.array([rising()(update, 0) for update in UPDATES])
    (line,) = means(axes)
    np.testing.assert_allclose(line.get_ydata(), 16 * (base + 0.15))  # median of 0, 0.1, 0.2, 0.7
    (band,) = axes.collections
    last = band.get_paths()[0].vertices
    last = last[last[:, 0] == 1000][:, 1]
    np.testing.assert_allclose((last.min(), last.max()), 16 * (base[-1] + np.array([0.075, 0.325])))
    (axes,) = visible(curves_figure(HandMade([cell()], scale="per-sample"), "e"))
    np.testing.assert_allclose(means(axes)[0].get_ydata(), base + 0.15)


@pytest.mark.parametrize("band", [None, "quartiles", "std", "sem", "trials"])
@pytest.mark.parametrize("seed", range(5))
def test_the_line_lies_within_its_band(band, seed):
    """Trials with rare and deep falls: their mean is below their first quartile."""
    random = np.random.default_rng(seed)
    values = {
        (u, t): -3 - 100 * (random.random() < 0.15) + random.random() for u in UPDATES for t in range(9)
    }
    results = HandMade([cell(values=lambda *place: values[place])], trials=9, scale="per-sample")
    figure = curves_figure(results, "e", band=band, ylim=None)
    (axes,) = visible(figure)
    line = means(axes)[-1].get_ydata()
    trials = np.array([[values[u, t] for t in range(9)] for u in UPDATES])
    if band == "trials":
        low, high = trials.min(axis=1), trials.max(axis=1)
    else:
        corners = axes.collections[0].get_paths()[0].vertices
        low, high = ([f(corners[corners[:, 0] == u][:, 1]) for u in UPDATES] for f in (min, max))
    assert (low <= line + 1e-12).all()
    assert (line - 1e-12 <= high).all()
    word = "median" if band in (None, "quartiles") else "mean"
    np.testing.assert_allclose(line, getattr(np, word)(trials, axis=1))
    assert f"line: {word} over 9 trials" in caption(figure)


def test_upper_bound_is_a_dashed_line_within_the_axes():
    figure = curves_figure(HandMade([cell()], bounds={"bars-and-stripes": -2.6}), "e")
    (axes,) = visible(figure)
    (bound,) = [line for line in axes.lines if line not in means(axes) + marks(axes)]
    np.testing.assert_allclose(bound.get_ydata(), 16 * -2.6)
    assert axes.get_ylim()[0] < 16 * -2.6 < axes.get_ylim()[1]
    assert legend(figure)[-1] == "upper bound"


def test_a_diverging_curve_does_not_flatten_the_others():
    def diverging(update, trial):
        return rising()(update, trial) - max(0, update - 500) ** 2 / 100

    calm = [cell(scheme) for scheme in ("dd^b", "d0", "00")]
    figure = curves_figure(HandMade([*calm, cell("aa^b", values=diverging)]), "e")
    low, high = visible(figure)[0].get_ylim()
    assert 16 * diverging(1000, 0) < 10 * low  # far below what is shown
    assert high - low < 16 * 10
    assert "y axis cut" in caption(figure)
    straight = cell(values=lambda update, trial: update / 1000 - trial)
    assert "y axis cut" not in caption(curves_figure(HandMade([straight]), "e"))


def test_diverged_trials_are_said_and_their_curve_goes_on_with_the_others():
    def stopping(update, trial):
        return nan if trial == 3 and update > 500 else -4.0 - trial

    figure = curves_figure(HandMade([cell(values=stopping)], diverged=[3]), "e")
    (line,) = means(visible(figure)[0])
    assert line.get_ydata()[0] == pytest.approx(16 * -5.5)
    assert line.get_ydata()[-1] == pytest.approx(16 * -5.0)
    assert "1 diverged" in caption(figure)
    assert "without a value" not in caption(figure)


def test_estimates_that_rest_on_few_runs_of_ais_are_counted():
    def effective(update):
        return np.where(update > 900, 3.9, 4.0)  # of 40 runs

    exact, estimated = (curves_figure(HandMade([cell()], effective=f), "e") for f in (None, effective))
    assert "AIS" not in caption(exact)
    assert "AIS: 8 of 84 estimates rest on fewer than a tenth of its runs" in caption(estimated)
    norms = {"weight_norm": lambda update, trial: 1.0 * update}
    recorded = HandMade([cell()], effective=effective, records=norms)
    assert "AIS" not in caption(curves_figure(recorded, "e", metric=["weight_norm"]))


def test_a_trial_at_the_optimum_has_no_angle_and_did_not_diverge():
    angles = ["angle_natural_centered", "angle_natural_standard"]
    angle = dict.fromkeys(angles, lambda update, trial: nan if trial == 3 and update > 500 else 10.0)
    figure = curves_figure(HandMade([cell()], records=angle), "e", metric=angles)
    assert "diverged" not in caption(figure)
    assert "1 trial without a value at some updates" in caption(figure)  # one, of two metrics


def test_a_scheme_keeps_its_colour_and_its_variants_differ_by_dashes():
    one = curves_figure(HandMade([cell("dd^l_s"), cell("dd^b_s"), cell("00")]), "e")
    other = curves_figure(HandMade([cell("aa^b"), cell("dd^l_s")]), "e")
    first, second, normal = means(visible(one)[0])
    assert first.get_color() == second.get_color() == COLOURS["dd"]
    assert scheme_look("dd^l_s")["linestyle"] != scheme_look("dd^b_s")["linestyle"]
    markers = [line.get_marker() for line in marks(visible(one)[0])]
    assert markers == ["o", "o", "s"]
    assert normal.get_color() == COLOURS["00"]
    assert means(visible(other)[0])[1].get_color() == COLOURS["dd"]
    assert len(set(COLOURS.values())) == len(COLOURS)


def test_settings_that_follow_from_the_panel_make_no_panels_of_their_own():
    cells = [
        cell(o, data=d, learning_rate=r, data_flip=f, init=i)
        for d, r, f in (("bars-and-stripes", 0.1, False), ("flipped-shifting-bar", 0.2, True))
        for o, i in (("00", "zero"), ("aa^b", "inverse-sigmoid"))
    ]
    figure = curves_figure(HandMade(cells), "e")
    assert titles(figure) == ["bars-and-stripes", "flipped-shifting-bar"]


def test_schemes_are_lines_and_data_sets_panels_where_the_table_has_schemes_in_its_rows():
    sets = (("bars", 0.05), ("shifting", 0.1))
    cells = [cell(o, data=d, learning_rate=r) for d, r in sets for o in ("00", "aa^b")]
    layout = {"rows": ["offsets"], "columns": ["sampler", "learning_rate"]}
    figure = curves_figure(HandMade(cells, **layout), "e")
    assert titles(figure) == ["bars", "shifting"]
    assert [len(means(axes)) for axes in visible(figure)] == [2, 2]
    assert legend(figure) == [r"$\mathit{00}$", "$aa^{b}$"]


def test_rows_are_lines_where_no_column_of_the_table_varies():
    cells = [cell(learning_rate=r, gradient=g) for g in ("natural", "standard") for r in (0.1, 1.0)]
    layout = {"rows": ["gradient", "learning_rate"], "columns": ["sampler"]}
    figure = curves_figure(HandMade(cells, **layout), "e")
    assert [len(means(axes)) for axes in visible(figure)] == [4]
    assert legend(figure)[0] == r"gradient natural, $\eta$ = 0.1"


@pytest.mark.parametrize(("number", "long"), [(1, True), (4, True), (11, False), (11, True)])
def test_legend_and_caption_lie_within_the_figure(number, long):
    schemes = ["dd^b", "aa^b", "mm^b", "dm^b", "md^b", "d0", "m0^b", "0d", "0m^b", "hh^b", "rr^b"][:number]
    more = {"gradient_scale_to": "standard", "gradient_kind": "natural"} if long else {}
    cells = [cell(o, **more) for o in schemes]
    more = {"bounds": {"bars-and-stripes": -2.6}, "columns": ["offsets", *more]}
    figure = curves_figure(HandMade(cells, diverged=[0], lengths={1: 5}, **more), "e")
    figure.draw_without_rendering()
    boxes = [figure.legends[0].get_window_extent(), figure.legends[0].get_title().get_window_extent()]
    for box in boxes:
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0
    assert len({line.get_color() for line in visible(figure)[0].lines[:-1]}) == number


def test_select_keeps_what_it_names():
    figure = curves_figure(HandMade(grid()), "e", select=[("learning_rate", "0.05"), ("sampler", "PT_10")])
    assert titles(figure) == [""]
    rates = HandMade(grid(rates=(0.1, 0.05, 0.01), model_hidden=4))
    select = [("learning_rate", "0.05"), ("hidden", "4"), ("learning_rate", "0.1")]
    figure = curves_figure(rates, "e", select=select)
    assert [title.split()[-1] for title in titles(figure)] == ["0.1", "0.05"] * 2


@pytest.mark.parametrize(
    ("select", "words"),
    [
        ([("sampler", "PCD-1")], "--select sampler=PCD-1: no such value; there are CD-1, PT_10"),
        ([("sampler", "CD-1"), ("sampler", "x")], "--select sampler=x: no such value"),
        ([("smapler", "CD-1")], "--select smapler: no such column; did you mean sampler"),
        ([], "26 panels are too many .* --select sampler=CD-1"),
    ],
)
def test_what_cannot_be_selected_or_read_is_said(select, words):
    results = HandMade(grid(rates=[0.01 * i for i in range(1, 14)]))
    with pytest.raises(CbmError, match=words):
        curves_figure(results, "e", select=select)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"trials": 0},
            "no finished trial yet .2 trials unfinished, running or interrupted, 1 failed.*cbm run",
        ),
        ({"metric": "test_log_likelihood"}, "hold no test_log_likelihood"),
        ({"values": lambda update, trial: nan}, "train_log_likelihood has no finite value to draw"),
    ],
)
def test_nothing_to_draw_is_said(options, words):
    with pytest.raises(IncompleteError, match=words):
        curves_figure(HandMade([cell(values=options.pop("values", None))], **options), "e")


@pytest.mark.parametrize(("suffix", "start"), [(".PNG", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml")])
def test_suffix_decides_the_format_and_bytes_are_reproducible(tmp_path, suffix, start):
    one, two = tmp_path / f"one{suffix}", tmp_path / f"two{suffix}"
    for path in (one, two):
        plot_curves(HandMade([cell()]), "e", path)
    assert one.read_bytes().startswith(start)
    assert one.read_bytes() == two.read_bytes()


def offset_error(update, trial):
    return [1.0, 2.0, 3.0, 6.0][trial] + update / 1000


def test_what_was_recorded_is_drawn_as_mean_and_standard_deviation_in_no_scale():
    records, bounds = {"hidden_offset_error": offset_error}, {"bars-and-stripes": 0}
    results = HandMade([cell()], records=records, bounds=bounds)
    figure = curves_figure(results, "e", metric=["hidden_offset_error"])
    (axes,) = visible(figure)
    line, _ = axes.lines  # its markers, and no upper bound
    np.testing.assert_allclose(line.get_ydata(), 3 + UPDATES / 1000)
    (band,) = axes.collections
    first = band.get_paths()[0].vertices
    first = first[first[:, 0] == 0][:, 1]
    deviation = np.sqrt((4 + 1 + 0 + 9) / 3)
    np.testing.assert_allclose((first.min(), first.max()), (3 - deviation, 3 + deviation))
    assert ylabel(figure) == "hidden offset error"
    assert "band: standard deviation over trials" in caption(figure)
    angles = HandMade([cell()], records={"angle_natural_standard": offset_error})
    figure = curves_figure(angles, "e", metric=["angle_natural_standard"])
    assert ylabel(figure).split() == ["standard:", "angle", "to", "natural", "gradient", "(degrees)"]


def test_a_record_is_shown_whole_however_far_a_method_goes():
    norms = {"weight_norm": lambda update, trial: 1.0 if update < 1000 else 1000.0}
    figure = curves_figure(HandMade([cell()], records=norms), "e", metric=["weight_norm"])
    assert visible(figure)[0].get_ylim()[1] > 1000
    assert "cut" not in caption(figure)


def test_a_column_of_the_curve_may_be_named_and_another_metric_lists_them():
    results = HandMade([cell()], records={"weight_norm": offset_error})
    figure = curves_figure(results, "e", metric=["train_log_likelihood"])
    assert ylabel(figure) == "train log-likelihood (of all rows)"
    with pytest.raises(
        CbmError, match=r"--metric weight_norms: .*there are train_log_likelihood, weight_norm"
    ):
        curves_figure(results, "e", metric=["weight_norms"])


def falling(update, trial):
    return 0.5 + 100 * np.exp(-update / 100) + trial / 10


def test_a_cost_is_the_default_of_its_kind_and_cut_above():
    results = HandMade([cell("00", values=falling)], scale="per-sample", metric="test_cost")
    results.table["metric"] = None
    figure = curves_figure(results, "e")
    assert ylabel(figure) == "test cost (per row)"
    low, high = visible(figure)[0].get_ylim()
    assert low < 0.575  # where the band ends, at the first quartile
    assert 0.725 < high < 50  # and the third; the cost starts at 100
    assert "y axis cut: outliers above are not shown (more than 1.5 interquartile" in caption(figure)


def test_trials_that_stopped_early_keep_their_last_value():
    results = HandMade([cell(values=lambda update, trial: update * (trial + 1))], lengths={0: 11, 3: 6})
    figure = curves_figure(results, "e", band="std")
    (line,) = means(visible(figure)[0])
    assert line.get_ydata()[-1] == pytest.approx(16 * (500 + 2000 + 3000 + 4 * 250) / 4)
    assert "2 stopped before the others, held at the last value" in caption(figure)
    lost = HandMade([cell(values=falling)], lengths={0: 11}, diverged=[0])
    figure = curves_figure(lost, "e")
    (line,) = means(visible(figure)[0])
    assert line.get_ydata()[-1] == pytest.approx(16 * falling(1000, 2))  # the mean of trials 1, 2 and 3
    assert "1 diverged" in caption(figure)
    assert "stopped" not in caption(figure)


def test_a_deep_scheme_looks_like_that_of_two_layers():
    figure = curves_figure(HandMade([cell("000"), cell("ddd^b_s"), cell("aad^b")]), "e")
    normal, centered, other = means(visible(figure)[0])
    assert (normal.get_color(), centered.get_color()) == (COLOURS["00"], COLOURS["dd"])
    assert other.get_color() not in (COLOURS["00"], COLOURS["dd"], COLOURS["aa"])


def test_records_come_from_the_files_of_a_real_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "g.yaml").write_text(GRID)
    done = cbm("run", "g.yaml", "-j", "0")
    assert "norms: no table: nothing was evaluated" in done.output
    store = Results(tmp_path / "results").store("norms")
    records = store.records(store.manifest()["cells"][0]["run_id"], 0)
    assert records.columns.tolist() == ["update", "weight_norm", "weight_row_norm", "weight_column_norm"]
    assert records["update"].tolist() == [0, 10, 20, 30, 40]
    words = ["plot", "curves", "norms", "-o", "norms.png", "--metric"]
    for options, complaint in (
        ("train_cost", "there are weight_norm, weight_row_norm, weight_column_norm"),
        ("weight_norm --metric a", "--metric a: no column"),
        ("weight_norm --select data", "--select data: write SETTING=VALUE"),
    ):
        assert complaint in cbm(*words, *options.split(), code=2).output
    selects = ["--select", "hidden=2", "--select", "sampler=CD-1"]
    cbm(*words, "weight_norm", *selects)
    assert (tmp_path / "norms.png").read_bytes().startswith(b"\x89PNG")
    done = cbm("table", "results", "norms", "--metric", "weight_norm")
    assert f" {records['weight_norm'].iloc[-1]:.4g} ± –" in done.output


GRID = """
experiments:
  norms:
    trials: 1
    data: {name: bars-and-stripes, size: 2}
    model: {kind: rbm, hidden: 2}
    offsets: 00
    sampler: CD-1
    learning_rate: 0.1
    updates: 40
    batch: full
    evaluate: {method: none, every: 10}
    record: weight_norms
"""


def test_unknown_suffix_and_missing_folder_are_said(tmp_path):
    with pytest.raises(CbmError, match=r"the suffix must be one of \.png, \.pdf, \.svg"):
        plot_curves(HandMade([cell()]), "e", tmp_path / "curves.gif")
    with pytest.raises(CbmError, match="cannot be written"):
        plot_curves(HandMade([cell()]), "e", tmp_path / "missing" / "curves.png")


# Options


@pytest.mark.parametrize(
    ("band", "half"),
    [("std", np.std([0, 0.1, 0.2, 0.7], ddof=1)), ("sem", np.std([0, 0.1, 0.2, 0.7], ddof=1) / 2)],
)
def test_band_is_as_asked(band, half):
    (axes,) = visible(curves_figure(HandMade([cell()], scale="per-sample"), "e", band=band))
    last = axes.collections[0].get_paths()[0].vertices
    last = last[last[:, 0] == 1000][:, 1]
    np.testing.assert_allclose((last.max() - last.min()) / 2, half)


def test_band_of_trials_is_one_thin_line_each():
    (axes,) = visible(curves_figure(HandMade([cell()]), "e", band="trials"))
    assert [line.get_linewidth() for line in axes.lines][:4] == [0.5] * 4
    assert not axes.collections


def test_a_trial_alone_has_its_own_values():
    results = HandMade([cell()], scale="per-sample")
    figure = curves_figure(results, "e", trial=3)
    (line,) = means(visible(figure)[0])
    np.testing.assert_allclose(line.get_ydata(), [rising()(update, 3) for update in UPDATES])
    assert "trial 3 alone" in caption(figure)
    with pytest.raises(IncompleteError, match="number 9"):
        curves_figure(results, "e", trial=9)


def test_smooth_is_a_centered_running_mean():
    results = HandMade([cell(values=lambda update, trial: (update / 50) ** 2)], scale="per-sample")
    figure = curves_figure(results, "e", smooth=150)
    (line,) = means(visible(figure)[0])
    squares = np.arange(21.0) ** 2
    assert line.get_ydata()[5] == pytest.approx(squares[4:7].mean())
    assert line.get_ydata()[0] == pytest.approx((25 * squares[0] + 50 * squares[1]) / 75)
    assert "running mean over 150 updates" in caption(figure)
    (line,) = means(visible(curves_figure(results, "e", smooth=50))[0])  # no wider than between evaluations
    np.testing.assert_allclose(line.get_ydata(), squares)


@pytest.mark.parametrize("width", [40, 151, 600])
@pytest.mark.parametrize("seed", range(3))
def test_every_update_weighs_alike_in_a_running_mean(width, seed):
    """Rows stand dense in a window; each update between rows has the value of the nearest row."""
    random = np.random.default_rng(seed)
    x = np.unique(np.concatenate([np.arange(0, 1001, 50), np.arange(400, 500)]))
    rows = pd.Series(random.normal(size=len(x)), index=x)
    fine = np.arange(0, 1000, 0.01) + 0.005
    steps = rows.to_numpy()[np.abs(fine[:, None] - x).argmin(axis=1)]
    found = _running_mean(rows, width)
    for update in (0, 50, 300, 399, 430, 470, 550, 1000):
        if update in rows:
            expected = steps[np.abs(fine - update) < width / 2].mean()
            assert found[update] == pytest.approx(expected, abs=1e-3)
    gap = rows.copy()
    gap[450] = nan
    assert _running_mean(gap, width).isna().sum() == 1


def test_a_dense_window_adds_no_spike_to_a_running_mean():
    noisy = {u: 1.0 if u % 50 == 25 else 0.0 for u in range(1001)}
    dense = pd.Series(noisy)[lambda it: (it.index % 50 == 0) | it.index.to_series().between(400, 500)]
    sparse = dense[dense.index % 50 == 0]
    assert _running_mean(sparse, 500).max() == 0
    assert _running_mean(dense, 500).max() < 0.01  # by rows it would be up to a fiftieth, of fewer rows more


@pytest.mark.parametrize(
    ("units", "x", "name"),
    [
        ([{"epochs": 4, "updates": None}], None, "epochs"),
        ([{"epochs": None, "updates": 400}], None, "updates"),
        ([{"epochs": 4, "updates": None}], "updates", "updates"),
        ([{"epochs": 4, "updates": None}, {"epochs": None, "updates": 9}], None, "updates"),
        ([{}], None, "updates"),
    ],
)
def test_the_x_axis_counts_as_the_grid(units, x, name):
    cells = [cell(scheme, **one) for scheme, one in zip(("00", "dd^b"), units, strict=False)]
    results = HandMade(cells)
    curve = results.curve
    results.curve = lambda *place: curve(*place).assign(epoch=UPDATES / 100)
    (axes,) = visible(curves_figure(results, "e", x=x))
    assert axes.get_xlabel() == name
    assert means(axes)[0].get_xdata()[-1] == {"epochs": 10, "updates": 1000}[name]


@pytest.mark.parametrize(("x", "last"), [("epochs", 1000), ("seconds", 8.0), ("gradient-steps", 1005)])
def test_x_axis_is_as_asked(x, last):
    results = HandMade([cell(pretraining_epochs=5)])
    whole = results.summary()
    results.summary = lambda: whole.assign(seconds=[7.0, 8.0, 8.0, 9.0])
    (line,) = means(visible(curves_figure(results, "e", x=x))[0])
    assert line.get_xdata()[-1] == pytest.approx(last)


def test_limits_are_kept_and_none_shows_all():
    def falling_back(update, trial):
        return rising()(update, trial) - (update > 900) * 1e4

    calm = [cell(scheme) for scheme in ("dd^b", "d0", "00")]
    results = HandMade([*calm, cell("aa^b", values=falling_back)], scale="per-sample")
    assert visible(curves_figure(results, "e"))[0].get_ylim()[0] > -100
    assert visible(curves_figure(results, "e", ylim=None))[0].get_ylim()[0] < -1e4
    figure = curves_figure(results, "e", ylim=(-20, None), xlim=(100, 500))
    assert visible(figure)[0].get_ylim()[0] == -20
    assert visible(figure)[0].get_xlim() == (100, 500)
    assert visible(figure)[0].lines[0].get_xdata().min() == 100
    assert visible(curves_figure(results, "e", xlog=True))[0].get_xscale() == "log"


def test_a_bound_far_above_does_not_squeeze_the_curves():
    figure = curves_figure(HandMade([cell()], bounds={"bars-and-stripes": 100}), "e")
    assert visible(figure)[0].get_ylim()[1] < 0
    assert "upper bound" not in legend(figure)
    assert "upper bound, not shown: 1600" in caption(figure)


def test_bounds_are_named_in_the_order_of_their_panels():
    for first, second in ((100, 200), (200, 100)):
        both = [cell(data="bars-and-stripes"), cell(data="shifting-bar")]
        bounds = {"bars-and-stripes": first, "shifting-bar": second}
        figure = curves_figure(HandMade(both, bounds=bounds), "e")
        assert f"upper bound, not shown: {16 * first}, {16 * second}" in caption(figure)


def test_learning_that_is_over_soon_is_not_cut():
    results = HandMade([cell(values=lambda update, trial: -3.0 - 6 * (update < 100))])
    figure = curves_figure(results, "e")
    assert visible(figure)[0].get_ylim()[0] < 16 * -9
    assert "cut" not in caption(figure)


def test_several_metrics_are_panels_or_lines_of_one():
    records = {"weight_norm": offset_error, "hidden_bias_norm": lambda update, trial: 0.0}
    results = HandMade([cell("00"), cell("aa^b")], records=records)
    figure = curves_figure(results, "e", metric=[*records])
    assert [axes.get_ylabel() for axes in visible(figure)] == ["weight norm", "hidden bias norm"]
    figure = curves_figure(results, "e", metric=[*records], overlay=True)
    assert [len(means(axes)) for axes in visible(figure)] == [4]
    assert visible(figure)[0].get_ylabel() == "norm"
    assert legend(figure)[:2] == [r"$\mathit{00}$, weight", r"$\mathit{00}$, hidden bias"]
    results = HandMade(
        [cell()], records={f"angle_natural_{name}": offset_error for name in ("standard", "centered")}
    )
    figure = curves_figure(
        results, "e", metric=["angle_natural_standard", "angle_natural_centered"], overlay=True
    )
    assert visible(figure)[0].get_ylabel() == "angle to natural gradient (degrees)"
    assert legend(figure) == ["standard", "centered"]


def test_settings_make_panels_and_lines_as_asked():
    figure = curves_figure(HandMade(grid()), "e", panels=["offsets"])
    assert len(visible(figure)) == 2
    assert [len(means(axes)) for axes in visible(figure)] == [4, 4]
    figure = curves_figure(HandMade(grid()), "e", columns=["sampler", "offsets"])
    assert titles(figure) == [r"$\eta$ = 0.1", r"$\eta$ = 0.05"]
    with pytest.raises(CbmError, match=r"--panels smapler: .*did you mean sampler"):
        curves_figure(HandMade(grid()), "e", panels=["smapler"])


def test_a_curve_of_one_point_is_a_marker():
    figure = curves_figure(HandMade([cell()], lengths=dict.fromkeys(range(4), 1)), "e")
    figure.draw_without_rendering()
    (mark,) = marks(visible(figure)[0])
    assert mark.get_xdata() == [0]
    low, high = visible(figure)[0].get_xlim()
    assert low < 0 < high


# Looks


def test_no_two_schemes_and_no_two_lines_look_alike():
    names = [f"{a}{b}{end}" for a in "0dmahr" for b in "0dmahr" for end in ("^b", "^b_s", "^l", "^l_s")]
    looks = looks_of([(name,) for name in names], ["offsets"])
    assert len({str(look) for look in looks.values()}) == len(names)
    assert len(set(SCHEMES.values())) == len(SCHEMES)
    for letters, (colour, marker) in SCHEMES.items():
        variants = [scheme_look(letters + end) for end in ("^b", "^b_s", "^l", "^l_s")]
        assert {(look["color"], look["marker"]) for look in variants} == {(colour, marker)}
        assert len({str(look["linestyle"]) for look in variants}) == 4


def test_colours_differ_in_grey_or_by_their_marker():
    markers = [marker for _, marker in SCHEMES.values()]
    assert len(set(markers)) == len(markers)


def test_lines_that_hide_each_other_have_their_markers_at_other_points():
    cells = [cell(scheme) for scheme in ("aa^b", "dd^b", "dm^b")]
    (axes,) = visible(curves_figure(HandMade(cells), "e"))
    places = [set(line.get_xdata()) for line in marks(axes)]
    assert all(len(its) >= 5 for its in places)
    assert not set.intersection(*places)
    assert len({line.get_linewidth() for line in means(axes)}) == 3
    assert min(mark.get_zorder() for mark in marks(axes)) > max(line.get_zorder() for line in means(axes))


@pytest.mark.parametrize("shift", [0.1, 0.5, 0.99])
@pytest.mark.parametrize("log", [False, True])
def test_no_marker_is_at_an_end_of_the_axis_which_would_cut_it(shift, log):
    for length in (3, 4, 16, 1000):
        places = places_of_marks(np.arange(length, dtype=float), shift, log)
        assert 1 <= min(places) <= max(places) <= length - 2
    assert set(places_of_marks(np.arange(2.0), shift, log)) <= {0, 1}  # of two points both are ends


@pytest.mark.parametrize(
    ("size", "inches"), [("column", 3.4), ("page", 7.0), ((5.0, 3.0), 5.0)], ids=["column", "page", "own"]
)
def test_size_of_a_page_is_kept_and_everything_is_within(size, inches):
    drawing = curves_drawing(HandMade(grid()), ["e"], Options())
    figure = compose(drawing, Page(size, title="Title", legend="right"))
    figure.draw_without_rendering()
    assert figure.get_size_inches()[0] == inches
    for axes in visible(figure):
        assert figure.bbox.x0 <= axes.get_tightbbox().x0 < axes.get_tightbbox().x1 <= figure.bbox.x1 + 1


def test_text_in_files_is_text(tmp_path):
    plot_curves(HandMade([cell(data="a$b$<c>")]), "e", tmp_path / "c.svg", columns=["data"])
    svg = (tmp_path / "c.svg").read_text()
    assert "train log-likelihood (of all rows)</text>" in svg
    assert "a$b$&lt;c&gt;" in svg
    plot_curves(HandMade([cell()]), "e", tmp_path / "c.pdf")
    assert b"/CIDFontType2" in (tmp_path / "c.pdf").read_bytes()


def test_results_of_several_versions_are_warned_of():
    results = HandMade([cell()])
    rows = results.summary()
    results.summary = lambda: rows.assign(kernel_version=["3", "3", "4", "4"])
    with pytest.warns(UserWarning, match=r"kernel versions: 3 \(2 trials\), 4 \(2 trials\)"):
        curves_figure(results, "e")
