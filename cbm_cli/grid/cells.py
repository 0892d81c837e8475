"""From the fields of an experiment to its cells: axes, ``zip``, ``exclude`` and ``when``.

Two rules for what is nested, ``data: {flip: true}`` or ``data.flip: true``. A condition looks only at what
it names, so both spellings say the same. Where something is set (``when``, ``--set``), ``data:`` writes
the whole field as the file would, and ``data.flip:`` changes that part of it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import prod
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from cbm_cli.grid.settings import Frozen, Settings
from cbm_cli.grid.wording import did_you_mean, fields_of, items_of, report, shown
from cbm_cli.grid.yaml_text import Node, Problems

MAX_CELLS = 1_000_000
FIELDS = get_type_hints(Settings, include_extras=True)
NESTED: dict[str, type[Frozen]] = {
    name: kind for name, kind in FIELDS.items() if isinstance(kind, type) and issubclass(kind, Frozen)
}
INNER = {
    f"{name}.{inner}": kind
    for name, model in NESTED.items()
    for inner, kind in get_type_hints(model, include_extras=True).items()
}
# `data: mnist` is short for `data: {name: mnist}`; one sliding factor serves both sides.
SHORT = {"data": ("name",), "sliding_factor": ("visible", "hidden")}
INSTEAD = {"updates": "epochs", "epochs": "updates"}

Cell = dict[str, Any]  # field -> validated value


@dataclass
class Condition:
    """What must hold for a cell: for each field, dotted where nested, the values it may have."""

    node: Node
    tests: dict[str, list[Any]]
    matched: bool = False

    def holds(self, cell: Cell) -> bool:
        """Whether all fields have one of the values; remembers that it ever did."""
        found = all(_look_up(cell, path) in values for path, values in self.tests.items())
        self.matched |= found
        return found


@dataclass
class Rules:
    """``zip``, ``exclude`` and ``when`` of an experiment, validated."""

    ties: list[list[str]]
    exclude: list[Condition]
    when: list[tuple[Condition, Cell]]


def write_field(fields: dict[str, Node], path: str, value: Node) -> dict[str, Node]:
    """Return the fields with one of them written, or a part of it where the path is dotted.

    Writing ``epochs`` takes ``updates`` away and the other way round: a training has one length.
    """
    field, _, inner = path.partition(".")
    if inner:
        value = _with_part(fields.get(field), field, inner, value)
    return {name: node for name, node in fields.items() if name != INSTEAD.get(field)} | {field: value}


def read_rules(zipped: Node | None, exclude: Node | None, when: Node | None, problems: Problems) -> Rules:
    """Validate ``zip``, ``exclude`` and ``when``; None stands for one that is not given."""
    return Rules(
        _ties(zipped, problems) if zipped else [],
        [_condition(item, problems) for item in (items_of(exclude, problems) if exclude else [])],
        [_change(item, problems) for item in (items_of(when, problems) if when else [])],
    )


def expand(fields: Mapping[str, Node], rules: Rules, where: Node, problems: Problems) -> tuple[Settings, ...]:
    """Return the cells of an experiment in the order of its axes, the last one fastest, each once.

    Parameters
    ----------
    fields : mapping of str to Node
        Settings as the file gives them: a value, or a list of values (an axis).
    rules : Rules
    where : Node
        The experiment, named by problems of a whole cell.
    problems : Problems
        What is wrong is added here; the result then is empty.
    """
    before = len(problems)
    axes = _axes({field: _choices(field, node, problems) for field, node in fields.items()}, rules.ties, where)
    if isinstance(axes, str):
        problems.add(where.key, where.label, axes)
    if len(problems) > before:
        return ()
    if prod(len(axis) for axis in axes) > MAX_CELLS:
        problems.add(where.key, where.label, f"has more than {MAX_CELLS:,} cells; split it, or drop an axis")
        return ()
    cells: dict[Settings, None] = {}
    for cell in _changed(axes, rules):
        try:
            cells[Settings.model_validate(cell)] = None
        except ValidationError as error:
            report(error, where, problems)
    if not cells and len(problems) == before:
        problems.add(where.key, where.label, "has no cell left; exclude drops them all")
    return tuple(cells) if len(problems) == before else ()
