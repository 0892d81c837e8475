"""What the page of results says of the paper: published beside obtained values, and findings."""

from collections.abc import Set
from typing import Any

import pandas as pd

from cbm_cli.errors import IncompleteError
from cbm_cli.paper.comparison import compare
from cbm_cli.paper.findings import check_findings
from cbm_cli.results import Results
from cbm_cli.sheets import Item, Label


def beside_the_paper(results: Results, experiments: Set[str], summary: pd.DataFrame) -> dict[str, Any]:
    """Return the scoreboard of the trials of some experiments, and the findings on them."""
    return {"scoreboard": _scoreboard(results, summary), "findings": _findings(results, experiments)}


def _scoreboard(results: Results, summary: pd.DataFrame) -> dict[str, Any]:
    """Compare with the paper; where nothing can be compared, say why."""
    try:
        document = compare(summary, results.store).document()
    except IncompleteError as error:
        return {"reason": str(error)}
    return {
        "summary": document.summary,
        "notes": document.notes,
        "tables": [
            {
                "title": sheet.title,
                "header": [head.unicode for head in sheet.header],
                "rows": [[*map(_text, row)] for group in sheet.groups for row in group.rows],
            }
            for sheet in document.sheets
        ],
        "reason": "",
    }


def _text(item: Item) -> str:
    return item.unicode if isinstance(item, Label) else item.around(item.number)


def _findings(results: Results, experiments: Set[str]) -> dict[str, Any]:
    """Return the paper's findings on some experiments, and how many there are on others."""
    try:
        judged = check_findings(results)
    except IncompleteError:  # the scoreboard says why
        return {"records": [], "others": 0}
    needed = [one for one in judged if one.finding["experiments"]]  # not what the paper proves
    own = [one for one in needed if experiments & {*one.finding["experiments"]}]
    return {"records": [one.record() for one in own], "others": len(needed) - len(own)}
