"""What is drawn of an experiment: the trials of each method, by line and panel."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
import pandas as pd

from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.results import Metric, Results, default_metric, measured

MOST_PANELS = 24

Cell = Mapping[str, Any]
Key = tuple[str, ...]


@dataclass(frozen=True)
class Curve:
    """One method in one panel.

    Attributes
    ----------
    line, panel : tuple of str
        Values of the columns that tell lines, and panels, apart.
    data : str
        Title of the data set.
    metric : Metric
    trials : DataFrame, (evaluations, trials)
        The metric, in the table's scale where it is one of likelihoods or costs, indexed by update. A trial
        that stopped early keeps its last value, one that diverged has none from there on.
    bound : float or None
        Upper bound in the same scale.
    stopped : int
        Trials that stopped before others.
    """

    line: Key
    panel: Key
    data: str
    metric: Metric
    trials: pd.DataFrame
    bound: float | None
    stopped: int

    @property
    def mean(self) -> pd.Series:
        """Mean over the trials that are finite."""
        return self.trials.mean(axis=1)

    @property
    def band(self) -> tuple[pd.Series, pd.Series]:
        """Quartiles over the trials; of what was recorded, a standard deviation to both sides of the mean.

        Likelihoods and costs have quartiles because one trial that diverges would stretch a standard
        deviation beyond the picture.
        """
        if self.metric.better:
            return self.trials.quantile(0.25, axis=1), self.trials.quantile(0.75, axis=1)
        deviation = self.trials.std(axis=1, ddof=1).fillna(0)  # of a single trial
        return self.mean - deviation, self.mean + deviation


@dataclass(frozen=True)
class Curves:
    """All that a figure shows: curves, and the columns whose values their lines and panels are named by."""

    curves: list[Curve]
    lines: list[str]
    panels: list[str]
    metric: Metric
    scale: str


def read_curves(results: Results, experiment: str, select: Mapping[str, str], metric: str | None) -> Curves:
    """Read what `plot_curves` draws; it lists the errors."""
    manifest = results.store(experiment).manifest()
    cells, table = _selected(manifest["cells"], select), manifest["table"]
    lines, panels = _axes(cells, table)
    count = len({_key(cell, panels) for cell in cells})
    if count > MOST_PANELS:
        raise CbmError(
            f"{count} panels are too many to read (at most {MOST_PANELS}); "
            f"select values of {', '.join(panels)}, as in --select {panels[0]}={_text(cells[0][panels[0]])}"
        )
    reader = _Reader(results, experiment)
    shown = Metric(reader.metric(cells, metric, table["metric"]))
    curves = [curve for cell in cells if (curve := _curve(reader, manifest, cell, lines, panels, shown))]
    if not curves:
        raise IncompleteError(f"{experiment}: {shown.column} has no finite value to draw")
    return Curves(curves, lines, panels, shown, table["scale"])


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else "" if value is None else str(value)


def _key(cell: Cell, columns: Iterable[str]) -> Key:
    return tuple(_text(cell[column]) for column in columns)


def _selected(cells: Sequence[Cell], select: Mapping[str, str]) -> list[Cell]:
    for column, wanted in select.items():
        if column not in cells[0]:
            near = get_close_matches(column, cells[0], n=1)
            raise CbmError(
                f"--select {column}: no such column"
                + (f"; did you mean {near[0]}?" if near else f"; there are {', '.join(cells[0])}")
            )
        values = list(dict.fromkeys(_text(cell[column]) for cell in cells))
        cells = [cell for cell in cells if _text(cell[column]) == wanted]
        if not cells:
            raise CbmError(f"--select {column}={wanted}: no such value; there are {', '.join(values)}")
    return list(cells)


def _axes(cells: Sequence[Cell], table: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Columns that tell lines apart, and as few others as tell panels apart; data sets never share a panel.

    Lines are the table's columns; its rows where only those vary, or where they are the schemes.
    """
    varied = {column for column in cells[0] if len({_text(cell[column]) for cell in cells}) > 1}
    rows = [column for column in table["rows"] if column in varied - {"data"}]
    lines = list(table["columns"])
    if rows == ["offsets"] or (rows and not varied & set(lines)):
        lines = rows
    panels = ["data"] if "data" in varied and "data" not in lines else []
    others = [c for c in cells[0] if c not in {"run_id", "data", *lines}]
    known = [*table["groups"], *table["rows"], *table["columns"]]
    for column in sorted(others, key=lambda c: known.index(c) if c in known else len(known)):
        before = {_key(cell, [*lines, *panels]) for cell in cells}
        if len({_key(cell, [*lines, *panels, column]) for cell in cells}) > len(before):
            panels.append(column)
    return lines, panels


