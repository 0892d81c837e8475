"""Write the parts of pages that are made from commands, schema and docstrings.

    python docs/generated.py

The parts are between two marks of their pages, and in git, so that a clone has them.
A test compares them with the code.
"""

import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import griffe
from pydantic import BaseModel

from cbm_cli import api, machine, sklearn
from cbm_cli.cli import main
from cbm_cli.grid.schema import json_schema
from cbm_cli.grid.settings import NESTED, Settings, TableSpec

DOCS = Path(__file__).parent


def write_pages() -> None:
    """Write all generated parts into their pages."""
    for name, make in PARTS.items():
        page = DOCS / name
        page.write_text(with_part(page.read_text("utf-8"), make()), "utf-8")


def with_part(text: str, lines: Iterator[str]) -> str:
    """Return the text of a page with the lines of its generated part.

    Raises
    ------
    ValueError
        The page lacks one of the two marks.
    """
    begin, end = "<!-- generated -->\n", "<!-- end -->"
    before, _, rest = text.partition(begin)
    after = rest.partition(end)[2]
    if end not in rest:
        raise ValueError("the page has no place for the generated part")
    return f"{before}{begin}\n" + "\n".join(lines).strip("\n") + f"\n\n{end}{after}"


# Commands


def commands() -> Iterator[str]:
    """Write each command: its help, and a table of its options."""
    top = click.Context(main, info_name="cbm", terminal_width=80, show_default=True)
    for command, context in commands_below(top):
        yield f"\n## {context.command_path}\n"
        yield f"```text\n{command.get_usage(context)}\n```\n"
        for paragraph in (command.help or "").split("\n\n"):
            text = textwrap.dedent(paragraph.strip("\n")).strip()
            if text.startswith("\b"):  # Click's mark of a list
                yield f"```text{text[1:]}\n```\n"
            else:
                yield f"{text}\n"
        yield from option_table(command, context)


def commands_below(
    context: click.Context,
) -> Iterator[tuple[click.Command, click.Context]]:
    """Yield the commands below a group, but not groups themselves."""
    group = context.command
    assert isinstance(group, click.Group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        below = click.Context(
            command, info_name=name, parent=context, show_default=True
        )
        if isinstance(command, click.Group):
            yield from commands_below(below)
        else:
            yield command, below


def option_table(command: click.Command, context: click.Context) -> Iterator[str]:
    """Write a row for each option of a command."""
    options = [param for param in command.params if isinstance(param, click.Option)]
    if not options:
        return
    yield "\n| option | meaning |\n|---|---|"
    for option in options:
        record = option.get_help_record(context)
        if record:
            names, meaning = record
            yield f"| {code(names)} | {in_cell(meaning)} |"


# Fields of the grid


def grid_fields() -> Iterator[str]:
    """Write a table of the fields of an experiment, and one for each nested field."""
    definitions = json_schema()["$defs"]
    properties = definitions["experiment"]["properties"]
    yield from field_table(properties, Settings)
    for name, model in {"table": TableSpec, **NESTED}.items():
        yield f"\n### {name}\n\n{properties[name]['description']}.\n"
        nested = definitions.get(name) or definitions[f"values_{name}"]
        yield from field_table(nested["properties"], model)


def field_table(fields: dict[str, Any], model: type[BaseModel]) -> Iterator[str]:
    """Write a row for each field: meaning, possible values and default."""
    yield "| field | meaning | values | default |\n|---|---|---|---|"
    for name, field in fields.items():
        meaning = in_cell(field.get("description", ""))
        default = field.get("default", "")
        info = model.model_fields.get(name)
        if info is not None and info.is_required():
            shown = "**required**"
        elif info is not None and not isinstance(info.default, BaseModel):
            shown = in_words(info.default)
        else:
            shown = in_words(default)
        yield f"| `{name}` | {meaning} | {values_of(field)} | {shown} |"


def values_of(field: dict[str, Any]) -> str:
    """Return the values that a field may have, in words."""
    words: list[str] = []
    for form in field.get("anyOf", [field]):
        types = form.get("type", [])
        if "$ref" in form:
            definition = form["$ref"].rpartition("/")[2].removeprefix("values_")
            words.append(f"[fields](#{definition})")
        elif "enum" in form or "const" in form:
            choices = form.get("enum", [form.get("const")])
            words.extend(in_words(choice) for choice in choices if choice not in _TRUTH)
            words.extend(["`true`", "`false`"] if True in choices else [])
        elif "string" in types and "pattern" not in form:
            words.append("text")
        elif "integer" in types and form.get("maximum") != 0:
            words.append("whole number" + limits_of(form))
        elif "number" in types:
            words.append("number" + limits_of(form))
        elif "string" in types:
            words.append("text")
    return ", ".join(dict.fromkeys(words))


_TRUTH = (True, False, "yes", "no", "on", "off")  # words that YAML has for both


def limits_of(form: dict[str, Any]) -> str:
    """Return the limits of a number, but not that of all whole numbers."""
    limits = ""
    for name, sign in _SIGNS.items():
        if name in form and abs(form[name]) < 2**53:
            limits += f" {sign} {form[name]:g}"
    return limits


_SIGNS = {
    "minimum": "≥",
    "exclusiveMinimum": ">",
    "maximum": "≤",
    "exclusiveMaximum": "<",
}


def in_words(value: Any) -> str:
    """Return a value as a grid has it."""
    if value in ("", None):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, list | tuple):
        return f"`{', '.join(map(str, value))}`" if value else ""
    return f"`{value}`"


