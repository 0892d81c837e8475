"""The pictures of a page: panels of curves and final values as SVG paths, filters as PNG in data URIs."""

import base64
import io
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.image import imsave
from matplotlib.markers import MarkerStyle
from matplotlib.ticker import EngFormatter, MaxNLocator
from numpy.typing import NDArray

from cbm_cli.arrays import read_npz
from cbm_cli.errors import CbmError
from cbm_cli.report.chosen import Chosen, Options
from cbm_cli.report.curves import line_panels, places_of_marks
from cbm_cli.report.learned import data_of, if_here, normalised, shape_of, tiled
from cbm_cli.report.limits import Ends
from cbm_cli.report.panels import METADATA, caption_of
from cbm_cli.report.series import read_curves, summarised
from cbm_cli.report.style import Look, looks_of, spelled
from cbm_cli.results.cells import Cell, finite
from cbm_cli.results.inventory import CellSettings
from cbm_cli.results.selection import Key, key_of
from cbm_cli.text import text_of

FILTERED = ("offsets", "sampler", "data", "learning_rate")  # settings that the page is filtered by
WIDTH, HEIGHT = 2200, 1500  # of the curves, in units of the drawing
SLOT = 110  # width of a method's final values, beside the curves
_LETTER = 60  # width of a letter
_MARK = 64  # width of a marker
_UNITS = 36  # whose filters are shown, of a machine
_MACHINES = 8


def tags(cell: CellSettings) -> dict[str, str]:
    """Return the settings of a cell that the page is filtered by."""
    return {name: text_of(cell.get(name)) for name in FILTERED}


class Stroke(NamedTuple):
    """The look of a line, as SVG names it."""

    colour: str
    dashes: str
    marker: str  # path of a marker


class Line(NamedTuple):
    """One method in one panel, as paths of the drawing."""

    name: str
    tags: Mapping[str, str]
    look: Stroke
    marks: str
    band: str
    line: str
    finals: str  # dots
    beyond: str  # marks at the edge, for values beyond it
    title: str


def picture(chosen: Chosen, cells: Sequence[Cell], points: int) -> dict[str, Any]:
    """Return the panels of a data set: curves of at most so many points, and beside them the final values."""
    drawn = read_curves(chosen, Options())
    shown = line_panels(drawn, Options())
    ends, last = shown[0].ends, max(curve.trials.index[-1] for curve in drawn.curves)
    assert ends is not None
    keys = list(dict.fromkeys(curve.key for curve in drawn.curves))
    looks = {key: _strokes(look) for key, look in looks_of(keys, drawn.lines).items()}
    places = {
        tuple(key_of(cell.settings, axes) for axes in (drawn.lines, drawn.panels)): cell for cell in cells
    }
    panels: dict[str, list[Line]] = {}
    for curve in drawn.curves:
        cell, slot, look = places[curve.key, curve.panel], keys.index(curve.key), looks[curve.key]
        found = _thinned(summarised(curve.trials, "median"), points)
        marks = _marks(found["line"], look.marker, (slot + 0.5) / len(keys), ends, last)
        paths = _paths(found, finite(cell.final), slot, ends, last)
        line = Line(spelled(drawn.lines, curve.key), tags(cell.every_setting), look, marks, *paths)
        panels.setdefault(spelled(drawn.panels, curve.panel), []).append(line)
    return _axes(ends, last) | {
        "panels": panels,
        "legend": {spelled(drawn.lines, key): looks[key] for key in keys},
        "measure": shown[0].ylabel,
        "beyond": any(line.beyond for lines in panels.values() for line in lines),
        "slots": len(keys),
        "caption": caption_of(shown),
        "x": drawn.xlabel,
    }


def _axes(ends: Ends, last: float) -> dict[str, Any]:
    """Return the numbers along the axes, and what lies at their ends."""
    ticks = MaxNLocator(4, steps=[1, 2, 5, 10]).tick_values
    y_ticks = [(_down(y, ends), f"{y:.6g}") for y in ticks(ends.low, ends.high) if ends.low <= y <= ends.high]
    return {
        "x_ticks": [(_across(x, last), EngFormatter(sep="")(x)) for x in ticks(0, last) if 0 <= x <= last],
        "y_ticks": y_ticks,
        "margin": _LETTER * max(len(text) + 1 for _, text in y_ticks),
        "bound": _down(ends.bound, ends) if ends.bounded else None,
    }


def _thinned(table: pd.DataFrame, points: int) -> pd.DataFrame:
    """Return at most so many evaluations, the first and the last among them."""
    return table.iloc[np.unique(np.linspace(0, len(table) - 1, points).round().astype(int))]


def _strokes(look: Look) -> Stroke:
    """Return a look as SVG names it; black becomes the colour of the text."""
    colour, style = look["color"], look["linestyle"]
    dashes = " ".join(f"{1.6 * it:.3g}" for it in (() if style == "-" else style[1]))
    return Stroke("currentColor" if colour == "#000000" else colour, dashes, _marker(look["marker"]))


