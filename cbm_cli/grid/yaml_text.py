"""YAML text as a tree in which scalars stay text and everything knows where it stands.

Typing is left to the reader: YAML itself would take the scheme ``00`` for the number 0, ``1e-3`` for text
and ``off`` for False, and would keep the last of two equal keys.
"""

from dataclasses import dataclass
from pathlib import Path

import yaml

from cbm_cli.errors import CbmError

MAX_BYTES = 1_000_000
MAX_NODES = 100_000
MAX_DEPTH = 20
_PLAIN_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map")}
_REMEDIES = {
    "mapping values are not allowed here": "; quote a text that has a colon, or check the indentation"
}


@dataclass(frozen=True, order=True)
class Place:
    """A place in a file, line and column from 1, or a command line option such as ``--set data.flip``."""

    source: str
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return self.source if self.source.startswith("--") else f"{self.source}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Node:
    """A value of the file.

    Attributes
    ----------
    value : str, list of Node, or dict of Node by key
    label : str
        The keys that lead to it, joined by dots.
    place, key : Place
        Where the value starts, and where its key does (the same where it has none).
    """

    value: "str | list[Node] | dict[str, Node]"
    label: str
    place: Place
    key: Place

    def plain(self) -> str | list | dict:
        """Return the bare text, list or dict."""
        if isinstance(self.value, dict):
            return {name: child.plain() for name, child in self.value.items()}
        return self.value if isinstance(self.value, str) else [child.plain() for child in self.value]


class Problems:
    """What is wrong with a file, collected so that it can be told at once.

    ``count`` is the number of calls of ``add``: whether something went wrong meanwhile.
    """

    def __init__(self) -> None:
        self.count = 0
        self._found: set[tuple[Place, str, str]] = set()

    def add(self, place: Place, label: str, message: str) -> None:
        """Note a problem; the same one twice is told once."""
        self.count += 1
        self._found.add((place, label.removeprefix("experiments."), message))

    def raise_any(self) -> None:
        """Raise CbmError with one line a problem, in the order of the file, if there are any."""
        if self._found:
            raise CbmError("\n".join(_line(*problem) for problem in sorted(self._found)))


def _line(place: Place, label: str, message: str) -> str:
    return f"{place}: {label}: {message}" if label else f"{place}: {message}"


def load(path: Path, problems: Problems) -> Node:
    """Read a YAML file into a tree.

    Duplicate keys, keys that are not text, and tags are added to ``problems``; what leaves no tree to go
    on with (no such file, not UTF-8, not YAML, empty, aliases that explode) raises CbmError at once.
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
        raise CbmError(f"{path}: is larger than {MAX_BYTES:,} bytes; this is no grid file")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8", "replace")
        raise CbmError(f"{_at(str(path), before)}: is not UTF-8; save the file as UTF-8 text") from None
    return parse(text, str(path), problems)


def parse(text: str, source: str, problems: Problems) -> Node:
    """Turn YAML text into a tree; ``load`` says what raises and what is added to ``problems``."""
    try:
        root = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        place = _place(source, error.problem_mark or error.context_mark)
        told = ", ".join(filter(None, (error.context, error.problem)))
        raise CbmError(f"{place}: is not YAML: {told}{_REMEDIES.get(error.problem, '')}") from None
    except yaml.reader.ReaderError as error:
        place = _at(source, text[: error.position])
        raise CbmError(f"{place}: is not YAML: {error.reason}") from None
    except RecursionError:
        raise CbmError(f"{source}: is nested more than {MAX_DEPTH} levels deep") from None
    if root is None:
        raise CbmError(f"{source}: is empty")
    if _size(root, source, {}) > MAX_NODES:
        raise CbmError(f"{source}: has more than {MAX_NODES:,} values when its aliases are written out")
    return _Builder(source, problems).build(root)


def _at(source: str, before: str) -> Place:
    return Place(source, before.count("\n") + 1, len(before) - before.rfind("\n"))


def _place(source: str, mark: yaml.Mark) -> Place:
    return Place(source, mark.line + 1, mark.column + 1)


def _size(node: yaml.Node, source: str, sizes: dict[int, int | None]) -> int:
    """Count the values below a node as if its aliases were written out, without writing them out."""
    if id(node) not in sizes:
        sizes[id(node)] = None
        children = [] if isinstance(node, yaml.ScalarNode) else node.value
        if isinstance(node, yaml.MappingNode):
            children = [child for pair in children for child in pair]
        sizes[id(node)] = 1 + sum(_size(child, source, sizes) for child in children)
    size = sizes[id(node)]
    if size is None:
        raise CbmError(f"{_place(source, node.start_mark)}: contains an alias of itself")
    return size


@dataclass(frozen=True)
class _Builder:
    source: str
    problems: Problems

    def build(self, node: yaml.Node, label: str = "", key: Place | None = None, depth: int = 0) -> Node:
        place = _place(self.source, node.start_mark)
        if depth > MAX_DEPTH:
            raise CbmError(f"{place}: is nested more than {MAX_DEPTH} levels deep")
        if node.tag not in _PLAIN_TAGS:
            self.problems.add(place, label, f"the YAML tag {node.tag} means nothing here; leave it out")
        if isinstance(node, yaml.MappingNode):
            value = self._mapping(node, label, depth + 1)
        elif isinstance(node, yaml.SequenceNode):
            value = [self.build(child, label, None, depth + 1) for child in node.value]
        else:
            value = node.value
        return Node(value, label, place, key or place)

    def _mapping(self, node: yaml.MappingNode, label: str, depth: int) -> dict[str, Node]:
        children: dict[str, Node] = {}
        for key, value in node.value:
            place, name = _place(self.source, key.start_mark), key.value
            if not isinstance(name, str):
                self.problems.add(place, label, "a key must be plain text")
                continue
            inner = f"{label}.{name}" if label else name
            if name in children:
                first = children[name].key.line
                self.problems.add(place, inner, f"is given twice; it stands on line {first} already")
                continue
            children[name] = self.build(value, inner, place, depth)
        return children
