"""``cbm run``: run the experiments of a grid."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cbm_cli.cli.common import note
from cbm_cli.errors import CbmError

if TYPE_CHECKING:
    from cbm_cli.execution import Agenda, Report
    from cbm_cli.grid import Grid

MANY_TRIALS = 100_000


@click.command()
@click.argument("grid", type=click.Path(path_type=Path), metavar="GRID.yaml")
@click.argument("experiments", nargs=-1, metavar="[EXPERIMENT]...")
@click.option("-o", "--output", type=click.Path(path_type=Path), default="results/", help="Results folder.")
@click.option(
    "-j", "--jobs", type=click.IntRange(0), help="Worker processes; 0: this one. Default: all cores."
)
@click.option("--scheduler", metavar="ADDRESS", help="Use a running Dask scheduler, such as tcp://host:8786.")
@click.option("--trials", type=click.IntRange(1), help="Trials of each cell, in place of the grid's number.")
@click.option(
    "--set", "changes", multiple=True, metavar="FIELD=VALUE", help="Set a field in every experiment."
)
@click.option("--dry-run", is_flag=True, help="Say what is done and what is to do, and how long it may take.")
@click.option("--list", "list_", is_flag=True, help="List the experiments of the grid.")
@click.option("--yes", is_flag=True, help=f"Run grids of more than {MANY_TRIALS:,} trials.")
@click.option("--no-table", is_flag=True, help="Do not print the tables at the end.")
def run(
    grid: Path,
    experiments: tuple[str, ...],
    output: Path,
    jobs: int | None,
    scheduler: str | None,
    trials: int | None,
    changes: tuple[str, ...],
    dry_run: bool,
    list_: bool,
    yes: bool,
    no_table: bool,
) -> None:
    """Run experiments of a YAML grid: those named, or the grid's default.

    Finished trials are kept and never run again; run the same command to go on after an interruption,
    or with more --trials to add some.
    """
    from cbm_cli.grid import read_grid

    read = read_grid(grid, _parse_changes(changes), trials, experiments)
    if list_:
        return _list(read)
    selected = read.select(experiments)
    planned = sum(experiment.trials * len(experiment.cells) for experiment in selected)
    if planned > MANY_TRIALS and not yes:
        raise CbmError(f"{grid}: {planned:,} trials; add --yes to run more than {MANY_TRIALS:,}")

    from cbm_cli.execution import make_agenda

    agenda = make_agenda(selected, output, adopt=not dry_run, folder=grid.parent)
    for problem in agenda.damaged:
        note(f"{problem}; this trial is run again")
    _say_halves(agenda)
    workers = _cores() if jobs is None else jobs
    if dry_run:
        return _describe(agenda, workers)
    report = _run(agenda, workers, scheduler)
    if not no_table:
        _print_tables(agenda, output)
    _say_what_next(agenda, report, output)
    if report.failed:
        raise SystemExit(1)
    return None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _parse_changes(changes: tuple[str, ...]) -> dict[str, str]:
    for change in changes:
        if "=" not in change:
            raise CbmError(f"--set {change}: write FIELD=VALUE, such as --set learning_rate=0.05")
    return dict(change.split("=", 1) for change in changes)


def _say_halves(agenda: Agenda) -> None:
    """Say which data sets have an odd number of visible units, where an auto encoder has half as many."""
    cells = (cell for experiment in agenda.experiments for cell in experiment.cells)
    halves = {cell.data: cell.model for cell in cells if cell.model.hidden == "half"}
    for data, model in halves.items():
        width = agenda.datasets[data].width
        if width % 2:
            (hidden,) = model.hidden_layers(width)
            note(f"{data.title}: half of {width} visible units rounds down to {hidden} hidden ones")


def _list(grid: Grid) -> None:
    for name, experiment in grid.experiments.items():
        mark = " (default)" if name in grid.default else ""
        trials = experiment.trials * len(experiment.cells)
        click.echo(f"{name}{mark}: {len(experiment.cells)} cells, {trials} trials")
        if experiment.description:
            click.echo(f"    {experiment.description}")
    for name, members in grid.groups.items():
        click.echo(f"{name} (group): {', '.join(members)}")


def _describe(agenda: Agenda, workers: int) -> None:
    from cbm_cli.cli.progress import duration
    from cbm_cli.execution import estimate_seconds

    ways = {
        "from where they were stopped": agenda.resumed,
        "from the end of a shorter training": agenda.continued,
        "from machines of files or of another experiment": agenda.started,
    }
    told = "".join(f", {n} of them {way}" for way, n in ways.items() if n)
    click.echo(f"{agenda.total} trials: {agenda.done} done, {len(agenda.jobs)} to run{told}")
    if agenda.jobs:
        seconds = estimate_seconds(agenda) / max(workers, 1)
        click.echo(f"about {duration(seconds)} on {max(workers, 1)} worker{'s' if workers > 1 else ''}")


def _run(agenda: Agenda, workers: int, scheduler: str | None) -> Report:
    from cbm_cli.cli.progress import Progress
    from cbm_cli.datasets import describe
    from cbm_cli.execution import compile_kernels, run_agenda

    if not agenda.jobs:
        note(f"All {agenda.total} trials are done; nothing to run.")
    elif agenda.done:
        note(f"{agenda.done} of {agenda.total} trials are done; {len(agenda.jobs)} to run.")
    for data, dataset in agenda.datasets.items() if agenda.jobs else ():
        note(describe(data, dataset))
    if agenda.jobs and not scheduler:
        compile_kernels(agenda, lambda: note("Compiling the kernels (once for this version, about 40 s) ..."))
    with Progress(agenda) as progress:
        try:
            return run_agenda(
                agenda,
                workers=workers,
                scheduler=scheduler,
                listen=progress.listen,
                on_finished=progress.finished,
            )
        except KeyboardInterrupt:
            progress.stop()
            note(f"\nInterrupted; {progress.done} trials finished, and where others stand is kept. To go on:")
            note(f"\n  {_command_line()}\n")
            raise


def _command_line() -> str:
    import shlex
    import sys

    return shlex.join(["cbm", *sys.argv[1:]])


def _print_tables(agenda: Agenda, output: Path) -> None:
    from cbm_cli.cli.table import print_table
    from cbm_cli.results import Results

    for experiment in agenda.experiments:
        if any(agenda.stores[experiment.name].finished(name) for name in agenda.run_ids[experiment.name]):
            try:
                print_table(Results(output), experiment.name, "text")
            except CbmError as error:  # the trials are done all the same
                note(f"{experiment.name}: no table: {error}")


def _say_what_next(agenda: Agenda, report: Report, output: Path) -> None:
    for job, failure in report.failed[:10]:
        note(f"failed: {job.title}: {failure.message}")
    if report.failed:
        note(f"{len(report.failed)} trials failed; run again to try once more. Details: trial-*.error.txt")
    name = agenda.experiments[0].name
    folder = "" if output == Path("results") else f" {output}"
    note(
        f"Next:  cbm plot {output} curves {name} -o curves.png\n"
        f"       cbm table {output} {name} --format latex\n"
        f"       cbm compare{folder}"
    )
