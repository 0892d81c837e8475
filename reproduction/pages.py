"""Write the pages of the reproduction from the kept results beside this script, and
from pages.yaml.

    python reproduction/pages.py

writes index.md, tables.md and figures.md in docs/reproduction. settled.md beside them
is written by hand. The same files give the same pages.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from compare import Comparison, KeptTrials, compare
from figures import figures
from findings import NOTE, Judged, check_findings, count_findings, finding_table
from printed import TABLES, markdown
from scoreboard import score, scoreboard

PAGES = Path(__file__).parents[1] / "docs/reproduction"


def said(texts: Mapping[str, Any]) -> list[str]:
    """Return what pages.yaml says of a table or figure."""
    return [
        f"**{name.title()}.** {texts[name].strip()}"
        for name in ("agrees", "differs")
        if name in texts
    ]


def statements(judged: list[Judged], kind: str, number: int) -> list[str]:
    """Return the findings that the paper has beside a table or figure, with the numbers
    that they rest on.
    """
    own = [
        [one.finding["says"], one.verdict, one.numbers()]
        for one in judged
        if str(number) in re.findall(r"\d+", one.finding["place"].partition(kind)[2])
        and one.evidence
    ]
    return (
        [
            markdown(
                ["the paper states", "here", "comparisons as stated, and values"], own
            )
        ]
        if own
        else []
    )


def table_page(
    comparison: Comparison, judged: list[Judged], texts: Mapping[int, Any]
) -> list[str]:
    """Return the page of the paper's tables: published beside obtained values."""
    counts = score(comparison).set_index("table")
    blocks = [
        "# Tables of the paper",
        (
            "Published next to obtained values, printed by `python "
            "reproduction/compare.py`."
        ),
        "\n".join(f"- {note}" for note in comparison.notes()),
    ]
    for name, number in TABLES.items():
        own = comparison.cells[comparison.cells["table"] == name]
        if own.empty:
            continue
        row, its = counts.loc[number], texts[int(number)]
        part = replace(comparison, cells=own, chances=comparison.chances.loc[own.index])
        blocks += [
            f"## Table {number}: {its['title']}",
            f"Experiments: {', '.join(f'`{one}`' for one in its['experiments'])}. "
            f"{row['run']} of "
            f"{row['published']} published values were run. {row['named']} are within "
            "2 standard errors as "
            f"named, {row['read']} as read; {row['agreeing']} of {row['marks']} marks "
            "agree.",
            *said(its),
            *statements(judged, "table", int(number)),
        ]
        for title, table in part.tables():
            blocks += [f"### {title.partition(': ')[2]}", table]
    return blocks


def figure_page(judged: list[Judged], texts: Mapping[int, Any]) -> list[str]:
    """Return the page of the paper's figures: what they show, and what was obtained."""
    blocks = [
        "# Figures of the paper",
        "`python reproduction/figures.py RESULTS FOLDER NUMBER` draws the panels of a "
        "figure from results "
        "with curves, which the kept results lack where trials are many. The pictures "
        "here were drawn when "
        "the experiments were run: of small machines all 25 trials, of the others "
        "those that the text names.",
    ]
    for number, its in texts.items():
        pictures = sorted(
            PAGES.glob(f"figure-{number}[-.]*png"), key=lambda path: path.stem
        )
        blocks += [
            f"## Figure {number}: {its['title']}",
            f"In the paper: {figures()[number]['shows']}",
            *said(its),
            *(f"![Figure {number}, obtained]({path.name})" for path in pictures),
            *statements(judged, "figure", number),
        ]
    return blocks


def pages() -> dict[str, str]:
    """Return the text of each page by its name."""
    trials = KeptTrials()
    comparison, judged = compare(trials), check_findings(trials)
    texts = yaml.safe_load(
        Path(__file__).with_name("pages.yaml").read_text(encoding="utf-8")
    )
    hours = trials.frame["seconds"].sum() / 3600
    blocks = {
        "index.md": [
            texts["front"].strip(),
            "## Scoreboard",
            *scoreboard(comparison),
            "## Findings",
            "What the paper states in prose and figures, checked by `python "
            f"reproduction/findings.py`. {count_findings(judged)}",
            NOTE,
            finding_table(judged),
            f"The kept trials took {hours:,.0f} hours, each on one core.",
        ],
        "tables.md": table_page(comparison, judged, texts["tables"]),
        "figures.md": figure_page(judged, texts["figures"]),
    }
    return {name: "\n\n".join(own) + "\n" for name, own in blocks.items()}


def main() -> None:
    for name, text in pages().items():
        (PAGES / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
