"""JSON schema of grid files, for editors; made from the models that the reader validates with.

Editors read a file by YAML's rules: ``offsets: 00`` reaches them as the number 0 and ``1e-3`` as text. So
text may be a number here, and a number may be text that reads as one.
"""

from typing import Any

from cbm_cli.datasets.published import SOURCES
from cbm_cli.datasets.spec import OF_FILES
from cbm_cli.grid.cells import PATHS
from cbm_cli.grid.read import NAME, Head
from cbm_cli.grid.settings import COLUMNS, NESTED, Settings, TableSpec, meant
from cbm_cli.grid.values import Frozen
from cbm_cli.text import WHOLE

Schema = dict[str, Any]

_TEXT = {"type": ["string", "number", "boolean"]}
_TRUTH = {"enum": [True, False, "true", "false", "yes", "no", "on", "off"]}
_NUMBERS = {  # how text reads as a number
    "integer": rf"^\s*\+?{WHOLE}\s*$",
    "number": r"^\s*\+?([0-9][0-9_]*\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$",
}


def json_schema() -> Schema:
    """Return the JSON schema (draft 2020-12) of a grid file.

    It accepts what `read_grid` accepts as far as the shape goes: fields, kinds of values and their ranges,
    but not how fields fit together.
    """
    defs: dict[str, Schema] = {"column": {"enum": _columns()}}
    names, experiment = _axis(_TEXT), {"$ref": "#/$defs/experiment"}
    condition = _object(_fields(Settings, defs, "condition")) | {"minProperties": 1}
    change = _object({"if": condition, "set": _object(_fields(Settings, defs, "set"))}, "if", "set")
    rules = {"exclude": ("Cells to leave out", condition), "when": ("Fields to set for some cells", change)}
    fields = _fields(Head, defs, "set") | _fields(Settings, defs, "experiment")
    fields |= {
        rule: {"description": about, "type": "array", "items": item} for rule, (about, item) in rules.items()
    }
    named = {"patternProperties": {f"^{NAME}$": experiment}, "minProperties": 1}
    sections: dict[str, Schema] = {
        "defaults": {"description": "Fields of all experiments that do not give their own"} | experiment,
        "default": {"description": "Experiments or groups that a bare `cbm run FILE` runs"} | names,
        "groups": {"description": "Several experiments under one name", "type": "object"}
        | {"additionalProperties": names},
        "experiments": {"description": "The experiments by name"} | _object({}) | named,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Experiment grid of cbm",
        **_object(sections, "experiments"),
        "$defs": defs | {"experiment": _object(fields)},
    }


def _fields(model: type[Frozen], defs: dict[str, Schema], where: str, of: str = "") -> dict[str, Schema]:
    """Return the schemas of the fields of a model; one value of each is added to the definitions.

    ``where`` is an experiment, a condition (which needs no field), or set (of one value, not an axis). ``of``
    is the field, and a dot, of which these are parts.
    """
    found = {}
    for name, own in model.model_json_schema()["properties"].items():
        about = {"description": own["description"]}
        if isinstance(own.get("default"), str | int | float):
            about["default"] = own["default"]
        nested = model is Settings and name in NESTED
        path = f"{where}.{name}" if nested else f"{of}{name}"
        if name == "table":
            schema = _object(_fields(TableSpec, defs, where, "table."))
        elif of == "table." and own.get("type") == "array":
            schema = _axis({"$ref": "#/$defs/column"})
        else:
            defs[path] = _nested(name, defs, where) if nested else _loose(own)
            schema = {"$ref": f"#/$defs/{path}"}
        found[name] = (schema if where == "set" else _axis(schema)) | about
    return found


def _nested(name: str, defs: dict[str, Schema], where: str) -> Schema:
    """Return a nested setting, in the long form and in the short one if there is one."""
    parts = _fields(NESTED[name], defs, where, f"{name}.")
    required = [part for part, info in NESTED[name].model_fields.items() if info.is_required()]
    forms = [_object(parts, *(required if where != "condition" else []))]
    if name == "data":  # a known name, or files under any name
        forms = [_object(parts, "path")]
        defs["data.known"] = {"enum": [*SOURCES]}
        known: Schema = {"$ref": "#/$defs/data.known"}
        parts = {part: one for part, one in parts.items() if part not in OF_FILES}
        parts["name"] = (known if where == "set" else _axis(known)) | {"description": "A data set"}
        forms.append(_object(parts, *["name"] * (where != "condition")))
    return {"anyOf": forms + [parts[part] for part in NESTED[name].short[:1]]}


def _columns() -> list[str]:
    """Return the names that a table may give to columns, in all their spellings."""
    dotted = {path for path in PATHS if meant(path, COLUMNS)}
    parts = {path.partition(".")[2] for path in dotted}
    return sorted({*COLUMNS, *NESTED, *dotted, *(part for part in parts if len(meant(part, COLUMNS)) == 1)})


def _loose(schema: Schema) -> Schema:
    """Accept a scalar in its other spellings; drop the titles, defaults and nulls that pydantic adds."""
    schema = {key: value for key, value in schema.items() if key not in ("title", "default")}
    kind: Any = schema.get("type")
    if "anyOf" in schema:
        forms = [_loose(one) for one in schema.pop("anyOf") if one != {"type": "null"}]
        return (forms[0] if len(forms) == 1 else {"anyOf": forms}) | schema
    if kind == "boolean":
        return _TRUTH
    if kind == "string" and not {"enum", "const", "pattern"} & schema.keys():
        return schema | _TEXT
    if kind in ("integer", "number"):
        return schema | {"type": [kind, "string"], "pattern": _NUMBERS[kind]}
    return schema


def _axis(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "array", "items": schema, "minItems": 1}]}


def _object(properties: dict[str, Schema], *required: str) -> Schema:
    shape = {"type": "object", "properties": properties, "additionalProperties": False}
    return shape | ({"required": [*required]} if required else {})