class _Reader:
    """The finished trials of an experiment, and the columns of their curves and records."""

    def __init__(self, results: Results, experiment: str) -> None:
        self.store, self.experiment = results.store(experiment), experiment
        self.summary = self.store.summary()
        if self.summary.empty:
            raise IncompleteError(f"{experiment}: no finished trial yet; start with `cbm run`")

    def rows(self, cell: Cell) -> pd.DataFrame:
        """The finished trials of a cell: rows of ``summary.csv``."""
        return self.summary[self.summary["run_id"] == cell["run_id"]]

    def metric(self, cells: Sequence[Cell], asked: str | None, of_table: str | None) -> str:
        """The metric to draw; an error that lists the columns that there are, where it is not one of them."""
        if all(self.rows(cell).empty for cell in cells):
            raise IncompleteError(
                f"{self.experiment}: no finished trial of what is selected; start with `cbm run`"
            )
        metric = asked or of_table or default_metric(measured(self.summary))
        known = list(dict.fromkeys(column for cell in cells for column in self._columns(cell)))
        if metric in known:
            return metric
        there = f"there are {', '.join(known)}" if known else "nothing was evaluated or recorded"
        if asked:
            raise CbmError(f"--metric {asked}: no column of the curves or the records; {there}")
        what = metric or "likelihood or cost"
        raise IncompleteError(
            f"{self.experiment}: the results hold no {what} to draw" + f"; --metric: {there}" * bool(known)
        )

    def _columns(self, cell: Cell) -> list[str]:
        """What the curve and the records of a cell's first finished trial hold."""
        trials = self.rows(cell)["trial"].head(1)
        frames = [frame for trial in trials for frame in self._frames(cell, trial)]
        return [column for frame in frames for column in frame if column not in ("update", "epoch")]

    def _frames(self, cell: Cell, trial: int) -> Iterator[pd.DataFrame]:
        for read in (self.store.curve, self.store.records):
            yield read(cell["run_id"], trial)

    def trials(self, cell: Cell, metric: str) -> tuple[pd.DataFrame, int] | None:
        """The metric by update and trial, and how many trials stopped before others, or None without any.

        A trial that stopped early keeps its last value, one that diverged has none.
        """
        found = [
            (self._series(cell, trial, metric), lost)
            for trial, lost in self.rows(cell).set_index("trial")["diverged"].notna().items()
        ]
        known = [(one, lost) for one, lost in found if one is not None]
        if not known:
            return None
        updates = sorted({update for one, _ in known for update in one.index})
        held = [one.reindex(updates, method=None if lost else "ffill") for one, lost in known]
        return pd.concat(held, axis=1), sum(len(one) < len(updates) for one, lost in known if not lost)

    def _series(self, cell: Cell, trial: int, metric: str) -> pd.Series | None:
        frames = (frame for frame in self._frames(cell, trial) if metric in frame)
        return next((frame.set_index("update")[metric] for frame in frames), None)


def _curve(
    reader: _Reader,
    manifest: Mapping[str, Any],
    cell: Cell,
    lines: Sequence[str],
    panels: Sequence[str],
    metric: Metric,
) -> Curve | None:
    """The curve of a cell, or None where no finished trial of it has a finite value of the metric."""
    found = reader.trials(cell, metric.column)
    if found is None:
        return None
    trials, stopped = found
    total = manifest["table"]["scale"] == "total" and metric.better
    scale = float(reader.rows(cell)[f"n_{metric.part}"].iloc[0]) if total else 1.0
    finite = trials.where(np.isfinite(trials)).dropna(how="all") * scale
    if finite.empty:
        return None
    bound = (manifest.get("upper_bounds") or {}).get(cell["data"]) if metric.better > 0 else None
    scaled = None if bound is None else bound * scale
    return Curve(_key(cell, lines), _key(cell, panels), cell["data"], metric, finite, scaled, stopped)
