"""The command line: one file a command, which parses, calls and echoes. Nothing is computed here."""

import click

import cbm_cli
from cbm_cli.cli.compare import compare
from cbm_cli.cli.data import data
from cbm_cli.cli.evaluate import evaluate
from cbm_cli.cli.features import features
from cbm_cli.cli.plot import plot
from cbm_cli.cli.run import run
from cbm_cli.cli.sample import sample
from cbm_cli.cli.schema import schema
from cbm_cli.cli.table import table
from cbm_cli.errors import CbmError


class _Group(click.Group):
    """Turns the errors that a user is meant to read into one line and an exit code."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except CbmError as error:
            complaint = click.ClickException(str(error))
            complaint.exit_code = error.exit_code
            raise complaint from None
        except KeyboardInterrupt:
            ctx.exit(130)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(cbm_cli.__version__, prog_name="cbm")
def main() -> None:
    """Train and compare centered Boltzmann machines from YAML experiment grids."""


for command in (run, table, compare, plot, evaluate, features, sample, data, schema):
    main.add_command(command)
