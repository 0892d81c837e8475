"""The values that the paper published, the settings of their runs, and known reasons of
differences.

The folder ``paper`` has them as data:

published-results.csv
    A line for each published value, with the settings of its row. Schemes 00 and d0, as
    originally proposed, start at zero biases. What the paper prints as d0 is d0^b_s
    where it trains with mini-batches.
settings.csv
    The remaining settings, a column for each value of ``settings`` in
    published-results.csv. ``|`` separates values that mean the same; ``*`` allows any
    value.
mismatches.yaml
    Known reasons why obtained values differ from published ones.
findings.yaml, figures.yaml
    What the paper states in prose and figures, and what its figures show.
"""

from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

PAPER = Path(__file__).parent / "paper"
KEPT = Path(__file__).parent / "results"

# Names of the tables in published-results.csv, and their numbers in the paper
TABLES = {
    "standard-methods-bars-mnist": "2",
    "standard-methods-shifting-bar": "3",
    "init-00-flipped-shifting-bar": "4",
    "init-00-mnist": "5",
    "init-dd-flipped-shifting-bar": "6",
    "reparameterization-order": "7",
    "moving-average": "8",
    "big-rbm-test": "9",
    "big-rbm-train": "10",
    "dbm-test": "11",
    "dbm-train": "12",
    "auto-encoder": "13",
}

# Columns of summaries, and of published-results.csv, that a run and a published value
# have to share
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


def text_of(value: Any) -> str:
    """Return a setting as published-results.csv spells it: 5 for 5.0, nothing for a
    missing value.
    """
    if isinstance(value, float):
        return "" if value != value else f"{value:.12g}"
    return str(value)


def published_cells() -> pd.DataFrame:
    """Return the published cells as text, once for each reading of the sampler: PCD-1
    is also PCD-2.
    """
    table = pd.read_csv(
        PAPER / "published-results.csv", dtype=str, keep_default_na=False
    )
    table = table.assign(line=table.index, reading=table["sampler"])
    both = pd.concat(
        [table, table[table["sampler"] == "PCD-1"].assign(reading="PCD-2")]
    )
    return both.sort_values("line", kind="stable", ignore_index=True)


@cache
def paper_settings() -> dict[str, dict[str, list[str]]]:
    """Return the values that are allowed for the settings of each kind of published
    run.
    """
    table = pd.read_csv(
        PAPER / "settings.csv", dtype=str, keep_default_na=False, index_col="setting"
    )
    return {
        kind: {name: text.split("|") for name, text in column.items() if text != "*"}
        for kind, column in table.items()
    }


def match(published: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Merge published cells with the runs that have their machine, data, sampler,
    offsets and so on.

    ``runs`` has the settings of each run as text, by run-id. The column ``departures``
    names the settings of a run that are not the paper's.
    """
    identity = pd.DataFrame(
        {ours: runs.get(name, "") for name, ours in IDENTITY.items()}, index=runs.index
    )
    identity = identity.replace({"pretraining_epochs": {"": "0"}})
    merged = published.merge(identity.assign(run=runs.index), on=[*identity])
    settings = runs.to_dict("index")
    departures = [
        [
            name
            for name, allowed in paper_settings()[kind].items()
            if name in runs and settings[run][name] not in allowed
        ]
        for kind, run in zip(merged["settings"], merged["run"], strict=True)
    ]
    return merged.assign(departures=departures)


@cache
def mismatches() -> list[dict[str, Any]]:
    """Return the entries of mismatches.yaml: where they apply, and the reason."""
    return yaml.safe_load((PAPER / "mismatches.yaml").read_text(encoding="utf-8"))


def known_reason(cell: dict[str, Any]) -> str:
    """Return why an obtained value differs from the published one; empty if that is not
    known.
    """
    for entry in mismatches():
        allowed = {
            name: value if isinstance(value, list) else [value]
            for name, value in entry["where"].items()
        }
        if all(cell[name] in map(str, values) for name, values in allowed.items()):
            return entry["reason"]
    return ""


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table, whose columns are as wide as their longest cell."""
    lines = [header, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    texts = [
        "| "
        + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True))
        + " |"
        for line in lines
    ]
    return "\n".join(
        [texts[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *texts[1:]]
    )
