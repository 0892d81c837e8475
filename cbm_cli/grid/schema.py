"""JSON schema of grid files, for editors; made from the models that the reader validates with.

Editors read a file by YAML's rules: ``offsets: 00`` reaches them as the number 0 and ``1e-3`` as text. So
text may be a number here, and a number may be text that reads as one.
"""

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import BaseModel

from cbm_cli import datasets
from cbm_cli.grid.data import OF_FILES, Data
from cbm_cli.grid.fields import INNER, NESTED, SHORT
from cbm_cli.grid.reading import COLUMNS, NAME, Head
from cbm_cli.grid.settings import Settings, TableSpec

Schema = dict[str, Any]

_TEXT = {"type": ["string", "number", "boolean"]}
_READS_AS = {
    "integer": {"type": "string", "pattern": r"^\s*\+?[0-9][0-9_]*\s*$"},
    "number": {"type": "string", "pattern": r"^\s*\+?([0-9][0-9_]*\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"},
    "boolean": {"enum": ["true", "false", "yes", "no", "on", "off"]},
}


def json_schema() -> Schema:
    """Return the JSON schema (draft 2020-12) of a grid file.

    It accepts what `read_grid` accepts as far as the shape goes: fields, kinds of values and their ranges,
    but not how fields fit together.
    """
    names = _axis(_TEXT)
    experiment = {"$ref": "#/$defs/experiment"}
    named = {"type": "object", "additionalProperties": False, "minProperties": 1}
    sections = {
        "defaults": {**experiment, "description": "Fields of all experiments that do not give their own"},
        "default": {**names, "description": "Experiments or groups that a bare `cbm run FILE` runs"},
        "groups": {"type": "object", "additionalProperties": names, "description": "Several under one name"},
        "experiments": {**named, "patternProperties": {f"^{NAME}$": experiment}},
    }
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Experiment grid of cbm"}
    definitions = {
        "experiment": _object(_experiment()),
        "condition": _condition(),
        "assignment": _assignment(),
    }
    return about | _object(sections, required=["experiments"]) | {"$defs": definitions}


def _experiment() -> dict[str, Schema]:
    condition, assignment = {"$ref": "#/$defs/condition"}, {"$ref": "#/$defs/assignment"}
    change = _object({"if": condition, "set": assignment}, required=["if", "set"])
    tie = _list({"enum": list(Settings.model_fields)})
    return {
        **{name: _loose(schema) for name, schema in _properties(Head).items()},
        "table": _table(),
        **{name: _axis(schema) for name, schema in _settings(_axis).items()},
        "zip": {"anyOf": [tie, _list(tie)], "description": "Axes that advance together"},
        "exclude": {**_list(condition), "description": "Cells to leave out"},
        "when": {**_list(change), "description": "Fields to set for some cells"},
    }


def _condition() -> Schema:
    tests = {
        name: _axis(_loose(schema)) for name, schema in _properties(Settings).items() if name not in NESTED
    }
    for name, model in NESTED.items():
        parts = _object({part: _axis(schema) for part, schema in _parts(model).items()})
        tests[name] = {"anyOf": [parts, *(_axis(short) for short in _short(name))]}
    dotted = {path: _axis(schema) for path, schema in _dotted().items()}
    return _object(tests | dotted, minProperties=1)


def _assignment() -> Schema:
    return _object(_settings(lambda part: part) | _dotted())


def _settings(each: Callable[[Schema], Schema]) -> dict[str, Schema]:
    """Return the schema of one value of every setting; ``each`` part of a nested one may be an axis."""
    schemas = {name: _loose(schema) for name, schema in _properties(Settings).items()}
    for name, model in NESTED.items():
        parts = {part: each(schema) for part, schema in _parts(model).items()}
        schemas[name] = {"anyOf": [*_long(model, parts), *_short(name)]}
    return schemas


def _long(model: type[BaseModel], parts: dict[str, Schema]) -> list[Schema]:
    """Return the schema of a mapping; ``data:`` has two forms, a name of those known and files."""
    if model is not Data:
        return [_object(parts, _required(model))]
    named = {name: part for name, part in parts.items() if name not in OF_FILES}
    return [_object(named, ["name"]), _object(parts | {"name": _TEXT}, ["path"])]


def _short(name: str) -> list[Schema]:
    """Return the schema of the short form of a nested setting, if it has one."""
    return [_parts(NESTED[name])[part] for part in SHORT.get(name, ())[:1]]


def _dotted() -> dict[str, Schema]:
    parts = {name: _parts(model) for name, model in NESTED.items()}
    return {f"{name}.{part}": schema for name in parts for part, schema in parts[name].items()}


def _parts(model: type[BaseModel]) -> dict[str, Schema]:
    parts = {name: _loose(schema) for name, schema in _properties(model).items()}
    if model is Data:
        parts["name"] |= {"type": "string", "enum": datasets.names()}
    return parts


def _table() -> Schema:
    names = _axis({"enum": sorted({*COLUMNS, *INNER} - {f"data.{field}" for field in OF_FILES})})
    parts = _properties(TableSpec)
    return _object({name: names if "items" in part else _loose(part) for name, part in parts.items()})


def _properties(model: type[BaseModel]) -> dict[str, Schema]:
    return model.model_json_schema()["properties"]


def _required(model: type[BaseModel]) -> list[str]:
    return model.model_json_schema().get("required", [])


def _loose(schema: Schema) -> Schema:
    """Accept a scalar in its other spellings; drop the titles, defaults and nulls that pydantic adds."""
    schema = {key: value for key, value in schema.items() if key not in ("title", "default")}
    if "anyOf" in schema:
        schema["anyOf"] = [_loose(one) for one in schema["anyOf"] if one != {"type": "null"}]
        return schema
    kind = schema.get("type")
    if kind == "array":
        return schema | {"items": _loose(schema["items"])}
    if kind == "string" and not {"enum", "const", "pattern"} & schema.keys():
        return schema | _TEXT
    if kind in _READS_AS:
        return _described([schema, _READS_AS[kind]], schema.pop("description", None))
    return schema


def _axis(schema: Schema) -> Schema:
    return _described([schema, _list(schema, minItems=1)], schema.get("description"))


def _described(choices: list[Schema], description: str | None) -> Schema:
    return {"anyOf": choices} | ({"description": description} if description else {})


def _list(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


def _object(properties: dict[str, Schema], required: Sequence[str] = (), **more: Any) -> Schema:
    shape = {"type": "object", "properties": properties, "additionalProperties": False, **more}
    return shape | ({"required": list(required)} if required else {})
