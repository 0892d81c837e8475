"""Learning curves: what is drawn, for hand-made results."""

from itertools import product
from math import nan

import numpy as np
import pandas as pd
import pytest
from cbm_cli.errors import IncompleteError
from cbm_cli.report.chosen import Options
from cbm_cli.report.curves import _running_mean
from cbm_cli.report.kinds import draw
from cbm_cli.report.panels import Panel, compose
from cbm_cli.report.style import DASHES, SCHEMES, looks_of, scheme_look
from cbm_cli.report.values import settings_panels
from numpy.testing import assert_allclose

from tests.builders import problems_of, refusal
from tests.journals import made_manifest
from tests.pictures import (
    bounds_of,
    curves_of,
    legend_of,
    numbers_in,
    panels_of,
    shown_in,
    ticks_of,
)

UPDATES = np.arange(0, 1001, 50)
NORMAL, CENTERED = r"$\mathit{00}$", "$aa^{b}$"  # in legends


class HandMade:
    """Results of one experiment, whose cells have functions from (update, trial) to values."""

    def __init__(self, cells, trials=4, bounds=None, records=None, lengths=None, **more):
        self.cells = {cell["run_id"]: cell for cell in cells}
        self.values = {cell["run_id"]: cell.pop("values") for cell in cells}
        self.trials, self.bounds, self.diverged = trials, bounds, more.pop("diverged", ())
        self.recorded, self.lengths = records or {}, lengths or {}
        self.effective, self.rows = more.pop("effective", None), more.pop("rows_have", {})
        self.column = more.pop("column", "train_log_likelihood")
        self.most = more.pop("at_most", None)
        layout = {"rows": ["sampler", "learning_rate"], "columns": ["offsets"], "groups": ["data"]}
        self.table = layout | {"scale": "total", "metric": "train_log_likelihood"} | more

    def store(self, _):
        return self

    def manifest(self):
        return made_manifest(self.cells.values(), self.trials, self.bounds, **self.table)

    def nothing_yet(self):
        return IncompleteError("e: start with: cbm run")

    def summary(self):
        frame = pd.DataFrame(product(self.cells, range(self.trials)), columns=["run_id", "trial"])
        diverged = [500.0 if trial in self.diverged else nan for trial in frame["trial"]]
        method = {"evaluate_runs": 40, "evaluate_method": "ais" if self.effective else "exact"}
        known = {"experiment": "e", "n_train": 16, f"{self.column}_final": -1.0} | method
        return frame.assign(diverged=diverged, **known | self.rows)

    def curve(self, run_id, trial):
        updates = UPDATES[: self.lengths.get(trial)]
        values = [self.values[run_id](update, trial) for update in updates]
        known = {"update": updates, "epoch": updates / 100, self.column: values}
        known |= {f"{self.column}_at_most": self.most} if self.most else {}
        known |= {"effective_sample_size": self.effective(updates, trial)} if self.effective else {}
        return pd.DataFrame(known)

    def curves(self, run_id, trials):
        return [self.curve(run_id, trial) for trial in trials]

    def records(self, run_id, trials):
        if not self.recorded:
            return [pd.DataFrame({"update": []}) for _ in trials]
        columns = {name: np.vectorize(of) for name, of in self.recorded.items()}
        rows = [{name: of(UPDATES, trial) for name, of in columns.items()} for trial in trials]
        return [pd.DataFrame({"update": UPDATES} | its) for its in rows]


def rising(update, trial):
    """From -6 towards -3; trials 0 to 3 lie 0, 0.1, 0.2 and 0.7 above."""
    return -3.0 - 3 * np.exp(-update / 100) + [0, 0.1, 0.2, 0.7][trial % 4]


def straight(update, trial):
    return update / 1000 - trial - 1


def falling(update, trial):
    return 0.5 + 100 * np.exp(-update / 100) + trial / 10


def sinking(update, trial):
    return falling(update, trial) - 200


def deep(update, trial):
    return rising(update, trial) - max(0, update - 500) ** 2 / 100


def stopping(update, trial):
    return nan if trial == 3 and update > 500 else -4.0 - trial


def error(update, trial):
    return [1.0, 2.0, 3.0, 6.0][trial] + update / 1000


