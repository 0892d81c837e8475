"""The cells of an experiment: the product of its axes, without what is excluded, with what is changed.

What is nested may be written in two ways, ``data: {flip: true}`` or ``data.flip: true``. A condition looks
only at what it names, so both say the same. Where something is set (``when``, ``--set``), ``data:`` replaces
the whole field, and ``data.flip:`` changes that part of it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
from cbm_cli.grid.source import Problems, Value, Where, fields_of, items_of, shown, unknown
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
_DEFAULTS = {name: info.default for name, info in Settings.model_fields.items() if not info.is_required()}


class Given(NamedTuple):
    """What a grid says of a field, in the file, its defaults or an option."""

    value: Value
    where: Where
    parts: Mapping[str, "Given"] = MappingProxyType({})  # of a nested field: what options say of its parts


class Choice(NamedTuple):
    """One of the values that a grid gives to a setting."""

    source: Value  # as in the file; a mapping for nested fields, without lists
    places: dict[str, Where]  # of the whole, "", and of the parts of a mapping
    value: Any = None  # validated


Cell = dict[str, Choice]
Effects = dict[Where, str]  # for each given value the reason why it changes nothing, "" if it does somewhere


# Values


@cache
def _adapter(path: str) -> TypeAdapter:
    return TypeAdapter(PATHS[path])


def validated(path: str, choice: Choice, problems: Problems) -> Choice | None:
    """Return a choice with the value of its setting; None after adding a problem."""
    try:
        return choice._replace(value=_adapter(path).validate_python(choice.source))
    except ValidationError as error:
        report(error, choice, problems)
        return None


def report(error: ValidationError, choice: Choice, problems: Problems) -> None:
    """Add what pydantic found in a value, each problem at the place of the part that it is about."""
    phrases: dict[tuple[Where, str], list[str]] = {}
    for item in error.errors(include_url=False):
        value: Any = choice.source
        places: dict[Any, Where] = choice.places
        for step in item["loc"]:  # as far as the value has it; pydantic also names members of unions
            if step not in (range(len(value)) if isinstance(value, list) else value):
                break
            value, places = value[step], {"": places.get(step, places[""] / step)}
        where = places[""]
        if item["type"] == "missing":
            problems.add(where, "is missing", "missing", inner=str(item["loc"][-1]))
        elif item["type"] == "value_error":
            blame(item["ctx"]["error"], Choice(value, places), problems)
        else:
            phrases.setdefault((where, shown(value)), []).append(_phrase(item))
    for (where, text), choices in phrases.items():
        choices = list(dict.fromkeys(choices))
        words = [word for one in choices for word in re.split(" or |, ", one)]
        close = get_close_matches(text, words, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        problems.add(where, f"must be {' or '.join(choices)}, not {text}{hint}")


def blame(error: ValueError, choice: Choice, problems: Problems) -> None:
    """Add an error that was raised for a whole value, at the field that it names, if it names one."""
    kinds: tuple[Kind, ...] = getattr(error, "kinds", ("value",))
    field = getattr(error, "field", "")
    if field in choice.places:
        whole = not field and isinstance(choice.source, dict)
        problems.add(choice.places[field], str(error), kinds[0], at="whole" if whole else "value")
    else:
        problems.add(choice.places[""], str(error), kinds[0], inner=field)


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


def choices(path: str, given: Given, problems: Problems) -> Iterator[Choice]:
    """Yield the values without lists that a value stands for; a mapping is the product of its fields."""
    value, where, parts = given
    if isinstance(value, list):
        if not value:
            problems.add(where, "is an empty list; an axis has one value or more")
        for number, item in enumerate(value):
            if isinstance(item, list):
                problems.add(where / number, "is a list within a list")
            else:
                yield from choices(path, Given(item, where / number, parts), problems)
    elif path in NESTED:
        fields = parts_of(path, given, problems)
        kind, hidden = fields.get("kind"), fields.get("hidden")
        if kind and hidden and isinstance(kind.value, list) and isinstance(hidden.value, list):
            told = "is an axis or layers, depending on the kind; give model: a list of mappings, one per kind"
            problems.add(hidden.where, told, "conflict")
        elif fields or value == {}:
            options = [[*choices(f"{path}.{name}", part, problems)] for name, part in fields.items()]
            for found in product(*options):
                named = dict(zip(fields, found, strict=True))
                places = {name: one.places[""] for name, one in named.items()}
                yield Choice({name: one.source for name, one in named.items()}, {"": where} | places)
    else:
        yield Choice(value, {"": where})


def parts_of(field: str, given: Given, problems: Problems) -> dict[str, Given]:
    """Return the parts of a nested field, of which some may stand in its place; lists of layers are text."""
    value, where, parts = given
    if isinstance(value, dict) or field not in SHORT:
        fields = fields_of(value, where, NESTED[field].model_fields, problems)
        found = {name: Given(part, where / name) for name, part in fields.items()}
        parts = parts if isinstance(value, dict) else {}
    else:
        found = {name: Given(value, where) for name in short_for(field, value)}
    found |= parts
    deep = field == "model" and "kind" in found and found["kind"].value in DEEP
    joins = {"hidden": _layers} if deep else {"columns": _line, "drop": _line} if field == "data" else {}
    for name, join in joins.items():
        if name in found and isinstance(found[name].value, list):
            text = join(found[name].value)
            joined = text if isinstance(text, str) else [join(item) for item in text]
            found[name] = found[name]._replace(value=joined)
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


def with_field(fields: Mapping[str, Given], path: str, given: Given) -> dict[str, Given]:
    """Return the fields with one of them replaced, or a part of it where the path is dotted."""
    field, _, inner = path.partition(".")
    if inner:
        old = fields.get(field, Given({}, given.where))
        given = old._replace(parts={**old.parts, inner: given})
    return {name: old for name, old in fields.items() if name != INSTEAD.get(field)} | {field: given}


def read_choices(fields: Mapping[str, Given], problems: Problems) -> dict[str, list[Choice]]:
    """Validate the values of each setting: one, or those of its axis; nested axes become a product."""
    found = {}
    for field, given in fields.items():
        if _count(given.value) * prod(_count(part.value) for part in given.parts.values()) > MAX_CELLS:
            problems.add(given.where, f"has more than {MAX_CELLS:,} values", "limit", at="key")
            continue
        valid = (validated(field, choice, problems) for choice in choices(field, given, problems))
        found[field] = [choice for choice in valid if choice]
    return found


def _count(value: Value) -> int:
    """Return the number of values that `choices` would yield."""
    if isinstance(value, dict):
        return prod(map(_count, value.values()))
    return 1 if isinstance(value, str) else sum(map(_count, value))


# Rules


class Tie(NamedTuple):
    """Axes that advance together."""

    where: Where
    fields: list[str]


@dataclass
class Condition:
    """What must hold for a cell: for each field, dotted where nested, the values it may have."""

    where: Where
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
    """``zip``, ``exclude`` and ``when`` of an experiment, validated."""

    ties: list[Tie]
    exclude: list[Condition]
    when: list[tuple[Condition, dict[str, Choice]]]


def read_rules(fields: Mapping[str, Given], problems: Problems) -> Rules:
    """Validate ``zip``, ``exclude`` and ``when``, as far as an experiment has them."""
    items = {
        name: [
            (item, fields[name].where / number)
            for number, item in enumerate(items_of(fields[name].value, fields[name].where, problems))
        ]
        for name in ("zip", "exclude", "when")
        if name in fields
    }
    several = all(isinstance(item, list) for item, _ in items.get("zip", []))
    groups = items.get("zip", []) if several else [(fields["zip"].value, fields["zip"].where)]
    return Rules(
        _ties(groups, problems),
        [_condition(*item, problems) for item in items.get("exclude", [])],
        [_change(*item, problems) for item in items.get("when", [])],
    )


def _ties(groups: list[tuple[Value, Where]], problems: Problems) -> list[Tie]:
    """Read the groups of ``zip: [field, field]``, or of a list of such lists."""
    ties, seen = [], set()
    for group, where in groups:
        fields = []
        for number, item in enumerate(items_of(group, where, problems)):
            name = shown(item)
            if name not in FIELDS:
                told = f"ties whole fields; there is no {name}{unknown(name, FIELDS)}"
                problems.add(where / number, told, "unknown")
            elif name in seen:
                problems.add(where, f"names {name} twice", "conflict")
            else:
                fields.append(name)
            seen.add(name)
        ties.append(Tie(where, fields))
    return ties


def check_ties(ties: list[Tie], choices: Mapping[str, list[Any]], problems: Problems) -> None:
    """Add a problem for each tie of fields that are not given, or of axes that differ in length."""
    for tie in ties:
        missing = [field for field in tie.fields if field not in choices]
        lengths = {field: len(choices[field]) for field in tie.fields if field in choices}
        listed = ", ".join(f"{field} has {length}" for field, length in lengths.items())
        if missing:
            problems.add(tie.where, f"ties {missing[0]}, which is not given here", "missing")
        elif len(set(lengths.values())) > 1:
            problems.add(tie.where, f"ties axes of different lengths: {listed}", "conflict")


def _condition(value: Value, where: Where, problems: Problems) -> Condition:
    tests = {}
    fields = fields_of(value, where, PATHS, problems)
    for path, given in _leaves({path: Given(one, where / path) for path, one in fields.items()}, problems):
        listed = isinstance(given.value, list)
        items = enumerate(given.value) if listed else [("", given.value)]
        places = ((item, given.where / number if listed else given.where) for number, item in items)
        found = [validated(path, Choice(item, {"": place}), problems) for item, place in places]
        tests[path] = [choice.value for choice in found if choice]
    if value == {}:
        problems.add(where, "names no field; it would hold for all cells", "missing")
    return Condition(where, tests)


def _leaves(fields: Mapping[str, Given], problems: Problems) -> Iterator[tuple[str, Given]]:
    """Yield what a condition names, parts of nested fields by their dotted names."""
    for path, given in fields.items():
        if path in NESTED:
            parts = parts_of(path, given, problems)
            yield from ((f"{path}.{name}", part) for name, part in parts.items())
        else:
            yield path, given


def _change(value: Value, where: Where, problems: Problems) -> tuple[Condition, dict[str, Choice]]:
    parts = fields_of(value, where, ("if", "set"), problems)
    for name in {"if", "set"} - parts.keys():
        if isinstance(value, dict):
            problems.add(where, "is missing", "missing", inner=name)
    condition = _condition(parts["if"], where / "if", problems) if "if" in parts else Condition(where, {})
    changes: dict[str, Choice] = {}
    where /= "set"
    for path, child in fields_of(parts.get("set", {}), where, PATHS, problems).items():
        choice = next(choices(path, Given(child, where / path), problems), None)
        if choice and any(isinstance(one.path[-1], int) for one in choice.places.values()):
            problems.add(where / path, "sets one value, not a list")
        elif choice and validated(path, choice, problems):
            before = {name: one.source for name, one in changes.items()}
            check_contradiction(path, where / path, before, problems)
            changes[path] = choice
    return condition, changes


def check_contradiction(path: str, where: Where, before: Mapping[str, Value], problems: Problems) -> None:
    """Add a problem for a field that would undo what is set before it, or a part of that."""
    field, _, inner = path.partition(".")
    whole = before.get(field, {}) if inner else {}
    names = whole if isinstance(whole, dict) else short_for(field, whole) if field in SHORT else ()
    for other in before:
        undone = other.startswith(f"{path}.") or other == INSTEAD.get(path)
        if undone or (other == field and inner in names):
            told = f"undoes {other}, which is set before it; set one of them"
            problems.add(where, told, "conflict", at="whole")


# Cells


def expand(
    choices: Mapping[str, list[Choice]], rules: Rules, where: Where, effects: Effects, problems: Problems
) -> dict[Settings, Cell]:
    """Return the cells of an experiment in the order of its axes, the last one fastest, each once.

    Fields that change nothing in a cell have their defaults there, so that equal trainings are one cell. The
    experiment, ``where``, is the place of problems of a whole cell; ``effects`` are added to.
    """
    axes = _axes(choices, rules.ties)
    if prod(map(len, axes)) > MAX_CELLS:
        told = f"has more than {MAX_CELLS:,} cells; split it, or drop an axis"
        problems.add(where, told, "limit", at="key")
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
        problems.add(where, "has no cell left; exclude drops them all", "conflict", at="key")
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


def _changed(cell: Cell, when: list[tuple[Condition, dict[str, Choice]]], problems: Problems) -> Cell | None:
    """Return the cell after all changes that apply, each seeing those before it; None after a problem."""
    for condition, changes in when:
        if not condition.holds(cell):
            continue
        for path, change in changes.items():
            field, _, inner = path.partition(".")
            where, choice = change.places[""], change
            if inner:
                old = cell.get(field, Choice({}, {"": where}))
                source = {**old.source, inner: change.source}  # type: ignore[dict-item]
                choice = Choice(source, old.places | {"": where, inner: where})
            found = validated(field, choice, Problems())
            if found is None:  # the change is to blame, even for a part that it leaves alone
                validated(field, choice._replace(places=dict.fromkeys(choice.places, where)), problems)
                return None
            cell = {name: old for name, old in cell.items() if name != INSTEAD.get(field)} | {field: found}
    return cell


def _settings_of(cell: Cell, where: Where, effects: Effects, problems: Problems) -> Settings | None:
    """Return the settings of a cell; None after adding a problem."""
    missing = [name for name in FIELDS if name not in cell and name not in _DEFAULTS]
    for name in missing:
        problems.add(where, "is missing", "missing", inner=name)
    if missing:
        return None
    values = {name: choice.value for name, choice in cell.items()}
    given = Settings.model_construct(**_DEFAULTS | values)  # validated already, each value once
    unused = given.unused()
    for name, choice in cell.items():
        parts = {part: place for part, place in choice.places.items() if part} or choice.places
        for part, place in parts.items():
            reason = unused.get(f"{name}.{part}") or unused.get(name) or ""
            effects[place] = effects.get(place, reason) and reason
    settings = given.with_defaults(unused)
    try:
        settings.check()
    except Misfit as error:
        field, _, inner = error.field.partition(".")
        if field in cell:
            blame(Misfit(inner, str(error), *error.kinds), cell[field], problems)
        else:
            problems.add(where, str(error), error.kinds[0], inner=error.field, at="key")
    else:
        return settings
    return None


def places_of(cell: Cell, experiment: Where) -> dict[str, Where]:
    """Return the places of the fields of a cell, dotted where nested, and of its experiment as ``""``."""
    parts = ((name, part, at) for name, choice in cell.items() for part, at in choice.places.items())
    return {"": experiment} | {f"{name}.{part}".rstrip("."): at for name, part, at in parts}
