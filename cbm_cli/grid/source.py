"""YAML as text, lists and mappings that know their place, and what is wrong with them.

Scalars stay text. YAML itself would take the scheme ``00`` for the number 0, ``1e-3``
for text and ``off`` for False, and would keep the last of two equal keys.
"""

import re
from collections.abc import Collection
from difflib import get_close_matches
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
_NO_BLANK = re.compile(
    r"[\s-]*(\w+):[^\s:/\\]"
)  # after the colon of a field, as in sampler:CD-1
_PLAIN_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map")}
_TAB = "found character '\\t' that cannot start any token"
_REMEDIES = {  # by how YAML's complaint begins
    _TAB: "write spaces in place of tabs",
    "found character": "quote a text that begins with it",
    "mapping values are not allowed here": (
        "quote a text that has a colon, or check the indentation"
    ),
    "but found another document": "write one document, without ---",
    "expected <block end>": "check the indentation",
    "could not find expected ':'": (
        "write a colon and a blank after the name of a field"
    ),
    "expected ',' or": "close the bracket, or separate its items by commas",
    "found unexpected end of stream": "close the quote",
}
# What begins at a line of its own
_BEGUN = re.compile("while (scanning a (simple key|quoted)|parsing a flow)")


class Place(NamedTuple):
    """A line of a file, from 1, or a command line option such as ``--set
    data.flip``.
    """

    source: str
    line: int = 1

    def __str__(self) -> str:
        return (
            self.source
            if self.source.startswith("--")
            else f"{self.source}:{self.line}"
        )


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
    made: Value = {list: Items, dict: Fields}.get(type(content), Scalar)(content)  # type: ignore[call-overload]
    made.place, made.path = place, path
    return made


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
        self._found = set[tuple[Place, str, str]]()
        self.values = 0  # read so far, each as often as aliases repeat it
        # of problems, again where one is found again: shows whether there are any in
        # between
        self.count = 0

    def add(self, value: Value, message: str, inner: str = "") -> None:
        """Add a problem of a value, or of the field ``inner`` that it lacks."""
        if (
            isinstance(value, Scalar)
            and re.search(r"\S,|, *\S", value)
            and "[" not in message
        ):
            message += (
                "; several values are a list: "
                f"[{', '.join(re.split(', *', shortened(value)))}]"
            )
        self.count += 1
        path = ".".join(filter(None, (*value.path, inner))).removeprefix("experiments.")
        self._found.add((value.place, path, message))

    def blame(self, error: CbmError, value: Value) -> None:
        """Add an error at the part of a value that it names, or at the field that the
        value lacks.
        """
        steps = error.field.split(".") if error.field else []
        while steps and isinstance(value, Fields) and steps[0] in value:
            value = value[steps.pop(0)]
        self.add(
            value, error.message, ".".join(steps) if isinstance(value, Fields) else ""
        )

    def report(self, error: ValidationError, value: Value) -> None:
        """Add what pydantic found in a value, each problem at the part that it is
        about.
        """
        wishes: dict[int, tuple[Any, dict[str, None]]] = {}
        for item in error.errors(include_url=False):
            about: Any = value
            for step in item["loc"]:  # which may go on with a member of a union
                inside = isinstance(about, Items) and isinstance(step, int)
                about = (
                    about[step]
                    if inside or (isinstance(about, Fields) and step in about)
                    else about
                )
            cause = item.get("ctx", {}).get("error")
            if item["type"] == "missing":
                self.add(about, "is missing", str(item["loc"][-1]))
            elif cause:
                self.blame(
                    cause if isinstance(cause, CbmError) else CbmError(str(cause)),
                    about,
                )
            else:
                told = re.sub(r"^.*?should |, (unable|got).*|'", "", item["msg"])
                wishes.setdefault(id(about), (about, {}))[1][told] = None
        for about, told_once in wishes.values():
            wish = (
                " or ".join(told_once)
                .replace(" or be ", " or ")
                .replace("valid integer", "whole number")
            )
            close = get_close_matches(
                shown(about), re.split("be |,? or |, ", wish), n=1
            )
            hint = (
                f"; did you mean {close[0]}?"
                if close and isinstance(about, Scalar)
                else ""
            )
            self.add(about, f"must {wish}, not {shown(about)}{hint}")

    def fields(self, value: Value, known: Collection[str]) -> Fields:
        """Return the known fields of a mapping; others, and values that are not
        mappings, become problems.
        """
        if not isinstance(value, Fields):
            names = f" such as {', '.join([*known][:3])}" if known else ""
            self.add(value, f"must be a mapping with fields{names}, not {shown(value)}")
            return like(value, {})
        for name in value.keys() - {*known}:
            first, colon, rest = name.partition(":")
            hint = did_you_mean(name, known, cutoff=0.7 if len(name) < 7 else 0.8)
            if colon and first in known:
                hint = f"; write a blank after the colon: {first}: {rest}"
            self.add(value[name], f"unknown field{hint}")
        return like(value, {name: one for name, one in value.items() if name in known})

    def raise_any(self) -> None:
        """Raise CbmError with one line per problem, in the order of the file, if there
        are any.
        """
        if self._found:
            lines = (
                ": ".join(filter(None, map(str, problem)))
                for problem in sorted(self._found)
            )
            raise CbmError("\n".join(harmless(line, kept="") for line in lines))


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
        return _plain(root, Place(name), (), problems)
    except yaml.reader.ReaderError as error:
        line, complaint = text[: error.position].count("\n"), error.reason
    except yaml.MarkedYAMLError as error:
        begun = error.context_mark if _BEGUN.match(error.context or "") else None
        line = (begun or error.problem_mark or error.context_mark).line
        remedies = (
            remedy
            for start, remedy in _REMEDIES.items()
            if error.problem.startswith(start)
        )
        complaint = "; ".join(filter(None, (error.problem, next(remedies, ""))))
        near = enumerate(text.splitlines()[: line + 1])
        glued = [
            (number, found[1])
            for number, one in near
            if (found := _NO_BLANK.match(one))
        ][-1:]
        if glued and glued[0][0] >= line - 1 and error.problem != _TAB:
            line, complaint = (
                glued[0][0],
                f"write a blank after the colon of {glued[0][1]}",
            )
    except RecursionError:
        raise CbmError(
            f"{name}: is nested too deeply, or contains an alias of itself"
        ) from None
    raise CbmError(f"{Place(name, line + 1)}: is not YAML: {complaint}")


