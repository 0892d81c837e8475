"""The value of every trial that the table shows, and its final value."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from numpy.typing import NDArray

from cbm_cli.errors import IncompleteError
from cbm_cli.report.chosen import Chosen, choose, notes_of, shown_cells
from cbm_cli.report.ends import far_end, refuse_outside, set_ends
from cbm_cli.report.options import FREE, Limits, Options
from cbm_cli.report.panels import Panel
from cbm_cli.report.style import LARGEST, Look, in_words, looks_of, names_of
from cbm_cli.results import Results
from cbm_cli.results.cells import Cell, Floats, Measure
from cbm_cli.results.columns import Key, key_of
from cbm_cli.text import count

_PALE = 0.25  # share of a marker's colour in values that are not final
_GREY = "#555555"
_ASIDE = 0.19  # of the two values of a method from its place
_SPREAD = 0.1  # of the trials around that
_LONG = 60  # letters of all names below an axis; longer ones are turned


def finals_panels(
    results: Results | None, experiments: Sequence[str], options: Options
) -> list[Panel]:
    """Draw the value that the table shows and the final value of every trial, with
    median and quartiles.
    """
    chosen = choose(results, experiments, options)
    chosen.refuse_too_many(chosen.lines, "lines")
    chosen.refuse_too_many(chosen.panels, "panels")
    cells = shown_cells(chosen, options)
    measure = cells[0].measure
    place = f"{chosen.names}: {measure.metric.column}"
    refuse_outside("y", [_values(cells)], options.ylim, place)
    keys = [key_of(cell.row, chosen.lines) for cell in cells]
    looks = looks_of(keys, chosen.lines)
    groups: dict[Key, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(key_of(cell.row, chosen.panels), []).append(cell)
    panels = []
    for key, group in groups.items():
        data = group[0].settings.data.title
        compared = [cell for cell in cells if cell.settings.data.title == data]
        own = replace(options, ylim=_limits(compared, options))
        panels.append(
            Panel(
                draw=partial(
                    _draw,
                    chosen=chosen,
                    cells=group,
                    looks=looks,
                    shown=_values(compared),
                    options=own,
                ),
                key=key,
                title=names_of(chosen.panels, key),
                ylabel=_ylabel(measure),
                scale=(data,),
                looks=_legend(measure),
                notes=[*_notes(group, own), *notes_of(group), *chosen.notes],
            )
        )
    return panels


def statistic_in_words(measure: Measure) -> str:
    """Return the statistic of a trial in words."""
    if measure.statistic == "max":
        return "minimum" if measure.metric.better < 0 else "maximum"
    return {
        "final": "final value",
        "best-valid": "value at the best validation value",
        "max-of-mean": "value where the mean is best",
    }[measure.statistic]


# What it says


def _ylabel(measure: Measure) -> str:
    words = in_words(measure.metric.column)
    unit = measure.metric.unit(measure.scale)
    return f"{words} ({unit})" if unit else words


def _legend(measure: Measure) -> dict[str, Look]:
    """Return the looks of the two values of a trial, if the table shows another one
    than the final value.
    """
    if measure.statistic == "final":
        return {}
    grey: Look = {"color": _GREY, "linestyle": "", "marker": "o"}
    pale = grey | {"markerfacecolor": to_rgba(_GREY, _PALE)}
    return {statistic_in_words(measure): pale, "final value": grey}


def _notes(cells: Sequence[Cell], options: Options) -> list[str]:
    """Return the words of the caption on markers, and on values that are not shown."""
    sides = ", final values on the right"
    if cells[0].measure.statistic == "final":
        sides = ""
    notes = [f"A marker for each trial{sides}; bars: median and quartiles"]
    lost = sum(int((~(np.abs(cell.final) < LARGEST)).sum()) for cell in cells)
    if lost:
        trials = count(lost, "trial")
        notes.append(f"{trials} left out: diverged, or too large to draw")
    low, high = np.array(options.ylim, float)  # NaN without an end
    values = _values(cells)
    beyond = int(((values < low) | (values > high)).sum())
    if beyond:
        notes.append(f"{count(beyond, 'value')} beyond the axis")
    return notes


# The y axis


def _values(cells: Sequence[Cell]) -> Floats:
    """Return the values of cells that are drawn."""
    arrays = [cell.final for cell in cells]
    if cells[0].measure.statistic != "final":
        arrays += [cell.value for cell in cells]
    values = np.concatenate(arrays)
    return values[np.abs(values) < LARGEST]


def _limits(cells: Sequence[Cell], options: Options) -> Limits:
    """Return the ends of the axis that are asked for, else where it is cut as that of
    curves.
    """
    values = _values(cells)
    better = cells[0].measure.metric.better
    if options.ylim != FREE or not (better and values.size):
        return options.ylim
    with suppress(IncompleteError):  # results may be kept without curves
        lines = []
        for cell in cells:
            for curve in cell.curves():
                line = curve[curve.abs() < LARGEST]
                if len(line):
                    lines.append(line)
        end = far_end(lines, values, better)
        return (end, None) if better > 0 else (None, end)
    return options.ylim


# Drawing


def _draw(
    axes: Axes,
    *,
    chosen: Chosen,
    cells: Sequence[Cell],
    looks: Mapping[Key, Look],
    shown: Floats,
    options: Options,
) -> None:
    """Draw the trials of the cells of a panel; the axis shows also other values."""
    names = []
    for place, cell in enumerate(cells):
        key = key_of(cell.row, chosen.lines)
        look, is_final = looks[key], cell.measure.statistic == "final"
        name, choice = names_of(chosen.lines, key), chosen.choice(cell)
        names.append(f"{name}\n({choice})" if choice else name)
        doubts = cell.doubts
        if is_final:
            doubts = doubts | cell.bounded
        else:
            faces = _faces(cell.bounded, look, share=_PALE)
            _draw_trials(axes, cell.value, place - _ASIDE, look=look, faces=faces)
        if cell.measure.metric.better <= 0:
            doubts = np.zeros_like(doubts)
        faces = _faces(doubts, look, share=1.0)
        shift = 0.0 if is_final else _ASIDE
        _draw_trials(axes, cell.final, place + shift, look=look, faces=faces)
    turned: Any = {}
    if sum(map(len, names)) > _LONG:
        turned = {"rotation": 45, "ha": "right"}
    axes.set_xticks(range(len(names)), names, **turned)
    axes.set_xlim(-0.6, len(names) - 0.4)
    if shown.size:
        set_ends(axes, "y", shown, margin=0.04, options=options)


def _faces(doubtful: NDArray[np.bool_], look: Look, share: float) -> NDArray:
    """Return the colours of markers; those of doubtful values are open."""
    full = to_rgba(look["color"], share)
    return np.where(doubtful[:, None], to_rgba("white"), full)


def _draw_trials(
    axes: Axes, values: Floats, place: float, *, look: Look, faces: NDArray
) -> None:
    """Draw the values of trials around a place, with median and quartiles."""
    is_drawn = np.abs(values) < LARGEST
    trials = values[is_drawn]
    if not trials.size:
        return
    places = np.full(trials.size, place)
    if trials.size > 1:
        places = place + _SPREAD * np.linspace(-1, 1, trials.size)
    axes.scatter(
        places,
        trials,
        facecolor=faces[is_drawn],
        edgecolor=look["color"],
        linewidths=0.5,
        s=10,
        marker=look["marker"],
    )
    low, middle, high = np.quantile(trials, (0.25, 0.5, 0.75))
    bar: Any = {"color": "black", "linewidth": 0.9, "zorder": 3}
    axes.plot([place, place], [low, high], **bar)
    axes.plot([place - 0.12, place + 0.12], [middle, middle], **bar)