def cell(offsets="00", sampler="CD-1", learning_rate=0.1, data="bars-and-stripes", **more):
    settings = {"data": data, "sampler": sampler, "learning_rate": learning_rate, "init": "zero"}
    settings |= {"offsets": offsets, "values": rising} | more
    return {"run_id": f"{data}/{sampler}/{learning_rate}/{offsets}/{more}", **settings}


def grid(schemes=("aa^b", "00"), samplers=("CD-1", "PT_10"), rates=(0.1, 0.05), **more):
    return [cell(o, s, r, **more) for s in samplers for r in rates for o in schemes]


def picture_of(cells=None, options=None, size=None, **made):
    results = HandMade([{**it} for it in cells or [cell()]], **made)
    return compose(draw(results, "curves", ["e"], Options(**options or {})), size)


def drawn(cells=None, options=None, **made):
    """The figure of some cells, by default of one, and its first panel's axes and curves."""
    figure = shown_in(picture_of(cells, options, **made))
    axes, *_ = figure.axes
    return figure, axes, curves_of(axes, legend_of(figure))


# Panels, lines, legends

SAMPLERS, RATES = ("CD-1", r"PT$_{10}$"), (r"$\eta$ = 0.1", r"$\eta$ = 0.05")
FOUR = [f"{sampler}, {rate}" for sampler in SAMPLERS for rate in RATES]
BOTH = [CENTERED, NORMAL]
CD = grid(samplers=["CD-1"])
KINDS = [cell(learning_rate=r, gradient=g) for g in ("natural", "standard") for r in (0.1, 0.05)]
BY_KIND = {"rows": ["gradient", "learning_rate"], "columns": ["sampler"]}
OF_KIND = [f"gradient {g}, {r}" for g in ("natural", "standard") for r in RATES]
SELECT = {"select": [("learning_rate", "0.05"), ("sampler", "PT_10")]}
NORMS = {"weight_norm": error, "hidden_bias_norm": lambda update, trial: 0.0}
ANGLES = {f"angle_natural_{name}": error for name in ("standard", "centered")}
NORM, ANGLE, OVER = {"metric": [*NORMS]}, {"metric": [*ANGLES]}, {"panels": []}
OF_NORMS = [f"{scheme}, {what}" for scheme in BOTH for what in ("weight", "hidden bias")]
INITS = [cell(), *(cell(scheme, init="inverse-sigmoid") for scheme in ("00", "dd^b", "aa^b"))]
OF_INITS = [f"{NORMAL}, zero", f"{NORMAL}, inverse-sigmoid", "$dd^{b}$", CENTERED]
PANELS = {
    "as in the grid": (grid()[::-1], {}, {}, FOUR[::-1], BOTH[::-1]),
    "select": (grid(), {}, SELECT, [""], BOTH),
    "panels": (CD, {}, {"panels": ["offsets"]}, BOTH, RATES),
    "rows": (KINDS, BY_KIND, {}, [""], OF_KIND),
    "metrics": (CD[:2], {"records": NORMS}, NORM, ["", ""], BOTH),
    "names": (INITS, {"columns": ["offsets", "init"]}, {}, [""], OF_INITS),
    "overlay": (CD[:2], {"records": NORMS}, NORM | OVER, [""], OF_NORMS),
}


@pytest.mark.parametrize(
    ("cells", "made", "options", "titles", "names"), PANELS.values(), ids=PANELS
)
def test_settings_make_panels_and_lines(cells, made, options, titles, names):
    """Every panel has every line, in the order of the grid; of records it shows all values."""
    figure, _, _ = drawn(cells, options, **made)
    assert [title for title, _ in panels_of(figure)] == [*titles]
    for _, axes in panels_of(figure):
        curves, (low, high) = curves_of(axes, legend_of(figure)), axes.get_ylim()
        assert [*curves] == [*legend_of(figure)] == [*names]
        if "records" in made:
            assert all(curve.line.between(low, high).all() for curve in curves.values())


COST = {"metric": None, "column": "test_cost", "scale": "per-sample"}


def test_the_y_axis_names_metric_and_unit():
    angles = [f"{it}: angle to natural gradient (degrees)" for it in ("standard", "centered")]
    for made, options, names in (
        ({}, {}, ["train log-likelihood (of all rows)"]),
        (COST, {}, ["test cost (per row)"]),
        ({"records": NORMS}, NORM | OVER, ["norm"]),
        ({"records": ANGLES}, ANGLE, angles),
    ):
        seen = [axes for axes in drawn(options=options, **made)[0].axes if axes.get_visible()]
        assert [axes.get_ylabel().replace("\n", " ") for axes in seen] == names


