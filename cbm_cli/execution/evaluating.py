"""Evaluating machines that are already trained; columns are added to their results."""

from collections.abc import Iterator
from typing import Any

from cbm_cli.datasets.catalogue import load
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.grid.settings import Data
from cbm_cli.machines.files import read_machine
from cbm_cli.machines.likelihood import OF_MACHINE, Method, evaluate, parts_of
from cbm_cli.machines.threads import one_thread
from cbm_cli.results import Store

_OF_PARTS = ("log_likelihood", "lower_bound", "tighter_bound")
Evaluated = tuple[dict[str, Any], int, dict[str, float]]  # settings with run_id, trial number, new columns


def evaluate_trials(store: Store, method: Method) -> Iterator[Evaluated]:
    """Evaluate every finished trial on all parts of its data; yield its cell, its number and its new columns.

    Columns are named ``<part>_log_likelihood_<method>``, ``<part>_lower_bound_<method>``, ``<method>_log_z``
    and so on. Trials of auto encoders have none: they have no likelihood, and their costs are known. The
    summary is rewritten at the end, also if the evaluation is interrupted.
    """
    loaded: dict[Data, Dataset] = {}
    manifest = store.manifest()
    try:
        for cell in manifest["cells"]:
            fields = {name: cell[f"data_{name}"] for name in Data.model_fields if f"data_{name}" in cell}
            spec, run_id = Data(**fields), cell["run_id"]
            if spec not in loaded:
                loaded[spec] = load(**spec.model_dump(), folder=manifest.get("grid_folder", ""))
            for number in sorted(store.finished(run_id)):
                columns = _columns(store, run_id, number, loaded[spec], method)
                if columns:
                    store.add_columns(run_id, number, columns)
                yield cell, number, columns
    finally:
        store.pack()
        store.write_summary()


def _columns(store: Store, run_id: str, number: int, data: Dataset, method: Method) -> dict[str, float]:
    path = store.path(run_id, number, ".npz")
    machine = read_machine(path)
    if machine.kind == "auto-encoder":
        return {}
    with one_thread():
        common, by_part = evaluate(machine, parts_of(data, method), method, str(path))
    how, columns = common["method"], {}
    for part, answer in by_part.items():
        for name in filter(answer.__contains__, _OF_PARTS):
            columns[f"{part}_{name}_{how}"] = answer[name]["mean"]
            if "standard_error" in answer[name]:
                columns[f"{part}_{name}_standard_error_{how}"] = answer[name]["standard_error"]
    of_machine = (*OF_MACHINE, "reverse_log_z")
    return columns | {f"{how}_{name}": common[name] for name in of_machine if name in common}
