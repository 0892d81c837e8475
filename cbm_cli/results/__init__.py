"""The only room that opens results files."""

import sys
from importlib import import_module
from types import ModuleType

from cbm_cli.results.folder import Results, label
from cbm_cli.results.identity import pretraining_id, run_id
from cbm_cli.results.kept import Kept
from cbm_cli.results.metrics import Metric, default_metric, fewest_effective, measured
from cbm_cli.results.outcome import Outcome, Progress, read_progress
from cbm_cli.results.store import Store

__all__ = [
    "Kept",
    "Metric",
    "Outcome",
    "Progress",
    "Results",
    "Store",
    "default_metric",
    "fewest_effective",
    "label",
    "measured",
    "pretraining_id",
    "read_progress",
    "run_id",
]


class _Callable(ModuleType):
    """A module that opens a results folder when it is called: ``cbm.results("results")``."""

    def __call__(self, *folder: object) -> object:
        return import_module("cbm_cli.notebook").ResultFrames(*folder)


sys.modules[__name__].__class__ = _Callable
