"""Learning curves: what is drawn, for hand-made results."""

from itertools import product
from math import nan
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from cbm_cli.errors import IncompleteError
from cbm_cli.report.curves import _running_mean
from cbm_cli.report.kinds import draw
from cbm_cli.report.options import Options
from cbm_cli.report.panels import Panel, compose
from cbm_cli.report.style import DASHES, SCHEMES, looks_of, scheme_look
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
ENDS = {"max": max, "min": min, "final": lambda values: values[-1]}
NORMAL, CENTERED = r"$\mathit{00}$", "$aa^{b}$"  # in legends


def made_results(
    cells,
    trials=4,
    *,
    bound=None,
    records=None,
    lengths=None,
    effective=None,
    diverged=(),
    column="train_log_likelihood",
    seconds=lambda run, trial: 5.0 + 2 * trial,
    most=None,
    **table,
):
    """Results of one experiment, whose cells have functions from (update, trial) to
    values.
    """
    layout = {
        "rows": ["sampler", "learning_rate"],
        "columns": ["offsets"],
        "groups": ["data"],
    }
    layout |= {"scale": "per-sample", "metric": "train_log_likelihood"} | table
    bounds = {} if bound is None else {cell["data"]: bound for cell in cells}
    values = {cell["run_id"]: cell["values"] for cell in cells}
    settings = [
        {name: it for name, it in cell.items() if name != "values"} for cell in cells
    ]
    manifest = made_manifest(settings, trials, bounds, **layout)
    frame = pd.DataFrame(product(values, range(trials)), columns=["run_id", "trial"])
    curves = [
        [values[run](update, trial) for update in UPDATES]
        for run, trial in frame.to_numpy()
    ]
    known = {f"{column}_{end}": [*map(of, curves)] for end, of in ENDS.items()}
    known |= {"experiment": "e", "n_train": 16}
    if most:  # the proved limit of each trial's final value
        known[f"{column}_at_most_final"] = [most(it) for it in frame["trial"]]
    known["seconds"] = [seconds(run, trial) for run, trial in frame.to_numpy()]
    known |= {"evaluate_runs": 40, "evaluate_method": "ais" if effective else "exact"}
    known["diverged"] = np.where(frame["trial"].isin(diverged), 500.0, nan)
    if effective:
        known["effective_sample_size_final"] = [
            effective(1000, it) for it in frame["trial"]
        ]
    frame = frame.assign(**known)

    def curve(run_id, trial):
        updates = UPDATES[: (lengths or {}).get(trial)]
        found = {"update": updates, "epoch": updates / 100}
        found[column] = [values[run_id](update, trial) for update in updates]
        found |= (
            {"effective_sample_size": effective(updates, trial)} if effective else {}
        )
        return pd.DataFrame(found)

    def record(trial):
        found = {
            name: [of(it, trial) for it in UPDATES]
            for name, of in (records or {}).items()
        }
        return pd.DataFrame({"update": UPDATES} | found)

    store = SimpleNamespace(manifest=lambda: manifest, summary=lambda: frame)
    store.store = lambda _: store
    store.nothing_yet = lambda: IncompleteError("e: start with: cbm run")
    store.curves = lambda run_id, trials: [curve(run_id, trial) for trial in trials]
    store.records = lambda run_id, trials: [record(trial) for trial in trials]
    return store


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


def cell(
    offsets="00", sampler="CD-1", learning_rate=0.1, data="bars-and-stripes", **more
):
    settings = {
        "data": data,
        "sampler": sampler,
        "learning_rate": learning_rate,
        "init": "zero",
    }
    settings |= {"offsets": offsets, "values": rising} | more
    return {"run_id": f"{data}/{sampler}/{learning_rate}/{offsets}/{more}", **settings}


def grid(schemes=("aa^b", "00"), samplers=("CD-1", "PT_10"), rates=(0.1, 0.05), **more):
    return [cell(o, s, r, **more) for s in samplers for r in rates for o in schemes]


def picture_of(cells=None, options=None, kind="curves", **made):
    results = made_results(cells or [cell()], **made)
    return compose(draw(results, kind, ["e"], Options(**options or {})))


def drawn(cells=None, options=None, **made):
    """The figure of some cells, by default of one, and its first panel's axes and
    curves.
    """
    figure = shown_in(picture_of(cells, options, **made))
    axes, *_ = figure.axes
    return figure, axes, curves_of(axes, legend_of(figure))


# Panels, lines, legends