# Lines and bands


@pytest.mark.parametrize(("average", "scale"), [("median", "total"), ("mean", "per-sample")])
def test_line_and_band_are_statistics_of_the_trials_in_the_scale_of_the_table(average, scale):
    """Of trials with rare and deep falls, whose mean is below their first quartile."""
    random = np.random.default_rng(1)
    falls = random.random((len(UPDATES), 9)) < 0.15
    table = pd.DataFrame(random.random(falls.shape) - 1 - 100 * falls, UPDATES)
    rows = 16 if scale == "total" else 1
    cells = [cell(values=lambda update, trial: table.loc[update, trial] / rows)]
    figure, _, curves = drawn(cells, {"statistic": average}, trials=9, scale=scale)
    curve, caption = curves[NORMAL], figure.caption
    line, half = table.mean(axis=1), table.std(axis=1)
    low, high = line - half, line + half
    if average == "median":
        line, low, high = (table.quantile(share, axis=1) for share in (0.5, 0.25, 0.75))
    assert_allclose(curve.line, line)
    assert_allclose(curve.band, pd.DataFrame({"low": low, "high": high}))
    assert caption.startswith("Mean") == (average == "mean") == ("quartiles" not in caption)


HELD = (sinking(500, 0) + sinking(1000, 2)) / 2
ESTIMATED = {"effective": lambda update, trial: 4.0 - 0.1 * (update > 900)}
LACKING = {
    "diverged": (stopping, {"diverged": [3]}, -5.0, ["4", "1"]),
    "gap": (stopping, {}, -5.0, ["4", "1"]),
    "stopped": (sinking, {"lengths": {0: 11, 3: 6}}, HELD, ["4", "2"]),
    "lost": (sinking, {"lengths": {0: 11}, "diverged": [0]}, sinking(1000, 2), ["4", "1"]),
    "ais": (rising, ESTIMATED, rising(1000, 0) + 0.15, ["4", "8", "84"]),
}


@pytest.mark.parametrize(("values", "made", "last", "numbers"), LACKING.values(), ids=LACKING)
def test_trials_that_end_or_lack_values_are_counted_and_those_that_stopped_continue(
    values, made, last, numbers
):
    figure, _, curves = drawn([cell(values=values)], **made)
    assert curves[NORMAL].line[1000] == pytest.approx(16 * last)
    assert numbers_in(figure.caption) == numbers
    assert ("diverged" in figure.caption) == ("diverged" in made)
    assert ("AIS" in figure.caption) == ("effective" in made)


def test_of_records_no_estimates_are_counted_and_a_trial_once():
    made = {"records": dict.fromkeys(ANGLES, stopping), "effective": lambda u, t: 0 * u}
    assert numbers_in(drawn(options=ANGLE, **made)[0].caption) == ["4", "1"]


def test_smooth_is_a_centered_running_mean():
    cells = [cell(values=lambda update, trial: (update / 50) ** 2 - 500)]
    figure, _, curves = drawn(cells, {"smooth": 150}, scale="per-sample")
    assert curves[NORMAL].line[250] == pytest.approx(np.mean([16, 25, 36]) - 500)
    assert "150 updates" in figure.caption


def test_every_update_weighs_alike_in_a_running_mean_of_records():
    """Rows are dense in a window; each update between rows has the value of the nearest row."""
    x = np.unique(np.concatenate([UPDATES, np.arange(400, 500)]))
    rows = pd.Series(np.random.default_rng(1).normal(size=len(x)), index=x)
    fine = np.arange(0, 1000, 0.01) + 0.005
    steps = rows.to_numpy()[np.abs(fine[:, None] - x).argmin(axis=1)]
    for width, update in product((40, 151, 600), (0, 50, 300, 430, 470, 550, 1000)):
        expected = steps[np.abs(fine - update) < width / 2].mean()
        assert _running_mean(rows, width)[update] == pytest.approx(expected, abs=1e-3)
    rows[450] = nan
    assert _running_mean(rows, 151).isna().sum() == 1


# Axes


def ends(low, high):
    """The ends of a y axis that shows values from low to high, with a margin."""
    return pytest.approx((low - 0.04 * (high - low), high + 0.04 * (high - low)))


