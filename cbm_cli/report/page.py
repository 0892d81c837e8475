"""One self-contained HTML page of results: tables, curves, filters, troubles, versions, and the paper beside them.

The page is made from page.html, page.css and page.js, which lie beside this module.
"""

import base64
import hashlib
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.image import imsave
from matplotlib.ticker import EngFormatter, MaxNLocator
from numpy.typing import NDArray

import cbm_cli
from cbm_cli.arrays import read_npz
from cbm_cli.datasets.dataset import Image
from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.report.chosen import Chosen, Options, choose
from cbm_cli.report.curves import Ends, _limits, _measure
from cbm_cli.report.learned import _data, _shape
from cbm_cli.report.pictures import normalised, tile
from cbm_cli.report.series import Curve, read_curves
from cbm_cli.report.style import Look, looks_of
from cbm_cli.report.values import Value, read_values
from cbm_cli.results import Results, Store
from cbm_cli.results.inventory import list_runs
from cbm_cli.results.writing import write_atomically
from cbm_cli.statistics import ResultsTable, build_table, compare
from cbm_cli.statistics.layout import CellSettings, key_of, spelled
from cbm_cli.statistics.marked_cells import Cell
from cbm_cli.text import count, harmless, text_of

FILTERS = {"offsets": "Scheme", "sampler": "Sampler", "data": "Data", "learning_rate": "Learning rate"}
VERSIONS = ("cbm_version", "kernel_version", "numpy_version", "numba_version")
POINTS = 200  # of a curve
_ALL_POINTS = 60_000  # of the page
_FILTERS = 36  # of a machine
_MACHINES = 8
_MOST_TROUBLES = 50  # cells that are listed, of each experiment
WIDTH, HEIGHT = 2200, 1500  # of the curves, in units of the drawing
SLOT = 110  # width of a method's final values, beside the curves


