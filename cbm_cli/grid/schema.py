"""JSON schema of grid files, for editors; made from the models that the reader validates with.

Editors read a file by YAML's rules: ``offsets: 00`` reaches them as the number 0 and ``1e-3`` as text. So
text may be a number here, and a number may be text that reads as one.
"""

from typing import Any

from pydantic import BaseModel

from cbm_cli.datasets.sources import SOURCES
from cbm_cli.datasets.spec import OF_FILES
from cbm_cli.grid.expand import PATHS, SHORT
from cbm_cli.grid.read import COLUMNS, NAME, Head
from cbm_cli.grid.settings import NESTED, Settings, TableSpec
from cbm_cli.text import WHOLE

Schema = dict[str, Any]

_TEXT = {"type": ["string", "number", "boolean"]}
_NUMBERS = {  # how text reads as a number
    "integer": rf"^\s*\+?{WHOLE}\s*$",
    "number": r"^\s*\+?([0-9][0-9_]*\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$",
}
_TRUTH = {"enum": [True, False, "true", "false", "yes", "no", "on", "off"]}


def json_schema() -> Schema:
    """Return the JSON schema (draft 2020-12) of a grid file.

    It accepts what `read_grid` accepts as far as the shape goes: fields, kinds of values and their ranges,
    but not how fields fit together.
    """
    names = _axis(_TEXT)
    experiment = _ref("experiment")
    groups = {"type": "object", "additionalProperties": names}
    named = {"patternProperties": {f"^{NAME}$": experiment}, "minProperties": 1}
    sections = {
        "defaults": _about("Fields of all experiments that do not give their own", experiment),
        "default": _about("Experiments or groups that a bare `cbm run FILE` runs", names),
        "groups": _about("Several experiments under one name", groups),
        "experiments": _about("The experiments by name", _object({}) | named),
    }
    columns = {*COLUMNS, *(path for path in PATHS if "." in path)} - {f"data.{one}" for one in OF_FILES}
    shared = {"column": {"enum": sorted(columns)}, "column.axis": _axis(_ref("column"))}
    shared |= {"experiment": _experiment(), "condition": _condition(), "set": _assignment()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Experiment grid of cbm",
        **_object(sections, "experiments"),
        "$defs": _values() | shared,
    }


def _values() -> dict[str, Schema]:
    """Return the schema of one value of each setting, dotted where nested, and of each nested mapping."""
    values = {name: one for name, one in _properties(Settings).items() if name not in NESTED}
    for name, model in NESTED.items():
        values |= {f"{name}.{part}": one for part, one in _properties(model).items()}
    values["data.name"] = {"description": values["data.name"]["description"], "enum": [*SOURCES]}
    for name, model in NESTED.items():
        values[name] = _mapping(name, {part: _ref(f"{name}.{part}.axis") for part in model.model_fields})
    return values | {f"{path}.axis": _axis(_ref(path)) for path in PATHS}


def _mapping(name: str, parts: dict[str, Schema]) -> Schema:
    """Return a nested setting from its parts, in the long form and in the short one if there is one."""
    required = [part for part, info in NESTED[name].model_fields.items() if info.is_required()]
    forms = [_object(parts, *required)]
    if name == "data":  # a known name, or files under any name
        named = {part: one for part, one in parts.items() if part not in OF_FILES}
        forms = [_object(named, "name"), _object(parts | {"name": _TEXT}, "path")]
    return {"anyOf": forms + [_ref(f"{name}.{part}") for part in SHORT.get(name, ())[:1]]}


def _experiment() -> Schema:
    table = _properties(TableSpec)
    for name in ("rows", "columns", "groups", "choose"):
        table[name] = _about(table[name]["description"], _ref("column.axis"))
    change = _object({"if": _ref("condition"), "set": _ref("set")}, "if", "set")
    settings = Settings.model_fields.items()
    fields = _properties(Head) | {
        "table": _about(Head.model_fields["table"].description, _object(table)),
        "exclude": _about("Cells to leave out", _list(_ref("condition"))),
        "when": _about("Fields to set for some cells", _list(change)),
    }
    refs = {name: _about(info.description, _ref(f"{name}.axis")) for name, info in settings}
    for name, info in settings:
        if isinstance(info.default, str | int | float):
            refs[name]["default"] = info.default
    return _object(fields | refs)


def _condition() -> Schema:
    tests = {name: _ref(f"{name}.axis") for name in Settings.model_fields}
    for name, model in NESTED.items():
        parts = {part: _ref(f"{name}.{part}.axis") for part in model.model_fields}
        short = [parts[part] for part in SHORT.get(name, ())[:1]]
        tests[name] = {"anyOf": [_object(parts), *short]}
    return _object(tests) | {"minProperties": 1}


def _assignment() -> Schema:
    values = {name: _ref(name) for name in Settings.model_fields}
    for name, model in NESTED.items():
        values[name] = _mapping(name, {part: _ref(f"{name}.{part}") for part in model.model_fields})
    return _object(values)


def _properties(model: type[BaseModel]) -> dict[str, Schema]:
    return {name: _loose(schema) for name, schema in model.model_json_schema()["properties"].items()}


def _loose(schema: Schema) -> Schema:
    """Accept a scalar in its other spellings; drop the titles and nulls that pydantic adds."""
    plain = isinstance(schema.get("default"), str | int | float)
    schema = {key: value for key, value in schema.items() if key != "title" and (plain or key != "default")}
    kind = schema.get("type")
    if "anyOf" in schema:
        choices = [_loose(one) for one in schema.pop("anyOf") if one != {"type": "null"}]
        return {**choices[0], **schema} if len(choices) == 1 else {"anyOf": choices, **schema}
    if kind == "boolean":
        return {key: value for key, value in schema.items() if key != "type"} | _TRUTH
    if kind == "string" and not {"enum", "const", "pattern"} & schema.keys():
        return schema | _TEXT
    if kind in ("integer", "number"):
        return schema | {"type": [kind, "string"], "pattern": _NUMBERS[kind]}
    return schema


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _axis(schema: Schema) -> Schema:
    return {"anyOf": [schema, _list(schema) | {"minItems": 1}]}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _about(description: str | None, schema: Schema) -> Schema:
    return {"description": description, **schema}


def _object(properties: dict[str, Schema], *required: str) -> Schema:
    shape = {"type": "object", "properties": properties, "additionalProperties": False}
    return shape | ({"required": [*required]} if required else {})
