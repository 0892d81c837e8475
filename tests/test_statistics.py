"""Wilcoxon tests, Holm's correction and the marks of a row, against plain Python."""

from dataclasses import replace
from itertools import combinations, product
from math import inf, nan, sqrt

import numpy as np
import pandas as pd
import pytest

from cbm_cli.results import Metric, default_metric
from cbm_cli.statistics.cells import Cell, cell_of, mark_row
from cbm_cli.statistics.values import text_of
from cbm_cli.statistics.wilcoxon import finite_ranks, holm, rank_sum, signed_rank


def series(*values, trials=None):
    return pd.Series(values, index=range(len(values)) if trials is None else trials, dtype=float)


def cell(*values, planned=0, finals=None, trials=None):
    maxima = series(*values, trials=trials)
    return Cell({}, planned, maxima, maxima if finals is None else series(*finals))


def average_ranks(values):
    """Rank of each value, ties sharing the mean of their places."""
    return [sum(w < v for w in values) + (1 + sum(w == v for w in values)) / 2 for v in values]


def exact_signed_rank(differences):
    """Two-sided p-value by flipping every sign in turn."""
    ranks = average_ranks([abs(d) for d in differences])
    total = sum(ranks)

    def distance(signs):
        return abs(sum(r for r, s in zip(ranks, signs, strict=True) if s > 0) - total / 2)

    seen = distance(differences)
    flips = list(product([-1, 1], repeat=len(ranks)))
    return sum(distance(signs) >= seen - 1e-9 for signs in flips) / len(flips)


def exact_rank_sum(x, y):
    """Two-sided p-value by giving every subset of the pooled ranks to x."""
    ranks = average_ranks([*x, *y])
    middle = sum(ranks) * len(x) / len(ranks)
    seen = abs(sum(ranks[: len(x)]) - middle)
    subsets = list(combinations(ranks, len(x)))
    return sum(abs(sum(subset) - middle) >= seen - 1e-9 for subset in subsets) / len(subsets)


@pytest.mark.parametrize("n", [1, 2, 5, 6, 8, 11])
@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_signed_rank_p_value_is_that_of_all_sign_flips(n, shift):
    rng = np.random.default_rng(n)
    x, y = rng.normal(shift, 1, n), rng.normal(0, 1, n)
    expected = exact_signed_rank(list(x - y))
    assert signed_rank(series(*x), series(*y)).p_value == pytest.approx(expected, rel=1e-12)


def test_tied_differences_are_still_exact_for_few_pairs():
    x, y = [3, 1, 4, 1, 5, 9, 2], [2, 2, 2, 2, 3, 3, 3]
    expected = exact_signed_rank([a - b for a, b in zip(x, y, strict=True)])
    assert signed_rank(series(*x), series(*y)).p_value == pytest.approx(expected, rel=1e-12)


def test_zero_differences_do_not_count_as_evidence():
    x, y = [0.0] * 20 + [1, 2, 3, 4, 5], [0.0] * 25
    outcome = signed_rank(series(*x), series(*y))
    assert outcome.p_value == pytest.approx(2 / 2**5)  # five of one sign: not significant
    assert outcome.n_pairs == 25


def test_all_differences_zero_gives_p_one():
    outcome = signed_rank(series(*[-28.28] * 25), series(*[-28.28] * 25))
    assert (outcome.p_value, outcome.effect_size, outcome.n_pairs) == (1.0, 0.0, 25)


def test_pairs_are_matched_by_trial_number_not_by_position():
    best = series(10, 20, 30, 40, 50, 60, 70, trials=[0, 1, 2, 3, 4, 5, 6])
    other = series(69, 59, 49, 39, 29, 19, 0, trials=[6, 5, 4, 3, 2, 1, 99])
    outcome = signed_rank(best, other)
    assert outcome.n_pairs == 6
    assert outcome.p_value == pytest.approx(2 / 2**6)
    assert outcome.effect_size == 1.0


def test_effect_size_of_signed_rank_by_hand():
    # differences 3, -1, 2: ranks 3, 1, 2; (3 + 2 - 1) / 6
    assert signed_rank(series(3, 0, 2), series(0, 1, 0)).effect_size == pytest.approx(4 / 6)


@pytest.mark.parametrize(("n", "m"), [(3, 4), (6, 5), (7, 7)])
def test_rank_sum_p_value_is_that_of_all_relabellings(n, m):
    rng = np.random.default_rng(n)
    x, y = rng.normal(0.7, 1, n), rng.normal(0, 1, m)
    outcome = rank_sum(series(*x), series(*y))
    assert outcome.p_value == pytest.approx(exact_rank_sum(list(x), list(y)), rel=1e-12)
    higher = sum(a > b for a in x for b in y)
    assert outcome.effect_size == pytest.approx((higher - (n * m - higher)) / (n * m))
    assert outcome.n_pairs == min(n, m)