def test_what_diverges_and_untrained_machines_do_not_flatten_the_others():
    """The axis goes beyond the worst beginning by half of what is learned from there on."""
    three = [cell("dd^b"), cell("d0"), cell("00")]
    start, best, top = (rising(*its) for its in ((50, 0), (1000, 0), (1000, 0)))
    untrained = lambda update, trial: rising(update, trial) - 60 * (not update)  # noqa: E731
    for bad in (deep, untrained):
        figure, axes, _ = drawn([*three, cell("aa^b", values=bad)], scale="per-sample")
        assert axes.get_ylim() == ends(start + 0.15 - (best - start) / 2, top + 0.325)
        assert "Values far below the first ones" in figure.caption
    late = {"xlim": (700, 1000)}  # where one has diverged already
    _, axes, _ = drawn([*three, cell("aa^b", values=deep)], late, scale="per-sample")
    assert axes.get_ylim()[0] > start - 10
    bad = cell("aa^b", values=lambda update, trial: falling(update, 0) + update**2)
    figure, axes, _ = drawn([cell(values=falling), bad], **COST | {"metric": "test_cost"})
    start, best = falling(0, 0), falling(1000, 1.5)  # the second is at 2500 already
    assert axes.get_ylim() == ends(falling(1000, 0.75), start + (start - best) / 2)
    assert "Values far above the first ones" in figure.caption
    # A twentieth is not divergence, and half of all points are shown
    for values in (lambda u, t: -28.0 - 0.1 * (u % 3), lambda u, t: -(10.0**3) * (u > 300)):
        figure, *_ = drawn([cell(values=values)], scale="per-sample")
        assert "Values" not in figure.caption


N = {"metric": ["n"]}


def test_an_axis_of_records_is_not_cut_and_shows_everything():
    for first, last, low, high in ((5, 5, 4.5, 5.5), (0, 0, 0, 1), (1, 1000, 1, 1000)):
        records = {"n": lambda u, t, a=first, b=last: float(b if u == 1000 else a)}
        figure, axes, _ = drawn(options=N, records=records, scale="per-sample")
        assert axes.get_ylim() == ends(low, high)
        assert numbers_in(figure.caption) == ["4"]
        assert bounds_of(axes) == []


def test_a_band_above_the_bound_does_not_lengthen_the_axis():
    one_falls = [cell(values=lambda update, trial: -20.0 * (trial == 0 and update >= 500))]
    made = {"scale": "per-sample", "bounds": {"bars-and-stripes": 0.5}}
    _, axes, _ = drawn(one_falls, {"statistic": "mean", "ylim": (-15, None)}, **made)
    assert axes.get_ylim() == pytest.approx((-15, 0.5 + 0.04 * 15.5))  # of mean -5 and deviation 10


def test_a_bound_takes_a_third_of_the_height_at_most_and_keeps_ends_asked_for():
    for bound, highest, shown in (
        (0.5, None, True),
        (0.51, None, False),
        (-4.0, None, False),
        (-0.6, -0.7, False),
        (-0.7, -0.7, True),
    ):
        made = {"scale": "per-sample", "bounds": {"bars-and-stripes": bound}}
        figure, axes, _ = drawn([cell(values=straight)], {"ylim": (None, highest)}, **made)
        assert bounds_of(axes) == [bound] * shown  # of values from -3.25 to -0.75
        assert ("upper bound" in legend_of(figure)) == shown
        assert ("not shown" in figure.caption) != shown


def test_bounds_far_above_are_said_in_the_order_of_their_panels_and_do_not_squeeze_the_curves():
    names = ("bars-and-stripes", "shifting-bar")
    cells = [cell(data=name, values=straight) for name in names]
    figure, axes, _ = drawn(cells, bounds=dict(zip(names, (200, 100), strict=True)))
    assert axes.get_ylim() == ends(16 * -3.25, 16 * -0.75)
    assert [*legend_of(figure)] == [NORMAL]
    assert numbers_in(figure.caption) == ["4", "3200", "1600"]


def test_ends_that_are_asked_for_are_kept_and_values_far_away_shown():
    options = {"ylim": (None, -1), "xlim": (None, 500)}
    _, axes, curves = drawn([cell(values=deep)], options, scale="per-sample")
    assert axes.get_xlim() == (-10, 500)
    assert axes.get_ylim() == (pytest.approx(-6.25, abs=0.5), -1)
    assert [*curves[NORMAL].line.index] == [*UPDATES[:11]]
    _, axes, _ = drawn([cell(values=deep)], {"ylim": (None, -2)}, scale="per-sample")
    assert axes.get_ylim()[0] < deep(1000, 0)
    (axes,) = settings_of({"xlim": (0.05, 0.5)}).axes
    assert (axes.get_xlim(), ticks_of(axes.xaxis)) == ((0.05, 0.5), {0.1: "0.1"})