RATES = (r"$\eta$ = 0.1", r"$\eta$ = 0.05")
BOTH = [CENTERED, NORMAL]
CD = grid(samplers=["CD-1"])
KINDS = [
    cell(learning_rate=r, gradient=g)
    for g in ("natural", "standard")
    for r in (0.1, 0.05)
]
BY_KIND = {"rows": ["gradient", "learning_rate"], "columns": ["sampler"]}
OF_KIND = [f"gradient {g}, {r}" for g in ("natural", "standard") for r in RATES]
NORMS = {"weight_norm": rising, "hidden_bias_norm": lambda update, trial: 0.0}
OTHERS = "standard", "centered", "u", "v", "w"  # five panels of six places
ANGLES = {f"angle_natural_{it}": rising for it in OTHERS}
ANGLES_TO = [f"{it}: angle to natural gradient (degrees)" for it in OTHERS]
NORM, ANGLE, OVER = {"metric": [*NORMS]}, {"metric": [*ANGLES]}, {"panels": []}
OF_NORMS = [
    f"{scheme}, {what}" for scheme in BOTH for what in ("weight", "hidden bias")
]
INITS = [
    cell(),
    *(cell(scheme, init="inverse-sigmoid") for scheme in ("00", "dd^b", "aa^b")),
]
OF_INITS = [f"{NORMAL}, zero", f"{NORMAL}, inverse-sigmoid", "$dd^{b}$", CENTERED]
USUAL = ["train log-likelihood (per row)"]
PANELS = {
    "panels": (CD, {}, {"panels": ["offsets"]}, BOTH, RATES),
    "rows": (KINDS, BY_KIND, {}, USUAL, OF_KIND),
    "metrics": (CD[:2], {"records": ANGLES}, ANGLE, ANGLES_TO, BOTH),
    "names": (INITS, {"columns": ["offsets", "init"]}, {}, USUAL, OF_INITS),
    "overlay": (CD[:2], {"records": NORMS}, NORM | OVER, ["norm"], OF_NORMS),
}


@pytest.mark.parametrize(
    ("cells", "made", "options", "titles", "names"), PANELS.values(), ids=PANELS
)
def test_settings_make_panels_and_lines(cells, made, options, titles, names):
    """Every panel has every line, in the order of the grid; of records it shows all
    values.
    """
    figure, _, _ = drawn(cells, options, **made)
    shown = [title or axes.get_ylabel() for title, axes in panels_of(figure)]
    assert [title.replace("\n", " ") for title in shown] == [*titles]
    for _, axes in panels_of(figure):
        curves, (low, high) = curves_of(axes, legend_of(figure)), axes.get_ylim()
        assert [*curves] == [*legend_of(figure)] == [*names]
        if "records" in made:
            assert all(curve.line.between(low, high).all() for curve in curves.values())


# Lines and bands


def test_mean_and_deviation_take_the_place_of_median_and_quartiles():
    values = [-1.0, -2.0, -3.0, -10.0]
    cells = [cell(values=lambda update, trial: values[trial])]
    figure, _, curves = drawn(cells, {"statistic": "mean"})
    half = np.std(values, ddof=1)
    assert_allclose(curves[NORMAL].line, -4)
    assert_allclose(curves[NORMAL].band, [[-4 - half, -4 + half]] * len(UPDATES))
    assert figure.caption.startswith("Mean over 4 trials, band: standard deviation.")


HELD = (sinking(500, 0) + sinking(1000, 2)) / 2
ESTIMATED = {"effective": lambda update, trial: 4.0 - 0.1 * (update > 900)}
DISPROVED = {"effective": lambda update, trial: 40.0 * (update < 900)}
LACKING = {
    "diverged": (stopping, {"diverged": [3]}, -5.0, ["4", "1"]),
    "gap": (stopping, {}, -5.0, ["4", "1"]),
    "stopped": (sinking, {"lengths": {0: 11, 3: 6}}, HELD, ["4", "2"]),
    "lost": (
        sinking,
        {"lengths": {0: 11}, "diverged": [0]},
        sinking(1000, 2),
        ["4", "1"],
    ),
    "ais": (rising, ESTIMATED, rising(1000, 0) + 0.15, ["4", "8", "84"]),
    "disproved": (rising, DISPROVED, rising(1000, 0) + 0.15, ["4", "12", "84", "12"]),
}


@pytest.mark.parametrize(
    ("values", "made", "last", "numbers"), LACKING.values(), ids=LACKING
)
def test_trials_that_end_or_lack_values_are_counted_and_those_that_stopped_continue(
    values, made, last, numbers
):
    figure, _, curves = drawn([cell(values=values)], **made)
    assert curves[NORMAL].line[1000] == pytest.approx(last)
    assert numbers_in(figure.caption) == numbers
    assert ("diverged" in figure.caption) == ("diverged" in made)
    assert ("AIS" in figure.caption) == ("effective" in made)


def test_of_records_no_estimates_are_counted_and_a_trial_once():
    made = {"records": dict.fromkeys(ANGLES, stopping), "effective": lambda u, t: 0 * u}
    assert numbers_in(drawn(options=ANGLE, **made)[0].caption) == ["4", "1"]


def test_every_update_weighs_alike_in_a_running_mean_of_records():
    """Rows are dense in a window; each update between rows has the value of the nearest
    row.
    """
    x = np.unique(np.concatenate([UPDATES, np.arange(400, 500)]))
    rows = pd.Series(np.random.default_rng(1).normal(size=len(x)), index=x)
    fine = np.arange(0, 1000, 0.01) + 0.005
    steps = rows.to_numpy()[np.abs(fine[:, None] - x).argmin(axis=1)]
    for width, update in product((40, 151, 600), (0, 50, 300, 430, 470, 550, 1000)):
        expected = steps[np.abs(fine - update) < width / 2].mean()
        assert _running_mean(rows, width)[update] == pytest.approx(expected, abs=1e-3)
    rows[450] = nan
    assert _running_mean(rows, 151).isna().sum() == 1
    cells = [cell(values=lambda update, trial: (update / 50) ** 2 - 500)]
    figure, _, curves = drawn(cells, {"smooth": 150})
    assert curves[NORMAL].line[250] == pytest.approx(np.mean([16, 25, 36]) - 500)
    assert "150 updates" in figure.caption


