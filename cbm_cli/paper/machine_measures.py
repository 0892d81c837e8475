"""Numbers of trained machines that findings compare.

This is the one module of the room that reads machines and data sets, since they are what it measures.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from cbm_cli.datasets.catalogue import load
from cbm_cli.datasets.spec import spec_of
from cbm_cli.errors import CbmError
from cbm_cli.machines import representations
from cbm_cli.machines.files import Layered, read_machine
from cbm_cli.results import Store
from cbm_cli.results.inventory import CellSettings

_ROWS = 1_000  # of the training data, enough for a mean activity
_load = cache(load)


def filter_correlation(machine: Layered, store: Store, cell: CellSettings) -> float:
    """Return the mean absolute correlation of two filters of the last hidden layer (Fig. 15)."""
    rows = representations.filters(machine)[-1].astype(float)
    pairs = np.corrcoef(rows)[np.triu_indices(len(rows), 1)]
    return float(np.abs(pairs).mean())


def activity_spread(machine: Layered, store: Store, cell: CellSettings) -> float:
    """Return the standard deviation over the last hidden layer's units of their mean activity (Fig. 16)."""
    data = _load(spec_of(cell), folder=store.manifest().get("grid_folder", ""))
    layers, _ = representations.represent(machine, data.train[:_ROWS], 1 / data.levels)
    return float(representations.mean_activity(layers)[-1].std())


_MEASURES: dict[str, Callable[[Layered, Store, CellSettings], float]] = {
    "filter correlation": filter_correlation,
    "activity spread": activity_spread,
}


def machine_measure(name: str, store: Store, run_id: str, trial: int) -> float:
    """Return a number of the machine of a trial; NaN where the machine or its data cannot be read."""
    cell = next(cell for cell in store.manifest()["cells"] if cell["run_id"] == run_id)
    try:
        with np.errstate(invalid="ignore", divide="ignore"):  # filters of zeros have no correlation
            return _MEASURES[name](read_machine(*store.machine(run_id, trial)), store, cell)
    except CbmError:
        return math.nan
