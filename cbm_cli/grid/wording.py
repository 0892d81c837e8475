"""What to say about a value that cannot be taken: where it stands, what it must be, what was meant."""

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from cbm_cli.grid.yaml_text import Node, Place, Problems

_PHRASES = {
    "greater_than": "greater than {gt:g}",
    "greater_than_equal": "{ge:g} or more",
    "less_than": "less than {lt:g}",
    "less_than_equal": "{le:g} or less",
    "finite_number": "finite",
    "literal_error": "{expected}",
    "string_type": "text",
    "tuple_type": "a list",
}
_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "model": "a mapping"}


def did_you_mean(name: str, known: Collection[str]) -> str:
    """Return ``; did you mean NAME?``, or what there is (less the dotted names) where nothing is close."""
    close = get_close_matches(name[:80], known, n=1)
    there_are = ", ".join(one for one in known if one.split(".")[0] not in known or "." not in one)
    return f"; did you mean {close[0]}?" if close else f"; there are: {there_are}"


def fields_of(node: Node, known: Collection[str], problems: Problems) -> dict[str, Node]:
    """Return the known fields of a mapping; unknown ones, and what is no mapping, become problems."""
    if not isinstance(node.value, dict):
        problems.add(node.key, node.label, f"must be a mapping of fields, not {shown(node)}")
        return {}
    for name, child in node.value.items():
        if name not in known:
            problems.add(child.key, child.label, f"unknown field{did_you_mean(name, known)}")
    return {name: child for name, child in node.value.items() if name in known}


def items_of(node: Node, problems: Problems) -> list[Node]:
    """Return the items of a list; what is no list becomes a problem."""
    if isinstance(node.value, list):
        return node.value
    problems.add(node.place, node.label, f"must be a list, not {shown(node)}")
    return []


def shown(node: Node) -> str:
    """Return a value as a message names it."""
    if isinstance(node.value, str):
        return (node.value if len(node.value) <= 60 else node.value[:57] + "...") or "empty"
    return "a mapping" if isinstance(node.value, dict) else "a list"


def report(
    error: ValidationError,
    node: Node,
    problems: Problems,
    sources: Mapping[tuple[str, Any], Node] | None = None,
) -> None:
    """Add what pydantic found in the value of a node, each at the place of the part that is meant.

    ``sources`` says where the values of a cell come from, by field and value, for those that do not go
    with the others.
    """
    phrases: dict[tuple[Place, str, str], list[str]] = {}
    for item in error.errors():
        part = _part(node, item["loc"])
        if item["type"] == "missing":
            problems.add(part.key, ".".join(filter(None, (part.label, str(item["loc"][-1])))), "is missing")
        elif item["type"] == "value_error":
            part, label = _blamed(item, part, sources or {})
            place = part.key if isinstance(part.value, dict) else part.place
            problems.add(place, label, str(item["ctx"]["error"]))
        else:
            phrases.setdefault((part.place, part.label, shown(part)), []).append(_phrase(item))
    for (place, label, value), choices in phrases.items():
        problems.add(place, label, _must_be(choices, value))


def _part(node: Node, location: tuple[int | str, ...]) -> Node:
    """Follow pydantic's location as far as the file has it; it also names members of unions."""
    for step in location:
        in_list = isinstance(node.value, list) and isinstance(step, int)
        if in_list or (isinstance(node.value, dict) and step in node.value):
            node = node.value[step]
    return node


def _blamed(item: dict[str, Any], part: Node, sources: Mapping[tuple[str, Any], Node]) -> tuple[Node, str]:
    """Return the part that a misfit is told at, and its label: the field to look at, where it is given."""
    field, given = getattr(item["ctx"]["error"], "field", None), item["input"]
    if field is None:
        return part, part.label
    if field not in given:
        return part, f"{part.label}.{field}"
    inner = part.value.get(field) if isinstance(part.value, dict) and not sources else None
    part = sources.get((field, given[field]), inner or part)
    return part, part.label


def _must_be(phrases: list[str], value: str) -> str:
    """Join what the members of a union had to say into one sentence."""
    phrases = list(dict.fromkeys(phrases))
    words = [word for phrase in phrases for word in re.split(" or |, ", phrase)]
    close = get_close_matches(value, words, n=1)
    return f"must be {' or '.join(phrases)}, not {value}" + (f"; did you mean {close[0]}?" if close else "")


def _phrase(item: dict[str, Any]) -> str:
    kind = item["type"]
    if kind in _PHRASES:
        return _PHRASES[kind].format(**item.get("ctx", {})).replace("'", "")
    return _KINDS.get(kind.split("_")[0], item["msg"])
