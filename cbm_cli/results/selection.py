"""Which cells are shown: those selected, and of a setting that is chosen the best; the
best machines.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.grid.settings import AXES, Data, TableSpec
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
from cbm_cli.results.columns import Columns, Key, Row, key_of
from cbm_cli.results.journal import Manifest
from cbm_cli.results.metrics import Metric, default_metric, measured
from cbm_cli.results.reader import Store
from cbm_cli.text import did_you_mean, text_of

if TYPE_CHECKING:
    import pandas as pd

# settings with a value, or several between commas; of one that is given twice, either
# value
Wanted = Sequence[tuple[str, str]]
_COMMA = re.compile(
    r",(?![^\[(]*[\])])"
)  # between values, not in brackets as in hidden=[500, 500]


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
    tests: dict[Key, set[str]] = {}
    for name, value in wanted:
        named = tuple(columns.named(name, "--select", several=True))
        tests.setdefault(named, set()).update(_texts_of(name, value, named, columns))
    selected = list(manifests)
    for named, texts in tests.items():
        selected = [
            manifest.with_cells(
                run for run in manifest.cells if _shared(run.row, named) in texts
            )
            for manifest in selected
        ]
    return selected


def _shared(row: Row, columns: Sequence[str]) -> str | None:
    """Return the value of all columns of a setting as text; None if they differ."""
    texts = set(key_of(row, columns))
    return texts.pop() if len(texts) == 1 else None


def _texts_of(
    name: str, value: str, named: Sequence[str], columns: Columns
) -> set[str]:
    """Return the values, as cells have them, that ``value`` lists between commas."""
    there = {_shared(row, named) for row in columns.rows} - {None}
    if value in there:
        return {value}
    texts: set[str] = set()
    for part in _COMMA.split(value):
        text = part.strip()
        if text not in there:
            with suppress(ValueError):
                text = text_of(float(text))
        if text not in there:
            known = ", ".join(columns.texts(named[0]))
            raise CbmError(
                f"--select {name}={part.strip()}: no such value; there are {known}"
            )
        texts.add(text)
    return texts


# The best value of a setting


def choosing_of(
    table: TableSpec, names: Sequence[str] | None = None, by: str | None = None
) -> Choosing | None:
    """Return what is to be chosen: as options say, with no names none, else as the
    grid's table says.
    """
    if names is None and (own := table.choose):
        return Choosing(own, by or table.by or "valid", "--" if by else "table.")
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
    columns_of, option = cells.columns, f"{choosing.place}choose"
    names = list(choosing.names)
    if choosing.place == "table.":
        names = columns_of.varying(columns_of.of_settings(names))
        if not names:  # --set or --select has left one value
            return cells
    columns: list[str] = []
    for name in names:
        columns += columns_of.named(name, option, several=True)
    if any(column.split("_")[0] == "data" for column in columns):
        raise CbmError(
            f"{option} {' '.join(names)}: likelihoods of different data cannot be "
            "compared"
        )
    others = [name for name in columns_of.names if name not in columns]
    measure, rivals = _deciding(cells, choosing), dict[Key, list[Cell]]()
    for cell in cells:
        rivals.setdefault(key_of(cell.row, others), []).append(cell.measured(measure))
    if len(rivals) == len(cells.cells):
        also = ", ".join(columns_of.varying(others))
        told = (
            f"every value goes with its own of {also}; choose those that belong "
            "together, too"
        )
        raise CbmError(f"{option} {' '.join(names)}: {told}")
    axes: dict[str, Any] = {axis: getattr(cells.manifest.table, axis) for axis in AXES}
    axes = {
        axis: tuple(name for name in columns_of.of_settings(its) if name not in columns)
        for axis, its in axes.items()
    }
    table = cells.manifest.table.model_copy(
        update=axes | {"statistic": cells.measure.statistic}
    )
    chosen = [_winner(its, columns).measured(cells.measure) for its in rivals.values()]
    manifest = cells.manifest.with_cells((cell.run for cell in chosen), table)
    return replace(cells, manifest=manifest, cells=chosen)


def _deciding(cells: Cells, choosing: Choosing) -> Measure:
    """The measure that decides: the cells' metric on another part; if it has no best,
    the usual metric.
    """
    (metric, scale, statistic), frame = cells.measure, cells.trials.frame
    if not metric.better:
        metric, statistic = (
            Metric(cells.manifest.table.metric or default_metric(frame) or ""),
            "max",
        )
    name, known = (
        f"{choosing.by}{metric.column.removeprefix(metric.part)}",
        measured(frame),
    )
    if name not in known or not metric.better:
        there = (
            ", ".join(one for one in known if Metric(one).better)
            or "nothing that could decide"
        )
        hint = (
            "; hold_out: 0.2 below data makes a valid part"
            if choosing.by == "valid"
            else ""
        )
        told = f"the results hold no {name}; there is {there}{hint}"
        raise CbmError(f"{choosing.place}by {choosing.by}: {told}")
    best = statistic == "best-valid" and choosing.by == "valid"
    return Measure(Metric(name), scale, "max" if best else statistic)


def _winner(rivals: Sequence[Cell], columns: Sequence[str]) -> Cell:
    """The best of cells, with the values of some settings as its choice."""
    sign = rivals[0].measure.metric.better
    means = [np.nan_to_num(sign * cell.mean, nan=-np.inf) for cell in rivals]
    finished = [len(finite(cell.value)) == cell.n > 0 for cell in rivals]
    places = range(len(rivals))
    best = rivals[max(places, key=lambda place: (finished[place], means[place]))]
    choice = Picked(
        values={column: best.row[column] for column in columns},
        measure=best.measure,
        mean=best.mean,
        complete=all(cell.n >= cell.planned for cell in rivals),
        at_end=len(columns) == 1 and _is_at_end(best, rivals, columns[0]),
    )
    return replace(best, choice=choice)


def _is_at_end(best: Cell, rivals: Sequence[Cell], column: str) -> bool:
    """Whether the best value is the lowest or the highest of three numbers or more."""
    numbers = {_number_of(cell, column) for cell in rivals}
    if None in numbers or len(numbers) < 3:
        return False
    return _number_of(best, column) in (min(numbers), max(numbers))


def _number_of(cell: Cell, column: str) -> Any:
    """Return a number, also the first one of a learning rate that changes; None for
    other values.
    """
    number = cell.row[column]
    if column == "learning_rate" and not isinstance(number, int | float):
        return cell.settings.learning_rate.start
    return number if isinstance(number, int | float) else None


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
    lost: CbmError | None = None
    for store, manifest in zip(stores, manifests, strict=True):
        frame = store.summary()
        if select:
            frame = frame[frame["run_id"].isin([run.run_id for run in manifest.cells])]
        if frame.empty or not manifest.cells:
            lost = lost or (
                store.nothing_yet() if manifest.cells or not select else None
            )
            continue
        cells = make_cells(Trials(frame, store), manifest, Measure(Metric("")))
        try:
            yield with_measure(
                cells, choosing_of(manifest.table, choose, by), metric, statistic
            )
        except CbmError as error:  # of what is asked, which other experiments may have
            lost = lost or CbmError(
                f"{store.experiment}: " * (len(stores) > 1) + str(error)
            )
    if lost:  # after the others are shown
        raise lost


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
    cells = replace(
        cells, measure=measure, cells=[cell.measured(measure) for cell in cells]
    )
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
    diverged. ``manifest`` is the store's with some of its cells, by default with all.
    """
    frame, manifest = store.summary(), manifest or store.manifest()
    if frame.empty:
        raise store.nothing_yet()
    sets: dict[Data, list[Cell]] = {}
    for cell in make_cells(Trials(frame, store), manifest, Measure(Metric(""))):
        sets.setdefault(cell.settings.data, []).append(cell)
    titles = _titles_of(sets)
    machines: list[BestMachine] = []
    for data, cells in sets.items():
        rows = np.concatenate([cell.rows for cell in cells])
        if not rows.size:
            continue
        for measure in _measures_of_best(frame.iloc[rows], manifest, metric):
            shown = [cell.measured(measure) for cell in cells]
            machines.append(_best_of(store, shown, titles[data], manifest.axes))
    if not any(machine.machine for machine in machines):
        raise IncompleteError(
            f"{store.folder}: every trial has diverged; no machine is the best"
        )
    return machines


