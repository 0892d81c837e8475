"""The contents of a results table, and the sheet that shows it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.results import Metric, default_metric, fewest_effective, measured
from cbm_cli.sheets import Document, Group, Item, Label, Sheet, Value
from cbm_cli.statistics.layout import (
    CellSettings,
    Key,
    TableLayout,
    columns_named,
    in_words,
    key_of,
    spelled,
    telling_apart,
)
from cbm_cli.statistics.marked_cells import (
    MAX_OF_MEAN,
    Cell,
    Marking,
    Measured,
    mark_row,
    mean,
    statistic_column,
)
from cbm_cli.statistics.mean_curves import CurveOf, add_best_of_mean, best_of_mean_columns
from cbm_cli.statistics.wilcoxon import FEWEST_PAIRS, Significance
from cbm_cli.text import count, decimal, did_you_mean, text_of

MOST_DIGITS = 9
_NONE = np.empty(0, dtype=int)
METHODS = {"exact": "exact", "ais": "AIS", "raise": "RAISE"}  # endings of what cbm evaluate adds
CORNERS = {"sampler": Label.of("Algorithm"), "learning_rate": Label.of("η")}


Row = tuple[Cell | None, ...]  # one cell for each column, None where none is planned


@dataclass(frozen=True)
class ResultsTable:
    """The contents of a table, independent of its output format; see `build_table`."""

    title: str
    name: str  # of the experiment
    layout: TableLayout
    columns: tuple[CellSettings, ...]  # settings of the first cell of each column
    groups: tuple[tuple[Row, ...], ...]
    metric: str
    scale: str
    statistic: str
    marking: Marking
    left_out: int = 0  # trials of runs that the experiment no longer asks for
    estimated: bool = False  # by AIS or RAISE, not exact
    evaluated: bool = False  # the metric is of the final machine, by cbm evaluate
    doubtful: int = 0  # trials whose last estimate of log Z rests on few runs of AIS
    digits: int | None = None
    rows: Sequence[int] = ()  # how many the metric is of; several where the data sets differ

    @property
    def cells(self) -> list[Cell]:
        """All planned cells, in reading order."""
        return [c for group in self.groups for row in group for c in row if c is not None]

    @property
    def aside(self) -> str:
        """Content of the parentheses: ``final``, ``epochs`` (of costs) or nothing."""
        return "" if self.evaluated else {1: "final", -1: "epochs", 0: ""}[Metric(self.metric).better]

    def document(self, split: int | str | None = None) -> Document:
        """Return the table to print, in parts of at most ``split`` columns, or by ``groups``."""
        axes, formats, notes = self.layout, self._formats(), self.notes()
        corner = Label.join([CORNERS.get(axis, Label.of(in_words(axis))) for axis in axes.rows], "-")
        groups = []
        for rows in self.groups:
            firsts = [next(cell.where for cell in row if cell) for row in rows]
            stubs = [Label.join([spelled(axis, first[axis]) for axis in axes.rows], "-") for first in firsts]
            lines = [
                [stub, *(self._value(cell, formats) for cell in row)]
                for stub, row in zip(stubs, rows, strict=True)
            ]
            groups.append(Group(_heading(axes.groups, firsts[0]) if axes.groups else None, lines))
        header = [corner, *(_heading(axes.columns, settings) for settings in self.columns)]
        sheet = Sheet(header, groups, self.title, self.name)
        about: Any = {
            "title": self.title,
            "metric": self.metric,
            "scale": self.scale,
            "test": self.marking.test,
        }
        about |= {"alpha": self.marking.alpha, "correction": self.marking.correction}
        about |= {"layout": asdict(axes), "notes": notes}
        return Document(sheet.split(split), notes, records=[*map(self.record, self.cells)], about=about)

    def record(self, cell: Cell) -> dict[str, Any]:
        """Return everything known about a cell: one line of the long form."""
        cost = Metric(self.metric).better < 0
        test = cell.against_best
        tested = test is not None and test.powered(self.marking.alpha)
        return {
            **cell.where,
            "n": cell.n,
            "n_planned": cell.planned,
            "mean": cell.mean,
            "std": cell.std,
            "final_mean": mean(cell.finals),
            **({"epochs_to_convergence": mean(cell.epochs)} if cost else {}),
            "min_update" if cost else "max_update": cell.best_update,
            **{
                name: getattr(test, name) if tested else None
                for name in ("p_value", "effect_size", "n_pairs")
            },
            **{
                name: getattr(cell, name)
                for name in ("best", "bold", "underlined", "better_by_test", "diverged")
            },
        }

    def _formats(self) -> tuple[str, str, str]:
        """Return formats of mean, spread and aside; their digits show every marked difference."""
        kind, fewest = {"epochs": ("f", 5), "final": ("f", 2)}.get(self.aside, ("g", 4))
        if self.evaluated:
            kind, fewest = "f", 2
        if self.digits is not None:
            kind, digits = "f", self.digits
        else:
            enough = (d for d in range(fewest, MOST_DIGITS) if self._distinct(f".{d}{kind}"))
            digits = next(enough, MOST_DIGITS)
        less = max(digits - (2 if kind == "g" else 1), 0)
        spread = digits if self.aside != "epochs" and kind == "f" else less
        return f".{digits}{kind}", f".{spread}{kind}", ".0f" if self.aside == "epochs" else f".{less}f"

    def _distinct(self, spec: str) -> bool:
        """Whether a significantly best mean differs, as printed, from those of cells without a mark."""
        rows = ([c for c in row if c and c.n] for rows in self.groups for row in rows)
        return not any(
            format(best.mean, spec) == format(cell.mean, spec) and best.mean != cell.mean
            for row in rows
            for best in row
            if best.best and best.bold  # elsewhere more digits would show noise
            for cell in row
            if not cell.mark
        )

    def _value(self, cell: Cell | None, formats: tuple[str, str, str]) -> Item:
        if cell is None:
            return Value("–")
        flags = [] if cell.complete else [f"n={cell.n}/{cell.planned}"]
        flags += [f"{cell.diverged} diverged"] if cell.diverged else []
        flags += ["best by mean"] if cell.disputed else ["better by test"] if cell.better_by_test else []
        if math.isnan(cell.mean):
            return Value("diverged" if cell.n else "–", flags=", ".join(flags))
        beside = {"final": cell.finals, "epochs": cell.epochs}.get(self.aside, np.empty(0))
        number, spread, behind = (
            "–" if math.isnan(value) else decimal(value, spec)
            for value, spec in zip((cell.mean, cell.std, mean(beside)), formats, strict=True)
        )
        return Value(number, spread, behind if self.aside else "", ", ".join(flags), cell.mark)

    def notes(self) -> list[str]:
        """Return the caption: what is shown, the test, and what is incomplete or diverged."""
        notes = [self._what(), " ".join(self._marks())]
        if disputed := sum(cell.disputed for cell in self.cells):
            notes.append(
                f"In {count(disputed, 'row')} mean and test disagree: [better by test] marks cells that are "
                "significantly better than the best by mean. A few far trials decide means, and a cell with "
                "a diverged trial comes after all others."
            )
        if missing := sum(not cell.complete for cell in self.cells):
            cells = count(len(self.cells), "cell")
            notes.append(f"INCOMPLETE: {missing} of {cells} without all trials, shown as [n=done/planned].")
        if diverged := sum(cell.diverged for cell in self.cells):
            notes.append(
                f"{count(diverged, 'trial')} diverged: counted in the cell, left out of its means where not "
                "finite, last in the test."
            )
        likelihood = Metric(self.metric).better > 0
        if likelihood and (above := sum(value > 0 for cell in self.cells for value in cell.values.values())):
            remedy = "more evaluate.temperatures and evaluate.runs estimate it better"
            remedy = f": log Z is underestimated; {remedy}" if self.estimated else ""
            notes.append(f"{count(above, 'trial')} above 0, which no log-likelihood is{remedy}.")
        if likelihood and self.doubtful and not self.evaluated:
            trials = count(self.doubtful, "trial")
            notes.append(
                f"The last log Z of {trials} rests on fewer than a tenth of the runs of AIS: it may be off "
                "by more than its error."
            )
        if self.left_out:
            trials = count(self.left_out, "trial")
            notes.append(f"Left out: {trials} of runs that the experiment no longer asks for.")
        return [note for note in notes if note]

    def _what(self) -> str:
        metric = Metric(self.metric)
        name = f"{metric.part} {metric.name}".strip()
        if self.evaluated:
            base, _, method = self.metric.rpartition("_")
            what = f"{metric.part} {Metric(base).name} ({METHODS[method]}) of the final machine"
        else:
            best = "minimum" if metric.better < 0 else "maximum"
            what = {
                "max": f"{best} {name} during training",
                "final": f"final {name}",
                "best-valid": f"{name} at the best validation value",
                MAX_OF_MEAN: f"{best} during training of the {name}'s mean over trials",
            }[self.statistic]
        unit = metric.unit(self.scale, self.rows)
        aside = {
            "final": " (mean of the final values)",
            "epochs": f" (mean epoch of the lowest {'validation ' * (self.statistic == 'best-valid')}cost)",
            "": "",
        }[self.aside]
        numbers = sorted({cell.n for cell in self.cells if cell.n}) or [0]
        few = f"{numbers[0]} to " if len(numbers) > 1 else ""
        return (
            f"{what[0].upper()}{what[1:]}{f', {unit}' if unit else ''}: "
            f"mean ± standard deviation{aside} over {few}{count(numbers[-1], 'trial')}."
        )

    def _marks(self) -> Iterator[str]:
        better, test, alpha, correction = self.marking
        pairs = "pair" if test == "signed-rank" else "trial"
        tests = [(cell.claimed, cell.against_best) for cell in self.cells if cell.against_best]

        def smallest(one: Significance) -> str:
            return f"smallest possible p with {count(one.n_pairs, pairs)}: {one.smallest_p:.2g}"

        if claims := [one for claimed, one in tests if claimed]:
            least = max(claims, key=lambda one: one.smallest_p)
            held = f"{correction.capitalize()} correction within a row" if correction else "no correction"
            yield (
                "Bold: best of the row, or not significantly different from it (two-sided Wilcoxon "
                f"{test} test, α = {alpha:g}, {held}; {smallest(least)})."
            )
            if test == "signed-rank" and 2 * least.smallest_p >= alpha:
                yield (
                    f"With {count(least.n_pairs, pairs)} a difference is significant only where all pairs "
                    "agree in direction."
                )
        if weak := [one for claimed, one in tests if not claimed and not one.powered(alpha)]:
            least = max(weak, key=lambda one: one.smallest_p)
            few = f"fewer than {count(FEWEST_PAIRS, pairs)}"
            yield (
                f"Underlined: best of a row with too few {pairs}s for the test to find any difference "
                f"({few if least.smallest_p < alpha else smallest(least)}, α = {alpha:g}); "
                "no significance is claimed."
            )
        if not better:
            yield (
                f"No test: neither more nor less {Metric(self.metric).name} is better; "
                "--best lowest or --best highest marks and tests the best of a row."
            )


def _heading(axes: Sequence[str], settings: CellSettings) -> Label:
    """Return the label of a group or a column; a number alone would not say what it counts."""
    parts = []
    for axis in axes:
        name = "" if isinstance(settings[axis], str) else in_words(axis) + " "
        parts.append(Label.join([Label.of(name), spelled(axis, settings[axis])], ""))
    return Label.join(parts, ", ")


def build_table(
    frame: pd.DataFrame,
    manifest: Mapping[str, Any],
    *,
    axes: Mapping[str, Sequence[str]] | None = None,
    metric: str | None = None,
    statistic: str | None = None,
    best: str | None = None,
    digits: int | None = None,
    curve: CurveOf | None = None,
    **marking: Any,
) -> ResultsTable:
    """Summarise an experiment's trials into a table with significance marks.

    ``frame`` is the experiment's ``summary.csv``; the order of rows, columns and groups is the order of the
    manifest's cells. Axes that are not given are the manifest's, without what another axis names; if none
    is given, the rows also show whatever else varies within a cell. Only max-of-mean needs ``curve``. The
    other choices are those of ``cbm table``.

    Raises
    ------
    CbmError
        Unknown column or metric, or a cell of the asked-for axes within which another setting varies.
    IncompleteError
        No trial is finished.
    """
    cells = list({cell["run_id"]: cell for cell in manifest["cells"]}.values())
    if frame.empty or not cells:
        raise IncompleteError("the experiment has no finished trial yet; start it with `cbm run`")
    table = manifest["table"]
    metric = _metric(frame, metric or table["metric"])
    evaluated = f"{metric}_final" not in frame and metric in frame
    lacks_it = best_of_mean_columns(metric)[0] not in frame  # kept summaries have it
    if statistic == MAX_OF_MEAN and curve and lacks_it and not evaluated and Metric(metric).better:
        frame = add_best_of_mean(frame, [metric], curve)
    statistic = _statistic(frame, metric, evaluated, statistic, table)
    layout = _layout(table, cells, axes or {})
    marked = Marking({"highest": 1, "lowest": -1, None: Metric(metric).better}[best], **marking)
    columns, places = _arranged(cells, layout)
    values, trials = Measured.of(frame, metric, table["scale"], statistic), frame.groupby("run_id").indices

    exact = metric.endswith("_exact") if evaluated else {*frame.get("evaluate_method", [])} == {"exact"}
    few = ()
    if "effective_sample_size_final" in frame:
        few = frame["effective_sample_size_final"] < frame["evaluate_runs"].map(fewest_effective)

    def made(cell: CellSettings | None) -> Cell | None:
        where = {axis: cell.get(axis) for axis in layout.axes} if cell else {}
        return values.cell(trials.get(cell["run_id"], _NONE), where, manifest["trials"]) if cell else None

    return ResultsTable(
        title=manifest.get("description", ""),
        name=manifest.get("experiment", ""),
        layout=layout,
        columns=columns,
        groups=tuple(tuple(tuple(mark_row([*map(made, row)], marked)) for row in rows) for rows in places),
        metric=metric,
        scale=table["scale"],
        statistic=statistic,
        marking=marked,
        left_out=int((~frame["run_id"].isin([cell["run_id"] for cell in cells])).sum()),
        estimated=not exact,
        evaluated=evaluated,
        doubtful=sum(few),
        digits=digits,
        rows=sorted(set(frame.get(f"n_{Metric(metric).part}", pd.Series(dtype=float)).dropna().astype(int))),
    )


def _arranged(
    cells: Sequence[CellSettings], layout: TableLayout
) -> tuple[tuple[CellSettings, ...], list[list[list[CellSettings | None]]]]:
    """Return the first cell of each column, and the cells by group, row and column."""
    places: dict[Key, CellSettings] = {}
    groups: dict[Key, dict[Key, None]] = {}
    heads: dict[Key, CellSettings] = {}
    for cell in cells:
        group, row, head = (key_of(cell, axis) for axis in (layout.groups, layout.rows, layout.columns))
        heads.setdefault(head, cell)
        groups.setdefault(group, {})[row] = None
        twin = places.setdefault(group + row + head, cell)
        if twin is not cell:
            varying = [c for c in cell if c != "run_id" and text_of(cell[c]) != text_of(twin.get(c))]
            raise CbmError(
                f"the cell {', '.join(group + row + head)} would mix runs that differ in "
                f"{' and '.join(varying) or 'nothing but the run'}; name it in --rows, --columns or --groups",
                "missing",
            )
    return tuple(heads.values()), [
        [[places.get(group + row + head) for head in heads] for row in rows] for group, rows in groups.items()
    ]


def _layout(
    defaults: Mapping[str, Sequence[str]], cells: Sequence[CellSettings], asked: Mapping[str, Sequence[str]]
) -> TableLayout:
    """Return the asked-for axes, and the default ones without the columns that were asked for elsewhere."""
    named = {
        axis: tuple(c for name in names for c in columns_named(name, cells, f"--{axis}"))
        for axis, names in asked.items()
    }
    taken = {column for columns in named.values() for column in columns}
    axes = {
        axis: named[axis] if axis in named else tuple(c for c in defaults[axis] if c not in taken)
        for axis in ("groups", "rows", "columns")
    }
    for one, other in combinations(axes, 2):
        for column in set(axes[one]) & set(axes[other]):
            raise CbmError(f"{column} is named in both --{one} and --{other}; name it once", "conflict")
    layout = TableLayout(**axes)
    if named:
        return layout
    return replace(layout, rows=(*layout.rows, *telling_apart(cells, layout.axes, cells[0])))


def _metric(frame: pd.DataFrame, asked: str | None) -> str:
    """Return the metric that is asked for, else the usual one of the results' kind."""
    known = measured(frame)
    metric = asked or default_metric(frame)
    if metric is None or not known:
        remedy = f"; choose --metric: there are {', '.join(known)}" if known else ""
        raise CbmError(f"nothing was evaluated (evaluate: method: none){remedy}", "missing")
    if metric not in known:
        raise CbmError(f"the results hold no metric {metric}{did_you_mean(metric, known)}", "unknown")
    return metric


def _statistic(
    frame: pd.DataFrame, metric: str, evaluated: bool, asked: str | None, table: Mapping[str, Any]
) -> str:
    """Return the statistic that is asked for, else the usual one of the metric."""
    recorded = not Metric(metric).better
    statistic = asked or ("final" if evaluated or recorded else table.get("statistic", "max"))
    if evaluated and statistic != "final":
        raise CbmError(
            f"--statistic {statistic}: {metric} is known of the final machine only; leave it out", "unsuited"
        )
    if statistic_column(frame, Metric(metric), statistic) not in frame:
        if statistic == "best-valid":
            raise CbmError(
                "--statistic best-valid: the data sets have no validation part that was evaluated", "missing"
            )
        raise CbmError(
            f"--statistic {statistic}: of {metric} there is the final value only; leave it out", "unsuited"
        )
    return statistic
