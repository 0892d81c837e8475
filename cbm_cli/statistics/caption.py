"""The notes below a table: what it shows, the test, and what is incomplete, diverged or
doubtful.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from string import ascii_lowercase

from cbm_cli.grid.words import name_of
from cbm_cli.results import Metric
from cbm_cli.results.cells import MAX_OF_MEAN, Cell, Cells, Measure, is_evaluated
from cbm_cli.results.columns import Key, key_of
from cbm_cli.statistics.marks import Mark, Marking
from cbm_cli.statistics.wilcoxon import FEWEST_PAIRS, Significance
from cbm_cli.text import count

_METHODS = {
    "exact": "exact",
    "ais": "AIS",
    "pseudo": "exact",
}  # endings of what cbm evaluate adds


def caption(cells: Cells, marks: Sequence[Mark], marking: Marking) -> list[str]:
    """Return the notes of a table of some cells with these marks."""
    tested = " ".join(_tested(marks, marking, cells.measure.metric))
    notes = (
        _what(cells),
        *chosen_note(cells),
        tested,
        *_troubles(cells, marks),
        *unlearned_note(cells),
        *_estimates(cells),
    )
    return [note for note in notes if note]


def value_in_words(measure: Measure, evaluated: bool) -> str:
    """Return what a value is of a trial, as ``maximum test log-likelihood during
    training``.
    """
    metric, _, statistic = measure
    name = f"{metric.part} {metric.name}".strip()
    if evaluated:
        base, _, method = metric.column.rpartition("_")
        return (
            f"{metric.part} {Metric(base).name} ({_METHODS[method]}) of the final "
            "machine"
        )
    best = "minimum" if metric.better == -1 else "maximum"
    return {
        "max": f"{best} {name} during training",
        "final": f"final {name}",
        "best-valid": f"{name} at the best validation value",
        MAX_OF_MEAN: f"{best} during training of the {name}'s mean over trials",
    }[statistic]


def chosen_key(cell: Cell) -> Key:
    """Return what is chosen in a cell, as text."""
    return key_of(cell.choice.values, cell.choice.values) if cell.choice else ()


def footnotes_of(cells: Iterable[Cell]) -> dict[Key, str]:
    """Return a letter for each choice, in the order of the numbers; none where all
    cells have one choice.
    """
    keys = {
        chosen_key(cell): [*cell.choice.values.values()]
        for cell in cells
        if cell.choice
    }
    with suppress(TypeError):  # what has no order stays in that of the cells
        keys = dict(sorted(keys.items(), key=lambda one: one[1]))
    if len(keys) < 2:
        return {}
    letters = (
        f"{first}{second}"
        for first in ("", *ascii_lowercase)
        for second in ascii_lowercase
    )
    return dict(zip(keys, letters, strict=False))


def chosen_note(cells: Cells, letters: bool = True) -> Iterator[str]:
    """Say which values of settings are shown, what decided, and how far to trust that.

    With ``letters``, each value has its letter from the table.
    """
    choices = [cell.choice for cell in cells if cell.choice]
    if not choices:
        return
    names, measure = " and ".join(map(name_of, choices[0].values)), choices[0].measure
    told = footnotes_of(cells) or {chosen_key(next(iter(cells))): ""}
    words = [
        f"{letter}: {', '.join(key)}" if letter and letters else ", ".join(key)
        for key, letter in told.items()
    ]
    values = "; ".join(words) if letters else " or ".join(words)
    what = value_in_words(measure, is_evaluated(cells.trials.frame, measure.metric))
    same = ", which the cells also show: they are better than on new data" * (
        measure.metric.part == cells.measure.metric.part
    )
    yield f"Chosen in each cell by the best mean {what}{same}: {names} {values}."
    if ends := sum(choice.at_end for choice in choices):
        yield f"In {count(ends, 'cell')} it is the lowest or the highest value tried."
    if lacking := sum(not choice.complete for choice in choices):
        yield (
            f"INCOMPLETE: in {count(lacking, 'cell')} some values lack trials; the "
            "choice may change."
        )


def aside_of(shown: Cell) -> str:
    """Return what the parentheses hold: ``final``, ``epochs`` (of costs) or nothing."""
    better, statistic = shown.measure.metric.better, shown.measure.statistic
    if shown.evaluated or (statistic == "final" and better > 0):
        return ""
    return {1: "final", -1: "epochs", 0: ""}[better]


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


def _what(cells: Cells) -> str:
    """Say what the numbers of a cell are."""
    metric, scale, statistic = cells.measure
    first = next(iter(cells))
    what = value_in_words(cells.measure, first.evaluated)
    rows = cells.trials.numbers(f"n_{metric.part}")
    unit = metric.unit(scale, sorted({int(n) for n in rows if n == n}))
    lowest = "validation cost" if statistic == "best-valid" else "cost"
    beside = {
        "final": " (mean of the final values)",
        "epochs": f" (mean epoch of the lowest {lowest})",
        "": "",
    }
    aside = beside[aside_of(first)]
    numbers = sorted({cell.n for cell in cells if cell.n}) or [0]
    few = f"{numbers[0]} to " if len(numbers) > 1 else ""
    return (
        f"{what[0].upper()}{what[1:]}{f', {unit}' if unit else ''}: "
        f"mean ± standard deviation{aside} over {few}{count(numbers[-1], 'trial')}."
    )


def _tested(marks: Sequence[Mark], marking: Marking, metric: Metric) -> Iterator[str]:
    """Say what bold and underlined cells are."""
    better, test, alpha, correction = marking
    pairs = "pair" if test == "signed-rank" else "trial"
    tests = [(mark.claimed, mark.against_best) for mark in marks if mark.against_best]

    def smallest(one: Significance) -> str:
        return (
            f"smallest possible p with {count(one.n_pairs, pairs)}: "
            f"{one.smallest_p:.2g}"
        )

    if claims := [one for claimed, one in tests if claimed]:
        least = max(claims, key=lambda one: one.smallest_p)
        held = (
            f"{correction.capitalize()} correction within a row"
            if correction
            else "no correction"
        )
        yield (
            "Bold: best of the row, or not significantly different from it (two-sided "
            "Wilcoxon "
            f"{test} test, α = {alpha:g}, {held}; {smallest(least)})."
        )
        if test == "signed-rank" and 2 * least.smallest_p >= alpha:
            yield (
                f"With {count(least.n_pairs, pairs)} a difference is significant only "
                "where all pairs "
                "agree in direction."
            )
    if weak := [
        one for claimed, one in tests if not claimed and not one.powered(alpha)
    ]:
        least = max(weak, key=lambda one: one.smallest_p)
        few = f"fewer than {count(FEWEST_PAIRS, pairs)}"
        yield (
            f"Underlined: best of a row with too few {pairs}s for the test to find "
            "any difference "
            f"({few if least.smallest_p < alpha else smallest(least)}, α = {alpha:g}); "
            "no significance is claimed."
        )
    if not better:
        yield (
            f"No test: neither more nor less {metric.name} is better; in Python, "
            f"table(metric={metric.column!r}, best='lowest') marks and tests the best "
            "of a row."
        )


def _troubles(cells: Cells, marks: Sequence[Mark]) -> Iterator[str]:
    """Count rows in which mean and test disagree, and cells with missing or diverged
    trials.
    """
    if disputed := sum(mark.disputed for mark in marks):
        yield (
            f"In {count(disputed, 'row')} mean and test disagree: [better by test] "
            "marks cells that are "
            "significantly better than the best by mean. Outliers can decide a mean, "
            "and a cell with a "
            "diverged trial comes last."
        )
    if missing := sum(not cell.complete for cell in cells):
        number = count(len(cells.cells), "cell")
        yield (
            f"INCOMPLETE: {missing} of {number} without all trials, shown as "
            "[n=done/planned]."
        )
    if diverged := sum(cell.diverged for cell in cells):
        yield (
            f"{count(diverged, 'trial')} diverged: counted in the cell, left out of "
            "its means where not "
            "finite, last in the test."
        )


def made_note(cells: Iterable[Cell]) -> Iterator[str]:
    """Say how `cbm evaluate` made the values of cells, and whether it did so in several
    ways.
    """
    ways: Counter[str] = sum((cell.made for cell in cells if cell.evaluated), Counter())
    made = [(how, n) for how, n in ways.items() if how]
    if len(made) > 1:
        parts = "; ".join(f"{how} ({count(n, 'trial')})" for how, n in made)
        yield (
            f"MIXED: the values were made in {len(made)} ways, and may differ by "
            f"that alone: {parts}."
        )
    elif made:
        yield f"Evaluated with {made[0][0]}."


def _estimates(cells: Cells) -> Iterator[str]:
    """Describe how values were estimated, which are impossible or doubtful, and which
    are left out.
    """
    yield from made_note(cells)
    if cells.measure.metric.better > 0:
        if above := sum(int(cell.impossible.sum()) for cell in cells):
            remedy = "more evaluate.temperatures and evaluate.runs estimate it better"
            methods = {*cells.trials.frame.get("evaluate_method", [])}
            if next(iter(cells)).evaluated:
                methods = {cells.measure.metric.column.rpartition("_")[2]}
            remedy = (
                f": log Z is underestimated; {remedy}" if methods != {"exact"} else ""
            )
            yield (
                f"{count(above, 'trial')} above 0, which is impossible for a "
                f"log-likelihood{remedy}. Their "
                "cells (≤) are disproved, and not compared."
            )
        if bounded := sum(
            int((cell.bounded & ~cell.impossible).sum()) for cell in cells
        ):
            yield (
                "≤: at most. Known states disprove the estimates of "
                f"{count(bounded, 'trial')}; their limit "
                "is shown instead."
            )
        if doubtful := sum(int(cell.doubts.sum()) for cell in cells):
            yield (
                f"DOUBTFUL: the last log Z of {count(doubtful, 'trial')} rests on "
                "fewer than a tenth of the "
                "runs of AIS, or known states or reverse AIS disprove it: it may be "
                "off by more than its "
                "error."
            )
