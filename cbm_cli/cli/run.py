"""``cbm run`` and ``verify``: train the trials of a grid, and train finished ones
again.
"""

from __future__ import annotations

import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cbm_cli.cli.options import Target, command, folder_of_data, output, results_and
from cbm_cli.cli.output import live, note, say, to_type
from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.execution import start_early
from cbm_cli.kernels.sharing import cores
from cbm_cli.text import count, duration, valid_json

if TYPE_CHECKING:
    from cbm_cli.execution.agenda import Agenda
    from cbm_cli.execution.run import Ending
    from cbm_cli.execution.verify import Verdict


@command(
    "jobs", "scheduler", "trials", "set", "available", "dry-run", "fail-fast", "no-code"
)
@output("DIR", "Results folder.", default="results/")
@click.argument(
    "grid",
    type=click.Path(path_type=Path),
    default="experiments.yaml",
    metavar="[GRID.yaml]",
)
@click.argument("experiments", nargs=-1, metavar="[EXPERIMENT]...")
def run(
    grid: Path,
    experiments: tuple[str, ...],
    output: Path,
    changes: dict[str, str],
    dry_run: bool,
    **how: Any,
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
    if not grid.suffix and not grid.exists():  # the first name of an experiment
        grid, experiments = Path("experiments.yaml"), (str(grid), *experiments)
    jobs, scheduler, trials = how["jobs"], how["scheduler"], how["trials"]
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
    workers = cores() if jobs is None else jobs
    start_early(0 if scheduler or dry_run else workers)
    from cbm_cli.grid.read import read_grid

    selected = read_grid(grid, changes, trials, experiments).select(experiments)
    from cbm_cli.execution.agenda import make_agenda, only_available
    from cbm_cli.results.writing import locked
    from cbm_cli.trial.own_recorders import refuse_code

    if how["no_code"]:
        refuse_code(selected)
    missing = dict[str, list[str]]()
    if how["available"]:
        selected, missing = only_available(selected, grid.parent)
        for name, titles in missing.items():
            note(f"{name}: left out, the data are missing: {', '.join(titles)}")
        if missing:
            note(
                f"`{to_type('data', 'list', 'NAME')}` shows where to get a data "
                "set "
                "and where to put it."
            )
        if not selected:
            raise IncompleteError(
                "no data set of these experiments is here; nothing was run"
            )
    with nullcontext() if dry_run else locked(output):
        agenda = make_agenda(selected, output, folder=grid.parent)
        _say_what_is_read(agenda)
        if dry_run:
            _say_what_is_to_do(agenda, 1 if scheduler else max(workers, 1))
        else:
            _run_and_show(agenda, workers, scheduler, output, how["fail_fast"])
    if missing:
        raise SystemExit(IncompleteError.exit_code)


def _say_what_is_read(agenda: Agenda) -> None:
    """Say what the data are, and which trials are damaged, begin again or are
    shared.
    """
    from cbm_cli.datasets.loading import describe
    from cbm_cli.results.folder import not_reused

    told = [
        describe(spec, data) for spec, data in agenda.datasets.items()
    ] + agenda.damaged
    told += [
        not_reused(agenda.stores[one.name], agenda.run_ids[one.name])
        for one in agenda.experiments
    ]
    for line in filter(None, told):
        note(line)
    if agenda.beyond:
        why = "the states are of longer trainings, or began at another machine"
        note(f"to start from the beginning: {count(agenda.beyond, 'trial')}; {why}")
    if shared := agenda.asked - agenda.total:
        which = count(len(agenda.experiments), "experiment")
        note(
            f"{which} with {agenda.asked:,} trials; {shared:,} are the same as "
            "others "
            "and run once"
        )


def _say_what_is_to_do(agenda: Agenda, workers: int) -> None:
    from cbm_cli.execution.run import seconds_to_do

    ways = {
        "resume where they were stopped": agenda.resumed,
        "continue a training of another length": agenda.continued,
        "start from machines of files or of another experiment": agenda.started,
    }
    how = "".join(f"; {n:,} of them {way}" for way, n in ways.items() if n)
    say(
        f"{count(agenda.total, 'trial')}: {agenda.done:,} finished before, "
        f"{len(agenda.jobs):,} to run{how}"
    )
    if seconds := seconds_to_do(agenda, workers):
        say(
            f"about {duration(seconds)} on {count(workers, 'worker')}, by the "
            "times "
            "of finished trials"
        )


def _run_and_show(
    agenda: Agenda, workers: int, scheduler: str | None, output: Path, fail_fast: bool
) -> None:
    from cbm_cli.execution.precompile import precompile
    from cbm_cli.execution.run import RunProgress, run_agenda

    if not agenda.jobs:
        note(f"{count(agenda.total, 'trial')} done in earlier runs; nothing to run.")
    elif agenda.done:
        done = f"{agenda.done:,} of {agenda.total:,} trials done in earlier runs"
        note(f"{done}; {len(agenda.jobs):,} to run.")
    if agenda.jobs and not scheduler:
        precompile(agenda, note)
    progress = RunProgress(agenda)
    ThreadPoolExecutor(1).submit(__import__, "pandas")  # which the table needs
    try:
        with live(progress.share, progress.words) as progress.message:
            ending = run_agenda(
                agenda,
                progress,
                workers=workers,
                scheduler=scheduler,
                fail_fast=fail_fast,
            )
    except KeyboardInterrupt:
        finished = (
            f"{progress.done:,} of {count(progress.total, 'trial')} finished "
            "in this run"
        )
        note(
            f"\nInterrupted; {finished}; the progress of the others is saved. To "
            "resume:\n"
        )
        note(f"  {to_type(*sys.argv[1:])}\n")
        raise
    _show(agenda, ending, output)
    if ending.failed:
        raise SystemExit(1)


def _show(agenda: Agenda, ending: Ending, output: Path) -> None:
    """Print the tables of what is finished, and what failed; say what to type next."""
    from cbm_cli.cli.table import tables
    from cbm_cli.results import Results

    shown = list[str]()
    for name, store in agenda.stores.items():
        if any(map(store.finished, agenda.run_ids[name])):
            try:
                for table in tables(Results(output), [name]):
                    click.echo(table.sheet().render(), nl=False)
                    shown.append(name)
            except CbmError as error:  # the trials are done all the same
                note(f"{name}: no table: {error}")
    for name, trials in ending.flawed.items():
        note(f"{name} failed in {count(trials, 'trial')}, kept without its columns")
    if ending.failed:
        (job, _), failed = ending.failed[0], count(len(ending.failed), "trial")
        note(
            f"{failed} failed; the same command tries again. Details: "
            f"{to_type('ls', output, job.run_id)}"
        )
    if shown:
        note(
            f"Next:  {to_type('plot', output, 'curves', shown[0], '-o', 'curves.png')}"
        )
        note(f"       {to_type('table', output, shown[0], '--format', 'latex')}")


@command("sample", "jobs", "no-code", "data", "json")
@results_and("[EXPERIMENT]...")
def verify(
    target: Target,
    sample: int | str,
    jobs: int | None,
    no_code: bool,
    source: str | None,
    as_json: bool,
) -> None:
    """Run a sample of trials again, and compare.

    Verdicts: same bytes; different (where first); damaged; cannot be run again, for
    example without its data (docs/verify.md). The exit code is 1 if a trial is
    different or damaged, and 3 if none could run again.
    """
    from cbm_cli.datasets.published import data_in
    from cbm_cli.execution.verify import CANNOT, DAMAGED, DIFFERENT, verify_trials

    found, made = Counter[str](), Counter[str]()

    def tell(its: Verdict) -> None:
        found[its.verdict] += 1
        made[its.made] += its.verdict == DIFFERENT
        reason = f" ({its.reason})" if its.reason else ""
        line = (
            f"{its.experiment} {its.run_id} trial {its.number}: {its.verdict}{reason}"
        )
        say(valid_json(asdict(its)) if as_json else line)

    results, workers = target.results(), cores() if jobs is None else jobs
    many = sample if isinstance(sample, int) else None
    with results.readable(target.names) as stores, data_in(folder_of_data(source)):
        names = [store.experiment for store in stores]
        verify_trials(
            results, names, many, tell, workers=workers, code=not no_code, announce=note
        )
        if not found:
            raise IncompleteError(
                f"{', '.join(names)}: no trial is finished yet; start with: cbm run"
            )
        note(
            f"{count(found.total(), 'trial')}: "
            + ", ".join(f"{n:,} {what}" for what, n in found.items())
        )
        for versions, n in (+made).items():
            note(
                f"{n:,} of the different ones: made with "
                f"{versions or 'this computer and these versions'}"
            )
    if found[DIFFERENT] or found[DAMAGED]:
        raise SystemExit(1)
    if found.total() == found[CANNOT]:
        raise SystemExit(IncompleteError.exit_code)
