"""Marks of a row of a table: its best, and what is not significantly different from
it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from cbm_cli.results.cells import mean
from cbm_cli.statistics.wilcoxon import (
    NO_DIFFERENCE,
    TESTS,
    Difference,
    Sample,
    Significance,
    hodges_lehmann,
    holm,
)


class Marking(NamedTuple):
    """How the best of a row is found, and what it is tested with."""

    better: int = 1  # 1: the highest mean, -1: the lowest, 0: no best is marked
    test: str = "signed-rank"
    alpha: float = 0.05
    correction: str | None = None  # or holm


@dataclass(frozen=True)
class Mark:
    """The test of one cell of a row."""

    best: bool = False
    bold: bool = False  # best of the row, or not significantly different from it
    # significantly better than the best of the row, which has the better mean
    better_by_test: bool = False
    disputed: bool = False  # best of a row that has such a cell
    claimed: bool = True  # whether the row has enough pairs to claim significance
    # None for the best itself and in rows without one
    against_best: Significance | None = None
    # of the cell and the best, more being better
    sample: Sample = field(default_factory=dict, repr=False)
    best_sample: Sample = field(default_factory=dict, repr=False)
    marking: Marking = field(default_factory=Marking)

    @property
    def underlined(self) -> bool:
        """Whether it is the best of a row that claims no significance."""
        return self.best and not self.claimed

    @cached_property
    def difference(self) -> Difference:
        """The paired difference to the best of the row; NaN without a pair."""
        if self.marking.test != "signed-rank":
            return NO_DIFFERENCE
        gain = hodges_lehmann(self.sample, self.best_sample, self.marking.alpha)
        if self.marking.better == 1:
            return gain
        return Difference(-gain.estimate, low=-gain.high, high=-gain.low)

    @property
    def name(self) -> str:
        """``bold``, ``underline`` or nothing."""
        if self.bold:
            return "bold"
        return "underline" if self.underlined else ""


def mark_row(samples: Sequence[Sample | None], marking: Marking) -> list[Mark]:
    """Mark the best of a row of samples, values by trial, and all that do not differ
    significantly.

    A sample with a trial that has no finite value ranks below all others. Bold compares
    every cell in the row with the best. So if one comparison has too few pairs to find
    any difference, no significance is claimed in the row, and its best is underlined. A
    row of fewer than two cells with trials has no best.

    A few far trials can make a mean worse whose cell is better in nearly all pairs. A
    cell that is so by the test is bold, too, and `better_by_test`; the best by the mean
    is `disputed`.

    Examples
    --------
    >>> low, high = dict.fromkeys(range(6), 1.0), dict.fromkeys(range(6), 2.0)
    >>> [mark.name for mark in mark_row([low, high], Marking())]
    ['', 'bold']
    """
    marks = [Mark() for _ in samples]
    row: dict[int, Sample] = {}  # by place; more is better
    for place, sample in enumerate(samples):
        if sample:
            row[place] = {
                trial: marking.better * value for trial, value in sample.items()
            }
    best = _best_by_mean(row)
    if best is None or len(row) < 2 or marking.better == 0:
        return marks
    tests = _tests_against(best, row, marking)
    claimed = all(test.powered(marking.alpha) for test in tests.values())
    for place, test in tests.items():
        is_significant = test.powered(marking.alpha) and test.p < marking.alpha
        better_by_test = is_significant and test.effect_size < 0
        marks[place] = Mark(
            bold=claimed and (better_by_test or test.p >= marking.alpha),
            better_by_test=better_by_test,
            claimed=claimed,
            against_best=test,
            sample=row[place],
            best_sample=row[best],
            marking=marking,
        )
    disputed = any(mark.better_by_test for mark in marks)
    marks[best] = Mark(best=True, bold=claimed, disputed=disputed, claimed=claimed)
    return marks


def _best_by_mean(row: Mapping[int, Sample]) -> int | None:
    """Return the place of the best sample; None where no value is finite."""
    ranking: dict[int, tuple[bool, float]] = {}
    for place, sample in row.items():
        values = np.array([*sample.values()])
        is_finite = np.isfinite(values)
        if is_finite.any():
            ranking[place] = (bool(is_finite.all()), mean(values))
    return max(ranking, key=ranking.__getitem__, default=None)


def _tests_against(
    best: int, row: Mapping[int, Sample], marking: Marking
) -> dict[int, Significance]:
    """Return the test of the best sample against each other one, by its place."""
    test = TESTS[marking.test]
    results = {
        place: test(row[best], sample) for place, sample in row.items() if place != best
    }
    if marking.correction is None:
        return results
    corrected_ps = holm([result.p_value for result in results.values()])
    for (place, result), corrected_p in zip(results.items(), corrected_ps, strict=True):
        smallest_p = min(1.0, result.smallest_p * len(results))
        results[place] = replace(result, corrected_p=corrected_p, smallest_p=smallest_p)
    return results
