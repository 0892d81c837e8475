"""Wilcoxon tests between two methods over trials, and Holm's correction within a
row.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

FEWEST_PAIRS = (
    6  # the smallest n at which a two-sided signed-rank test can reach p < 0.05
)
# pairs, or trials of both samples, up to which the null distribution is counted out
EXACT = 50

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
        level.
        """
        return self.n_pairs >= FEWEST_PAIRS and self.smallest_p < alpha


def signed_rank(best: Sample, other: Sample) -> Significance:
    """Wilcoxon's signed-rank test on pairs matched by trial number.

    Trials that only one of the two has are left out. Zero differences are dropped
    before ranking (Wilcoxon 1945): pairs tie exactly where two schemes coincide or both
    diverge, and a pair without an order is no evidence for either. A pair of which one
    trial diverged differs by more than all others, and as much as the others of its
    kind. Up to 50 differences the p-value is exact, with ties too; beyond, it is that
    of ``scipy.stats.wilcoxon``, which takes long to import. The smallest possible
    p-value is 2^(1 - n), pairs of two diverged trials not counted. The effect size is
    the matched-pairs rank-biserial correlation (Kerby 2014).
    """
    x, y = _pairs(best, other)
    n, smallest = len(x), 2.0 ** (1 - int(np.isfinite(np.maximum(x, y)).sum()))
    x, y = x[x != y], y[x != y]
    if not len(x):
        return Significance(1.0 if n else np.nan, 0.0, n, min(1.0, smallest))
    ranks = _doubled_ranks(np.abs(x / 2 - y / 2))  # whole differences may overflow
    above, total = int(ranks[x > y].sum()), int(ranks.sum())
    rarer = min(above, total - above)
    if len(x) <= EXACT:
        p_value = min(
            1.0, 2 * float(_sign_patterns(ranks)[: rarer + 1].sum()) / 2.0 ** len(x)
        )
    else:
        z = (total / 2 - rarer) / math.sqrt((ranks.astype(float) ** 2).sum() / 4)
        p_value = math.erfc(z / math.sqrt(2))
    return Significance(p_value, (2 * above - total) / total, n, smallest)


def _pairs(one: Sample, other: Sample) -> tuple[Values, Values]:
    """Return the values of the trials that both samples have."""
    trials = sorted(one.keys() & other.keys())
    first, second = (
        _ordered([sample[trial] for trial in trials]) for sample in (one, other)
    )
    return first, second


def _ordered(values: Iterable[float]) -> Values:
    """Return values with -inf, below all others, for trials that diverged: what is not
    finite.
    """
    found = np.array([*values], dtype=float)
    return np.where(np.isfinite(found), found, -np.inf)


def _doubled_ranks(values: Values) -> NDArray[np.int64]:
    """Return twice the average ranks of values, which are whole numbers."""
    _, place, ties = np.unique(values, return_inverse=True, return_counts=True)
    return (2 * np.cumsum(ties) - ties + 1)[place]


def _sign_patterns(ranks: NDArray[np.int64]) -> Values:
    """Return the number of sign patterns by the sum of the positive ranks."""
    patterns = np.zeros(ranks.sum() + 1)
    patterns[0] = 1
    for rank in ranks:
        patterns[rank:] = patterns[rank:] + patterns[:-rank]
    return patterns


def hodges_lehmann(
    one: Sample, other: Sample, alpha: float
) -> tuple[float, float, float]:
    """Return the paired difference of one to the other, and the ends of its interval at
    1 - alpha.

    The estimate is the median of the means of any two differences (Hodges and Lehmann
    1963); the interval has those that a signed-rank test at this level does not reject.
    It is exact up to 50 pairs without ties, and infinite with too few. A trial that
    diverged differs infinitely; pairs of two are left out. All are NaN without a pair,
    and where trials of both diverged, each against a finite one.
    """
    x, y = _pairs(one, other)
    known = np.isfinite(np.maximum(x, y))
    halves, n = x[known] / 2 - y[known] / 2, int(known.sum())
    if not n or {-math.inf, math.inf} <= {*halves}:
        return math.nan, math.nan, math.nan
    first, second = np.triu_indices(n)
    with np.errstate(over="ignore"):  # such a difference is infinite, too
        means = np.sort(halves[first] + halves[second])
    if n <= EXACT:
        ways = _sign_patterns(np.arange(1, n + 1))
        outside = int(np.searchsorted(np.cumsum(ways) / 2.0**n, alpha / 2))
    else:
        deviation = math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        outside = max(
            0,
            math.ceil(len(means) / 2 - NormalDist().inv_cdf(1 - alpha / 2) * deviation),
        )
    low, high = (
        (means[outside - 1], means[-outside]) if outside else (-math.inf, math.inf)
    )
    return float(np.median(means)), float(low), float(high)


def rank_sum(best: Sample, other: Sample) -> Significance:
    """Wilcoxon's rank-sum test for unpaired samples with a trial each.

    Up to 50 trials of both samples together the p-value is exact, with ties too;
    beyond, it is that of ``scipy.stats.mannwhitneyu``, but never below the smallest
    that is possible. The effect size is the rank-biserial correlation 2 U / (n m) - 1.
    """
    n, m = len(best), len(other)
    x, y = _ordered(best.values()), _ordered(other.values())
    ranks = _doubled_ranks(np.concatenate([x, y]))
    its_sum, divisions = int(ranks[:n].sum()), math.comb(n + m, n)
    smallest = min(1.0, 2 / divisions)
    if n + m <= EXACT:
        ways = np.zeros(
            (n + 1, ranks.sum() + 1)
        )  # to choose so many ranks, by their sum
        ways[0, 0] = 1
        for rank in ranks:
            ways[1:, rank:] += ways[:-1, :-rank]
        from_middle = np.abs(np.arange(len(ways[n])) - n * (n + m + 1))
        p_value = min(
            1.0, float(ways[n, from_middle >= from_middle[its_sum]].sum()) / divisions
        )
    else:
        from scipy.stats import mannwhitneyu

        p_value = max(smallest, float(mannwhitneyu(x, y, method="asymptotic").pvalue))
    # its_sum - n (n + 1) is twice the number of pairs in which the best is higher
    return Significance(
        p_value, (its_sum - n * (n + 1)) / (n * m) - 1, min(n, m), smallest
    )


TESTS: dict[str, Callable[[Sample, Sample], Significance]] = {
    "signed-rank": signed_rank,
    "rank-sum": rank_sum,
}


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's (1979) step-down adjusted p-values, in the order given.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    adjusted, running = [0.0] * len(p_values), 0.0
    for step, index in enumerate(np.argsort(p_values, kind="stable")):
        running = max(running, min(1.0, (len(p_values) - step) * p_values[index]))
        adjusted[index] = running
    return adjusted
