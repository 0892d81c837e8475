"""The value of a trial that the table shows, against a numeric setting."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from cbm_cli.errors import CbmError
from cbm_cli.grid.words import name_of
from cbm_cli.report.chosen import Chosen, choose, notes_of, shown_cells
from cbm_cli.report.ends import refuse_outside
from cbm_cli.report.finals import statistic_in_words
from cbm_cli.report.lines import Curve, Curves, line_panels
from cbm_cli.report.options import Options
from cbm_cli.report.panels import Panel
from cbm_cli.report.style import LARGEST, plain
from cbm_cli.results import Results
from cbm_cli.results.cells import Cell
from cbm_cli.results.columns import Key, key_of


def settings_panels(
    results: Results | None, experiments: Sequence[str], options: Options
) -> list[Panel]:
    """Draw what the table shows against a numeric setting: its mean and deviation for
    each value.
    """
    chosen = choose(results, experiments, replace(options, x=None))
    column = _numeric_setting(chosen, options.x)
    lines = [name for name in chosen.lines if name != column]
    panels = [name for name in chosen.panels if name != column]
    chosen.refuse_too_many(lines, "lines")
    chosen.refuse_too_many(panels, "panels")
    cells = shown_cells(chosen, options)
    groups: dict[tuple[Key, Key, str], dict[float, Cell]] = {}
    for cell in cells:
        key, panel = key_of(cell.row, lines), key_of(cell.row, panels)
        points = groups.setdefault((key, panel, cell.settings.data.title), {})
        points[float(cell.row[column])] = cell
    curves = [_curve(group, points) for group, points in groups.items()]
    curves = [curve for curve in curves if len(curve.trials)]
    measure = cells[0].measure
    indices = [curve.trials.index for curve in curves]
    place = f"{chosen.names}: {measure.metric.column}"
    refuse_outside("x", indices, options.xlim, place)
    name = plain(name_of(column))
    note = f"The {statistic_in_words(measure)} of each trial"
    log = list(options.log)
    values = np.concatenate(indices)
    positive = values[values > 0]
    spans_powers = len(positive) > 0 and positive.max() >= 10 * positive.min()
    if spans_powers and values.min() >= 0 and "x" not in log:
        log.append("x")
    if "x" in log:
        note += f", the {name} on a logarithmic axis"
    drawn = Curves(
        curves=curves,
        lines=lines,
        panels=panels,
        scale=measure.scale,
        xlabel=name,
        notes=chosen.notes,
        points=True,
    )
    notes = [note, *notes_of(cells)]
    shown = line_panels(drawn, replace(options, statistic="mean", log=log))
    return [replace(panel, notes=[*notes, *panel.notes]) for panel in shown]


def _curve(group: tuple[Key, Key, str], points: dict[float, Cell]) -> Curve:
    """Return the values of trials at each value of the setting, in its order."""
    key, panel, data = group
    metric = next(iter(points.values())).measure.metric
    columns = {x: pd.Series(cell.values) for x, cell in points.items()}
    trials = pd.DataFrame(columns).T.sort_index()
    trials = trials.where(trials.abs() < LARGEST).dropna(how="all")
    doubt = pd.Series(0.0, trials.index)
    if metric.better > 0:
        for x in trials.index:
            doubt[x] = np.mean(points[x].doubts | points[x].bounded)
    return Curve(
        key=key, panel=panel, data=data, metric=metric, trials=trials, doubt=doubt
    )


def _numeric_setting(chosen: Chosen, name: str | None) -> str:
    """Return the column of the setting that is asked for, else the only numeric one
    that varies.
    """
    columns = [*chosen.lines, *chosen.panels]
    if name:
        columns = chosen.columns.named(name, "--x")
    numeric = []
    for column in chosen.columns.varying(columns):
        texts = pd.Series(chosen.columns.texts(column))
        numbers = pd.to_numeric(texts, errors="coerce")
        if np.isfinite(numbers).all():
            numeric.append(column)
    if len(numeric) == 1:
        return numeric[0]
    place = f"--x {name}" if name else "settings"
    there = "no numeric setting varies"
    if numeric:
        there = f"there are {', '.join(numeric)}"
    if chosen.notes:
        there += "; --choose none draws all values of one that is chosen"
    raise CbmError(f"{place}: name one numeric setting that varies; {there}")
