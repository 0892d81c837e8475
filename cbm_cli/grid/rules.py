"""``zip``, ``exclude`` and ``when`` of an experiment."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cbm_cli.grid.fields import FIELDS, INSTEAD, NESTED, PATHS, Cell, is_single, long_form, singles, validated
from cbm_cli.grid.settings import Settings
from cbm_cli.grid.values import Frozen
from cbm_cli.grid.wording import did_you_mean, fields_of, items_of, shown
from cbm_cli.grid.yaml_text import Node, Problems


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


def read_rules(fields: Mapping[str, Node], problems: Problems) -> Rules:
    """Validate ``zip``, ``exclude`` and ``when``, as far as an experiment has them."""
    items = {name: items_of(fields[name], problems) for name in ("zip", "exclude", "when") if name in fields}
    return Rules(
        _ties(fields["zip"], items["zip"], problems) if "zip" in items else [],
        [_condition(item, problems) for item in items.get("exclude", [])],
        [_change(item, problems) for item in items.get("when", [])],
    )


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


def changed(cell: Cell, when: list[tuple[Condition, Cell]]) -> Cell:
    """Return the cell after all changes whose condition holds, each seeing those before it."""
    for condition, changes in when:
        if condition.holds(cell):
            for path, value in changes.items():
                cell = _assigned(cell, path, value)
    return cell


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


def _condition(node: Node, problems: Problems) -> Condition:
    tests = {}
    for path, child in _leaves(node, problems).items():
        items = child.value if isinstance(child.value, list) else [child]
        tests[path] = [validated(path, item, problems) for item in items]
    if node.value == {}:
        problems.add(node.place, node.label, "names no field; it would hold for all cells")
    return Condition(node, tests)


def _leaves(node: Node, problems: Problems, within: str = "") -> dict[str, Node]:
    """Return what a condition names, nested mappings as dotted names."""
    leaves = {}
    known = NESTED[within].model_fields if within else PATHS
    for name, child in fields_of(node, known, problems).items():
        path = f"{within}.{name}" if within else name
        leaves |= _leaves(long_form(child, path), problems, path) if path in NESTED else {path: child}
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
        child = long_form(child, path)
        if not is_single(child):
            problems.add(child.place, child.label, "sets one value, not a list")
            continue
        for single in singles(child, path, problems):
            changes[path] = validated(path, single, problems)
    return changes


def _assigned(cell: Cell, path: str, value: Any) -> Cell:
    field, _, inner = path.partition(".")
    if inner:
        old = _look_up(cell, field)
        parts = {name: getattr(old, name) for name in old.model_fields_set} if isinstance(old, Frozen) else {}
        value = NESTED[field].model_validate({**parts, inner: value})
    return {name: old for name, old in cell.items() if name != INSTEAD.get(field)} | {field: value}


def _look_up(cell: Cell, path: str) -> Any:
    field, _, inner = path.partition(".")
    value = cell[field] if field in cell else Settings.model_fields[field].default
    return getattr(value, inner, None) if inner else value
