"""Which cells are shown: those selected, and of a setting that is chosen the best; the
best machines.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.grid.settings import Data, TableSpec
from cbm_cli.results.cells import (
    Cell,
    Cells,
    Measure,
    Picked,
    Trials,
    finite,
    make_cells,
    measure_asked,
)
from cbm_cli.results.columns import Columns, Key, Row, key_of, why_not_chosen
from cbm_cli.results.journal import Manifest
from cbm_cli.results.metrics import (
    Metric,
    default_metric,
    ranked,
    valid_metric,
)
from cbm_cli.results.reader import Store
from cbm_cli.text import did_you_mean, text_of

if TYPE_CHECKING:
    import pandas as pd

# settings with a value, or several between commas; of one that is given twice, either
# value
Wanted = Sequence[tuple[str, str]]


class Choosing(NamedTuple):
    """Settings of which each cell shows the best value, the part that decides, and
    where it is asked for.
    """

    names: Sequence[str]
    by: str
    place: str  # before the name of an option or field


def select_cells(manifests: Sequence[Manifest], wanted: Wanted) -> list[Manifest]:
    """Return manifests with the wanted cells only, of which some may have none.

    Numbers may be written in any way, as 0.1 or 1e-1. CbmError for a setting that is
    unknown or does not vary, and for a value that no cell of any manifest has.
    """
    columns = Columns([run.row for manifest in manifests for run in manifest.cells])
    selected = list(manifests)
    texts: dict[Key, list[str]] = defaultdict(list)
    for name, value in wanted:
        named = tuple(columns.named(name, "--select", several=True))
        values = dict.fromkeys(_value_of(row, named) for row in columns.rows)
        texts[named] += _texts_of(name, value, values)
    for named, selection in texts.items():
        for place, manifest in enumerate(selected):
            runs = manifest.cells
            runs = [run for run in runs if _value_of(run.row, named) in selection]
            selected[place] = manifest.with_cells(runs)
    return selected


def _value_of(row: Row, columns: Sequence[str]) -> str:
    """Return the value of a setting as text; of several columns their values."""
    return " ".join(dict.fromkeys(key_of(row, columns)))


def _texts_of(name: str, value: str, values: Collection[str]) -> list[str]:
    """Return the values, as cells have them, that ``value`` lists between commas."""
    if value in values:
        return [value]
    texts = []
    for part in value.split(","):
        text = part.strip()
        if text not in values:
            with suppress(ValueError):
                text = text_of(float(text))
        if text not in values:
            raise CbmError(
                f"--select {name}={part.strip()}: no such value; there are "
                f"{', '.join(values)}"
            )
        texts.append(text)
    return texts


# The best value of a setting


def choosing_of(
    table: TableSpec, names: Sequence[str] | None = None, by: str | None = None
) -> Choosing | None:
    """Return what is to be chosen: as options say, with no names none, else as the
    grid's table says.
    """
    if names is None and table.choose:
        place = "--" if by else "table."
        return Choosing(table.choose, by or table.by or "valid", place)
    if by and not names:
        raise CbmError(f"--by {by}: has no effect without --choose SETTING")
    return Choosing(names, by or "valid", "--") if names else None


def choose_values(cells: Cells, choosing: Choosing) -> Cells:
    """Return the cells that have the best values of settings, without these settings.

    Cells compete that differ in these settings only. The best has the best mean of the
    metric on the part that decides, in the statistic of the cells; a cell with a trial
    without a finite value comes after all others, and of equals the first in the grid
    wins. Where the cells show values at the best validation value, the best validation
    value decides.
    """
    chosen = _chosen_columns(cells.columns, choosing)
    if not chosen:
        return cells
    place = f"{choosing.place}choose {' '.join(choosing.names)}"
    problem = why_not_chosen(chosen)
    if problem:
        remedy = "choose other settings, or write --choose none"
        raise CbmError(f"{place}: {problem}; {remedy}")
    remaining = [column for column in cells.columns.names if column not in chosen]
    measure = _deciding(cells, choosing)
    rivals: dict[Key, list[Cell]] = defaultdict(list)
    for cell in cells:
        rivals[key_of(cell.row, remaining)].append(cell.by(measure))
    if len(rivals) == len(cells.cells):
        also = ", ".join(cells.columns.varying(remaining))
        raise CbmError(
            f"{place}: every value goes with its own of {also}; choose those that "
            "belong together, too"
        )
    winners = [_winner(group, chosen) for group in rivals.values()]
    shown = [winner.by(cells.measure) for winner in winners]
    manifest = cells.manifest.with_cells(cell.run for cell in shown)
    return replace(cells, manifest=manifest, cells=shown)


def _chosen_columns(columns: Columns, choosing: Choosing) -> list[str]:
    """Return the columns to choose; none of a grid's where --set or --select has left
    one value.
    """
    if choosing.place == "table.":
        return columns.varying(columns.of_settings(choosing.names))
    chosen: list[str] = []
    for name in choosing.names:
        chosen += columns.named(name, "--choose", several=True)
    return chosen


def _deciding(cells: Cells, choosing: Choosing) -> Measure:
    """Return the measure that decides: the cells' metric on another part; if it has no
    best, the usual metric.
    """
    metric, scale, statistic = cells.measure
    frame = cells.trials.frame
    if not metric.better:
        metric = Metric(cells.manifest.table.metric or default_metric(frame) or "")
        statistic = "max"
    name = choosing.by + metric.column.removeprefix(metric.part)
    deciders = ranked(frame)
    if name not in deciders:
        hint = ""
        if choosing.by == "valid":
            hint = "; hold_out: 0.2 below data makes a valid part"
        listed = ", ".join(deciders) or "nothing that could decide"
        raise CbmError(
            f"{choosing.place}by {choosing.by}: the results hold no {name}; there is "
            f"{listed}{hint}"
        )
    if choosing.by == "valid" and statistic == "best-valid":
        statistic = "max"
    return Measure(Metric(name), scale, statistic)


def _winner(rivals: Sequence[Cell], columns: Sequence[str]) -> Cell:
    """Return the best of cells, with the values of some settings as its choice."""

    def rank(cell: Cell) -> tuple[bool, float]:
        is_finite = len(finite(cell.value)) == cell.n > 0
        gain = cell.measure.metric.better * cell.mean
        return is_finite, float(np.nan_to_num(gain, nan=-np.inf))

    best = max(rivals, key=rank)
    choice = Picked(
        values={column: best.row[column] for column in columns},
        measure=best.measure,
        mean=best.mean,
        complete=all(cell.n >= cell.planned for cell in rivals),
        at_end=len(columns) == 1 and _is_at_end(best, rivals, columns[0]),
    )
    return replace(best, choice=choice)


def _is_at_end(best: Cell, rivals: Sequence[Cell], column: str) -> bool:
    """Whether the best value is the lowest or the highest of three numbers or more; of
    a learning rate that changes, the first number counts.
    """
    numbers = {}
    for cell in rivals:
        number = cell.row[column]
        if column == "learning_rate":
            number = cell.settings.learning_rate.start
        if not isinstance(number, int | float):
            return False
        numbers[cell] = number
    different = sorted({*numbers.values()})
    return len(different) > 2 and numbers[best] in (different[0], different[-1])


# The cells of experiments


def read_cells(
    stores: Sequence[Store],
    metric: str | None = None,
    statistic: str | None = None,
    *,
    select: Wanted = (),
    choose: Sequence[str] | None = None,
    by: str | None = None,
) -> Iterator[Cells]:
    """Yield the cells of experiments, by default in the metric and statistic of their
    tables.

    ``select``: settings with their values; experiments that have no such cell are left
    out. ``choose``, ``by``: see `choosing_of`.

    Raises
    ------
    CbmError
        Unknown setting, value, part or metric, or a metric without the statistic.
    IncompleteError
        No trial is finished.
    """
    manifests = select_cells([store.manifest() for store in stores], select)
    problems: list[CbmError] = []
    for store, manifest in zip(stores, manifests, strict=True):
        if not manifest.cells:
            continue
        frame = store.summary()
        frame = frame[frame["run_id"].isin([run.run_id for run in manifest.cells])]
        if frame.empty:
            problems.append(store.nothing_yet())
            continue
        cells = make_cells(Trials(frame, store), manifest)
        try:
            choosing = choosing_of(manifest.table, choose, by)
            yield with_measure(cells, choosing, metric, statistic)
        except CbmError as error:  # of what is asked, which other experiments may have
            if len(stores) > 1:
                error = CbmError(f"{store.experiment}: {error}")
            problems.append(error)
    if problems:  # after the others are shown
        raise problems[0]


def with_measure(
    cells: Cells,
    choosing: Choosing | None,
    metric: str | None = None,
    statistic: str | None = None,
) -> Cells:
    """Return cells by a measure, as `measure_asked`; with the best values of settings,
    if any are chosen.
    """
    measure = measure_asked(cells.trials, cells.manifest.table, metric, statistic)
    measured_cells = [cell.by(measure) for cell in cells]
    cells = replace(cells, measure=measure, cells=measured_cells)
    return choose_values(cells, choosing) if choosing else cells


# The best machines


class BestMachine(msgspec.Struct, frozen=True, omit_defaults=True):
    """The best machine on a data set by one metric; without a machine where every trial
    has diverged.
    """

    data: str  # the title, with what tells data sets of one title apart
    part: str
    machine: str | None
    metric: str
    run_id: str = ""
    trial: int | None = None
    value: float | None = None
    when: str = ""  # best validation, or end of training
    settings: dict[str, str] = {}


def best_machines(
    store: Store, manifest: Manifest | None = None, metric: str | None = None
) -> list[BestMachine]:
    """Return the name or file of the best machine for each data set and each part of it
    that was evaluated.

    On the validation part, the machines at the best validation value of each trial are
    compared by it; on other parts, or for another ``metric``, the machines at the end
    of training by its final value. The part that is usually shown comes first, a
    validation part before it. The machine is None where every trial on a data set has
    diverged. Values on other numbers of rows, by ``evaluate.rows``, are not compared.
    ``manifest`` is the store's with some of its cells, by default with all.
    """
    frame, manifest = store.summary(), manifest or store.manifest()
    if frame.empty:
        raise store.nothing_yet()
    sets: dict[tuple[Data, int | None], list[Cell]] = defaultdict(list)
    for cell in make_cells(Trials(frame, store), manifest):
        sets[cell.settings.data, cell.settings.evaluate.rows].append(cell)
    titles = _titles_of([cells[0].row for cells in sets.values()])
    machines: list[BestMachine] = []
    for title, cells in zip(titles, sets.values(), strict=True):
        rows = np.concatenate([cell.rows for cell in cells])
        if not rows.size:
            continue
        for measure in _measures_of_best(frame.iloc[rows], manifest.table, metric):
            shown = [cell.by(measure) for cell in cells]
            machines.append(_best_of(store, shown, title, manifest.axes))
    if not any(machine.machine for machine in machines):
        raise IncompleteError(
            f"{store.folder}: every trial has diverged; no machine is the best"
        )
    return machines


def _titles_of(sets: Sequence[Row]) -> Iterator[str]:
    """Yield the title of each data set, with what tells its rows apart where several
    share one: ``rows (hold_out 0.2)``.
    """
    for row in sets:
        title = row["data"]
        alike = Columns([other for other in sets if other["data"] == title])
        fields = [name for name in row if name.startswith(("data_", "evaluate_rows"))]
        words = []
        for field in alike.apart((), fields):
            value = text_of(row[field]) or "none"
            words.append(f"{field.removeprefix('data_')} {value}")
        yield f"{title} ({', '.join(words)})" if words else title


def _best_of(
    store: Store, cells: Sequence[Cell], data: str, axes: Sequence[str]
) -> BestMachine:
    """Return the machine of the trial with the best value in cells of one data set."""
    measure = cells[0].measure
    metric = measure.metric
    values: dict[tuple[Cell, int], float] = {}
    for cell in cells:
        for trial, value in cell.values.items():
            if np.isfinite(value):
                values[cell, trial] = value
    if not values:
        return BestMachine(data, metric.part, machine=None, metric=metric.column)
    best_of = max if metric.better > 0 else min
    cell, trial = best_of(values, key=values.__getitem__)
    line = store.line(cell.run_id, trial)
    at_best = measure.statistic == "max" and "best" in store.machines_in(line)
    path, _ = store.machine(cell.run_id, trial, at_best)
    return BestMachine(
        data=data,
        part=metric.part,
        machine=str(path),
        metric=metric.column,
        run_id=cell.run_id,
        trial=trial,
        value=values[cell, trial],
        when="best validation" if at_best else "end of training",
        settings={axis: text_of(cell.row[axis]) for axis in axes},
    )


def _measures_of_best(
    frame: "pd.DataFrame", table: TableSpec, metric: str | None
) -> list[Measure]:
    """Return the measures that decide which machine is the best, one for each part that
    was evaluated.
    """
    comparable = ranked(frame)
    if metric and metric not in comparable:
        hint = did_you_mean(metric, comparable)
        raise CbmError(f"--metric {metric}: is nothing that has a best value{hint}")
    filled = ranked(frame.dropna(axis=1, how="all"))
    curves = [name for name in filled if f"{name}_final" in frame]
    watched = valid_metric(curves)
    first = metric or watched
    if not first and table.metric in filled:
        first = table.metric
    first = first or default_metric(frame)
    if first is None:
        raise IncompleteError("nothing was evaluated that has a best value")
    names = {first: None}
    if not metric:
        quantity = first.removeprefix(Metric(first).part)
        parts = [f"{part}{quantity}" for part in ("test", "train", "valid")]
        names |= dict.fromkeys(name for name in parts if name in curves)
    measures = []
    for name in names:
        statistic = "max" if name == watched else "final"
        measures.append(Measure(Metric(name), statistic=statistic))
    return measures
