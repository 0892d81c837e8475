"""Wilcoxon tests between two methods over trials, and Holm's correction within a row."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

FEWEST_PAIRS = 6  # the smallest n at which a two-sided signed-rank test can reach p < 0.05
EXACT = 50  # pairs, or trials of both samples, up to which the null distribution is counted out

Sample = Mapping[int, float]  # by trial number


@dataclass(frozen=True)
class Significance:
    """Result of a test of the best of a row against another method."""

    p_value: float  # two-sided, not corrected; 1 if all differences are zero, NaN without a pair
    effect_size: float  # rank-biserial correlation in [-1, 1]; positive where the first is higher
    n_pairs: int  # matched by trial (signed-rank), or trials of the smaller sample (rank-sum)
    smallest_p: float  # that so many pairs allow, corrected as p, however different the methods are
    corrected_p: float | None = None  # by Holm's correction, where it was asked for

    @property
    def p(self) -> float:
        """The p-value that is compared with alpha: corrected, where a correction was asked for."""
        return self.p_value if self.corrected_p is None else self.corrected_p

    def powered(self, alpha: float) -> bool:
        """Whether there are enough pairs for the test to find a difference at this level."""
        return self.n_pairs >= FEWEST_PAIRS and self.smallest_p < alpha


def finite_ranks(best: NDArray, other: NDArray) -> tuple[NDArray, NDArray]:
    """Replace non-finite values (diverged trials) so that they rank below everything finite.

    The substitute lies further below the lowest finite value than the finite values lie apart. So the
    difference between a diverged and a finite trial is the largest of all, and it is zero between two
    diverged trials.
    """
    finite = np.concatenate([best, other])
    finite = finite[np.isfinite(finite)]
    floor = finite.min() - np.ptp(finite) - 1.0 if finite.size else 0.0
    return np.where(np.isfinite(best), best, floor), np.where(np.isfinite(other), other, floor)


def signed_rank(best: Sample, other: Sample) -> Significance:
    """Wilcoxon's signed-rank test on pairs matched by trial number.

    Trials that only one of the two has are left out. Zero differences are dropped before ranking (Wilcoxon
    1945): pairs tie exactly where two schemes coincide or both diverge, and a pair without an order is no
    evidence for either. Up to 50 differences the p-value is exact, with ties too. The smallest possible
    p-value is 2^(1 - n), pairs of two diverged trials not counted. The effect size is the matched-pairs
    rank-biserial correlation (Kerby 2014).
    """
    pairs = sorted(best.keys() & other.keys())
    raw = [np.array([sample[trial] for trial in pairs], dtype=float) for sample in (best, other)]
    smallest = 2.0 ** (1 - int(np.isfinite(raw).any(axis=0).sum()))
    x, y = finite_ranks(*raw)
    difference = (x - y)[x != y]
    if difference.size == 0:
        return Significance(1.0 if pairs else np.nan, 0.0, len(pairs), min(1.0, smallest))
    ranks = _doubled_ranks(np.abs(difference))
    above, total = int(ranks[difference > 0].sum()), int(ranks.sum())
    p_of = _exact_p if len(ranks) <= EXACT else _normal_p
    p_value = p_of(ranks, min(above, total - above))
    return Significance(p_value, (2 * above - total) / total, len(pairs), smallest)


def _exact_p(ranks: NDArray[np.int64], statistic: int) -> float:
    """Share of all sign patterns with a rank sum as extreme as the statistic, on either side."""
    return min(1.0, 2 * float(_sign_patterns(ranks)[: statistic + 1].sum()) / 2.0 ** len(ranks))


def _sign_patterns(ranks: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the number of sign patterns by the sum of the positive ranks."""
    patterns = np.zeros(ranks.sum() + 1)
    patterns[0] = 1
    for rank in ranks:
        patterns[rank:] = patterns[rank:] + patterns[:-rank]
    return patterns


