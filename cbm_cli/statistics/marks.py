"""Marks of a row of a table: its best, and what is not significantly different from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from cbm_cli.statistics.wilcoxon import TESTS, Sample, Significance, holm


class Marking(NamedTuple):
    """How the best of a row is found, and what it is tested with."""

    better: int = 1  # 1: the highest mean, -1: the lowest, 0: no best is marked
    test: str = "signed-rank"
    alpha: float = 0.05
    correction: str | None = None  # or holm
    over: str = "row"  # the comparisons that are corrected together: within a row, or all of the table


@dataclass(frozen=True)
class Mark:
    """What the test says of one cell of a row."""

    best: bool = False
    bold: bool = False  # best of the row, or not significantly different from it
    underlined: bool = False  # best of a row that claims no significance
    better_by_test: bool = False  # significantly better than the best of the row, which has the better mean
    disputed: bool = False  # best of a row that has such a cell
    claimed: bool = True  # whether the row has enough pairs to claim significance
    against_best: Significance | None = None  # None for the best itself and in rows without one

    @property
    def name(self) -> str:
        """``bold``, ``underline`` or nothing."""
        return "bold" if self.bold else "underline" if self.underlined else ""


def mark_row(samples: Sequence[Sample | None], marking: Marking) -> list[Mark]:
    """Mark a row by itself; see `mark_rows`."""
    return mark_rows([samples], marking)[0]


def mark_rows(rows: Sequence[Sequence[Sample | None]], marking: Marking) -> list[list[Mark]]:
    """Mark the best of each row of samples, values by trial, and all that do not differ significantly.

    A sample with a trial that has no finite value ranks below all others. Bold says of every cell in the row
    whether it is as good as the best: so if one comparison has too few pairs to find any difference, no
    significance is claimed in the row, and its best is underlined. A row of fewer than two cells with trials
    has no best.

    A few far trials can make a mean worse whose cell is better in nearly all pairs. A cell that is so by the
    test is bold, too, and `better_by_test`; the best by the mean is `disputed`.
    """
    better, test = marking.better, TESTS[marking.test]
    goodness = [
        {i: {trial: better * value for trial, value in one.items()} for i, one in enumerate(row) if one}
        for row in rows
    ]
    bests = [_best_of(row) if better and len(row) > 1 else None for row in goodness]
    found = [
        {i: test(row[best], other) for i, other in row.items() if i != best} if best is not None else {}
        for row, best in zip(goodness, bests, strict=True)
    ]
    found = _corrected(found, marking)
    return [
        _marks_of(len(row), best, tests, marking.alpha)
        for row, best, tests in zip(rows, bests, found, strict=True)
    ]


def _corrected(found: Sequence[dict[int, Significance]], marking: Marking) -> list[dict[int, Significance]]:
    """Return tests with p-values corrected for the comparisons of their row or of the table."""
    if not marking.correction:
        return [*found]
    if marking.over == "row":
        families = [[(row, i) for i in tests] for row, tests in enumerate(found)]
    else:
        families = [[(row, i) for row, tests in enumerate(found) for i in tests]]
    corrected = [dict(tests) for tests in found]
    for family in families:
        adjusted = holm([found[row][i].p_value for row, i in family])
        for (row, i), p in zip(family, adjusted, strict=True):
            smallest = min(1.0, found[row][i].smallest_p * len(family))
            corrected[row][i] = replace(found[row][i], corrected_p=p, smallest_p=smallest)
    return corrected


def _marks_of(number: int, best: int | None, found: Mapping[int, Significance], alpha: float) -> list[Mark]:
    """Return the marks of a row of so many cells, by the tests against its best."""
    marks = [Mark() for _ in range(number)]
    if best is None:
        return marks
    claimed = all(one.powered(alpha) for one in found.values())
    for i, one in found.items():
        ahead = one.powered(alpha) and one.p < alpha and one.effect_size < 0
        bold = claimed and (one.p >= alpha or ahead)
        marks[i] = Mark(bold=bold, better_by_test=ahead, claimed=claimed, against_best=one)
    disputed = any(mark.better_by_test for mark in marks)
    marks[best] = Mark(best=True, bold=claimed, underlined=not claimed, disputed=disputed, claimed=claimed)
    return marks


def _best_of(goodness: Mapping[int, Sample]) -> int | None:
    """Return the sample with the highest mean, after those in which every trial is finite."""
    values = {i: np.array([*sample.values()]) for i, sample in goodness.items()}
    known = [i for i, of in values.items() if np.isfinite(of).any()]
    return max(
        known,
        key=lambda i: (np.isfinite(values[i]).all(), values[i][np.isfinite(values[i])].mean()),
        default=None,
    )
