"""The content of a figure of learning curves: the trials of each method, by line and panel."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    finished = (
        summary[summary["run_id"].isin([cell["run_id"] for cell in cells])] if len(summary) else summary
    )
    if finished.empty:
        what = " of what is selected" if len(summary) else " yet"
        raise IncompleteError(f"{experiment}: no finished trial{what}; start with `cbm run`")
    reader = _Reader(store, experiment, finished)
    shown = Metric(reader.metric(metric, table["metric"] or default_metric(measured(summary))))
    curves = [curve for cell in cells if (curve := _curve(reader, manifest, cell, lines, panels, shown))]
    if not curves:
        raise IncompleteError(f"{experiment}: {shown.column} has no finite value to draw")
    return Curves(curves, lines, panels, shown, table["scale"])


def _axes(cells: Sequence[CellSettings], table: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return columns that tell lines apart, and as few others as tell panels apart.

    Lines are the table's columns; its rows where only those vary, or where they are the schemes. Data sets
    never share a panel.
    """
    varied = {column for column in cells[0] if len({text_of(cell[column]) for cell in cells}) > 1}
    rows = [column for column in table["rows"] if column in varied - {"data"}]
    lines = list(table["columns"])
    if rows == ["offsets"] or (rows and not varied & set(lines)):
        lines = rows
    panels = ["data"] if "data" in varied and "data" not in lines else []
    known = [*table["groups"], *table["rows"], *table["columns"]]
    others = sorted(cells[0], key=lambda c: known.index(c) if c in known else len(known))
    return lines, [*panels, *telling_apart(cells, [*lines, *panels], others)]


@dataclass(frozen=True)
class _Reader:
    """The finished trials of an experiment, with their curves and records."""

    store: Store
    experiment: str
    summary: pd.DataFrame

    def rows(self, cell: CellSettings) -> pd.DataFrame:
        """Return the rows of ``summary.csv`` of a cell's trials."""
        return self.summary[self.summary["run_id"] == cell["run_id"]]

    def metric(self, asked: str | None, usual: str | None) -> str:
        """Return the metric to draw; an error lists the columns that there are."""
        firsts = self.summary.drop_duplicates("run_id")  # the first finished trial of each cell
        frames = [f for run, trial in zip(firsts["run_id"], firsts["trial"], strict=True)
                  for f in self._frames(run, trial)]  # fmt: skip
        known = dict.fromkeys(c for frame in frames for c in frame if c not in ("update", "epoch"))
        metric = asked or usual
        if metric in known:
            return metric
        there = f"there are {', '.join(known)}" if known else "nothing was evaluated or recorded"
        if asked:
            raise CbmError(f"--metric {asked}: no column of the curves or the records; {there}")
        what = metric or "likelihood or cost"
        raise IncompleteError(
            f"{self.experiment}: the results hold no {what} to draw" + f"; --metric: {there}" * bool(known)
        )

    def _frames(self, run_id: str, trial: int) -> Iterator[pd.DataFrame]:
        for read in (self.store.curve, self.store.records):
            yield read(run_id, trial)

    def trials(self, cell: CellSettings, metric: str) -> tuple[pd.DataFrame, list[bool], int] | None:
        """Return the metric by update and trial, which trials diverged, and how many stopped early."""
        known = []
        for trial, lost in self.rows(cell).set_index("trial")["diverged"].notna().items():
            frames = (frame for frame in self._frames(cell["run_id"], trial) if metric in frame)
            if (frame := next(frames, None)) is not None:
                known.append((frame.set_index("update")[metric], lost))
        if not known:
            return None
        updates = sorted({update for one, _ in known for update in one.index})
        held = [one.reindex(updates, method=None if lost else "ffill") for one, lost in known]
        stopped = sum(len(one) < len(updates) for one, lost in known if not lost)
        return pd.concat(held, axis=1), [lost for _, lost in known], stopped


def _curve(
    reader: _Reader,
    manifest: Mapping[str, Any],
    cell: CellSettings,
    lines: Sequence[str],
    panels: Sequence[str],
    metric: Metric,
) -> Curve | None:
    """Return the curve of a cell, or None if no finished trial has a finite value of the metric."""
    found = reader.trials(cell, metric.column)
    if found is None:
        return None
    trials, lost, stopped = found
    total = manifest["table"]["scale"] == "total" and metric.better
    scale = float(reader.rows(cell)[f"n_{metric.part}"].iloc[0]) if total else 1.0
    finite = trials.where(np.isfinite(trials)).dropna(how="all") * scale
    if finite.empty:
        return None
    bound = (manifest.get("upper_bounds") or {}).get(cell["data"]) if metric.better > 0 else None
    scaled = None if bound is None else bound * scale
    gaps = int((finite.isna().any().to_numpy() & ~np.array(lost)).sum())
    places = key_of(cell, lines), key_of(cell, panels)
    return Curve(*places, cell["data"], metric, finite, scaled, sum(lost), stopped, gaps)
