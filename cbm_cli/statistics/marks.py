"""Marks of a row of a table: its best, and what is not significantly different from
it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from cbm_cli.statistics.wilcoxon import (
    TESTS,
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
    underlined: bool = False  # best of a row that claims no significance
    # significantly better than the best of the row, which has the better mean
    better_by_test: bool = False
    disputed: bool = False  # best of a row that has such a cell
    claimed: bool = True  # whether the row has enough pairs to claim significance
    against_best: Significance | None = (
        None  # None for the best itself and in rows without one
    )
    pair: tuple[Sample, Sample, Marking] = (
        {},
        {},
        Marking(),
    )  # its values and those of the best

    @property
    def difference(self) -> tuple[float, float, float]:
        """The paired difference to the best of the row, with the ends of its interval;
        NaN without a pair.
        """
        one, best, marking = self.pair
        low, middle, high = sorted(
            marking.better * end for end in hodges_lehmann(one, best, marking.alpha)
        )
        return middle, low, high

    @property
    def name(self) -> str:
        """``bold``, ``underline`` or nothing."""
        return "bold" if self.bold else "underline" if self.underlined else ""


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
    """
    better, test, alpha, correction = marking
    row = {
        i: {trial: better * value for trial, value in one.items()}
        for i, one in enumerate(samples)
        if one
    }
    marks = [Mark() for _ in samples]
    values = {i: np.array([*one.values()]) for i, one in row.items()}
    known = {
        i: of[np.isfinite(of)] for i, of in values.items() if np.isfinite(of).any()
    }
    if not (better and len(row) > 1 and known):
        return marks
    best = max(known, key=lambda i: (len(known[i]) == len(values[i]), known[i].mean()))
    found = {i: TESTS[test](row[best], other) for i, other in row.items() if i != best}
    if correction:
        adjusted = holm([one.p_value for one in found.values()])
        for (i, one), p in zip(found.items(), adjusted, strict=True):
            found[i] = replace(
                one, corrected_p=p, smallest_p=min(1.0, one.smallest_p * len(found))
            )
    claimed = all(one.powered(alpha) for one in found.values())
    for i, one in found.items():
        ahead = one.powered(alpha) and one.p < alpha and one.effect_size < 0
        bold = claimed and (one.p >= alpha or ahead)
        pair = (row[i], row[best]) if test == "signed-rank" else ({}, {})
        marks[i] = Mark(
            False, bold, False, ahead, False, claimed, one, (*pair, marking)
        )
    disputed = any(mark.better_by_test for mark in marks)
    marks[best] = Mark(
        best=True,
        bold=claimed,
        underlined=not claimed,
        disputed=disputed,
        claimed=claimed,
    )
    return marks
