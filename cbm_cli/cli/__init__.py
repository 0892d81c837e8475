"""The command line: each command reads its arguments, calls other packages and prints what they return."""

import atexit
import gc
import os
import signal
import sys
import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, NoReturn

import click

from cbm_cli.cli.common import is_output, prepare_streams
from cbm_cli.errors import CbmError
from cbm_cli.text import harmless
from cbm_cli.version import __version__

# Modules of the commands, imported on use; each command has the name of its function.
_COMMANDS = {
    "init": "init",
    "run": "run",
    "ls": "browse",
    "best": "browse",
    "table": "table",
    "plot": "plot",
    "report": "report",
    "evaluate": "evaluate",
    "sample": "sample",
    "features": "features",
    "verify": "verify",
    "export": "export",
    "data": "data",
    "schema": "schema",
}


class _Group(click.Group):
    """Commands that are imported on use; errors for the user become a message and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_COMMANDS]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        command = getattr(import_module(f"cbm_cli.cli.{_COMMANDS[name]}"), name)
        _refuse_repeats(command)
        return command

    def main(self, *args: Any, **options: Any) -> Any:
        prepare_streams()
        try:
            return super().main(*args, **options)
        except OSError as error:  # for a closed pipe Click ends quietly
            if not is_output(error):
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python writes what is left when it ends
            click.echo(f"Error: the output cannot be written: {error.strerror}", err=True)
            sys.exit(1)

    def invoke(self, ctx: click.Context) -> object:
        try:
            before = signal.signal(signal.SIGTERM, _end)
        except ValueError:  # not in the main thread
            before = None
        try:
            return super().invoke(ctx)
        except (CbmError, MemoryError, OSError) as error:
            if is_output(error):
                raise
            complaint: Any = click.ClickException(harmless(_in_words(error)))
            complaint.exit_code = getattr(error, "exit_code", CbmError.exit_code)
            raise complaint from None
        except KeyboardInterrupt:
            ctx.exit(130)
        finally:
            if before is not None:
                signal.signal(signal.SIGTERM, before)


def _in_words(error: Exception) -> str:
    if isinstance(error, MemoryError):
        remedy = "use smaller data, machines, batches or fewer chains, or fewer worker processes"
        return f"there is not enough memory ({error}); {remedy}"
    if isinstance(error, OSError):
        return f"{error.filename or 'system'}: {error.strerror}; check the file and its permissions"
    return str(error)


def _refuse_repeats(command: click.Command) -> None:
    """Let a command refuse an option that is given twice, of which Click would take the last one."""
    for one in command.commands.values() if isinstance(command, click.Group) else [command]:
        if not isinstance(one.parse_args, partial):
            one.parse_args = partial(_parse_once, one, one.parse_args)  # type: ignore[method-assign]


def _parse_once(
    command: click.Command, parse: Callable[..., list[str]], ctx: click.Context, args: list[str]
) -> list[str]:
    given = [one for one in command.make_parser(ctx).parse_args([*args])[2] if isinstance(one, click.Option)]
    for option in given:
        if not option.multiple and not option.is_flag and given.count(option) > 1:
            raise click.UsageError(f"{max(option.opts, key=len)} is given twice; give it once", ctx)
        for other in given:
            if other.name == option.name and other is not option:
                raise click.UsageError(f"{option.opts[-1]} and {other.opts[-1]}: give one of them", ctx)
    return parse(ctx, args)


def _end(number: int, frame: object) -> NoReturn:
    """End on SIGTERM as after an error, so that files are completed."""
    raise SystemExit(128 + number)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="cbm %(version)s (cbm-cli)")
def main() -> None:
    """Train and compare centered Boltzmann machines from YAML experiment grids."""
    atexit.register(gc.freeze)  # Python ends at once: it looks for no garbage in all that was imported
    gc.set_threshold(100_000)  # planning makes many objects, and little garbage
    warnings.showwarning = lambda message, *_: click.echo(f"warning: {message}", err=True)
