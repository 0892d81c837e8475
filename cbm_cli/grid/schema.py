"""JSON schema of grid files, for editors: pydantic's own, of fields that may be lists
of their values.

Editors read a file by YAML's rules: ``offsets: 00`` reaches them as the number 0 and
``1e-3`` as text. So text may be a number here, and a number may be text that reads as
one.
"""

from typing import Annotated, Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, create_model

from cbm_cli.datasets.fields import Frozen
from cbm_cli.datasets.published import SOURCES
from cbm_cli.grid.read import NAME, Outline
from cbm_cli.grid.settings import Settings
from cbm_cli.text import WHOLE

_NUMBERS = {  # how text reads as a number
    "integer": rf"^\s*\+?{WHOLE}\s*$",
    "number": r"^\s*\+?([0-9][0-9_]*\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$",
}


def json_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of a grid file.

    It accepts what `read_grid` accepts as far as the shape goes: fields, kinds of
    values and their ranges, but not how fields fit together.
    """
    names = str | list[str]
    condition = _model("condition", _fields(Settings, "condition"), minProperties=1)
    values = _model("values", _fields(Settings, "values"))
    change = _model("change", {"if": (condition, ...), "set": (values, ...)})
    fields = _fields(Outline, "values") | _fields(Settings, "experiment")
    fields["exclude"] = _field(_list_of(condition), "Cells to leave out")
    fields["when"] = _field(_list_of(change), "Fields to set for some cells")
    experiment: Any = _model("experiment", fields)
    name = Annotated[str, StringConstraints(pattern=f"^{NAME}$")]
    closed = Field(min_length=1, json_schema_extra={"additionalProperties": False})
    named: Any = Annotated[dict[name, experiment], closed]
    about_defaults = "Fields of all experiments that do not give their own"
    about_default = "Experiments or groups that a bare `cbm run FILE` runs"
    sections = {
        "defaults": _field(experiment, about_defaults),
        "default": _field(names, about_default),
        "groups": _field(dict[str, names], "Several experiments under one name"),
        "experiments": _field(named, "The experiments by name", default=...),
    }
    draft = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return draft | _as_read(_model("grid", sections).model_json_schema())


def _model(name: str, fields: dict[str, Any], **more: Any) -> type[BaseModel]:
    closed = ConfigDict(extra="forbid", json_schema_extra=more)
    return create_model(name, __config__=closed, **fields)


def _field(kind: Any, description: str, default: Any = None) -> tuple[Any, Any]:
    return kind, Field(default, description=description)


def _list_of(kind: Any) -> Any:
    return list[kind]


def _fields(model: type[BaseModel], where: str) -> dict[str, Any]:
    """Return the fields of a model in an experiment, in a condition, or as ``values``,
    which are not lists.

    A condition needs none of them; those that an experiment needs may be in
    ``defaults``.
    """
    fields: dict[str, Any] = {}
    hints = get_type_hints(model, include_extras=True)
    for name, info in model.model_fields.items():
        kind: Any = hints[name]
        if isinstance(info.annotation, type) and issubclass(info.annotation, Frozen):
            kind = _nested(name, info.annotation, where)
        if where != "values":
            kind |= Annotated[_list_of(kind), Field(min_length=1)]
        default: Any = None
        if isinstance(info.default, str | int | float):
            default = info.default
        elif info.is_required() and model is not Settings and where != "condition":
            default = ...
        fields[name] = _field(kind, info.description or "", default)
    return fields


def _nested(name: str, model: type[Frozen], where: str) -> Any:
    """Return the type of a nested field: a mapping, or the value that is short for
    it.
    """
    parts = _fields(model, where)
    kind: Any = _model(f"{where}_{name}".removeprefix("experiment_"), parts)
    if name == "data":
        return kind | Literal[(*SOURCES,)]
    return kind | parts[model.short[0]][0] if model.short else kind


def _as_read(schema: Any) -> Any:
    """Accept scalars in their other spellings; drop the titles, defaults and nulls that
    pydantic adds.
    """
    if isinstance(schema, list):
        return [_as_read(part) for part in schema if part != {"type": "null"}]
    if not isinstance(schema, dict):
        return schema
    added = {"title": schema.get("title"), "default": None}.items()
    schema = {
        key: _as_read(part) for key, part in schema.items() if (key, part) not in added
    }
    kind = schema.get("type")
    if kind == "boolean":
        return {"enum": [True, False, "true", "false", "yes", "no", "on", "off"]}
    if kind == "string" and not {"enum", "const", "pattern"} & schema.keys():
        return schema | {"type": ["string", "number", "boolean"]}
    if isinstance(kind, str) and kind in _NUMBERS:
        return schema | {"type": [kind, "string"], "pattern": _NUMBERS[kind]}
    return schema
