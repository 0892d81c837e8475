"""``cbm schema``: the JSON schema of grid files."""

import click


@click.command()
def schema() -> None:
    """Print the JSON schema of grid files, for editors."""
    import json

    from cbm_cli.grid.schema import json_schema

    click.echo(json.dumps(json_schema(), indent=1))