# Axes

COST = {"metric": "test_cost", "column": "test_cost"}


def ends(low, high):
    """The ends of a y axis that shows values from low to high, with a margin."""
    return pytest.approx((low - 0.04 * (high - low), high + 0.04 * (high - low)))


def test_what_diverges_and_untrained_machines_do_not_flatten_the_others():
    """The axis goes beyond the worst beginning by half of what is learned from there
    on.
    """
    three, start, best = (
        [cell("dd^b"), cell("d0"), cell("00")],
        rising(50, 0),
        rising(1000, 0),
    )
    untrained = lambda update, trial: rising(update, trial) - 60 * (not update)  # noqa: E731
    for bad in (deep, untrained):
        figure, axes, _ = drawn([*three, cell("aa^b", values=bad)])
        assert axes.get_ylim() == ends(start + 0.15 - (best - start) / 2, best + 0.325)
        assert "Values far below the first ones" in figure.caption
    late = {"xlim": (700, 1000)}  # where one has diverged already
    _, axes, _ = drawn([*three, cell("aa^b", values=deep)], late)
    assert axes.get_ylim()[0] > start - 10
    _, axes, _ = drawn([cell(values=deep)], {"ylim": (None, -2)})  # which is asked for
    assert axes.get_ylim()[0] < deep(1000, 0) < axes.get_ylim()[1] == -2
    bad = cell("aa^b", values=lambda update, trial: falling(update, 0) + update**2)
    figure, axes, _ = drawn([cell(values=falling), bad], **COST)
    start, best = falling(0, 0), falling(1000, 1.5)  # the second is at 2500 already
    assert axes.get_ylim() == ends(falling(1000, 0.75), start + (start - best) / 2)
    assert "Values far above the first ones" in figure.caption
    # A twentieth is not divergence, and half of all points are shown
    for values in (
        lambda u, t: -28.0 - 0.1 * (u % 3),
        lambda u, t: -(10.0**3) * (u > 300),
    ):
        figure, *_ = drawn([cell(values=values)])
        assert "Values" not in figure.caption


N = {"metric": ["n"]}


def test_an_axis_of_records_is_not_cut_and_shows_everything():
    for first, last, low, high in ((5, 5, 4.5, 5.5), (0, 0, 0, 1), (1, 1000, 1, 1000)):
        records = {"n": lambda u, t, a=first, b=last: float(b if u == 1000 else a)}
        figure, axes, _ = drawn(options=N, records=records)
        assert axes.get_ylim() == ends(low, high)
        assert numbers_in(figure.caption) == ["4"]
        assert bounds_of(axes) == []


@pytest.mark.filterwarnings("error")
def test_values_too_large_for_an_axis_are_gaps():
    for statistic, huge in (("mean", 2), ("median", 2), ("mean", 4)):
        records = {
            "n": lambda u, t, n=huge: 1.7e308 * (-1) ** t if t < n and u > 500 else 3.0
        }
        options = N | {"statistic": statistic}
        figure, axes, _ = drawn(options=options, records=records, scale="per-sample")
        assert axes.get_ylim() == ends(2.7, 3.3)
        assert f"{huge} without a value at some updates" in figure.caption


def test_a_bound_takes_a_third_of_the_height_at_most_and_keeps_ends_asked_for():
    for bound, highest, shown in (
        (0.5, None, True),
        (0.51, None, False),
        (-4.0, None, False),
        (-0.6, -0.7, False),
        (-0.7, -0.7, True),
    ):
        figure, axes, _ = drawn(
            [cell(values=straight)], {"ylim": (None, highest)}, bound=bound
        )
        assert bounds_of(axes) == [bound] * shown  # of values from -3.25 to -0.75
        assert ("upper bound" in legend_of(figure)) == shown
        assert ("not shown" in figure.caption) != shown
    one_falls = [
        cell(values=lambda update, trial: -20.0 * (trial == 0 and update >= 500))
    ]
    _, axes, _ = drawn(one_falls, {"statistic": "mean", "ylim": (-15, None)}, bound=0.5)
    assert axes.get_ylim() == pytest.approx(
        (-15, 0.5 + 0.04 * 15.5)
    )  # of mean -5 and deviation 10


def test_ends_of_the_x_axis_are_kept_and_the_line_is_shown_between_two_evaluations():
    _, axes, curves = drawn(options={"xlim": (60, 80)})
    assert axes.get_xlim() == (60, 80)
    inner = np.interp(
        [60, 80], [50, 100], [rising(50, 0) + 0.15, rising(100, 0) + 0.15]
    )
    assert_allclose(curves[NORMAL].line, inner)
    assert curves[NORMAL].marks.empty
    *_, curves = drawn(options={"xlim": (60, 220)})
    assert [*curves[NORMAL].line.index] == [60, 100, 150, 200, 220]
    assert [*curves[NORMAL].marks.index] == [100, 150, 200]  # a marker is an evaluation
    assert drawn(options={"xlim": (None, 500)})[1].get_xlim() == (-10, 500)
    (axes,) = settings_of({"xlim": (0.05, 0.5)}).axes
    assert (axes.get_xlim(), ticks_of(axes.xaxis)) == ((0.05, 0.5), {0.1: "0.1"})


