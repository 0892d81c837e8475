"""From the fields of an experiment to its cells: axes, ``zip``, ``exclude`` and ``when``.

Two rules for what is nested, ``data: {flip: true}`` or ``data.flip: true``. A condition looks only at what
it names, so both spellings say the same. Where something is set (``when``, ``--set``), ``data:`` writes
the whole field as the file would, and ``data.flip:`` changes that part of it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
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
PATHS = {**FIELDS, **INNER}
# `data: mnist` is short for `data: {name: mnist}`; one sliding factor serves both sides.
SHORT = {"data": ("name",), "sliding_factor": ("visible", "hidden")}
INSTEAD = {"updates": "epochs", "epochs": "updates"}

Cell = dict[str, Any]  # field -> validated value


@dataclass
class Tie:
    """Axes that advance together."""

    node: Node
    fields: list[str]


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

    ties: list[Tie]
    exclude: list[Condition]
    when: list[tuple[Condition, Cell]]


def written(fields: Mapping[str, Node], path: str, value: Node) -> dict[str, Node]:
    """Return the fields with one of them written, or a part of it where the path is dotted.

    Writing ``epochs`` takes ``updates`` away and the other way round: a training has one length.
    """
    field, _, inner = path.partition(".")
    if inner:
        value = _with_part(fields.get(field), field, inner, value)
    return {name: node for name, node in fields.items() if name != INSTEAD.get(field)} | {field: value}


def read_rules(fields: Mapping[str, Node], problems: Problems) -> Rules:
    """Validate ``zip``, ``exclude`` and ``when``, as far as an experiment has them."""
    items = {name: items_of(fields[name], problems) for name in ("zip", "exclude", "when") if name in fields}
    return Rules(
        _ties(fields["zip"], items["zip"], problems) if "zip" in items else [],
        [_condition(item, problems) for item in items.get("exclude", [])],
        [_change(item, problems) for item in items.get("when", [])],
    )


def read_choices(fields: Mapping[str, Node], problems: Problems) -> dict[str, list[Any]]:
    """Validate the values of each setting: one, or those of its axis; nested axes become a product."""
    choices = {}
    for field, node in fields.items():
        if _count(node) > MAX_CELLS:
            problems.add(node.key, node.label, f"has more than {MAX_CELLS:,} values")
            continue
        values = [_value(field, single, problems) for single in _singles(node, field, problems)]
        choices[field] = [value for value in values if value is not None]
    return choices


def expand(
    choices: Mapping[str, list[Any]], rules: Rules, where: Node, problems: Problems
) -> tuple[Settings, ...]:
    """Return the cells of an experiment in the order of its axes, the last one fastest, each once.

    Parameters
    ----------
    choices : mapping of str to list
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
    cells: dict[Settings, None] = {}  # a dict keeps the order and merges the equal ones
    kept = 0
    for cell in _product(axes):
        held = [
            condition.holds(cell) for condition in rules.exclude
        ]  # all are asked, to know which ever held
        if any(held):
            continue
        kept += 1
        try:
            cells[Settings.model_validate(_changed(cell, rules.when))] = None
        except ValidationError as error:
            report(error, where, problems)
    if not kept:
        problems.add(where.key, where.label, "has no cell left; exclude drops them all")
    return tuple(cells)


def _axes(choices: Mapping[str, list[Any]], ties: list[Tie]) -> list[list[Cell]]:
    """Return the axes as lists of partial cells; tied fields make one axis, where the first one stands."""
    together = {field: tie.fields for tie in ties for field in tie.fields}
    axes: dict[tuple[str, ...], list[Cell]] = {}
    for field in choices:
        names = tuple(together.get(field, [field]))
        values = zip(*(choices[name] for name in names), strict=True)
        axes[names] = [dict(zip(names, row, strict=True)) for row in values]
    return list(axes.values())


def _product(axes: list[list[Cell]]) -> Iterator[Cell]:
    for parts in product(*axes):
        yield {field: value for part in parts for field, value in part.items()}


def _changed(cell: Cell, when: list[tuple[Condition, Cell]]) -> Cell:
    """Return the cell after all changes whose condition holds, each seeing those before it."""
    for condition, changes in when:
        if condition.holds(cell):
            for path, value in changes.items():
                cell = _assigned(cell, path, value)
    return cell


def _assigned(cell: Cell, path: str, value: Any) -> Cell:
    field, _, inner = path.partition(".")
    if inner:
        parts = _look_up(cell, field).model_dump(exclude_unset=True)
        value = NESTED[field].model_validate({**parts, inner: value})
    return {name: old for name, old in cell.items() if name != INSTEAD.get(field)} | {field: value}


def _look_up(cell: Cell, path: str) -> Any:
    field, _, inner = path.partition(".")
    value = cell[field] if field in cell else Settings.model_fields[field].default
    return getattr(value, inner, None) if inner else value


@cache
def _adapter(path: str) -> TypeAdapter:
    return TypeAdapter(PATHS[path])


