"""Where results live: nobody else opens a results file."""

from cbm_cli.results.identity import run_id
from cbm_cli.results.layered import Layered, PlainMachine, flatten, unflatten
from cbm_cli.results.machines import machine_file_arrays, read_layered, read_machine
from cbm_cli.results.outcome import Outcome, Progress
from cbm_cli.results.reading import Results, label
from cbm_cli.results.store import Store

__all__ = [
    "Layered",
    "Outcome",
    "PlainMachine",
    "Progress",
    "Results",
    "Store",
    "flatten",
    "label",
    "machine_file_arrays",
    "read_layered",
    "read_machine",
    "run_id",
    "unflatten",
]