def test_logarithmic_axes_are_linear_around_zero_alone():
    made = {"records": {"n": lambda update, trial: 1.0 + update}}
    _, axes, _ = drawn(options={"log": ["x", "y"]} | N, **made)
    assert (axes.get_xscale(), axes.get_yscale()) == ("symlog", "log")
    low, high = axes.get_ylim()
    assert 0 < low < 1 < 1001 < high
    _, axes, _ = drawn(options={"log": ["y"]})  # all negative
    assert axes.get_xscale() == "linear"
    assert len([name for name in ticks_of(axes.yaxis).values() if name]) > 2


def test_the_x_axis_counts_as_the_grid_or_as_asked():
    for settings, asked, name, last, tick in (
        ([{"epochs": 4}], None, "epochs", 10, "10"),
        ([{"epochs": 4}, {"updates": 9}], None, "updates", 1000, "1k"),
        ([{"epochs": 4}], "seconds", "seconds", 8, "8"),
        ([{"pretraining_epochs": 5}], "gradient-steps", "gradient steps", 1500, "1.5k"),
    ):
        cells = [
            cell(scheme, **its)
            for scheme, its in zip(("00", "dd^b"), settings, strict=False)
        ]
        figure, axes, curves = drawn(cells, {"x": asked})
        assert axes.get_xlabel() == name
        assert ("spread evenly over the updates" in figure.caption) == (
            name == "seconds"
        )
        assert curves[NORMAL].line.index[-1] == pytest.approx(last)
        assert axes.get_xlim()[1] == pytest.approx(1.02 * last)
        assert ticks_of(axes.xaxis).get(last, tick) == tick


# What would hide or mislead


def test_of_more_than_four_lines_the_spread_is_bars_at_the_markers():
    cells = [cell(scheme) for scheme in ("00", "d0", "dd^b", "aa^b", "mm^b")]
    for number in (4, 5):
        figure, _, curves = drawn(cells[:number])
        for curve in curves.values():
            shown = curve.marks.index if number == 5 else UPDATES
            assert [*curve.band.index] == [*shown]
            quartiles = [[rising(x, 0) + 0.075, rising(x, 0) + 0.325] for x in shown]
            assert_allclose(curve.band, quartiles, atol=1e-3)
        assert ("bars" in figure.caption) == (number == 5)
    results = made_results(cells)
    rows = results.summary()
    results.summary = lambda: rows[
        (rows["trial"] == 0) | (rows["run_id"] != cells[0]["run_id"])
    ]
    assert "bars" in compose(draw(results, "curves", ["e"], Options())).caption


def test_a_legend_has_six_columns_at_most():
    schemes = ("00", "d0", "0d", "dd", "mm", "aa", "a0")
    results = made_results([cell(scheme) for scheme in schemes])
    figure = compose(draw(results, "curves", ["e"], Options()), (9.0, 4.0)).figure
    assert figure.legends[0]._ncols == 6


def test_estimates_that_are_doubtful_have_open_markers_and_all_others_full_ones():
    """Of 40 runs at least 4 must be effective."""
    _, _, curves = drawn(
        [cell()], effective=lambda update, trial: 4.0 - 0.1 * (update % 200 == 0)
    )
    assert [*curves[NORMAL].open.index] == [*UPDATES[::4]]
    assert sorted([*curves[NORMAL].open.index, *curves[NORMAL].marks.index]) == [
        *UPDATES
    ]
    _, _, curves = drawn(
        [cell()], effective=lambda update, trial: 4.0 - (trial < 2) + 0 * update
    )
    assert [*curves[NORMAL].open.index] == [*UPDATES]  # half of the trials
    _, _, curves = drawn([cell()])
    assert (len(curves[NORMAL].open), len(curves[NORMAL].marks)) == (0, 6)


def test_panels_of_one_data_set_have_one_scale():
    lower = cell(sampler="PT_10", values=lambda u, t: straight(u, t) - 4)
    cells = [cell(values=straight), lower, cell(data="x")]
    panels = {"panels": ["data", "sampler"]}
    first, second, third = picture_of(cells, panels).figure.axes[:3]
    assert first.get_ylim() == second.get_ylim() == ends(-7.25, -0.75)
    assert third.get_ylim() != first.get_ylim()


@pytest.mark.parametrize(
    ("better", "lost", "is_cut"), [(1, -1e6, True), (1, -9.0, False), (-1, -1e6, True)]
)
def test_finals_are_cut_as_curves_and_count_what_is_beyond(better, lost, is_cut):
    values = lambda u, t: better * (lost if (u, t) == (1000, 0) else rising(u, t))  # noqa: E731
    cells = [cell(scheme, values=values) for scheme in ("00", "aa^b")]
    made = {"kind": "finals"} | (COST if better < 0 else {})
    picture = picture_of(cells, **made)
    start, best = rising(50, 0), rising(1000, 3)
    worst = start - (best - start) / 2 if is_cut else lost
    margin = 0.04 * (best - worst)
    found = sorted(better * np.array(picture.figure.axes[0].get_ylim()))
    assert found == pytest.approx([worst - margin * (not is_cut), best + margin])
    assert ("2 values beyond the axis" in picture.caption) == is_cut
    picture = picture_of(cells, {"ylim": (-20, 20)}, **made)
    assert picture.figure.axes[0].get_ylim() == (-20, 20)


