"""The value of a trial that the table shows: of every trial, and against a setting."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from numpy.typing import NDArray

from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.grid.words import name_of
from cbm_cli.report.chosen import Chosen, Limits, Options, choose, notes_of, shown_cells
from cbm_cli.report.curves import (
    Curve,
    Curves,
    far_end,
    line_panels,
    refuse_outside,
    set_ends,
)
from cbm_cli.report.panels import Panel
from cbm_cli.report.style import LARGEST, Look, in_words, looks_of, names_of, plain
from cbm_cli.results import Results
from cbm_cli.results.cells import Cell, Floats, Measure
from cbm_cli.results.columns import Key, key_of
from cbm_cli.text import count

_PALE = 0.25  # share of a marker's colour in values that are not final


def finals_panels(
    results: Results | None, experiments: Sequence[str], options: Options
) -> list[Panel]:
    """Draw the value that the table shows and the final value of every trial, with
    median and quartiles.
    """
    chosen = choose(results, experiments, options)
    cells = shown_cells(chosen, options)
    measure, both = cells[0].measure, cells[0].measure.statistic != "final"
    unit, within, sets = (
        measure.metric.unit(measure.scale),
        dict[Key, list[Cell]](),
        dict[str, list[Cell]](),
    )
    for cell in cells:
        within.setdefault(key_of(cell.row, chosen.panels), []).append(cell)
        sets.setdefault(cell.settings.data.title, []).append(cell)
    place = f"{', '.join(chosen.stores)}: {measure.metric.column}"
    refuse_outside("y", [_values(cells)], options.ylim, place)
    looks = looks_of(
        list(dict.fromkeys(key_of(cell.row, chosen.lines) for cell in cells)),
        chosen.lines,
    )
    grey: Look = {"color": "#555555", "linestyle": "", "marker": "o"}
    pale = grey | {"markerfacecolor": to_rgba("#555555", _PALE)}
    legend = {_said(measure): pale, "final value": grey} if both else {}
    label, panels = in_words(measure.metric.column) + f" ({unit})" * bool(unit), []
    for key, its in within.items():
        lost, values = (
            sum(int((~(np.abs(cell.final) < LARGEST)).sum()) for cell in its),
            _values(its),
        )
        data = its[0].settings.data.title
        own = replace(options, ylim=_limits(sets[data], options))
        low, high = np.array(own.ylim, float)  # NaN without an end
        beyond = int(((values < low) | (values > high)).sum())
        notes = [
            (
                f"A marker for each trial{', final values on the right' * both}; bars: "
                "median and quartiles"
            )
        ]
        notes += [
            f"{count(lost, 'trial')} left out: diverged, or too large to draw"
        ] * bool(lost)
        notes += [f"{count(beyond, 'value')} beyond the axis"] * bool(beyond)
        notes += [*notes_of(its), *chosen.notes]
        draw = partial(_draw, chosen, its, looks, _values(sets[data]), own)
        words = names_of(chosen.panels, key)
        panels.append(
            Panel(draw, key, words, "", label, (data, "finals"), legend, notes)
        )
    return panels


def _values(cells: Sequence[Cell]) -> Floats:
    """Return the values of cells that are drawn."""
    both = cells[0].measure.statistic != "final"
    values = np.concatenate(
        [of for cell in cells for of in (*[cell.value] * both, cell.final)]
    )
    return values[np.abs(values) < LARGEST]


def _limits(cells: Sequence[Cell], options: Options) -> Limits:
    """Return the ends of the axis that are asked for, else where it is cut as that of
    curves.
    """
    values, better = _values(cells), cells[0].measure.metric.better
    if options.ylim != (None, None) or not (better and values.size):
        return options.ylim
    with suppress(IncompleteError):  # results may be kept without curves
        lines = [one[one.abs() < LARGEST] for cell in cells for one in cell.curves()]
        end = far_end([line for line in lines if len(line)], values, better)
        return (end, None) if better > 0 else (None, end)
    return options.ylim


def _draw(
    chosen: Chosen,
    cells: Sequence[Cell],
    looks: dict[Key, Look],
    shown: Floats,
    options: Options,
    axes: Axes,
) -> None:
    names = []
    for place, cell in enumerate(cells):
        key, is_final = (
            key_of(cell.row, chosen.lines),
            cell.measure.statistic == "final",
        )
        choice = chosen.choice(cell)
        names.append(names_of(chosen.lines, key) + f"\n({choice})" * bool(choice))
        doubts = (cell.doubts | cell.bounded * is_final) & (
            cell.measure.metric.better > 0
        )
        if not is_final:
            _draw_trials(
                axes, cell.value, cell.bounded, place - 0.19, looks[key], _PALE
            )
        _draw_trials(
            axes, cell.final, doubts, place + 0.19 * (not is_final), looks[key], 1.0
        )
    turned: Any = {"rotation": 45, "ha": "right"} if sum(map(len, names)) > 60 else {}
    axes.set_xticks(range(len(names)), names, **turned)
    axes.set_xlim(-0.6, len(names) - 0.4)
    if shown.size:
        set_ends(axes, "y", shown, 0.04, options)


def _draw_trials(
    axes: Axes,
    values: Floats,
    doubtful: NDArray[np.bool_],
    place: float,
    look: Look,
    share: float,
) -> None:
    """Draw the values of trials around a place; the markers of doubtful ones are
    open.
    """
    known = np.abs(values) < LARGEST
    trials = values[known]
    if not trials.size:
        return
    faces = np.where(
        doubtful[known][:, None], to_rgba("white"), to_rgba(look["color"], share)
    )
    spread = place + 0.1 * np.linspace(-1, 1, trials.size) * (trials.size > 1)
    style = {
        "edgecolor": look["color"],
        "linewidths": 0.5,
        "s": 10,
        "marker": look["marker"],
    }
    axes.scatter(spread, trials, facecolor=faces, **style)
    low, middle, high = np.quantile(trials, (0.25, 0.5, 0.75))
    axes.plot([place] * 2, [low, high], color="black", linewidth=0.9, zorder=3)
    axes.plot(
        [place - 0.12, place + 0.12],
        [middle] * 2,
        color="black",
        linewidth=0.9,
        zorder=3,
    )


def settings_panels(
    results: Results | None, experiments: Sequence[str], options: Options
) -> list[Panel]:
    """Draw what the table shows against a numeric setting: its mean and deviation for
    each value.
    """
    chosen = choose(results, experiments, replace(options, x=None))
    column = _numeric(chosen, options.x)
    lines, panels = (
        [c for c in columns if c != column] for columns in (chosen.lines, chosen.panels)
    )
    cells, found = (
        shown_cells(chosen, options),
        dict[tuple[Key, Key, str], dict[float, Cell]](),
    )
    for cell in cells:
        keys = (
            key_of(cell.row, lines),
            key_of(cell.row, panels),
            cell.settings.data.title,
        )
        found.setdefault(keys, {})[float(cell.row[column])] = cell
    (metric, scale, _), said, curves = cells[0].measure, _said(cells[0].measure), []
    for keys, points in found.items():
        trials = pd.DataFrame(
            {x: pd.Series(cell.values) for x, cell in points.items()}
        ).T.sort_index()
        trials = trials.where(trials.abs() < LARGEST).dropna(how="all")
        known = {
            x: metric.better > 0 and points[x].doubts | points[x].bounded
            for x in trials.index
        }
        doubt = pd.Series(
            {x: np.mean(doubts) for x, doubts in known.items()}, dtype=float
        )
        curves.append(Curve(*keys, metric, trials, doubt))
    curves = [curve for curve in curves if len(curve.trials)]
    place, indices = (
        f"{', '.join(chosen.stores)}: {metric.column}",
        [curve.trials.index for curve in curves],
    )
    refuse_outside("x", indices, options.xlim, place)
    values = np.unique(np.concatenate(indices))
    above, name = values[values > 0], plain(name_of(column))
    powers = bool(len(above) > 1 and values[0] >= 0 and values[-1] >= 10 * above[0])
    log = {*options.log, *["x"] * powers}
    drawn = Curves(curves, lines, panels, scale, name, chosen.notes, points=True)
    notes = [
        (
            f"The {said} of each "
            f"trial{f', the {name} on a logarithmic axis' * ('x' in log)}"
        )
    ]
    found_panels = line_panels(drawn, replace(options, statistic="mean", log=[*log]))
    return [
        replace(it, notes=[*notes, *notes_of(cells), *it.notes]) for it in found_panels
    ]


def _numeric(chosen: Chosen, name: str | None) -> str:
    """Return the column of the setting that is asked for, else the only numeric one
    that varies.
    """
    columns = (
        chosen.columns.named(name, "--x") if name else [*chosen.lines, *chosen.panels]
    )
    texts = {
        column: chosen.columns.texts(column)
        for column in chosen.columns.varying(columns)
    }
    numeric = [
        c
        for c, its in texts.items()
        if np.isfinite(pd.to_numeric(its, errors="coerce")).all()
    ]
    if len(numeric) != 1:
        place = f"--x {name}" if name else "settings"
        there = (
            f"there are {', '.join(numeric)}"
            if numeric
            else "no numeric setting varies"
        )
        there += "; --choose none draws all values of one that is chosen" * bool(
            chosen.notes
        )
        raise CbmError(f"{place}: name one numeric setting that varies; {there}")
    return numeric[0]


def _said(measure: Measure) -> str:
    """Return the statistic of a trial in words."""
    best = "minimum" if measure.metric.better < 0 else "maximum"
    at = {
        "best-valid": "value at the best validation value",
        "max-of-mean": "value where the mean is best",
    }
    return {"max": best, "final": "final value", **at}[measure.statistic]
