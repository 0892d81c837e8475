"""Evaluating machines that are already trained; columns are added to their results."""

import threading
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.datasets.loading import load_again
from cbm_cli.errors import CbmError
from cbm_cli.execution.dispatch import stopped_by_signals
from cbm_cli.execution.engines import in_process, on_local_workers
from cbm_cli.execution.jobs import Key
from cbm_cli.execution.observe import Observer
from cbm_cli.execution.worker import Failure
from cbm_cli.grid.settings import Data
from cbm_cli.machines.estimates import ShouldStop
from cbm_cli.machines.files import Layered, read_machine
from cbm_cli.machines.likelihood import OF_MACHINE, Method, evaluate, parts_of
from cbm_cli.machines.threads import one_thread
from cbm_cli.results import Progress, Store

_QUANTITIES = ("log_likelihood", "lower_bound", "pseudo_likelihood")
_OF_PARTS = tuple(f"{name}{end}" for name in _QUANTITIES for end in ("", "_at_most"))
_STALL = 3600.0  # seconds: an exact sum of 2^30 states gives no sign of life

Columns = dict[str, Any]


class Evaluated(NamedTuple):
    """What came of the evaluation of a trial."""

    cell: dict[str, Any]  # settings with run_id
    number: int
    columns: Columns  # new ones; none of auto encoders
    diverged: bool = False
    problem: str = ""  # why it could not be evaluated
    before: bool = False  # it had been evaluated in the same way before


class _Evaluation(NamedTuple):
    """What a worker does in the place of a training."""

    number: int
    method: Method

    def run(self, data: Dataset, machine: tuple[str, bytes] | CbmError, should_stop: ShouldStop) -> Columns:
        if isinstance(machine, CbmError):
            raise machine
        name, content = machine
        return _columns(read_machine(Path(name), content), data, self.method, name, should_stop)


class _Job(NamedTuple):
    """A trial to evaluate, in the form of a `jobs.Job`; its machine is read when a worker is free."""

    store: Store
    cell: dict[str, Any]
    data: Dataset
    trial: _Evaluation
    sources: Mapping[str, str]
    row: Columns  # what is known of the trial

    @property
    def run_id(self) -> str:
        return self.cell["run_id"]

    @property
    def key(self) -> Key:
        return self.run_id, self.trial.number

    def since(self) -> tuple[str, bytes] | CbmError:
        try:
            name, content = self.store.machine(*self.key)
        except CbmError as error:
            return error
        return str(name), content


def evaluate_trials(
    store: Store,
    method: Method,
    manifest: Mapping[str, Any] | None = None,
    *,
    workers: int = 0,
    again: bool = False,
) -> Generator[Evaluated, None, None]:
    """Evaluate every finished trial on all parts of its data, and add columns to its results.

    Columns are named ``<part>_log_likelihood_<method>``, ``<part>_lower_bound_<method>``, ``<method>_log_z``
    and so on; those of `Method.facts` say how the values were made. Trials of auto encoders have none: they
    have no likelihood, and their costs are known. Trials that have diverged or are damaged are left out.
    Those that were evaluated before with the same facts come first and stay as they are, unless ``again``:
    an evaluation that was interrupted goes on where it stopped. ``manifest`` is the store's with some of its
    cells, by default with all. The summary is rewritten at the end, also of an interrupted one, which raises
    KeyboardInterrupt.
    """
    store.begin()
    jobs, stopping = [], threading.Event()
    try:
        for one in _planned(store, method, manifest or store.manifest(), again):
            if isinstance(one, _Job):
                jobs.append(one)
            else:
                yield one
        with stopped_by_signals(stopping):
            yield from _evaluated(store, jobs, stopping, workers)
    finally:
        store.finish()
    if stopping.is_set():
        raise KeyboardInterrupt


def _planned(
    store: Store, method: Method, manifest: Mapping[str, Any], again: bool
) -> Generator[Evaluated | _Job, None, None]:
    """What is known of trials, and what has to be done for the others."""
    loaded = dict[Data, Dataset]()
    for cell in manifest["cells"]:
        numbers = sorted(store.finished(cell["run_id"]))
        rows = {row["trial"]: row for row in store.rows((cell["run_id"], number) for number in numbers)}
        fields = {name: cell[f"data_{name}"] for name in Data.model_fields if f"data_{name}" in cell}
        spec, facts = Data(**fields), method.facts(cell["model_kind"] == "dbm")
        for number in numbers:
            row = rows.get(number, {})
            if row.get("diverged") is not None:
                yield Evaluated(cell, number, {}, diverged=True)
            elif cell["model_kind"] == "auto-encoder":
                yield Evaluated(cell, number, {})
            elif not again and facts.items() <= row.items():
                how = method.name or "exact"
                own = (name for name in row if name.endswith(f"_{how}") or name.startswith(f"{how}_"))
                yield Evaluated(cell, number, {name: row[name] for name in own}, before=True)
            else:
                if spec not in loaded:
                    loaded[spec] = load_again(spec, manifest)
                yield _Job(store, cell, loaded[spec], _Evaluation(number, method), {}, row)


def _evaluated(
    store: Store, jobs: Sequence[Any], stopping: threading.Event, workers: int
) -> Generator[Evaluated, None, None]:
    """Let workers, or this process, evaluate; write and yield what they find."""
    observer, workers = Observer(), min(workers, len(jobs))
    engine = in_process(jobs, observer, stopping)
    if workers > 1:
        engine = on_local_workers(jobs, observer, stopping, workers, _STALL)
    for job, result in engine:
        number = job.trial.number  # type: ignore[union-attr]
        if isinstance(result, Failure):
            damaged = isinstance(job.since(), CbmError)
            problem = result.message + "; cbm run makes damaged trials anew" * damaged
            yield Evaluated(job.cell, number, {}, problem=problem)  # type: ignore[attr-defined]
        elif not isinstance(result, Progress):
            store.add_columns(job.run_id, number, result)  # type: ignore[arg-type]
            yield Evaluated(job.cell, number, result)  # type: ignore[attr-defined, arg-type]


def _columns(machine: Layered, data: Dataset, method: Method, name: str, should_stop: ShouldStop) -> Columns:
    with one_thread():
        run = name.rpartition(":")[0]  # what is wrong with all of its trials is told in the same words
        common, by_part = evaluate(machine, parts_of(data, method), method, run, should_stop)
    how, columns = common["method"], {}
    for part, answer in by_part.items():
        for name in filter(answer.__contains__, _OF_PARTS):
            columns[f"{part}_{name}_{how}"] = answer[name]["mean"]
    of_machine = (*OF_MACHINE, "reverse_log_z", "doubtful")
    found = {f"{how}_{name}": float(common[name]) for name in of_machine if name in common}
    return columns | found | method.facts(machine.kind == "dbm")
