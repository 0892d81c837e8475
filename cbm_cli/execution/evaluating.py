"""Evaluating machines that are already trained: columns are added to their results, none is lost."""

from collections.abc import Iterator
from typing import Any

from cbm_cli.datasets import Dataset, load
from cbm_cli.grid.settings import Data
from cbm_cli.machines.files import read_machine
from cbm_cli.machines.likelihood import OF_MACHINE, Answer, Method, evaluate, parts_of
from cbm_cli.machines.threads import one_thread
from cbm_cli.results import Store

_OF_PARTS = ("log_likelihood", "lower_bound", "tighter_bound")


def evaluate_trials(store: Store, method: Method) -> Iterator[tuple[str, dict[str, float]]]:
    """Evaluate every finished trial on all parts of its data; yield its title and the columns it gained.

    Columns are named ``<part>_log_likelihood_<method>``, ``<part>_lower_bound_<method>``, ``<method>_log_z``
    and the like. Trials of auto encoders gain none: they have no likelihood, and their costs are there.

    Raises
    ------
    CbmError
        When a data set is missing, a machine is too large for an exact sum, or the method is not for it.
    """
    loaded: dict[Data, Dataset] = {}
    manifest = store.manifest()
    for cell in manifest["cells"]:
        spec = Data(**{name: cell[f"data_{name}"] for name in Data.model_fields if f"data_{name}" in cell})
        if spec not in loaded:
            loaded[spec] = load(**spec.model_dump(), folder=manifest.get("grid_folder", ""))
        for number in sorted(store.finished(cell["run_id"])):
            columns = _columns(store, cell, number, loaded[spec], method)
            if columns:
                store.add_columns(cell["run_id"], number, columns)
            yield f"{cell['run_id']} {number}", columns
    store.write_summary()


def _columns(
    store: Store, cell: dict[str, Any], number: int, data: Dataset, method: Method
) -> dict[str, float]:
    path = store.path(cell["run_id"], number, ".npz")
    machine = read_machine(path)
    if machine.kind == "auto-encoder":
        return {}
    with one_thread():
        common, by_part = evaluate(machine, parts_of(data, method), method, str(path))
    how = common["method"]
    columns: dict[str, float] = {}
    for part, answer in by_part.items():
        columns |= _of_part(part, answer, how)
    return columns | {
        f"{how}_{name}": common[name] for name in (*OF_MACHINE, "reverse_log_z") if name in common
    }


def _of_part(part: str, answer: Answer, how: str) -> dict[str, float]:
    columns = {}
    for name in filter(answer.__contains__, _OF_PARTS):
        columns[f"{part}_{name}_{how}"] = answer[name]["mean"]
        if "standard_error" in answer[name]:
            columns[f"{part}_{name}_standard_error_{how}"] = answer[name]["standard_error"]
    return columns
