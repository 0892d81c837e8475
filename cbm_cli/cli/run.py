"""``cbm run``: run the experiments of a grid."""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cbm_cli.cli.common import Whole, check_folder, command, is_output, note, note_activation, say
from cbm_cli.cores import cores
from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.text import count, duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cbm_cli.execution.plan import Agenda
    from cbm_cli.grid.settings import Experiment


@click.command()
@click.argument("grid", type=click.Path(path_type=Path), default="experiments.yaml", metavar="[GRID.yaml]")
@click.argument("experiments", nargs=-1, metavar="[EXPERIMENT]...")
@click.option("-o", "--output", type=click.Path(path_type=Path), default="results/", help="Results folder.")
@click.option("-j", "--jobs", type=Whole(0), help="Cores to use; 0: only this process. Default: all.")
@click.option("--scheduler", metavar="ADDRESS", help="Use a running Dask scheduler, such as tcp://host:8786.")
@click.option("--trials", type=Whole(1), help="Trials of each cell, instead of the grid's number.")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Set a field in every experiment.",
)
@click.option(
    "--available", is_flag=True, help="Leave out data sets whose files are missing, and exit with 3."
)
@click.option("--dry-run", is_flag=True, help="Only say what is done, what is to do and, if known, how long.")
@click.option("--fail-fast", is_flag=True, help="Stop at the first trial that fails.")
@click.option("--no-code", is_flag=True, help="Refuse recorders of the form file.py:function.")
def run(grid: Path, experiments: tuple[str, ...], output: Path, dry_run: bool, **options: Any) -> None:
    """Run experiments of a YAML grid.

    The grid is experiments.yaml unless one is named; without names of experiments its default runs. A cell is
    one combination of settings; a trial is one training of a cell. Finished trials are kept and never run
    again: the same command resumes an interrupted run, and more --trials add to it.

    A grid can name recorders as file.py:function. They are code, which runs with your rights, even with
    --dry-run: read a grid of others first, or give --no-code.
    """
    check_folder("-o", output)
    from cbm_cli.grid.read import read_grid

    trials, changes = options["trials"], _parse_changes(options["changes"])
    if trials is not None and "trials" in changes:
        raise CbmError("--trials and --set trials: give one of them")
    read = read_grid(grid, changes, trials, experiments)
    from cbm_cli.execution.plan import make_agenda
    from cbm_cli.results.writing import locked

    selected, missing = read.select(experiments), dict[str, list[str]]()
    if options["no_code"]:
        from cbm_cli.trial.own_recorders import refuse_code

        refuse_code(selected)
    if options["available"]:
        selected, missing = _leave_out(selected, grid.parent)
    jobs = options["jobs"]
    workers, scheduler = cores() if jobs is None else jobs, _scheduler(options)
    with nullcontext() if dry_run else locked(output):
        agenda = make_agenda(selected, output, folder=grid.parent)
        _say_what_is_read(agenda)
        if dry_run:
            _describe(agenda, 1 if scheduler else max(workers, 1))
        else:
            with _explained():
                _run_and_show(agenda, workers, scheduler, output, options["fail_fast"])
    if missing:
        raise SystemExit(IncompleteError.exit_code)


def _leave_out(
    experiments: Sequence[Experiment], folder: Path
) -> tuple[list[Experiment], dict[str, list[str]]]:
    """Leave out cells whose data are missing, say which, and return their titles by experiment."""
    from cbm_cli.execution.plan import only_available

    selected, missing = only_available(experiments, folder)
    for name, titles in missing.items():
        note(f"{name}: left out, the data are missing: {', '.join(titles)}")
    if missing:
        note(f"`{command('data', 'list', 'NAME')}` says where to get a data set and where to put it.")
    if not selected:
        raise IncompleteError("no data set of these experiments is here; nothing was run")
    return selected, missing


@contextmanager
def _explained() -> Iterator[None]:
    """Turn an unforeseen exception into an error of one line; with CBM_DEBUG=1 show all tracebacks."""
    try:
        yield
    except Exception as error:
        if os.environ.get("CBM_DEBUG", "0") not in ("", "0"):
            traceback.print_exc()
        known = CbmError | click.ClickException | click.exceptions.Exit
        if isinstance(error, known) or is_output(error):
            raise
        words = f"unforeseen {type(error).__name__}: {error}; finished trials are kept"
        raise CbmError(f"{words}; CBM_DEBUG=1 in front of cbm shows where") from None


