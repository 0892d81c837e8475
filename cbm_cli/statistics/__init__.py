"""Summaries over trials: Wilcoxon tests, tables, comparison with published values and findings."""

from cbm_cli.statistics.comparison import Comparison, comparable, compare
from cbm_cli.statistics.findings import add_courses, check_findings, count_findings, findings_document
from cbm_cli.statistics.mean_curves import add_best_of_mean
from cbm_cli.statistics.results_table import ResultsTable, build_table
from cbm_cli.statistics.scoreboard import score, scoreboard

__all__ = [
    "Comparison",
    "ResultsTable",
    "add_best_of_mean",
    "add_courses",
    "build_table",
    "check_findings",
    "comparable",
    "compare",
    "count_findings",
    "findings_document",
    "score",
    "scoreboard",
]
