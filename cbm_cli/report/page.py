"""One self-contained HTML page of results, which the browser filters and sorts.

It is made from page.html, page.css and page.js, which lie beside this module.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
import pandas as pd

from cbm_cli.errors import CbmError
from cbm_cli.grid.words import name_of, value_of
from cbm_cli.report.chosen import Options, arrange, shown_cells
from cbm_cli.report.inline import FILTERED, HEIGHT, SLOT, WIDTH, machines, picture, tags
from cbm_cli.report.style import own_style, spelled
from cbm_cli.results import Metric, Results, Store
from cbm_cli.results.cells import Cell, Cells, Measure, Trials, make_cells, measure_of
from cbm_cli.results.inventory import CellSettings, list_runs
from cbm_cli.results.selection import Wanted, choosing_of, key_of, select_cells, with_measure
from cbm_cli.results.writing import write_atomically
from cbm_cli.sheets import Item, Label
from cbm_cli.statistics import Entry, ResultsTable, build_table
from cbm_cli.text import count, harmless, text_of
from cbm_cli.version import __version__

VERSIONS = ("cbm_version", "kernel_version", "numpy_version", "numba_version")
_POINTS = 200  # of a curve
_ALL_POINTS = 60_000  # of a page
_MOST_TROUBLES = 50  # cells that are listed, of each experiment


@own_style()
def write_report(results: Results, experiments: Sequence[str], path: Path, select: Wanted = ()) -> list[str]:
    """Write the page of some experiments, or of all, with the cells that are selected; return warnings.

    Raises
    ------
    CbmError
        Unknown experiment, or the file cannot be written.
    IncompleteError
        The folder holds no results.
    """
    stores = [results.store(name) for name in experiments or results.require_experiments()]
    manifests = select_cells([store.manifest() for store in stores], select)
    shown = [one for one in zip(stores, manifests, strict=True) if one[1]["cells"] or not select]
    stores, cells = [store for store, _ in shown], [_cells(*one) for one in shown]
    points = max(20, min(_POINTS, _ALL_POINTS // sum(len(its.cells) for its in cells)))
    everything = pd.concat([its.trials.frame for its in cells], ignore_index=True)
    versions = _versions(everything)
    warned = [f"trials of different {name}s: {', '.join(of)}" for name, of in versions.items() if len(of) > 1]
    html = _render(
        folder=results.folder.resolve().name,
        sections=[_section(*one, points) for one in zip(stores, cells, strict=True)],
        filters=_filters(cell.settings for its in cells for cell in its),
        versions=versions,
        warnings=warned,
        points=points,
    )
    write_atomically(path, harmless(html).encode())
    return warned


def _render(**content: Any) -> str:
    """Return the page: its HTML with style and script within."""
    from jinja2 import Environment, StrictUndefined

    page, style, script = (
        files("cbm_cli.report").joinpath(f"page.{suffix}").read_text("utf-8")
        for suffix in ("html", "css", "js")
    )
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["named"] = name_of
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    known = {"version": __version__, "width": WIDTH, "height": HEIGHT, "slot": SLOT}
    return environment.from_string(page).render(style=style, script=script, digest=digest, **known, **content)


def _cells(store: Store, manifest: Mapping[str, Any]) -> Cells:
    """Return the cells of an experiment, with a metric where there is one."""
    frame, names = store.summary(), [cell["run_id"] for cell in manifest["cells"]]
    trials = Trials(frame[frame["run_id"].isin(names)], lambda _: store)
    try:
        measure = measure_of(trials, manifest["table"])
    except CbmError:
        measure = Measure(Metric(""))
    return make_cells(trials, manifest, measure)


def _filters(cells: Iterable[CellSettings]) -> dict[str, list[tuple[str, str]]]:
    """Return the values of the settings to filter by, each with its spelling, where there are several."""
    values: dict[str, dict[str, str]] = {name: {} for name in FILTERED}
    for cell in cells:
        for name, text in tags(cell).items():
            values[name].setdefault(text, value_of(name, cell.get(name)).unicode)
    return {name: [*its.items()] for name, its in values.items() if len(its) > 1}


def _versions(summary: pd.DataFrame) -> dict[str, list[str]]:
    """Return the versions that have computed the trials, each with their number."""
    shown = {}
    for column in VERSIONS:
        found = summary[column].dropna().value_counts(sort=False) if column in summary else {}
        trials = sorted(found.items())
        shown[column.replace("_", " ")] = [f"{version} ({count(n, 'trial')})" for version, n in trials]
    return shown


def _section(store: Store, cells: Cells, points: int) -> dict[str, Any]:
    """Return everything that the page says of an experiment."""
    manifest, settings, runs = cells.manifest, [cell.settings for cell in cells], list_runs(store)
    runs = [run for run in runs if run["run_id"] in {one["run_id"] for one in settings}]
    texts = {c: list(dict.fromkeys(text_of(one.get(c)) for one in settings)) for c in settings[0]}
    varied = {c: its for c, its in texts.items() if len(its) > 1 and c != "run_id"}
    gaps: list[str] = []
    table = None
    shown: dict[str, list] = {"pictures": [], "machines": []}
    if not cells.trials.frame.empty:
        try:
            table = _table(build_table(with_measure(cells, choosing_of(manifest["table"]))))
            shown = _shown(store, manifest, points, gaps)
        except CbmError as error:
            gaps.append(f"No table: {error}")
    return {
        "name": store.experiment,
        "description": manifest.get("description", ""),
        "cells": len(settings),
        **{name: sum(run[name] for run in runs) for name in ("finished", "planned", "interrupted", "failed")},
        "diverged": sum(cell.diverged for cell in cells),
        "when": max((f"{run['when'][:16].replace('T', ' ')} UTC" for run in runs if run["when"]), default=""),
        "varied": {c: [value_of(c, text).unicode for text in its] for c, its in varied.items()},
        "fixed": {c: value_of(c, its[0]).unicode for c, its in texts.items() if len(its) == 1 and its[0]},
        "computer": manifest.get("machine", {}),
        "commit": manifest.get("grid_commit") or "",
        "table": table,
        "gaps": gaps,
        **shown,
        "troubles": _troubles(store, cells, [*varied]),
    }


def _shown(store: Store, manifest: Mapping[str, Any], points: int, gaps: list[str]) -> dict[str, list]:
    """Return curves and machines of each data set; ``gaps`` receives what cannot be shown."""
    pictures, filters = [], []
    for data in dict.fromkeys(cell["data"] for cell in manifest["cells"]):
        of_data = {**manifest, "cells": [cell for cell in manifest["cells"] if cell["data"] == data]}
        try:
            with catch_warnings():
                simplefilter("ignore")  # the page itself warns of mixed versions
                chosen = arrange({store.experiment: store}, [of_data], Options())
            cells = shown_cells(chosen, Options())
            pictures.append(picture(chosen, cells, points) | {"data": data})
            filters += machines(chosen, cells)
        except CbmError as error:
            gaps.append(f"No curves of {data}: {error}")
    return {"pictures": pictures, "machines": filters}


def _troubles(store: Store, cells: Cells, varied: Sequence[str]) -> list[dict[str, Any]]:
    """Return the cells with diverged or failed trials, and the reasons."""
    found = []
    for cell in cells:
        run_id, reasons = cell.settings["run_id"], []
        if cell.diverged:
            first = cell.first_divergence
            when = "to values that are not finite" if np.isnan(first) else f"the first at update {first:,.0f}"
            reasons.append(f"{count(cell.diverged, 'trial')} diverged, {when}")
        failures: dict[str, list[str]] = {}
        for number in sorted(store.unfinished(run_id)[1]):
            lines = store.failure(run_id, number).split("\n")
            message = next((line for line in reversed(lines) if line.strip()), "no reason is known")
            failures.setdefault(message.strip()[:300], []).append(str(number))
        reasons += [f"failed (trial {', '.join(numbers)}): {why}" for why, numbers in failures.items()]
        if reasons:
            name = spelled(varied, key_of(cell.settings, varied))
            found.append({"name": name, "reasons": reasons, "tags": tags(cell.settings)})
    more = len(found) - _MOST_TROUBLES
    rest = [{"name": f"and {count(more, 'more cell')}", "reasons": [], "tags": {}}] if more > 0 else []
    return found[:_MOST_TROUBLES] + rest


# The table


def _table(table: ResultsTable) -> dict[str, Any]:
    """Return the table; its entries know the settings and the numbers behind them."""
    document = table.document()
    (sheet,) = document.sheets
    groups = [(group.heading, [_row(table, row) for row in group.rows]) for group in sheet.groups]
    return {
        "header": [head.unicode for head in sheet.header],
        "groups": [{"heading": head.unicode if head else "", "rows": rows} for head, rows in groups],
        "notes": document.notes,
        "latex": document.render("latex"),
    }


def _row(table: ResultsTable, row: Sequence[Item]) -> tuple[str, list[dict[str, Any]]]:
    """Return the label of a row, and its entries with what is behind them."""
    labels = [item.unicode for item in row if isinstance(item, Label)]
    return labels[0], [_about(item, table.marking.alpha) for item in row if isinstance(item, Entry)]


def _about(entry: Entry, alpha: float) -> dict[str, Any]:
    cell = entry.cell
    if cell is None:
        return {"value": entry, "tags": {}, "sort": "", "title": "not planned"}
    mean = "" if np.isnan(cell.mean) else repr(cell.mean)
    return {
        "value": entry,
        "sort": mean,
        "tags": tags(cell.every_setting),
        "title": _title(entry, cell, alpha),
    }


def _title(entry: Entry, cell: Cell, alpha: float) -> str:
    """Return what a value of the table rests on."""
    test = entry.verdict.against_best
    parts = [f"n = {cell.n} of {cell.planned}"]
    if entry.verdict.best:
        parts.append("best of its row")
    if test is not None and test.powered(alpha):
        corrected = "" if test.corrected_p is None else "corrected "
        parts.append(f"{corrected}p = {test.p:.2g} against the best of the row ({test.n_pairs} pairs)")
        parts.append(f"effect size {test.effect_size:.2f}")
    if not np.isnan(cell.best_update):
        parts.append(f"best at update {cell.best_update:,.0f} on average")
    if cell.diverged:
        parts.append(f"{cell.diverged} diverged")
    return "; ".join(parts)
