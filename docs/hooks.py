"""Make the reference pages of the site from commands, schema and docstrings, so that
they are never outdated.

A page in `docs/reference` ends with a marker. When MkDocs builds the site, it calls
`on_page_markdown`, which adds the text behind the marker. That text is not in git.
"""

import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import click

from cbm_cli import api, machine, sklearn
from cbm_cli.cli import main
from cbm_cli.grid.schema import json_schema


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page with the text that belongs behind its marker."""
    for make in (commands, grid_fields, python_functions):
        marker = f"<!-- {make.__name__.replace('_', ' ')} -->"
        if marker in markdown:
            return "\n".join([markdown.partition(marker)[0] + marker, "", *make(), ""])
    return markdown


def commands() -> Iterator[str]:
    """Write each command: its help, and a table of its options."""
    for command, context in walk(
        click.Context(main, info_name="cbm", terminal_width=80)
    ):
        yield f"\n## {context.command_path}\n"
        yield f"```text\n{command.get_usage(context)}\n```\n"
        for part in (command.help or "").split("\n\n"):
            text = textwrap.dedent(part.strip("\n")).strip()
            yield (
                f"```text{text[1:]}\n```\n" if text.startswith("\b") else f"{text}\n"
            )  # Click's mark of a list
        options = [one for one in command.params if isinstance(one, click.Option)]
        records = [
            record for one in options if (record := one.get_help_record(context))
        ]
        if records:
            yield "\n| option | meaning |\n|---|---|"
            yield from (f"| `{name}` | {cell(text)} |" for name, text in records)


def walk(context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Yield the commands below a group, but not groups themselves."""
    for name in context.command.list_commands(context):
        command = context.command.get_command(context, name)
        inside = click.Context(command, info_name=name, parent=context)
        if isinstance(command, click.Group):
            yield from walk(inside)
        else:
            yield command, inside


def grid_fields() -> Iterator[str]:
    """Write a table of the fields of an experiment, and one for each field that has
    parts.
    """
    definitions = json_schema()["$defs"]
    properties = definitions["experiment"]["properties"]
    yield from field_table(properties)
    for name, field in properties.items():
        _, _, whole = field.get("anyOf", [field])[0].get("$ref", "").rpartition("/")
        if whole:
            yield f"\n## {name}\n\n{field['description']}.\n"
            yield from field_table(definitions[whole]["properties"])


def field_table(fields: dict[str, Any]) -> Iterator[str]:
    """Write a row for each field: name, meaning, possible words, and default."""
    yield "| field | meaning | values | default |\n|---|---|---|---|"
    for name, field in fields.items():
        one = field.get("anyOf", [field])[0]
        words = one.get("enum", [])
        words = ["true", "false"] if True in words else words
        shown = ", ".join(f"`{word}`" for word in words)
        default = field.get("default", "")
        default = (
            f"`{str(default).lower() if isinstance(default, bool) else default}`"
            if default != ""
            else ""
        )
        yield (
            f"| `{name}` | {cell(field.get('description', ''))} | {shown} | {default} |"
        )


def python_functions() -> Iterator[str]:
    """Write each function of the Python interface, and each class with its public
    methods.
    """
    for one in (api.run, api.open_results, machine.load, api.data):
        yield from described(f"cbm.{one.__name__}", one, "##")
    for its in (api.ResultFrames, machine.TrainedMachine, sklearn.CenteredRBM):
        yield f"\n## {its.__name__}\n\n```text\n{inspect.getdoc(its)}\n```\n"
        for name, one in vars(its).items():
            if inspect.isfunction(one) and not name.startswith("_"):
                yield from described(name, one, "###")


def described(name: str, function: Any, level: str) -> Iterator[str]:
    """Write the head of a function and its docstring."""
    head = re.sub(r"(: |-> )'([^']*)'", r"\1\2", f"{name}{inspect.signature(function)}")
    yield f"\n{level} {name}\n\n```python\n{head}\n```\n"
    yield f"```text\n{inspect.getdoc(function)}\n```\n"


def cell(text: str) -> str:
    """Return text for a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
