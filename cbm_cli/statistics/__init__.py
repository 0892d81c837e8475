"""Summaries over trials: Wilcoxon tests, tables, comparison with published values."""

from cbm_cli.statistics.compare import Comparison, compare
from cbm_cli.statistics.compare_rendering import render_comparison
from cbm_cli.statistics.rendering import render
from cbm_cli.statistics.table import Table, build_table

__all__ = ["Comparison", "Table", "build_table", "compare", "render", "render_comparison"]
