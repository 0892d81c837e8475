"""Compare three tables with the kept results, as docs/reproduction/twenty-minutes.md
does.

    python reproduction/twenty.py RESULTS

Processors of one kind give the same numbers. On another one a mean may differ by three
standard errors of a difference; the script names each cell that differs by more.
"""

import sys

import pandas as pd
from printed import KEPT

import cbm_cli as cbm

EXPERIMENTS = ["standard-methods-bars", "standard-methods-shifting", "moving-average"]
SETTINGS = ["data", "sampler", "learning_rate", "offsets"]


def means(folder: str) -> pd.DataFrame:
    """Return the table of each experiment: a row for each cell, by its settings."""
    results = cbm.open_results(folder)
    tables = {name: results.table(name) for name in EXPERIMENTS}
    return pd.concat(tables, names=["experiment"]).set_index(SETTINGS, append=True)


def differing_cells(folder: str) -> pd.DataFrame:
    """Return the cells whose means differ by more than three standard errors."""
    both = {"now": means(folder), "kept": means(KEPT)}
    pair = pd.concat(both, axis=1).swaplevel(axis=1)
    variance = (pair["std"] ** 2 / pair["n"]).sum(axis=1)  # of the difference
    difference = (pair["mean"]["now"] - pair["mean"]["kept"]).abs()
    is_alike = difference <= 3 * variance**0.5 + 0.005  # rounding
    return pair["mean"][~is_alike]


def main() -> None:
    differing = differing_cells(sys.argv[1])
    print(differing.to_string() if len(differing) else "all cells are alike")
    sys.exit(len(differing) > 0)


if __name__ == "__main__":
    main()
