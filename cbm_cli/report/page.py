"""One HTML page of results, made from page.html, which needs no other file and no
network.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple, TypeVar

from cbm_cli.errors import CbmError
from cbm_cli.grid.words import name_of, value_of
from cbm_cli.report.kinds import draw
from cbm_cli.report.options import Options
from cbm_cli.report.panels import compose
from cbm_cli.results import Results, Store
from cbm_cli.results.cells import Cells, Trials, make_cells
from cbm_cli.results.folder import RunRecord, list_runs
from cbm_cli.results.journal import Manifest
from cbm_cli.results.selection import choosing_of, with_measure
from cbm_cli.results.writing import write_atomically
from cbm_cli.sheets import Sheet
from cbm_cli.statistics import build_table
from cbm_cli.text import count, harmless
from cbm_cli.version import __version__

VERSIONS = ("cbm_version", "kernel_version", "numpy_version", "numba_version")
_NAMED = 3  # experiments in the heading
_LONGEST_REASON = 300  # letters of why a trial failed

Part = TypeVar("Part")


class CurvesOfData(NamedTuple):
    """The learning curves of a data set, as SVG with a caption."""

    data: str
    svg: str
    caption: str


class AllCells(NamedTuple):
    """A table with a line for each cell; its last word may be `chosen`."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Section:
    """Everything that the page shows of an experiment."""

    name: str
    about: str
    runs: Sequence[RunRecord]
    settings: Mapping[str, Sequence[str]]  # by column
    versions: Mapping[str, Mapping[str, int]]  # number of trials by version
    failures: Sequence[str]
    gaps: Sequence[str]  # what is not shown, and why
    table: Sheet | None
    cells: AllCells | None
    curves: Sequence[CurvesOfData] | None


def write_report(results: Results, stores: Sequence[Store], path: Path) -> None:
    """Write the page of some experiments of a folder; CbmError if the file cannot be
    written.
    """
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["named"] = name_of
    template = files("cbm_cli.report").joinpath("page.html").read_text("utf-8")
    names = [store.experiment for store in stores]
    heading = ", ".join(names)
    if len(names) > _NAMED:
        heading = count(len(names), "experiment")
    html = environment.from_string(template).render(
        title=f"{results.folder.resolve().name}: {heading}",
        sections=[_section(results, store) for store in stores],
        version=__version__,
    )
    write_atomically(path, harmless(html).encode())


def _section(results: Results, store: Store) -> Section:
    manifest, frame = store.manifest(), store.summary()
    gaps: list[str] = []
    table = cells = curves = None
    if len(frame):
        cells_read = make_cells(Trials(frame, store), manifest)
        table = _part("table", partial(_table, cells_read), gaps)
        cells = _part("cells", partial(_all_cells, cells_read), gaps)
        curves = _part("curves", partial(_curves, results, store, manifest), gaps)
    settings = {}
    for column in manifest.columns.names:
        texts = manifest.columns.texts(column)
        if any(texts):
            settings[column] = [value_of(column, text).unicode for text in texts]
    versions = {}
    for column in VERSIONS:
        if column in frame:
            versions[column] = dict(frame[column].value_counts(sort=False))
    return Section(
        name=store.experiment,
        about=manifest.description,
        runs=[run for run in list_runs(store) if run.in_grid],
        settings=settings,
        versions=versions,
        failures=_failures(store, manifest),
        gaps=gaps,
        table=table,
        cells=cells,
        curves=curves,
    )


def _part(name: str, make: Callable[[], Part], gaps: list[str]) -> Part | None:
    """Return a part of a section; None if it cannot be made, with a reason among the
    gaps.
    """
    try:
        return make()
    except CbmError as error:
        gaps.append(f"No {name}: {error}")
        return None


def _failures(store: Store, manifest: Manifest) -> list[str]:
    """Return the reasons why trials of each run have failed."""
    trials: dict[tuple[str, str], list[str]] = {}
    for run_id in [run.run_id for run in manifest.cells]:
        for trial in sorted(store.failed(run_id)):
            details = store.failure(run_id, trial).strip()
            reason = details.rpartition("\n")[2].strip() or "no reason is known"
            key = run_id, reason[:_LONGEST_REASON]
            trials.setdefault(key, []).append(str(trial))
    failures = []
    for (run_id, reason), numbers in trials.items():
        failures.append(f"{run_id}, trial {', '.join(numbers)}: {reason}")
    return failures


def _table(cells: Cells) -> Sheet:
    choosing = choosing_of(cells.manifest.table)
    return build_table(with_measure(cells, choosing)).sheet()


def _all_cells(cells: Cells) -> AllCells:
    """Return a table with a line for each cell, which marks the chosen cells.

    Its numbers have the digits of other tables.
    """
    axes = cells.manifest.axes
    shown = with_measure(cells, None)
    choosing = choosing_of(cells.manifest.table)
    chosen = set()
    if choosing:
        best = with_measure(cells, choosing)
        chosen = {cell.run_id for cell in best}
    layout = {"groups": (), "rows": axes, "columns": ()}
    rows = []
    for entry in build_table(shown, axes=layout).entries:
        cell = entry.cell
        assert cell is not None
        texts = [value_of(axis, cell.row[axis]).unicode for axis in axes]
        texts += [entry.number, entry.spread or "–", f"{cell.n} of {cell.planned}"]
        texts += [str(cell.diverged), str(cell.doubts.sum())]
        if choosing:
            texts.append("chosen" if cell.run_id in chosen else "")
        rows.append(texts)
    metric, _, statistic = shown.measure
    words = f"{metric.part} {metric.name}".strip()
    heads = [*map(name_of, axes), f"{words} ({statistic})", "±"]
    heads += ["trials", "diverged", "doubtful"]
    if choosing:
        heads.append("in the table")
    return AllCells(heads=heads, rows=rows)


def _curves(results: Results, store: Store, manifest: Manifest) -> list[CurvesOfData]:
    """Return pictures of the curves of each data set."""
    sets = manifest.columns.texts("data")
    pictures = []
    for data in sets:
        options = Options(select=[("data", data)] if len(sets) > 1 else ())
        panels = draw(results, "curves", [store.experiment], options)
        picture = compose(panels, size="page")
        style = {"svg.fonttype": "path", "svg.hashsalt": f"{store.experiment} {data}"}
        content = picture.content(".svg", **style).decode()
        svg = content[content.index("<svg") :]
        pictures.append(CurvesOfData(data=data, svg=svg, caption=picture.caption))
    return pictures
