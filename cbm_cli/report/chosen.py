"""Which results a picture shows, and which settings tell its lines and its panels
apart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import pandas as pd

from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.grid.settings import TableSpec
from cbm_cli.report.style import names_of
from cbm_cli.results import Metric, Results, Store
from cbm_cli.results.cells import (
    Cell,
    Cells,
    Measure,
    Trials,
    columns_of_cells,
    make_cells,
    measure_asked,
)
from cbm_cli.results.columns import Columns, key_of
from cbm_cli.results.folder import MACHINE_NAME, find_trial
from cbm_cli.results.journal import Manifest
from cbm_cli.results.outcome import measured
from cbm_cli.results.selection import (
    choosing_of,
    select_cells,
    with_measure,
)
from cbm_cli.statistics.caption import chosen_note, made_note
from cbm_cli.text import count

MOST_PANELS = 24

Limits = tuple[float | None, float | None]


@dataclass(frozen=True)
class Options:
    """Options of `cbm plot`, the same for every kind of picture that can use them."""

    select: Sequence[
        tuple[str, str]
    ] = ()  # keep cells with these values; of one setting, alternatives
    choose: Sequence[str] | None = (
        None  # settings of whose values each cell has the best; default: table's
    )
    by: str | None = None  # part of the data that decides
    metric: Sequence[str] = ()  # columns of curves or records
    panels: Sequence[str] | None = (
        None  # settings that make the panels, and metric; the rest make lines
    )
    x: str | None = None  # updates, epochs, seconds, gradient-steps; of settings: one
    xlim: Limits = (None, None)
    ylim: Limits = (None, None)
    log: Sequence[str] = ()  # axes, x and y
    smooth: int = 1  # updates in a running mean
    statistic: str | None = (
        None  # of curves, median or mean; else of a trial, by default the table's
    )
    layer: int | None = None  # hidden layer, from 1; default: the last
    data: str | None = None  # of a machine file: the rows that it is shown

    @property
    def average(self) -> str:
        """What lines show of the trials: their median, between quartiles, or their mean
        ± a deviation.
        """
        return "mean" if self.statistic == "mean" else "median"


def refuse_without_effect(options: Options, names: Sequence[str], what: str) -> None:
    """Raise CbmError for an option that is given, and that has no effect on what is
    drawn.
    """
    for name in names:
        if getattr(options, name) not in (getattr(Options(), name), [], {}):
            raise CbmError(f"--{name}: has no effect on {what}; remove it")


@dataclass(frozen=True)
class Chosen:
    """The cells of one or several experiments that have finished trials."""

    cells: Sequence[Cell]  # each with its experiment, without a metric
    table: TableSpec  # of the first experiment
    stores: Mapping[str, Store]
    lines: Sequence[str] = ()
    panels: Sequence[str] = ()
    notes: Sequence[str] = ()  # on values that were chosen

    @property
    def columns(self) -> Columns:
        """The columns of the cells, but for those that are chosen in each."""
        return columns_of_cells(self.cells)

    def rows(self) -> pd.DataFrame:
        """Return the summaries of the finished trials of all cells."""
        return pd.concat([cell.trials.frame.iloc[cell.rows] for cell in self.cells])

    def choice(self, cell: Cell) -> str:
        """Return the values that were chosen in a cell, in words, where not all cells
        have the same.
        """
        keys = {
            key_of(one.choice.values, one.choice.values)
            for one in self.cells
            if one.choice
        }
        if not cell.choice or len(keys) < 2:
            return ""
        return names_of(
            [*cell.choice.values], key_of(cell.choice.values, cell.choice.values)
        )


def choose(results: Results | None, names: Sequence[str], options: Options) -> Chosen:
    """Return the selected cells of experiments that have finished trials, or single
    trials by RUN:TRIAL.

    Raises
    ------
    CbmError
        Unknown column or value; more than 24 panels.
    IncompleteError
        No finished trial of what is selected.
    """
    runs = [run for name in names if (run := find_trial(name, results))]
    only = {run_id: number for _, run_id, number in runs}
    stores = {store.experiment: store for store, *_ in runs}
    experiments = [name for name in names if not MACHINE_NAME.fullmatch(name)]
    stores |= {
        name: (results or Results(Path("results"))).store(name) for name in experiments
    }
    manifests = [
        manifest.with_cells(
            msgspec.structs.replace(run, experiment=name) for run in manifest.cells
        )
        for name, manifest in (
            (name, store.manifest()) for name, store in stores.items()
        )
    ]
    if only:
        manifests = [
            it.with_cells(run for run in it.cells if run.run_id in only)
            for it in manifests
        ]
        if sum(len(it.cells) for it in manifests) < len(only):
            told = (
                "the grid that was last run does not have all of these runs; run "
                "their grid again"
            )
            raise CbmError(f"{' '.join(names)}: {told}")
    selected = select_cells(manifests, options.select)
    pairs = zip(stores.values(), selected, strict=True)
    shown = [
        _shown(store, manifest, options, only)
        for store, manifest in pairs
        if manifest.cells
    ]
    every = [cell for cells in shown for cell in cells]
    done = [cell for cell in every if len(cell.rows)]
    if not done:
        if all(store.summary().empty for store in stores.values()):
            raise next(iter(stores.values())).nothing_yet()
        told = "no finished trial of what is selected; run more with `cbm run`"
        raise IncompleteError(f"{', '.join(stores)}: {told}")
    table = shown[0].manifest.table
    lines, panels = _axes(columns_of_cells(every), table, options)
    notes = [
        note.rstrip(".")
        for cells in shown
        for note in chosen_note(cells, letters=False)
    ]
    return Chosen(done, table, stores, lines, panels, list(dict.fromkeys(notes)))


def shown_cells(chosen: Chosen, options: Options) -> list[Cell]:
    """Return the cells in a metric and statistic, by default the table's; errors as of
    `measure_asked`.
    """
    if len(options.metric) > 1:
        raise CbmError(
            f"--metric: given {len(options.metric)} times; this picture shows one"
        )
    trials = Trials(chosen.rows(), chosen.cells[0].trials.store)
    measure = measure_asked(
        trials, chosen.table, next(iter(options.metric), None), options.statistic
    )
    return [cell.measured(measure) for cell in chosen.cells]


def notes_of(cells: Sequence[Cell]) -> list[str]:
    """Say how `cbm evaluate` made the values of cells, and of how many trials they are
    doubtful.
    """
    notes = [note.removesuffix(".") for note in made_note(cells)]
    doubted = sum(int((cell.doubts | cell.bounded).sum()) for cell in cells)
    if cells[0].measure.metric.better > 0 and doubted:
        trials = count(sum(cell.n for cell in cells), "trial")
        notes.append(
            f"Open markers: estimates of {doubted:,} of {trials} are doubtful or "
            "disproved"
        )
    return notes


def _shown(
    store: Store, manifest: Manifest, options: Options, only: Mapping[str, int]
) -> Cells:
    """Return the cells of an experiment, with the best values of settings if any are to
    be chosen.

    ``only`` has the one trial of each run that is drawn; without any, all trials are.
    """
    summary = store.summary()
    cells = make_cells(Trials(summary, store), manifest, Measure(Metric("")))
    choosing = choosing_of(manifest.table, options.choose, options.by)
    if choosing and not summary.empty:
        known = [
            name for name in options.metric if name in measured(summary)
        ]  # others are of curves alone
        cells = with_measure(
            cells, choosing, next(iter(known), None), options.statistic
        )
    if not only:
        return cells
    numbers = summary["trial"].to_numpy()
    kept = (cell.rows[numbers[cell.rows] == only[cell.run_id]] for cell in cells)
    return replace(
        cells,
        cells=[
            replace(cell, rows=rows) for cell, rows in zip(cells, kept, strict=True)
        ],
    )


def _axes(
    columns: Columns, table: TableSpec, options: Options
) -> tuple[list[str], list[str]]:
    """Return columns that tell lines apart, and as few others as tell panels apart.

    Lines are the table's columns; its rows where only those vary, or where they are the
    schemes. Data sets do not share a panel. If panels are named, lines also show
    whatever else varies.
    """
    varied = {*columns.varying()}
    table_rows = columns.of_settings(table.rows)
    rows = [column for column in table_rows if column in varied - {"data"}]
    lines = columns.of_settings(table.columns)
    if rows == ["offsets"] or (rows and not varied & set(lines)):
        lines = rows
    panels = ["data"] if "data" in varied else []
    if options.panels is not None:
        named = [name for name in options.panels if name != "metric"]
        panels = [c for name in named for c in columns.named(name, "--panels")]
        lines = [column for column in lines if column not in panels]
    panels = [column for column in panels if column not in lines]
    settings = columns.of_settings((*table.groups, *table.rows, *table.columns))
    rest = columns.apart([*lines, *panels], [*settings, *columns.names])
    lines, panels = (
        (lines, [*panels, *rest])
        if options.panels is None
        else ([*lines, *rest], panels)
    )
    if (number := len({key_of(row, panels) for row in columns.rows})) > MOST_PANELS:
        some = f"--select {panels[0]}={columns.texts(panels[0])[0]}"
        told = f"{number} panels are too many to read (at most {MOST_PANELS})"
        raise CbmError(f"{told}; select values of {', '.join(panels)}, as in {some}")
    return lines, panels
