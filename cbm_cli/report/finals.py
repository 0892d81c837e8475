"""The value that the table shows and the final value of every trial."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from numpy.typing import NDArray

from cbm_cli.report.chosen import Options, choose, notes_of, shown_cells
from cbm_cli.report.curves import said_of
from cbm_cli.report.limits import y_ends
from cbm_cli.report.panels import Panel, in_order
from cbm_cli.report.series import summarised
from cbm_cli.report.style import Look, in_words, looks_of, names_of, title_of
from cbm_cli.results import Results
from cbm_cli.results.cells import Cell, Floats, finite
from cbm_cli.results.selection import Key, key_of
from cbm_cli.text import count

_PALE = 0.25  # share of a marker's colour in values that are not final


def finals_panels(results: Results | None, experiments: Sequence[str], options: Options) -> list[Panel]:
    """Draw the value that the table shows and the final value of every trial, with median and quartiles."""
    chosen = choose(results, experiments, options)
    cells = shown_cells(chosen, options)
    measure = cells[0].measure
    unit = measure.metric.unit(measure.scale)
    looks = looks_of(list(dict.fromkeys(key_of(cell.settings, chosen.lines) for cell in cells)), chosen.lines)
    both = measure.statistic != "final"
    legend = {said_of(measure): _of_grey(_PALE), "final value": _of_grey(1.0)} if both else {}
    panels = []
    for key in dict.fromkeys(key_of(cell.settings, chosen.panels) for cell in cells):
        its = [cell for cell in cells if key_of(cell.settings, chosen.panels) == key]
        data = its[0].settings["data"]
        compared = [cell for cell in cells if cell.settings["data"] == data]
        values = np.concatenate([finite(it) for cell in compared for it in (cell.value, cell.final)])
        panel = Panel(
            partial(_draw, its, chosen.lines, looks),
            key,
            title_of(options.title, chosen.panels, key),
            "",
            in_words(measure.metric.column) + f" ({unit})" * bool(unit),
            y_ends(values, values[:0], measure.metric.better, options) if values.size else None,
            (data, "finals") if options.ylim in (None, (None, None)) else None,
            legend,
            [*_notes(its, both), *chosen.notes],
        )
        panels.append(panel)
    return in_order(panels)


def _of_grey(share: float) -> Look:
    face = to_rgba("#555555", share)
    return {"color": "#555555", "linestyle": "", "marker": "o", "markerfacecolor": face}


def _notes(cells: Sequence[Cell], both: bool) -> list[str]:
    """Return the sentences of the caption."""
    lost = sum(int((~np.isfinite(cell.final)).sum()) for cell in cells)
    notes = [f"A marker for each trial{', final values on the right' * both}; bars: median and quartiles"]
    return [*notes, *[f"{count(lost, 'diverged trial')} left out"] * bool(lost), *notes_of(cells)]


def _draw(cells: Sequence[Cell], lines: Sequence[str], looks: dict[Key, Look], axes: Axes) -> None:
    names = []
    for place, cell in enumerate(cells):
        key = key_of(cell.settings, lines)
        names.append(names_of(lines, key))
        is_final = cell.measure.statistic == "final"
        doubts = (cell.doubts | cell.bounded * is_final) & (cell.measure.metric.better > 0)
        if not is_final:
            _draw_trials(axes, cell.value, cell.bounded, place - 0.19, looks[key], _PALE)
        _draw_trials(axes, cell.final, doubts, place + 0.19 * (not is_final), looks[key], 1.0)
    turned: Any = {"rotation": 45, "ha": "right"} if sum(map(len, names)) > 60 else {}
    axes.set_xticks(range(len(names)), names, **turned)
    axes.set_xlim(-0.6, len(names) - 0.4)


def _draw_trials(
    axes: Axes, values: Floats, doubtful: NDArray[np.bool_], place: float, look: Look, share: float
) -> None:
    """Draw the finite values of trials around a place, those beyond the axis as triangles at its end.

    The markers of doubtful ones are open.
    """
    trials, (low, high) = finite(values), axes.get_ylim()
    full, known = to_rgba(look["color"], share), doubtful[np.isfinite(values)]
    faces = np.where(known[:, None], to_rgba("white"), full)
    if not trials.size:
        return
    spread = place + 0.1 * np.linspace(-1, 1, trials.size) * (trials.size > 1)
    style = {"edgecolor": look["color"], "linewidths": 0.5, "s": 10}
    edge = 0.015 * (high - low)
    for seen, marker in (
        ((trials >= low) & (trials <= high), look["marker"]),
        (trials < low, "v"),
        (trials > high, "^"),
    ):
        if seen.any():
            heights = trials[seen].clip(low + edge, high - edge)
            axes.scatter(spread[seen], heights, facecolor=faces[seen], marker=marker, **style)
    (found,) = summarised(pd.DataFrame([trials]), "median").itertuples()
    axes.plot([place] * 2, [found.low, found.high], color="black", linewidth=0.9, zorder=3)
    axes.plot([place - 0.12, place + 0.12], [found.line] * 2, color="black", linewidth=0.9, zorder=3)
