"""Where results live: nobody else opens a results file."""

from cbm_cli.results.identity import pretraining_id, run_id
from cbm_cli.results.layered import Layered, PlainMachine, flatten, unflatten
from cbm_cli.results.machines import read_layered, read_machine
from cbm_cli.results.metrics import Metric, default_metric, measured
from cbm_cli.results.outcome import Outcome, Progress
from cbm_cli.results.reading import Results, label
from cbm_cli.results.store import Store, read_progress

__all__ = [
    "Layered",
    "Metric",
    "Outcome",
    "PlainMachine",
    "Progress",
    "Results",
    "Store",
    "default_metric",
    "flatten",
    "label",
    "measured",
    "pretraining_id",
    "read_layered",
    "read_machine",
    "read_progress",
    "run_id",
    "unflatten",
]
