"""One HTML page of results, made from page.html, which needs no other file and no
network.
"""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from cbm_cli.errors import CbmError
from cbm_cli.grid.words import name_of, value_of
from cbm_cli.report.chosen import Options
from cbm_cli.report.kinds import draw
from cbm_cli.report.panels import compose
from cbm_cli.results import Metric, Results, Store
from cbm_cli.results.cells import Cells, Measure, Trials, make_cells
from cbm_cli.results.folder import list_runs
from cbm_cli.results.journal import Manifest
from cbm_cli.results.selection import choosing_of, with_measure
from cbm_cli.results.writing import write_atomically
from cbm_cli.statistics import build_table
from cbm_cli.text import __version__, count, decimal, harmless

VERSIONS = ("cbm_version", "kernel_version", "numpy_version", "numba_version")
_NAMED = 3  # experiments in the heading


def write_report(results: Results, stores: Sequence[Store], path: Path) -> None:
    """Write the page of some experiments of a folder; CbmError if the file cannot be
    written.
    """
    from jinja2 import Environment, StrictUndefined

    names = [store.experiment for store in stores]
    shown = (
        ", ".join(names) if len(names) <= _NAMED else count(len(names), "experiment")
    )
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["named"] = name_of
    page = environment.from_string(
        files("cbm_cli.report").joinpath("page.html").read_text("utf-8")
    )
    sections = [_section(results, store) for store in stores]
    title = f"{results.folder.resolve().name}: {shown}"
    html = page.render(title=title, sections=sections, version=__version__)
    write_atomically(path, harmless(html).encode())


def _section(results: Results, store: Store) -> dict[str, Any]:
    """Return everything that the page shows of an experiment."""
    manifest = store.manifest()
    cells, frame, runs = manifest.cells, store.summary(), list_runs(store)
    columns = manifest.columns
    texts = {column: columns.texts(column) for column in columns.names}
    shown = make_cells(Trials(frame, store), manifest, Measure(Metric("")))
    failed: dict[tuple[str, str], list[str]] = {}
    keys = [
        (run.run_id, number)
        for run in cells
        for number in sorted(store.failed(run.run_id))
    ]
    for run_id, number in keys:
        why = (
            store.failure(run_id, number).strip().rpartition("\n")[2].strip()
            or "no reason is known"
        )
        failed.setdefault((run_id, why[:300]), []).append(str(number))
    gaps, parts = list[str](), dict[str, Any]()
    for name, make in {
        "table": lambda: build_table(
            with_measure(shown, choosing_of(manifest.table))
        ).sheet(),
        "cells": lambda: _every_cell(with_measure(shown, None)),
        "curves": lambda: _curves(results, store, manifest),
    }.items():
        try:
            parts[name] = make() if len(frame) else None
        except CbmError as error:
            parts[name] = None
            gaps.append(f"No {name}: {error}")
    return {
        "name": store.experiment,
        "about": manifest.description,
        **{
            name: sum(run[name] for run in runs)
            for name in ("finished", "planned", "interrupted", "failed")
        },
        "settings": {
            c: [value_of(c, text).unicode for text in its]
            for c, its in texts.items()
            if any(its)
        },
        "versions": {
            c: dict(frame[c].value_counts(sort=False)) for c in VERSIONS if c in frame
        },
        "failures": [
            f"{run_id}, trial {', '.join(its)}: {why}"
            for (run_id, why), its in failed.items()
        ],
        "gaps": gaps,
        **parts,
    }


def _every_cell(cells: Cells) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the rows of a table with a line for each cell."""
    axes = cells.manifest.axes
    rows = [
        [
            *(value_of(axis, cell.row[axis]).unicode for axis in axes),
            f"{cell.n} of {cell.planned}",
        ]
        + [
            "–" if number != number else decimal(number, ".6g")
            for number in (cell.mean, cell.std)
        ]
        + [str(cell.diverged), str(cell.doubts.sum())]
        for cell in cells
    ]
    shown = f"{cells.measure.metric.column}, {cells.measure.statistic}"
    return [*map(name_of, axes), "trials", shown, "±", "diverged", "doubtful"], rows


def _curves(
    results: Results, store: Store, manifest: Manifest
) -> list[tuple[str, str, str]]:
    """Return each data set, a picture of its curves as SVG, and the caption."""
    found = []
    sets = manifest.columns.texts("data")
    for data in sets:
        options = Options([("data", data)] if len(sets) > 1 else ())
        picture = compose(draw(results, "curves", [store.experiment], options), "page")
        style = {"svg.fonttype": "path", "svg.hashsalt": f"{store.experiment} {data}"}
        svg = picture.content(".svg", **style).decode()
        found.append((data, svg[svg.index("<svg") :], picture.caption))
    return found
