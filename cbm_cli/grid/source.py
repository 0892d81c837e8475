"""YAML as text, lists and mappings that know their place, and what is wrong with them.

Scalars stay text. YAML itself would take the scheme ``00`` for the number 0, ``1e-3``
for text and ``off`` for False, and would keep the last of two equal keys.
"""

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pydantic import ValidationError

from cbm_cli.errors import CbmError
from cbm_cli.text import did_you_mean, harmless, shortened

MAX_BYTES = 1_000_000
MAX_VALUES = 100_000
_HALF = re.compile(
    "[\ud800-\udfff]"
)  # of a character: a surrogate, which no encoding has
_PLAIN_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map")}
# What begins at a line of its own
_BEGUN = re.compile("while (scanning a (simple key|quoted)|parsing a flow)")


class Place(NamedTuple):
    """A line of a file, from 1, or a command line option such as ``--set
    data.flip``.
    """

    source: str
    line: int = 1

    def __str__(self) -> str:
        if self.source.startswith("--"):
            return self.source
        return f"{self.source}:{self.line}"


class _Placed:
    place: Place
    path: tuple[str, ...]  # the fields that lead to the value, such as toy, data, flip


class Scalar(_Placed, str):
    """A scalar."""


class Items(_Placed, list):
    """A list."""


class Fields(_Placed, dict):
    """A mapping."""


Value = Scalar | Items | Fields


def _placed(content: Any, place: Place, path: tuple[str, ...]) -> Any:
    value: Value
    if isinstance(content, list):
        value = Items(content)
    elif isinstance(content, dict):
        value = Fields(content)
    else:
        value = Scalar(content)
    value.place = place
    value.path = path
    return value


def like(value: Value, content: Any) -> Any:
    """Return new content in the place of a value."""
    return _placed(content, value.place, value.path)


def shown(value: Value) -> str:
    """Return a value as a message names it."""
    if isinstance(value, str):
        return shortened(value)
    return "a mapping" if isinstance(value, dict) else "a list"


class Problems:
    """The mistakes of a file, collected so that all are reported at once."""

    def __init__(self) -> None:
        self._lines: set[tuple[Place, str, str]] = set()
        self.values = 0  # read so far, each as often as aliases repeat it
        # of problems, again where one is found again: shows whether there are any in
        # between
        self.count = 0

    def add(self, value: Value, message: str, inner: str = "") -> None:
        """Add a problem of a value, or of the field ``inner`` that it lacks."""
        if isinstance(value, Scalar) and re.search(r"\S,|, *\S", value):
            message += (
                f"; write several values as [{shortened(value)}], and numbers without "
                "commas, as 1000 or 0.5"
            )
        self.count += 1
        path = ".".join(filter(None, (*value.path, inner))).removeprefix("experiments.")
        self._lines.add((value.place, path, message))

    def blame(self, error: CbmError, value: Value) -> None:
        """Add an error at the part of a value that it names, or at the field that the
        value lacks.
        """
        steps = error.field.split(".") if error.field else []
        while steps and isinstance(value, Fields) and steps[0] in value:
            value = value[steps.pop(0)]
        lacking = ".".join(steps) if isinstance(value, Fields) else ""
        self.add(value, error.message, lacking)

    def report(self, error: ValidationError, value: Value) -> None:
        """Add what pydantic found in a value, each problem at the part that it is
        about.
        """
        parts: dict[int, Value] = {}
        wishes: dict[int, dict[str, None]] = {}
        for problem in error.errors(include_url=False):
            part = _part_of(value, problem["loc"])
            cause = problem.get("ctx", {}).get("error")
            if problem["type"] == "missing":
                self.add(part, "is missing", str(problem["loc"][-1]))
            elif isinstance(cause, CbmError):
                self.blame(cause, part)
            elif cause:
                self.add(part, str(cause))
            else:
                parts[id(part)] = part
                wish = re.sub(r"^.*?should |, (unable|got).*|'", "", problem["msg"])
                wishes.setdefault(id(part), {})[wish] = None
        for key, part in parts.items():
            self.add(part, _unlike(part, wishes[key]))

    def fields(self, value: Value, names: Collection[str]) -> Fields:
        """Return the fields of a mapping that have such names; others, and values that
        are not mappings, become problems.
        """
        if not isinstance(value, Fields):
            examples = ", ".join([*names][:3])
            such = f" such as {examples}" if examples else ""
            self.add(value, f"must be a mapping with fields{such}, not {shown(value)}")
            return like(value, {})
        for name in value.keys() - {*names}:
            self.add(value[name], f"unknown field{_hint_on_field(name, names)}")
        return like(value, {name: value[name] for name in value if name in names})

    def raise_any(self) -> None:
        """Raise CbmError with one line per problem, in the order of the file, if there
        are any.
        """
        lines = []
        for place, path, message in sorted(self._lines):
            line = ": ".join(filter(None, (str(place), path, message)))
            lines.append(harmless(line, kept=""))
        if lines:
            raise CbmError("\n".join(lines))