def _parse_changes(changes: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for change in changes:
        field, equals, value = change.partition("=")
        if not equals:
            raise CbmError(f"--set {change}: write FIELD=VALUE, such as --set learning_rate=0.05")
        if field in found:
            remedy = f"give it once; several values are an axis: --set {field}=[{found[field]},{value}]"
            raise CbmError(f"--set {field}: is given twice; {remedy}")
        found[field] = value
    return found


def _say_what_is_read(agenda: Agenda) -> None:
    """Say what the data are, which trials are damaged, and where half of an odd width is rounded."""
    from cbm_cli.datasets.loading import describe
    from cbm_cli.results.folder import not_reused

    for spec, data in agenda.datasets.items():
        note(describe(spec, data))
    for problem in agenda.damaged:
        note(problem)
    for one in agenda.experiments:
        if told := not_reused(agenda.stores[one.name], agenda.run_ids[one.name]):
            note(told)
    if agenda.beyond:
        why = "their states are of longer trainings, or began at another machine"
        note(f"{count(agenda.beyond, 'trial')} start anew: {why}")
    cells = (cell for experiment in agenda.experiments for cell in experiment.cells)
    halves = {cell.data: cell.model for cell in cells if cell.model.hidden == "half"}
    for spec, model in halves.items():
        width = agenda.datasets[spec].width
        if width % 2:
            (hidden,) = model.hidden_layers(width)
            note(f"{spec.title}: half of {width} visible units rounds down to {hidden} hidden ones")
    shared = agenda.asked - agenda.total
    if shared:
        which = count(len(agenda.experiments), "experiment")
        note(f"{which} with {agenda.asked:,} trials; {shared:,} are the same as others and run once")


def _describe(agenda: Agenda, workers: int) -> None:
    from cbm_cli.execution.progress import seconds_to_do

    ways = {
        "resume where they were stopped": agenda.resumed,
        "continue a training of another length": agenda.continued,
        "start from machines of files or of another experiment": agenda.started,
    }
    how = "".join(f"; {n:,} of them {way}" for way, n in ways.items() if n)
    trials = count(agenda.total, "trial")
    say(f"{trials}: {agenda.done:,} finished before, {len(agenda.jobs):,} to run{how}")
    if seconds := seconds_to_do(agenda, workers):
        say(f"about {duration(seconds)} on {count(workers, 'worker')}, by the times of finished trials")


def _run_and_show(agenda: Agenda, workers: int, scheduler: str | None, output: Path, fail_fast: bool) -> None:
    from cbm_cli.cli.progress import Display
    from cbm_cli.execution.compiling import compile_kernels
    from cbm_cli.execution.run import run_agenda

    if not agenda.jobs:
        done = "All {0:,} trials are" if agenda.total > 1 else "The trial is"
        note(f"{done.format(agenda.total)} done; nothing to run.")
    elif agenda.done:
        done = f"{agenda.done:,} of {agenda.total:,} trials are done (in earlier runs)"
        note(f"{done}; {len(agenda.jobs):,} to run.")
    if agenda.jobs and not scheduler:
        compile_kernels(agenda, note)
    try:
        with Display(agenda) as display:
            ending = run_agenda(agenda, display, workers=workers, scheduler=scheduler, fail_fast=fail_fast)
    except KeyboardInterrupt:
        finished = f"{display.done:,} of {count(display.total, 'trial')} finished in this run"
        note(f"\nInterrupted; {finished}; the progress of the others is saved. To resume:\n")
        note(f"  {command(*sys.argv[1:])}\n")
        raise
    _print_tables(agenda)
    for name, trials in ending.flawed.items():
        note(f"{name} failed in {count(trials, 'trial')}, kept without its columns")
    if ending.failed:
        (job, _), failed = ending.failed[0], count(len(ending.failed), "trial")
        details = command("ls", job.stores[0].folder.parent, job.run_id)
        note(f"{failed} failed; the same command tries again. Details: {details}")
    _say_what_next(agenda, output)
    if ending.failed:
        raise SystemExit(1)


def _scheduler(options: Mapping[str, Any]) -> str | None:
    """The address of a Dask scheduler, if one is asked for."""
    scheduler = options["scheduler"]
    if scheduler and options["jobs"] is not None:
        raise CbmError("-j is for the cores of this computer; a cluster's workers have their own")
    if scheduler and find_spec("distributed") is None:
        told = "--scheduler: Dask is missing; install it with: pip install distributed"
        raise CbmError(told)
    return scheduler


def _print_tables(agenda: Agenda) -> None:
    from cbm_cli.cli.table import print_tables
    from cbm_cli.results import Results

    for name, store in agenda.stores.items():
        if any(store.finished(run_id) for run_id in agenda.run_ids[name]):
            try:
                print_tables(Results(store.folder.parent), [name], "text")
            except CbmError as error:  # the trials are done all the same
                note(f"{name}: no table: {error}")


def _say_what_next(agenda: Agenda, output: Path) -> None:
    from cbm_cli.results.folder import other_runs

    for name, store in agenda.stores.items():
        if other_runs(store, agenda.run_ids[name]):
            note(f"{name}: other runs are kept; to list all: {command('ls', output, name)}")
    stores = {name: one for name, one in agenda.stores.items() if any(map(one.finished, one.runs()))}
    if not stores:
        return
    name = next(iter(stores))
    lines = [
        command("plot", output, "curves", name, "-o", "curves.png"),
        command("table", output, name, "--format", "latex"),
    ]
    note("Next:  " + "\n       ".join(lines))
    note_activation()