def test_diverged_trials_rank_below_everything_finite():
    x, y = finite_ranks(np.array([-inf, -3.0, -1.0]), np.array([nan, -2.0, -inf]))
    assert x[0] == y[0] == y[2] < -3.0
    assert x[2] - y[2] > max(abs(a - b) for a in (x[1], x[2]) for b in (x[1], x[2], y[1]))


def test_two_diverged_trials_are_a_zero_difference():
    all_diverged = signed_rank(series(-inf, nan), series(nan, -inf))
    assert all_diverged.p_value == 1.0
    best, other = series(1, 2, 3, 4, 5, 6, nan), series(0, 0, 0, 0, 0, 0, -inf)
    assert signed_rank(best, other).p_value == pytest.approx(2 / 2**6)


def test_a_method_that_always_diverges_is_significantly_worse():
    best, other = mark_row([cell(*range(8)), cell(*[nan] * 8)])
    assert best.best
    assert best.bold
    assert not other.bold
    assert other.against_best.p_value == pytest.approx(2 / 2**8)


def test_holm_by_hand():
    # sorted 0.005, 0.01, 0.03, 0.04: times 4, 3, 2, 1 is 0.02, 0.03, 0.06, 0.04, the last raised to 0.06
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_bold_marks_of_a_hand_made_row():
    base = [-50.0, -51, -52, -53, -54, -55, -56, -57]
    equal = [v + d for v, d in zip(base, [-1, 1, -2, 2, -3, 3, -4, 3.5], strict=True)]
    worse = [v - 1 - i / 10 for i, v in enumerate(base)]
    marked = mark_row([cell(*worse), None, cell(*base), cell(*equal)])
    assert [c and (c.best, c.bold, c.underlined) for c in marked] == [
        (False, False, False),
        None,
        (True, True, False),
        (False, True, False),
    ]
    assert marked[0].against_best.p_value == pytest.approx(2 / 2**8)
    assert marked[2].against_best is None


def test_holm_can_make_a_cell_bold_again():
    base = [float(i) for i in range(6)]
    worse = [cell(*(v - 1 - i * k / 10 for i, v in enumerate(base))) for k in (1, 2)]
    plain = mark_row([cell(*base), *worse])
    held = mark_row([cell(*base), *worse], correction="holm")
    assert [c.bold for c in plain] == [True, False, False]  # 2 / 64 = 0.031 each
    assert [c.bold for c in held] == [True, True, True]  # doubled: 0.0625
    assert held[1].against_best.p_value == pytest.approx(4 / 64)


def test_alpha_is_the_level_of_the_marks():
    row = [cell(*range(6)), cell(*(i - 1 - i / 10 for i in range(6)))]
    assert [c.bold for c in mark_row(row, alpha=0.03)] == [True, True]
    assert [c.bold for c in mark_row(row, alpha=0.04)] == [True, False]


def test_fewer_than_six_pairs_underline_the_best_and_claim_nothing():
    marked = mark_row([cell(1, 2, 3, 4, 5), cell(2, 3, 4, 5, 6)])
    assert [(c.bold, c.underlined, c.against_best) for c in marked] == [
        (False, False, None),
        (False, True, None),
    ]


def test_a_cell_with_a_trial_without_a_value_is_not_the_best():
    lucky, steady = mark_row([cell(10, -inf, 10, 10, 10, 10), cell(1, 2, 3, 4, 5, 6)])
    assert not lucky.best
    assert steady.best


def test_a_row_of_one_cell_has_no_best():
    assert not mark_row([cell(1, 2, 3, 4, 5, 6), None, cell()])[0].best


def test_cell_sums_up_a_hand_made_run():
    frame = pd.DataFrame(
        {
            "trial": [0, 1, 2, 3],
            "n_train": 16,
            "train_log_likelihood_max": [-1.0, -2.0, -4.0, -inf],
            "train_log_likelihood_final": [-2.0, -3.0, -7.0, nan],
            "train_log_likelihood_max_update": [50, 100, 150, 100],
            "diverged": [nan, nan, nan, 150.0],
        }
    )
    total = cell_of(frame, "train_log_likelihood", "total", {}, planned=25)
    assert (total.n, total.planned, total.complete, total.diverged) == (4, 25, False, 1)
    assert total.mean == pytest.approx(-7 / 3 * 16)
    squares = [(v + 7 / 3) ** 2 for v in (-1, -2, -4)]
    assert total.std == pytest.approx(16 * sqrt(sum(squares) / 2))
    assert total.final_mean == pytest.approx(-4 * 16)
    assert total.best_update == 100
    per_sample = cell_of(frame, "train_log_likelihood", "per-sample", {})
    assert per_sample.mean == pytest.approx(-7 / 3)


