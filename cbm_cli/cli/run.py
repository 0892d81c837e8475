"""``cbm run``: train the trials of a grid."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cbm_cli.cli import options
from cbm_cli.cli.options import GRIDS, Pairs, Whole, command, output, read_pairs
from cbm_cli.cli.output import live, note, say, say_text, to_type
from cbm_cli.cli.target import naming_grid
from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.execution.fork_server import start_early
from cbm_cli.kernels.sharing import cores
from cbm_cli.text import count, duration

if TYPE_CHECKING:
    from cbm_cli.execution.agenda import Agenda
    from cbm_cli.execution.run import Ending
    from cbm_cli.grid.settings import Experiment
    from cbm_cli.results.writer import Lock

_DEFAULT = Path("experiments.yaml")


def _read_fields(
    context: click.Context, option: Any, texts: Sequence[str]
) -> dict[str, str]:
    """Read FIELD=VALUE, each field once."""
    pairs: Pairs = read_pairs(context, option, texts)
    fields = dict(pairs)
    for field in fields:
        values = [value for name, value in pairs if name == field]
        if len(values) > 1:
            axis = f"--set {field}=[{','.join(values)}]"
            remedy = f"is given twice; several values are an axis: {axis}"
            raise CbmError(f"--set {field}: {remedy}")
    return fields


@command
@options.jobs
@click.option(
    "--scheduler", metavar="ADDRESS", help="A Dask scheduler, as tcp://host:8786."
)
@click.option(
    "--trials", type=Whole(1), help="Trials of each cell, instead of the grid's number."
)
@click.option(
    "--set",
    "changes",
    metavar="FIELD=VALUE",
    multiple=True,
    callback=_read_fields,
    help="Set a field in every experiment.",
)
@click.option(
    "--available",
    is_flag=True,
    help="Leave out data sets whose files are missing, and exit with 3.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Only count the trials to do, with their time if it is known.",
)
@click.option("--fail-fast", is_flag=True, help="Stop at the first trial that fails.")
@options.no_code
@output("DIR", "Results folder.", default="results/")
@click.argument("words", nargs=-1, metavar="[GRID.yaml] [EXPERIMENT]...")
def run(
    words: tuple[str, ...],
    output: Path,
    jobs: int | None,
    scheduler: str | None,
    trials: int | None,
    changes: dict[str, str],
    available: bool,
    dry_run: bool,
    fail_fast: bool,
    no_code: bool,
) -> None:
    """Run experiments of a YAML grid.

    Without GRID.yaml, the grid is experiments.yaml. Without names of experiments, its
    default runs. A cell is one combination of settings; a trial is one training of a
    cell. Finished trials are never run again: the same command resumes an interrupted
    run, and more --trials add to it.

    A grid can name recorders as file.py:function. They are code, which runs with your
    rights, even with --dry-run. If a grid comes from someone else, read it first, or
    give --no-code.
    """
    grid, names = _parse(words)
    _check_options(jobs, scheduler, trials, changes)
    workers = cores() if jobs is None else jobs
    if not (scheduler or dry_run):
        start_early(workers)
    from cbm_cli.grid.read import read_grid

    with naming_grid("run", words):
        experiments = read_grid(grid, changes, trials, names).select(names)
    from cbm_cli.execution.agenda import make_agenda
    from cbm_cli.results.writer import locked
    from cbm_cli.trial.own_recorders import refuse_code

    if no_code:
        refuse_code(experiments)
    is_missing = False
    if available:
        experiments, is_missing = _only_available(experiments, grid.parent)
    locking: AbstractContextManager[Lock | None] = locked(output)
    if dry_run:
        locking = nullcontext()
    with locking as lock:
        agenda = make_agenda(experiments, output, folder=grid.parent)
        _say_what_is_read(agenda)
        if lock is None:
            _say_what_is_to_do(agenda, 1 if scheduler else max(workers, 1))
        else:
            _run_and_show(
                agenda,
                lock,
                workers=workers,
                scheduler=scheduler,
                fail_fast=fail_fast,
            )
    if is_missing:
        raise SystemExit(IncompleteError.exit_code)


def _parse(words: Sequence[str]) -> tuple[Path, Sequence[str]]:
    """Return the grid and the names of experiments.

    The first word is a grid if it is a file, has the suffix of one or names a folder;
    all other words are names of experiments.
    """
    if not words:
        return _DEFAULT, ()
    first = Path(words[0])
    if first.suffix in GRIDS or "/" in words[0] or first.is_file():
        return first, words[1:]
    return _DEFAULT, words


def _check_options(
    jobs: int | None, scheduler: str | None, trials: int | None, changes: dict[str, str]
) -> None:
    """Raise CbmError for options that contradict each other."""
    if trials is not None and "trials" in changes:
        raise CbmError("--trials and --set trials: give one of them")
    if scheduler and jobs is not None:
        raise CbmError(
            "-j is for the cores of this computer; a cluster's workers have their own"
        )
    if scheduler and find_spec("distributed") is None:
        raise CbmError(
            "--scheduler: Dask is missing; install it with: pip install distributed"
        )


def _only_available(
    experiments: Sequence[Experiment], folder: Path
) -> tuple[list[Experiment], bool]:
    """Leave out cells without data files, and name them; also return whether there are
    any.
    """
    from cbm_cli.execution.agenda import only_available

    left, missing = only_available(experiments, folder)
    for name, titles in missing.items():
        note(f"{name}: left out, the data are missing: {', '.join(titles)}")
    if missing:
        listing = to_type("data", "list", "NAME")
        note(f"`{listing}` shows where to get a data set and where to put it.")
    if not left:
        raise IncompleteError(
            "no data set of these experiments is here; nothing was run"
        )
    return left, bool(missing)


def _say_what_is_read(agenda: Agenda) -> None:
    """Say what the data are, which trials are damaged or shared, and what recorders of
    the user import.
    """
    from cbm_cli.datasets.loading import describe
    from cbm_cli.results.folder import not_reused
    from cbm_cli.trial.own_recorders import imported_modules

    lines = [describe(spec, data) for spec, data in agenda.datasets.items()]
    lines += agenda.damaged
    for experiment in agenda.experiments:
        lines += experiment.notes
        store = agenda.stores[experiment.name]
        lines.append(not_reused(store, agenda.run_ids[experiment.name]))
    recorders: dict[str, str] = {}
    for job in agenda.jobs:
        recorders |= job.sources
    for name, text in recorders.items():
        modules = ", ".join(imported_modules(text))
        if modules:
            consequence = "trials are not run again when these change"
            lines.append(f"{name}: imports {modules}; {consequence}")
    for line in filter(None, lines):
        note(line)
    shared = agenda.trials - agenda.total
    if shared:
        experiments = count(len(agenda.experiments), "experiment")
        which = f"{experiments} with {agenda.trials:,} trials"
        note(f"{which}; {shared:,} are the same as others and run once")


def _say_what_is_to_do(agenda: Agenda, workers: int) -> None:
    """Say how many trials there are to run, from where, and how long that takes."""
    from cbm_cli.execution.run import seconds_to_do

    jobs = f"{len(agenda.jobs):,} to run"
    if agenda.resumed:
        jobs += f"; {agenda.resumed:,} of them continue from saved states"
    trials = count(agenda.total, "trial")
    say(f"{trials}: {agenda.done:,} finished before, {jobs}")
    seconds = seconds_to_do(agenda, workers)
    if seconds:
        where = count(workers, "worker")
        say(f"about {duration(seconds)} on {where}, by the times of finished trials")


def _run_and_show(
    agenda: Agenda, lock: Lock, workers: int, scheduler: str | None, fail_fast: bool
) -> None:
    """Run what is to do, with its progress; then print the tables."""
    from cbm_cli.execution.precompile import precompile
    from cbm_cli.execution.run import RunProgress, run_agenda

    if not agenda.jobs:
        note(f"{count(agenda.total, 'trial')} done in earlier runs; nothing to run.")
    elif agenda.done:
        done = f"{agenda.done:,} of {agenda.total:,} trials done in earlier runs"
        note(f"{done}; {len(agenda.jobs):,} to run.")
    if not scheduler:
        precompile(agenda.jobs, note)
    progress = RunProgress(agenda)
    ThreadPoolExecutor(1).submit(__import__, "pandas")  # which the table needs
    try:
        with live(progress.share, progress.words) as progress.message:
            ending = run_agenda(
                agenda,
                progress,
                lock,
                workers=workers,
                scheduler=scheduler,
                fail_fast=fail_fast,
            )
    except KeyboardInterrupt:
        trials = count(progress.total, "trial")
        finished = f"{progress.done:,} of {trials} finished in this run"
        saved = "the progress of the others is saved. To resume:"
        note(f"\nInterrupted; {finished}; {saved}\n")
        note(f"  {to_type(*sys.argv[1:])}\n")
        raise
    _show(agenda, ending, lock.folder)
    if ending.failed:
        raise SystemExit(1)


def _show(agenda: Agenda, ending: Ending, output: Path) -> None:
    """Print the tables of finished trials, the failures, and commands to type next."""
    shown = [name for name in agenda.stores if _print_tables(agenda, name, output)]
    for name, errors in ending.flaws.items():
        trials = count(len(errors), "trial")
        note(f"{name} failed in {trials}, kept without its columns")
    if ending.failed:
        first, _ = ending.failed[0]
        failed = count(len(ending.failed), "trial")
        details = to_type("ls", output, first.run_id)
        note(f"{failed} failed; the same command tries again. Details: {details}")
    if shown:
        curves = to_type("plot", output, "curves", shown[0], "-o", "curves.png")
        note(f"Next:  {curves}")
        note(f"       {to_type('table', output, shown[0], '--format', 'latex')}")


def _print_tables(agenda: Agenda, name: str, output: Path) -> bool:
    """Print the tables of an experiment, if a trial is finished; return whether there
    is one.
    """
    from cbm_cli.cli.table import tables
    from cbm_cli.results import Results

    if not any(map(agenda.stores[name].finished, agenda.run_ids[name])):
        return False
    printed = False
    try:
        for table in tables(Results(output), [name]):
            say_text(table.sheet().render())
            printed = True
    except CbmError as error:  # the trials are done all the same
        note(f"{name}: no table: {error}")
    return printed
