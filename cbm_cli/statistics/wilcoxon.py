"""Wilcoxon tests between two methods over trials, and Holm's correction over a row of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

FEWEST_PAIRS = 6  # the smallest n at which a two-sided signed-rank test can reach p < 0.05


@dataclass(frozen=True)
class Outcome:
    """What a test says about the best of a row against another method.

    Attributes
    ----------
    p_value : float
        Two-sided; 1 if all differences are zero, NaN without a pair.
    effect_size : float
        Rank-biserial correlation in [-1, 1]; positive where the best is higher.
    n_pairs : int
        Pairs matched by trial (signed-rank), or trials of the smaller sample (rank-sum).
    """

    p_value: float
    effect_size: float
    n_pairs: int


def finite_ranks(best: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Replace what is not finite (a diverged trial) so that it ranks below everything finite.

    The stand-in lies further below the lowest finite value than the finite values lie apart: the
    difference between a diverged and a finite trial is then the largest of all, and between two
    diverged trials it is zero.
    """
    finite = np.concatenate([best, other])
    finite = finite[np.isfinite(finite)]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
    floor = low - (high - low) - 1.0
    return np.where(np.isfinite(best), best, floor), np.where(np.isfinite(other), other, floor)


def signed_rank(best: pd.Series, other: pd.Series) -> Outcome:
    """Wilcoxon's signed-rank test on pairs matched by trial number (the index of both series).

    Trials that only one of the two has are left out. Zero differences are dropped before ranking
    (Wilcoxon 1945, SciPy's zero_method ``wilcox``): pairs tie exactly where two schemes coincide or
    both diverge, and a pair without an order is no evidence for either. Dropping them first keeps the
    exact distribution, where SciPy would otherwise fall back on the normal one.
    The effect size is the matched-pairs rank-biserial correlation (Kerby 2014).
    """
    pairs = best.index.intersection(other.index)
    x, y = finite_ranks(best[pairs].to_numpy(float), other[pairs].to_numpy(float))
    difference = (x - y)[x != y]
    if difference.size == 0:
        return Outcome(1.0 if len(pairs) else np.nan, 0.0, len(pairs))
    ranks = stats.rankdata(np.abs(difference))
    effect = float(np.sum(ranks * np.sign(difference)) / ranks.sum())
    return Outcome(float(stats.wilcoxon(difference, method="auto").pvalue), effect, len(pairs))


def rank_sum(best: pd.Series, other: pd.Series) -> Outcome:
    """Wilcoxon's rank-sum test for unpaired samples, as ``scipy.stats.mannwhitneyu``.

    Mann & Whitney's form is taken, and not ``scipy.stats.ranksums``, because it corrects for ties and
    is exact for small samples. The effect size is the rank-biserial correlation 2 U / (n m) - 1.
    """
    n = min(len(best), len(other))
    if n == 0:
        return Outcome(np.nan, 0.0, 0)
    x, y = finite_ranks(best.to_numpy(float), other.to_numpy(float))
    result = stats.mannwhitneyu(x, y, method="auto")
    return Outcome(float(result.pvalue), float(2 * result.statistic / (len(x) * len(y)) - 1), n)


TESTS: dict[str, Callable[[pd.Series, pd.Series], Outcome]] = {
    "signed-rank": signed_rank,
    "rank-sum": rank_sum,
}


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's (1979) step-down adjusted p-values, in the order given.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    adjusted, running = [0.0] * len(p_values), 0.0
    for step, index in enumerate(np.argsort(p_values, kind="stable")):
        running = max(running, min(1.0, (len(p_values) - step) * p_values[index]))
        adjusted[index] = running
    return adjusted


CORRECTIONS: dict[str, Callable[[Sequence[float]], list[float]]] = {"holm": holm}