COSTS = {
    "n_test": 10,
    "test_cost_min": [2.0, 3.0, inf, 4.0],
    "test_cost_final": [2.5, 3.5, nan, 4.5],
    "test_cost_best_valid": [2.2, 3.2, 9.0, 4.2],
    "test_cost_min_update": [100, 200, 100, 300],
    "epochs": [40, 40, 40, nan],
    "epochs_to_convergence": [20, nan, nan, 30],
    "diverged": [nan, nan, 150, nan],
}


def test_a_cost_is_its_minimum_with_the_epochs_of_trials_that_did_not_diverge():
    cell = cell_of(pd.DataFrame({"trial": [0, 1, 2, 3]} | COSTS), "test_cost", "per-sample", {}, planned=4)
    assert (cell.better, cell.mean, cell.diverged, cell.best_update) == (-1, 3.0, 1, 175)
    assert cell.epochs.to_dict() == {0: 20, 1: 40, 3: 30}  # trial 1 did not converge in its 40 epochs
    assert cell.long()["epochs_to_convergence"] == 30
    frame = pd.DataFrame({"trial": [0, 1, 2, 3]} | COSTS)
    valid = cell_of(frame, "test_cost", "total", {}, statistic="best-valid")
    assert valid.values.tolist() == [22, 32, 90, 42]


def test_trials_without_the_metric_are_left_out_and_none_is_planned_where_none_has_it():
    frame = pd.DataFrame({"trial": [0, 1, 2], "diverged": nan, "test_log_likelihood_ais": [-3.0, nan, -5.0]})
    some = cell_of(frame, "test_log_likelihood_ais", "per-sample", {}, planned=3)
    assert (some.n, some.planned, some.mean, some.diverged) == (2, 3, -4.0, 0)
    none = cell_of(frame.assign(test_log_likelihood_ais=nan), "test_log_likelihood_ais", "per-sample", {}, 3)
    assert (none.n, none.planned, none.complete) == (0, 0, True)


def test_marks_of_costs_are_those_of_the_same_values_turned_around():
    rng = np.random.default_rng(3)
    for shift in (0.0, 0.5, 2.0):
        gains = [rng.normal(k * shift, 1, 9) for k in range(4)]
        gains[1][0] = -inf  # diverged
        for test, correction in product(("signed-rank", "rank-sum"), (None, "holm")):
            marked = mark_row([cell(*g) for g in gains], test, 0.05, correction)
            turned = mark_row([replace(cell(*-g), better=-1) for g in gains], test, 0.05, correction)
            assert [(c.best, c.bold, c.against_best) for c in marked] == [
                (c.best, c.bold, c.against_best) for c in turned
            ]
            assert any(c.bold for c in marked)


def test_nothing_is_marked_where_neither_more_nor_less_is_better():
    row = [replace(cell(*range(8)), better=0), replace(cell(*range(10, 18)), better=0)]
    assert not any(c.best or c.bold or c.underlined for c in mark_row(row))


@pytest.mark.parametrize(
    ("column", "part", "sign", "name"),
    [
        ("train_log_likelihood", "train", 1, "log-likelihood"),
        ("test_log_likelihood_ais", "test", 1, "log-likelihood ais"),
        ("test_lower_bound", "test", 1, "lower bound of the log-likelihood"),
        ("valid_tighter_bound", "valid", 1, "tighter bound of the log-likelihood"),
        ("train_cost", "train", -1, "cost"),
        ("weight_norm", "", 0, "weight norm"),
        ("log_z_standard_error", "", 0, "log-z standard error"),
        ("mean_field_unsettled", "", 0, "mean field unsettled"),
    ],
)
def test_a_column_says_what_it_measures(column, part, sign, name):
    metric = Metric(column)
    assert (metric.part, metric.better, metric.name) == (part, sign, name)


@pytest.mark.parametrize(
    ("there", "shown"),
    [
        (["log_z", "test_log_likelihood", "train_log_likelihood"], "train_log_likelihood"),
        (["test_log_likelihood"], "test_log_likelihood"),
        (["train_cost", "valid_cost", "test_cost"], "test_cost"),
        (["train_cost", "valid_cost"], "train_cost"),
        (["train_lower_bound", "train_tighter_bound", "test_lower_bound", "log_z"], "test_lower_bound"),
        (["train_lower_bound", "log_z"], "train_lower_bound"),
        (["weight_norm"], None),
    ],
)
def test_the_metric_by_default_is_that_of_the_kind_of_machine(there, shown):
    assert default_metric(there) == shown


def test_std_of_one_trial_is_unknown():
    assert np.isnan(cell(-3.0).std)


@pytest.mark.parametrize(
    ("value", "text"), [(None, ""), (nan, ""), (50000.0, "50000"), (0.05, "0.05"), ("00", "00"), (16, "16")]
)
def test_one_spelling_of_a_setting(value, text):
    assert text_of(value) == text
