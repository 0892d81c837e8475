"""Evaluating machines that are already trained; columns are added to their results."""

from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.datasets.loading import load_again
from cbm_cli.errors import CbmError
from cbm_cli.execution.pool import Task, spread
from cbm_cli.execution.work import Failure
from cbm_cli.grid.settings import Data
from cbm_cli.kernels.sharing import using_cores
from cbm_cli.machines.estimates import ShouldStop
from cbm_cli.machines.files import read_machine
from cbm_cli.machines.likelihood import OF_MACHINE, Method, evaluate, parts_of
from cbm_cli.machines.threads import one_thread
from cbm_cli.results import Store
from cbm_cli.results.journal import Manifest, Run

_QUANTITIES = ("log_likelihood", "lower_bound", "pseudo_likelihood")
_OF_PARTS = tuple(f"{name}{end}" for name in _QUANTITIES for end in ("", "_at_most"))


class Evaluated(NamedTuple):
    """What came of the evaluation of a trial."""

    run: Run
    number: int
    columns: dict[str, Any]  # new ones; none of auto encoders
    diverged: bool = False
    problem: str = ""  # why it could not be evaluated
    before: bool = False  # it had been evaluated in the same way before


def evaluate_trials(
    store: Store,
    method: Method,
    manifest: Manifest | None = None,
    *,
    workers: int = 0,
    again: bool = False,
    say: Callable[[str], None] = lambda message: None,
) -> Generator[Evaluated, None, None]:
    """Evaluate every finished trial on all parts of its data, and add columns to its
    results.

    Columns are named ``<part>_log_likelihood_<method>``,
    ``<part>_lower_bound_<method>``, ``<method>_log_z`` and so on; `Method.facts`
    describes how the values were made. Trials of auto encoders have none: they have no
    likelihood, and their costs are known. Trials that have diverged or are damaged are
    left out. Those that were evaluated before with the same facts come first and stay
    as they are, unless ``again``: an evaluation that was interrupted goes on where it
    stopped. ``manifest`` is the store's with some of its cells, by default with all.
    ``say`` hears of lost workers. The summary is rewritten at the end, also of an
    interrupted one, which raises KeyboardInterrupt.
    """
    store.begin()
    tasks = list[Task]()
    try:
        for one in _planned(store, method, manifest or store.manifest(), again):
            if isinstance(one, Task):
                tasks.append(one)
            else:
                yield one
        for task in tasks:
            task.given = method, max(1, workers // len(tasks))
        where = min(workers, len(tasks)) if len(tasks) > 1 else 0
        for task, result in spread(_columns, [tasks], say, where):
            run, number = task.about
            if isinstance(result, Failure):
                damaged = isinstance(task.begin(), CbmError)
                problem = result.message + "; cbm run repeats damaged trials" * damaged
                yield Evaluated(run, number, {}, problem=problem)
            else:
                store.add_columns(run.run_id, number, result)
                yield Evaluated(run, number, result)
    finally:
        store.finish()


def _planned(
    store: Store, method: Method, manifest: Manifest, again: bool
) -> Generator[Evaluated | Task, None, None]:
    """Finished values of trials, and the tasks for the others."""
    loaded = dict[Data, Dataset]()
    for run in manifest.cells:
        rows = {row["trial"]: row for row in store.rows([run.run_id])}
        spec, kind = run.settings.data, run.settings.model.kind
        facts = method.facts(kind == "dbm")
        for number in sorted(store.finished(run.run_id)):
            row = rows.get(number, {})
            if row.get("diverged") is not None:
                yield Evaluated(run, number, {}, diverged=True)
            elif kind == "auto-encoder":
                yield Evaluated(run, number, {})
            elif not again and facts.items() <= row.items():
                how = method.name or "exact"
                own = (
                    name
                    for name in row
                    if name.endswith(f"_{how}") or name.startswith(f"{how}_")
                )
                yield Evaluated(
                    run, number, {name: row[name] for name in own}, before=True
                )
            else:
                if spec not in loaded:
                    loaded[spec] = load_again(
                        spec, manifest.grid_folder, manifest.digests
                    )
                machine = partial(store.machine, run.run_id, number)
                yield Task((run, number), method, loaded[spec], machine)


def _columns(
    given: tuple[Method, int],
    kept: tuple[Path, bytes],
    data: Dataset,
    _: ShouldStop,
    should_stop: ShouldStop,
) -> dict[str, Any]:
    """Evaluate a machine on some cores: what a worker does."""
    (method, cores), (path, content) = given, kept
    machine = read_machine(path, content)
    with one_thread(), using_cores(cores):
        run = str(path).rpartition(":")[
            0
        ]  # a reason that all of its trials share is printed once
        common, by_part = evaluate(
            machine, parts_of(data, method), method, run, should_stop
        )
    how, columns = common["method"], {}
    for part, answer in by_part.items():
        for name in filter(answer.__contains__, _OF_PARTS):
            columns[f"{part}_{name}_{how}"] = answer[name]["mean"]
    of_machine = (*OF_MACHINE, "reverse_log_z", "doubtful")
    found = {
        f"{how}_{name}": float(common[name]) for name in of_machine if name in common
    }
    return columns | found | method.facts(machine.kind == "dbm")
