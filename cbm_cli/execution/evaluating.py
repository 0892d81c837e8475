"""Evaluating machines that are already trained: columns are added to their results, none is lost."""

from collections.abc import Iterator
from typing import Any

from cbm_cli.datasets import Dataset, load
from cbm_cli.errors import CbmError
from cbm_cli.grid.settings import Data
from cbm_cli.results import Store, read_machine
from cbm_cli.trial.evaluation import Method, base_of, evaluate_machine

_NUMBERS = ("log_z", "log_z_standard_error", "effective_sample_size", "reverse_log_z")


def evaluate_trials(store: Store, method: Method) -> Iterator[tuple[str, dict[str, float]]]:
    """Evaluate every finished trial on all parts of its data; yield its title and the columns it gained.

    Columns are named ``<part>_log_likelihood_<method>`` and ``<method>_log_z`` and the like.

    Raises
    ------
    CbmError
        When a data set is missing, or a machine is too large for an exact sum.
    """
    loaded: dict[Data, Dataset] = {}
    manifest = store.manifest()
    for cell in manifest["cells"]:
        spec = Data(**{name: cell[f"data_{name}"] for name in Data.model_fields if f"data_{name}" in cell})
        if spec not in loaded:
            loaded[spec] = load(**spec.model_dump(), folder=manifest.get("grid_folder", ""))
        for number in sorted(store.finished(cell["run_id"])):
            columns = _columns(store, cell, number, loaded[spec], method)
            store.add_columns(cell["run_id"], number, columns)
            yield f"{cell['run_id']} {number}", columns
    store.write_summary()


def _columns(
    store: Store, cell: dict[str, Any], number: int, data: Dataset, method: Method
) -> dict[str, float]:
    path = store.path(cell["run_id"], number, ".npz")
    machine, base = read_machine(path), base_of(data, method.uniform_base)
    columns: dict[str, float] = {}
    for part, rows in data.parts.items():
        answer = evaluate_machine(machine, rows, 1 / data.levels, base, method, str(path))
        columns[f"{part}_log_likelihood_{method.name}"] = answer["log_likelihood"]["mean"]
        columns |= {f"{method.name}_{name}": answer[name] for name in _NUMBERS if name in answer}
    if not columns:
        raise CbmError(f"{path}: its data set has no rows")
    return columns
