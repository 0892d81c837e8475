"""Wilcoxon tests, Holm's correction and the marks of a row, against plain Python and SciPy."""

from itertools import combinations, product
from math import inf, nan

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from cbm_cli.results import Metric, default_metric
from cbm_cli.statistics import Marking, mark_row
from cbm_cli.statistics.wilcoxon import EXACT, finite_ranks, holm, rank_sum, signed_rank


def sample(*values):
    return dict(enumerate(map(float, values)))


def marks_of(row):
    """best, bold and underlined of each mark, as initials."""
    letters = {"best": "B", "bold": "b", "underlined": "u"}
    return ["".join(letters[name] for name in letters if getattr(one, name)) for one in row]


def marked(cells, **marking):
    return marks_of(mark_row(cells, Marking(**marking)))


def average_ranks(values):
    """Rank of each value, ties sharing the mean of their places."""
    return [sum(w < v for w in values) + (1 + sum(w == v for w in values)) / 2 for v in values]


def exact_signed_rank(differences):
    """Two-sided p-value by flipping every sign in turn."""
    ranks = average_ranks([abs(d) for d in differences])

    def distance(signs):
        return abs(sum(r for r, s in zip(ranks, signs, strict=True) if s > 0) - sum(ranks) / 2)

    found = [distance(signs) for signs in product([-1, 1], repeat=len(ranks))]
    return np.mean(np.array(found) >= distance(differences) - 1e-9)


def exact_rank_sum(x, y):
    """Two-sided p-value by giving every subset of the pooled ranks to x."""
    ranks = average_ranks([*x, *y])
    found = np.abs(np.array([*map(sum, combinations(ranks, len(x)))]) - sum(ranks) * len(x) / len(ranks))
    return np.mean(found >= found[0] - 1e-9)


@pytest.mark.parametrize("n", [1, 2, 5, 6, 8, 11])
@pytest.mark.parametrize("shift", [0.0, 1.0])
@pytest.mark.parametrize("decimals", [None, 0])  # rounded: with ties
def test_signed_rank_is_all_sign_flips(n, shift, decimals):
    rng = np.random.default_rng(n)
    x, y = rng.normal(shift, 1, n), rng.normal(0, 1, n)
    difference = x - y if decimals is None else np.where(np.abs(x - y) < 0.5, 0.75, np.round(x - y))
    found = signed_rank(sample(*difference), sample(*[0] * n))
    assert found.p_value == pytest.approx(exact_signed_rank(list(difference)), rel=1e-12)
    ranks, total = average_ranks(list(np.abs(difference))), n * (n + 1) / 2
    assert found.effect_size == pytest.approx(np.sum(np.sign(difference) * ranks) / total)


@pytest.mark.parametrize("n", [6, 14, EXACT, EXACT + 1, 200])
def test_signed_rank_is_scipys(n):
    difference = np.random.default_rng(n).normal(0.3, 1, n)
    expected = stats.wilcoxon(difference, method="exact" if n <= EXACT else "approx")
    assert signed_rank(sample(*difference), sample(*[0] * n)).p_value == pytest.approx(expected.pvalue)


@pytest.mark.parametrize("n", range(1, 12))
def test_the_smallest_p_is_the_end_of_the_exact_null_distribution(n):
    ahead = signed_rank(sample(*range(1, n + 1)), sample(*[0] * n))
    assert ahead.smallest_p == ahead.p_value == stats.wilcoxon(np.arange(1, n + 1), method="exact").pvalue
    both = rank_sum(sample(*range(n, 2 * n)), sample(*range(n)))
    exact = stats.mannwhitneyu(np.arange(n, 2 * n), np.arange(n), method="exact").pvalue
    assert both.smallest_p == pytest.approx(exact)
    assert ahead.powered(0.05) == (n >= 6)


def test_zero_differences_are_no_evidence():
    found = signed_rank(sample(*[0] * 20, 1, 2, 3, 4, 5), sample(*[0] * 25))
    assert found.p_value == pytest.approx(2 / 2**5)  # five of one sign: not significant
    assert found.n_pairs == 25
    same = signed_rank(sample(*[-28.28] * 25), sample(*[-28.28] * 25))
    assert (same.p_value, same.effect_size, same.n_pairs) == (1.0, 0.0, 25)
    lost = signed_rank(sample(*[-inf] * 7), sample(*[nan] * 7))  # they allow no difference
    assert (lost.p_value, lost.smallest_p, lost.n_pairs) == (1.0, 1.0, 7)


def test_pairs_are_matched_by_trial_number_not_by_position():
    best = dict(zip(range(7), (10, 20, 30, 40, 50, 60, 70), strict=True))
    other = dict(zip([6, 5, 4, 3, 2, 1, 99], (69, 59, 49, 39, 29, 19, 0), strict=True))
    found = signed_rank(best, other)
    assert (found.n_pairs, found.p_value, found.effect_size) == (6, 2 / 2**6, 1.0)


