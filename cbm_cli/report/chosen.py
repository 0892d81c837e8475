"""Which results a picture shows, and which settings tell its lines and its panels apart."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.results import Metric, Results, Store, measured
from cbm_cli.results.cells import Cell, Cells, Measure, Trials, make_cells, measure_of
from cbm_cli.results.inventory import MACHINE_NAME, CellSettings, find_trial, telling_apart
from cbm_cli.results.selection import choosing_of, columns_named, key_of, select_cells, with_measure
from cbm_cli.statistics.caption import chosen_note, made_note
from cbm_cli.text import count, text_of

MOST_PANELS = 24
_VERSIONS = ("cbm_version", "kernel_version")

Limits = tuple[float | None, float | None]


@dataclass(frozen=True)
class Options:
    """What `cbm plot` is asked for, the same for every kind of picture that can use it."""

    select: Sequence[tuple[str, str]] = ()  # keep cells with these values; of one setting, alternatives
    choose: Sequence[str] | None = (
        None  # settings, of whose values each cell has the best; default: the table's
    )
    by: str | None = None  # part of the data that decides
    constants: bool = False  # whether settings may be selected that do not vary
    metric: Sequence[str] = ()  # columns of curves or records
    panels: Sequence[str] | None = None  # settings that make the panels, and metric; the rest make lines
    x: str | None = None  # updates, epochs, seconds, gradient-steps; of settings: one
    xlim: Limits = (None, None)
    ylim: Limits | None = (None, None)  # None: never cut
    smooth: int = 1  # updates in a running mean
    statistic: str | None = None  # of curves, median or mean; else of a trial, by default the table's
    layer: int | None = None  # hidden layer, from 1; default: the last
    data: str | None = None  # of a machine file: the rows that it is shown
    title: str = ""  # of the panel of a figure of the paper
    trials: int | Mapping[str, int] | None = None  # only the one of this number, or of each run its own

    @property
    def average(self) -> str:
        """What lines show of the trials: their median, between quartiles, or their mean ± a deviation."""
        return "mean" if self.statistic == "mean" else "median"


def refuse_without_effect(options: Options, names: Sequence[str], what: str) -> None:
    """Raise CbmError for an option that is given, and that has no effect on what is drawn."""
    for name in names:
        if getattr(options, name) not in (getattr(Options(), name), [], {}):
            raise CbmError(f"--{name}: has no effect on {what}; remove it", "unsuited")


@dataclass(frozen=True)
class Chosen:
    """The cells of one or several experiments that have finished trials."""

    cells: Sequence[Cell]  # each with "experiment" among its settings, without a metric
    table: Mapping[str, Any]  # of the first experiment
    stores: Mapping[str, Store]
    bounds: Mapping[tuple[str, str], float]  # upper bounds by experiment and data set, in nats per sample
    lines: Sequence[str] = ()
    panels: Sequence[str] = ()
    notes: Sequence[str] = ()  # on values that were chosen

    @property
    def settings(self) -> list[CellSettings]:
        """The settings of the cells."""
        return [cell.settings for cell in self.cells]

    def rows(self) -> pd.DataFrame:
        """Return the summaries of the finished trials of all cells."""
        return pd.concat([cell.trials.frame.iloc[cell.rows] for cell in self.cells])

    def store(self, cell: Cell) -> Store:
        """Return the store that holds a cell."""
        return self.stores[cell.settings["experiment"]]


def choose(results: Results | None, names: Sequence[str], options: Options) -> Chosen:
    """Return the selected cells of experiments that have finished trials, or single trials by RUN:TRIAL.

    Raises
    ------
    CbmError
        Unknown column or value; more than 24 panels.
    IncompleteError
        No finished trial of what is selected.
    """
    runs = [run for name in names if (run := find_trial(name, results))]
    stores = {store.experiment: store for store, *_ in runs}
    experiments = [name for name in names if not MACHINE_NAME.fullmatch(name)]
    stores |= {name: (results or Results(Path("results"))).store(name) for name in experiments}
    manifests = [_with_names(store.manifest(), name) for name, store in stores.items()]
    if runs:
        options = replace(options, trials=(only := {run_id: number for _, run_id, number in runs}))
        manifests = [it | {"cells": [c for c in it["cells"] if c["run_id"] in only]} for it in manifests]
        if sum(len(it["cells"]) for it in manifests) < len(only):
            told = "the grid last run does not ask for all of these runs; `cbm run` with their grid does"
            raise CbmError(f"{' '.join(names)}: {told}", "missing")
    return arrange(stores, select_cells(manifests, options.select, options.constants), options)


def arrange(stores: Mapping[str, Store], manifests: Sequence[Mapping[str, Any]], options: Options) -> Chosen:
    """Return the cells of manifests that have finished trials, in lines and panels; raises as `choose`."""
    summaries = {name: store.summary() for name, store in stores.items()}
    shown = [
        _shown(store, summaries[name], _with_names(manifest, name), options)
        for (name, store), manifest in zip(stores.items(), manifests, strict=True)
    ]
    every, table = [cell for cells in shown for cell in cells], shown[0].manifest["table"]
    lines, panels = _axes([cell.settings for cell in every], table, options)
    _check_panels([cell.settings for cell in every], panels)
    done = [cell for cell in every if len(cell.rows)]
    if not done:
        raise IncompleteError(_nothing(stores, summaries))
    bounds = {
        (name, data): bound
        for name, manifest in zip(stores, manifests, strict=True)
        for data, bound in (manifest.get("upper_bounds") or {}).items()
    }
    said = [note.rstrip(".") for cells in shown for note in chosen_note(cells, letters=False)]
    notes = list(dict.fromkeys(said))
    chosen = Chosen(done, table, stores, bounds, lines, panels, notes)
    _warn_of_versions(chosen.rows())
    return chosen


def shown_cells(chosen: Chosen, options: Options) -> list[Cell]:
    """Return the cells in a metric and statistic, by default the table's; with the errors of `measure_of`."""
    if len(options.metric) > 1:
        raise CbmError(f"--metric: given {len(options.metric)} times; this picture shows one", "conflict")
    trials = Trials(chosen.rows(), chosen.cells[0].trials.source)
    measure = measure_of(trials, chosen.table, next(iter(options.metric), None), options.statistic)
    return [cell.measured(measure) for cell in chosen.cells]


