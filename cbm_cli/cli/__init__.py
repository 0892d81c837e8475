"""The command line: each command reads its arguments, calls other packages and prints
what they return.
"""

import atexit
import errno
import gc
import os
import signal
import sys
import traceback
import warnings
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any

import click

from cbm_cli.errors import CbmError
from cbm_cli.text import __version__, harmless

# Modules of the commands, imported on use; each command has the name of its function.
_COMMANDS: Any = {
    "init": "show",
    "run": "run",
    "ls": "show",
    "best": "show",
    "table": "table",
    "plot": "table",
    "report": "table",
    "evaluate": "evaluate",
    "sample": "machine",
    "features": "machine",
    "verify": "run",
    "export": "machine",
    "data": "data",
    "schema": "show",
}
_OF_OUTPUT = (
    errno.EPIPE,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EIO,
    errno.EFBIG,
    errno.EBADF,
)


class _Group(click.Group):
    """Commands that are imported on use; errors become a message and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.commands]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        module: Any = self.commands.get(name)
        return module and getattr(import_module(f"cbm_cli.cli.{module}"), name)

    def main(self, *args: Any, **options: Any) -> Any:
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is None:  # closed
                setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
            with suppress(AttributeError):  # a stream of another type
                getattr(sys, name).reconfigure(errors="replace")
        try:
            return super().main(*args, **options)
        except OSError as error:  # for a closed pipe Click ends quietly
            if not _is_output(error):
                raise
            os.dup2(
                os.open(os.devnull, os.O_WRONLY), 1
            )  # Python writes the rest when it ends
            click.echo(
                f"Error: the output cannot be written: {error.strerror}", err=True
            )
            sys.exit(1)

    def invoke(self, ctx: click.Context) -> object:
        with suppress(ValueError):  # not in the main thread
            # as after an error, so that files are completed
            signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except KeyboardInterrupt:
            ctx.exit(130)
        except Exception as error:
            if os.environ.get("CBM_DEBUG", "0") not in ("", "0"):
                traceback.print_exc()
            if _is_output(error):
                raise
            words, code = str(error), getattr(error, "exit_code", CbmError.exit_code)
            if isinstance(error, MemoryError):
                remedy = (
                    "use smaller data, machines, batches or fewer chains, or "
                    "fewer worker processes"
                )
                words = f"there is not enough memory ({error}); {remedy}"
            elif isinstance(error, OSError):
                words = (
                    f"{error.filename or 'system'}: {error.strerror}; check the "
                    "file and its permissions"
                )
            elif not isinstance(error, CbmError):
                words, code = f"unforeseen {type(error).__name__}: {error}", 1
                words += (
                    "; finished trials are kept; CBM_DEBUG=1 in front of cbm "
                    "shows where"
                )
            complaint: Any = click.ClickException(harmless(words))
            complaint.exit_code = code
            raise complaint from None


def _is_output(error: BaseException) -> bool:
    """Whether an error is of stdout, which is closed or on a full disk: others name
    their file.
    """
    return (
        isinstance(error, OSError) and not error.filename and error.errno in _OF_OUTPUT
    )


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.version_option(__version__, message="cbm %(version)s (cbm-cli)")
def main() -> None:
    """Train and compare centered Boltzmann machines from YAML experiment grids."""
    atexit.register(
        gc.freeze
    )  # Python ends at once: it looks for no garbage in all that was imported
    gc.set_threshold(100_000)  # planning makes many objects, and little garbage
    os.environ.pop(
        "MPLBACKEND", None
    )  # pictures are files, and need no backend, known or not
    warn = cache(lambda text: click.echo(f"warning: {text}", err=True))  # each once
    warnings.showwarning = lambda message, *_: warn(str(message))


main.commands = _COMMANDS
