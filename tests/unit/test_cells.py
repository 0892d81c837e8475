"""Cells: numbers about the trials of a run, the same for every reader."""

import textwrap
from math import inf, nan
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from cbm_cli.report.kinds import draw
from cbm_cli.report.options import Options
from cbm_cli.report.panels import compose
from cbm_cli.results import Metric, Outcome, Results
from cbm_cli.results.cells import Cell, Measure, Trials
from cbm_cli.results.journal import Run

from tests.builders import cbm, run_grid
from tests.golden import outputs
from tests.journals import PLAIN, change_manifest

FRAME = {"trial": [0, 1, 2, 3], "n_train": [16] * 4, "diverged": [nan, nan, nan, 150.0]}
FRAME |= {"train_log_likelihood_max": [-1.0, -2.0, -4.0, -inf]}
FRAME |= {"train_log_likelihood_final": [-2.0, -3.0, -7.0, nan]}
FRAME |= {"train_log_likelihood_max_update": [50, 100, 150, 100]}
COSTS = {
    "trial": [0, 1, 2, 3],
    "diverged": [nan, nan, 150, nan],
    "n_train": 105,
    "batch": 10,
}
COSTS |= {"n_test": 10, "test_cost_min": [2.0, 3.0, inf, 4.0], "valid_cost_final": 9.0}
COSTS |= {
    "test_cost_final": [2.5, 3.5, nan, 4.5],
    "test_cost_best_valid": [2.2, 3.2, 9.0, 4.2],
}
COSTS |= {"test_cost_min_update": [100, 200, 100, 300]}
COSTS |= {"valid_cost_min_update": [80, 160, 100, 280]}


def cell_of(columns, metric, scale="per-sample", statistic="max", planned=0, curves=()):
    frame, store = pd.DataFrame(columns), SimpleNamespace(curves=lambda *_: curves)
    measure = Measure(Metric(metric), scale, statistic)
    settings = PLAIN
    if "batch" in frame:
        settings = PLAIN.model_copy(update={"batch": frame["batch"].iloc[0]})
    return Cell(
        Run("r", settings),
        Trials(frame, store),
        np.arange(len(frame)),
        measure,
        planned,
    )


METRIC = "valid_log_likelihood"
ESTIMATED = ("update", "epoch", METRIC, f"{METRIC}_at_most", "effective_sample_size")
DISPROVED = [[0, 0, -9, -8, 50], [10, 1, -6, -5, 50], [20, 2, 4, -7, 0]]
DISPROVED += [[30, 3, -5.5, -5.6, 60], [40, 4, 3, -8, 0]]


@pytest.mark.parametrize("statistic", ["max", "final", "best-valid", "max-of-mean"])
def test_a_disproved_estimate_is_never_shown_and_never_the_best(statistic):
    value, bounded = (-8, True) if statistic == "final" else (-5.5, False)
    outcome = Outcome(ESTIMATED, np.array(DISPROVED, float), {}, None, 1.0)
    row = {"trial": 0, "n_valid": 2, **outcome.summary()}
    assert row[f"{METRIC}_max_update"] == 30
    ends = [row[f"{METRIC}_at_most_{it}"] for it in ("max", "best_valid", "final")]
    assert ends == [-5.6, -5.6, -8]
    curve = pd.DataFrame(outcome.curve, columns=ESTIMATED)
    cell = cell_of([row], METRIC, "total", statistic, curves=[curve])
    assert (cell.value.tolist(), cell.bounded.tolist()) == ([2 * value], [bounded])
    assert cell.curves()[0].tolist() == [-18, -12, -14, -11, -16]
    if statistic == "max-of-mean":
        late = cell_of(
            [row], METRIC, "total", statistic, curves=[curve.iloc[[0, 2, 4]]]
        )
        assert (late.value.tolist(), late.bounded.tolist()) == ([-14], [True])


