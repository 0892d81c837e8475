"""Wilcoxon tests between two methods over trials, and Holm's correction within a
row.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Pairs, or trials of both samples, up to which the null distribution is counted out
MOST_EXACT = 50

Sample = Mapping[int, float]  # by trial number
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Significance:
    """Result of a test of the best of a row against another method."""

    # two-sided, not corrected; 1 if all differences are zero, NaN without a pair
    p_value: float
    # rank-biserial correlation in [-1, 1]; positive where the first is higher
    effect_size: float
    # matched by trial (signed-rank), or trials of the smaller sample (rank-sum)
    n_pairs: int
    # that so many pairs allow, corrected as p, however different the methods are
    smallest_p: float
    corrected_p: float | None = None  # by Holm's correction, where it was asked for

    @property
    def p(self) -> float:
        """The p-value that is compared with alpha: corrected, where a correction was
        asked for.
        """
        return self.p_value if self.corrected_p is None else self.corrected_p

    def powered(self, alpha: float) -> bool:
        """Whether there are enough pairs for the test to find a difference at this
        level: its smallest possible p-value decides.
        """
        return self.smallest_p < alpha


class Difference(NamedTuple):
    """The paired difference of two samples, and its confidence interval."""

    estimate: float
    low: float
    high: float


NO_DIFFERENCE = Difference(math.nan, math.nan, math.nan)


def signed_rank(best: Sample, other: Sample) -> Significance:
    """Wilcoxon's signed-rank test on pairs matched by trial number.

    Trials that only one of the two has are left out. A pair without a difference is no
    evidence for either, but keeps its rank (Pratt 1959): if such pairs were dropped
    before ranking, a shift that makes all differences larger could make a significant
    sample insignificant, and the interval of `hodges_lehmann` could hold a rejected
    shift. Pairs of two diverged trials are left out. A pair of which one trial diverged
    differs by more than all others, and as much as the others of its kind. Up to 50
    pairs the p-value is exact, with ties too; beyond, it is that of
    ``scipy.stats.wilcoxon``, which takes long to import. The smallest possible p-value
    is 2^(1 - n), pairs of two diverged trials not counted. The effect size is the
    matched-pairs rank-biserial correlation (Kerby 2014).

    Examples
    --------
    >>> best = dict(enumerate([5, 6, 7, 8, 9, 10]))
    >>> test = signed_rank(best, {trial: value - 1 for trial, value in best.items()})
    >>> test.p_value, test.effect_size, test.n_pairs
    (0.03125, 1.0, 6)
    """
    halves, n_pairs = _half_differences(best, other)
    smallest_p = min(1.0, 2.0 ** (1 - len(halves)))
    if not halves.any():
        return Significance(1.0 if n_pairs else math.nan, 0.0, n_pairs, smallest_p)
    ranks, positive = _signed_ranks(halves)
    total = int(ranks.sum())
    p_value = _signed_rank_p(ranks, positive)
    return Significance(p_value, (2 * positive - total) / total, n_pairs, smallest_p)


def _half_differences(first: Sample, second: Sample) -> tuple[Values, int]:
    """Return half the difference of each pair, as whole ones may overflow, without
    pairs of two diverged trials; and the number of all pairs.
    """
    trials = sorted(first.keys() & second.keys())
    x = _diverged_last(first[trial] for trial in trials)
    y = _diverged_last(second[trial] for trial in trials)
    is_finite = np.isfinite(np.maximum(x, y))
    return x[is_finite] / 2 - y[is_finite] / 2, len(trials)


def _diverged_last(values: Iterable[float]) -> Values:
    """Return values with -inf, below all others, for what is not finite."""
    numbers = np.array([*values], dtype=float)
    return np.where(np.isfinite(numbers), numbers, -np.inf)


def _doubled_ranks(values: Values) -> NDArray[np.int64]:
    """Return twice the average ranks of values, which are whole numbers."""
    _, place, ties = np.unique(values, return_inverse=True, return_counts=True)
    return (2 * np.cumsum(ties) - ties + 1)[place]


def _signed_ranks(differences: Values) -> tuple[NDArray[np.int64], int]:
    """Return the doubled ranks of the differences that are not zero, among all, and
    the sum of those of the positive ones.
    """
    ranks = _doubled_ranks(np.abs(differences))
    positive = int(ranks[differences > 0].sum())
    return ranks[differences != 0], positive


def _signed_rank_p(ranks: NDArray[np.int64], positive: int) -> float:
    """Return the two-sided p-value of a sum of positive ranks."""
    total, n = int(ranks.sum()), len(ranks)
    smaller = min(positive, total - positive)
    if n <= MOST_EXACT:
        patterns = _sign_patterns(ranks)
        return min(1.0, 2 * float(patterns[: smaller + 1].sum()) / 2.0**n)
    deviation = math.sqrt((ranks.astype(float) ** 2).sum() / 4)
    z = (total / 2 - smaller) / deviation
    return math.erfc(z / math.sqrt(2))


def _sign_patterns(ranks: NDArray[np.int64]) -> Values:
    """Return the number of sign patterns by the sum of the positive ranks."""
    patterns = np.zeros(ranks.sum() + 1)
    patterns[0] = 1
    for rank in ranks:
        patterns[rank:] = patterns[rank:] + patterns[:-rank]
    return patterns


# The size of a difference


def hodges_lehmann(first: Sample, second: Sample, alpha: float) -> Difference:
    """Return the paired difference of two samples, and its interval at 1 - alpha.

    The estimate is the median of the means of any two differences (Hodges and Lehmann
    1963). The interval holds the shifts of the first sample that `signed_rank` at this
    level does not reject: it is exact up to 50 pairs, with ties and zeros too, and
    infinite with too few. A trial that diverged differs infinitely; pairs of two are
    left out. All are NaN without a pair, and where trials of both diverged, each
    against a finite one. The memory grows with the number of pairs, not its square.

    Examples
    --------
    >>> best = dict(enumerate([5.0, 6.0, 7.0, 8.0, 9.0, 10.0]))
    >>> other = dict(enumerate([4.0, 4.5, 6.0, 6.0, 7.5, 9.5]))
    >>> hodges_lehmann(best, other, 0.05)
    Difference(estimate=1.25, low=0.5, high=2.0)
    """
    halves, _ = _half_differences(first, second)
    halves.sort()
    if not len(halves) or {-math.inf, math.inf} <= {halves[0], halves[-1]}:
        return NO_DIFFERENCE
    number = len(halves) * (len(halves) + 1) // 2
    below = _mean_of_two(halves, (number - 1) // 2)
    estimate = below / 2 + _mean_of_two(halves, number // 2) / 2
    if len(halves) <= MOST_EXACT:
        return Difference(estimate, *_exact_interval(halves, alpha))
    outside = _rejected(halves, alpha)
    if outside == 0:
        return Difference(estimate, -math.inf, math.inf)
    low = _mean_of_two(halves, outside - 1)
    return Difference(estimate, low, _mean_of_two(halves, number - outside))


def _exact_interval(halves: Values, alpha: float) -> tuple[float, float]:
    """Return the ends of the shifts that the test does not reject.

    The p-value changes only at the means of any two differences. So it is looked up at
    these shifts, at one between any two neighbours, and at one beyond either end.
    """
    rows, columns = np.triu_indices(len(halves))
    with np.errstate(over="ignore"):  # such a mean is infinite
        means = np.unique(halves[rows] + halves[columns])
    means = means[np.isfinite(means)]
    if not len(means):
        return -math.inf, math.inf
    shifts = np.empty(2 * len(means) + 1)
    shifts[1::2] = means
    shifts[2:-1:2] = means[:-1] / 2 + means[1:] / 2
    shifts[0] = means[0] - max(1.0, abs(means[0]))
    shifts[-1] = means[-1] + max(1.0, abs(means[-1]))

    def verdict(place: int) -> int:
        """Return 0 where a shift is not rejected, -1 where it is too low, 1 where it is
        too high.
        """
        ranks, positive = _signed_ranks(halves - shifts[place] / 2)
        if not len(ranks) or _signed_rank_p(ranks, positive) >= alpha:
            return 0
        return 1 if 2 * positive <= ranks.sum() else -1

    places = range(len(shifts))
    first = bisect_left(places, 0, hi=len(shifts) - 1, key=verdict)
    last = bisect_right(places, 0, lo=first, key=verdict)
    low = means[(first - 1) // 2] if first else -math.inf
    high = means[(last - 1) // 2] if last < len(shifts) else math.inf
    return float(low), float(high)


def _rejected(halves: Values, alpha: float) -> int:
    """Return how many means of two differences lie beyond each end of the interval of
    many pairs.
    """
    n = len(halves)
    _, ties = np.unique(halves, return_counts=True)
    # the sum of the squared average ranks, a quarter of which is the variance
    squares = n * (n + 1) * (2 * n + 1) / 6 - (ties**3.0 - ties).sum() / 12
    quantile = NormalDist().inv_cdf(1 - alpha / 2)
    return max(0, math.ceil(n * (n + 1) / 4 - quantile * math.sqrt(squares / 4)))


def _mean_of_two(halves: Values, place: int) -> float:
    """Return the mean of two differences that has this place among all such means.

    ``halves`` are half the differences, sorted. The bits of a float, as a whole number,
    are in the order of the floats, so that 64 halvings find the mean.
    """
    low, high = _order_of(-math.inf), _order_of(math.inf)
    while low < high:
        middle = (low + high) // 2
        if _count_up_to(halves, _float_of(middle)) > place:
            high = middle
        else:
            low = middle + 1
    return _float_of(low)


def _order_of(number: float) -> int:
    bits = int(np.float64(number).view(np.int64))
    return bits if bits >= 0 else -(bits & 0x7FFFFFFFFFFFFFFF)


def _float_of(order: int) -> float:
    magnitude = float(np.int64(abs(order)).view(np.float64))
    return magnitude if order >= 0 else -magnitude


def _count_up_to(halves: Values, limit: float) -> int:
    """Return how many sums of two elements, of one with itself too, are at most a
    limit.
    """
    first = np.arange(len(halves))
    # the sums of each element with those from itself on are sorted: bisect all rows
    low, high = first.copy(), np.full(len(halves), len(halves))
    with np.errstate(over="ignore"):
        while np.any(low < high):
            middle = (low + high) // 2
            other = halves[np.minimum(middle, len(halves) - 1)]
            is_below = (low < high) & (halves + other <= limit)
            low = np.where(is_below, middle + 1, low)
            high = np.where(is_below, high, np.minimum(high, middle))
    return int((low - first).sum())


# Samples without pairs


def rank_sum(best: Sample, other: Sample) -> Significance:
    """Wilcoxon's rank-sum test for unpaired samples with a trial each.

    Up to 50 trials of both samples together the p-value is exact, with ties too;
    beyond, it is that of ``scipy.stats.mannwhitneyu``, but never below the smallest
    that is possible. The effect size is the rank-biserial correlation 2 U / (n m) - 1.

    Examples
    --------
    >>> test = rank_sum(dict(enumerate([5, 6, 7])), dict(enumerate([1, 2, 3, 4])))
    >>> round(test.p_value, 4), test.effect_size
    (0.0571, 1.0)
    """
    x, y = _diverged_last(best.values()), _diverged_last(other.values())
    n, m = len(x), len(y)
    ranks = _doubled_ranks(np.concatenate([x, y]))
    sum_of_best = int(ranks[:n].sum())
    smallest_p = min(1.0, 2 / math.comb(n + m, n))
    if n + m <= MOST_EXACT:
        p_value = _exact_rank_sum_p(ranks, n, sum_of_best)
    else:
        from scipy.stats import mannwhitneyu

        approximation = mannwhitneyu(x, y, method="asymptotic")
        p_value = max(smallest_p, float(approximation.pvalue))
    doubled_u = sum_of_best - n * (n + 1)  # twice the pairs with a higher best
    return Significance(p_value, doubled_u / (n * m) - 1, min(n, m), smallest_p)


def _exact_rank_sum_p(ranks: NDArray[np.int64], n: int, observed: int) -> float:
    """Return the share of ways to choose n ranks with a sum as far from the middle."""
    # (number of ranks, their sum): ways to choose them
    ways = np.zeros((n + 1, ranks.sum() + 1))
    ways[0, 0] = 1
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, :-rank]
    middle = n * (len(ranks) + 1)
    from_middle = np.abs(np.arange(ways.shape[1]) - middle)
    as_far = ways[n, from_middle >= from_middle[observed]]
    return min(1.0, float(as_far.sum()) / math.comb(len(ranks), n))


TESTS: dict[str, Callable[[Sample, Sample], Significance]] = {
    "signed-rank": signed_rank,
    "rank-sum": rank_sum,
}


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's (1979) step-down adjusted p-values, in the order given.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for step, index in enumerate(np.argsort(p_values, kind="stable")):
        remaining = len(p_values) - step
        largest = max(largest, min(1.0, remaining * p_values[index]))
        adjusted[index] = largest
    return adjusted