def test_the_caption_of_finals_counts_doubtful_trials():
    caption = picture_of(
        kind="finals", effective=lambda update, trial: 4.0 - (trial < 2)
    ).caption
    assert (
        "Open markers: estimates of 2 of 4 trials are doubtful or disproved" in caption
    )


# A metric against a setting

RATES_OF = {0.01: 1.0, 0.1: 2.0, 1.0: 0.0}
EACH = [*product((0.1, 0.2), (1, 5))]
BY_BATCH = [cell(learning_rate=r, batch=b, values=lambda u, t: t) for r, b in EACH]


def settings_of(options=None, cells=None):
    usual = [
        cell(
            o, learning_rate=r, values=lambda u, t, v=best + 3 * (o == "00"): v + t - 9
        )
        for o in ("aa^b", "00")
        for r, best in RATES_OF.items()
    ]
    return shown_in(picture_of(cells or usual, options, "settings"))


def test_a_metric_against_a_setting_has_the_mean_and_the_deviation_at_each_value():
    figure = settings_of()
    (axes,) = figure.axes
    assert ticks_of(axes.xaxis) == {0.01: "0.01", 0.1: "0.1", 1.0: "1"}
    for name, shift in ((CENTERED, 0), (NORMAL, 3)):
        curve = curves_of(axes, legend_of(figure))[name]
        middle, half = pd.Series(RATES_OF) + shift - 7.5, np.std(range(4), ddof=1)
        assert_allclose(curve.line, middle)
        assert_allclose(curve.marks, middle)
        assert_allclose(curve.band, np.column_stack([middle - half, middle + half]))


def test_an_axis_of_settings_is_logarithmic_from_a_factor_of_ten_and_shows_all_of_them_apart():
    for *rates, scale in (
        (0.1, 0.5, 1.0, "log"),
        (0.1, 0.5, 0.9, "linear"),
        (0.0, 5.0, "linear"),
        (0.0, 0.0001, 0.001, 0.01, 0.1, "symlog"),
    ):
        cells = [
            cell(learning_rate=r, values=lambda update, trial: trial) for r in rates
        ]
        (axes,) = settings_of(cells=cells).axes
        assert (axes.get_xscale(), [*ticks_of(axes.xaxis)]) == (scale, rates)
        places = axes.transData.transform([(r, 0) for r in rates])[:, 0]
        assert np.diff(places).min() > 0.15 * np.ptp(places)


def test_the_setting_is_one_that_is_numeric_and_varies():
    figure = settings_of({"x": "batch"}, BY_BATCH)
    (axes,) = figure.axes
    assert "logarithmic" not in figure.caption
    assert (axes.get_xlabel(), axes.get_xscale()) == ("batch", "linear")
    assert [*legend_of(figure)] == [r"$\eta$ = 0.1", r"$\eta$ = 0.2"]


# What cannot be drawn

ONE, NONE = [cell()], [cell(values=lambda *place: nan)]
MANY = grid(rates=[0.01 * i for i in range(1, 14)])
CHOSEN = {"choose": ["learning_rate"], "by": "train", "select": [("batch", "1")]}


@pytest.mark.parametrize(
    ("picture", "cells", "made", "options", "place", "words"),
    [
        (drawn, MANY, {}, {"panels": ["smapler"]}, "--panels smapler", "sampler"),
        (drawn, MANY, {}, {}, "", "--select sampler=CD-1"),
        (
            drawn,
            ONE,
            {},
            {"metric": ["weight"]},
            "--metric weight",
            "train_log_likelihood",
        ),
        (drawn, ONE, {"trials": 0}, {}, "e", "start with: cbm run"),
        (
            drawn,
            ONE,
            {"metric": "test_log_likelihood"},
            {},
            "e",
            "no test_log_likelihood",
        ),
        (drawn, NONE, {}, {}, "e", "no finite value"),
        (drawn, NONE, {"kind": "finals"}, {}, "e", "no finite value"),
        (drawn, ONE, {}, {"xlim": (2000, 3000)}, "--xlim", "from 0 to 1000;"),
        (drawn, ONE, {}, {"ylim": (None, -20)}, "--ylim", "from -6 to -2.30014;"),
        (settings_of, BY_BATCH, {}, {}, "settings", "learning_rate, batch"),
        (settings_of, BY_BATCH, {}, {"x": "offsets"}, "--x offsets", "no numeric"),
        (settings_of, BY_BATCH, {}, CHOSEN, "settings", "--choose none"),
    ],
)
def test_what_cannot_be_drawn_is_said(picture, cells, made, options, place, words):
    error = refusal(picture, cells=cells, options=options, **made)
    assert problems_of(error) == [(place, "")]
    assert words in str(error)