def test_between_two_evaluations_the_line_is_shown():
    _, axes, curves = drawn(options={"xlim": (60, 80)}, scale="per-sample")
    assert axes.get_xlim() == (60, 80)
    inner = np.interp([60, 80], [50, 100], [rising(50, 0) + 0.15, rising(100, 0) + 0.15])
    assert_allclose(curves[NORMAL].line, inner)
    assert curves[NORMAL].marks.empty
    *_, curves = drawn(options={"xlim": (60, 220)})
    assert [*curves[NORMAL].line.index] == [60, 100, 150, 200, 220]
    assert [*curves[NORMAL].marks.index] == [100, 150, 200]  # a marker is an evaluation


def test_logarithmic_axes_are_linear_around_zero_alone():
    made = {"records": {"n": lambda update, trial: 1.0 + update}}
    _, axes, _ = drawn(options={"log": ["x", "y"]} | N, **made)
    assert (axes.get_xscale(), axes.get_yscale()) == ("symlog", "log")
    low, high = axes.get_ylim()
    assert 0 < low < 1 < 1001 < high
    _, axes, _ = drawn(options={"log": ["y"]}, scale="per-sample")  # all negative
    assert axes.get_xscale() == "linear"
    assert len([name for name in ticks_of(axes.yaxis).values() if name]) > 2


def test_the_x_axis_counts_as_the_grid_or_as_asked():
    for settings, asked, name, last, tick in (
        ([{"epochs": 4}], None, "epochs", 10, "10"),
        ([{"epochs": 4}], "updates", "updates", 1000, "1k"),
        ([{"epochs": 4}, {"updates": 9}], None, "updates", 1000, "1k"),
        ([{}], "seconds", "seconds", 8, "8"),
        ([{"pretraining_epochs": 5}], "gradient-steps", "gradient steps", 1500, "1.5k"),
    ):
        cells = [cell(scheme, **its) for scheme, its in zip(("00", "dd^b"), settings, strict=False)]
        seconds = {"seconds": [6.0, 8.0, 8.0, 10.0] * len(cells)}
        figure, axes, curves = drawn(cells, {"x": asked}, rows_have=seconds)
        assert axes.get_xlabel() == name
        assert ("spread evenly over the updates" in figure.caption) == (name == "seconds")
        assert curves[NORMAL].line.index[-1] == pytest.approx(last)
        assert len({*curves[NORMAL].marks.index} & {*curves[NORMAL].line.index}) >= 5
        assert axes.get_xlim()[1] == pytest.approx(1.02 * last)
        assert ticks_of(axes.xaxis).get(last, tick) == tick


# What would hide or mislead


def test_of_more_than_four_lines_the_spread_is_bars_at_the_markers():
    cells = [cell(scheme) for scheme in ("00", "d0", "dd^b", "aa^b", "mm^b")]
    for number in (4, 5):
        figure, _, curves = drawn(cells[:number], scale="per-sample")
        for curve in curves.values():
            assert [*curve.band.index] == [*(curve.marks.index if number == 5 else UPDATES)]
            below, above = (curve.line - curve.band[end] for end in ("min", "max"))
            assert_allclose(below.dropna(), 0.1, atol=0.06)
            assert_allclose(above.dropna(), -0.25, atol=0.08)
        assert ("bars" in figure.caption) == (number == 5)


def test_estimates_that_are_doubtful_have_open_markers_and_all_others_full_ones():
    """Of 40 runs at least 4 must be effective."""
    _, _, curves = drawn([cell()], effective=lambda update, trial: 4.0 - 0.1 * (update % 200 == 0))
    assert [*curves[NORMAL].open.index] == [*UPDATES[::4]]
    assert sorted([*curves[NORMAL].open.index, *curves[NORMAL].marks.index]) == [*UPDATES]
    _, _, curves = drawn([cell()], effective=lambda update, trial: 4.0 - (trial < 2) + 0 * update)
    assert [*curves[NORMAL].open.index] == [*UPDATES]  # half of the trials
    _, _, curves = drawn([cell()])
    assert (len(curves[NORMAL].open), len(curves[NORMAL].marks)) == (0, 6)


