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
UNKNOWN = "by chance, or for no known reason (below)"


def score(comparison: Comparison) -> pd.DataFrame:
    """Count published, run and agreeing values and marks: one row for each table of the
    paper, and the sum.

    ``named`` counts values within 2 standard errors; ``read`` counts them with PCD-2
    for the published PCD-1 where it was run, except on MNIST. Both are counts of
    ``run``, as are ``agreeing`` of ``marks``.
    """
    published = published_cells().drop_duplicates("line")["table"].value_counts()
    read, named = comparison.as_read(), comparison.as_named()

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


def scoreboard(comparison: Comparison) -> list[str]:
    """Return the blocks of the scoreboard in Markdown: counts, and known reasons."""
    read = comparison.as_read()
    chance = (1 - comparison.chances.loc[read.index, "z"]).sum()
    return [
        counts_by_table(comparison),
        "- **run**: published values with a run of the paper's settings.\n"
        f"- **as named**, **as read**: values within {LIMIT:g} standard errors. "
        "*As read* takes PCD-2 for the published PCD-1, except on MNIST.\n"
        "- **marks**: as named, where the whole row was run.",
        f"As read, {(read['z'].abs() > LIMIT).sum()} values differ by more than "
        f"{LIMIT:g} standard errors, and {read['disproved'].sum()} are disproved. If "
        f"all were right, {chance:.0f} would differ by chance.",
        reason_table(comparison),
        "Values that differ by chance or for no known reason:",
        unexplained_table(comparison),
    ]


def counts_by_table(comparison: Comparison) -> str:
    """Return how many values of each table were run and agree."""
    lines = []
    for row in score(comparison).to_dict("records"):
        fewest, most, run = row["fewest_trials"], row["most_trials"], row["run"]
        trials = str(most) if fewest == most else f"{fewest} to {most}"
        counts = [str(row["named"]), str(row["read"])]
        if not run:
            trials, counts = "–", ["–", "–"]
        marks = f"{row['agreeing']} of {row['marks']}" if row["marks"] else "–"
        not_run = row["published"] - run
        numbers = [*map(str, (row["table"], row["published"], run, not_run))]
        lines.append([*numbers, trials, *counts, marks])
    return markdown(HEADER, lines)


def reason_table(comparison: Comparison) -> str:
    """Return the reasons of values that differ, and how many each explains."""
    lines = [
        [row["reason"] or UNKNOWN, str(row["named"]), str(row["read"])]
        for row in comparison.reasons().to_dict("records")
    ]
    return markdown(["reason", "as named", "as read"], lines)


def unexplained_table(comparison: Comparison) -> str:
    """Return the values that differ, as read, without a known reason."""
    names = ["dataset", "offsets", "obtained_sampler", "learning_rate"]
    lines = [
        [
            TABLES[cell["table"]],
            *(str(cell[name]) for name in names),
            f"{cell['z']:+.1f}",
        ]
        for cell in comparison.unexplained().to_dict("records")
    ]
    return markdown(["table", "data", "offsets", "sampler", "rate", "z"], lines)


def main() -> None:
    print("\n\n".join(scoreboard(compare(KeptTrials(*sys.argv[1:2])))))


if __name__ == "__main__":
    main()
