"""Statistics over trials: Wilcoxon tests, marks, and tables."""

from cbm_cli.statistics.marks import Mark, Marking, mark_row
from cbm_cli.statistics.table import Entry, ResultsTable, build_table

__all__ = ["Entry", "Mark", "Marking", "ResultsTable", "build_table", "mark_row"]
