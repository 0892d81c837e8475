"""Words that both grids or pages and options of commands choose from."""

from typing import Literal, get_args

FORMATS = ("text", "markdown", "latex", "csv", "json")  # of tables
# What a table shows of each trial: its best value, the last one, the one at the best
# validation value, or the one where the mean over the trials of the cell is best
Statistic = Literal["max", "final", "best-valid", "max-of-mean"]
STATISTICS: tuple[Statistic, ...] = get_args(Statistic)
