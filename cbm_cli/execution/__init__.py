"""Trials to workers and back: in this process, on local processes, or on a Dask cluster."""

from cbm_cli.execution.dispatch import Ending, run_agenda
from cbm_cli.execution.evaluating import evaluate_trials
from cbm_cli.execution.forecast import Forecast, compile_kernels, forecast_run
from cbm_cli.execution.jobs import Agenda, Job, make_agenda, only_available
from cbm_cli.execution.verifying import verify_trials
from cbm_cli.execution.worker import Failure

__all__ = [
    "Agenda",
    "Ending",
    "Failure",
    "Forecast",
    "Job",
    "compile_kernels",
    "evaluate_trials",
    "forecast_run",
    "make_agenda",
    "only_available",
    "run_agenda",
    "verify_trials",
]
