"""The cells of an experiment: the product of its axes, without what is excluded, with
what is changed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from math import prod
from typing import Any, NamedTuple, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from cbm_cli.errors import FieldError
from cbm_cli.grid.settings import NESTED, Settings, paths_of
from cbm_cli.grid.source import Fields, Items, Problems, Value, like

MAX_CELLS = 1_000_000
FIELDS = Settings.model_fields
_NESTED_PATHS = [path for name in NESTED for path in paths_of(name)]
PATHS = (*FIELDS, *_NESTED_PATHS)  # dotted where nested
DEEP = ("dbm", "auto-encoder")  # kinds for which `hidden: [500, 200]` is one machine
# Fields of which one value may be a list
LISTS = ("model.hidden", "data.columns", "data.drop")
_INSTEAD = {"updates": "epochs", "epochs": "updates"}  # writing one removes the other
_REQUIRED = {name for name, info in FIELDS.items() if info.is_required()}
_DEFAULTS = {name: info.default for name, info in FIELDS.items()}
_BLANK = Settings.model_construct(**_DEFAULTS)
_Of = TypeVar("_Of")


class Option(NamedTuple):
    """One of the values that a grid gives to a field."""

    source: Value  # as in the file, without axes; a mapping for nested fields
    value: Any  # validated


Cell = Mapping[str, Option]  # by the name of the field
# By identity: values of the file, and the reason why they change nothing, "" if they do
# somewhere
Effects = dict[int, tuple[Value, str]]


@dataclass
class Condition:
    """A condition on a cell: for each field, dotted if nested, the values it may
    have.
    """

    node: Value
    tests: dict[str, list[Any]]
    matched: bool = False

    def holds(self, settings: Settings) -> bool:
        """Whether all fields have one of the values; remembers that it ever did."""
        for path, values in self.tests.items():
            if settings.value(path) not in values:
                return False
        self.matched = True
        return True


@dataclass
class Change:
    """An item of ``when``: the fields to set in the cells for which a condition
    holds.
    """

    condition: Condition
    options: dict[str, Option]


def over(fields: Mapping[str, _Of], changes: Mapping[str, _Of]) -> dict[str, _Of]:
    """Return fields with changes, without the ones that a change is instead of.

    Examples
    --------
    >>> over({"updates": 5, "batch": 2}, {"epochs": 3})
    {'batch': 2, 'epochs': 3}
    """
    kept = {name: fields[name] for name in fields if _INSTEAD.get(name) not in changes}
    return {**kept, **changes}


def in_full(name: str, value: Value) -> Fields:
    """Return a value of a nested field as a mapping, which it may be short for."""
    if isinstance(value, Fields):
        return value
    parts: Fields = like(value, NESTED[name].long(value))
    return parts


def _settings_of(cell: Cell) -> Settings:
    values = {name: option.value for name, option in cell.items()}
    return _BLANK.model_copy(update=values)


@cache
def _adapter(path: str) -> TypeAdapter:
    """Return what validates the values of a field, dotted where nested."""
    name, _, part = path.partition(".")
    model: Any = NESTED[name] if part else Settings
    hints = get_type_hints(model, include_extras=True)
    return TypeAdapter(hints[part or name])


@dataclass
class Reader:
    """Reads the fields of experiments; what is wrong with them is added to
    ``problems``.
    """

    problems: Problems
    effects: Effects = field(default_factory=dict)

    def choices(self, path: str, value: Value) -> list[Option]:
        """Return the valid ones of the values that are given to a field."""
        options = []
        for source in self._alternatives(path, value):
            try:
                valid = _adapter(path).validate_python(source)
            except ValidationError as error:
                self.problems.report(error, source)
            else:
                options.append(Option(source, valid))
        return options

    def _alternatives(self, path: str, value: Value) -> list[Value]:
        """Return the values without axes that a value means; a mapping is the product
        of its fields.
        """
        if isinstance(value, Items):
            return self._of_list(path, value)
        if path not in NESTED:
            return [value]
        parts = self.parts(path, value)
        if not parts and value != {}:
            return []
        axes = {
            name: self._alternatives(f"{path}.{name}", parts[name]) for name in parts
        }
        return [like(value, row) for row in self._product(axes, value)]

    def _product(self, axes: Mapping[str, list[Any]], node: Value) -> Iterator[dict]:
        """Yield the combinations of the values of axes, unless they are too many."""
        if prod(map(len, axes.values())) > MAX_CELLS:
            message = (
                f"has more than {MAX_CELLS:,} combinations of values; drop an axis"
            )
            self.problems.add(node, message)
            return
        for row in product(*axes.values()):
            yield dict(zip(axes, row, strict=True))

    def _of_list(self, path: str, items: Items) -> list[Value]:
        """Return the values of an axis."""
        if not items:
            self.problems.add(items, "is an empty list; an axis has one value or more")
        values: list[Value] = []
        for item in items:
            if not isinstance(item, Items):
                values += self._alternatives(path, item)
            elif path in LISTS:
                values.append(item)
            else:
                self.problems.add(item, "is a list within a list")
                break  # thousands of rows, perhaps
        return values

    def parts(self, name: str, value: Value) -> Fields:
        """Return the parts of a nested field; a list that is one value becomes a list
        of that list.
        """
        if NESTED[name].short and not isinstance(value, Fields):
            return in_full(name, value)
        parts = self.problems.fields(value, NESTED[name].model_fields)
        takes_lists = name == "data" or parts.get("kind") in DEEP
        for part, items in parts.items():
            is_list = f"{name}.{part}" in LISTS and isinstance(items, Items)
            if takes_lists and is_list and not _is_axis(part, items):
                parts[part] = like(items, [items])
        return parts

    def condition(self, node: Value) -> Condition:
        """Read what a condition names."""
        tests = {}
        for name, value in self.problems.fields(node, FIELDS).items():
            parts = {name: value}
            if name in NESTED:
                inner = self.parts(name, value)
                parts = {f"{name}.{part}": inner[part] for part in inner}
            for path, source in parts.items():
                tests[path] = [option.value for option in self.choices(path, source)]
        if node == {}:
            self.problems.add(node, "names no field; it would hold for all cells")
        return Condition(node, tests)

    def change(self, node: Value) -> Change:
        """Read an item of ``when``."""
        parts = self.problems.fields(node, ("if", "set"))
        if isinstance(node, Fields):
            for name in {"if", "set"} - parts.keys():
                self.problems.add(node, "is missing", name)
        condition = Condition(node, {})
        if "if" in parts:
            condition = self.condition(parts["if"])
        changes: Mapping[str, Value] = {}
        if "set" in parts:
            changes = self.problems.fields(parts["set"], FIELDS)
        options = {}
        for name, value in changes.items():
            choices = self.choices(name, value)
            if len(choices) > 1 or isinstance(value, Items):
                self.problems.add(value, "sets one value, not a list")
            if choices:
                options[name] = choices[0]
        return Change(condition, options)

    def expand(
        self,
        axes: Mapping[str, list[Option]],
        exclude: Sequence[Condition],
        when: Sequence[Change],
        node: Value,
    ) -> dict[Settings, Cell]:
        """Return the cells of the experiment at ``node`` in order, the last axis
        fastest, each once.

        Fields that change nothing in a cell have their defaults there, so that equal
        trainings are one cell.
        """
        cells: dict[Settings, Cell] = {}
        missing = _REQUIRED - axes.keys()
        for name in missing:
            self.problems.add(node, "is missing", name)
        if missing:
            return cells
        for cell in self._product(axes, node):
            settings = _settings_of(cell)
            # All conditions are asked, since each must hold once.
            excluded = [condition.holds(settings) for condition in exclude]
            if any(excluded):
                continue
            for change in when:  # each sees the changes before it
                if change.condition.holds(settings):
                    cell = over(cell, change.options)
                    settings = _settings_of(cell)
            unused = settings.unused()
            self._note_effects(cell, unused)
            settings = settings.with_defaults(unused)
            try:
                settings.check()
            except FieldError as error:
                sources = {name: option.source for name, option in cell.items()}
                self.problems.blame(error, like(node, sources))
            else:
                cells.setdefault(settings, cell)
        return cells

    def _note_effects(self, cell: Cell, unused: Mapping[str, str]) -> None:
        """Note of each value of the file whether it changes anything."""
        for name, option in cell.items():
            paths: dict[str, Value] = {name: option.source}
            if isinstance(option.source, Fields) and option.source:
                paths = {f"{name}.{part}": v for part, v in option.source.items()}
            for path, source in paths.items():
                _, reason = self.effects.get(id(source), (source, "not seen yet"))
                if reason:
                    self.effects[id(source)] = (source, unused.get(path, ""))


def _is_axis(part: str, items: Items) -> bool:
    """Whether a list is several values of a field of which one value may be a list."""
    for item in items:
        if isinstance(item, Items) or (part == "hidden" and "-" in item):
            return True
    return False
