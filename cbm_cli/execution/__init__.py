"""Trials to workers and back: in process, on local processes, or on a Dask cluster."""

from cbm_cli.execution.engines import Failure
from cbm_cli.execution.evaluating import evaluate_trials
from cbm_cli.execution.forecast import compile_kernels, estimate_seconds
from cbm_cli.execution.jobs import Agenda, Job, make_agenda
from cbm_cli.execution.run import Report, run_agenda

__all__ = [
    "Agenda",
    "Failure",
    "Job",
    "Report",
    "compile_kernels",
    "estimate_seconds",
    "evaluate_trials",
    "make_agenda",
    "run_agenda",
]
