"""One self-contained HTML page of results, which the browser filters and sorts.

It is made from page.html, page.css and page.js, which lie beside this module.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
import pandas as pd

from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.report.chosen import Options, choose
from cbm_cli.report.finals import read_values
from cbm_cli.report.inline import FILTERED, HEIGHT, SLOT, WIDTH, machines, picture, tags, words
from cbm_cli.report.style import own_style
from cbm_cli.results import Results, Store
from cbm_cli.results.inventory import list_runs
from cbm_cli.results.writing import write_atomically
from cbm_cli.statistics import ResultsTable, build_table, check_findings, compare
from cbm_cli.statistics.layout import CellSettings, key_of, spelled
from cbm_cli.statistics.marked_cells import Cell
from cbm_cli.text import count, harmless, text_of
from cbm_cli.version import __version__

VERSIONS = ("cbm_version", "kernel_version", "numpy_version", "numba_version")
_POINTS = 200  # of a curve
_ALL_POINTS = 60_000  # of a page
_MOST_TROUBLES = 50  # cells that are listed, of each experiment


@own_style()
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
    points = max(20, min(_POINTS, _ALL_POINTS // sum(map(len, cells.values()))))
    everything = pd.concat(summaries.values(), ignore_index=True)
    sections = [_section(results, store, summaries[store.experiment], points) for store in stores]
    versions = _versions(everything)
    warned = [f"trials of different {name}s: {', '.join(of)}" for name, of in versions.items() if len(of) > 1]
    page, style, script = (
        files("cbm_cli.report").joinpath(f"page.{suffix}").read_text("utf-8")
        for suffix in ("html", "css", "js")
    )
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    html = environment.from_string(page).render(
        folder=results.folder.resolve().name,
        version=__version__,
        style=style,
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        sections=sections,
        filters=_filters([cell for its in cells.values() for cell in its]),
        scoreboard=_scoreboard(results, everything),
        findings=_findings(results, {*summaries}),
        versions=versions,
        warnings=warned,
        points=points,
        width=WIDTH,
        height=HEIGHT,
        slot=SLOT,
    )
    write_atomically(path, harmless(html).encode())
    return warned


def _cells(manifest: Mapping[str, Any]) -> list[CellSettings]:
    return [*{cell["run_id"]: cell for cell in manifest["cells"]}.values()]


def _filters(cells: Iterable[CellSettings]) -> dict[str, list[tuple[str, str]]]:
    """Return the values of the settings to filter by, each with its spelling, where there are several."""
    values: dict[str, dict[str, str]] = {name: {} for name in FILTERED}
    for cell in cells:
        for name, text in tags(cell).items():
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


def _scoreboard(results: Results, summary: pd.DataFrame) -> dict[str, Any]:
    """Compare with the paper; where nothing can be compared, say why."""
    try:
        comparison = compare(summary, results.curve)
    except IncompleteError as error:
        return {"reason": str(error)}
    document = comparison.document()
    tables = replace(document, notes=(), summary=()).render("html")  # is escaped
    return {"summary": document.summary, "notes": document.notes, "tables": tables, "reason": ""}


def _findings(results: Results, experiments: Set[str]) -> dict[str, Any]:
    """Return the paper's findings on some experiments, and how many there are on others."""
    try:
        judged = check_findings(results)
    except IncompleteError:  # the scoreboard says why
        return {"records": [], "others": 0}
    needed = [one for one in judged if one.finding["experiments"]]  # not what the paper proves
    own = [one for one in needed if experiments & {*one.finding["experiments"]}]
    return {"records": [one.record() for one in own], "others": len(needed) - len(own)}


def _section(results: Results, store: Store, summary: pd.DataFrame, points: int) -> dict[str, Any]:
    """Return everything that the page says of an experiment."""
    manifest = store.manifest()
    cells, runs = _cells(manifest), list_runs(store)
    texts = {column: list(dict.fromkeys(text_of(cell.get(column)) for cell in cells)) for column in cells[0]}
    varied = {c: its for c, its in texts.items() if len(its) > 1 and c != "run_id"}
    gaps: list[str] = []
    table = None
    shown: dict[str, list] = {"pictures": [], "machines": []}
    if not summary.empty:
        try:
            table = build_table(summary, manifest)
            shown = _shown(results, store.experiment, texts["data"], points, gaps)
        except CbmError as error:
            gaps.append(f"No table: {error}")
    lost = _lost(summary, table, cells)
    return {
        "name": store.experiment,
        "description": manifest.get("description", ""),
        "cells": len(cells),
        **{name: sum(run[name] for run in runs) for name in ("finished", "planned", "interrupted", "failed")},
        "diverged": sum(number for number, _ in lost.values()),
        "when": max((f"{run['when'][:16]} UTC".replace("T", " ") for run in runs if run["when"]), default=""),
        "varied": {c: [spelled(c, text).unicode for text in its] for c, its in varied.items()},
        "fixed": {c: spelled(c, its[0]).unicode for c, its in texts.items() if len(its) == 1 and its[0]},
        "computer": manifest.get("machine", {}),
        "commit": manifest.get("grid_commit") or "",
        "table": table and _table(table, cells),
        "gaps": gaps,
        **shown,
        "troubles": _troubles(store, cells, [*varied], lost),
    }


