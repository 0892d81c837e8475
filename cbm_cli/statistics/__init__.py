"""Summaries over trials: Wilcoxon tests, tables, comparison with published values."""

from cbm_cli.statistics.comparison import Comparison, compare
from cbm_cli.statistics.results_table import ResultsTable, build_table

__all__ = ["Comparison", "ResultsTable", "build_table", "compare"]