@pytest.mark.parametrize(("suffix", "start"), [(".PDF", b"%PDF"), (".svg", b"<?xml")])
def test_suffix_decides_the_format_and_bytes_are_reproducible(tmp_path, suffix, start):
    for name in "ab":
        picture_of([cell(data="a$b$<c>"), cell(data="d")]).write(
            tmp_path / f"{name}{suffix}"
        )
    one, other = (path.read_bytes() for path in tmp_path.iterdir())
    assert one == other
    assert one.startswith(start)
    if suffix == ".svg":  # texts are texts
        assert b"train log-likelihood (per row)</text>" in one
        assert b"a$b$&lt;c&gt;" in one
    assert (b"/CIDFontType2" in one) == (suffix == ".PDF")


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
    assert scheme_look("ddd^b_s") == scheme_look("dd^b_s")


def test_lines_that_hide_each_other_have_markers_on_top_of_all_at_other_points():
    _, axes, curves = drawn([cell(scheme) for scheme in ("aa^b", "dd^b", "dm^b")])
    places = [set(curve.marks.index) for curve in curves.values()]
    assert all(len(its) >= 5 for its in places)
    assert not set.intersection(*places)
    for curve in curves.values():
        assert (
            np.ptp(np.diff(curve.marks.index)) <= 50
        )  # regular, but for whole evaluations
    marks = [line for line in axes.lines if line.get_marker() not in ("None", "")]
    lines = [line for line in axes.lines if line not in marks]
    assert len({line.get_linewidth() for line in lines}) == 3
    assert min(mark.get_zorder() for mark in marks) > max(
        line.get_zorder() for line in lines
    )


def test_the_legend_of_a_panel_is_below_the_name_of_its_axis_and_in_the_picture():
    look = {"color": "C0", "linestyle": "-"}
    looks = [{f"line {n} of {k}": look for n in range(k)} for k in (2, 7)]
    panels = [Panel(lambda axes: None, xlabel="updates", looks=it) for it in looks]
    figure = compose(panels, "column").figure
    figure.draw_without_rendering()
    for axes in figure.axes:
        legend, name = (
            axes.get_legend().get_window_extent(),
            axes.xaxis.label.get_window_extent(),
        )
        assert 0 <= legend.y0 < legend.y1 < name.y0
        assert axes.get_window_extent().height > figure.bbox.height / 4


def test_panels_of_one_setting_lie_side_by_side_as_far_as_they_fit():
    for size, number, across, inches in (
        (None, 4, 4, 12.4),
        ("page", 4, 2, 7),
        ("page", 5, 3, 7),
        ("column", 3, 2, 3.4),
        ((5.0, 3.0), 1, 1, 5),
    ):
        panels = [Panel(lambda axes: None, (str(n),)) for n in range(number)]
        figure = compose(panels, size).figure
        assert figure.axes[0].get_gridspec().ncols == across
        assert figure.get_size_inches()[0] == pytest.approx(inches)


def test_an_option_without_effect_on_a_kind_of_picture_is_refused():
    for kind, option, value in (
        ("curves", "layer", 2),
        ("settings", "smooth", 5),
        ("finals", "x", "epochs"),
        ("filters", "ylim", (0, 1)),
        ("data", "select", [("offsets", "00")]),
    ):
        error = refusal(draw, None, kind, [], Options(**{option: value}))
        assert f"--{option}" in str(error)
        assert kind in str(error)


# What a reader sees: order, units, ends, and what is left out

FOUR = [cell(scheme) for scheme in ("aa^b", "00", "dd^b", "d0")]
NAMED = [CENTERED, NORMAL, "$dd^{b}$", r"$\mathit{d0}$"]


def names_in(legend):
    return [text.get_text() for text in legend.get_texts()]


def test_lines_and_legend_are_in_the_order_of_the_grid_and_the_bound_is_last():
    """Each line has the marker and the dashes that the legend gives to its name."""
    figure, axes, curves = drawn(FOUR, bound=-1.5)
    (legend,) = figure.legends
    assert names_in(legend) == [*NAMED, "upper bound"]
    assert [*curves] == NAMED
    lines = [line for line in axes.lines if line.get_marker() == ""]
    colours = [SCHEMES[scheme][0] for scheme in ("aa", "00", "dd", "d0")]
    assert [line.get_color() for line in lines] == colours


def test_a_caption_names_the_bound_that_is_drawn():
    assert "Upper bound: -1.5." in drawn(bound=-1.5)[0].caption
    figure, axes, _ = drawn(bound=-1.5, scale="total")  # of all 16 rows
    assert "Upper bound: -24." in figure.caption
    assert bounds_of(axes) == [-24]
    assert "Upper bound, not shown: 9." in drawn(bound=9.0)[0].caption
    assert "bound" not in drawn()[0].caption


@pytest.mark.parametrize(
    ("column", "scale", "label", "factor"),
    [
        ("train_log_likelihood", "per-sample", "train log-likelihood (per row)", 1),
        ("train_log_likelihood", "total", "train log-likelihood (of all rows)", 16),
        ("train_cost", "per-sample", "train cost (per row)", 1),
        ("weight_norm", "total", "weight norm", 1),
        ("angle_natural_standard", "total", "standard: angle to natural gradient", 1),
    ],
)
def test_units_are_on_the_axis_and_numbers_are_in_them(column, scale, label, factor):
    made = {"column": column, "metric": column, "scale": scale}
    for kind in ("curves", "finals"):
        figure = shown_in(picture_of(kind=kind, **made))
        (axes,) = figure.axes
        words = axes.get_ylabel().replace("\n", " ")
        unit = " (degrees)" if kind == "curves" and "angle" in column else ""
        assert words == label + unit
        if kind == "curves":
            line = curves_of(axes, legend_of(figure))[NORMAL].line
            assert line[1000] == pytest.approx(factor * (rising(1000, 0) + 0.15))
        else:
            dots = axes.collections[-1].get_offsets()[:, 1]
            assert_allclose(dots, [factor * rising(1000, it) for it in range(4)])


