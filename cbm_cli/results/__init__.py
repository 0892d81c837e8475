"""The only package that opens results files."""

from cbm_cli.results.folder import Results
from cbm_cli.results.identity import pretraining_id, run_ids
from cbm_cli.results.outcome import (
    Metric,
    Outcome,
    Progress,
    default_metric,
    fewest_effective,
    measured,
    read_progress,
)
from cbm_cli.results.store import Store

__all__ = [
    "Metric",
    "Outcome",
    "Progress",
    "Results",
    "Store",
    "default_metric",
    "fewest_effective",
    "measured",
    "pretraining_id",
    "read_progress",
    "run_ids",
]
