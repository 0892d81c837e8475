"""Wilcoxon tests, Holm's correction and marks, against sums over all cases and
SciPy.
"""

import tracemalloc
from itertools import pairwise
from math import inf, nan

import numpy as np
import pytest
from cbm_cli.statistics import Marking, mark_row
from cbm_cli.statistics.wilcoxon import hodges_lehmann, holm, rank_sum, signed_rank
from scipy import stats

from tests.enumerated import by_all_intersections, by_all_signs, by_all_subsets


def sample(*values):
    return dict(enumerate(map(float, values)))


@pytest.mark.parametrize(("n", "alpha"), [(6, 0.05), (25, 0.01), (60, 0.05)])
def test_the_interval_of_a_difference_has_the_shifts_that_the_test_does_not_reject(
    n, alpha
):
    rng = np.random.default_rng(n)
    one, other = rng.normal(0.5, 1, n), rng.normal(0, 1, n)
    middle, low, high = hodges_lehmann(sample(*one), sample(*other), alpha)
    means = [(a + b) / 2 for i, a in enumerate(one - other) for b in (one - other)[i:]]
    assert middle == pytest.approx(np.median(means))
    for end, sign in ((low, 1), (high, -1)):
        for shift, rejected in ((-1e-6, True), (1e-6, False)):
            moved = signed_rank(sample(*(one - end - sign * shift)), sample(*other))
            assert (moved.p_value < alpha) == rejected


def shifts_and_p_values(differences):
    """The means of any two differences, and the p-value of every shift at which the
    test changes, and of one between any two of them and beyond either end.
    """
    n = len(differences)
    means = sorted(
        {(differences[i] + differences[j]) / 2 for i in range(n) for j in range(i, n)}
    )
    shifts = [means[0] - 1]
    for low, high in pairwise(means):
        shifts += [low, (low + high) / 2]
    shifts += [means[-1], means[-1] + 1]
    p_values = []
    for shift in shifts:
        moved = sample(*(value - shift for value in differences))
        p_values.append(signed_rank(moved, sample(*[0] * n)).p_value)
    return means, p_values


