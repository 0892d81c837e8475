"""The fields of a grid by name, dotted where nested, and their values as the file writes them.

Two rules for what is nested, ``data: {flip: true}`` or ``data.flip: true``. A condition looks only at what
it names, so both spellings say the same. Where something is set (``when``, ``--set``), ``data:`` writes
the whole field as the file would, and ``data.flip:`` changes that part of it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import product
from math import prod
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from cbm_cli.grid.settings import Settings
from cbm_cli.grid.values import Frozen
from cbm_cli.grid.wording import fields_of, report
from cbm_cli.grid.yaml_text import Node, Problems


def _hints(model: type[Frozen]) -> dict[str, Any]:
    hints = get_type_hints(model, include_extras=True)
    return {name: hints[name] for name in model.model_fields}


FIELDS = _hints(Settings)
NESTED: dict[str, type[Frozen]] = {
    name: kind for name, kind in FIELDS.items() if isinstance(kind, type) and issubclass(kind, Frozen)
}
INNER = {f"{name}.{inner}": kind for name, model in NESTED.items() for inner, kind in _hints(model).items()}
PATHS = {**FIELDS, **INNER}
# `data: mnist` is short for `data: {name: mnist}`; one sliding factor serves both sides.
SHORT = {
    "data": ("name",),
    "learning_rate": ("start",),
    "weight_decay": ("l2",),
    "sliding_factor": ("visible", "hidden"),
    "gradient": ("kind",),
    "pretraining": ("epochs",),
    "record": ("what",),
}
DEEP = ("dbm", "auto-encoder")  # kinds whose `hidden: [500, 200]` is one machine
INSTEAD = {"updates": "epochs", "epochs": "updates"}

Cell = dict[str, Any]  # field -> validated value


def written(fields: Mapping[str, Node], path: str, value: Node) -> dict[str, Node]:
    """Return the fields with one of them written, or a part of it where the path is dotted.

    Writing ``epochs`` takes ``updates`` away and the other way round: a training has one length.
    """
    field, _, inner = path.partition(".")
    if inner:
        value = _with_part(fields.get(field), field, inner, value)
    return {name: node for name, node in fields.items() if name != INSTEAD.get(field)} | {field: value}


def validated(path: str, node: Node, problems: Problems) -> Any:
    """Return the validated value of a setting; None after adding a problem."""
    try:
        return _adapter(path).validate_python(node.plain())
    except ValidationError as error:
        report(error, node, problems)
        return None


def singles(node: Node, path: str, problems: Problems) -> Iterator[Node]:
    """Yield the values that a node stands for, without lists; those of a mapping are a product."""
    if isinstance(node.value, list):
        if not node.value:
            problems.add(node.place, node.label, "is an empty list; an axis has one value or more")
        for item in node.value:
            if isinstance(item.value, list):
                problems.add(item.place, item.label, "is a list within a list")
            else:
                yield from singles(item, path, problems)
    elif path in NESTED:
        node = long_form(node, path)
        if path == "model" and _is_ambiguous(node):
            hidden, remedy = node.value["hidden"], "give model: a list of mappings, one a kind"
            problems.add(hidden.place, hidden.label, f"is an axis or layers, depending on the kind; {remedy}")
            return
        parts = fields_of(node, NESTED[path].model_fields, problems)
        if parts or node.value == {}:
            options = [singles(part, f"{path}.{name}", problems) for name, part in parts.items()]
            for values in product(*options):
                yield replace(node, value=dict(zip(parts, values, strict=True)))
    else:
        yield node


def is_single(node: Node) -> bool:
    """Whether there is no list in it."""
    if isinstance(node.value, dict):
        return all(is_single(child) for child in node.value.values())
    return isinstance(node.value, str)


def long_form(node: Node, field: str) -> Node:
    """Write the short form of a field out; the value stands for the mapping, key and all.

    The layers of a machine, ``[500, 500]``, become one value, ``500-500``.
    """
    if isinstance(node.value, dict):
        return _with_layers(node) if field == "model" else node
    if field not in SHORT:
        return node
    return replace(node, value=dict.fromkeys(SHORT[field], node), key=node.place)


def count(node: Node) -> int:
    """Return the number of values that `singles` would yield."""
    if isinstance(node.value, dict):
        return prod(count(child) for child in node.value.values())
    return 1 if isinstance(node.value, str) else sum(count(child) for child in node.value)


def _with_layers(model: Node) -> Node:
    """Write the layers of a machine that may be deep as text; of several machines, each for itself."""
    kind, hidden = model.value.get("kind"), model.value.get("hidden")
    if kind is None or kind.value not in DEEP or hidden is None or not isinstance(hidden.value, list):
        return model
    one_machine = all(map(_is_layer, hidden.value))
    written_out = (
        _as_text(hidden) if one_machine else replace(hidden, value=list(map(_as_text, hidden.value)))
    )
    return replace(model, value={**model.value, "hidden": written_out})


def _as_text(layers: Node) -> Node:
    if not isinstance(layers.value, list) or not layers.value or not all(map(_is_layer, layers.value)):
        return layers
    return replace(layers, value="-".join(layers.plain()))


def _is_layer(item: Node) -> bool:
    """Whether it is the size of one layer, or meant to be: 500, rather than 500-500 or a list."""
    return isinstance(item.value, str) and not re.search(r"\d\s*-", item.value)


def _is_ambiguous(model: Node) -> bool:
    """Whether a list of hidden may be an axis or layers, as the kind of machine is a list."""
    parts = model.value if isinstance(model.value, dict) else {}
    return all(name in parts and isinstance(parts[name].value, list) for name in ("kind", "hidden"))


def _with_part(node: Node | None, field: str, inner: str, value: Node) -> Node:
    if node is None:
        return replace(value, value={inner: value})
    if isinstance(node.value, list):
        return replace(node, value=[_with_part(item, field, inner, value) for item in node.value])
    node = long_form(node, field)
    return replace(node, value={**node.value, inner: value}) if isinstance(node.value, dict) else node


@cache
def _adapter(path: str) -> TypeAdapter:
    return TypeAdapter(PATHS[path])
