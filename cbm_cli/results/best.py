"""The best machine of each data set and part."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.results.cells import Cell, Measure, Trials, make_cells
from cbm_cli.results.inventory import axes_of
from cbm_cli.results.metrics import Metric, default_metric, measured
from cbm_cli.results.store import Store
from cbm_cli.text import did_you_mean, text_of

if TYPE_CHECKING:
    import pandas as pd


def best_machines(
    store: Store, manifest: Mapping[str, Any] | None = None, metric: str | None = None
) -> list[dict[str, Any]]:
    """Return the name or file of the best machine for each data set and each part of it that was evaluated.

    On the validation part, the machines at the best validation value of each trial are compared by it; on
    other parts, or for another ``metric``, the machines at the end of training by its final value. The part
    that is usually shown comes first, a validation part before it. The machine is None where every trial on a
    data set has diverged. ``manifest`` is the store's with some of its cells, by default with all.
    """
    frame, manifest = store.summary(), manifest or store.manifest()
    if frame.empty:
        raise IncompleteError(f"{store.folder}: no trial is finished yet; start with: cbm run")
    trials = Trials(frame)
    sets: dict[tuple[str, ...], list[Cell]] = {}
    for cell in make_cells(trials, manifest, Measure(Metric(""))):
        of_data = (name for name in cell.settings if name.split("_")[0] == "data" and name != "data_phase")
        sets.setdefault(tuple(text_of(cell.settings[name]) for name in of_data), []).append(cell)
    axes = axes_of(manifest)
    found = [
        _best_of(store, [cell.measured(measure) for cell in cells], axes)
        for cells in sets.values()
        if (rows := np.concatenate([cell.rows for cell in cells])).size
        for measure in _deciding(frame.iloc[rows], manifest, metric)
    ]
    if not any(one["machine"] for one in found):
        raise IncompleteError(f"{store.folder}: every trial has diverged; no machine is the best")
    return found


def _best_of(store: Store, cells: Sequence[Cell], axes: Sequence[str]) -> dict[str, Any]:
    """Return the best machine of some cells by the values that they show."""
    metric, _, statistic = cells[0].measure
    about = {"data": cells[0].settings["data"], "part": metric.part, "machine": None, "metric": metric.column}
    values = [
        (metric.better * value, cell, trial)
        for cell in cells
        for trial, value in cell.values.items()
        if np.isfinite(value)
    ]
    if not values:
        return about
    value, cell, trial = max(values, key=lambda one: one[0])
    run_id = cell.settings["run_id"]
    at_best = statistic == "max" and store.has_best(run_id, trial)
    return about | {
        "machine": str(store.machine(run_id, trial, at_best)[0]),
        "run_id": run_id,
        "trial": trial,
        "value": metric.better * value,
        "when": "best validation" if at_best else "end of training",
        "settings": {axis: text_of(cell.settings[axis]) for axis in axes if axis in cell.settings},
    }


def _deciding(frame: "pd.DataFrame", manifest: Mapping[str, Any], asked: str | None) -> list[Measure]:
    """Return what decides which machine is the best: one measure for each part that was evaluated."""
    known = measured(frame)
    ranked = [name for name in known if Metric(name).better]
    if asked and asked not in known:
        raise CbmError(f"--metric: the results have no {asked}{did_you_mean(asked, known)}", "unknown")
    if asked and asked not in ranked:
        raise CbmError(
            f"--metric {asked}: neither more nor less of it is better; there are {', '.join(ranked)}",
            "unsuited",
        )
    valued = [name for name in measured(frame.dropna(axis=1, how="all")) if name in ranked]
    curves = [name for name in valued if f"{name}_final" in frame]
    watched = next((name for name in curves if Metric(name).part == "valid"), None)
    usual = [name for name in (asked, watched, manifest["table"]["metric"], default_metric(frame)) if name]
    first = next((name for name in usual if name in valued), next(iter(usual), None))
    if first not in ranked:
        raise IncompleteError("nothing was evaluated of which more or less is better")
    base = first.removeprefix(Metric(first).part)
    others = [f"{part}{base}" for part in ("test", "train", "valid")]
    names = [first] if asked else dict.fromkeys([first, *(name for name in others if name in curves)])
    return [Measure(Metric(name), statistic="max" if name == watched else "final") for name in names]
