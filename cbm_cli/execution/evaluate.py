"""Evaluating machines that are already trained; columns are added to their results."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from cbm_cli.datasets.dataset import PARTS, Dataset
from cbm_cli.datasets.loading import load_again
from cbm_cli.errors import CbmError, DamagedError
from cbm_cli.execution.spread import Task, spread
from cbm_cli.execution.work import Failure, Say
from cbm_cli.grid.settings import Data
from cbm_cli.kernels.sharing import using_cores
from cbm_cli.machines import streams
from cbm_cli.machines.estimates import ShouldStop
from cbm_cli.machines.files import read_machine
from cbm_cli.machines.likelihood import OF_MACHINE, Method, evaluate, parts_of
from cbm_cli.machines.threads import one_thread
from cbm_cli.results import Store
from cbm_cli.results.journal import Manifest, Run
from cbm_cli.results.writer import Writer, check_place

_OF_PARTS = (
    "log_likelihood",
    "log_likelihood_at_most",
    "lower_bound",
    "lower_bound_at_most",
    "pseudo_likelihood",
)
_OF_MACHINE = (*OF_MACHINE, "log_z_at_most", "doubtful")


@dataclass(frozen=True)
class Evaluated:
    """What came of the evaluation of a trial."""

    run: Run
    number: int
    # New columns, or those from before; none of auto encoders
    columns: dict[str, Any] = field(default_factory=dict)
    diverged: bool = False
    problem: str = ""  # why it could not be evaluated
    before: bool = False  # it had been evaluated in the same way before


def evaluate_trials(
    writer: Writer,
    method: Method,
    manifest: Manifest | None = None,
    *,
    workers: int = 0,
    again: bool = False,
    say: Say = print,
) -> Generator[Evaluated, None, None]:
    """Evaluate every finished trial on all parts of its data, and add columns to its
    results.

    Columns are named ``<part>_log_likelihood_<method>``,
    ``<part>_lower_bound_<method>``, ``<method>_log_z`` and so on; `Method.facts`
    describes how the values were made. Trials of auto encoders have none: they have no
    likelihood, and their costs are known. Trials that have diverged or are damaged are
    left out. Those that were evaluated before come first and stay as they are, unless
    ``again``: an evaluation that was interrupted goes on where it stopped, and values
    that were made with other facts are not replaced. ``manifest`` is the store's with
    some of its cells, by default with all. ``say`` hears of lost workers. The summary
    is rewritten at the end, also of an interrupted one, which raises KeyboardInterrupt.
    """
    store = writer.store
    check_place(store)
    tasks: list[Task] = []
    try:
        for plan in _planned(store, method, manifest or store.manifest(), again):
            if isinstance(plan, Task):
                tasks.append(plan)
            else:
                yield plan
        for task in tasks:
            _, number = task.about
            task.content = method, number, max(1, workers // len(tasks))
        # A single trial has all cores, in this process
        processes = min(workers, len(tasks)) if len(tasks) > 1 else 0
        for task, result in spread(_columns, [tasks], say, processes):
            run, number = task.about
            if isinstance(result, Failure):
                yield Evaluated(run, number, problem=result.message)
                continue
            old = _columns_of(method, store.line(run.run_id, number).row)
            writer.replace_columns(run.run_id, number, new=result, old=old)
            yield Evaluated(run, number, result)
    finally:
        writer.finish()


def _machine(store: Store, run_id: str, number: int) -> tuple[Path, bytes]:
    """Return the name and the file of a machine; CbmError says what helps."""
    try:
        return store.machine(run_id, number)
    except DamagedError as error:
        raise CbmError(f"{error}; cbm run repeats damaged trials") from None


def _planned(
    store: Store, method: Method, manifest: Manifest, again: bool
) -> Generator[Evaluated | Task, None, None]:
    """Finished values of trials, and the tasks for the others."""
    datasets: dict[Data, Dataset] = {}
    for run in manifest.cells:
        spec, kind = run.settings.data, run.settings.model.kind
        facts = method.facts(kind == "dbm")
        for row in store.rows([run.run_id]):
            number = row["trial"]
            if row.get("diverged") is not None:
                yield Evaluated(run, number, diverged=True)
            elif kind == "auto-encoder":
                yield Evaluated(run, number)
            elif again or not facts.keys() & row.keys():
                if spec not in datasets:
                    folder, digests = manifest.grid_folder, manifest.digests
                    datasets[spec] = load_again(spec, folder, digests)
                machine = partial(_machine, store, run.run_id, number)
                yield Task((run, number), method, datasets[spec], machine)
            elif facts.items() <= row.items():
                before = _columns_of(method, row)
                yield Evaluated(run, number, columns=before, before=True)
            else:
                problem = (
                    "it has values that were made in another way "
                    f"({_differences(facts, row)}); --again replaces them"
                )
                yield Evaluated(run, number, problem=problem)


def _columns_of(method: Method, row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that evaluations by a method have added to a row."""
    name = method.name or "exact"
    names = {f"{part}_{quantity}_{name}" for part in PARTS for quantity in _OF_PARTS}
    names |= {f"{name}_{quantity}" for quantity in _OF_MACHINE}
    names |= method.facts(is_deep=False).keys()
    return {column: value for column, value in row.items() if column in names}


def _differences(facts: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """Say in which facts the values of a row differ from those of a new evaluation."""
    words = []
    for column, fact in facts.items():
        _, _, name = column.partition("_")
        before = row.get(column, "not known")
        if before != fact:
            words.append(f"{name} {before}, now {fact}")
    return "; ".join(words)


def _columns(
    content: tuple[Method, int, int],
    machine_file: tuple[Path, bytes],
    data: Dataset,
    _: ShouldStop,
    should_stop: ShouldStop,
) -> dict[str, Any]:
    """Evaluate a machine on some cores: what a worker does.

    Trials of one cell have different random numbers, so that their errors are
    independent; trials of the same number have the same ones in all cells.
    """
    method, number, cores = content
    path, npz = machine_file
    machine = read_machine(path, npz)
    seed = streams.seed_of(method.seed, streams.EVALUATIONS, number)
    # A reason that all trials of a run share is printed once
    run = str(path).rpartition(":")[0]
    with one_thread(), using_cores(cores):
        common, by_part = evaluate(
            machine,
            parts_of(data, method),
            method=replace(method, seed=seed),
            place=run,
            should_stop=should_stop,
        )
    name = common["method"]
    columns = {}
    for part, answer in by_part.items():
        for quantity in _OF_PARTS:
            if quantity in answer:
                columns[f"{part}_{quantity}_{name}"] = answer[quantity]["mean"]
    for quantity in _OF_MACHINE:
        if quantity in common:
            columns[f"{name}_{quantity}"] = float(common[quantity])
    return columns | method.facts(machine.kind == "dbm")
