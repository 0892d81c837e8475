"""The only package that opens results files."""

from cbm_cli.results.folder import Results
from cbm_cli.results.metrics import Metric
from cbm_cli.results.outcome import Outcome, Progress
from cbm_cli.results.reader import Store

__all__ = ["Metric", "Outcome", "Progress", "Results", "Store"]