@pytest.mark.parametrize(("n", "m"), [(1, 6), (3, 4), (6, 5), (6, 6), (4, 8)])
@pytest.mark.parametrize("levels", [None, 2, 5])  # of few levels: with ties
def test_rank_sum_is_all_relabellings(n, m, levels):
    rng = np.random.default_rng(n * m)
    x, y = rng.normal(0.7, 1, n), rng.normal(0, 1, m)
    if levels:
        x, y = (np.clip(np.round(levels * side), 0, levels - 1) for side in (x, y))
    found = rank_sum(sample(*x), sample(*y))
    assert found.p_value == pytest.approx(exact_rank_sum(list(x), list(y)), rel=1e-12)
    pairs = [np.sign(a - b) for a in x for b in y]
    assert found.effect_size == pytest.approx(np.mean(pairs))
    assert found.n_pairs == min(n, m)


@pytest.mark.parametrize(("n", "m"), [(25, 25), (26, 25), (3, 200)])
def test_rank_sum_is_scipys(n, m):
    rng = np.random.default_rng(n)
    x, y = rng.normal(0.4, 1, n), rng.normal(0, 1, m)
    expected = stats.mannwhitneyu(x, y, method="exact" if n + m <= EXACT else "asymptotic")
    assert rank_sum(sample(*x), sample(*y)).p_value == pytest.approx(expected.pvalue)


def test_rank_sum_has_no_smaller_p_value_than_is_possible():
    found = rank_sum(sample(1), sample(*[2] * 60))  # by the normal approximation 3e-14
    assert found.p_value == found.smallest_p == pytest.approx(2 / 61)


def test_diverged_trials_rank_below_everything_finite():
    x, y = finite_ranks(np.array([-inf, -3.0, -1.0]), np.array([nan, -2.0, -inf]))
    assert x[0] == y[0] == y[2] < -3.0
    assert x[2] - y[2] > max(abs(a - b) for a in (x[1], x[2]) for b in (x[1], x[2], y[1]))


def test_two_diverged_trials_are_no_pair_that_could_differ():
    assert signed_rank(sample(-inf, nan), sample(nan, -inf)).p_value == 1.0
    found = signed_rank(sample(1, 2, 3, 4, 5, 6, nan), sample(0, 0, 0, 0, 0, 0, -inf))
    assert found.p_value == found.smallest_p == 2 / 2**6
    best, other = mark_row([sample(*range(5), nan), sample(*range(5, 10), nan)], Marking())
    assert other.underlined  # six pairs, of which only five could have found a difference
    assert not best.claimed


def test_holm_by_hand():
    # sorted 0.005, 0.01, 0.03, 0.04: times 4, 3, 2, 1 is 0.02, 0.03, 0.06, 0.04, the last raised to 0.06
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


BASE = [-50.0, -51, -52, -53, -54, -55, -56, -57]
EQUAL = [v + d for v, d in zip(BASE, [-1, 1, -2, 2, -3, 3, -4, 3.5], strict=True)]
WORSE = [v - 1 - i / 10 for i, v in enumerate(BASE)]


def ahead(n, *leads):
    """A cell of n trials, and one for each lead that is below it in every pair."""
    return [sample(*range(n)), *(sample(*(i - 1 - i * k / 10 for i in range(n))) for k in leads)]


@pytest.mark.parametrize(
    ("cells", "marking", "marks"),
    [
        ([sample(*WORSE), None, sample(*BASE), sample(*EQUAL)], {}, ["", "", "Bb", "b"]),
        (ahead(8, 1, 2), {"correction": "holm"}, ["Bb", "", ""]),  # 2 / 256 each, doubled: 0.016
        ([sample(*BASE), sample(*EQUAL), sample(*WORSE)], {"alpha": 1e-3}, ["Bu", "", ""]),  # 2 / 256 > alpha
        (ahead(6, 1), {}, ["Bb", ""]),  # 2 / 64 = 0.031
        (ahead(6, 1), {"alpha": 0.03}, ["Bu", ""]),  # no difference could have been found
        (ahead(6, 1, 2), {"correction": "holm"}, ["Bu", "", ""]),  # doubled: 0.0625
        (ahead(6, 1, 2), {"test": "rank-sum", "correction": "holm"}, ["Bb", "b", "b"]),
        ([sample(*BASE), sample(*WORSE), sample(-70, -71, -72)], {}, ["Bu", "", ""]),  # one has too few
        ([sample(1, 2, 3, 4, 5), sample(2, 3, 4, 5, 6)], {}, ["", "Bu"]),  # fewer than six pairs
        ([sample(1, 2, 3, 4, 5), sample(12, 13, 14, 15, 16)], {"test": "rank-sum"}, ["", "Bu"]),
        ([sample(10, -inf, 10, 10, 10, 10), sample(1, 2, 3, 4, 5, 6)], {}, ["b", "Bb"]),  # lucky, steady
        ([sample(*range(8)), sample(*[nan] * 8)], {}, ["Bb", ""]),  # one always diverges
        ([sample(*range(6)), None, sample()], {}, ["", "", ""]),  # one cell with trials
        ([sample(*range(8)), sample(*range(10, 18))], {"better": 0}, ["", ""]),
        ([sample(*range(8)), sample(*range(10, 18))], {"better": -1}, ["Bb", ""]),
    ],
)
def test_marks_of_hand_made_rows(cells, marking, marks):
    assert marked(cells, **marking) == marks


