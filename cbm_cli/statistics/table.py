"""Results tables: cells in rows and columns, marked, and the sheet that shows them."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple

from cbm_cli.errors import CbmError
from cbm_cli.grid.words import name_of, value_of, with_name
from cbm_cli.results.cells import Cell, Cells, mean
from cbm_cli.results.columns import Columns, Key, Row, key_of
from cbm_cli.sheets import Group, Item, Label, Sheet, Value
from cbm_cli.statistics.caption import aside_of, caption, footnotes_of
from cbm_cli.statistics.marks import Mark, Marking, mark_row
from cbm_cli.statistics.wilcoxon import TESTS, Sample
from cbm_cli.text import decimal, did_you_mean

MOST_DIGITS = 9
_BEST = {"highest": 1, "lowest": -1}
_CORRECTIONS = ("holm",)

Rows = Sequence[list["Entry"]]  # one entry for each column


class TableLayout(NamedTuple):
    """The columns of ``summary.csv`` that make the groups, rows and columns of a
    table.
    """

    groups: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]

    @property
    def axes(self) -> tuple[str, ...]:
        """All identifying columns, groups first."""
        return self.groups + self.rows + self.columns


class Formats(NamedTuple):
    """Formats of the numbers of a table."""

    mean: str
    spread: str
    aside: str


@dataclass(frozen=True)
class Entry(Value):
    """A cell as a sheet prints it, with its mark; see `entry_of`."""

    cell: Cell | None = None  # None where it is not planned
    verdict: Mark = field(default_factory=Mark)

    def record(self, axes: Sequence[str], marking: Marking) -> dict[str, Any]:
        """Return everything known about the cell: one line of the long form."""
        cell = self.cell
        assert cell is not None
        record = {axis: cell.row[axis] for axis in axes}
        if cell.choice:
            record |= cell.choice.values
            record[f"{cell.choice.measure.metric.part}_mean"] = cell.choice.mean
        record["n"] = cell.n
        record["n_planned"] = cell.planned
        record["mean"] = cell.mean
        record["std"] = cell.std
        record["at_most"] = int(cell.bounded.sum())
        record["final_mean"] = mean(cell.final)
        if cell.measure.metric.better < 0:
            record["epochs_to_convergence"] = mean(cell.epochs)
            record["min_update"] = cell.best_update
        else:
            record["max_update"] = cell.best_update
        record |= _test_record(self.verdict, marking)
        record["diverged"] = cell.diverged
        if cell.evaluated:
            record["doubtful"] = int(cell.doubts.sum())
            record["evaluated_with"] = "; ".join(cell.made)
        record["run_id"] = cell.run_id
        return record

    @property
    def difference(self) -> str:
        """The difference to the best of the row with its interval, as ``-0.52 [-0.61,
        -0.44]``.
        """
        difference = self.verdict.difference
        if not (math.isfinite(difference.low) or math.isfinite(difference.high)):
            return ""  # too few pairs
        estimate, low, high = (decimal(number, ".3g") for number in difference)
        return f"{estimate} [{low}, {high}]"


def _test_record(mark: Mark, marking: Marking) -> dict[str, Any]:
    """Return the test of a cell; NaN where there was none, or with too few pairs."""
    test = mark.against_best
    tested = test is not None and test.powered(marking.alpha)
    fields = {name: name for name in ("p_value", "effect_size", "n_pairs")}
    if marking.correction:
        fields[f"p_value_{marking.correction}"] = "corrected_p"
    record = {}
    for column, name in fields.items():
        record[column] = getattr(test, name) if tested else math.nan
    record["difference"] = mark.difference.estimate
    record["difference_low"] = mark.difference.low
    record["difference_high"] = mark.difference.high
    for name in ("best", "bold", "underlined", "better_by_test"):
        record[name] = getattr(mark, name)
    return record


@dataclass(frozen=True)
class ResultsTable:
    """The entries of a table, independent of its output format; see `build_table`."""

    cells: Cells
    layout: TableLayout
    columns: Sequence[Row]  # settings of the first cell of each column
    groups: Sequence[Rows]
    marking: Marking

    @property
    def entries(self) -> list[Entry]:
        """All entries of planned cells, in reading order."""
        rows = chain.from_iterable(self.groups)
        return [entry for entry in chain.from_iterable(rows) if entry.cell]

    def records(self) -> list[dict[str, Any]]:
        """Return the long form, a line for each cell."""
        axes = self.layout.axes
        return [entry.record(axes, self.marking) for entry in self.entries]

    def sheet(self) -> Sheet:
        """Return the table to print."""
        marks = [entry.verdict for entry in self.entries]
        notes = caption(self.cells, marks, self.marking)
        description = self.cells.manifest.description
        header = [Label.of("-".join(map(name_of, self.layout.rows)))]
        header += [_heading(self.layout.columns, settings) for settings in self.columns]
        about = {
            "about": description,
            "metric": self.cells.measure.metric.column,
            "scale": self.cells.measure.scale,
            "test": self.marking.test,
            "alpha": self.marking.alpha,
            "correction": self.marking.correction,
            "layout": self.layout._asdict(),
            "notes": notes,
        }
        return Sheet(
            header=header,
            groups=[self._printed_group(rows) for rows in self.groups],
            title=f"About: {description}" if description else "",
            name=self.cells.manifest.experiment,
            notes=notes,
            records=self.records,
            about=about,
        )

    def _printed_group(self, rows: Rows) -> Group:
        """Return rows with their labels."""
        lines: list[list[Item]] = []
        for row in rows:
            settings = next(entry.cell.row for entry in row if entry.cell)
            values = [value_of(axis, settings[axis]) for axis in self.layout.rows]
            lines.append([Label.join(values, "-"), *row])
        heading = None
        if self.layout.groups:
            first = next(entry.cell for entry in rows[0] if entry.cell)
            heading = _heading(self.layout.groups, first.row)
        return Group(heading, lines)


def _heading(axes: Sequence[str], row: Row) -> Label:
    return Label.join([with_name(axis, row[axis]) for axis in axes], ", ")


def build_table(
    cells: Cells,
    *,
    axes: Mapping[str, Sequence[str]] | None = None,
    best: str | None = None,
    test: str = "signed-rank",
    alpha: float = 0.05,
    correction: str | None = None,
) -> ResultsTable:
    """Arrange the cells of an experiment in a table with significance marks.

    Rows, columns and groups are sorted by their first setting, then the next; values of
    a setting are in the order of the grid. Axes that are not given are the manifest's,
    without what another axis names; if none is given, the rows also show whatever else
    varies within a cell. The other choices are those of ``cbm table``.

    Raises
    ------
    CbmError
        Unknown column, test or correction; a cell of the asked-for axes within which
        another setting varies.
    """
    layout = _layout(cells, axes or {})
    better = cells.measure.metric.better
    if best is not None:
        _refuse_unknown("best", best, _BEST)
        better = _BEST[best]
    _refuse_unknown("--test", test, TESTS)
    if correction is not None:
        _refuse_unknown("--correction", correction, _CORRECTIONS)
    if not 0 < alpha < 1:
        raise CbmError(f"--alpha {alpha}: must be between 0 and 1")
    marking = Marking(better, test, alpha, correction)

    columns, arranged = _arranged(cells, layout)
    groups = [[_marked(row, marking) for row in rows] for rows in arranged]
    formats = _formats(cells, list(chain.from_iterable(groups)))
    footnotes = footnotes_of(cells)
    for row in chain.from_iterable(groups):
        row[:] = [_printed(entry, formats, footnotes) for entry in row]
    return ResultsTable(cells, layout, columns, groups, marking)


def _refuse_unknown(option: str, name: str, choices: Collection[str]) -> None:
    if name not in choices:
        raise CbmError(f"{option} {name}: unknown{did_you_mean(str(name), choices)}")


# Entries


def _marked(row: Sequence[Cell | None], marking: Marking) -> list[Entry]:
    """Return a row with marks, still without numbers."""
    samples: list[Sample | None] = []
    for cell in row:
        if cell is None or cell.impossible.any():
            samples.append(None)
        else:
            samples.append(cell.values)
    marks = mark_row(samples, marking)
    return [
        Entry("–", cell=cell, verdict=mark)
        for cell, mark in zip(row, marks, strict=True)
    ]


def _printed(entry: Entry, formats: Formats, footnotes: Mapping[Key, str]) -> Entry:
    """Return an entry with its numbers, its flags and the letter of its choice."""
    cell, mark = entry.cell, entry.verdict
    if cell is None:
        return entry
    footnote = footnotes.get(cell.chosen, "")
    entry = replace(entry, footnote=footnote, flags=", ".join(_flags(cell, mark)))
    if cell.n == 0:
        return entry
    if math.isnan(cell.mean):
        return replace(entry, number="diverged")
    number = decimal(cell.mean, formats.mean)
    if cell.bounded.any():
        number = f"≤ {number}"
    spread = _decimal_or_dash(cell.std, formats.spread)
    aside = ""
    if aside_of(cell):
        values = getattr(cell, aside_of(cell))
        aside = _decimal_or_dash(mean(values), formats.aside)
    return replace(entry, number=number, spread=spread, aside=aside, mark=mark.name)


def _flags(cell: Cell, mark: Mark) -> list[str]:
    flags = []
    if not cell.complete:
        flags.append(f"n={cell.finished}/{cell.planned}")
    if cell.partial:
        flags.append(f"measured in {cell.n} of {cell.finished}")
    if cell.diverged:
        flags.append(f"{cell.diverged} diverged")
    if mark.disputed:
        flags.append("best by mean")
    elif mark.better_by_test:
        flags.append("better by test")
    return flags


def _decimal_or_dash(number: float, spec: str) -> str:
    return "–" if math.isnan(number) else decimal(number, spec)


def _formats(cells: Cells, rows: Rows) -> Formats:
    """Return formats whose digits show every marked difference."""
    first = next(iter(cells))
    if aside_of(first) == "epochs":
        digits = _digits(rows, 5, "f")
        return Formats(f".{digits}f", f".{digits - 1}f", ".0f")
    if first.measure.metric.better or first.evaluated:
        digits = _digits(rows, 2, "f")
        return Formats(f".{digits}f", f".{digits}f", f".{digits - 1}f")
    digits = _digits(rows, 4, "g")
    return Formats(f".{digits}g", f".{digits - 2}g", f".{digits - 2}f")


def _digits(rows: Rows, fewest: int, kind: str) -> int:
    """Return the fewest digits that show every marked difference."""
    pairs = []
    for row in rows:
        pairs += _told_apart(row)
    for digits in range(fewest, MOST_DIGITS):
        spec = f".{digits}{kind}"
        if all(format(best, spec) != format(other, spec) for best, other in pairs):
            return digits
    return MOST_DIGITS


def _told_apart(row: Sequence[Entry]) -> list[tuple[float, float]]:
    """Return the best mean with each that differs significantly from it.

    There are none in a row that claims no significance: more digits would show noise.
    """
    best = None
    other_means = []
    for entry in row:
        if entry.cell is None or entry.cell.n == 0:
            continue
        if entry.verdict.best and entry.verdict.bold:
            best = entry.cell.mean
        elif not entry.verdict.name:
            other_means.append(entry.cell.mean)
    if best is None:
        return []
    return [(best, mean) for mean in other_means if mean != best]


# Where cells are


def _arranged(
    cells: Cells, layout: TableLayout
) -> tuple[list[Row], list[list[list[Cell | None]]]]:
    """Return the settings of the first cell of each column, and the cells by group, row
    and column.
    """
    headings: dict[Key, Row] = {}
    places: dict[tuple[Key, Key, Key], Cell] = {}
    for cell in cells:
        group = key_of(cell.row, layout.groups)
        row = key_of(cell.row, layout.rows)
        column = key_of(cell.row, layout.columns)
        headings.setdefault(column, cell.row)
        twin = places.setdefault((group, row, column), cell)
        if twin is not cell:
            varying = Columns([cell.row, twin.row]).varying()
            differing = " and ".join(varying) or "nothing but the run"
            raise CbmError(
                f"the cell {', '.join(group + row + column)} would mix runs that "
                f"differ in {differing}; name it in --rows or --columns"
            )

    columns = in_order(headings)
    arranged = []
    for group in in_order(group for group, _, _ in places):
        lines = []
        for row in in_order(row for other, row, _ in places if other == group):
            lines.append([places.get((group, row, column)) for column in columns])
        arranged.append(lines)
    return [headings[column] for column in columns], arranged


def in_order(keys: Iterable[Key]) -> list[Key]:
    """Return the different keys, sorted by their first value, then the next, each in
    the order in which it first appears.
    """
    keys = list(dict.fromkeys(keys))
    places = []
    for values in zip(*keys, strict=True):
        distinct = dict.fromkeys(values)
        places.append({value: place for place, value in enumerate(distinct)})

    def places_of(key: Key) -> list[int]:
        return [place[value] for place, value in zip(places, key, strict=True)]

    return sorted(keys, key=places_of)


def _layout(cells: Cells, asked: Mapping[str, Sequence[str]]) -> TableLayout:
    """Return the asked-for axes, and the default ones without the columns that were
    asked for elsewhere.
    """
    columns = cells.columns
    axis_of: dict[str, str] = {}  # of the columns that are asked for
    for axis, names in asked.items():
        for name in names:
            for column in columns.named(name, f"--{axis}"):
                other = axis_of.setdefault(column, axis)
                if other != axis:
                    raise CbmError(
                        f"{column} is named in both --{other} and --{axis}; name it "
                        "once"
                    )
    axes = {}
    for axis in TableLayout._fields:
        named = [column for column in axis_of if axis_of[column] == axis]
        if axis not in asked:
            defaults = columns.of_settings(getattr(cells.manifest.table, axis))
            named = [column for column in defaults if column not in axis_of]
        axes[axis] = tuple(named)
    layout = TableLayout(**axes)
    if asked:
        return layout
    added = columns.apart(layout.axes)
    return layout._replace(rows=(*layout.rows, *added))
