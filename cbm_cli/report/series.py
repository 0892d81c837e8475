"""The content of a figure of learning curves: the trials of each method, by line and panel."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.results import Metric, Results, Store, default_metric, measured
from cbm_cli.statistics.layout import CellSettings, Key, key_of, select, telling_apart
from cbm_cli.text import text_of

MOST_PANELS = 24


@dataclass(frozen=True)
class Curve:
    """One method in one panel."""

    line: Key  # values of the columns that tell lines apart
    panel: Key
    data: str  # title of the data set
    metric: Metric
    # (evaluations, trials), indexed by update; likelihoods and costs in the table's scale. A trial that
    # stopped early keeps its last value, one that diverged has none from there on.
    trials: pd.DataFrame
    bound: float | None  # upper bound in the same scale
    diverged: int  # trials that diverged
    stopped: int  # trials that stopped before others
    gaps: int  # other trials without a finite value at some updates

    @property
    def mean(self) -> pd.Series:
        """Mean over the trials that are finite."""
        return self.trials.mean(axis=1)

    @property
    def band(self) -> tuple[pd.Series, pd.Series]:
        """Quartiles over the trials; for records, the mean ± a standard deviation.

        Likelihoods and costs have quartiles because one trial that diverges would stretch a standard
        deviation beyond the picture.
        """
        if self.metric.better:
            return self.trials.quantile(0.25, axis=1), self.trials.quantile(0.75, axis=1)
        deviation = self.trials.std(axis=1, ddof=1).fillna(0)  # of a single trial
        return self.mean - deviation, self.mean + deviation


@dataclass(frozen=True)
class Curves:
    """Everything that a figure shows."""

    curves: list[Curve]
    lines: list[str]  # columns whose values name the lines
    panels: list[str]
    metric: Metric
    scale: str


def read_curves(
    results: Results, experiment: str, selected: Iterable[tuple[str, str]], metric: str | None
) -> Curves:
    """Read what `plot_curves` draws; it lists the errors."""
    store = results.store(experiment)
    manifest = store.manifest()
    cells, table = select(manifest["cells"], selected), manifest["table"]
    lines, panels = _axes(cells, table)
    number = len({key_of(cell, panels) for cell in cells})
    if number > MOST_PANELS:
        raise CbmError(
            f"{number} panels are too many to read (at most {MOST_PANELS}); "
            f"select values of {', '.join(panels)}, as in --select {panels[0]}={text_of(cells[0][panels[0]])}"
        )
    summary = store.summary()
    if summary.empty:
        raise IncompleteError(f"{experiment}: no finished trial yet; start with `cbm run`")
    finished = summary[summary["run_id"].isin([cell["run_id"] for cell in cells])]
    if finished.empty:
        raise IncompleteError(f"{experiment}: no finished trial of what is selected; run more with `cbm run`")
    usual = table["metric"] or default_metric(measured(summary))
    shown, rows = Metric(_metric(store, experiment, finished, metric, usual)), finished.groupby("run_id")
    found = (
        _curve(store, manifest, cell, rows.get_group(cell["run_id"]), (lines, panels), shown)
        for cell in cells
        if cell["run_id"] in rows.groups
    )
    curves = [curve for curve in found if curve]
    if not curves:
        raise IncompleteError(f"{experiment}: {shown.column} has no finite value to draw")
    return Curves(curves, lines, panels, shown, table["scale"])


def _axes(cells: Sequence[CellSettings], table: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return columns that tell lines apart, and as few others as tell panels apart.

    Lines are the table's columns; its rows where only those vary, or where they are the schemes. Data sets
    never share a panel.
    """
    varied = {column for column in cells[0] if len({text_of(cell.get(column)) for cell in cells}) > 1}
    rows = [column for column in table["rows"] if column in varied - {"data"}]
    lines = list(table["columns"])
    if rows == ["offsets"] or (rows and not varied & set(lines)):
        lines = rows
    panels = ["data"] if "data" in varied and "data" not in lines else []
    known = [*table["groups"], *table["rows"], *table["columns"]]
    others = sorted(cells[0], key=lambda c: known.index(c) if c in known else len(known))
    return lines, [*panels, *telling_apart(cells, [*lines, *panels], others)]


def _metric(
    store: Store, experiment: str, finished: pd.DataFrame, asked: str | None, usual: str | None
) -> str:
    """Return the metric to draw; an error lists the columns that there are."""
    firsts = finished.drop_duplicates("run_id")  # the first finished trial of each cell
    trials = zip(firsts["run_id"], firsts["trial"], strict=True)
    frames = (read(*trial) for trial in trials for read in (store.curve, store.records))
    known = dict.fromkeys(c for frame in frames for c in frame if c not in ("update", "epoch"))
    metric = asked or usual
    if metric in known:
        return metric
    there = f"there are {', '.join(known)}" if known else "nothing was evaluated or recorded"
    if asked:
        raise CbmError(f"--metric {asked}: no column of the curves or the records; {there}")
    what = metric or "likelihood or cost"
    remedy = f"; --metric: {there}" if known else ""
    raise IncompleteError(f"{experiment}: the results hold no {what} to draw{remedy}")


def _curve(
    store: Store,
    manifest: Mapping[str, Any],
    cell: CellSettings,
    rows: pd.DataFrame,
    axes: tuple[list[str], list[str]],
    metric: Metric,
) -> Curve | None:
    """Return the curve of a cell, or None if no finished trial has a finite value of the metric."""
    known, lost = [], []
    for trial, diverged in zip(rows["trial"], rows["diverged"].notna(), strict=True):
        frames = (read(cell["run_id"], trial) for read in (store.curve, store.records))
        if (frame := next((frame for frame in frames if metric.column in frame), None)) is not None:
            known.append(frame.set_index("update")[metric.column])
            lost.append(diverged)
    if not known:
        return None
    updates = sorted({update for one in known for update in one.index})
    held = [
        one.reindex(updates, method=None if gone else "ffill") for one, gone in zip(known, lost, strict=True)
    ]
    trials = pd.concat(held, axis=1)
    total = manifest["table"]["scale"] == "total" and metric.better
    scale = float(rows[f"n_{metric.part}"].iloc[0]) if total else 1.0
    finite = trials.where(np.isfinite(trials)).dropna(how="all") * scale
    if finite.empty:
        return None
    bound = (manifest.get("upper_bounds") or {}).get(cell["data"]) if metric.better > 0 else None
    return Curve(
        *(key_of(cell, columns) for columns in axes),
        cell["data"],
        metric,
        finite,
        None if bound is None else bound * scale,
        diverged=sum(lost),
        stopped=sum(len(one) < len(updates) for one, gone in zip(known, lost, strict=True) if not gone),
        gaps=int((finite.isna().any().to_numpy() & ~np.array(lost)).sum()),
    )
