"""The scoreboard: how many published values were run and agree, and why others do not.

python reproduction/scoreboard.py [RESULTS]
"""

import sys
from typing import Any

import pandas as pd
from compare import LIMIT, Comparison, KeptTrials, compare
from printed import TABLES, markdown, published_cells

HEADER = [
    "table",
    "published",
    "run",
    "not run",
    "trials",
    "as named",
    "as read",
    "marks agree",
]


def score(comparison: Comparison) -> pd.DataFrame:
    """Count published, run and agreeing values and marks: one row for each table of the
    paper, and the sum.

    ``named`` counts values within 2 standard errors; ``read`` counts them with PCD-2
    for the published PCD-1 where it was run, except on MNIST. Both are counts of
    ``run``, as are ``agreeing`` of ``marks``.
    """
    published = published_cells().drop_duplicates("line")["table"].value_counts()
    cells, read = comparison.cells, comparison.as_read()
    named = cells[cells["sampler"] == cells["obtained_sampler"]]

    def row(tables: list[str], name: str) -> dict[str, Any]:
        own, as_named = (of[of["table"].isin(tables)] for of in (read, named))
        marks = as_named["marks_agree"].dropna()
        return {
            "table": name,
            "published": int(published[tables].sum()),
            "run": len(own),
            "fewest_trials": int(own["obtained_n"].min()) if len(own) else 0,
            "most_trials": int(own["obtained_n"].max()) if len(own) else 0,
            "named": int((as_named["z"].abs() <= LIMIT).sum()),
            "read": int((own["z"].abs() <= LIMIT).sum()),
            "agreeing": int(marks.sum()),
            "marks": len(marks),
        }

    rows = [row([table], number) for table, number in TABLES.items()]
    return pd.DataFrame([*rows, row([*TABLES], "sum")])


def scoreboard(comparison: Comparison) -> tuple[str, list[str]]:
    """Return the scoreboard as a Markdown table, and notes with the known reasons of
    differences.
    """
    lines = []
    for row in score(comparison).to_dict("records"):
        fewest, most, run = row["fewest_trials"], row["most_trials"], row["run"]
        trials = (
            "–" if not run else str(most) if fewest == most else f"{fewest} to {most}"
        )
        counts = [str(row[name]) if run else "–" for name in ("named", "read")]
        marks = f"{row['agreeing']} of {row['marks']}" if row["marks"] else "–"
        numbers = [
            *map(str, (row["table"], row["published"], run, row["published"] - run))
        ]
        lines.append([*numbers, trials, *counts, marks])
    read = comparison.as_read()
    chance = (1 - comparison.chances.loc[read.index, "z"]).sum()
    notes = [
        "run: published values with a run of the paper's settings. as named, as read: "
        "how many of these are "
        f'within {LIMIT:g} standard errors; "as read" takes PCD-2 for the published '
        "PCD-1 where it was run, "
        "except on MNIST. marks: as named, where the whole row was run.",
        f"As read, {(read['z'].abs() > LIMIT).sum()} values are beyond {LIMIT:g} "
        "standard errors; if all "
        f"were right, {chance:.0f} would be by chance. {read['disproved'].sum()} are "
        "disproved. The reasons "
        "below count values as named and as read.",
        *comparison.reasons(),
    ]
    return markdown(HEADER, lines), notes


def main() -> None:
    table, notes = scoreboard(compare(KeptTrials(*sys.argv[1:2])))
    print("\n".join([table, "", *notes]))


if __name__ == "__main__":
    main()