def _hint_on_field(name: str, names: Collection[str]) -> str:
    """Return what was probably meant by a field that is not known."""
    if name == "<<":
        return "; merge keys are not read; write shared fields under defaults"
    return did_you_mean(name.partition(":")[0], names)


def _part_of(value: Any, steps: Sequence[int | str]) -> Any:
    """Return the part of a value to which the steps of pydantic lead; they may go on
    with a member of a union.
    """
    for step in steps:
        is_item = isinstance(value, Items) and isinstance(step, int)
        if is_item or (isinstance(value, Fields) and step in value):
            value = value[step]
    return value


def _unlike(value: Value, wishes: Collection[str]) -> str:
    """Return what a value must be, by all members of a union."""
    wish = " or ".join(wishes).replace(" or be ", " or ")
    wish = wish.replace("valid integer", "whole number")
    return f"must {wish}, not {shown(value)}"


def read_file(path: Path, remedy: str = "") -> str:
    """Return a text in UTF-8 of up to `MAX_BYTES`; CbmError for anything else."""
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise CbmError(
            f"{path}:{line}: is not UTF-8; save the file as UTF-8 text"
        ) from None
    except OSError as error:
        raise CbmError(f"{path}: cannot be read: {error.strerror}{remedy}") from None
    if len(raw) > MAX_BYTES:
        raise CbmError(
            f"{path}: is larger than {MAX_BYTES:,} bytes; this is not a grid file"
        )
    return text


def load(text: str, name: str, problems: Problems) -> Value:
    """Return the values of a YAML text, such as a file or the value of an option.

    Equal keys, keys that are not text, and tags are added to ``problems``. Raises
    CbmError if the text is not YAML, empty, or too large once aliases are expanded.
    """
    try:
        root = yaml.compose(text, Loader=yaml.BaseLoader)
        if root is None:
            raise CbmError(f"{name}: is empty")
        return _Values(problems).of(root, Place(name), ())
    except yaml.reader.ReaderError as error:
        line, complaint = text[: error.position].count("\n"), error.reason
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if error.context_mark and _BEGUN.match(error.context or ""):
            mark = error.context_mark
        line, complaint = mark.line, error.problem
    except RecursionError:
        problem = "is nested too deeply, or contains an alias of itself"
        raise CbmError(f"{name}: {problem}") from None
    raise CbmError(
        f"{Place(name, line + 1)}: is not YAML: {complaint}; check brackets, quotes "
        "and the indentation, which has no tabs; write a blank after each colon, and "
        "texts with colons or marks in quotes"
    )


class _Values:
    """Turns nodes of YAML into values; an alias is a node that occurs in several
    places.
    """

    def __init__(self, problems: Problems) -> None:
        self.problems = problems

    def of(self, node: yaml.Node, place: Place, path: tuple[str, ...]) -> Value:
        """Return the value of a node."""
        self.problems.values += 1
        if self.problems.values > MAX_VALUES:
            limit = f"has more than {MAX_VALUES:,} values when its aliases are expanded"
            raise CbmError(f"{place.source}: {limit}")
        value: Value
        if isinstance(node, yaml.ScalarNode):
            value = self._scalar(node, place, path)
        elif isinstance(node, yaml.MappingNode):
            value = self._fields(node, place, path)
        else:
            value = self._items(node, place, path)
        if node.tag not in _PLAIN_TAGS:
            message = f"the YAML tag {node.tag} means nothing here; remove it"
            self.problems.add(value, message)
        return value

    def _scalar(self, node: yaml.Node, place: Place, path: tuple[str, ...]) -> Scalar:
        value: Scalar = _placed(_HALF.sub("?", node.value), place, path)
        if value != node.value:
            message = "has half a character (a surrogate); write the whole one"
            self.problems.add(value, message)
        return value

    def _items(self, node: yaml.Node, place: Place, path: tuple[str, ...]) -> Items:
        items: Items = _placed([], place, path)
        for child in node.value:
            line = place._replace(line=child.start_mark.line + 1)
            items.append(self.of(child, line, path))
        return items

    def _fields(self, node: yaml.Node, place: Place, path: tuple[str, ...]) -> Fields:
        fields: Fields = _placed({}, place, path)
        for key, child in node.value:
            line = place._replace(line=key.start_mark.line + 1)
            name = str(key.value)
            value = self.of(child, line, (*path, name))
            if not isinstance(key, yaml.ScalarNode):
                self.problems.add(_placed("", line, path), "a key must be plain text")
            elif name in fields:
                first = fields[name].place.line
                message = f"is given twice; line {first} has it already"
                self.problems.add(value, message)
            else:
                fields[name] = value
        return fields