def test_estimates_that_are_disproved_are_drawn_at_what_is_proved():
    made = {"effective": lambda update, trial: 40.0 * (update < 900), "at_most": -7.0}
    figure, _, curves = drawn([cell(values=lambda update, trial: -5.0 - trial)], **made)
    assert_allclose(curves[NORMAL].line / 16, np.where(UPDATES < 900, -6.5, -7.0))
    upper = np.asarray(curves[NORMAL].band)[:, 1]
    assert_allclose(upper / 16, np.where(UPDATES < 900, -5.75, -7.0))
    assert min(curves[NORMAL].open.index) >= 900
    late = 4 * (UPDATES >= 900).sum()
    assert numbers_in(figure.caption) == ["4", f"{late}", f"{4 * len(UPDATES)}", f"{late}"]


def test_panels_of_one_data_set_have_one_scale():
    lower = cell(sampler="PT_10", values=lambda u, t: straight(u, t) - 4)
    cells = [cell(values=straight), lower, cell(data="x")]
    panels = {"panels": ["data", "sampler"]}
    first, second, third = picture_of(cells, panels).figure.axes[:3]
    margin = 0.04 * 16 * 6.5
    assert first.get_ylim() == second.get_ylim() == (16 * -7.25 - margin, 16 * -0.75 + margin)
    assert third.get_ylim() != first.get_ylim()


@pytest.mark.parametrize(
    ("better", "lost", "is_cut"), [(1, 1e6, True), (1, 9.0, False), (-1, 1e6, True)]
)
def test_finals_are_cut_as_curves_and_count_what_is_beyond(better, lost, is_cut):
    column = "train_log_likelihood" if better > 0 else "test_cost"
    values = [2.9, 2.8, 2.6, 2.3] * 2, [3.0, 2.9, 2.7, 2.5, lost, lost, 2.9, 2.6]
    rows = {f"{column}_{'max' if better > 0 else 'min'}": -better * np.array(values[0])}
    rows |= {f"{column}_final": -better * np.array(values[1])}
    made = {"rows_have": rows, "scale": "per-sample", "metric": column, "column": column}
    cells = [cell(s, values=lambda u, t: better * rising(u, t)) for s in ("00", "aa^b")]
    results = HandMade(cells, **made)
    picture = compose(draw(results, "finals", ["e"], Options()))
    start, best = rising(50, 0), rising(1000, 3)
    worst = start - (best - start) / 2 if is_cut else -9.0 - 0.04 * (9 - 2.3)
    expected = (worst, -2.3 - 0.04 * max(-9.0, worst) + 0.04 * -2.3)
    assert picture.figure.axes[0].get_ylim() == pytest.approx(sorted(better * np.array(expected)))
    assert ("2 values beyond the axis" in picture.caption) == is_cut
    picture = compose(draw(results, "finals", ["e"], Options(ylim=(-20, 20))))
    assert picture.figure.axes[0].get_ylim() == (-20, 20)


def test_the_caption_of_finals_counts_doubtful_trials():
    rows = {"effective_sample_size_final": [1.0, 40.0, 40.0, 2.0]}
    rows |= {"train_log_likelihood_max": [-2.9, -2.8, -2.6, -2.3]}
    results = HandMade([cell()], rows_have=rows, effective=lambda u, t: 40.0 + 0 * u)
    caption = compose(draw(results, "finals", ["e"], Options())).caption
    assert "Open markers: estimates of 2 of 4 trials are doubtful or disproved" in caption


# A metric against a setting

RATES_OF = {0.01: 1.0, 0.1: 2.0, 1.0: 0.0}
EACH = [*product((0.1, 0.2), (1, 5))]
BY_BATCH = [cell(learning_rate=r, batch=b, values=lambda u, t: t) for r, b in EACH]


def settings_of(options=None, cells=None, **made):
    def value(rate, scheme):
        return lambda update, trial: RATES_OF[rate] + 3 * (scheme == "00") + trial - 9

    each = product(("aa^b", "00"), RATES_OF)
    cells = cells or [cell(o, "CD-1", r, values=value(r, o)) for o, r in each]
    summary = [its["values"](1000, trial) for its in cells for trial in range(4)]
    made |= {"rows_have": {"train_log_likelihood_max": summary}, "scale": "per-sample"}
    results = HandMade([{**it} for it in cells], **made)
    return shown_in(compose(settings_panels(results, ["e"], Options(**options or {}))))