# Functions of Python


def python_functions() -> Iterator[str]:
    """Write each function of the Python interface, and each class with its methods."""
    for function in (api.run, api.open_results, machine.load, api.data):
        yield from function_lines(f"cbm.{function.__name__}", function, "###")
    for owner in (api.ResultFrames, machine.TrainedMachine, sklearn.CenteredRBM):
        yield f"\n### {owner.__name__}\n"
        yield from docstring_lines(owner)
        for name, member in vars(owner).items():
            if inspect.isfunction(member) and not name.startswith("_"):
                yield from function_lines(f"{owner.__name__}.{name}", member, "####")


def function_lines(name: str, function: Any, level: str) -> Iterator[str]:
    """Write the head of a function and its docstring."""
    parameters = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name != "self":
            text = str(parameter.replace(annotation=inspect.Parameter.empty))
            parameters.append(text)
    yield f"\n{level} {name}\n\n`{name}({', '.join(parameters)})`\n"
    yield from docstring_lines(function)


def docstring_lines(documented: Any) -> Iterator[str]:
    """Write a numpydoc docstring as Markdown."""
    docstring = griffe.Docstring(inspect.getdoc(documented) or "")
    for section in griffe.parse_numpy(docstring, warnings=False):
        kind = section.kind.value
        if kind == "text":
            yield roles_as_code(section.value) + "\n"
        elif kind == "examples":
            for form, text in section.value:
                yield text if form.value == "text" else f"```pycon\n{text}\n```"
            yield ""
        else:
            yield f"**{(section.title or kind).capitalize()}**\n"
            for item in section.value:
                yield from item_lines(item)
            yield ""


def item_lines(item: Any) -> Iterator[str]:
    """Write a parameter, a returned value or an error as an item of a list."""
    name = getattr(item, "name", "")
    kind = str(item.annotation or "")
    head = f"`{name}`" if name else ""
    if kind:
        head = f"{head} ({kind})" if head else kind
    description = " ".join(item.description.split())
    yield f"- {head}: {roles_as_code(description)}"


def roles_as_code(text: str) -> str:
    """Return text in which names between single or double quotes are code."""
    return re.sub(r"``([^`]+)``", r"`\1`", text)


def in_cell(text: str) -> str:
    """Return text for a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def code(text: str) -> str:
    """Return text as code in a cell of a Markdown table."""
    return f"`{text}`".replace("|", "\\|")


PARTS = {
    "reference/commands.md": commands,
    "grid.md": grid_fields,
    "python.md": python_functions,
}

if __name__ == "__main__":
    write_pages()
