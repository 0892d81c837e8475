"""Recorders: what is measured along the way of a training, chosen by name in the grid."""

from cbm_cli.trial.recorders.fitting import refuse_misfits
from cbm_cli.trial.recorders.measures import RECORDERS, exact_offsets
from cbm_cli.trial.recorders.own import compile_recorder, compiled, is_own, load_recorder
from cbm_cli.trial.recorders.recording import record
from cbm_cli.trial.recorders.snapshots import Context, Recorder, Snapshots

__all__ = [
    "RECORDERS",
    "Context",
    "Recorder",
    "Snapshots",
    "compile_recorder",
    "compiled",
    "exact_offsets",
    "is_own",
    "load_recorder",
    "record",
    "refuse_misfits",
]