def test_a_metric_against_a_setting_has_the_mean_and_the_deviation_at_each_value():
    figure = settings_of()
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_xscale()) == ("learning rate", "log")
    assert ticks_of(axes.xaxis) == {0.01: "0.01", 0.1: "0.1", 1.0: "1"}
    for name, shift in ((CENTERED, 0), (NORMAL, 3)):
        curve = curves_of(axes, legend_of(figure))[name]
        middle = pd.Series(RATES_OF) + shift - 7.5
        assert_allclose(curve.line, middle)
        assert_allclose(curve.marks, middle)
        half = np.std(range(4), ddof=1)
        assert_allclose(curve.band, np.column_stack([middle - half, middle + half]))
    assert all(word in figure.caption for word in ("maximum", "Mean", "logarithmic"))


def test_an_axis_of_powers_with_zero_shows_all_of_them_apart():
    rates = [0.0, 0.0001, 0.001, 0.01, 0.1]
    cells = [cell(learning_rate=r, values=lambda update, trial: trial) for r in rates]
    (axes,) = settings_of(cells=cells).axes
    assert (axes.get_xscale(), [*ticks_of(axes.xaxis)]) == ("symlog", rates)
    places = axes.transData.transform([(r, 0) for r in rates])[:, 0]
    assert np.diff(places).min() > 0.15 * np.ptp(places)


def test_an_axis_of_settings_is_logarithmic_from_a_factor_of_ten():
    for *rates, scale in ((0.1, 0.5, 1.0, "log"), (0.1, 0.5, 0.9, "linear"), (0.0, 5.0, "linear")):
        cells = [cell(learning_rate=r, values=lambda update, trial: trial) for r in rates]
        assert settings_of(cells=cells).axes[0].get_xscale() == scale


def test_the_setting_is_one_that_is_numeric_and_varies():
    figure = settings_of({"x": "batch"}, BY_BATCH)
    (axes,) = figure.axes
    assert "logarithmic" not in figure.caption
    assert (axes.get_xlabel(), axes.get_xscale()) == ("batch", "linear")
    assert [*legend_of(figure)] == [r"$\eta$ = 0.1", r"$\eta$ = 0.2"]


# What cannot be drawn

ONE, MANY = [cell()], grid(rates=[0.01 * i for i in range(1, 14)])
TWICE = {"select": [("sampler", "CD-1"), ("sampler", "x")]}
CHOSEN = {"choose": ["learning_rate"], "by": "train", "select": [("batch", "1")]}


@pytest.mark.parametrize(
    ("picture", "cells", "made", "options", "place", "words"),
    [
        (drawn, MANY, {}, TWICE, "--select sampler=x", "CD-1, PT_10"),
        (drawn, MANY, {}, {"panels": ["smapler"]}, "--panels smapler", "sampler"),
        (drawn, MANY, {}, {}, "", "--select sampler=CD-1"),
        (drawn, ONE, {}, {"metric": ["weight"]}, "--metric weight", "train_log_likelihood"),
        (drawn, ONE, {"trials": 0}, {}, "e", "start with: cbm run"),
        (drawn, ONE, {"metric": "test_log_likelihood"}, {}, "e", "no test_log_likelihood"),
        (drawn, [cell(values=lambda *place: nan)], {}, {}, "e", "no finite value"),
        (drawn, ONE, {}, {"xlim": (2000, 3000)}, "--xlim", "from 0 to 1000;"),
        (drawn, ONE, {}, {"ylim": (None, -200)}, "--ylim", "from -96 to -36.8022;"),
        (settings_of, None, {}, {"ylim": (50, None)}, "--ylim", "from -9 to -1;"),
        (settings_of, BY_BATCH, {}, {}, "settings", "learning_rate, batch"),
        (settings_of, BY_BATCH, {}, {"x": "offsets"}, "--x offsets", "no numeric"),
        (settings_of, BY_BATCH, {}, CHOSEN, "settings", "--choose none"),
    ],
)
def test_what_cannot_be_drawn_is_said(picture, cells, made, options, place, words):
    error = refusal(picture, cells=cells, options=options, **made)
    assert problems_of(error) == [(place, "")]
    assert words in str(error)