@pytest.mark.parametrize("statistic", ["max", "final", "best-valid", "max-of-mean"])
def test_a_log_likelihood_above_0_is_shown_as_at_most_0(statistic):
    metric, ends = "test_log_likelihood", ("max", "final", "best_valid", "max_of_mean")
    frame = {"trial": [0, 1], "diverged": nan, "n_test": 4}
    frame |= {f"{metric}_{end}": [2.5, -1.5] for end in ends}
    found = cell_of(frame, metric, "total", statistic)
    assert (found.value.tolist(), found.mean) == ([0, -6], -3)
    assert found.bounded.tolist() == [True, False]
    assert (found.doubts.tolist(), found.impossible.tolist()) == (
        [True, False],
        [True, False],
    )
    cost = {name.replace("log_likelihood", "cost"): its for name, its in frame.items()}
    known = cell_of(
        cost | {"test_cost_min": [2.5, 1.5]}, "test_cost", "total", statistic
    )
    assert known.value[0] == 10
    assert not (known.bounded | known.doubts).any()
    infinite = {
        name: [inf, -3.0] if metric in name else its for name, its in frame.items()
    }
    assert cell_of(infinite, metric, statistic=statistic).diverged == 1


LEVEL = [[-1, -9, -5, -8], [-1, -9, -7, -2]]


@pytest.mark.parametrize(
    ("curves", "values", "update"),  # by trial
    [
        (
            [*LEVEL, [-1, -3, nan, nan]],
            [-9, -9, -3],
            50,
        ),  # nothing counts from a divergence on
        ([LEVEL[0][:3], LEVEL[1]], [-5, -2], 150),  # one stops early
        ([LEVEL[0], [-1]], [], nan),  # one was never evaluated
    ],
)
def test_the_maximum_of_the_mean_is_one_evaluation_for_all_trials(
    curves, values, update
):
    frames = [
        pd.DataFrame({"update": range(0, 50 * len(it), 50), METRIC: it})
        for it in curves
    ]
    lost = [60 if it[-1] != it[-1] else nan for it in curves]
    known = {"trial": range(len(curves)), "n_valid": 2, "diverged": lost}
    cell = cell_of(known, METRIC, statistic="max-of-mean", curves=frames)
    assert cell.value.tolist() == values
    assert cell.best_update == pytest.approx(update, nan_ok=True)


@pytest.mark.parametrize(
    ("metric", "end", "best"),
    [("valid_lower_bound", "max", (-4, 30)), ("valid_cost", "min", (-5, 20))],
)
def test_a_value_that_is_not_finite_is_never_the_best(metric, end, best):
    curve = [
        [0, 0, -1],
        [10, 1, nan],
        [20, 2, -5],
        [30, 3, -4],
        [40, 4, -inf],
        [50, 5, inf],
    ]
    row = Outcome(("update", "epoch", metric), np.array(curve), {}, None, 1.0).summary()
    assert (row[f"{metric}_{end}"], row[f"{metric}_{end}_update"]) == best
    assert row[f"{metric}_best_valid"] == best[0]


def test_a_cell_counts_the_trials_that_diverged_and_leaves_them_out_of_its_mean():
    total = cell_of(FRAME, "train_log_likelihood", "total", planned=25)
    assert (total.n, total.planned, total.complete) == (4, 25, False)
    assert total.mean == pytest.approx(-7 / 3 * 16)
    assert np.nanmean(total.final) == pytest.approx(-4 * 16)
    one = {name: its[:1] for name, its in FRAME.items()}
    assert np.isnan(cell_of(one, "train_log_likelihood").std)
    before = {
        "train_log_likelihood_max": [-1.0, -2.0, -4.0, nan]
    }  # any evaluation it diverged
    assert cell_of(FRAME | before, "train_log_likelihood").n == 4
    # values, parameters or both not finite
    for diverged, number in (
        ([nan] * 4, 1),
        ([nan, 150, nan, nan], 2),
        ([nan, nan, nan, 150], 1),
    ):
        assert (
            cell_of(FRAME | {"diverged": diverged}, "train_log_likelihood").diverged
            == number
        )