def _value(path: str, node: Node, problems: Problems) -> Any:
    """Return the validated value of a setting; None after adding a problem."""
    try:
        return _adapter(path).validate_python(node.plain())
    except ValidationError as error:
        report(error, node, problems)
        return None


def _count(node: Node) -> int:
    if isinstance(node.value, dict):
        return prod(_count(child) for child in node.value.values())
    return 1 if isinstance(node.value, str) else sum(_count(child) for child in node.value)


def _single(node: Node) -> bool:
    if isinstance(node.value, dict):
        return all(_single(child) for child in node.value.values())
    return isinstance(node.value, str)


def _singles(node: Node, path: str, problems: Problems) -> Iterator[Node]:
    """Yield the values that a node stands for, without lists; those of a mapping are a product."""
    if isinstance(node.value, list):
        if not node.value:
            problems.add(node.place, node.label, "is an empty list; an axis has one value or more")
        for item in node.value:
            if isinstance(item.value, list):
                problems.add(item.place, item.label, "is a list within a list")
            else:
                yield from _singles(item, path, problems)
    elif path in NESTED:
        parts = fields_of(_long(node, path), NESTED[path].model_fields, problems)
        if parts or node.value == {}:
            options = [_singles(part, f"{path}.{name}", problems) for name, part in parts.items()]
            for values in product(*options):
                yield replace(node, value=dict(zip(parts, values, strict=True)))
    else:
        yield node


def _long(node: Node, field: str) -> Node:
    """Write the short form of a field out."""
    if isinstance(node.value, dict) or field not in SHORT:
        return node
    return replace(node, value=dict.fromkeys(SHORT[field], node))


def _with_part(node: Node | None, field: str, inner: str, value: Node) -> Node:
    if node is None:
        return replace(value, value={inner: value})
    if isinstance(node.value, list):
        return replace(node, value=[_with_part(item, field, inner, value) for item in node.value])
    node = _long(node, field)
    return replace(node, value={**node.value, inner: value}) if isinstance(node.value, dict) else node


def _ties(zipped: Node, items: list[Node], problems: Problems) -> list[Tie]:
    """Read ``zip: [field, field]``, or a list of such lists."""
    several = items and all(isinstance(item.value, list) for item in items)
    ties = [Tie(group, _names(group, problems)) for group in (items if several else [zipped])]
    seen = [field for tie in ties for field in tie.fields]
    for field in dict.fromkeys(seen):
        if seen.count(field) > 1:
            problems.add(zipped.place, zipped.label, f"names {field} twice")
    return ties


def _names(group: Node, problems: Problems) -> list[str]:
    fields = []
    for item in items_of(group, problems):
        name = shown(item)
        if name in FIELDS:
            fields.append(name)
        else:
            hint = did_you_mean(name, FIELDS)
            problems.add(item.place, item.label, f"ties whole fields; there is no {name}{hint}")
    return fields


def check_ties(ties: list[Tie], choices: Mapping[str, list[Any]], problems: Problems) -> None:
    """Add a problem for each tie of fields that are not given, or of axes that differ in length."""
    for tie in ties:
        missing = [field for field in tie.fields if field not in choices]
        lengths = {field: len(choices[field]) for field in tie.fields if field in choices}
        told = ", ".join(f"{field} has {length}" for field, length in lengths.items())
        if missing:
            problems.add(tie.node.place, tie.node.label, f"ties {missing[0]}, which is not given here")
        elif len(set(lengths.values())) > 1:
            problems.add(tie.node.place, tie.node.label, f"ties axes of different lengths: {told}")


def _condition(node: Node, problems: Problems) -> Condition:
    tests = {}
    for path, child in _leaves(node, problems).items():
        items = child.value if isinstance(child.value, list) else [child]
        tests[path] = [_value(path, item, problems) for item in items]
    if node.value == {}:
        problems.add(node.place, node.label, "names no field; it would hold for all cells")
    return Condition(node, tests)


def _leaves(node: Node, problems: Problems, within: str = "") -> dict[str, Node]:
    """Return what a condition names, nested mappings as dotted names."""
    leaves = {}
    known = NESTED[within].model_fields if within else PATHS
    for name, child in fields_of(node, known, problems).items():
        path = f"{within}.{name}" if within else name
        leaves |= _leaves(_long(child, path), problems, path) if path in NESTED else {path: child}
    return leaves


def _change(node: Node, problems: Problems) -> tuple[Condition, Cell]:
    parts = fields_of(node, ("if", "set"), problems)
    for name in {"if", "set"} - parts.keys():
        if isinstance(node.value, dict):
            problems.add(node.key, f"{node.label}.{name}", "is missing")
    condition = _condition(parts["if"], problems) if "if" in parts else Condition(node, {})
    return condition, _changes(parts["set"], problems) if "set" in parts else {}


def _changes(node: Node, problems: Problems) -> Cell:
    changes = {}
    for path, child in fields_of(node, PATHS, problems).items():
        if not _single(child):
            problems.add(child.place, child.label, "sets one value, not a list")
            continue
        for single in _singles(child, path, problems):
            changes[path] = _value(path, single, problems)
    return changes