def _titles_of(sets: Iterable[Data]) -> dict[Data, str]:
    """Return the title of each data set, with its fields where several share one:
    ``rows (hold_out 0.2)``.
    """
    titles: dict[Data, str] = {}
    for data in sets:
        alike = [other for other in sets if other.title == data.title]
        fields = [other.model_dump() for other in alike]
        names = dict.fromkeys(name for of_data in fields for name in of_data)
        rows = [{name: of_data.get(name) for name in names} for of_data in fields]
        apart = Columns(rows).apart()
        own = data.model_dump()
        words = [f"{name} {text_of(own.get(name)) or 'none'}" for name in apart]
        titles[data] = f"{data.title} ({', '.join(words)})" if words else data.title
    return titles


def _best_of(
    store: Store, cells: Sequence[Cell], data: str, axes: Sequence[str]
) -> BestMachine:
    """Return the machine of the trial with the best value in cells of one data set."""
    measure = cells[0].measure
    metric = measure.metric
    candidates = [
        (value, cell, trial)
        for cell in cells
        for trial, value in cell.values.items()
        if np.isfinite(value)
    ]
    if not candidates:
        return BestMachine(data, metric.part, machine=None, metric=metric.column)
    best_of = max if metric.better > 0 else min
    value, cell, trial = best_of(candidates, key=itemgetter(0))
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
        value=value,
        when="best validation" if at_best else "end of training",
        settings={axis: text_of(cell.row[axis]) for axis in axes},
    )


def _measures_of_best(
    frame: "pd.DataFrame", manifest: Manifest, asked: str | None
) -> list[Measure]:
    """The measures that decide which machine is the best, one for each part that was
    evaluated.
    """
    known = measured(frame)
    ranked = [name for name in known if Metric(name).better]
    if asked and asked not in known:
        raise CbmError(
            f"--metric: the results have no {asked}{did_you_mean(asked, known)}"
        )
    if asked and asked not in ranked:
        told = f"neither more nor less of it is better; there are {', '.join(ranked)}"
        raise CbmError(f"--metric {asked}: {told}")
    valued = [
        name for name in measured(frame.dropna(axis=1, how="all")) if name in ranked
    ]
    curves = [name for name in valued if f"{name}_final" in frame]
    watched = next((name for name in curves if Metric(name).part == "valid"), None)
    usual = [
        name
        for name in (asked, watched, manifest.table.metric, default_metric(frame))
        if name
    ]
    first = next((name for name in usual if name in valued), next(iter(usual), None))
    if first not in ranked:
        raise IncompleteError("nothing was evaluated that has a best value")
    base = first.removeprefix(Metric(first).part)
    others = (
        []
        if asked
        else [
            name
            for part in ("test", "train", "valid")
            if (name := part + base) in curves
        ]
    )
    names = dict.fromkeys([first, *others])
    return [
        Measure(Metric(name), statistic="max" if name == watched else "final")
        for name in names
    ]