def test_a_cost_is_its_minimum_with_the_epochs_of_trials_that_did_not_diverge():
    found = cell_of(COSTS, "test_cost", planned=4)
    assert (found.mean, found.diverged, found.best_update) == (3.0, 1, 175)
    assert found.epochs.tolist() == [
        10,
        20,
        30,
    ]  # of 10 updates; five rows have no place in them
    valid = cell_of(COSTS, "test_cost", "total", "best-valid")
    assert ([*valid.values.values()], valid.epochs.tolist()) == (
        [22, 32, 90, 42],
        [8, 16, 28],
    )
    assert valid.best_update == 155  # of the validation cost, where the value was taken
    assert cell_of(COSTS | {"batch": "full"}, "test_cost").epochs.tolist() == [
        100,
        200,
        300,
    ]


def test_tables_and_pictures_show_the_statistic_that_the_grid_asks_for(tmp_path):
    results = outputs.unpack(tmp_path)
    for statistic, words in (
        ("max", "\nMinimum train cost during training, "),
        ("final", "\nFinal train cost, "),
        (
            "max-of-mean",
            "\nMinimum during training of the train cost's mean over trials, ",
        ),
    ):
        asked = cbm("table", results, "encoder", "--statistic", statistic).stdout
        assert words in asked
    change = {"statistic": "max-of-mean"}
    change_manifest(
        results / "encoder", lambda manifest: manifest["table"].update(change)
    )
    assert cbm("table", results, "encoder").stdout == asked
    for statistic, shares in ((None, [0.25, 1] * 2), ("final", [1] * 2)):
        panels = draw(
            Results(results), "finals", ["encoder"], Options(statistic=statistic)
        )
        clouds = compose(panels).figure.axes[0].collections
        assert [cloud.get_facecolor()[0, 3] for cloud in clouds] == shares


def test_a_table_warns_of_cells_that_gained_no_more_than_their_trials_differ(here):
    """Two updates of 40 rows teach nothing; the toy learns in all of its trials."""
    rng = np.random.default_rng(0)
    np.savetxt("survey.csv", rng.integers(0, 2, (40, 6)), fmt="%d", delimiter=",")
    grid = """
    experiments:
      toy:
        data: [{path: survey.csv}, {name: bars-and-stripes, size: 2}]
        model: {kind: rbm, hidden: 4}
        offsets: dd^b_s
        sampler: PCD-1
        learning_rate: 0.1
        updates: [2, 4000]
        exclude: [{data: {path: survey.csv}, updates: 4000}]
        batch: full
        evaluate: {method: exact, every: 2}
        trials: 4
    """
    folder = run_grid(textwrap.dedent(grid))
    notes = cbm("table", folder).stdout
    assert "NOT LEARNED: in 2 of 3 cells curves gained no more" in notes
    learned = cbm("table", folder, "--select", "updates=4000").stdout
    assert "NOT LEARNED" not in learned
    summary = pd.read_csv(folder / "toy/summary.csv")
    curves = pd.concat(map(pd.read_csv, (folder / "toy/curves").glob("*.csv")))
    starts = curves.loc[curves["update"] == 0, "train_log_likelihood"]
    assert sorted(summary["train_log_likelihood_start"]) == sorted(starts)


@pytest.mark.parametrize("scale", ["per-sample", "total"])
def test_what_a_cell_has_learned_does_not_depend_on_the_scale_of_its_table(scale):
    """Values of -1, -2 and -4 have a standard deviation of 1.5."""
    for start, learned in ((-5.0, True), (-3.0, False)):
        known = FRAME | {"train_log_likelihood_start": start}
        assert cell_of(known, "train_log_likelihood", scale).learned == learned