def test_holm_can_make_a_cell_bold_again():
    close = sample(
        *(i - 1 if i else 0.5 for i in range(8))
    )  # ahead of the best in the pair that differs least
    plain, held = (
        mark_row([*ahead(8), close, close], Marking(alpha=0.02, correction=c)) for c in (None, "holm")
    )
    assert marks_of(plain) == ["Bb", "", ""]
    assert [one.against_best.p_value for one in plain[1:]] == [4 / 2**8] * 2
    assert marks_of(held) == ["Bb", "b", "b"]
    assert (held[1].against_best.p, held[1].against_best.smallest_p) == (8 / 2**8, 4 / 2**8)


def test_no_p_value_is_possible_above_one():
    _, *others = mark_row([sample(k, k + 1) for k in (4, 3, 2, 1)], Marking(correction="holm"))
    assert [mark.against_best.smallest_p for mark in others] == [1.0] * 3  # of 0.5 times 3


@pytest.mark.parametrize("test", ["signed-rank", "rank-sum"])
@pytest.mark.parametrize("better", [1, -1])
def test_a_cell_better_in_nearly_all_pairs_is_marked_though_its_mean_is_worse(test, better):
    steady = np.arange(25) / 100
    lucky = steady + 1
    lucky[7] = -1000
    far = steady - 50
    cells = [sample(*better * values) for values in (lucky, steady, far)]
    row = mark_row(cells, Marking(better, test))
    assert marks_of(row) == ["b", "Bb", ""]
    assert [one.disputed for one in row] == [False, True, False]
    assert [one.better_by_test for one in row] == [True, False, False]
    p = row[0].against_best.p_value
    assert p < 1e-4
    at, above = (mark_row(cells, Marking(better, test, alpha))[0] for alpha in (p, 1.01 * p))
    assert (at.better_by_test, above.better_by_test, at.bold) == (False, True, True)  # below alpha, not at it
    few = mark_row([sample(*lucky[5:10]), sample(*steady[5:10])], Marking())
    assert not any(one.disputed or one.better_by_test for one in few)  # five pairs show nothing


def test_marks_of_costs_are_those_of_the_same_values_turned_around():
    rng = np.random.default_rng(3)
    for shift in (0.0, 0.5, 2.0):
        gains = [rng.normal(k * shift, 1, 9) for k in range(4)]
        gains[1][0] = -inf  # diverged
        for test, correction in product(("signed-rank", "rank-sum"), (None, "holm")):
            marks = marked([sample(*g) for g in gains], test=test, correction=correction)
            assert marks == marked([sample(*-g) for g in gains], better=-1, test=test, correction=correction)
            assert "Bb" in marks


COLUMNS = {  # part, which is better, name
    "train_log_likelihood": ("train", 1, "log-likelihood"),
    "test_log_likelihood_ais": ("test", 1, "log-likelihood ais"),
    "test_lower_bound": ("test", 1, "lower bound of the log-likelihood"),
    "valid_tighter_bound": ("valid", 1, "tighter bound of the log-likelihood"),
    "train_cost": ("train", -1, "cost"),
    "weight_norm": ("", 0, "weight norm"),
    "log_z_standard_error": ("", 0, "log-z standard error"),
    "mean_field_unsettled": ("", 0, "mean field unsettled"),
}


@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_says_what_it_measures(column):
    metric = Metric(column)
    assert (metric.part, metric.better, metric.name) == COLUMNS[column]


@pytest.mark.parametrize(
    ("there", "shown"),
    [
        ("log_z test_log_likelihood train_log_likelihood", "test_log_likelihood"),
        ("test_log_likelihood", "test_log_likelihood"),
        ("train_cost valid_cost test_cost", "test_cost"),
        ("train_cost valid_cost", "train_cost"),
        ("train_lower_bound train_tighter_bound test_lower_bound log_z", "test_lower_bound"),
        ("train_lower_bound log_z", "train_lower_bound"),
        ("weight_norm", None),
    ],
)
def test_the_default_metric_depends_on_the_kind_of_machine(there, shown):
    frame = pd.DataFrame({f"{name}_final": [1.0] for name in there.split()})
    assert default_metric(frame) == shown
