"""JSON schema of grid files, for editors: pydantic's own, of fields that may be lists
of their values.

Editors read a file by YAML's rules: ``offsets: 00`` reaches them as the number 0 and
``1e-3`` as text. So text may be a number here, and a number may be text that reads as
one.
"""

from typing import Annotated, Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, create_model

from cbm_cli.datasets.published import SOURCES
from cbm_cli.grid.fields import Frozen
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
    fields["exclude"] = list[condition], Field(None, description=("Cells to leave out"))  # type: ignore[valid-type]
    fields["when"] = (
        list[change],
        Field(None, description="Fields to set for some cells"),
    )  # type: ignore[valid-type]
    experiment = _model("experiment", fields)
    name = Annotated[str, StringConstraints(pattern=f"^{NAME}$")]
    closed = Field(min_length=1, json_schema_extra={"additionalProperties": False})
    named = Annotated[dict[name, experiment], closed]  # type: ignore[valid-type]
    sections = {
        "defaults": (
            experiment,
            None,
            "Fields of all experiments that do not give their own",
        ),
        "default": (
            names,
            None,
            "Experiments or groups that a bare `cbm run FILE` runs",
        ),
        "groups": (dict[str, names], None, "Several experiments under one name"),
        "experiments": (named, ..., "The experiments by name"),
    }
    grid = {
        one: (kind, Field(default, description=about))
        for one, (kind, default, about) in sections.items()
    }
    draft = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return draft | _as_read(_model("grid", grid).model_json_schema())


def _model(name: str, fields: dict[str, Any], **more: Any) -> type[BaseModel]:
    return create_model(
        name, __config__=ConfigDict(extra="forbid", json_schema_extra=more), **fields
    )


def _fields(model: type[BaseModel], where: str) -> dict[str, Any]:
    """Return the fields of a model in an experiment, in a condition, or as ``values``,
    which are not lists.

    A condition needs none of them; those that an experiment needs may be in
    ``defaults``.
    """
    found: dict[str, Any] = {}
    hints = get_type_hints(model, include_extras=True)
    for name, info in model.model_fields.items():
        one: Any = hints[name]
        if isinstance(kind := info.annotation, type) and issubclass(kind, Frozen):
            parts = _fields(kind, where)
            one = _model(f"{where}_{name}".removeprefix("experiment_"), parts)
            if kind.short:
                one = one | (
                    Literal[(*SOURCES,)] if name == "data" else parts[kind.short[0]][0]
                )
        several = Annotated[list[one], Field(min_length=1)]  # type: ignore[valid-type]
        default: Any = (
            info.default if isinstance(info.default, str | int | float) else None
        )
        if info.is_required() and model is not Settings and where != "condition":
            default = ...
        about = Field(default, description=info.description)
        found[name] = one if where == "values" else one | several, about
    return found


def _as_read(schema: Any) -> Any:
    """Accept scalars in their other spellings; drop the titles, defaults and nulls that
    pydantic adds.
    """
    if isinstance(schema, list):
        return [_as_read(one) for one in schema if one != {"type": "null"}]
    if not isinstance(schema, dict):
        return schema
    empty = {"title": schema.get("title"), "default": None}
    schema = {
        key: _as_read(one)
        for key, one in schema.items()
        if (key, one) not in empty.items()
    }
    kind = schema.get("type")
    if kind == "boolean":
        return {"enum": [True, False, "true", "false", "yes", "no", "on", "off"]}
    if kind == "string" and not {"enum", "const", "pattern"} & schema.keys():
        return schema | {"type": ["string", "number", "boolean"]}
    if isinstance(kind, str) and kind in _NUMBERS:
        return schema | {"type": [kind, "string"], "pattern": _NUMBERS[kind]}
    return schema
