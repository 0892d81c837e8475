"""``cbm schema``: the JSON schema of grid files."""

import click

from cbm_cli.text import valid_json


@click.command()
def schema() -> None:
    """Print the JSON schema of grid files, for editors."""

    from cbm_cli.grid.schema import json_schema

    click.echo(valid_json(json_schema(), indent=1))
