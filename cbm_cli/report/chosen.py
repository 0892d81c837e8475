"""Which results a picture shows, and which settings tell its lines and its panels
apart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import msgspec
import pandas as pd

from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.grid.settings import TableSpec
from cbm_cli.report.options import Options, refuse_too_many
from cbm_cli.report.style import names_of
from cbm_cli.results import Results, Store
from cbm_cli.results.cells import (
    Cell,
    Cells,
    Trials,
    columns_of_cells,
    make_cells,
    measure_asked,
)
from cbm_cli.results.columns import Columns, key_of
from cbm_cli.results.folder import find_trial
from cbm_cli.results.journal import Manifest
from cbm_cli.results.metrics import measured
from cbm_cli.results.selection import (
    choosing_of,
    select_cells,
    with_measure,
)
from cbm_cli.statistics.caption import chosen_note, made_note
from cbm_cli.text import count


@dataclass(frozen=True)
class Chosen:
    """The cells of one or several experiments that have finished trials."""

    cells: Sequence[Cell]  # each with its experiment, without a metric
    table: TableSpec  # of the first experiment
    names: str  # of the experiments, as messages begin with them
    bounds: Mapping[str, Mapping[str, float]]  # by experiment and title of the data
    lines: Sequence[str]
    panels: Sequence[str]
    notes: Sequence[str]  # on values that were chosen

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
        words = {_choice_of(other) for other in self.cells} - {""}
        return _choice_of(cell) if len(words) > 1 else ""

    def refuse_too_many(
        self, columns: Sequence[str], noun: str, metrics: Sequence[str] = ()
    ) -> None:
        """Raise CbmError if these settings, and metrics, make too many lines or
        panels.
        """
        number = len({key_of(cell.row, columns) for cell in self.cells})
        if "metric" in columns:
            number *= len(metrics)
        remedy = "name fewer by --metric"
        varying = self.columns.varying(columns)
        if varying:
            example = f"--select {varying[0]}={self.columns.texts(varying[0])[0]}"
            remedy = f"select values of {', '.join(varying)}, as in {example}"
        refuse_too_many(number, noun, remedy)


def choose(results: Results | None, names: Sequence[str], options: Options) -> Chosen:
    """Return the selected cells of experiments that have finished trials, or single
    trials by RUN:TRIAL.

    Raises
    ------
    CbmError
        Unknown column or value.
    IncompleteError
        No finished trial of what is selected.
    """
    stores, numbers = _named(results, names)
    manifests, bounds = [], {}
    for name, store in stores.items():
        manifest = store.manifest()
        bounds[name] = manifest.upper_bounds
        runs = []
        for run in manifest.cells:
            if not numbers or run.run_id in numbers:
                runs.append(msgspec.structs.replace(run, experiment=name))
        manifests.append(manifest.with_cells(runs))
    if sum(len(manifest.cells) for manifest in manifests) < len(numbers):
        raise CbmError(
            f"{' '.join(names)}: the grid that was last run does not have all of these "
            "runs; run their grid again"
        )
    selected = select_cells(manifests, options.select)
    shown = []
    for store, manifest in zip(stores.values(), selected, strict=True):
        if manifest.cells:
            shown.append(_shown(store, manifest, options, numbers))
    cells = list(chain.from_iterable(shown))
    finished = [cell for cell in cells if len(cell.rows)]
    if not finished:
        if all(store.summary().empty for store in stores.values()):
            raise next(iter(stores.values())).nothing_yet()
        raise IncompleteError(
            f"{', '.join(stores)}: no finished trial of what is selected; run more "
            "with `cbm run`"
        )
    table = shown[0].manifest.table
    lines, panels = _axes(columns_of_cells(cells), table, options)
    notes: dict[str, None] = {}
    for group in shown:
        notes |= dict.fromkeys(chosen_note(group, letters=False))
    return Chosen(
        cells=finished,
        table=table,
        names=", ".join(stores),
        bounds=bounds,
        lines=lines,
        panels=panels,
        notes=[note.rstrip(".") for note in notes],
    )


def shown_cells(chosen: Chosen, options: Options) -> list[Cell]:
    """Return the cells in a metric and statistic, by default the table's; errors as of
    `measure_asked`.
    """
    if len(options.metric) > 1:
        raise CbmError(
            f"--metric: given {len(options.metric)} times; this picture shows one"
        )
    trials = Trials(chosen.rows(), chosen.cells[0].trials.store)
    metric = options.metric[0] if options.metric else None
    measure = measure_asked(trials, chosen.table, metric, options.statistic)
    return [cell.by(measure) for cell in chosen.cells]


def notes_of(cells: Sequence[Cell]) -> list[str]:
    """Say how `cbm evaluate` made the values of cells, and of how many trials they are
    doubtful.
    """
    notes = [note.removesuffix(".") for note in made_note(cells)]
    doubtful = sum(int((cell.doubts | cell.bounded).sum()) for cell in cells)
    if cells[0].measure.metric.better > 0 and doubtful:
        trials = count(sum(cell.n for cell in cells), "trial")
        notes.append(
            f"Open markers: estimates of {doubtful:,} of {trials} are doubtful or "
            "disproved"
        )
    return notes


def _choice_of(cell: Cell) -> str:
    """Return the values that were chosen in a cell, in words."""
    if not cell.choice:
        return ""
    return names_of([*cell.choice.values], cell.chosen)


def _named(
    results: Results | None, names: Sequence[str]
) -> tuple[dict[str, Store], dict[str, int]]:
    """Return the experiments that are named, and of single trials the number by
    run-id.
    """
    stores: dict[str, Store] = {}
    numbers: dict[str, int] = {}
    for name in names:
        trial = find_trial(name, results)
        if trial is None:
            folder = results or Results(Path("results"))
            stores[name] = folder.store(name)
        else:
            store, run_id, number = trial
            stores[store.experiment] = store
            numbers[run_id] = number
    return stores, numbers


def _shown(
    store: Store, manifest: Manifest, options: Options, numbers: Mapping[str, int]
) -> Cells:
    """Return the cells of an experiment, with the best values of settings if any are to
    be chosen.

    ``numbers`` has the one trial of each run that is drawn; without any, all trials
    are.
    """
    summary = store.summary()
    cells = make_cells(Trials(summary, store), manifest)
    choosing = choosing_of(manifest.table, options.choose, options.by)
    if choosing and not summary.empty:
        # Other metrics are of curves alone.
        metrics = [name for name in options.metric if name in measured(summary)]
        metric = metrics[0] if metrics else None
        cells = with_measure(cells, choosing, metric, options.statistic)
    if not numbers:
        return cells
    trials = summary["trial"].to_numpy()
    single = []
    for cell in cells:
        is_drawn = trials[cell.rows] == numbers[cell.run_id]
        single.append(replace(cell, rows=cell.rows[is_drawn]))
    return replace(cells, cells=single)


def _axes(
    columns: Columns, table: TableSpec, options: Options
) -> tuple[list[str], list[str]]:
    """Return columns that tell lines apart, and as few others as tell panels apart.

    Lines are the table's columns; its rows where only those vary, or where they are the
    schemes. Data sets do not share a panel. If panels are named, lines also show
    whatever else varies.
    """
    varying = columns.varying()
    rows = columns.of_settings(table.rows)
    rows = [column for column in rows if column in varying and column != "data"]
    lines = columns.of_settings(table.columns)
    if rows == ["offsets"] or (rows and not set(varying) & set(lines)):
        lines = rows
    panels = ["data"] if "data" in varying else []
    if options.panels is not None:
        panels = []
        for name in options.panels:
            if name != "metric":
                panels += columns.named(name, "--panels")
        lines = [column for column in lines if column not in panels]
    panels = [column for column in panels if column not in lines]
    settings = columns.of_settings((*table.groups, *table.rows, *table.columns))
    remaining = columns.apart([*lines, *panels], [*settings, *columns.names])
    if options.panels is None:
        return lines, [*panels, *remaining]
    return [*lines, *remaining], panels
