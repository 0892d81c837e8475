"""The cells of an experiment: the product of its axes, without what is excluded, with what is changed.

A condition looks only at the parts of nested fields that it names; what is set replaces a whole field.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from itertools import product
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple, get_type_hints

from pydantic import TypeAdapter, ValidationError

from cbm_cli.datasets.columns import as_line
from cbm_cli.errors import Kind
from cbm_cli.grid.settings import NESTED, Settings
from cbm_cli.grid.source import Node, Value
from cbm_cli.grid.values import Frozen, Misfit

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
_REQUIRED = [name for name, info in Settings.model_fields.items() if info.is_required()]
_DEFAULTS: dict[str, Any] = {name: info.default for name, info in Settings.model_fields.items()}
_BLANK = Settings.model_construct(**_DEFAULTS)  # whose values are these very ones, which compares quickly


class Given(NamedTuple):
    """What a grid says of a field, in the file, its defaults or an option."""

    node: Node
    parts: Mapping[str, Node] = MappingProxyType({})  # of a nested field: what options say of its parts


class Choice(NamedTuple):
    """One of the values that a grid gives to a setting."""

    source: Value  # as in the file; a mapping for nested fields, without lists
    nodes: dict[str, Node]  # of the whole, "", and of the parts of a mapping
    value: Any = None  # validated


Cell = dict[str, Choice]
Effects = dict[Node, str]  # for each given value the reason why it changes nothing, "" if it does somewhere


# Values


@cache
def _adapter(path: str) -> TypeAdapter:
    return TypeAdapter(PATHS[path])


def validated(path: str, choice: Choice) -> Choice | None:
    """Return a choice with the value of its setting; None after a problem."""
    try:
        return choice._replace(value=_adapter(path).validate_python(choice.source))
    except ValidationError as error:
        report(error, choice)
        return None


def report(error: ValidationError, choice: Choice) -> None:
    """Add what pydantic found in a value, each problem at the place of the part that it is about."""
    phrases: dict[tuple[Node, str], list[str]] = {}
    for item in error.errors(include_url=False):
        part = choice.nodes.get(str(item["loc"][0])) if item["loc"] else None  # or a member of a union
        about = Choice(part.value, {"": part}) if part else choice
        node = about.nodes[""]
        if item["type"] == "missing":
            node.wrong("is missing", "missing", inner=str(item["loc"][-1]))
        elif item["type"] == "value_error":
            blame(item["ctx"]["error"], about)
        else:
            phrases.setdefault((node, node.shown), []).append(_phrase(item))
    for (node, text), choices in phrases.items():
        choices = list(dict.fromkeys(choices))
        words = [word for one in choices for word in re.split(" or |, ", one)]
        close = get_close_matches(text, words, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        node.wrong(f"must be {' or '.join(choices)}, not {text}{hint}")


def blame(error: ValueError, choice: Choice) -> None:
    """Add an error that was raised for a whole value, at the field that it names, if it names one."""
    kinds: tuple[Kind, ...] = getattr(error, "kinds", ("value",))
    field = getattr(error, "field", "")
    if field in choice.nodes:
        whole = not field and isinstance(choice.source, dict)
        choice.nodes[field].wrong(str(error), kinds[0], at="whole" if whole else "value")
    else:
        choice.nodes[""].wrong(str(error), kinds[0], inner=field)


_PHRASES = {
    "greater_than": "greater than {gt:g}",
    "greater_than_equal": "{ge:g} or more",
    "less_than": "less than {lt:g}",
    "less_than_equal": "{le:.17g} or less",
    "finite_number": "finite",
    "literal_error": "{expected}",
    "string_type": "text",
    "string_too_short": "text",
    "tuple_type": "a list",
}
_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "model": "a mapping"}


def _phrase(item: Mapping[str, Any]) -> str:
    kind = item["type"]
    if kind in _PHRASES:
        return _PHRASES[kind].format(**item.get("ctx", {})).replace("'", "")
    return _KINDS.get(kind.split("_")[0], item["msg"])


def choices(path: str, given: Given) -> Iterator[Choice]:
    """Yield the values without lists that a value stands for; a mapping is the product of its fields."""
    node, parts = given
    if isinstance(node.value, list):
        if not node.value:
            node.wrong("is an empty list; an axis has one value or more")
        for item in node.items:
            if isinstance(item.value, list):
                item.wrong("is a list within a list")
            else:
                yield from choices(path, Given(item, parts))
    elif path in NESTED:
        fields = parts_of(path, given)
        kind, hidden = fields.get("kind"), fields.get("hidden")
        if kind and hidden and isinstance(kind.value, list) and isinstance(hidden.value, list):
            told = "is an axis or layers, depending on the kind; give model: a list of mappings, one per kind"
            hidden.wrong(told, "conflict")
        elif fields or node.value == {}:
            options = [[*choices(f"{path}.{name}", Given(part))] for name, part in fields.items()]
            for found in product(*options):
                named = dict(zip(fields, found, strict=True))
                nodes = {name: one.nodes[""] for name, one in named.items()}
                yield Choice({name: one.source for name, one in named.items()}, {"": node} | nodes)
    else:
        yield Choice(node.value, {"": node})


def parts_of(field: str, given: Given) -> dict[str, Node]:
    """Return the parts of a nested field, of which some may stand in its place; lists of layers are text."""
    node, parts = given
    if isinstance(node.value, dict):
        found = {**node.fields(NESTED[field].model_fields), **parts}
    elif field in SHORT:
        found = {**dict.fromkeys(short_for(field, node.value), node), **parts}
    else:
        return node.fields(NESTED[field].model_fields)
    deep = field == "model" and "kind" in found and found["kind"].value in DEEP
    joins = {"hidden": _layers} if deep else {"columns": _line, "drop": _line} if field == "data" else {}
    for name, join in joins.items():
        if name in found and isinstance(found[name].value, list):
            text = join(found[name].value)
            joined = text if isinstance(text, str) else [join(item) for item in text]
            found[name] = replace(found[name], value=joined)
    return found


def short_for(field: str, value: Value) -> tuple[str, ...]:
    """Return the parts of a nested field that a value without names is short for."""
    if field == "start_from" and isinstance(value, str) and not re.search(r"/|\.npz$", value):
        return ("experiment",)
    return SHORT[field]


def _layers(value: Value) -> Value:
    """Return a list of sizes of layers as one text; anything else, such as a list of 500-500, as it is."""
    texts = isinstance(value, list) and all(isinstance(one, str) for one in value)
    return "-".join(value) if value and texts and not re.search(r"\d\s*-", " ".join(value)) else value


def _line(value: Value) -> Value:
    """Return a list of columns as one text, anything else as it is."""
    texts = isinstance(value, list) and all(isinstance(one, str) for one in value)
    return as_line(value) if value and texts else value


def with_field(fields: Mapping[str, Given], path: str, node: Node) -> dict[str, Given]:
    """Return the fields with one of them replaced, or a part of it where the path is dotted."""
    field, _, inner = path.partition(".")
    old = fields.get(field, Given(replace(node, value={})))
    given = old._replace(parts={**old.parts, inner: node}) if inner else Given(node)
    return {name: one for name, one in fields.items() if name != INSTEAD.get(field)} | {field: given}


def read_choices(fields: Mapping[str, Given]) -> dict[str, list[Choice]]:
    """Validate the values of each setting: one, or those of its axis; nested axes become a product."""
    found = {}
    for field, given in fields.items():
        if _count(given.node.value) * prod(_count(part.value) for part in given.parts.values()) > MAX_CELLS:
            given.node.wrong(f"has more than {MAX_CELLS:,} values", "limit", at="key")
            continue
        valid = (validated(field, choice) for choice in choices(field, given))
        found[field] = [choice for choice in valid if choice]
    return found


def _count(value: Value) -> int:
    """Return the number of values that `choices` would yield."""
    if isinstance(value, dict):
        return prod(map(_count, value.values()))
    return 1 if isinstance(value, str) else sum(map(_count, value))


# Rules


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


def _look_up(cell: Cell, path: str) -> Any:
    field, _, inner = path.partition(".")
    value = cell[field].value if field in cell else Settings.model_fields[field].default
    return getattr(value, inner, None) if inner else value


class Rules(NamedTuple):
    """``exclude`` and ``when`` of an experiment, validated."""

    exclude: list[Condition]
    when: list[tuple[Condition, dict[str, Choice]]]


def read_rules(fields: Mapping[str, Given]) -> Rules:
    """Validate ``exclude`` and ``when``, as far as an experiment has them."""
    rules = ("exclude", "when")
    items = {name: fields[name].node.listed() if name in fields else [] for name in rules}
    return Rules(
        [_condition(item) for item in items["exclude"]],
        [_change(item) for item in items["when"]],
    )


def _condition(node: Node) -> Condition:
    """Read what a condition names; parts of nested fields have dotted names in its tests."""
    tests: dict[str, list[Any]] = {}
    for field, child in node.fields(FIELDS).items():
        parts = parts_of(field, Given(child)) if field in NESTED else {"": child}
        for path, one in ((f"{field}.{name}".rstrip("."), part) for name, part in parts.items()):
            found = [validated(path, Choice(item.value, {"": item})) for item in one.items]
            tests[path] = [choice.value for choice in found if choice]
    if node.value == {}:
        node.wrong("names no field; it would hold for all cells", "missing")
    return Condition(node, tests)


def _change(node: Node) -> tuple[Condition, dict[str, Choice]]:
    parts = node.fields(("if", "set"))
    for name in {"if", "set"} - parts.keys():
        if isinstance(node.value, dict):
            node.wrong("is missing", "missing", inner=name)
    condition = _condition(parts["if"]) if "if" in parts else Condition(node, {})
    changes: dict[str, Choice] = {}
    for name, child in parts["set"].fields(FIELDS).items() if "set" in parts else ():
        choice = next(choices(name, Given(child)), None)
        if choice and any(isinstance(one.path[-1], int) for one in choice.nodes.values()):
            child.wrong("sets one value, not a list")
        elif choice and (found := validated(name, choice)):
            if INSTEAD.get(name) in changes:
                child.wrong(f"undoes {INSTEAD[name]}, which is set before it; set one of them", "conflict")
            changes[name] = found
    return condition, changes


# Cells


def expand(
    choices: Mapping[str, list[Choice]], rules: Rules, experiment: Node, effects: Effects
) -> dict[Settings, Cell]:
    """Return the cells of an experiment in the order of its axes, the last one fastest, each once.

    Fields that change nothing in a cell have their defaults there, so that equal trainings are one cell.
    ``experiment`` is the place of problems of a whole cell; ``effects`` are added to.
    """
    if prod(map(len, choices.values())) > MAX_CELLS:
        told = f"has more than {MAX_CELLS:,} cells; split it, or drop an axis"
        experiment.wrong(told, "limit", at="key")
        return {}
    cells: dict[Settings, Cell] = {}
    kept = 0
    for row in product(*choices.values()):
        cell = dict(zip(choices, row, strict=True))
        held = [condition.holds(cell) for condition in rules.exclude]  # asks all: each must hold once
        if any(held):
            continue
        kept += 1
        for changes in (changes for condition, changes in rules.when if condition.holds(cell)):
            gone = {INSTEAD.get(name) for name in changes}
            cell = {name: choice for name, choice in cell.items() if name not in gone} | changes
        if settings := _settings_of(cell, experiment, effects):
            cells.setdefault(settings, cell)
    if not kept:
        experiment.wrong("has no cell left; exclude drops them all", "conflict", at="key")
    return cells


def _settings_of(cell: Cell, experiment: Node, effects: Effects) -> Settings | None:
    """Return the settings of a cell; None after adding a problem."""
    missing = [name for name in _REQUIRED if name not in cell]
    for name in missing:
        experiment.wrong("is missing", "missing", inner=name)
    if missing:
        return None
    values = {name: choice.value for name, choice in cell.items()}
    given = _BLANK.model_copy(update=values)  # validated already, each value once
    unused = given.unused()
    for name, choice in cell.items():
        for part, node in choice.nodes.items():
            if (part or len(choice.nodes) == 1) and effects.get(node) != "":
                effects[node] = unused.get(f"{name}.{part}") or unused.get(name) or ""
    settings = given.with_defaults(unused)
    try:
        settings.check()
    except Misfit as error:
        field, _, inner = error.field.partition(".")
        if field in cell:
            blame(Misfit(inner, str(error), *error.kinds), cell[field])
        else:
            experiment.wrong(str(error), error.kinds[0], inner=error.field, at="key")
    else:
        return settings
    return None


def places_of(cell: Cell, experiment: Node) -> dict[str, Node]:
    """Return where the fields of a cell are given, dotted where nested, and its experiment as ``""``."""
    parts = ((name, part, node) for name, choice in cell.items() for part, node in choice.nodes.items())
    return {"": experiment} | {f"{name}.{part}".rstrip("."): node for name, part, node in parts}