@pytest.mark.parametrize(
    ("suffix", "start"), [(".PNG", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml")]
)
def test_suffix_decides_the_format_and_bytes_are_reproducible(tmp_path, suffix, start):
    for name in "ab":
        picture_of([cell(data="a$b$<c>"), cell(data="d")]).write(tmp_path / f"{name}{suffix}")
    one, other = (path.read_bytes() for path in tmp_path.iterdir())
    assert one == other
    assert one.startswith(start)
    assert suffix != ".PNG" or int.from_bytes(one[16:20], "big") == 300 * 6.6  # pixels across
    if suffix == ".svg":  # texts are texts
        assert b"train log-likelihood (of all rows)</text>" in one
        assert b"a$b$&lt;c&gt;" in one
    assert (b"/CIDFontType2" in one) == (suffix == ".pdf")


# Looks


def test_schemes_have_their_colours_and_no_two_look_alike():
    for place in (0, 1):  # colours, and markers for prints in grey
        assert len({look[place] for look in SCHEMES.values()}) == len(SCHEMES)
    ends = "^b", "^b_s", "^l", "^l_s"
    names = ["".join(letters) for letters in product("0dmahr", "0dmahr", ends)]
    looks = looks_of([(name,) for name in names], ["offsets"])
    assert len({str(look) for look in looks.values()}) == len(names)
    for letters, (colour, marker) in SCHEMES.items():
        its = [scheme_look(letters + end) for end in ends]
        assert {(look["color"], look["marker"]) for look in its} == {(colour, marker)}
        assert [look["linestyle"] for look in its] == DASHES
    deep = [scheme_look(name) for name in ("000", "00", "ddd^b_s", "dd^b_s")]
    assert [look["color"] for look in deep] == ["#000000"] * 2 + ["#009E73"] * 2


def test_lines_that_hide_each_other_have_markers_on_top_of_all_at_other_points():
    _, axes, curves = drawn([cell(scheme) for scheme in ("aa^b", "dd^b", "dm^b")])
    places = [set(curve.marks.index) for curve in curves.values()]
    assert all(len(its) >= 5 for its in places)
    assert not set.intersection(*places)
    for curve in curves.values():
        assert np.ptp(np.diff(curve.marks.index)) <= 50  # regular, but for whole evaluations
        assert_allclose(curve.marks, curve.line[curve.marks.index])
    marks = [line for line in axes.lines if line.get_marker() not in ("None", "")]
    lines = [line for line in axes.lines if line not in marks]
    assert len({line.get_linewidth() for line in lines}) == 3
    assert min(mark.get_zorder() for mark in marks) > max(line.get_zorder() for line in lines)


@pytest.mark.parametrize("size", ["page", "column"])
def test_the_legend_of_a_panel_is_below_the_name_of_its_axis_and_in_the_picture(size):
    look = {"color": "C0", "linestyle": "-"}
    looks = [{f"line {n} of {k}": look for n in range(k)} for k in (2, 7)]
    panels = [Panel(lambda axes: None, xlabel="updates", looks=it) for it in looks]
    figure = compose(panels, size).figure
    figure.draw_without_rendering()
    for axes in figure.axes:
        legend, name = axes.get_legend().get_window_extent(), axes.xaxis.label.get_window_extent()
        assert 0 <= legend.y0 < legend.y1 < name.y0
        assert axes.get_window_extent().height > figure.bbox.height / 4


def test_panels_of_one_setting_lie_side_by_side_as_far_as_they_fit():
    for size, number, across in ((None, 4, 4), ("page", 4, 2), ("page", 5, 3), ("column", 3, 2)):
        panels = [Panel(lambda axes: None, (str(n),)) for n in range(number)]
        assert compose(panels, size).figure.axes[0].get_gridspec().ncols == across


def test_size_of_a_page_is_kept():
    for size, inches in ("column", 3.4), ((5.0, 3.0), 5.0):
        assert picture_of(size=size).figure.get_size_inches()[0] == inches


def test_an_option_without_effect_on_a_kind_of_picture_is_refused():
    for kind, option, value in (
        ("curves", "layer", 2),
        ("curves", "statistic", "final"),
        ("settings", "smooth", 5),
        ("finals", "x", "epochs"),
        ("filters", "ylim", (0, 1)),
        ("data", "select", [("offsets", "00")]),
    ):
        error = refusal(draw, None, kind, [], Options(**{option: value}))
        assert f"--{option}" in str(error)
        assert kind in str(error)
