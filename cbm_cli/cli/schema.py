"""``cbm schema``: the fields of grid files, for editors."""

from __future__ import annotations

import click

from cbm_cli.cli.options import command
from cbm_cli.text import valid_json


@command
def schema() -> None:
    """Print the JSON schema of grid files, for editors."""
    from cbm_cli.grid.schema import json_schema

    click.echo(valid_json(json_schema(), indent=1))
