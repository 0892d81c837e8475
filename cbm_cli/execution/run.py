"""Running an agenda: dispatch, write what comes back, keep the summaries current."""

import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cbm_cli.execution.engines import Failure, Listener, in_process, on_cluster, on_local_workers
from cbm_cli.execution.jobs import Agenda, Job
from cbm_cli.results import Outcome

SUMMARY_EVERY = 20.0  # seconds between two writings of the summaries


@dataclass
class Report:
    """How a run ended."""

    finished: int = 0
    failed: list[tuple[Job, Failure]] = field(default_factory=list)


def run_agenda(
    agenda: Agenda,
    *,
    workers: int,
    scheduler: str | None = None,
    listen: Listener = lambda *news: None,
    on_finished: Callable[[Job, Outcome], None] = lambda job, outcome: None,
) -> Report:
    """Run every job of the agenda and write its outcome.

    Parameters
    ----------
    workers : int
        Local worker processes; 0 runs in this process.
    scheduler : str, optional
        Address of a running Dask scheduler to use instead.
    listen, on_finished : callable
        Told of running trials about once a second, and of each one finished.

    Raises
    ------
    KeyboardInterrupt
        Passed on after the summaries are written; everything finished is kept.
    """
    report, written = Report(), time.monotonic()
    for experiment in agenda.experiments:
        agenda.stores[experiment.name].write_manifest(
            experiment, agenda.run_ids[experiment.name], agenda.upper_bounds(experiment), _git_commit()
        )
    try:
        for job, result in _dispatch(agenda, workers, scheduler, listen):
            if isinstance(result, Failure):
                report.failed.append((job, result))
                for store in job.stores:
                    store.write_failure(job.run_id, job.trial.number, result.details or result.message)
                continue
            for store in job.stores:
                store.write(job.run_id, job.trial, result)
            report.finished += 1
            on_finished(job, result)
            if time.monotonic() - written > SUMMARY_EVERY:
                _write_summaries(agenda)
                written = time.monotonic()
    finally:
        _write_summaries(agenda)
    return report


def _dispatch(
    agenda: Agenda, workers: int, scheduler: str | None, listen: Listener
) -> Iterator[tuple[Job, Outcome | Failure]]:
    if not agenda.jobs:
        return iter(())
    if scheduler:
        return on_cluster(agenda.jobs, listen, scheduler)
    if workers:
        return on_local_workers(agenda.jobs, listen, min(workers, len(agenda.jobs)))
    return in_process(agenda.jobs, listen)


def _write_summaries(agenda: Agenda) -> None:
    for store in agenda.stores.values():
        store.write_summary()


def _git_commit() -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
