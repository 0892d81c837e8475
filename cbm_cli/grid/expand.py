"""The cells of an experiment: the product of its axes, without what is excluded, with
what is changed.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from math import prod
from typing import Any, NamedTuple, get_type_hints

from pydantic import TypeAdapter, ValidationError

from cbm_cli.errors import FieldError
from cbm_cli.grid.settings import NESTED, Settings, paths_of
from cbm_cli.grid.source import Fields, Items, Problems, Value, like

MAX_CELLS = 1_000_000
FIELDS = Settings.model_fields
PATHS = (
    *FIELDS,
    *(path for name in NESTED for path in paths_of(name)),
)  # dotted where nested
DEEP = ("dbm", "auto-encoder")  # kinds for which `hidden: [500, 200]` is one machine
LISTS = (
    "model.hidden",
    "data.columns",
    "data.drop",
)  # of which one value may be a list
INSTEAD = {"updates": "epochs", "epochs": "updates"}  # writing one removes the other
_BLANK = Settings.model_construct(
    **{name: info.default for name, info in FIELDS.items()}
)


class Option(NamedTuple):
    """One of the values that a grid gives to a field."""

    given: Value  # as in the file, without axes; a mapping for nested fields
    value: Any  # validated


Given = Mapping[str, Option]
# By identity: given values, and the reason why they change nothing, "" if they do
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
        found = all(
            settings.value(path) in values for path, values in self.tests.items()
        )
        self.matched |= found
        return found


@cache
def _adapter(path: str) -> TypeAdapter:
    name, _, part = path.partition(".")
    model, name = (NESTED[name], part) if part else (Settings, name)
    return TypeAdapter(get_type_hints(model, include_extras=True)[name])


@dataclass
class Reader:
    """Reads the fields of experiments; what is wrong with them is added to
    ``problems``.
    """

    problems: Problems
    effects: Effects = field(default_factory=dict)

    def choices(self, path: str, value: Value) -> list[Option]:
        """Return the valid ones of the values that are given to a field."""
        found = []
        for one in self._alternatives(path, value):
            try:
                found.append(Option(one, _adapter(path).validate_python(one)))
            except ValidationError as error:
                self.problems.report(error, one)
        return found

    def _alternatives(self, path: str, value: Value) -> list[Value]:
        """Return the values without axes that a value means; a mapping is the product
        of its fields.
        """
        if isinstance(value, Items):
            if not value:
                self.problems.add(
                    value, "is an empty list; an axis has one value or more"
                )
            found = []
            for item in value:
                if not isinstance(item, Items):
                    found += self._alternatives(path, item)
                elif path in LISTS:
                    found.append(item)
                else:
                    self.problems.add(item, "is a list within a list")
                    break  # thousands of rows, perhaps
            return found
        if path not in NESTED:
            return [value]
        parts = self.parts(path, value)
        options = [
            self._alternatives(f"{path}.{name}", part) for name, part in parts.items()
        ]
        if prod(map(len, options)) > MAX_CELLS:
            self.problems.add(value, f"has more than {MAX_CELLS:,} values")
            return []
        rows = product(*options) if parts or value == {} else ()
        return [like(value, dict(zip(parts, row, strict=True))) for row in rows]

    def parts(self, name: str, value: Value) -> Fields:
        """Return the parts of a nested field; a list that is one value becomes a list
        of that list.
        """
        if not isinstance(value, Fields) and NESTED[name].short:
            return like(value, NESTED[name].long(value))
        found = self.problems.fields(value, NESTED[name].model_fields)
        for part, one in found.items():
            listed = name == "data" or found.get("kind") in DEEP
            if listed and f"{name}.{part}" in LISTS and isinstance(one, Items):
                axis = any(
                    isinstance(item, Items) or (part == "hidden" and "-" in item)
                    for item in one
                )
                found[part] = one if axis else like(one, [one])
        return found

    def condition(self, node: Value) -> Condition:
        """Read what a condition names."""
        tests = {}
        for name, value in self.problems.fields(node, FIELDS).items():
            for part, one in (
                self.parts(name, value) if name in NESTED else {"": value}
            ).items():
                path = f"{name}.{part}".rstrip(".")
                tests[path] = [choice.value for choice in self.choices(path, one)]
        if node == {}:
            self.problems.add(node, "names no field; it would hold for all cells")
        return Condition(node, tests)

    def change(self, node: Value) -> tuple[Condition, dict[str, Option]]:
        """Read an item of ``when``."""
        parts = self.problems.fields(node, ("if", "set"))
        for name in {"if", "set"} - parts.keys() if isinstance(node, Fields) else ():
            self.problems.add(node, "is missing", name)
        condition = (
            self.condition(parts["if"]) if "if" in parts else Condition(node, {})
        )
        changes = self.problems.fields(parts["set"], FIELDS) if "set" in parts else {}
        found = {name: self.choices(name, value) for name, value in changes.items()}
        for name, value in changes.items():
            if len(found[name]) > 1 or isinstance(value, Items):
                self.problems.add(value, "sets one value, not a list")
        if INSTEAD.keys() <= changes.keys():
            self.problems.add(
                changes["epochs"], "undoes updates, which is set here too; set one"
            )
        return condition, {
            name: several[0] for name, several in found.items() if several
        }

    def expand(
        self,
        axes: Mapping[str, Collection[Option]],
        exclude: list[Condition],
        when: list[tuple[Condition, dict[str, Option]]],
        node: Value,
    ) -> dict[Settings, Given]:
        """Return the cells of the experiment at ``node`` in order, the last axis
        fastest, each once.

        Fields that change nothing in a cell have their defaults there, so that equal
        trainings are one cell.
        """
        missing = [
            name
            for name, info in FIELDS.items()
            if info.is_required() and name not in axes
        ]
        for name in missing:
            self.problems.add(node, "is missing", name)
        if many := prod(map(len, axes.values())) > MAX_CELLS:
            self.problems.add(
                node, f"has more than {MAX_CELLS:,} cells; split it, or drop an axis"
            )
        if missing or many:
            return {}
        cells: dict[Settings, Given] = {}
        left = 0
        for row in product(*axes.values()):
            cell = dict(zip(axes, row, strict=True))
            settings = _BLANK.model_copy(
                update={name: choice.value for name, choice in cell.items()}
            )
            held = [
                condition.holds(settings) for condition in exclude
            ]  # asks all: each must hold once
            if any(held):
                continue
            left += 1
            for changes in (
                changes for condition, changes in when if condition.holds(settings)
            ):
                gone = dict.fromkeys(
                    INSTEAD[name] for name in changes if name in INSTEAD
                )
                cell = {
                    name: choice for name, choice in cell.items() if name not in gone
                } | changes
                values = {name: choice.value for name, choice in changes.items()}
                settings = settings.model_copy(update=gone | values)
            unused = settings.unused()
            self._weigh(cell, unused)
            settings = settings.with_defaults(unused)
            try:
                settings.check()
            except FieldError as error:
                self.problems.blame(
                    error,
                    like(node, {name: choice.given for name, choice in cell.items()}),
                )
            else:
                cells.setdefault(settings, cell)
        if not left:
            self.problems.add(node, "has no cell left; exclude drops them all")
        return cells

    def _weigh(self, cell: Given, unused: Mapping[str, str]) -> None:
        """Note of each given value whether it changes anything."""
        for name, (given, _) in cell.items():
            parts = dict(given) if isinstance(given, Fields) else {}
            for part, one in (parts or {"": given}).items():
                if self.effects.get(id(one), (one, "?"))[1]:
                    self.effects[id(one)] = (
                        one,
                        unused.get(f"{name}.{part}".rstrip("."), ""),
                    )