def test_interval_holds_the_shifts_that_the_test_keeps_with_ties_and_zeros():
    rng = np.random.default_rng(3)
    for _ in range(60):
        n = rng.integers(4, 15)
        differences = rng.integers(-4, 9, n) / 4  # many zeros and ties
        means, p_values = shifts_and_p_values([*differences.tolist()])
        test = signed_rank(sample(*differences), sample(*[0] * n))
        for alpha in (0.05, 0.1, 0.01):
            kept = np.flatnonzero(np.array(p_values) >= alpha).tolist()
            first, last = kept[0], kept[-1]
            assert kept == [*range(first, last + 1)]
            low = -inf if first == 0 else means[(first - 1) // 2]
            high = inf if last == len(p_values) - 1 else means[last // 2]
            found = hodges_lehmann(sample(*differences), sample(*[0] * n), alpha)
            assert (found.low, found.high) == (low, high)
            if found.low < 0 < found.high:
                assert test.p_value >= alpha
            if not found.low <= 0 <= found.high:
                assert test.p_value < alpha


def test_pair_without_a_difference_makes_test_and_interval_disagree_nowhere():
    differences = [1.51, 1.23, 0.7, 0, 1.61, 0, 1.65, -0.22, -0.07, 0.54, 1.16, -0.74]
    none = sample(*[0] * len(differences))
    test = signed_rank(sample(*differences), none)
    found = hodges_lehmann(sample(*differences), none, 0.05)
    below = sample(*(value + 1e-6 for value in differences))
    assert (found.low, found.high) == (0, pytest.approx(1.195))
    assert signed_rank(below, none).p_value < 0.05  # and 0 itself is kept
    assert test.p_value > 0.05
    expected, _ = by_all_signs(differences, [0] * len(differences))
    assert test.p_value == pytest.approx(expected)


def test_larger_differences_never_make_the_evidence_for_them_weaker():
    rng = np.random.default_rng(5)
    for _ in range(40):
        differences = rng.integers(-3, 6, 9) / 2
        ps = []
        for shift in np.arange(-3, 4.25, 0.25):
            test = signed_rank(sample(*(differences + shift)), sample(*[0] * 9))
            # one-sided, from the two-sided value and the direction
            is_above = test.effect_size > 0
            ps.append(test.p_value / 2 if is_above else 1 - test.p_value / 2)
        assert all(later <= before + 1e-12 for before, later in pairwise(ps))


@pytest.mark.parametrize("n", [51, 60, 400])
def test_many_pairs_have_the_means_of_two_that_sorting_them_all_gives(n):
    rng = np.random.default_rng(n)
    one = np.round(rng.normal(0.3, 1, n), 1)  # with ties
    found = hodges_lehmann(sample(*one), sample(*[0] * n), 0.05)
    rows, columns = np.triu_indices(n)
    means = np.sort(one[rows] / 2 + one[columns] / 2)
    assert found.estimate == pytest.approx(np.median(means), abs=1e-15)
    for end, sign in ((found.low, 1), (found.high, -1)):
        assert end in means
        for shift, is_rejected in ((-0.01, True), (0.01, False)):
            moved = sample(*(one - end - sign * shift))
            test = signed_rank(moved, sample(*[0] * n))
            assert (test.p_value < 0.05) == is_rejected


def test_differences_of_thousands_of_trials_take_little_memory():
    values = np.random.default_rng(1).normal(size=(2, 8000))
    one, other = sample(*values[0]), sample(*values[1])
    tracemalloc.start()
    hodges_lehmann(one, other, 0.05)
    signed_rank(one, other)
    rank_sum(one, other)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6  # bytes; all means of two would take 256e6


def test_difference_is_computed_once(monkeypatch):
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return hodges_lehmann(*arguments)

    monkeypatch.setattr("cbm_cli.statistics.marks.hodges_lehmann", counted)
    mark, _ = mark_row([sample(*range(6)), sample(*range(1, 7))], Marking())
    assert mark.difference == mark.difference
    assert mark.difference.estimate == -1
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("test", "alpha", "n", "is_powered"),
    [
        ("signed-rank", 0.05, 5, False),  # 0.0625
        ("signed-rank", 0.1, 5, True),
        ("signed-rank", 0.05, 6, True),
        ("signed-rank", 0.01, 7, False),  # 0.0156
        ("rank-sum", 0.05, 5, True),  # 0.0079
        ("rank-sum", 0.05, 4, True),  # 0.0286
        ("rank-sum", 0.05, 3, False),  # 0.1
        ("rank-sum", 0.0079, 5, False),
    ],
)
def test_smallest_possible_p_alone_decides_whether_significance_is_claimed(
    test, alpha, n, is_powered
):
    low, high = sample(*range(n)), sample(*range(100, 100 + n))
    marks = mark_row([low, high], Marking(test=test, alpha=alpha))
    assert [mark.name for mark in marks] == (
        ["", "bold"] if is_powered else ["", "underline"]
    )
    assert (marks[0].against_best.p < alpha) == is_powered


def test_a_difference_of_few_pairs_or_of_diverged_trials_has_no_end():
    assert hodges_lehmann(sample(1, 2, 3), sample(0, 0, 0), 0.05) == (2, -inf, inf)
    eight, worse = sample(*range(8)), sample(*[-inf] * 4, 3, 4, 5, 6)
    assert hodges_lehmann(worse, eight, 0.05) == (
        -inf,
        -inf,
        -1,
    )  # the fourth largest of 36 means
    same = hodges_lehmann(sample(*range(8), nan), sample(*range(1, 9), -inf), 0.05)
    assert same == (-1, -1, -1)  # two that diverged are not a pair
    assert np.isnan(hodges_lehmann(sample(1, nan), sample(nan, 1), 0.05)).all()
    assert np.isnan(hodges_lehmann({}, {}, 0.05)).all()


@pytest.mark.parametrize(("n", "m"), [(25, 25), (26, 25), (50, 3), (51, 200)])
def test_tests_of_many_trials_are_those_of_scipy(n, m):
    rng = np.random.default_rng(n)
    x, y = rng.normal(0.3, 1, n), rng.normal(0, 1, m)
    expected = stats.mannwhitneyu(x, y, method="exact" if n + m <= 50 else "asymptotic")
    assert rank_sum(sample(*x), sample(*y)).p_value == pytest.approx(expected.pvalue)
    expected = stats.wilcoxon(x, method="exact" if n <= 50 else "approx")
    assert signed_rank(sample(*x), sample(*[0] * n)).p_value == pytest.approx(
        expected.pvalue
    )


def test_the_smallest_p_is_that_of_samples_without_an_overlap():
    for n in (1, 5, 6):
        one, other = sample(*range(n, 2 * n)), sample(*range(n))
        apart = rank_sum(one, other)
        assert apart.smallest_p == pytest.approx(apart.p_value)
        assert signed_rank(one, other).powered(0.05) == (n >= 6)
    one = rank_sum(sample(1), sample(*[2] * 60))  # by the normal approximation 3e-14
    assert one.p_value == one.smallest_p == pytest.approx(2 / 61)


def test_pairs_are_matched_by_trial_number_not_by_position():
    best = dict(zip(range(7), (10, 20, 30, 40, 50, 60, 70), strict=True))
    other = dict(zip([6, 5, 4, 3, 2, 1, 99], (69, 59, 49, 39, 29, 19, 0), strict=True))
    found = signed_rank(best, other)
    assert (found.n_pairs, found.p_value, found.effect_size) == (6, 2 / 2**6, 1.0)


BIG = 1.5e308
FINITE = np.random.default_rng(9).normal((0.5, 0), 1, (9, 2))
PAIRS = {
    "finite": (*FINITE.T, None),
    "mostly alike": ([0] * 20 + [1, 2, 3, 4, 5], [0] * 25, 2 / 2**5),
    "all diverged": ([-inf] * 7, [nan] * 7, 1),
    "even": ([1, 2], [2, 1], 1),
    "absorbed": ([-1e17] * 6, [nan] * 6, 2 / 2**6),
    "absorbed in part": ([-1e17] * 6 + [-1e17 - 64], [nan] * 5 + [-1e17] * 2, None),
    "both sides": ([1, nan, 3, 4, 5, 6, 7], [nan, 2, 2.5, 3, inf, -inf, nan], None),
    "other sign": ([-inf, nan, inf, 1, 2, 3, 4], [0, 0, 0, nan, 0, 0, 0], None),
    "overflow": (
        [BIG, BIG, BIG, 1, 2, nan, 3],
        [-BIG, -BIG / 2, nan, 0, 0, 1, 0],
        None,
    ),
    "zeros": ([0.0, -0.0, 0, 1, nan], [-0.0, 0.0, 0, 0, nan], 1),
    "ties": ([1, 2, 3, 4, nan, nan, 1], [0, 3, 2, 5, 1, 1, nan], None),
}


@pytest.mark.parametrize(("x", "y", "p_value"), PAIRS.values(), ids=PAIRS)
@pytest.mark.filterwarnings("error")
def test_tests_count_all_cases_and_what_diverged_is_below_everything_finite(
    x, y, p_value
):
    found = signed_rank(sample(*x), sample(*y))
    assert (found.p_value, found.effect_size) == pytest.approx(
        by_all_signs(x, y), rel=1e-12
    )
    assert found.p_value == (p_value or found.p_value)
    n = sum(any(np.isfinite(pair)) for pair in zip(x, y, strict=True))
    assert (found.n_pairs, found.smallest_p) == (len(x), min(1, 2 / 2**n))
    hodges_lehmann(sample(*x), sample(*y), 0.05)  # without a warning
    x, y = (
        [it if np.isfinite(it) else -inf for it in values]
        for values in (x[-9:], y[-8:])
    )
    found = rank_sum(sample(*x), sample(*y))
    assert found.p_value == pytest.approx(by_all_subsets(x, y), rel=1e-12)
    above, below = np.greater.outer(x, y).mean(), np.less.outer(x, y).mean()
    assert (found.effect_size, found.n_pairs) == (
        pytest.approx(above - below),
        min(len(y), len(x)),
    )


def test_holm_by_hand():
    # sorted 0.005, 0.01, 0.03, 0.04: times 4, 3, 2, 1 is 0.02, 0.03, 0.06, 0.04, the
    # last raised to 0.06
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []
    some = [0.04, 0.001, 0.02, 0.3, 0.02]
    assert holm(some) == pytest.approx(by_all_intersections(some))


BASE = [-50.0, -51, -52, -53, -54, -55, -56, -57]
EQUAL = [v + d for v, d in zip(BASE, [-1, 1, -2, 2, -3, 3, -4, 3.5], strict=True)]
WORSE = [v - 1 - i / 10 for i, v in enumerate(BASE)]


def ahead(n, *leads):
    """A cell of n trials, and one for each lead that is below it in every pair."""
    return [range(n), *([i - 1 - i * k / 10 for i in range(n)] for k in leads)]


def marked(cells, **marking):
    """best, bold and underlined of the mark of each cell, as initials."""
    row = [cell if cell is None else sample(*cell) for cell in cells]
    found = mark_row(row, Marking(**marking))
    return ["B" * one.best + "b" * one.bold + "u" * one.underlined for one in found]


@pytest.mark.parametrize(
    ("cells", "marking", "marks"),
    [
        ([WORSE, None, BASE, EQUAL], {}, ["", "", "Bb", "b"]),
        (ahead(6, 1), {}, ["Bb", ""]),  # 2 / 64 = 0.031
        (
            ahead(6, 1),
            {"alpha": 0.03},
            ["Bu", ""],
        ),  # no difference could have been found
        (ahead(6, 1, 2), {"correction": "holm"}, ["Bu", "", ""]),  # doubled: 0.0625
        (ahead(6, 1, 2), {"test": "rank-sum", "correction": "holm"}, ["Bb", "b", "b"]),
        ([BASE, WORSE, [-70, -71, -72]], {}, ["Bu", "", ""]),  # one has too few
        ([[1, 2, 3, 4, 5], [2, 3, 4, 5, 6]], {}, ["", "Bu"]),  # fewer than six pairs
        (
            [[10, -inf, 10, 10, 10, 10], [1, 2, 3, 4, 5, 6]],
            {},
            ["b", "Bb"],
        ),  # lucky, steady
        ([range(6), None, []], {}, ["", "", ""]),  # one cell with trials
        ([range(8), range(10, 18)], {"better": 0}, ["", ""]),
    ],
)
def test_marks_of_hand_made_rows(cells, marking, marks):
    assert marked(cells, **marking) == marks


def test_holm_can_make_a_cell_bold_again():
    close = [0.5, *range(7)]  # ahead of the best in the pair that differs least
    row = [range(8), close, close]
    assert marked(row, alpha=0.02) == ["Bb", "", ""]
    assert marked(row, alpha=0.02, correction="holm") == ["Bb", "b", "b"]
    _, one, _ = mark_row(
        [sample(*cell) for cell in row], Marking(alpha=0.02, correction="holm")
    )
    assert (one.against_best.p, one.against_best.smallest_p) == (8 / 2**8, 4 / 2**8)
    assert one.against_best.p_value == 4 / 2**8
    _, *others = mark_row(
        [sample(k, k + 1) for k in (4, 3, 2, 1)], Marking(correction="holm")
    )
    assert [mark.against_best.smallest_p for mark in others] == [
        1.0
    ] * 3  # not 0.5 times 3


@pytest.mark.parametrize("test", ["signed-rank", "rank-sum"])
@pytest.mark.parametrize("better", [1, -1])
def test_a_cell_better_in_nearly_all_pairs_is_marked_though_its_mean_is_worse(
    test, better
):
    steady = np.arange(25) / 100
    lucky = np.where(np.arange(25) == 7, -1000, steady + 1)
    cells = [sample(*(better * values)) for values in (lucky, steady, steady - 50)]
    row = mark_row(cells, Marking(better, test))
    found = [(one.best, one.bold, one.disputed, one.better_by_test) for one in row]
    assert found == [(0, 1, 0, 1), (1, 1, 1, 0), (0, 0, 0, 0)]
    p = row[0].against_best.p_value
    assert p < 1e-4
    at, above = (
        mark_row(cells, Marking(better, test, alpha))[0] for alpha in (p, 1.01 * p)
    )
    assert (at.better_by_test, above.better_by_test) == (
        False,
        True,
    )  # below alpha, not at it
    few = mark_row([sample(*lucky[5:10]), sample(*steady[5:10])], Marking())
    assert not any(
        one.disputed or one.better_by_test for one in few
    )  # five pairs show nothing