def _normal_p(ranks: NDArray[np.int64], statistic: int) -> float:
    """The same by the normal approximation, as ``scipy.stats.wilcoxon``, which takes long to import."""
    z = (ranks.sum() / 2 - statistic) / math.sqrt((ranks.astype(float) ** 2).sum() / 4)
    return math.erfc(z / math.sqrt(2))


def hodges_lehmann(one: Sample, other: Sample, alpha: float) -> tuple[float, float, float]:
    """Return the paired difference of one to the other, and the ends of its interval at 1 - alpha.

    The estimate is the median of the means of any two differences (Hodges and Lehmann 1963); the interval
    has those that a signed-rank test at this level does not reject. It is exact up to 50 pairs without ties,
    and infinite with too few. A trial that diverged differs infinitely; pairs of two are left out.
    """
    pairs = sorted(one.keys() & other.keys())
    raw = [np.array([sample[trial] for trial in pairs], dtype=float) for sample in (one, other)]
    x, y = (np.where(np.isfinite(values), values, -np.inf) for values in raw)
    known = np.isfinite(x) | np.isfinite(y)
    differences, n = x[known] - y[known], int(known.sum())
    if not n or ((np.isinf(differences) & (differences > 0)).any() and (differences == -np.inf).any()):
        return math.nan, math.nan, math.nan
    first, second = np.triu_indices(n)
    means = np.sort((differences[first] + differences[second]) / 2)
    if n <= EXACT:
        ways = _sign_patterns(np.arange(1, n + 1))
        outside = int(np.searchsorted(np.cumsum(ways) / 2.0**n, alpha / 2))
    else:
        deviation = math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        outside = max(0, math.ceil(len(means) / 2 - NormalDist().inv_cdf(1 - alpha / 2) * deviation))
    low, high = (means[outside - 1], means[-outside]) if outside else (-math.inf, math.inf)
    return float(np.median(means)), float(low), float(high)


def rank_sum(best: Sample, other: Sample) -> Significance:
    """Wilcoxon's rank-sum test for unpaired samples with a trial each.

    Up to 50 trials of both samples together the p-value is exact, with ties too; beyond, it is that of
    ``scipy.stats.mannwhitneyu``, but never below the smallest that is possible. The effect size is the
    rank-biserial correlation 2 U / (n m) - 1.
    """
    n, m = len(best), len(other)
    x, y = finite_ranks(*(np.array([*sample.values()], dtype=float) for sample in (best, other)))
    ranks = _doubled_ranks(np.concatenate([x, y]))
    above = int(ranks[:n].sum()) - n * (n + 1)  # twice the pairs in which the best is higher
    smallest = min(1.0, 2 / math.comb(n + m, n))
    if n + m <= EXACT:
        p_value = _exact_division_p(ranks, n, int(ranks[:n].sum()))
    else:
        from scipy.stats import mannwhitneyu

        p_value = max(smallest, float(mannwhitneyu(x, y, method="asymptotic").pvalue))
    return Significance(p_value, above / (n * m) - 1, min(n, m), smallest)


def _doubled_ranks(values: NDArray) -> NDArray[np.int64]:
    """Return twice the average ranks of values, which are whole numbers."""
    _, place, ties = np.unique(values, return_inverse=True, return_counts=True)
    return (2 * np.cumsum(ties) - ties + 1)[place]


def _exact_division_p(ranks: NDArray[np.int64], n: int, statistic: int) -> float:
    """Share of all ways to choose n of the ranks whose sum is as far from the middle as the statistic."""
    ways = np.zeros((n + 1, ranks.sum() + 1))  # by how many are chosen, and their sum
    ways[0, 0] = 1
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, :-rank]
    from_middle = np.abs(np.arange(len(ways[n])) - n * (len(ranks) + 1))
    return min(1.0, float(ways[n, from_middle >= from_middle[statistic]].sum()) / math.comb(len(ranks), n))


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