def write_report(results: Results, experiments: Sequence[str], path: Path) -> list[str]:
    """Write the page of some experiments, or of all; return warnings.

    Raises
    ------
    CbmError
        Unknown experiment, or the file cannot be written.
    IncompleteError
        The folder holds no results.
    """
    from jinja2 import Environment, StrictUndefined

    stores = [results.store(name) for name in experiments or results.require_experiments()]
    summaries = {store.experiment: store.summary() for store in stores}
    cells = {store.experiment: _cells(store.manifest()) for store in stores}
    points = max(20, min(POINTS, _ALL_POINTS // sum(map(len, cells.values()))))
    everything = pd.concat(summaries.values(), ignore_index=True)
    sections = [_section(results, store, summaries[store.experiment], points) for store in stores]
    versions = _versions(everything)
    warned = [f"trials of different {name}s: {', '.join(of)}" for name, of in versions.items() if len(of) > 1]
    page, style, script = (
        files("cbm_cli.report").joinpath(f"page.{suffix}").read_text("utf-8") for suffix in ("html", "css", "js")
    )
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    html = environment.from_string(page).render(
        folder=results.folder.resolve().name,
        version=cbm_cli.__version__,
        style=style,
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        sections=sections,
        filters=_filters([cell for its in cells.values() for cell in its]),
        labels=FILTERS,
        scoreboard=_scoreboard(everything),
        versions=versions,
        warnings=warned,
        width=WIDTH,
        height=HEIGHT,
        slot=SLOT,
    )
    write_atomically(path, harmless(html).encode())
    return warned


def _cells(manifest: Mapping[str, Any]) -> list[CellSettings]:
    return [*{cell["run_id"]: cell for cell in manifest["cells"]}.values()]


def _tags(cell: CellSettings) -> dict[str, str]:
    """Return the settings of a cell that the page is filtered by."""
    return {name: text_of(cell.get(name)) for name in FILTERS}


def _filters(cells: Iterable[CellSettings]) -> dict[str, list[tuple[str, str]]]:
    """Return the values of the settings to filter by, each with its spelling, where there are several."""
    values: dict[str, dict[str, str]] = {name: {} for name in FILTERS}
    for cell in cells:
        for name, text in _tags(cell).items():
            values[name].setdefault(text, spelled(name, cell.get(name)).unicode)
    return {name: [*its.items()] for name, its in values.items() if len(its) > 1}


def _versions(summary: pd.DataFrame) -> dict[str, list[str]]:
    """Return the versions that have computed the trials, each with their number."""
    shown = {}
    for column in VERSIONS:
        found = summary[column].dropna().value_counts(sort=False) if column in summary else {}
        trials = sorted(found.items())
        shown[column.replace("_", " ")] = [f"{version} ({count(n, 'trial')})" for version, n in trials]
    return shown


def _scoreboard(summary: pd.DataFrame) -> dict[str, Any]:
    """Compare with the paper; where nothing can be compared, say why."""
    try:
        comparison = compare(summary)
    except IncompleteError as error:
        return {"reason": str(error)}
    document = comparison.document()
    tables = replace(document, notes=(), summary=()).render("html")  # is escaped
    return {"summary": document.summary, "notes": document.notes, "tables": tables, "reason": ""}


def _section(results: Results, store: Store, summary: pd.DataFrame, points: int) -> dict[str, Any]:
    """Return everything that the page says of an experiment."""
    manifest = store.manifest()
    cells, runs = _cells(manifest), list_runs(store)
    lost = summary[summary["diverged"].notna()] if "diverged" in summary else summary
    texts = {column: list(dict.fromkeys(text_of(cell.get(column)) for cell in cells)) for column in cells[0]}
    varied = {c: its for c, its in texts.items() if len(its) > 1 and c != "run_id"}
    section = {
        "name": store.experiment,
        "description": manifest.get("description", ""),
        "cells": len(cells),
        **{name: sum(run[name] for run in runs) for name in ("finished", "planned", "interrupted", "failed")},
        "diverged": len(lost),
        "when": max((run["when"] for run in runs if run["when"]), default=""),
        "varied": {c: [spelled(c, text).unicode for text in its] for c, its in varied.items()},
        "fixed": {c: spelled(c, its[0]).unicode for c, its in texts.items() if len(its) == 1 and its[0]},
        "troubles": _troubles(store, cells, [*varied], lost),
        "computer": manifest.get("machine", {}),
        "commit": manifest.get("git_commit") or "",
        "table": None,
        "pictures": [],
        "machines": [],
        "gaps": [],
    }
    if summary.empty:
        return section
    try:
        section["table"] = _table(build_table(summary, manifest), cells)
    except CbmError as error:
        section["gaps"].append(f"No table: {error}")
    for data in texts["data"]:
        try:
            chosen = choose(results, [store.experiment], Options(select=[("data", data)]))
            values, metric = read_values(chosen, Options())
            section["pictures"].append(_picture(chosen, values, points) | {"data": data})
            section["machines"] += _machines(chosen, values, metric.better)
        except CbmError as error:
            if section["table"]:
                section["gaps"].append(f"No curves of {data}: {error}")
    return section


def _troubles(
    store: Store, cells: Sequence[CellSettings], varied: Sequence[str], lost: pd.DataFrame
) -> list[dict[str, Any]]:
    """Return the cells with diverged or failed trials, and the reasons."""
    diverged = lost.groupby("run_id")["diverged"] if len(lost) else {}
    diverged = {run_id: (len(updates), float(updates.min())) for run_id, updates in diverged}
    found = []
    for cell in cells:
        run_id, reasons = cell["run_id"], []
        if run_id in diverged:
            trials, first = diverged[run_id]
            reasons.append(f"{count(trials, 'trial')} diverged, the first at update {first:,.0f}")
        failures: dict[str, list[str]] = {}
        for number in sorted(store.unfinished(run_id)[1]):
            lines = store.path(run_id, number, ".error.txt").read_text("utf-8", "replace").split("\n")
            message = next((line for line in reversed(lines) if line.strip()), "no reason is known")
            failures.setdefault(message.strip()[:300], []).append(str(number))
        reasons += [f"failed (trial {', '.join(numbers)}): {why}" for why, numbers in failures.items()]
        if reasons:
            found.append({"name": _words(cell, varied), "reasons": reasons, "tags": _tags(cell)})
    more = len(found) - _MOST_TROUBLES
    rest = [{"name": f"and {count(more, 'more cell')}", "reasons": [], "tags": {}}] if more > 0 else []
    return found[:_MOST_TROUBLES] + rest


def _words(settings: Mapping[str, Any], columns: Iterable[str]) -> str:
    """Return settings as a title: methods and data by their label, others with their name."""
    parts = []
    for column in columns:
        value = spelled(column, settings.get(column)).unicode
        name = {"learning_rate": "η = "}.get(column, f"{column.replace('_', ' ')} ")
        parts.append(value if column in ("offsets", "sampler", "data") else name + value)
    return ", ".join(parts)


# The table


def _table(table: ResultsTable, cells: Sequence[CellSettings]) -> dict[str, Any]:
    """Return the table with the settings and the numbers behind each of its values."""
    document = table.document()
    sheet, axes = document.sheets[0], table.layout.axes
    known = {key_of(cell, axes): _tags(cell) for cell in cells}

    def entry(value: Any, cell: Cell | None) -> dict[str, Any]:
        if cell is None:
            return {"value": value, "tags": {}, "sort": "", "title": "not planned"}
        about = {"tags": known[key_of(cell.where, axes)], "title": _title(table.record(cell))}
        return {"value": value, "sort": "" if np.isnan(cell.mean) else repr(cell.mean)} | about

    groups = []
    for printed, rows in zip(sheet.groups, table.groups, strict=True):
        lines = [
            (stub.unicode, [entry(value, cell) for value, cell in zip(values, row, strict=True)])
            for (stub, *values), row in zip(printed.rows, rows, strict=True)
        ]
        groups.append({"heading": printed.heading.unicode if printed.heading else "", "rows": lines})
    return {
        "header": [head.unicode for head in sheet.header],
        "groups": groups,
        "notes": document.notes,
        "latex": document.render("latex"),
    }


def _title(record: Mapping[str, Any]) -> str:
    """Return what a value of the table rests on."""
    parts = [f"n = {record['n']} of {record['n_planned']}"]
    if record["best"]:
        parts.append("best of its row")
    if record["p_value"] is not None:
        parts.append(f"p = {record['p_value']:.2g} against the best of the row ({record['n_pairs']} pairs)")
        parts.append(f"effect size {record['effect_size']:.2f}")
    best = record.get("max_update", record.get("min_update", np.nan))
    if not np.isnan(best):
        parts.append(f"best at update {best:,.0f} on average")
    if record["diverged"]:
        parts.append(f"{record['diverged']} diverged")
    return "; ".join(parts)


# Pictures


class Line(NamedTuple):
    """One method in one panel, as paths of the drawing."""

    name: str
    tags: Mapping[str, str]
    colour: str
    dashes: str
    band: str
    mean: str
    finals: str  # dots
    beyond: str  # marks at the edge, for values beyond it
    title: str


def _picture(chosen: Chosen, values: Sequence[Value], points: int) -> dict[str, Any]:
    """Return the panels of a data set: curves, and the final values of the trials beside them."""
    drawn = read_curves(chosen, Options())
    curves = [_thinned(curve, points) for curve in drawn.curves]
    ends = _limits(curves, Options())
    last = max(curve.trials.index[-1] for curve in curves)
    keys = list(dict.fromkeys(curve.line for curve in curves))
    looks = {key: _strokes(look) for key, look in looks_of(keys, drawn.lines).items()}
    cells = {(key_of(c, drawn.lines), key_of(c, drawn.panels)): c for c in chosen.cells}
    finals = {(value.line, value.panel): value.final for value in values}
    panels: dict[str, list[Line]] = {}
    for curve in curves:
        cell = cells[curve.line, curve.panel]
        paths = _paths(curve, finals[curve.line, curve.panel], keys.index(curve.line), ends, last)
        name = _words(cell, drawn.lines)
        shown = Line(name, _tags(cell), *looks[curve.line], *paths)
        panels.setdefault(_words(cell, drawn.panels), []).append(shown)
    ticks = MaxNLocator(4, steps=[1, 2, 5, 10]).tick_values
    x_ticks = [x for x in ticks(0, last) if 0 <= x <= last]
    y_ticks = [(_down(y, ends), f"{y:.6g}") for y in ticks(ends.low, ends.high) if ends.low <= y <= ends.high]
    return {
        "panels": panels,
        "legend": [(_words(dict(zip(drawn.lines, key, strict=True)), drawn.lines), *looks[key]) for key in keys],
        "measure": _measure(drawn, [curves[0].metric]),
        "x_ticks": [(_across(x, last), EngFormatter(sep="")(x)) for x in x_ticks],
        "y_ticks": y_ticks,
        "margin": 60 * max(len(text) for _, text in y_ticks) + 60,
        "bound": _down(ends.bound, ends) if ends.bounded else None,
        "cut": ends.cut,
        "beyond": any(line.beyond for lines in panels.values() for line in lines),
        "slots": len(keys),
        "better": curves[0].metric.better,
    }


def _thinned(curve: Curve, points: int) -> Curve:
    """Return a curve of at most so many evaluations, the first and the last among them."""
    chosen = np.unique(np.linspace(0, len(curve.trials) - 1, points).round().astype(int))
    return replace(curve, trials=curve.trials.iloc[chosen])


def _strokes(look: Look) -> tuple[str, str]:
    """Return colour and dashes as SVG names them; black becomes the colour of the text."""
    colour = "currentColor" if look["color"] == "#000000" else look["color"]
    return colour, "" if look["linestyle"] == "-" else " ".join(f"{1.6 * part:.3g}" for part in look["linestyle"][1])


def _across(x: Any, last: float) -> Any:
    return np.rint(np.asarray(x, dtype=float) / (last or 1) * WIDTH).astype(int)


def _down(y: Any, ends: Ends) -> Any:
    """Return where values stand, from the top; those far beyond the ends stand not so far."""
    share = (ends.high - np.asarray(y, dtype=float)) / (ends.high - ends.low)
    return np.rint(share.clip(-4, 4) * HEIGHT).astype(int)


def _paths(curve: Curve, finals: NDArray, slot: int, ends: Ends, last: float) -> tuple[str, str, str, str, str]:
    """Return the paths of a line, and its title."""
    x = _across(curve.trials.index, last)
    low, high = (_down(edge, ends) for edge in curve.band())
    band = _path(np.concatenate([x, x[::-1]]), np.concatenate([high, low[::-1]])) + "z"
    known = finals[np.isfinite(finals)]
    within = (known >= ends.low) & (known <= ends.high)
    spread = WIDTH + SLOT * (slot + 0.5 + 0.28 * np.linspace(-1, 1, max(len(known), 2))[: len(known)])
    spread = np.rint(spread).astype(int)
    dots = "".join(f"M{a} {b}h0" for a, b in zip(spread[within], _down(known[within], ends), strict=True))
    edges = ((a, (HEIGHT - 45, 40) if value < ends.low else (45, -40)) for a, value in zip(spread[~within], known[~within], strict=True))
    beyond = "".join(f"M{a - 22} {y}l22 {tip} 22 {-tip}z" for a, (y, tip) in edges)
    quartiles = np.quantile(known, [0.25, 0.5, 0.75]) if known.size else ()
    title = "final: " + " / ".join(f"{value:.5g}" for value in quartiles) + " (quartiles)" if known.size else "no final value"
    lost = len(finals) - len(known)
    return band, _path(x, _down(curve.mean, ends)), dots, beyond, title + f"; {lost} diverged" * bool(lost)


def _path(x: NDArray, y: NDArray) -> str:
    steps = " ".join(f"{a} {b}" for a, b in zip(np.diff(x).tolist(), np.diff(y).tolist(), strict=True))
    return f"M{x[0]} {y[0]}" + f"l{steps}" * bool(steps)


def _machines(chosen: Chosen, values: Sequence[Value], better: int) -> list[dict[str, Any]]:
    """Return filters of the first layer of each method's best machine, as pictures."""
    best: dict[Any, tuple[float, CellSettings, int]] = {}
    for cell, value in zip(chosen.cells, values, strict=True):
        scores = np.where(np.isfinite(value.final), value.final * (better or 1), -np.inf)
        place = int(scores.argmax())
        if scores[place] > best.get(value.line, (-np.inf,))[0]:
            best[value.line] = float(scores[place]), cell, int(chosen.trials(cell)["trial"].iloc[place])
    found = []
    for _, cell, trial in [*best.values()][:_MACHINES]:
        try:
            weights = read_npz(chosen.store(cell).path(cell["run_id"], trial, ".npz"))["weights_0"]
        except (CbmError, KeyError):
            continue
        image = _shape(Options(), _data(chosen, cell), len(weights))
        name = ", ".join([_words(cell, ["data", *chosen.lines, *chosen.panels]), f"trial {trial}"])
        found.append({"name": name, "tags": _tags(cell), "units": weights.shape[1]} | _filter_picture(weights, image))
    return found


def _filter_picture(weights: NDArray, image: Image) -> dict[str, Any]:
    """Draw the filters of the first units as a PNG in a data URI, white where a unit is excited."""
    rows = normalised(weights.T[:_FILTERS])
    pictures = np.array([row.reshape(image[:2], order=image.order) for row in rows])
    stream, picture = io.BytesIO(), tile(pictures)
    imsave(stream, picture, format="png", cmap="gray", vmin=0, vmax=1, metadata={"Software": None})
    address = "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()
    return {"address": address, "width": picture.shape[1], "shown": len(rows)}
