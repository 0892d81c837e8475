"""Evaluating machines that are already trained; columns are added to their results."""

from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cbm_cli.datasets.catalogue import load
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.grid.settings import Data
from cbm_cli.machines.files import Layered, read_machine
from cbm_cli.machines.likelihood import OF_MACHINE, Method, evaluate, parts_of
from cbm_cli.machines.threads import one_thread
from cbm_cli.results import Store

_QUANTITIES = ("log_likelihood", "lower_bound", "tighter_bound")
_OF_PARTS = tuple(f"{name}{end}" for name in _QUANTITIES for end in ("", "_at_most"))


class Evaluated(NamedTuple):
    """What came of the evaluation of a trial."""

    cell: dict[str, Any]  # settings with run_id
    number: int
    columns: dict[str, float]  # new ones; none of auto encoders
    diverged: bool = False
    problem: str = ""  # why it could not be evaluated


def evaluate_trials(
    store: Store, method: Method, manifest: Mapping[str, Any] | None = None
) -> Generator[Evaluated, None, None]:
    """Evaluate every finished trial on all parts of its data, and add columns to its results.

    ``manifest`` is the store's with some of its cells, by default with all.

    Columns are named ``<part>_log_likelihood_<method>``, ``<part>_lower_bound_<method>``, ``<method>_log_z``
    and so on. Trials of auto encoders have none: they have no likelihood, and their costs are known. Trials
    that have diverged or are damaged are left out. The summary is rewritten at the end, also if the
    evaluation is interrupted.
    """
    store.begin()
    loaded: dict[Data, Dataset] = {}
    manifest = manifest or store.manifest()
    try:
        for cell in manifest["cells"]:
            fields = {name: cell[f"data_{name}"] for name in Data.model_fields if f"data_{name}" in cell}
            spec, run_id = Data(**fields), cell["run_id"]
            if spec not in loaded:
                loaded[spec] = load(**spec.model_dump(), folder=manifest.get("grid_folder", ""))
                if loaded[spec].digest not in manifest.get("digests", {}).get(
                    spec.title, [loaded[spec].digest]
                ):
                    told = (
                        "has other rows than those of its trials; name the folder of the right ones by --data"
                    )
                    raise CbmError(f"{store.experiment}: {spec.title}: {told}", "changed")
            for number in sorted(store.finished(run_id)):
                yield _evaluated(store, cell, number, loaded[spec], method)
    finally:
        store.finish()


def _evaluated(store: Store, cell: dict[str, Any], number: int, data: Dataset, method: Method) -> Evaluated:
    run_id = cell["run_id"]
    if (store.row(run_id, number) or {})["diverged"] is not None:
        return Evaluated(cell, number, {}, diverged=True)
    try:
        name, content = store.machine(run_id, number)
        machine = read_machine(name, content)
    except CbmError as error:
        return Evaluated(cell, number, {}, problem=str(error))
    columns = _columns(machine, data, method, name)
    if columns:
        store.add_columns(run_id, number, columns)
    return Evaluated(cell, number, columns)


def _columns(machine: Layered, data: Dataset, method: Method, path: Path) -> dict[str, float]:
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
