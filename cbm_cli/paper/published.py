"""The published values, and the runs that have their settings."""

from collections.abc import Sequence
from functools import cache

import pandas as pd

from cbm_cli.paper import PUBLISHED_RESULTS, SETTINGS
from cbm_cli.results.inventory import CellSettings
from cbm_cli.text import text_of

# Columns of summary.csv and of the published table that a run and a published value have to share.
IDENTITY = {
    "data": "dataset",
    "model_kind": "model",
    "model_hidden": "hidden",
    "sampler": "reading",
    "learning_rate": "learning_rate",
    "offsets": "offsets",
    "init": "init",
    "pretraining_epochs": "pretraining_epochs",
}


def published_cells() -> pd.DataFrame:
    """Return the published cells as text, once for each reading of the sampler: PCD-1 is also PCD-2."""
    with PUBLISHED_RESULTS.open(encoding="utf-8") as file:
        table = pd.read_csv(file, dtype=str, keep_default_na=False)
    table = table.assign(line=table.index, reading=table["sampler"])
    both = pd.concat([table, table[table["sampler"] == "PCD-1"].assign(reading="PCD-2")])
    return both.sort_values("line", kind="stable", ignore_index=True)


@cache
def paper_settings() -> dict[str, dict[str, list[str]]]:
    """Return the values that are allowed for the settings of each kind of published run."""
    with SETTINGS.open(encoding="utf-8") as file:
        table = pd.read_csv(file, dtype=str, keep_default_na=False, index_col="setting")
    return {
        kind: {name: text.split("|") for name, text in column.items() if text != "*"}
        for kind, column in table.items()
    }


def match(published: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Merge published cells with runs that have their machine, data, sampler, offsets and so on.

    The column ``departures`` names the settings of a run that are not the paper's. ``runs`` has the columns
    of ``summary.csv`` as text; those that are missing were written by a version that had one choice only.
    """
    identity = pd.DataFrame(
        {ours: runs.get(name, "") for name, ours in IDENTITY.items()}, index=runs.index
    ).replace("", "0")  # older results do not tell of pre-training: there was none
    merged = published.merge(identity.assign(run=runs.index), on=[*identity])
    settings = runs.to_dict("index")

    def unlike(kind: str, run: str) -> list[str]:
        own = settings[run]
        return [name for name, allowed in paper_settings()[kind].items() if own.get(name, "") not in allowed]

    return merged.assign(departures=[*map(unlike, merged["settings"], merged["run"])])


def comparable(cells: Sequence[CellSettings]) -> bool:
    """Return whether runs with one of these settings can be compared with a published value."""
    runs = pd.DataFrame([*cells]).map(text_of)
    return not all(match(published_cells(), runs)["departures"])
