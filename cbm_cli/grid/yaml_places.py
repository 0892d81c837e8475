"""YAML files as plain data in which every value also knows its place, and the list of what is wrong.

Scalars stay text. YAML itself would take the scheme ``00`` for the number 0, ``1e-3`` for text and ``off``
for False, and would keep the last of two equal keys.
"""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import yaml

from cbm_cli.errors import CbmError, Kind
from cbm_cli.text import did_you_mean, harmless, shortened

MAX_BYTES = 1_000_000
MAX_VALUES = 100_000
MAX_DEPTH = 20
MERGE = "<<"  # the key under which YAML takes over the fields of another mapping
_DEEP = f"is nested more than {MAX_DEPTH} levels deep, or contains an alias of itself"
_HALF = re.compile("[\ud800-\udfff]")  # of a character: a surrogate, which no encoding has
_PLAIN_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map")}
_REMEDIES = {
    "mapping values are not allowed here": "; quote a text that has a colon, or check the indentation",
    "but found another document": "; write one document, without ---",
}


class Place(NamedTuple):
    """A place in a file, line and column from 1, or a command line option such as ``--set data.flip``."""

    source: str
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return self.source if self.source.startswith("--") else f"{self.source}:{self.line}:{self.column}"


class Mark(NamedTuple):
    """Where a value stands."""

    place: Place
    key: Place  # of its key; the same as `place` for values without one
    label: str  # the keys that lead to it, joined by dots


class Text(str):
    """A scalar with its mark."""

    mark: Mark


class Items(list[Any]):
    """A list with its mark."""

    mark: Mark


class Fields(dict[str, Any]):
    """A mapping with its mark."""

    mark: Mark


Value = Text | Items | Fields
Given = TypeVar("Given", bound=Value)


def marked(value: Given, mark: Mark) -> Given:
    """Return a value after giving it a mark."""
    value.mark = mark
    return value


class Problems:
    """What is wrong with a file, collected so that all of it is reported at once."""

    def __init__(self) -> None:
        self.count = 0  # calls of `add`: shows whether something went wrong in between
        self._found: dict[tuple[Place, str, str], Kind] = {}

    def add(
        self, mark: Mark, message: str, inner: str = "", at_key: bool = False, kind: Kind = "value"
    ) -> None:
        """Add a problem with a value, or with the field ``inner`` that it lacks; duplicates are merged."""
        self.count += 1
        label = ".".join(filter(None, (mark.label, inner))).removeprefix("experiments.")
        self._found.setdefault((mark.key if at_key or inner else mark.place, label, message), kind)

    def raise_any(self) -> None:
        """Raise CbmError with one line per problem, in the order of the file, if there are any."""
        if self._found:
            found = sorted(self._found.items())
            lines = (": ".join(filter(None, map(str, problem))) for problem, _ in found)
            raise CbmError("\n".join(harmless(line, kept="") for line in lines), *(kind for _, kind in found))


def load(path: Path, problems: Problems) -> Value:
    """Read a YAML file; duplicate keys, keys that are not text, and tags are added to ``problems``.

    Raises CbmError if it is missing, not UTF-8, not YAML, empty, or too large once aliases are expanded.
    """
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise CbmError(f"{path}: there is no such file", "missing") from None
    except IsADirectoryError:
        raise CbmError(f"{path}: is a folder; name a YAML file") from None
    except OSError as error:
        raise CbmError(f"{path}: cannot be read: {error.strerror}", "system") from None
    if len(raw) > MAX_BYTES:
        raise CbmError(f"{path}: is larger than {MAX_BYTES:,} bytes; this is not a grid file", "limit")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8", "replace")
        place = _at(str(path), before)
        raise CbmError(f"{place}: is not UTF-8; save the file as UTF-8 text", "unreadable") from None
    return parse(text, str(path), problems)


def parse(text: str, source: str, problems: Problems) -> Value:
    """Turn YAML text into values with marks; errors are those of `load`."""
    if _HALF.search(text):  # of an option of the command line
        raise CbmError(f"{source}: is not UTF-8; write it in UTF-8", "unreadable")
    loaders = (getattr(yaml, "CBaseLoader", None), yaml.BaseLoader)  # the second one has the better messages
    for loader in filter(None, loaders):
        try:
            _check_depth(text, source, loader)
            root = yaml.compose(text, Loader=loader)
            break
        except yaml.reader.ReaderError as error:
            complaint = f"{_at(source, text[: error.position])}: is not YAML: {error.reason}"
        except yaml.MarkedYAMLError as error:
            place = _place(source, error.problem_mark or error.context_mark)
            words = ", ".join(filter(None, (error.context, error.problem)))
            complaint = f"{place}: is not YAML: {words}{_REMEDIES.get(error.problem, '')}"
    else:
        raise CbmError(complaint, "unreadable")
    if root is None:
        raise CbmError(f"{source}: is empty", "missing")
    return _Reader(source, problems).value(root, "", None, 0)


