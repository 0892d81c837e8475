"""The notes below a table: what it shows, the test, and what is incomplete, diverged or
doubtful.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from operator import attrgetter
from string import ascii_lowercase

from cbm_cli.grid.words import name_of
from cbm_cli.results import Metric
from cbm_cli.results.cells import MAX_OF_MEAN, Cell, Cells, Measure, is_evaluated
from cbm_cli.results.columns import Key
from cbm_cli.statistics.marks import Mark, Marking
from cbm_cli.statistics.wilcoxon import Significance
from cbm_cli.text import count

# endings of the columns of cbm evaluate
_METHODS = {"exact": "exact", "ais": "AIS", "pseudo": "exact"}
_SMALLEST_P = attrgetter("smallest_p")
_LETTERS = [*ascii_lowercase, *map("".join, product(ascii_lowercase, repeat=2))]


def caption(cells: Cells, marks: Sequence[Mark], marking: Marking) -> list[str]:
    """Return the notes of a table of some cells with these marks."""
    notes = [_values_note(cells), *chosen_note(cells)]
    test_notes = " ".join(_test_notes(marks, marking, cells.measure.metric))
    if test_notes:
        notes.append(test_notes)
    notes += _dispute_note(marks)
    notes += _trial_notes(cells)
    notes += unlearned_note(cells)
    notes += made_note(cells)
    if cells.measure.metric.better > 0:
        notes += _estimate_notes(cells)
    return notes


# What the values are


def value_in_words(measure: Measure, evaluated: bool) -> str:
    """Return what a value is of a trial, as ``maximum test log-likelihood during
    training``.
    """
    metric = measure.metric
    if evaluated:
        column, _, method = metric.column.rpartition("_")
        quantity = f"{metric.part} {Metric(column).name}"
        return f"{quantity} ({_METHODS[method]}) of the final machine"

    quantity = f"{metric.part} {metric.name}".strip()
    best = "minimum" if metric.better == -1 else "maximum"
    if measure.statistic == "final":
        return f"final {quantity}"
    if measure.statistic == "best-valid":
        return f"{quantity} at the best validation value"
    if measure.statistic == MAX_OF_MEAN:
        return f"{best} during training of the {quantity}'s mean over trials"
    return f"{best} {quantity} during training"


def aside_of(cell: Cell) -> str:
    """Return what the parentheses hold: ``final``, ``epochs`` (of costs) or nothing."""
    better = cell.measure.metric.better
    if cell.evaluated or better == 0:
        return ""
    if better < 0:
        return "epochs"
    return "" if cell.measure.statistic == "final" else "final"


def _values_note(cells: Cells) -> str:
    """Say what the numbers of a cell are."""
    metric, scale, statistic = cells.measure
    first = next(iter(cells))
    value = value_in_words(cells.measure, first.evaluated)
    value = value[0].upper() + value[1:]
    rows = cells.trials.numbers(f"n_{metric.part}")
    unit = metric.unit(scale, sorted({int(n) for n in rows if n == n}))
    if unit:
        value += f", {unit}"

    aside = ""
    if aside_of(first) == "final":
        aside = " (mean of the final values)"
    elif aside_of(first) == "epochs":
        cost = "validation cost" if statistic == "best-valid" else "cost"
        aside = f" (mean epoch of the lowest {cost})"

    numbers = [cell.n for cell in cells if cell.n] or [0]
    trials = count(max(numbers), "trial")
    if min(numbers) < max(numbers):
        trials = f"{min(numbers)} to {trials}"
    return f"{value}: mean ± standard deviation{aside} over {trials}."


# What was chosen


def footnotes_of(cells: Iterable[Cell]) -> dict[Key, str]:
    """Return a letter for each choice, in the order of the numbers; none where all
    cells have one choice.
    """
    values: dict[Key, list] = {}
    for cell in cells:
        if cell.choice:
            values[cell.chosen] = list(cell.choice.values.values())
    if len(values) < 2:
        return {}
    keys = list(values)
    with suppress(TypeError):  # what has no order stays in that of the cells
        keys = sorted(keys, key=values.__getitem__)
    return dict(zip(keys, _LETTERS, strict=False))


def chosen_note(cells: Cells, letters: bool = True) -> Iterator[str]:
    """Say which values of settings are shown, what decided, and how far to trust that.

    With ``letters``, each value has its letter from the table.
    """
    choices = [cell.choice for cell in cells if cell.choice]
    if not choices:
        return
    measure = choices[0].measure
    decided_by = value_in_words(
        measure, is_evaluated(cells.trials.frame, measure.metric)
    )
    if measure.metric.part == cells.measure.metric.part:
        decided_by += ", which the cells also show: they are better than on new data"
    names = " and ".join(map(name_of, choices[0].values))
    footnotes = footnotes_of(cells)
    texts = [", ".join(key) for key in footnotes or [cells.cells[0].chosen]]
    values = " or ".join(texts)
    if letters and footnotes:
        values = "; ".join(map(": ".join, zip(footnotes.values(), texts, strict=True)))
    yield f"Chosen in each cell by the best mean {decided_by}: {names} {values}."

    undecided = sum(math.isnan(choice.mean) for choice in choices)
    if undecided:
        yield (
            f"In {count(undecided, 'cell')} no value has a mean to choose by; the "
            "first one is shown."
        )
    at_end = sum(choice.at_end for choice in choices)
    if at_end:
        yield f"In {count(at_end, 'cell')} it is the lowest or the highest value tried."
    incomplete = sum(not choice.complete for choice in choices)
    if incomplete:
        yield (
            f"INCOMPLETE: in {count(incomplete, 'cell')} some values lack trials; "
            "the choice may change."
        )


# What the test says


def _test_notes(
    marks: Sequence[Mark], marking: Marking, metric: Metric
) -> Iterator[str]:
    """Say what bold and underlined cells are."""
    if marking.better == 0:
        yield (
            f"No test: neither more nor less {metric.name} is better; in Python, "
            f"table(metric={metric.column!r}, best='lowest') marks and tests the best "
            "of a row."
        )
    claims = []
    powerless = []
    for mark in marks:
        test = mark.against_best
        if test is None:
            continue
        if mark.claimed:
            claims.append(test)
        elif not test.powered(marking.alpha):
            powerless.append(test)
    if claims:
        yield from _bold_notes(max(claims, key=_SMALLEST_P), marking)
    if powerless:
        yield _underlined_note(max(powerless, key=_SMALLEST_P), marking)


def _bold_notes(weakest: Significance, marking: Marking) -> Iterator[str]:
    """Say what bold means, and what the weakest of the tests can find."""
    correction = "no correction"
    if marking.correction:
        correction = f"{marking.correction.capitalize()} correction within a row"
    yield (
        "Bold: best of the row, or not significantly different from it (two-sided "
        f"Wilcoxon {marking.test} test, α = {marking.alpha:g}, {correction}; "
        f"{_smallest_p(weakest, marking)})."
    )
    if marking.test == "signed-rank" and 2 * weakest.smallest_p >= marking.alpha:
        yield (
            f"With {count(weakest.n_pairs, 'pair')} a difference is significant only "
            "where all pairs agree in direction."
        )


def _underlined_note(weakest: Significance, marking: Marking) -> str:
    """Say why no significance is claimed."""
    few = f"too few {_unit_of(marking)}s"
    reason = _smallest_p(weakest, marking)
    return (
        f"Underlined: best of a row with {few} for the test to find any difference "
        f"({reason}, α = {marking.alpha:g}); no significance is claimed."
    )


def _smallest_p(test: Significance, marking: Marking) -> str:
    pairs = count(test.n_pairs, _unit_of(marking))
    return f"smallest possible p with {pairs}: {test.smallest_p:.2g}"


def _unit_of(marking: Marking) -> str:
    return "pair" if marking.test == "signed-rank" else "trial"


# What is incomplete or doubtful


def _dispute_note(marks: Sequence[Mark]) -> Iterator[str]:
    """Count rows in which mean and test disagree."""
    disputed = sum(mark.disputed for mark in marks)
    if disputed:
        yield (
            f"In {count(disputed, 'row')} mean and test disagree: [better by test] "
            "marks cells that are significantly better than the best by mean. Outliers "
            "can decide a mean, and a cell with a diverged trial comes last."
        )


def _trial_notes(cells: Cells) -> Iterator[str]:
    """Count cells with missing trials, and trials that diverged."""
    incomplete = sum(not cell.complete for cell in cells)
    if incomplete:
        yield (
            f"INCOMPLETE: {incomplete} of {count(len(cells.cells), 'cell')} without "
            "all trials, shown as [n=done/planned]."
        )
    partial = sum(cell.partial for cell in cells)
    if partial:
        yield (
            f"PARTIAL: in {count(partial, 'cell')} the value was measured in some "
            "trials only, shown as [measured in n of finished]."
        )
    if any(cell.finished and not cell.n for cell in cells):
        yield "–: the value was not measured in any trial of the cell."
    diverged = sum(cell.diverged for cell in cells)
    if diverged:
        yield (
            f"{count(diverged, 'trial')} diverged: counted in the cell, left out of "
            "its means where not finite, last in the test."
        )


def unlearned_note(cells: Cells) -> Iterator[str]:
    """Warn of cells in which training gained no more than trials differ."""
    if is_evaluated(cells.trials.frame, cells.measure.metric):
        return
    finished = [cell for cell in cells if cell.n]
    unlearned = [cell for cell in finished if not cell.learned]
    if unlearned:
        cells_of_all = f"{len(unlearned)} of {count(len(finished), 'cell')}"
        yield (
            f"NOT LEARNED: in {cells_of_all} curves gained no more than trials differ; "
            "train longer, or try another learning rate."
        )


def made_note(cells: Iterable[Cell]) -> Iterator[str]:
    """Say how `cbm evaluate` made the values of cells, and whether it did so in several
    ways.
    """
    trials_by_way: Counter[str] = Counter()
    for cell in cells:
        if cell.evaluated:
            trials_by_way += cell.made
    del trials_by_way[""]
    ways = list(trials_by_way)
    if len(ways) == 1:
        yield f"Evaluated with {ways[0]}."
    elif ways:
        parts = [f"{way} ({count(trials_by_way[way], 'trial')})" for way in ways]
        yield (
            f"MIXED: the values were made in {len(ways)} ways, and may differ by that "
            f"alone: {'; '.join(parts)}."
        )


def _estimate_notes(cells: Cells) -> Iterator[str]:
    """Count estimates that are impossible or doubtful."""
    impossible = sum(int(cell.impossible.sum()) for cell in cells)
    if impossible:
        remedy = ""
        if not _is_exact(cells):
            remedy = (
                ": log Z is underestimated; more evaluate.temperatures and "
                "evaluate.runs estimate it better"
            )
        yield (
            f"{count(impossible, 'trial')} above 0, which is impossible for a "
            f"log-likelihood{remedy}. Their cells (≤) are disproved, and not compared."
        )
    bounded = sum(int((cell.bounded & ~cell.impossible).sum()) for cell in cells)
    if bounded:
        yield (
            "≤: at most. The proved bound disproves the estimates of "
            f"{count(bounded, 'trial')}; the bound is shown instead."
        )
    doubtful = sum(int(cell.doubts.sum()) for cell in cells)
    if doubtful:
        yield (
            f"DOUBTFUL: the last log Z of {count(doubtful, 'trial')} rests on fewer "
            "than a tenth of the runs of AIS, or a proved bound disproves it: it may "
            "be off by more than its error."
        )


def _is_exact(cells: Cells) -> bool:
    """Whether the values rest on an exact log Z."""
    if next(iter(cells)).evaluated:
        return cells.measure.metric.column.endswith("_exact")
    return set(cells.trials.frame.get("evaluate_method", [])) == {"exact"}