def notes_of(cells: Sequence[Cell], them: str = "Open markers: doubtful estimates") -> list[str]:
    """Say what makes the values of cells doubtful, and how `cbm evaluate` made them; ``them`` names those."""
    notes = [note.removesuffix(".") for note in made_note(cells)]
    if cells[0].measure.metric.better <= 0:
        return notes
    told = []
    if doubtful := sum(cell.doubtful for cell in cells):
        told.append(f"the last log Z of {doubtful:,} of {count(sum(cell.n for cell in cells), 'trial')}")
    if bounded := sum(int(cell.bounded.sum()) for cell in cells):
        told.append(f"{count(bounded, 'value')} disproved, and taken as the most that known states allow")
    return [*notes, *[f"{them} ({'; '.join(told)})"] * bool(told)]


def _with_names(manifest: Mapping[str, Any], experiment: str) -> dict[str, Any]:
    """Return a manifest whose cells have the experiment among their settings."""
    return {**manifest, "cells": [{**cell, "experiment": experiment} for cell in manifest["cells"]]}


def _shown(store: Store, summary: pd.DataFrame, manifest: Mapping[str, Any], options: Options) -> Cells:
    """Return the cells of an experiment, with the best values of settings if any are to be chosen."""
    trials = Trials(summary, lambda _: store)
    cells = make_cells(trials, manifest, Measure(Metric("")))
    choosing = choosing_of(manifest["table"], options.choose, options.by)
    if choosing and not summary.empty:
        known = [name for name in options.metric if name in measured(summary)]  # others are of curves alone
        cells = with_measure(cells, choosing, next(iter(known), None), options.statistic)
    if options.trials is None:
        return cells
    kept, numbers = options.trials, summary["trial"].to_numpy()

    def only(cell: Cell) -> Cell:
        number = kept if isinstance(kept, int) else kept[cell.settings["run_id"]]
        return replace(cell, rows=cell.rows[numbers[cell.rows] == number])

    return replace(cells, cells=[only(cell) for cell in cells])


def _check_panels(cells: Sequence[CellSettings], panels: Sequence[str]) -> None:
    """Raise CbmError for more panels than can be read."""
    number = len({key_of(cell, panels) for cell in cells})
    if number > MOST_PANELS:
        raise CbmError(
            f"{number} panels are too many to read (at most {MOST_PANELS}); "
            f"select values of {', '.join(panels)}, as in "
            f"--select {panels[0]}={text_of(cells[0][panels[0]])}",
            "limit",
        )


def _axes(
    cells: Sequence[CellSettings], table: Mapping[str, Any], options: Options
) -> tuple[list[str], list[str]]:
    """Return columns that tell lines apart, and as few others as tell panels apart.

    Lines are the table's columns; its rows where only those vary, or where they are the schemes. Data sets do
    not share a panel. Where panels are named, lines are also whatever else varies.
    """
    columns = list(dict.fromkeys(column for cell in cells for column in cell))
    varied = {column for column in columns if len({text_of(cell.get(column)) for cell in cells}) > 1}
    rows = [column for column in table["rows"] if column in varied - {"data"}]
    lines = list(table["columns"])
    if rows == ["offsets"] or (rows and not varied & set(lines)):
        lines = rows
    panels = ["data"] if "data" in varied else []
    if options.panels is not None:
        named = [name for name in options.panels if name != "metric"]
        panels = [c for name in named for c in columns_named(name, cells, "--panels")]
        lines = [column for column in lines if column not in panels]
    panels = [column for column in panels if column not in lines]
    known = [*table["groups"], *table["rows"], *table["columns"]]
    others = sorted(columns, key=lambda c: known.index(c) if c in known else len(known))
    rest = telling_apart(cells, [*lines, *panels], others)
    return (lines, [*panels, *rest]) if options.panels is None else ([*lines, *rest], panels)


def _nothing(stores: Mapping[str, Store], summaries: Mapping[str, pd.DataFrame]) -> str:
    """Say that no trial is finished, and where the trials of the experiments stand."""
    names = ", ".join(stores)
    if not all(summary.empty for summary in summaries.values()):
        return f"{names}: no finished trial of what is selected; run more with `cbm run`"
    states = [store.unfinished(run) for store in stores.values() for run in sorted(store.runs())]
    interrupted, failed = (sum(map(len, those)) for those in zip(*states, strict=True)) if states else (0, 0)
    parts = [f"{count(interrupted, 'trial')} unfinished, running or interrupted"] * bool(interrupted)
    parts += [f"{failed} failed"] * bool(failed)
    where = f" ({', '.join(parts)})" if parts else ""
    return f"{names}: no finished trial yet{where}; start or continue with `cbm run`"


def _warn_of_versions(rows: pd.DataFrame) -> None:
    """Warn of trials that different versions have computed."""
    for column in filter(rows.__contains__, _VERSIONS):
        versions = rows[column].dropna().value_counts()
        if len(versions) > 1:
            shown = ", ".join(f"{version} ({count(n, 'trial')})" for version, n in sorted(versions.items()))
            warnings.warn(f"results of different {column.replace('_', ' ')}s: {shown}", stacklevel=2)
            return
