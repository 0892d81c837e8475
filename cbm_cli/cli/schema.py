"""``cbm schema``: the fields of grid files, for editors."""

from __future__ import annotations

from cbm_cli.cli.options import command
from cbm_cli.cli.output import say_json


@command
def schema() -> None:
    """Print the JSON schema of grid files, for editors."""
    from cbm_cli.grid.schema import json_schema

    say_json(json_schema(), indent=1)
