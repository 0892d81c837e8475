"""Wilcoxon tests and Holm's correction by going through all cases."""

from fractions import Fraction
from itertools import combinations, product
from math import inf

import numpy as np
from scipy import stats


def by_all_signs(x, y):
    """P-value and effect of a signed-rank test by all signs of ranks, without any sum
    of values; pairs without a difference have ranks, too.
    """
    finite = ([it if np.isfinite(it) else None for it in values] for values in (x, y))
    pairs = [pair for pair in zip(*finite, strict=True) if pair != (None, None)]
    every = [
        inf if None in pair else abs(Fraction(pair[0]) - Fraction(pair[1]))
        for pair in pairs
    ]
    pairs = [(a, b) for a, b in pairs if a != b]
    sizes = [size for size in every if size]
    ranks = [
        sum(s < size for s in every) + (every.count(size) + 1) / 2 for size in sizes
    ]
    higher = [b is None or (a is not None and a > b) for a, b in pairs]
    middle = sum(ranks) / 2
    own = sum(r for r, it in zip(ranks, higher, strict=True) if it) - middle
    sums = [np.dot(ranks, signs) for signs in product((0, 1), repeat=len(ranks))]
    return np.mean([abs(one - middle) >= abs(own) - 1e-9 for one in sums]), own / (
        middle or 1
    )


def by_all_subsets(x, y):
    """Two-sided p-value by giving every subset of the pooled ranks to x."""
    ranks = stats.rankdata([*x, *y])
    sums = np.array([*map(sum, combinations(ranks, len(x)))])
    from_middle = np.abs(sums - sum(ranks) * len(x) / len(ranks))
    return np.mean(from_middle >= from_middle[0] - 1e-9)


def by_all_intersections(p_values):
    """Corrected p-values: the largest of Bonferroni's tests of all sets of hypotheses
    that hold one, of which Holm's correction is a shortcut.
    """
    numbers = range(len(p_values))
    corrected = [0.0] * len(p_values)
    for size in range(1, len(p_values) + 1):
        for some in combinations(numbers, size):
            p_value = min(1.0, size * min(p_values[number] for number in some))
            for number in some:
                corrected[number] = max(corrected[number], p_value)
    return corrected
