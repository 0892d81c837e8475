"""Build the reference pages of the site from the commands and the schema, so that they cannot be outdated.

A page holds a marker, and behind it its generated part. `python docs/hooks.py` writes the pages that are read
in a clone, too (a test holds them); MkDocs calls `on_page_markdown` for the others.
"""

import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from cbm_cli import api, machine, sklearn
from cbm_cli.cli import main
from cbm_cli.grid.schema import json_schema

PAGES = ("commands", "grid", "python-functions")
WRITTEN = [Path(__file__).parent / f"reference/{name}.md" for name in PAGES]


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page with what is made behind its marker."""
    for make in (commands, grid_fields, python_functions):
        marker = f"<!-- {make.__name__.replace('_', ' ')} -->"
        if marker in markdown:
            return "\n".join([markdown.partition(marker)[0] + marker, "", *make(), ""])
    return markdown


def commands() -> Iterator[str]:
    """Write each command: what its help says, and a table of its options."""
    for command, context in walk(click.Context(main, info_name="cbm", terminal_width=80)):
        yield f"\n## {context.command_path}\n"
        yield f"```text\n{command.get_usage(context)}\n```\n"
        for part in (command.help or "").split("\n\n"):
            text = textwrap.dedent(part.strip("\n")).strip()
            yield (
                f"```text{text[1:]}\n```\n" if text.startswith("\b") else f"{text}\n"
            )  # Click's mark of a list
        options = [one for one in command.params if isinstance(one, click.Option)]
        records = [record for one in options if (record := one.get_help_record(context))]
        if records:
            yield "\n| option | meaning |\n|---|---|"
            yield from (f"| `{name}` | {cell(text)} |" for name, text in records)


def walk(context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Yield the commands below a group that are no groups themselves."""
    for name in context.command.list_commands(context):
        command = context.command.get_command(context, name)
        inside = click.Context(command, info_name=name, parent=context)
        if isinstance(command, click.Group):
            yield from walk(inside)
        else:
            yield command, inside


def grid_fields() -> Iterator[str]:
    """Write a table of the fields of an experiment, and one for the parts of each field that has some."""
    definitions = json_schema()["$defs"]
    properties = definitions["experiment"]["properties"]
    yield from field_table(properties, definitions, "")
    for name, field in properties.items():
        (whole, *_) = definitions.get(f"set.{name}", {}).get("anyOf", [field])
        if parts := whole.get("properties"):
            yield f"\n## {name}\n\n{field['description']}.\n"
            yield from field_table(parts, definitions, f"{name}.")


def field_table(fields: dict[str, Any], definitions: dict[str, Any], of: str) -> Iterator[str]:
    """Write a row for each field: its name, what it means, the words it may be, and its default."""
    yield "| field | meaning | values | default |\n|---|---|---|---|"
    for name, field in fields.items():
        words = definitions.get(f"{of}{name}", {}).get("enum", [])
        words = ["true", "false"] if True in words else words
        shown = ", ".join(f"`{word}`" for word in words)
        default = field.get("default", "")
        default = (
            f"`{str(default).lower() if isinstance(default, bool) else default}`" if default != "" else ""
        )
        yield f"| `{name}` | {cell(field.get('description', ''))} | {shown} | {default} |"


def python_functions() -> Iterator[str]:
    """Write each function of the Python interface, and each class with its public methods."""
    for one in (api.run, api.open_results, machine.load, api.data):
        yield from described(f"cbm.{one.__name__}", one, "##")
    for its in (api.ResultFrames, machine.TrainedMachine, sklearn.CenteredRBM):
        yield f"\n## {its.__name__}\n\n```text\n{inspect.getdoc(its)}\n```\n"
        for name, one in vars(its).items():
            if inspect.isfunction(one) and not name.startswith("_"):
                yield from described(name, one, "###")


def described(name: str, function: Any, level: str) -> Iterator[str]:
    """Write the head of a function and what it says of itself."""
    head = re.sub(r"(: |-> )'([^']*)'", r"\1\2", f"{name}{inspect.signature(function)}")
    yield f"\n{level} {name}\n\n```python\n{head}\n```\n"
    yield f"```text\n{inspect.getdoc(function)}\n```\n"


def cell(text: str) -> str:
    """Return text for a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    for page in WRITTEN:
        page.write_text(on_page_markdown(page.read_text(encoding="utf-8")), encoding="utf-8")