@cache
def _marker(name: str) -> str:
    """Return the path of a marker of Matplotlib's, from its centre."""
    if name == "o":
        half = _MARK // 2
        return f"m{-half} 0a{half} {half} 0 1 0 {_MARK} 0a{half} {half} 0 1 0 {-_MARK} 0z"
    style = MarkerStyle(name)
    (corners,) = style.get_path().transformed(style.get_transform()).to_polygons()
    points = np.rint(np.asarray(corners) * (_MARK, -_MARK)).astype(int)
    return "m{} {}l".format(*points[0]) + " ".join(f"{x} {y}" for x, y in np.diff(points[:-1], axis=0)) + "z"


def _marks(line: pd.Series, marker: str, shift: float, ends: Ends, last: float) -> str:
    """Return markers along a line; lines with another shift have theirs elsewhere."""
    marked = line.iloc[places_of_marks(line.index.to_numpy(float), shift)]
    places = zip(_across(marked.index, last), _down(marked, ends), strict=True)
    return "".join(f"M{x} {y}{marker}" for x, y in places)


def _across(x: Any, last: float) -> Any:
    return np.rint(np.asarray(x, dtype=float) / (last or 1) * WIDTH).astype(int)


def _down(y: Any, ends: Ends) -> Any:
    """Return where values stand, from the top; those far beyond the ends stand not so far."""
    share = (ends.high - np.asarray(y, dtype=float)) / (ends.high - ends.low)
    return np.rint(share.clip(-4, 4) * HEIGHT).astype(int)


def _paths(
    found: pd.DataFrame, known: NDArray, slot: int, ends: Ends, last: float
) -> tuple[str, str, str, str, str]:
    """Return band, line, dots, marks beyond the ends, and a title."""
    x = _across(found.index, last)
    low, middle, high = (_down(found[name], ends) for name in ("low", "line", "high"))
    band = _path(np.concatenate([x, x[::-1]]), np.concatenate([high, low[::-1]])) + "z"
    dots, beyond = "", ""
    spread = np.linspace(-1, 1, len(known)) if len(known) > 1 else np.zeros(1)
    places = np.rint(WIDTH + SLOT * (slot + 0.5 + 0.28 * spread)).astype(int)
    for place, value in zip(places.tolist(), known, strict=False):
        if ends.low <= value <= ends.high:
            dots += f"M{place} {_down(value, ends)}h0"
        else:
            y, tip = (HEIGHT - 45, 40) if value < ends.low else (45, -40)
            beyond += f"M{place - 22} {y}l22 {tip} 22 {-tip}z"
    title = "no final value"
    if known.size:
        quartiles = np.quantile(known, [0.25, 0.5, 0.75])
        title = f"quartiles of the final values: {', '.join(f'{value:.5g}' for value in quartiles)}"
    return band, _path(x, middle), dots, beyond, title


def _path(x: NDArray, y: NDArray) -> str:
    steps = " ".join(f"{a} {b}" for a, b in zip(np.diff(x).tolist(), np.diff(y).tolist(), strict=True))
    return f"M{x[0]} {y[0]}" + f"l{steps}" * bool(steps)


def machines(chosen: Chosen, cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Return filters of the first layer of each method's machine with the best final value, as pictures."""
    best: dict[Key, tuple[float, Cell, int]] = {}
    for cell in cells:
        scores = np.where(np.isfinite(cell.final), cell.final * (cell.measure.metric.better or 1), -np.inf)
        line = key_of(cell.settings, chosen.lines)
        if scores.max(initial=-np.inf) > best.get(line, (-np.inf,))[0]:
            best[line] = float(scores.max()), cell, int(cell.numbers[scores.argmax()])
    return [
        found
        for _, cell, trial in [*best.values()][:_MACHINES]
        if (found := _machine(chosen, cell, trial)) is not None
    ]


def _machine(chosen: Chosen, cell: Cell, trial: int) -> dict[str, Any] | None:
    """Return the filters of a machine; None where it cannot be read."""
    try:
        _, content = chosen.store(cell).machine(cell.settings["run_id"], trial)
        weights = read_npz(io.BytesIO(content))["weights_0"]
    except (CbmError, KeyError):
        return None
    image = shape_of(if_here(partial(data_of, chosen.store(cell), cell.settings)), len(weights))
    rows = normalised(weights.T[:_UNITS])
    filters = tiled(rows, image)
    stream, columns = io.BytesIO(), ["data", *chosen.lines, *chosen.panels]
    imsave(stream, filters, format="png", cmap="gray", vmin=0, vmax=1, metadata=METADATA[".png"])
    return {
        "name": f"{spelled(columns, key_of(cell.settings, columns))}, trial {trial}",
        "tags": tags(cell.every_setting),
        "address": f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode()}",
        "width": filters.shape[1],
        "shown": len(rows),
        "units": weights.shape[1],
    }
