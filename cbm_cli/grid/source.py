"""YAML as plain data, what is wrong with it, and where: places are looked up in the parse tree for messages.

Scalars stay text. YAML itself would take the scheme ``00`` for the number 0, ``1e-3`` for text and ``off``
for False, and would keep the last of two equal keys.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

from cbm_cli.errors import CbmError, Kind
from cbm_cli.text import did_you_mean, harmless, shortened

MAX_BYTES = 1_000_000
MAX_VALUES = 100_000
MAX_DEPTH = 20
_DEEP = f"is nested more than {MAX_DEPTH} levels deep, or contains an alias of itself"
_HALF = re.compile("[\ud800-\udfff]")  # of a character: a surrogate, which no encoding has
_PLAIN_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map")}
_REMEDIES = {
    "mapping values are not allowed here": "; quote a text that has a colon, or check the indentation",
    "but found another document": "; write one document, without ---",
}
Value = str | list | dict  # what YAML becomes: text, and lists and mappings of it
Keys = tuple[str | int, ...]  # keys and positions in lists that lead to a value
At = Literal["value", "key", "whole"]


class Place(NamedTuple):
    """A place in a file, line and column from 1, or a command line option such as ``--set data.flip``."""

    source: str
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return self.source if self.source.startswith("--") else f"{self.source}:{self.line}:{self.column}"


class Problems:
    """What is wrong with a file, collected so that all of it is reported at once."""

    def __init__(self) -> None:
        self.count = 0  # calls of `note`: shows whether something went wrong in between
        self._found: dict[tuple[Place, str, str], Kind] = {}

    def note(self, place: Place, path: Iterable[str | int], message: str, kind: Kind = "value") -> None:
        """Add a problem of the field at a path, unless it is known."""
        self.count += 1
        label = ".".join(step for step in path if isinstance(step, str)).removeprefix("experiments.")
        self._found.setdefault((place, label, message), kind)

    def raise_any(self) -> None:
        """Raise CbmError with one line per problem, in the order of the file, if there are any."""
        if self._found:
            found = sorted(self._found.items())
            lines = (": ".join(filter(None, map(str, problem))) for problem, _ in found)
            raise CbmError("\n".join(harmless(line, kept="") for line in lines), *(kind for _, kind in found))


class Source:
    """A YAML text, such as a file or the value of an option, as plain data.

    Duplicate keys, keys that are not text, and tags are added to ``problems``. Raises CbmError if the text is
    not YAML, empty, or too large once aliases are expanded.
    """

    def __init__(self, text: str, name: str, problems: Problems) -> None:
        self.name, self.problems = name, problems
        self._values = 0
        self.root = _compose(text, name)
        self.top = Node(self, (), self._plain(self.root, (), 0))

    @classmethod
    def of_file(cls, path: Path, problems: Problems, remedy: str = "") -> "Source":
        """Read a file; CbmError also if it is missing, not UTF-8, or larger than `MAX_BYTES`."""
        try:
            with open(path, "rb") as file:
                raw = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            raise CbmError(f"{path}: there is no such file{remedy}", "missing") from None
        except IsADirectoryError:
            raise CbmError(f"{path}: is a folder; name a YAML file") from None
        except OSError as error:
            raise CbmError(f"{path}: cannot be read: {error.strerror}", "system") from None
        if len(raw) > MAX_BYTES:
            raise CbmError(f"{path}: is larger than {MAX_BYTES:,} bytes; this is not a grid file", "limit")
        try:
            return cls(raw.decode("utf-8-sig"), str(path), problems)
        except UnicodeDecodeError as error:
            place = _at(str(path), raw[: error.start].decode("utf-8", "replace"))
            raise CbmError(f"{place}: is not UTF-8; save the file as UTF-8 text", "unreadable") from None

    def _plain(self, node: yaml.Node, path: Keys, depth: int) -> Any:
        """Return a node as plain data; an alias is a node that stands in several places."""
        place = _place(self.name, node.start_mark)
        self._values += 1
        if depth > MAX_DEPTH:
            raise CbmError(f"{place}: {_DEEP}", "limit")
        if self._values > MAX_VALUES:
            many = f"has more than {MAX_VALUES:,} values when its aliases are expanded"
            raise CbmError(f"{self.name}: {many}", "limit")
        if node.tag not in _PLAIN_TAGS:
            self.problems.note(place, path, f"the YAML tag {node.tag} means nothing here; remove it")
        if isinstance(node, yaml.MappingNode):
            return self._fields(node, path, depth + 1)
        if isinstance(node, yaml.SequenceNode):
            return [self._plain(item, (*path, k), depth + 1) for k, item in enumerate(node.value)]
        if _HALF.search(node.value):
            self.problems.note(place, path, "has half a character (a surrogate); write the whole one")
            return "?"
        return node.value

    def _fields(self, node: yaml.MappingNode, path: Keys, depth: int) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        keys: dict[str, Place] = {}
        for name, child in node.value:
            key, place = self._plain(name, path, depth), _place(self.name, name.start_mark)
            inner = (*path, str(key))
            value = self._plain(child, inner, depth)
            if not isinstance(key, str):
                self.problems.note(place, path, "a key must be plain text")
            elif key in fields:
                told = f"is given twice; line {keys[key].line} has it already"
                self.problems.note(place, inner, told, "conflict")
            else:
                fields[key], keys[key] = value, place
        return fields

    def find(self, path: Keys) -> tuple[yaml.Node, yaml.Node | None, int]:
        """Return the node at a path, its key, and how many steps there are of the path."""
        node, key = self.root, None
        for number, step in enumerate(path):
            pair = _child(node, step)
            if pair is None:
                return node, key, number
            key, node = pair
        return node, key, len(path)


@dataclass(frozen=True)
class Node:
    """A value of a source, or one that is made of it, and the path where messages look its place up."""

    source: Source
    path: Keys
    value: Any = field(compare=False)

    def __truediv__(self, step: str | int) -> "Node":
        return Node(self.source, (*self.path, step), self.value[step])

    @property
    def items(self) -> list["Node"]:
        """The items of a list, or the value itself where it is none."""
        return [self / k for k in range(len(self.value))] if isinstance(self.value, list) else [self]

    def listed(self) -> list["Node"]:
        """Return the items of a list; anything else becomes a problem."""
        if isinstance(self.value, list):
            return self.items
        self.wrong(f"must be a list, not {self.shown}")
        return []

    def fields(self, known: Collection[str]) -> dict[str, "Node"]:
        """Return the known fields of a mapping; others, and values that are no mapping, become problems."""
        if not isinstance(self.value, dict):
            names = f"; they are {', '.join(known)}" if 0 < len(known) < 12 else ""
            self.wrong(f"must be a mapping of fields, not {self.shown}{names}", at="key")
            return {}
        for name in self.value.keys() - {*known}:
            (self / name).wrong(f"unknown field{unknown(name, known)}", "unknown", at="key")
        return {name: self / name for name in self.value if name in known}

    @property
    def shown(self) -> str:
        """The value as a message names it."""
        if isinstance(self.value, str):
            return shortened(self.value)
        return "a mapping" if isinstance(self.value, dict) else "a list"

    def wrong(self, message: str, kind: Kind = "value", at: At = "value", inner: str = "") -> None:
        """Add a problem with the value, or with the field ``inner`` that it lacks."""
        place = self.place("whole" if inner else at)
        self.source.problems.note(place, (*self.reached, *filter(None, [inner])), message, kind)

    @property
    def reached(self) -> Keys:
        """The path as far as the source has it."""
        return self.path[: self.source.find(self.path)[2]]

    def place(self, at: At = "value") -> Place:
        """Return the place of the value or of its key; as a whole, of the key if it is a mapping."""
        node, key, _ = self.source.find(self.path)
        wanted = at == "key" or (at == "whole" and isinstance(node, yaml.MappingNode))
        return _place(self.source.name, (key if key and wanted else node).start_mark)


def _child(node: yaml.Node, step: str | int) -> tuple[yaml.Node | None, yaml.Node] | None:
    """Return the key and the value of one step into a node; None without."""
    if isinstance(node, yaml.SequenceNode):
        return (None, node.value[step]) if isinstance(step, int) else None
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next(((key, value) for key, value in pairs if key.value == step), None)


def _compose(text: str, source: str) -> yaml.Node:
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
    return root


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


def unknown(name: str, known: Collection[str]) -> str:
    """Return what to say of an unknown field: a known one that is really close, or all there are."""
    group = name.rpartition(".")[0]  # `data.flop` is compared with the fields of data
    here = [one for one in known if one.rpartition(".")[0] == group]
    here = here or [one for one in known if "." not in one]
    return did_you_mean(name, here, cutoff=0.7 if len(name) < 7 else 0.8)
