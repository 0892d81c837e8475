"""The cells of an experiment: the product of its axes, less what is excluded, with what is changed."""

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from typing import Any, NamedTuple

from pydantic import ValidationError

from cbm_cli.grid.fields import Cell, count, singles, validated
from cbm_cli.grid.rules import Rules, Tie, changed
from cbm_cli.grid.settings import Settings
from cbm_cli.grid.wording import report
from cbm_cli.grid.yaml_text import Node, Problems

MAX_CELLS = 1_000_000


class Choice(NamedTuple):
    """A validated value of a setting, and where it stands."""

    value: Any
    node: Node


def read_choices(fields: Mapping[str, Node], problems: Problems) -> dict[str, list[Choice]]:
    """Validate the values of each setting: one, or those of its axis; nested axes become a product."""
    choices = {}
    for field, node in fields.items():
        if count(node) > MAX_CELLS:
            problems.add(node.key, node.label, f"has more than {MAX_CELLS:,} values")
            continue
        found = [Choice(validated(field, one, problems), one) for one in singles(node, field, problems)]
        choices[field] = [choice for choice in found if choice.value is not None]
    return choices


def expand(
    choices: Mapping[str, list[Choice]], rules: Rules, where: Node, problems: Problems
) -> tuple[Settings, ...]:
    """Return the cells of an experiment in the order of its axes, the last one fastest, each once.

    Parameters
    ----------
    choices : mapping of str to list of Choice
        Validated values of each setting, as `read_choices` returns them.
    rules : Rules
        Validated, as `read_rules` returns them; their conditions remember whether they ever held.
    where : Node
        The experiment, named by problems of a whole cell.
    problems : Problems
        What is wrong with a cell is added here.
    """
    axes = _axes(choices, rules.ties)
    if prod(map(len, axes)) > MAX_CELLS:
        problems.add(where.key, where.label, f"has more than {MAX_CELLS:,} cells; split it, or drop an axis")
        return ()
    sources = {(field, choice.value): choice.node for field in choices for choice in choices[field]}
    cells: dict[Settings, None] = {}  # a dict keeps the order and merges the equal ones
    kept = 0
    for cell in _product(axes):
        held = [condition.holds(cell) for condition in rules.exclude]  # asks all: each must hold once
        if any(held):
            continue
        kept += 1
        try:
            cells[Settings.model_validate(changed(cell, rules.when))] = None
        except ValidationError as error:
            report(error, where, problems, sources)
    if not kept:
        problems.add(where.key, where.label, "has no cell left; exclude drops them all")
    return tuple(cells)


def _axes(choices: Mapping[str, list[Choice]], ties: list[Tie]) -> list[list[Cell]]:
    """Return the axes as lists of partial cells; tied fields make one axis, where the first one stands."""
    together = {field: tie.fields for tie in ties for field in tie.fields}
    axes: dict[tuple[str, ...], list[Cell]] = {}
    for field in choices:
        names = tuple(together.get(field, [field]))
        rows = zip(*(choices[name] for name in names), strict=True)
        axes[names] = [{name: one.value for name, one in zip(names, row, strict=True)} for row in rows]
    return list(axes.values())


def _product(axes: list[list[Cell]]) -> Iterator[Cell]:
    for parts in product(*axes):
        yield {field: value for part in parts for field, value in part.items()}
