"""YAML files as plain data in which every value also knows its place, and the list of what is wrong.

Scalars stay text. YAML itself would take the scheme ``00`` for the number 0, ``1e-3`` for text and ``off``
for False, and would keep the last of two equal keys.
"""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

import yaml

from cbm_cli.errors import CbmError
from cbm_cli.text import did_you_mean

MAX_BYTES = 1_000_000
MAX_VALUES = 100_000
MAX_DEPTH = 20
_PLAIN_TAGS = {None, "!", *(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))}
_REMEDIES = {
    "mapping values are not allowed here": "; quote a text that has a colon, or check the indentation"
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


class Items(list):
    """A list with its mark."""

    mark: Mark


class Fields(dict):
    """A mapping with its mark."""

    mark: Mark


Value = Text | Items | Fields
Kind = TypeVar("Kind", Text, Items, Fields)


def marked(value: Kind, mark: Mark) -> Kind:
    """Return a value after giving it a mark."""
    value.mark = mark
    return value


class Problems:
    """What is wrong with a file, collected so that all of it is reported at once."""

    def __init__(self) -> None:
        self.count = 0  # calls of `add`: shows whether something went wrong in between
        self._found: set[tuple[Place, str, str]] = set()

    def add(self, mark: Mark, message: str, inner: str = "", at_key: bool = False) -> None:
        """Add a problem with a value, or with the field ``inner`` that it lacks; duplicates are merged."""
        self.count += 1
        label = ".".join(filter(None, (mark.label, inner))).removeprefix("experiments.")
        self._found.add((mark.key if at_key or inner else mark.place, label, message))

    def raise_any(self) -> None:
        """Raise CbmError with one line per problem, in the order of the file, if there are any."""
        if self._found:
            lines = (": ".join(filter(None, map(str, problem))) for problem in sorted(self._found))
            raise CbmError("\n".join(lines))


def load(path: Path, problems: Problems) -> Value:
    """Read a YAML file.

    Duplicate keys, keys that are not text, and tags are added to ``problems``.

    Raises
    ------
    CbmError
        There is no such file, or it is not UTF-8, not YAML, empty, or too large once aliases are expanded.
    """
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise CbmError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise CbmError(f"{path}: is a folder; name a YAML file") from None
    except OSError as error:
        raise CbmError(f"{path}: cannot be read: {error.strerror}") from None
    if len(raw) > MAX_BYTES:
        raise CbmError(f"{path}: is larger than {MAX_BYTES:,} bytes; this is not a grid file")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8", "replace")
        raise CbmError(f"{_at(str(path), before)}: is not UTF-8; save the file as UTF-8 text") from None
    return parse(text, str(path), problems)


def parse(text: str, source: str, problems: Problems) -> Value:
    """Turn YAML text into values with marks; errors are those of `load`."""
    loaders = (getattr(yaml, "CBaseLoader", None), yaml.BaseLoader)  # the second one has the better messages
    for loader in filter(None, loaders):
        try:
            return _Reader(yaml.parse(text, Loader=loader), source, problems).read()
        except yaml.reader.ReaderError as error:
            complaint = f"{_at(source, text[: error.position])}: is not YAML: {error.reason}"
        except yaml.MarkedYAMLError as error:
            place = _place(source, error.problem_mark or error.context_mark)
            words = ", ".join(filter(None, (error.context, error.problem)))
            complaint = f"{place}: is not YAML: {words}{_REMEDIES.get(error.problem, '')}"
    raise CbmError(complaint)


def _at(source: str, before: str) -> Place:
    return Place(source, before.count("\n") + 1, len(before) - before.rfind("\n"))


def _place(source: str, mark: yaml.Mark) -> Place:
    return Place(source, mark.line + 1, mark.column + 1)


class _Reader:
    """Builds values from the events of a parser, without recursion of the parser's own."""

    def __init__(self, events: Iterator[yaml.Event], source: str, problems: Problems) -> None:
        self.events, self.source, self.problems = events, source, problems
        self.anchors: dict[str, list[yaml.Event]] = {}  # the events of each anchored value
        self.recorded: list[list[yaml.Event]] = []  # those of the anchored values that are being read
        self.values = 0

    def read(self) -> Value:
        event = next(event for event in self.events if not isinstance(event, _STARTS))
        if isinstance(event, yaml.StreamEndEvent):
            raise CbmError(f"{self.source}: is empty")
        root = self.value(event, "", None, 0)
        next(self.events)  # the end of the document
        if isinstance(event := next(self.events), yaml.DocumentStartEvent):
            place = _place(self.source, event.start_mark)
            raise CbmError(f"{place}: is a second document; write one document, without ---")
        return root

    def next(self) -> yaml.Event:
        event = next(self.events)
        for events in self.recorded:
            events.append(event)
        return event

    def value(self, event: yaml.Event, label: str, key: Place | None, depth: int) -> Value:
        place = _place(self.source, event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event, place, label, key, depth)
        self.values += 1
        if depth > MAX_DEPTH:
            raise CbmError(f"{place}: is nested more than {MAX_DEPTH} levels deep")
        if self.values > MAX_VALUES:
            raise CbmError(
                f"{self.source}: has more than {MAX_VALUES:,} values when its aliases are expanded"
            )
        mark = Mark(place, key or place, label)
        if event.tag not in _PLAIN_TAGS:
            self.problems.add(mark, f"the YAML tag {event.tag} means nothing here; remove it")
        if event.anchor:
            self.anchors.pop(event.anchor, None)
            self.recorded.append([event])
        value = marked(self.content(event, label, depth), mark)
        if event.anchor:
            self.anchors[event.anchor] = self.recorded.pop()
        return value

    def content(self, event: yaml.Event, label: str, depth: int) -> Value:
        if isinstance(event, yaml.MappingStartEvent):
            return self.mapping(label, depth + 1)
        if isinstance(event, yaml.SequenceStartEvent):
            items = Items()
            while not isinstance(item := self.next(), yaml.SequenceEndEvent):
                items.append(self.value(item, label, None, depth + 1))
            return items
        return Text(event.value)

    def mapping(self, label: str, depth: int) -> Fields:
        children = Fields()
        while not isinstance(event := self.next(), yaml.MappingEndEvent):
            key = self.value(event, label, None, depth)
            inner = f"{label}.{key}" if label else str(key)
            value = self.value(self.next(), inner, key.mark.place, depth)
            if not isinstance(key, str):
                self.problems.add(key.mark, "a key must be plain text")
            elif key in children:
                first = children[key].mark.key.line
                self.problems.add(value.mark, f"is given twice; line {first} has it already", at_key=True)
            else:
                children[str(key)] = value
        return children

    def alias(self, event: yaml.Event, place: Place, label: str, key: Place | None, depth: int) -> Value:
        """Read the events of the anchored value again, so that it gets the label of this place."""
        if any(event.anchor == events[0].anchor for events in self.recorded):
            raise CbmError(f"{place}: contains an alias of itself")
        if event.anchor not in self.anchors:
            raise CbmError(f"{place}: is not YAML: found undefined alias {event.anchor!r}")
        events, recorded = self.events, self.recorded
        self.events, self.recorded = iter(self.anchors[event.anchor]), []
        value = self.value(next(self.events), label, key, depth)
        self.events, self.recorded = events, recorded
        return value


_STARTS = yaml.StreamStartEvent, yaml.DocumentStartEvent


def fields_of(value: Value, known: Collection[str], problems: Problems) -> Fields:
    """Return the known fields of a mapping; unknown ones, and values that are no mapping, become problems."""
    fields = marked(Fields(), value.mark)
    if not isinstance(value, dict):
        problems.add(value.mark, f"must be a mapping of fields, not {shown(value)}", at_key=True)
        return fields
    for name, child in value.items():
        if name in known:
            fields[name] = child
        else:
            problems.add(child.mark, f"unknown field{unknown(name, known)}", at_key=True)
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
        return (value if len(value) <= 60 else value[:57] + "...") or "empty"
    return "a mapping" if isinstance(value, dict) else "a list"