def test_seconds_are_those_of_the_trials_of_each_cell():
    fast, slow = cell("aa^b"), cell("00")
    took = {fast["run_id"]: 10.0, slow["run_id"]: 40.0}
    _, _, curves = drawn(
        [fast, slow], {"x": "seconds"}, seconds=lambda run, trial: took[run]
    )
    assert [it.line.index[-1] for it in curves.values()] == pytest.approx([10.0, 40.0])


def test_seconds_of_an_update_are_those_of_all_trials_by_all_updates():
    """The last of four trials stops at update 500."""
    made = {"lengths": {3: 11}, "seconds": lambda run, trial: 7.0 if trial < 3 else 3.5}
    _, _, curves = drawn([cell()], {"x": "seconds"}, **made)
    assert curves[NORMAL].line.index[-1] == pytest.approx(7.0)


def test_the_share_of_doubtful_estimates_is_of_the_trials_that_were_evaluated():
    """From update 550 on two trials are left, of which one is doubtful."""
    made = {"lengths": {2: 11, 3: 11}}
    made["effective"] = lambda update, trial: 4.0 - (trial == 0) + 0 * update
    _, _, curves = drawn([cell()], **made)
    assert [*curves[NORMAL].open.index] == [*UPDATES[11:]]
    assert [*curves[NORMAL].marks.index] == [*UPDATES[:11]]


def test_a_curve_and_its_band_end_with_the_last_trial_that_did_not_diverge():
    made = {"lengths": {0: 6, 1: 6, 2: 11, 3: 11}, "diverged": [0, 1, 2, 3]}
    figure, _, curves = drawn([cell("aa^b"), cell("00")], **made)
    for curve in curves.values():
        assert curve.line.index[-1] == curve.band.index[-1] == 500
        assert curve.line[500] == pytest.approx((rising(500, 2) + rising(500, 3)) / 2)
    assert "8 diverged, from there on left out" in figure.caption


def test_an_untrained_machine_beyond_the_axis_leaves_no_stroke_along_it():
    untrained = lambda update, trial: rising(update, trial) - 60 * (not update)  # noqa: E731
    _, axes, curves = drawn([cell(), cell("aa^b", values=untrained)])
    assert curves[NORMAL].line.index[0] == 0
    assert curves[CENTERED].line.index[0] == curves[CENTERED].band.index[0] == 50
    assert axes.get_xlim()[0] == pytest.approx(-20)
    assert drawn([cell(values=untrained)], {"ylim": (-99, 0)})[2][NORMAL].line[0] < -60


@pytest.mark.parametrize(("depth", "is_shared"), [(1.5, True), (9, False)])
def test_data_sets_share_an_axis_where_that_flattens_none(depth, is_shared):
    deeper = lambda update, trial: depth * straight(update, trial)  # noqa: E731
    cells = [cell(values=straight), cell(data="x", values=deeper)]
    one, other = picture_of(cells).figure.axes
    assert (one.get_ylim() == other.get_ylim()) == is_shared
    shows = [bool(axes.yaxis.get_tick_params()["labelleft"]) for axes in (one, other)]
    assert shows == [True, not is_shared]
    assert one.get_ylim()[0] < depth * -3 or not is_shared
    figure = picture_of(cells, {"ylim": (-30, 0)}).figure
    assert [axes.get_ylim() for axes in figure.axes] == [(-30, 0)] * 2


def test_finals_show_each_trial_twice_with_quartiles_and_say_which_is_which():
    doubtful = {"effective": lambda update, trial: 4.0 - (trial == 1) + 0 * update}
    figure = shown_in(picture_of(FOUR[:2], kind="finals", **doubtful))
    (axes,) = figure.axes
    assert names_in(figure.legends[0]) == ["maximum", "final value"]
    pale, full = (line.get_markerfacecolor() for line in figure.legends[0].get_lines())
    assert (pale[3], full) == (0.25, "#555555")
    assert [*ticks_of(axes.xaxis).values()] == NAMED[:2]
    assert axes.get_xlabel() == ""
    expected = [rising(1000, trial) for trial in range(4)]
    clouds = axes.collections
    assert len(clouds) == 4  # of two methods, two each
    for cloud, side in zip(clouds, (-0.19, 0.19, 0.81, 1.19), strict=True):
        places, values = cloud.get_offsets().T
        assert_allclose(values, expected)
        assert_allclose(places, side + 0.1 * np.linspace(-1, 1, 4))
    for cloud in clouds[1::2]:
        is_open = (cloud.get_facecolor() == 1).all(axis=1)
        assert [*is_open] == [False, True, False, False]
    for bar, middle in zip(axes.lines[::2], axes.lines[1::2], strict=True):
        assert_allclose(bar.get_ydata(), np.quantile(expected, [0.25, 0.75]))
        assert_allclose(middle.get_ydata(), [np.median(expected)] * 2)


