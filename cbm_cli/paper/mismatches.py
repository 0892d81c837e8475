"""Why obtained values differ from published ones, where something is known."""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

import yaml

from cbm_cli.paper import MISMATCHES, PAPER_TABLES
from cbm_cli.text import count

LIMIT = 2.0  # standard errors from which on values differ


@cache
def _entries() -> list[dict[str, Any]]:
    return yaml.safe_load(MISMATCHES.read_text(encoding="utf-8"))


def known_reason(cell: dict[str, Any]) -> str:
    """Return why a value of ``Comparison.cells`` differs from the published one, if that is known."""
    for entry in _entries():
        where = ((cell[name], known) for name, known in entry["where"].items())
        if all(value in [*map(str, known if isinstance(known, list) else [known])] for value, known in where):
            return entry["reason"]
    return ""


def reasons(cells: Sequence[dict[str, Any]]) -> list[str]:
    """Return the known reasons of values that differ, each with their number."""
    found = Counter(filter(None, map(known_reason, cells)))
    return [f"{_beyond(number)}: {reason}" for reason, number in found.most_common()]


def without_reason(cells: Sequence[dict[str, Any]]) -> str:
    """Name the values that differ for no known reason; empty if there are none."""
    names = ("dataset", "offsets", "obtained_sampler", "learning_rate")
    left = [cell for cell in cells if not known_reason(cell)]
    tables: dict[str, list[str]] = {}
    for cell in left:
        value = f"{' '.join(cell[name] for name in names)} ({cell['z']:+.1f})"
        tables.setdefault(f"table {PAPER_TABLES[cell['table']]}", []).append(value)
    where = "; ".join(f"{table}: {', '.join(values)}" for table, values in tables.items())
    return f"{_beyond(len(left))}, by chance or for no known reason, in {where}." * bool(left)


def _beyond(number: int) -> str:
    return f"{count(number, 'value')} beyond {LIMIT:g} standard errors"
