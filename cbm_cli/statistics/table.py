"""Results tables: cells in rows and columns, marked, and the sheet that shows them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from typing import Any, NamedTuple

from cbm_cli.errors import CbmError
from cbm_cli.grid.words import name_of, value_of, with_name
from cbm_cli.results.cells import Cell, Cells, mean
from cbm_cli.results.columns import Columns, Key, Row, key_of
from cbm_cli.sheets import Group, Item, Label, Sheet, Value
from cbm_cli.statistics.caption import aside_of, caption, chosen_key, footnotes_of
from cbm_cli.statistics.marks import Mark, Marking, mark_row
from cbm_cli.statistics.wilcoxon import TESTS
from cbm_cli.text import decimal, did_you_mean

MOST_DIGITS = 9


@dataclass(frozen=True)
class TableLayout:
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


class Digits(NamedTuple):
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
        cell, test = self.cell, self.verdict.against_best
        assert cell is not None
        cost, choice = cell.measure.metric.better < 0, cell.choice
        tested = test is not None and test.powered(marking.alpha)
        names = {
            "p_value": "p_value",
            "effect_size": "effect_size",
            "n_pairs": "n_pairs",
        }
        names |= (
            {f"p_value_{marking.correction}": "corrected_p"}
            if marking.correction
            else {}
        )
        marks = ("best", "bold", "underlined", "better_by_test")
        return {
            **{axis: cell.row[axis] for axis in axes},
            **(
                {**choice.values, f"{choice.measure.metric.part}_mean": choice.mean}
                if choice
                else {}
            ),
            "n": cell.n,
            "n_planned": cell.planned,
            "mean": cell.mean,
            "std": cell.std,
            "at_most": int(cell.bounded.sum()),
            "final_mean": mean(cell.final),
            **({"epochs_to_convergence": mean(cell.epochs)} if cost else {}),
            "min_update" if cost else "max_update": cell.best_update,
            **{
                name: getattr(test, own) if tested else math.nan
                for name, own in names.items()
            },
            **dict(
                zip(
                    ("difference", "difference_low", "difference_high"),
                    self.verdict.difference,
                    strict=True,
                )
            ),
            **{name: getattr(self.verdict, name) for name in marks},
            "diverged": cell.diverged,
            **({"doubtful": int(cell.doubts.sum())} if cell.evaluated else {}),
            **({"evaluated_with": "; ".join(cell.made)} if cell.evaluated else {}),
        }

    @property
    def difference(self) -> str:
        """The difference to the best of the row with its interval, as ``-0.52 [-0.61,
        -0.44]``.
        """
        if not any(map(math.isfinite, self.verdict.difference[1:])):  # too few pairs
            return ""
        middle, low, high = (
            decimal(number, ".3g") for number in self.verdict.difference
        )
        return f"{middle} [{low}, {high}]"


def entry_of(
    cell: Cell | None, mark: Mark, digits: Digits, footnotes: Mapping[Key, str]
) -> Entry:
    """Return a cell as it is printed; ``footnotes`` has a letter for each choice in the
    caption.
    """
    if cell is None:
        return Entry("–")
    flags = [] if cell.complete else [f"n={cell.n}/{cell.planned}"]
    flags += [f"{cell.diverged} diverged"] if cell.diverged else []
    flags += (
        ["best by mean"]
        if mark.disputed
        else ["better by test"]
        if mark.better_by_test
        else []
    )
    footnote = footnotes.get(chosen_key(cell), "")
    about: Any = {
        "footnote": footnote,
        "flags": ", ".join(flags),
        "cell": cell,
        "verdict": mark,
    }
    if math.isnan(cell.mean):
        return Entry("diverged" if cell.n else "–", **about)
    aside = aside_of(cell)
    beside = getattr(cell, aside) if aside else cell.value[:0]
    number, spread, behind = (
        "–" if math.isnan(value) else decimal(value, spec)
        for value, spec in zip((cell.mean, cell.std, mean(beside)), digits, strict=True)
    )
    number = f"≤ {number}" if cell.bounded.any() else number
    return Entry(number, spread, behind if aside else "", mark=mark.name, **about)


@dataclass(frozen=True)
class ResultsTable:
    """The entries of a table, independent of its output format; see `build_table`."""

    cells: Cells
    layout: TableLayout
    columns: tuple[Row, ...]  # settings of the first cell of each column
    groups: Sequence[Sequence[Sequence[Entry]]]  # one entry for each column
    marking: Marking

    @property
    def entries(self) -> list[Entry]:
        """All entries of planned cells, in reading order."""
        return [
            entry
            for group in self.groups
            for row in group
            for entry in row
            if entry.cell
        ]

    def records(self) -> list[dict[str, Any]]:
        """Return the long form, a line for each cell."""
        return [entry.record(self.layout.axes, self.marking) for entry in self.entries]

    def sheet(self) -> Sheet:
        """Return the table to print."""
        axes, manifest, measure = self.layout, self.cells.manifest, self.cells.measure
        description = manifest.description
        title = f"About: {description}" if description else ""
        notes = caption(
            self.cells, [entry.verdict for entry in self.entries], self.marking
        )
        corner = Label.of("-".join(map(name_of, axes.rows)))
        groups = []
        for rows in self.groups:
            firsts = [
                next(entry.cell.row for entry in row if entry.cell) for row in rows
            ]
            stubs = [
                Label.join([value_of(axis, first[axis]) for axis in axes.rows], "-")
                for first in firsts
            ]
            lines: list[list[Item]] = [
                [stub, *row] for stub, row in zip(stubs, rows, strict=True)
            ]
            groups.append(
                Group(_heading(axes.groups, firsts[0]) if axes.groups else None, lines)
            )
        header = [
            corner,
            *(_heading(axes.columns, settings) for settings in self.columns),
        ]
        about = {
            "about": description,
            "metric": measure.metric.column,
            "scale": measure.scale,
            "test": self.marking.test,
            "alpha": self.marking.alpha,
            "correction": self.marking.correction,
            "layout": asdict(axes),
            "notes": notes,
        }
        return Sheet(
            header, groups, title, manifest.experiment, notes, self.records, about
        )


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
    better = _known(
        "best", best, {"highest": 1, "lowest": -1, None: cells.measure.metric.better}
    )
    _known("--test", test, TESTS)
    _known("--correction", correction, {"holm": 1, None: 0})
    if not 0 < alpha < 1:
        raise CbmError(f"--alpha {alpha}: must be between 0 and 1")
    marking = Marking(better, test, alpha, correction)
    columns, places = _arranged(cells, layout)

    rows = list[list[list[tuple[Cell | None, Mark]]]]()
    for group in places:
        rows.append([])
        for row in group:
            values = [
                it.values if it and not it.impossible.any() else None for it in row
            ]
            rows[-1].append([*zip(row, mark_row(values, marking), strict=True)])
    formats, footnotes = (
        _digits([row for group in rows for row in group]),
        footnotes_of(cells),
    )
    groups = [
        [[entry_of(*one, formats, footnotes) for one in row] for row in group]
        for group in rows
    ]
    return ResultsTable(cells, layout, columns, groups, marking)


def _known(option: str, asked: str | None, choices: Mapping[Any, Any]) -> Any:
    """Return what a choice means; CbmError if there is none of this name."""
    if asked not in choices:
        names = [*filter(None, choices)]
        raise CbmError(f"{option} {asked}: unknown{did_you_mean(str(asked), names)}")
    return choices[asked]


def _digits(rows: Sequence[Sequence[tuple[Cell | None, Mark]]]) -> Digits:
    """Return formats whose digits show every marked difference."""
    first = next(cell for row in rows for cell, _ in row if cell)
    aside = aside_of(first)
    of_rows = first.measure.metric.better or first.evaluated
    kind, fewest = ("f", 5) if aside == "epochs" else ("f", 2) if of_rows else ("g", 4)
    enough = (d for d in range(fewest, MOST_DIGITS) if _distinct(rows, f".{d}{kind}"))
    digits = next(enough, MOST_DIGITS)
    less = max(digits - (2 if kind == "g" else 1), 0)
    spread = digits if aside != "epochs" and kind == "f" else less
    return Digits(
        f".{digits}{kind}",
        f".{spread}{kind}",
        ".0f" if aside == "epochs" else f".{less}f",
    )


def _distinct(rows: Sequence[Sequence[tuple[Cell | None, Mark]]], spec: str) -> bool:
    """Whether a significantly best mean differs, as printed, from those of cells
    without a mark.
    """
    return not any(
        format(best.mean, spec) == format(cell.mean, spec) and best.mean != cell.mean
        for row in rows
        for best, its in row
        if best and its.best and its.bold  # elsewhere more digits would show noise
        for cell, mark in row
        if cell and cell.n and not mark.name
    )


def _arranged(
    cells: Cells, layout: TableLayout
) -> tuple[tuple[Row, ...], list[list[list[Cell | None]]]]:
    """Return the settings of the first cell of each column, and the cells by group, row
    and column.
    """
    places: dict[Key, Cell] = {}
    groups: dict[Key, dict[Key, None]] = {}
    heads: dict[Key, Row] = {}
    for cell in cells:
        axes = (layout.groups, layout.rows, layout.columns)
        group, row, head = (key_of(cell.row, axis) for axis in axes)
        heads.setdefault(head, cell.row)
        groups.setdefault(group, {})[row] = None
        twin = places.setdefault(group + row + head, cell)
        if twin is not cell:
            differing = Columns([cell.row, twin.row]).varying()
            differ = " and ".join(differing) or "nothing but the run"
            told = (
                f"would mix runs that differ in {differ}; name it in --rows or "
                "--columns"
            )
            raise CbmError(f"the cell {', '.join(group + row + head)} {told}")
    columns = in_order(heads)
    return tuple(heads[head] for head in columns), [
        [
            [places.get(group + row + head) for head in columns]
            for row in in_order(groups[group])
        ]
        for group in in_order(groups)
    ]


def in_order(keys: Iterable[Key]) -> list[Key]:
    """Sort keys by their first value, then the next, each in the order in which it
    first appears.
    """
    known = [*keys]
    places = [
        {v: i for i, v in enumerate(dict.fromkeys(values))}
        for values in zip(*known, strict=True)
    ]
    return sorted(
        known, key=lambda key: [place[v] for place, v in zip(places, key, strict=True)]
    )


def _layout(cells: Cells, asked: Mapping[str, Sequence[str]]) -> TableLayout:
    """Return the asked-for axes, and the default ones without the columns that were
    asked for elsewhere.
    """
    columns, table = cells.columns, cells.manifest.table
    chosen = {column for cell in cells if cell.choice for column in cell.choice.values}
    named: dict[str, list[str]] = {}
    for axis, names in asked.items():
        named[axis] = []
        for name in names:
            if name.replace(".", "_") in chosen:
                message = (
                    "is chosen in each cell, and cannot tell cells apart; remove it, "
                    "or write --choose none"
                )
                raise CbmError(f"--{axis} {name}: {message}")
            named[axis] += columns.named(name, f"--{axis}")
    taken = {column for of_axis in named.values() for column in of_axis}
    axes: dict[str, tuple[str, ...]] = {}
    for axis in ("groups", "rows", "columns"):
        usual = columns.of_settings(getattr(table, axis))
        left = [column for column in usual if column not in taken]
        axes[axis] = tuple(named.get(axis, left))
    for axis, other in combinations(axes, 2):
        for column in set(axes[axis]) & set(axes[other]):
            raise CbmError(
                f"{column} is named in both --{axis} and --{other}; name it once"
            )
    layout = TableLayout(**axes)
    if named:
        return layout
    return replace(layout, rows=(*layout.rows, *columns.apart(layout.axes)))
