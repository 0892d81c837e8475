"""The scoreboard: how many published values were run and agree, and why others do not."""

from typing import Any

import pandas as pd

from cbm_cli.paper import PAPER_TABLES
from cbm_cli.paper.comparison import ROW, Comparison
from cbm_cli.paper.mismatches import LIMIT, reasons, without_reason
from cbm_cli.paper.published import published_cells
from cbm_cli.sheets import Document, Group, Label, Sheet

VALUE = [*ROW, "offsets", "init"]  # columns that tell published values apart
HEADER = ["Table", "published", "run", "not run", "trials", "as named", "as read", "marks agree"]


def score(comparison: Comparison) -> pd.DataFrame:
    """Count published, run and agreeing values and marks: one row for each table of the paper, and the sum.

    ``named`` counts values within 2 standard errors; ``read`` counts them with PCD-2 for the published PCD-1
    where it was run, except on MNIST. Both are counts of ``run``, as are ``agreeing`` of ``marks``.
    """
    published = published_cells().drop_duplicates("line")["table"].value_counts()
    cells = comparison.cells
    named = cells[cells["sampler"] == cells["obtained_sampler"]]
    read = _read(comparison)

    def row(tables: list[str], name: str) -> dict[str, Any]:
        own, asis = (of[of["table"].isin(tables)] for of in (read, named))
        marks = asis["marks_agree"].dropna()
        return {
            "table": name,
            "published": int(published[tables].sum()),
            "run": len(own),
            "fewest_trials": int(own["obtained_n"].min()) if len(own) else 0,
            "most_trials": int(own["obtained_n"].max()) if len(own) else 0,
            "named": int((asis["z"].abs() <= LIMIT).sum()),
            "read": int((own["z"].abs() <= LIMIT).sum()),
            "agreeing": int(marks.sum()),
            "marks": len(marks),
        }

    rows = [row([table], number) for table, number in PAPER_TABLES.items()]
    return pd.DataFrame([*rows, row([*PAPER_TABLES], "sum")])


def _read(comparison: Comparison) -> pd.DataFrame:
    """Return one cell for each published value that was run, that of PCD-2 for PCD-1 except on MNIST."""
    cells = comparison.plausible().sort_values("obtained_sampler", kind="stable")
    return cells.drop_duplicates(VALUE, keep="last")


def scoreboard(comparison: Comparison, *more: str) -> Document:
    """Return the scoreboard to print, and the known reasons of differences; ``more`` are further notes."""
    table = score(comparison)
    lines = [[*map(Label.of, _texts(row))] for row in table.to_dict("records")]
    read = _read(comparison)
    chance = (1 - comparison.chances.loc[read.index, "z"]).sum()
    notes = [
        "run: published values with a run of the paper's settings. as named, as read: how many of these are "
        f"within {LIMIT:g} standard errors; as read, PCD-1 is PCD-2 where it was run, except on MNIST. "
        f"marks: as named, where the whole row was run. As read, {(read['z'].abs() > LIMIT).sum()} values "
        f"are beyond {LIMIT:g} standard errors; if all were right, {chance:.0f} would be by chance. "
        "The reasons below count values as named and as read.",
        *reasons(comparison.differing()),
        *filter(None, [without_reason(comparison.differing()), *more]),
    ]
    sheet = Sheet([*map(Label.of, HEADER)], [Group(None, lines[:-1]), Group(None, lines[-1:])], "Scoreboard")
    return Document([sheet], notes, records=table.to_dict("records"), about={"notes": notes})


def _texts(row: dict[str, Any]) -> list[str]:
    fewest, most, run = row["fewest_trials"], row["most_trials"], row["run"]
    counts = [str(row[name]) if run else "–" for name in ("named", "read")]
    trials = "–" if not run else str(most) if fewest == most else f"{fewest} to {most}"
    marks = f"{row['agreeing']} of {row['marks']}" if row["marks"] else "–"
    return [*map(str, (row["table"], row["published"], run, row["published"] - run)), trials, *counts, marks]
