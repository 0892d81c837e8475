"""A table over an experiment's cells: what is in it, before anyone says how it looks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import pandas as pd

from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.results import Metric, default_metric, measured
from cbm_cli.statistics.cells import STATISTICS, Cell, cell_of, mark_row, narrowed, statistic_column
from cbm_cli.statistics.values import suggestion, text_of
from cbm_cli.statistics.wilcoxon import CORRECTIONS, FEWEST_PAIRS, TESTS

Key = tuple[Any, ...]
STATISTIC_NAMES = {
    "max": "{best} {name} during training",
    "final": "Final {name}",
    "best-valid": "At the best validation value, {name}",
}
ASIDES = {
    "final": " (mean of the final values)",
    "epochs": " (mean of the epochs to convergence, all epochs where a trial did not converge)",
    "": "",
}


@dataclass(frozen=True)
class Layout:
    """Which columns of ``summary.csv`` make the groups, rows and columns of a table."""

    groups: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]

    @property
    def axes(self) -> tuple[str, ...]:
        """All identifying columns, groups first."""
        return self.groups + self.rows + self.columns


@dataclass(frozen=True)
class Row:
    """A labelled row: one cell a column, None where none is planned."""

    values: Key
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True)
class Group:
    """Rows under one sub-heading."""

    values: Key
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Table:
    """Everything that a rendering of a table needs; see `build_table`."""

    title: str
    layout: Layout
    columns: tuple[Key, ...]
    groups: tuple[Group, ...]
    metric: str
    scale: str
    test: str
    alpha: float
    correction: str | None
    left_out: int = 0
    statistic: str = "max"

    @property
    def cells(self) -> list[Cell]:
        """All planned cells, in reading order."""
        return [c for group in self.groups for row in group.rows for c in row.cells if c is not None]

    @property
    def aside(self) -> str:
        """What stands in parentheses behind mean and spread: ``final``, ``epochs`` (costs) or nothing."""
        return {1: "final", -1: "epochs", 0: ""}[Metric(self.metric).better]

    def long(self) -> pd.DataFrame:
        """One line a cell: identifying columns, summary, test against the best of its row, marks."""
        frame = pd.DataFrame([cell.long() for cell in self.cells])
        return frame.astype({"n_pairs": "Int64"})

    def notes(self) -> list[str]:
        """What a reader must know: what is shown, the test, what is incomplete or diverged."""
        return [note for note in (*self._what(), self._marks(), self._incomplete(), *self._odd()) if note]

    def _what(self) -> list[str]:
        metric = Metric(self.metric)
        best = "Minimum" if metric.better < 0 else "Maximum"
        what = STATISTIC_NAMES[self.statistic].format(best=best, name=metric.name)
        how = f"summed over the {metric.part} rows" if self.scale == "total" else f"per {metric.part} sample"
        planned = sorted({cell.planned for cell in self.cells if cell.planned}) or [0]
        trials = " to ".join(str(n) for n in dict.fromkeys((planned[0], planned[-1])))
        return [
            f"{what}{f' {how}' if metric.better else ''}: "
            f"mean ± standard deviation{ASIDES[self.aside]} over {trials} trials."
        ]

    def _marks(self) -> str:
        claims = f"two-sided Wilcoxon {self.test} test, α = {self.alpha:g}, " + (
            f"{self.correction.capitalize()} correction within a row" if self.correction else "no correction"
        )
        parts = []
        if any(cell.bold for cell in self.cells):
            parts.append(f"Bold: the best of a row and all that the test cannot tell from it ({claims}).")
        if any(cell.underlined for cell in self.cells):
            few = f"fewer than {FEWEST_PAIRS} {'pairs' if self.test == 'signed-rank' else 'trials'}"
            parts.append(f"Underlined: the best of a row with {few}, no significance claimed.")
        return " ".join(parts)

    def _incomplete(self) -> str:
        missing = [cell for cell in self.cells if not cell.complete]
        if not missing:
            return ""
        return (
            f"INCOMPLETE: {len(missing)} of {len(self.cells)} cells lack trials, shown as [n=done/planned]."
        )

    def _odd(self) -> list[str]:
        diverged = sum(cell.diverged for cell in self.cells)
        counts = f"{diverged} {'trial' if diverged == 1 else 'trials'} diverged: counted in the cell, "
        return [
            counts + "left out of its means where not finite, last in the test." if diverged else "",
            f"Left out: {self.left_out} trials of runs that the experiment no longer asks for."
            if self.left_out
            else "",
        ]


def build_table(
    frame: pd.DataFrame,
    manifest: Mapping[str, Any],
    *,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    groups: Sequence[str] | None = None,
    metric: str | None = None,
    statistic: str | None = None,
    test: str = "signed-rank",
    alpha: float = 0.05,
    correction: str | None = None,
) -> Table:
    """Summarise an experiment's trials into a table with significance marks.

    Parameters
    ----------
    frame : DataFrame
        The experiment's ``summary.csv``: one row a finished trial.
    manifest : mapping
        ``description``, ``trials`` (planned), ``table`` and ``cells`` (settings and ``run_id``). The
        order of rows, columns and groups is that of the cells.
    rows, columns, groups : sequence of str, optional
        Columns of ``summary.csv``; default: the manifest's ``table``, less what another axis names. Where
        none is given, the rows are also told apart by whatever else varies within a cell.
    metric : str, optional
        Such as ``train_log_likelihood``; default: the manifest's, or else as `default_metric` finds.
    statistic : {'max', 'final', 'best-valid'}, optional
        Best value over training (of a cost the minimum), last value, or value at the best evaluation of the
        validation part. Of what was recorded there is the last value only.
    test : {'signed-rank', 'rank-sum'}
    alpha : float
        Level below which a method counts as worse than the best.
    correction : {None, 'holm'}
        Correction over the comparisons within a row.

    Raises
    ------
    CbmError
        Unknown column, metric or test, or a cell of the asked-for axes within which another setting varies.
    """
    cells = list({cell["run_id"]: cell for cell in manifest["cells"]}.values())
    if frame.empty or not cells:
        raise IncompleteError("the experiment has no finished trial yet; start it with `cbm run`")
    metric = _metric(frame, metric or manifest["table"]["metric"])
    statistic = statistic or _default_statistic(manifest["table"], metric)
    _check_choices(test, alpha, correction, statistic)
    _check_statistic(frame, metric, statistic)
    layout = _layout(manifest["table"], cells[0], rows=rows, columns=columns, groups=groups)
    if rows is None and columns is None and groups is None:
        layout = _widened(layout, cells)
    _check_distinct(cells, layout)
    scale = manifest["table"]["scale"]
    by_key = _summarised(frame, cells, layout, (metric, statistic, scale), manifest["trials"])
    heads = _distinct(_key(cell, layout.columns) for cell in cells)
    asked_for = frame["run_id"].isin([cell["run_id"] for cell in cells])
    return Table(
        title=manifest.get("description", ""),
        layout=layout,
        columns=heads,
        groups=_groups(cells, layout, heads, by_key, (test, alpha, correction)),
        metric=metric,
        scale=scale,
        test=test,
        alpha=alpha,
        correction=correction,
        left_out=int((~asked_for).sum()),
        statistic=statistic,
    )


def _summarised(
    frame: pd.DataFrame, cells: Sequence[Mapping], layout: Layout, what: tuple[str, str, str], planned: int
) -> dict[Key, Cell]:
    metric, statistic, scale = what
    frame = narrowed(frame, metric)
    trials, none = dict(list(frame.groupby("run_id"))), frame.iloc[:0]
    return {
        _key(cell, layout.axes): cell_of(
            trials.get(cell["run_id"], none),
            metric,
            scale,
            where={axis: cell[axis] for axis in layout.axes},
            planned=planned,
            statistic=statistic,
        )
        for cell in cells
    }


def _groups(
    cells: Sequence[Mapping], layout: Layout, heads: Iterable[Key], by_key: Mapping[Key, Cell], rule: tuple
) -> tuple[Group, ...]:
    keys: dict[Key, list[Key]] = {}
    for cell in cells:
        keys.setdefault(_key(cell, layout.groups), []).append(_key(cell, layout.rows))
    return tuple(
        Group(
            group,
            tuple(
                Row(row, tuple(mark_row([by_key.get(group + row + head) for head in heads], *rule)))
                for row in _distinct(rows)
            ),
        )
        for group, rows in keys.items()
    )


def _key(cell: Mapping[str, Any], axes: Iterable[str]) -> Key:
    return tuple(cell[axis] for axis in axes)


def _distinct(keys: Iterable[Key]) -> tuple[Key, ...]:
    return tuple(dict.fromkeys(keys))


def _layout(defaults: Mapping[str, Sequence[str]], known: Mapping[str, Any], **asked) -> Layout:
    """The asked-for axes, and the default ones less the columns that were asked for elsewhere."""
    taken = {column for axis in asked.values() for column in axis or ()}
    axes = {
        name: tuple(c for c in defaults[name] if c not in taken) if axis is None else tuple(axis)
        for name, axis in asked.items()
    }
    for name, axis in axes.items():
        for column in axis:
            if column not in known or column == "run_id":
                known_columns = [c for c in known if c != "run_id"]
                raise CbmError(f"--{name} {column}: no such column{suggestion(column, known_columns)}")
    for one, other in combinations(axes, 2):
        for column in set(axes[one]) & set(axes[other]):
            raise CbmError(f"{column} is named in both --{one} and --{other}; name it once")
    return Layout(axes["groups"], axes["rows"], axes["columns"])


def _widened(layout: Layout, cells: Sequence[Mapping[str, Any]]) -> Layout:
    """The layout with as many further settings behind its rows as tell its cells apart."""
    for column in [column for column in cells[0] if column not in {"run_id", *layout.axes}]:
        wider = replace(layout, rows=(*layout.rows, column))
        if len({_key(cell, wider.axes) for cell in cells}) > len({_key(cell, layout.axes) for cell in cells}):
            layout = wider
    return layout


def _check_distinct(cells: Sequence[Mapping[str, Any]], layout: Layout) -> None:
    """Refuse a table whose cells would mix runs of different settings."""
    first: dict[Key, Mapping[str, Any]] = {}
    for cell in cells:
        twin = first.setdefault(_key(cell, layout.axes), cell)
        if twin is not cell:
            varying = [c for c in cell if c != "run_id" and text_of(cell[c]) != text_of(twin[c])]
            where = ", ".join(text_of(cell[axis]) for axis in layout.axes)
            named = " and ".join(varying) or "nothing but the run"
            raise CbmError(
                f"the cell {where} would mix runs that differ in {named}; "
                "name it in --rows, --columns or --groups"
            )


def _metric(frame: pd.DataFrame, asked: str | None) -> str:
    """The metric that is asked for, or else the one of the results' kind."""
    known = measured(frame)
    metric = asked or default_metric(known)
    if metric is None or not known:
        remedy = f"; choose --metric: there are {', '.join(known)}" if known else ""
        raise CbmError(f"nothing was evaluated (evaluate: method: none){remedy}")
    if metric not in known:
        raise CbmError(f"the results hold no metric {metric}{suggestion(metric, known)}")
    return metric


def _default_statistic(table: Mapping[str, Any], metric: str) -> str:
    return table.get("statistic", "max") if Metric(metric).better else "final"


def _check_statistic(frame: pd.DataFrame, metric: str, statistic: str) -> None:
    if statistic_column(frame, Metric(metric), statistic) in frame:
        return
    if statistic == "best-valid":
        raise CbmError(f"--statistic {statistic}: the data sets have no validation part that was evaluated")
    raise CbmError(f"--statistic {statistic}: of {metric} there is the final value only")


def _check_choices(test: str, alpha: float, correction: str | None, statistic: str) -> None:
    if statistic not in STATISTICS:
        raise CbmError(f"--statistic {statistic}: no such statistic{suggestion(statistic, STATISTICS)}")
    if test not in TESTS:
        raise CbmError(f"--test {test}: no such test{suggestion(test, TESTS)}")
    if correction is not None and correction not in CORRECTIONS:
        raise CbmError(f"--correction {correction}: no such correction{suggestion(correction, CORRECTIONS)}")
    if not 0 < alpha < 1:
        raise CbmError(f"--alpha {alpha:g} must lie between 0 and 1")