def _at(source: str, before: str) -> Place:
    return Place(source, before.count("\n") + 1, len(before) - before.rfind("\n"))


def _place(source: str, mark: yaml.Mark) -> Place:
    return Place(source, mark.line + 1, mark.column + 1)


def _check_depth(text: str, source: str, loader: type) -> None:
    """Refuse deep nesting before `yaml.compose`, which calls itself at every level."""
    depth = -1
    for event in yaml.parse(text, Loader=loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise CbmError(f"{_place(source, event.start_mark)}: {_DEEP}", "limit")


class _Reader:
    """Turns nodes into values; an alias is a node that stands in several places."""

    def __init__(self, source: str, problems: Problems) -> None:
        self.source, self.problems = source, problems
        self.values = 0

    def value(self, node: yaml.Node, label: str, key: Place | None, depth: int) -> Value:
        place = _place(self.source, node.start_mark)
        self.values += 1
        if depth > MAX_DEPTH:
            raise CbmError(f"{place}: {_DEEP}", "limit")
        if self.values > MAX_VALUES:
            many = f"has more than {MAX_VALUES:,} values when its aliases are expanded"
            raise CbmError(f"{self.source}: {many}", "limit")
        mark = Mark(place, key or place, label)
        if node.tag not in _PLAIN_TAGS:
            self.problems.add(mark, f"the YAML tag {node.tag} means nothing here; remove it")
        if isinstance(node, yaml.ScalarNode) and _HALF.search(node.value):
            self.problems.add(mark, "has half a character (a surrogate); write the whole one")
            return marked(Text("?"), mark)
        if isinstance(node, yaml.MappingNode):
            return marked(self.fields(node, label, depth + 1), mark)
        if isinstance(node, yaml.SequenceNode):
            return marked(Items(self.value(item, label, None, depth + 1) for item in node.value), mark)
        return marked(Text(node.value), mark)

    def fields(self, node: yaml.MappingNode, label: str, depth: int) -> Fields:
        children = Fields()
        for name, child in node.value:
            key = self.value(name, label, None, depth)
            inner = label if key == MERGE else f"{label}.{key}" if label else str(key)
            value = self.value(child, inner, key.mark.place, depth)
            if not isinstance(key, str):
                self.problems.add(key.mark, "a key must be plain text")
            elif key in children:
                first = children[key].mark.key.line
                told = f"is given twice; line {first} has it already"
                self.problems.add(value.mark, told, at_key=True, kind="conflict")
            else:
                children[str(key)] = value
        return self.merge(children, children.pop(MERGE)) if MERGE in children else children

    def merge(self, children: Fields, value: Value) -> Fields:
        """Take over what is not given beside a merge key; of several mappings the first one counts."""
        merged = children
        for one in value if isinstance(value, list) else [value]:
            if not isinstance(one, dict):
                message = f"{MERGE} takes a mapping such as *name, or a list of them"
                self.problems.add(value.mark, message, at_key=True)
                return children
            merged = Fields(one | merged)
        return merged


def fields_of(value: Value, known: Collection[str], problems: Problems) -> Fields:
    """Return the known fields of a mapping; unknown ones, and values that are no mapping, become problems."""
    fields = marked(Fields(), value.mark)
    if not isinstance(value, dict):
        names = f"; they are {', '.join(known)}" if 0 < len(known) < 12 else ""
        problems.add(value.mark, f"must be a mapping of fields, not {shown(value)}{names}", at_key=True)
        return fields
    for name, child in value.items():
        if name in known:
            fields[name] = child
        else:
            problems.add(child.mark, f"unknown field{unknown(name, known)}", at_key=True, kind="unknown")
    return fields


def unknown(name: str, known: Collection[str]) -> str:
    """Return what to say of an unknown field: a known one that is really close, or all there are."""
    group = name.rpartition(".")[0]  # `data.flop` is compared with the fields of data
    here = [one for one in known if one.rpartition(".")[0] == group]
    here = here or [one for one in known if "." not in one]
    return did_you_mean(name, here, cutoff=0.7 if len(name) < 7 else 0.8)


def items_of(value: Value, problems: Problems) -> list[Value]:
    """Return the items of a list; anything else becomes a problem."""
    if isinstance(value, list):
        return value
    problems.add(value.mark, f"must be a list, not {shown(value)}")
    return []


def shown(value: Value) -> str:
    """Return a value as a message names it."""
    if isinstance(value, str):
        return shortened(value)
    return "a mapping" if isinstance(value, dict) else "a list"
