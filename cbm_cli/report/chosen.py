"""Which results a picture shows, and which settings tell its lines and its panels apart."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.results import Metric, Results, Store, measured
from cbm_cli.results.cells import Cell, Cells, Measure, Trials, make_cells, measure_of
from cbm_cli.results.inventory import CellSettings, telling_apart
from cbm_cli.results.selection import choosing_of, columns_named, key_of, select_cells, with_measure
from cbm_cli.statistics.caption import chosen_note
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
    overlay: bool = False  # several metrics are lines of one panel
    panels: Sequence[str] | None = None  # settings that make the panels
    columns: Sequence[str] | None = None  # settings that make the lines
    x: str | None = None  # updates, epochs, seconds, gradient-steps; of settings: one
    xlog: bool = False
    xlim: Limits = (None, None)
    ylim: Limits | None = (None, None)  # None: never cut
    band: str = "quartiles"  # or std, sem, trials, none
    trial: int | None = None
    smooth: int = 1  # updates in a running mean
    statistic: str | None = None  # of a trial, where a picture shows one value of each; default: the table's
    title: str = ""  # of a single panel
    layer: int | None = None  # hidden layer, from 1; default: the last
    number: int = 100  # rows, samples or filters in a panel
    shape: str | None = None  # of a row, HxW
    data: str | None = None  # of a machine file: the rows that it is shown


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


def choose(results: Results, experiments: Sequence[str], options: Options) -> Chosen:
    """Return the selected cells that have finished trials.

    Raises
    ------
    CbmError
        Unknown column or value; more than 24 panels.
    IncompleteError
        No finished trial of what is selected.
    """
    stores = {name: results.store(name) for name in experiments}
    manifests = [_with_names(store.manifest(), name) for name, store in stores.items()]
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
        raise IncompleteError(_nothing(stores, summaries, options))
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


def _with_names(manifest: Mapping[str, Any], experiment: str) -> dict[str, Any]:
    """Return a manifest whose cells have the experiment among their settings."""
    return {**manifest, "cells": [{**cell, "experiment": experiment} for cell in manifest["cells"]]}


def _shown(store: Store, summary: pd.DataFrame, manifest: Mapping[str, Any], options: Options) -> Cells:
    """Return the cells of an experiment, with the best values of settings if any are to be chosen."""
    trials, numbers = Trials(summary, lambda _: store), summary["trial"].to_numpy()
    cells = make_cells(trials, manifest, Measure(Metric("")))
    choosing = choosing_of(manifest["table"], options.choose, options.by)
    if choosing and not summary.empty:
        known = [name for name in options.metric if name in measured(summary)]  # others are of curves alone
        cells = with_measure(cells, choosing, next(iter(known), None), options.statistic)
    if options.trial is None:
        return cells
    return replace(
        cells, cells=[replace(one, rows=one.rows[numbers[one.rows] == options.trial]) for one in cells]
    )


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

    Unless they are named, lines are the table's columns; its rows where only those vary, or where they are
    the schemes. Data sets never share a panel.
    """
    columns = list(dict.fromkeys(column for cell in cells for column in cell))
    varied = {column for column in columns if len({text_of(cell.get(column)) for cell in cells}) > 1}
    rows = [column for column in table["rows"] if column in varied - {"data"}]
    lines = list(table["columns"])
    if rows == ["offsets"] or (rows and not varied & set(lines)):
        lines = rows
    panels = ["data"] if "data" in varied else []
    if options.panels is not None:
        panels = [c for name in options.panels for c in columns_named(name, cells, "--panels")]
        lines = [column for column in lines if column not in panels]
    if options.columns is not None:
        lines = [c for name in options.columns for c in columns_named(name, cells, "--columns")]
    panels = [column for column in panels if column not in lines]
    known = [*table["groups"], *table["rows"], *table["columns"]]
    others = sorted(columns, key=lambda c: known.index(c) if c in known else len(known))
    rest = telling_apart(cells, [*lines, *panels], others)
    return (lines, [*panels, *rest]) if options.panels is None else ([*lines, *rest], panels)


def _nothing(stores: Mapping[str, Store], summaries: Mapping[str, pd.DataFrame], options: Options) -> str:
    """Say that no trial is finished, and where the trials of the experiments stand."""
    names = ", ".join(stores)
    if not all(summary.empty for summary in summaries.values()):
        what = (
            "what is selected"
            if options.trial is None
            else f"what is selected has the number {options.trial}"
        )
        return f"{names}: no finished trial of {what}; run more with `cbm run`"
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
