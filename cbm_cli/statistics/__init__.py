"""Summaries over trials: Wilcoxon tests, tables, comparison with published values and findings."""

from cbm_cli.statistics.comparison import Comparison, compare
from cbm_cli.statistics.findings import check_findings, count_findings, findings_document
from cbm_cli.statistics.results_table import ResultsTable, build_table
from cbm_cli.statistics.scoreboard import score, scoreboard

__all__ = [
    "Comparison",
    "ResultsTable",
    "build_table",
    "check_findings",
    "compare",
    "count_findings",
    "findings_document",
    "score",
    "scoreboard",
]