def _plain(
    node: yaml.Node, place: Place, path: tuple[str, ...], problems: Problems
) -> Value:
    """Return what a node holds; an alias is a node that occurs in several places."""
    problems.values += 1
    if problems.values > MAX_VALUES:
        raise CbmError(
            f"{place.source}: has more than {MAX_VALUES:,} values when its aliases "
            "are expanded"
        )
    made = _placed({} if isinstance(node, yaml.MappingNode) else [], place, path)
    if isinstance(node, yaml.ScalarNode):
        made = _placed(_HALF.sub("?", node.value), place, path)
        if made != node.value:
            problems.add(
                made, "has half a character (a surrogate); write the whole one"
            )
    if node.tag not in _PLAIN_TAGS:
        problems.add(made, f"the YAML tag {node.tag} means nothing here; remove it")
    for item in node.value if isinstance(node, yaml.SequenceNode) else ():
        made.append(
            _plain(item, place._replace(line=item.start_mark.line + 1), path, problems)
        )
    for key, child in node.value if isinstance(node, yaml.MappingNode) else ():
        line, name = place._replace(line=key.start_mark.line + 1), str(key.value)
        value = _plain(child, line, (*path, name), problems)
        if not isinstance(key, yaml.ScalarNode):
            problems.add(_placed("", line, path), "a key must be plain text")
        elif name in made:
            problems.add(
                value, f"is given twice; line {made[name].place.line} has it already"
            )
        else:
            made[name] = value
    return made