def test_final_values_that_are_limits_have_open_markers():
    most = lambda trial: rising(1000, trial) if trial == 2 else 0.0  # noqa: E731
    options = {"statistic": "final"}
    picture = picture_of([cell()], options, kind="finals", most=most)
    (axes,) = picture.figure.axes
    (cloud,) = axes.collections
    is_open = (cloud.get_facecolor() == 1).all(axis=1)
    assert [*is_open] == [False, False, True, False]
    assert picture.figure.legends == []
    assert "final values on the right" not in picture.caption
    assert "1 of 4 trials are doubtful or disproved" in picture.caption


def test_a_doubtful_final_value_has_its_open_marker_beside_a_trial_without_one():
    lost = lambda update, trial: nan if trial == 0 else rising(update, trial)  # noqa: E731
    doubtful = lambda update, trial: 4.0 - (trial == 1) + 0 * update  # noqa: E731
    made = {"diverged": (0,), "effective": doubtful}
    options = {"statistic": "final"}
    picture = picture_of([cell(values=lost)], options, kind="finals", **made)
    (cloud,) = picture.figure.axes[0].collections
    assert_allclose(cloud.get_offsets()[:, 1], [rising(1000, it) for it in (1, 2, 3)])
    is_open = (cloud.get_facecolor() == 1).all(axis=1)
    assert [*is_open] == [True, False, False]


def test_markers_of_settings_are_open_where_half_of_the_trials_are_doubtful():
    few = lambda update, trial: 3.0 + 0 * update  # noqa: E731
    half = lambda update, trial: 4.0 - (trial < 2) + 0 * update  # noqa: E731
    one = lambda update, trial: 4.0 - (trial < 1) + 0 * update  # noqa: E731
    cells = grid(["aa^b", "00"], ["CD-1"], (0.1, 0.2, 0.3), values=straight)
    for effective, number in ((few, 3), (half, 3), (one, 0)):
        figure = shown_in(picture_of(cells, kind="settings", effective=effective))
        (axes,) = figure.axes
        for curve in curves_of(axes, legend_of(figure)).values():
            assert (len(curve.open), len(curve.marks)) == (number, 3 - number)
        assert axes.get_xlabel() == "learning rate"
        assert "The maximum of each trial" in figure.caption


def test_a_setting_at_which_one_trial_diverged_is_drawn_by_the_others():
    lost = lambda update, trial: np.inf if trial == 3 else straight(update, trial)  # noqa: E731
    cells = [cell("00", learning_rate=rate, values=straight) for rate in (0.1, 0.2)]
    cells += [cell("aa^b", learning_rate=rate, values=lost) for rate in (0.1, 0.2)]
    figure = shown_in(picture_of(cells, kind="settings"))
    curves = curves_of(figure.axes[0], legend_of(figure))
    ends = [straight(1000, trial) for trial in range(4)]
    assert_allclose(curves[NORMAL].line, [np.mean(ends)] * 2)
    assert_allclose(curves[CENTERED].line, [np.mean(ends[:3])] * 2)


@pytest.mark.parametrize(
    ("kind", "cells", "options", "words"),
    [
        ("curves", 40, {}, "40 lines are too many to read (at most 32)"),
        ("finals", 128, {}, "128 lines are too many to read (at most 32)"),
        ("curves", 30, {"panels": ["learning_rate"]}, "30 panels are too many"),
    ],
)
def test_more_lines_or_panels_than_can_be_read_are_refused(kind, cells, options, words):
    table = {"columns": ["learning_rate"], "rows": ["offsets"]}
    rates = [cell(learning_rate=0.01 * place) for place in range(1, cells + 1)]
    error = refusal(picture_of, rates, options, kind, **table)
    assert words in str(error)
    assert "--select learning_rate=0.01" in str(error)


def test_a_setting_on_the_x_axis_has_as_many_values_as_it_has():
    rates = [cell(learning_rate=0.01 * place) for place in range(1, 41)]
    table = {"columns": ["learning_rate"], "rows": ["offsets"]}
    assert picture_of(rates, kind="settings", **table).figure.axes


def test_several_metrics_in_a_panel_count_as_lines():
    records = {f"angle_natural_{place}": rising for place in range(17)}
    options = {"metric": [*records], "panels": []}
    error = refusal(picture_of, CD[:2], options, records=records)
    assert "34 lines are too many to read (at most 32)" in str(error)


def test_the_manifest_is_read_once_for_all_curves():
    results = made_results(grid())
    manifest, reads = results.manifest(), []
    results.manifest = lambda: reads.append(1) or manifest
    draw(results, "curves", ["e"], Options())
    assert len(reads) == 1


def test_a_legend_of_many_lines_makes_no_panel_flat_and_cuts_no_name():
    looks = {f"a name of a line that is long {n}": {"color": f"C{n}"} for n in range(7)}
    label = "train log-likelihood (of all rows)"
    panel = Panel(lambda axes: None, xlabel="updates", ylabel=label, looks=looks)
    figure = compose([panel]).figure
    figure.draw_without_rendering()
    (axes,) = figure.axes
    box = axes.yaxis.label.get_window_extent()
    assert 0 <= box.y0 < box.y1 <= figure.bbox.height
    assert axes.get_window_extent().height > 1.5 * figure.dpi
    assert figure.legends[0].get_window_extent().y1 < axes.get_window_extent().y0
