"""Trials to workers and back: in this process, on local processes, or on a Dask cluster."""

from cbm_cli.execution.compiling import compile_kernels
from cbm_cli.execution.dispatch import Ending, run_agenda
from cbm_cli.execution.evaluating import evaluate_trials
from cbm_cli.execution.jobs import Agenda, Job, make_agenda, only_available
from cbm_cli.execution.verifying import verify_trials
from cbm_cli.execution.worker import Failure

__all__ = [
    "Agenda",
    "Ending",
    "Failure",
    "Job",
    "compile_kernels",
    "evaluate_trials",
    "make_agenda",
    "only_available",
    "run_agenda",
    "verify_trials",
]