def _shown(
    results: Results, experiment: str, data_sets: Iterable[str], points: int, gaps: list[str]
) -> dict[str, list]:
    """Return curves and machines of each data set; ``gaps`` receives what cannot be shown."""
    pictures, filters = [], []
    for data in data_sets:
        try:
            with catch_warnings():
                simplefilter("ignore")  # the page itself warns of mixed versions
                chosen = choose(results, [experiment], Options(select=[("data", data)]))
            values, metric = read_values(chosen, Options())
            pictures.append(picture(chosen, values, points) | {"data": data})
            filters += machines(chosen, values, metric.better)
        except CbmError as error:
            gaps.append(f"No curves of {data}: {error}")
    return {"pictures": pictures, "machines": filters}


def _lost(
    summary: pd.DataFrame, table: ResultsTable | None, cells: Sequence[CellSettings]
) -> dict[str, tuple[int, float]]:
    """Return how many trials of a run have diverged, as the table counts them, and when the first."""
    firsts = summary.groupby("run_id")["diverged"].agg(["count", "min"]) if len(summary) else pd.DataFrame()
    found = {run_id: (int(number), float(first)) for run_id, number, first in firsts.itertuples() if number}
    axes = table.layout.axes if table else ()
    counts = {key_of(cell.where, axes): cell.diverged for cell in table.cells} if table else {}
    for cell in cells:
        if number := counts.get(key_of(cell, axes), 0):
            found[cell["run_id"]] = number, found.get(cell["run_id"], (0, np.nan))[1]
    return found


def _troubles(
    store: Store,
    cells: Sequence[CellSettings],
    varied: Sequence[str],
    lost: Mapping[str, tuple[int, float]],
) -> list[dict[str, Any]]:
    """Return the cells with diverged or failed trials, and the reasons."""
    found = []
    for cell in cells:
        run_id, reasons = cell["run_id"], []
        if run_id in lost:
            trials, first = lost[run_id]
            when = "to values that are not finite" if np.isnan(first) else f"the first at update {first:,.0f}"
            reasons.append(f"{count(trials, 'trial')} diverged, {when}")
        failures: dict[str, list[str]] = {}
        for number in sorted(store.unfinished(run_id)[1]):
            lines = store.path(run_id, number, ".error.txt").read_text("utf-8", "replace").split("\n")
            message = next((line for line in reversed(lines) if line.strip()), "no reason is known")
            failures.setdefault(message.strip()[:300], []).append(str(number))
        reasons += [f"failed (trial {', '.join(numbers)}): {why}" for why, numbers in failures.items()]
        if reasons:
            found.append({"name": words(cell, varied), "reasons": reasons, "tags": tags(cell)})
    more = len(found) - _MOST_TROUBLES
    rest = [{"name": f"and {count(more, 'more cell')}", "reasons": [], "tags": {}}] if more > 0 else []
    return found[:_MOST_TROUBLES] + rest


# The table


def _table(table: ResultsTable, cells: Sequence[CellSettings]) -> dict[str, Any]:
    """Return the table with the settings and the numbers behind each of its values."""
    document = table.document()
    sheet, axes = document.sheets[0], table.layout.axes
    known = {key_of(cell, axes): tags(cell) for cell in cells}

    def entry(value: Any, cell: Cell | None) -> dict[str, Any]:
        if cell is None:
            return {"value": value, "tags": {}, "sort": "", "title": "not planned"}
        about = {"tags": known[key_of(cell.where, axes)], "title": _title(table.record(cell))}
        return {"value": value, "sort": "" if np.isnan(cell.mean) else repr(cell.mean)} | about

    groups = []
    for printed, rows in zip(sheet.groups, table.groups, strict=True):
        lines = [
            (stub.unicode, [entry(value, cell) for value, cell in zip(values, row, strict=True)])  # type: ignore[union-attr]
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
