"""The cells of an experiment: the product of its axes, without what is excluded, with what is changed.

What is nested may be written in two ways, ``data: {flip: true}`` or ``data.flip: true``. A condition looks
only at what it names, so both say the same. Where something is set (``when``, ``--set``), ``data:`` replaces
the whole field, and ``data.flip:`` changes that part of it.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from itertools import product
from math import prod
from typing import Any, NamedTuple, get_type_hints

from pydantic import TypeAdapter, ValidationError

from cbm_cli.datasets.columns import as_line
from cbm_cli.errors import Kind
from cbm_cli.grid.settings import NESTED, Settings
from cbm_cli.grid.values import Frozen, Misfit
from cbm_cli.grid.yaml_places import (
    Fields,
    Items,
    Mark,
    Problems,
    Text,
    Value,
    fields_of,
    items_of,
    marked,
    shown,
    unknown,
)

MAX_CELLS = 1_000_000


def _types(model: type[Frozen], prefix: str = "") -> dict[str, Any]:
    hints = get_type_hints(model, include_extras=True)
    return {f"{prefix}{name}": hints[name] for name in model.model_fields}


FIELDS = _types(Settings)
PATHS = FIELDS | {path: kind for name in NESTED for path, kind in _types(NESTED[name], f"{name}.").items()}
# `data: mnist` is short for `data: {name: mnist}`; one sliding factor is for both sides.
SHORT = {
    "data": ("name",),
    "learning_rate": ("start",),
    "weight_decay": ("l2",),
    "sliding_factor": ("visible", "hidden"),
    "offset_means": ("visible", "hidden"),
    "gradient": ("kind",),
    "pretraining": ("epochs",),
    "record": ("what",),
    "evaluate": ("method",),
    "start_from": ("path",),  # or experiment, by the look of it
}
DEEP = ("dbm", "auto-encoder")  # kinds for which `hidden: [500, 200]` is one machine
INSTEAD = {"updates": "epochs", "epochs": "updates"}  # writing one removes the other
_DEFAULTS = {name: info.default for name, info in Settings.model_fields.items() if not info.is_required()}


class Choice(NamedTuple):
    """A validated value of a setting."""

    value: Any
    source: Value  # as in the file; a mapping for nested fields, without lists
    marks: tuple[tuple[str, Mark], ...]  # of the fields that are given, dotted where nested


Cell = dict[str, Choice]
Effects = dict[Mark, str]  # for each given value the reason why it changes nothing, "" if it does somewhere


# Values


@cache
def _adapter(path: str) -> TypeAdapter:
    return TypeAdapter(PATHS[path])


def validated(path: str, value: Value, problems: Problems) -> Choice | None:
    """Return the validated value of a setting; None after adding a problem."""
    try:
        found = _adapter(path).validate_python(value)
    except ValidationError as error:
        report(error, value, problems)
        return None
    given = value.items() if isinstance(value, dict) else ()
    marks = [(f"{path}.{name}", part.mark) for name, part in given]
    return Choice(found, value, (*marks,) or ((path, value.mark),))


def report(error: ValidationError, value: Value, problems: Problems) -> None:
    """Add what pydantic found in a value, each problem at the place of the part that it is about."""
    phrases: dict[tuple[Mark, str], list[str]] = {}
    for item in error.errors(include_url=False):
        part: Any = value
        for step in item["loc"]:  # as far as the file has it; pydantic also names members of unions
            if step in part if isinstance(part, dict) else isinstance(part, list) and isinstance(step, int):
                part = part[step]
        if item["type"] == "missing":
            problems.add(part.mark, "is missing", str(item["loc"][-1]), kind="missing")
        elif item["type"] == "value_error":
            blame(item["ctx"]["error"], part, problems)
        else:
            phrases.setdefault((part.mark, shown(part)), []).append(_phrase(item))
    for (mark, text), choices in phrases.items():
        choices = list(dict.fromkeys(choices))
        words = [word for choice in choices for word in re.split(" or |, ", choice)]
        close = get_close_matches(text, words, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        problems.add(mark, f"must be {' or '.join(choices)}, not {text}{hint}")


def blame(error: ValueError, value: Value, problems: Problems) -> None:
    """Add an error that was raised for a whole value, at the field that it names, if it names one."""
    field = getattr(error, "field", "")
    if field and isinstance(value, dict) and field in value:
        value, field = value[field], ""
    whole = isinstance(value, dict)
    kinds: tuple[Kind, ...] = getattr(error, "kinds", ("value",))
    problems.add(value.mark, str(error), field if whole else "", whole, kinds[0])


_PHRASES = {
    "greater_than": "greater than {gt:g}",
    "greater_than_equal": "{ge:g} or more",
    "less_than": "less than {lt:g}",
    "less_than_equal": "{le:.17g} or less",
    "finite_number": "finite",
    "literal_error": "{expected}",
    "string_type": "text",
    "tuple_type": "a list",
}
_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "model": "a mapping"}


def _phrase(item: Mapping[str, Any]) -> str:
    kind = item["type"]
    if kind in _PHRASES:
        return _PHRASES[kind].format(**item.get("ctx", {})).replace("'", "")
    return _KINDS.get(kind.split("_")[0], item["msg"])


def singles(value: Value, path: str, problems: Problems) -> Iterator[Value]:
    """Yield the values without lists that a value stands for; a mapping is the product of its fields."""
    if isinstance(value, list):
        if not value:
            problems.add(value.mark, "is an empty list; an axis has one value or more")
        for item in value:
            if isinstance(item, Items):
                problems.add(item.mark, "is a list within a list")
            else:
                yield from singles(item, path, problems)
    elif path in NESTED:
        value = long_form(value, path)
        if path == "model" and isinstance(value, dict):
            kind, hidden = value.get("kind"), value.get("hidden")
            if isinstance(kind, list) and isinstance(hidden, Items):
                remedy = "give model: a list of mappings, one per kind"
                told = f"is an axis or layers, depending on the kind; {remedy}"
                problems.add(hidden.mark, told, kind="conflict")
                return
        parts = fields_of(value, NESTED[path].model_fields, problems)
        if parts or value == {}:
            options = [singles(part, f"{path}.{name}", problems) for name, part in parts.items()]
            for values in product(*options):
                yield marked(Fields(zip(parts, values, strict=True)), value.mark)
    else:
        yield value


def long_form(value: Value, field: str) -> Value:
    """Return a nested field as a mapping; the layers of a machine, ``[500, 500]``, become ``500-500``."""
    if isinstance(value, dict):
        return _with_layers(value) if field == "model" else _with_columns(value) if field == "data" else value
    if field not in SHORT:
        return value
    parts = SHORT[field]
    if field == "start_from" and isinstance(value, str) and not re.search(r"/|\.npz$", value):
        parts = ("experiment",)
    place = value.mark.place  # the value stands for the mapping, key and all
    return marked(Fields(dict.fromkeys(parts, value)), value.mark._replace(key=place))


def _with_layers(model: Fields) -> Fields:
    """Return a machine with its layers as text, or each of several machines with its own."""
    hidden = model.get("hidden")
    if model.get("kind") not in DEEP or not isinstance(hidden, Items):
        return model
    return marked(Fields(model | {"hidden": _texts(hidden, _as_text)}), model.mark)


def _with_columns(data: Fields) -> Fields:
    """Return data with a list of columns as one text, and a list of such lists as several."""
    lists = {name: data[name] for name in ("columns", "drop") if isinstance(data.get(name), list)}
    texts = {name: _texts(value, _as_line) for name, value in lists.items()}
    return marked(Fields(data | texts), data.mark) if texts else data


def _texts(value: Items, as_text: Callable[[Value], Value]) -> Value:
    text = as_text(value)
    return marked(Items(map(as_text, value)), value.mark) if text is value else text


def _as_text(layers: Value) -> Value:
    """Return a list of sizes of layers as one text; anything else, such as a list of 500-500, as it is."""
    if not layers or isinstance(layers, str):
        return layers
    sizes = all(isinstance(one, str) and not re.search(r"\d\s*-", one) for one in layers)
    return marked(Text("-".join(layers)), layers.mark) if sizes else layers


def _as_line(columns: Value) -> Value:
    """Return a list of columns as one text, anything else as it is."""
    if not columns or not all(isinstance(one, str) for one in columns):
        return columns
    return columns if isinstance(columns, str) else marked(Text(as_line(columns)), columns.mark)


def with_field(fields: Mapping[str, Value], path: str, value: Value) -> dict[str, Value]:
    """Return the fields with one of them replaced, or a part of it where the path is dotted."""
    field, _, inner = path.partition(".")
    if inner:
        value = _with_part(fields.get(field), field, inner, value)
    return {name: old for name, old in fields.items() if name != INSTEAD.get(field)} | {field: value}


def _with_part(value: Value | None, field: str, inner: str, part: Value) -> Value:
    if value is None:
        return marked(Fields({inner: part}), part.mark)
    if isinstance(value, list):
        return marked(Items(_with_part(item, field, inner, part) for item in value), value.mark)
    value = long_form(value, field)
    return marked(Fields(value | {inner: part}), value.mark) if isinstance(value, dict) else value


def read_choices(fields: Mapping[str, Value], problems: Problems) -> dict[str, list[Choice]]:
    """Validate the values of each setting: one, or those of its axis; nested axes become a product."""
    choices = {}
    for field, value in fields.items():
        if _count(value) > MAX_CELLS:
            problems.add(value.mark, f"has more than {MAX_CELLS:,} values", at_key=True, kind="limit")
            continue
        found = [validated(field, single, problems) for single in singles(value, field, problems)]
        choices[field] = [choice for choice in found if choice]
    return choices


def _count(value: Value) -> int:
    """Return the number of values that `singles` would yield."""
    if isinstance(value, dict):
        return prod(map(_count, value.values()))
    return 1 if isinstance(value, str) else sum(map(_count, value))


# Rules


@dataclass
class Tie:
    """Axes that advance together."""

    group: Value
    fields: list[str]


@dataclass
class Condition:
    """What must hold for a cell: for each field, dotted where nested, the values it may have."""

    mark: Mark
    tests: dict[str, list[Any]]
    matched: bool = False

    def holds(self, cell: Cell) -> bool:
        """Whether all fields have one of the values; remembers that it ever did."""
        found = all(_look_up(cell, path) in values for path, values in self.tests.items())
        self.matched |= found
        return found


def _look_up(cell: Cell, path: str) -> Any:
    field, _, inner = path.partition(".")
    value = cell[field].value if field in cell else Settings.model_fields[field].default
    return getattr(value, inner, None) if inner else value


@dataclass
class Rules:
    """``zip``, ``exclude`` and ``when`` of an experiment, validated."""

    ties: list[Tie]
    exclude: list[Condition]
    when: list[tuple[Condition, dict[str, Value]]]


def read_rules(fields: Mapping[str, Value], problems: Problems) -> Rules:
    """Validate ``zip``, ``exclude`` and ``when``, as far as an experiment has them."""
    items = {name: items_of(fields[name], problems) for name in ("zip", "exclude", "when") if name in fields}
    return Rules(
        _ties(fields["zip"], items["zip"], problems) if "zip" in items else [],
        [_condition(item, problems) for item in items.get("exclude", [])],
        [_change(item, problems) for item in items.get("when", [])],
    )


def _ties(zipped: Value, items: list[Value], problems: Problems) -> list[Tie]:
    """Read ``zip: [field, field]``, or a list of such lists."""
    several = items and all(isinstance(item, list) for item in items)
    ties, seen = [], set()
    for group in items if several else [zipped]:
        fields = []
        for item in items_of(group, problems):
            name = shown(item)
            if name not in FIELDS:
                told = f"ties whole fields; there is no {name}{unknown(name, FIELDS)}"
                problems.add(item.mark, told, kind="unknown")
            elif name in seen:
                problems.add(zipped.mark, f"names {name} twice", kind="conflict")
            else:
                fields.append(name)
            seen.add(name)
        ties.append(Tie(group, fields))
    return ties


def check_ties(ties: list[Tie], choices: Mapping[str, list[Any]], problems: Problems) -> None:
    """Add a problem for each tie of fields that are not given, or of axes that differ in length."""
    for tie in ties:
        missing = [field for field in tie.fields if field not in choices]
        lengths = {field: len(choices[field]) for field in tie.fields if field in choices}
        listed = ", ".join(f"{field} has {length}" for field, length in lengths.items())
        if missing:
            problems.add(tie.group.mark, f"ties {missing[0]}, which is not given here", kind="missing")
        elif len(set(lengths.values())) > 1:
            problems.add(tie.group.mark, f"ties axes of different lengths: {listed}", kind="conflict")


def _condition(value: Value, problems: Problems) -> Condition:
    tests = {}
    for path, child in _leaves(value, problems).items():
        found = [validated(path, one, problems) for one in (child if isinstance(child, list) else [child])]
        tests[path] = [choice.value for choice in found if choice]
    if value == {}:
        problems.add(value.mark, "names no field; it would hold for all cells", kind="missing")
    return Condition(value.mark, tests)


def _leaves(value: Value, problems: Problems, within: str = "") -> dict[str, Value]:
    """Return what a condition names, nested mappings as dotted names."""
    leaves: dict[str, Value] = {}
    known = NESTED[within].model_fields if within else PATHS
    for name, child in fields_of(value, known, problems).items():
        path = f"{within}.{name}" if within else name
        leaves |= _leaves(long_form(child, path), problems, path) if path in NESTED else {path: child}
    return leaves


def _change(value: Value, problems: Problems) -> tuple[Condition, dict[str, Value]]:
    parts = fields_of(value, ("if", "set"), problems)
    for name in {"if", "set"} - parts.keys():
        if isinstance(value, dict):
            problems.add(value.mark, "is missing", name, kind="missing")
    condition = _condition(parts["if"], problems) if "if" in parts else Condition(value.mark, {})
    changes: dict[str, Value] = {}
    for path, child in fields_of(parts["set"], PATHS, problems).items() if "set" in parts else ():
        child = long_form(child, path)
        if not _is_single(child):
            problems.add(child.mark, "sets one value, not a list")
            continue
        for single in singles(child, path, problems):
            if validated(path, single, problems):
                check_contradiction(path, single, changes, problems)
                changes[path] = single
    return condition, changes


def check_contradiction(path: str, value: Value, before: Mapping[str, Value], problems: Problems) -> None:
    """Add a problem for a field that would undo what is set before it, or a part of that."""
    field, _, inner = path.partition(".")
    whole = long_form(before[field], field) if inner and field in before else None
    for other in before:
        undone = other.startswith(f"{path}.") or other == INSTEAD.get(path)
        if undone or (other == field and isinstance(whole, dict) and inner in whole):
            told = f"undoes {other}, which is set before it; set one of them"
            problems.add(value.mark, told, at_key=True, kind="conflict")


def _is_single(value: Value) -> bool:
    return all(map(_is_single, value.values())) if isinstance(value, dict) else isinstance(value, str)


# Cells


def expand(
    choices: Mapping[str, list[Choice]], rules: Rules, where: Value, effects: Effects, problems: Problems
) -> dict[Settings, Cell]:
    """Return the cells of an experiment in the order of its axes, the last one fastest, each once.

    Fields that change nothing in a cell have their defaults there, so that equal trainings are one cell. The
    experiment, ``where``, is the place of problems of a whole cell; ``effects`` are added to.
    """
    axes = _axes(choices, rules.ties)
    if prod(map(len, axes)) > MAX_CELLS:
        told = f"has more than {MAX_CELLS:,} cells; split it, or drop an axis"
        problems.add(where.mark, told, at_key=True, kind="limit")
        return {}
    cells: dict[Settings, Cell] = {}
    kept = 0
    for parts in product(*axes):
        cell = {field: choice for part in parts for field, choice in part.items()}
        held = [condition.holds(cell) for condition in rules.exclude]  # asks all: each must hold once
        if any(held):
            continue
        kept += 1
        changed = _changed(cell, rules.when, problems)
        settings = _settings_of(changed, where, effects, problems) if changed else None
        if changed and settings:
            cells.setdefault(settings, changed)
    if not kept:
        problems.add(where.mark, "has no cell left; exclude drops them all", at_key=True, kind="conflict")
    return cells


def _axes(choices: Mapping[str, list[Choice]], ties: list[Tie]) -> list[list[Cell]]:
    """Return the axes as lists of partial cells; tied fields make one axis, in the place of the first."""
    together = {field: tie.fields for tie in ties for field in tie.fields}
    axes: dict[tuple[str, ...], list[Cell]] = {}
    for field in choices:
        names = tuple(together.get(field, [field]))
        rows = zip(*(choices[name] for name in names), strict=True)
        axes[names] = [dict(zip(names, row, strict=True)) for row in rows]
    return list(axes.values())


def _changed(cell: Cell, when: list[tuple[Condition, dict[str, Value]]], problems: Problems) -> Cell | None:
    """Return the cell after all changes that apply, each seeing those before it; None after a problem."""
    for condition, changes in when:
        if condition.holds(cell):
            for path, value in changes.items():
                field = path.partition(".")[0]
                sources = {name: choice.source for name, choice in cell.items()}
                source = with_field(sources, path, value)[field]
                choice = validated(field, marked(source, value.mark), Problems())
                if choice is None:  # the change is to blame, even for a part that it leaves alone
                    if isinstance(source, dict):
                        parts = ((name, marked(Text(part), value.mark)) for name, part in source.items())
                        source = marked(Fields(parts), value.mark)
                    validated(field, source, problems)
                    return None
                cell = {name: old for name, old in cell.items() if name != INSTEAD.get(field)}
                cell[field] = choice
    return cell


def _settings_of(cell: Cell, where: Value, effects: Effects, problems: Problems) -> Settings | None:
    """Return the settings of a cell; None after adding a problem."""
    missing = [name for name in FIELDS if name not in cell and name not in _DEFAULTS]
    for name in missing:
        problems.add(where.mark, "is missing", name, kind="missing")
    if missing:
        return None
    values = {name: choice.value for name, choice in cell.items()}
    given = Settings.model_construct(**_DEFAULTS | values)  # validated already, each value once
    unused = given.unused()
    for choice in cell.values():
        for path, mark in choice.marks:
            reason = unused.get(path) or unused.get(path.partition(".")[0])
            if reason:
                effects.setdefault(mark, reason)
            else:
                effects[mark] = ""
    settings = given.with_defaults(unused)
    try:
        settings.check()
    except Misfit as error:
        field, _, inner = error.field.partition(".")
        if field in cell:
            blame(Misfit(inner, str(error), *error.kinds), cell[field].source, problems)
        else:
            problems.add(where.mark, str(error), error.field, at_key=True, kind=error.kinds[0])
    else:
        return settings
    return None
