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
from importlib import import_module
from typing import Any

import click

from cbm_cli.cli.output import Complaint, note, say
from cbm_cli.errors import CbmError
from cbm_cli.version import __version__

# In the order of --help. Each is a function in the module of its name, which is
# imported when the command is used.
_COMMANDS = (
    "init",
    "run",
    "ls",
    "best",
    "table",
    "plot",
    "report",
    "evaluate",
    "sample",
    "features",
    "verify",
    "export",
    "data",
    "schema",
)
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
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        return getattr(import_module(f"cbm_cli.cli.{name}"), name)

    def main(self, *args: Any, **options: Any) -> Any:
        _make_usable("stdout")
        _make_usable("stderr")
        try:
            return super().main(*args, **options)
        except OSError as error:  # for a closed pipe Click ends quietly
            if not _is_of_output(error):
                raise
            # Python writes the rest when it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            note(f"Error: the output cannot be written: {error.strerror}")
            sys.exit(1)

    def invoke(self, ctx: click.Context) -> object:
        with suppress(ValueError):  # not in the main thread
            # as after an error, so that files are completed
            signal.signal(signal.SIGTERM, _end)
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except KeyboardInterrupt:
            ctx.exit(130)
        except Exception as error:
            if os.environ.get("CBM_DEBUG", "0") not in ("", "0"):
                traceback.print_exc()
            if _is_of_output(error):
                raise
            message, code = _message_of(error)
            raise Complaint(message, code) from None


def _make_usable(name: str) -> None:
    """Let a standard stream take any text, though it is closed or of another type."""
    if getattr(sys, name) is None:  # closed
        setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    with suppress(AttributeError):  # a stream of another type
        getattr(sys, name).reconfigure(errors="replace")


def _end(number: int, _: object) -> None:
    sys.exit(128 + number)


def _is_of_output(error: BaseException) -> bool:
    """Whether an error is of stdout, which is closed or on a full disk: others name
    their file.
    """
    return (
        isinstance(error, OSError) and not error.filename and error.errno in _OF_OUTPUT
    )


def _message_of(error: Exception) -> tuple[str, int]:
    """Return what to print of an error, and the exit code of the program."""
    if isinstance(error, CbmError):
        return str(error), error.exit_code
    if isinstance(error, MemoryError):
        remedy = (
            "use smaller data, machines, batches or fewer chains, or fewer worker "
            "processes"
        )
        message = f"there is not enough memory ({error}); {remedy}"
        return message, CbmError.exit_code
    if isinstance(error, OSError):
        place = error.filename or "system"
        problem = error.strerror or str(error) or type(error).__name__
        remedy = "check the file and its permissions"
        if error.errno in (errno.EMFILE, errno.ENFILE):
            place = error.filename or "cbm"
            remedy = "allow more of them with ulimit -n"
        return f"{place}: {problem}; {remedy}", CbmError.exit_code
    remedy = "finished trials are kept; CBM_DEBUG=1 in front of cbm shows where"
    return f"unforeseen {type(error).__name__}: {error}; {remedy}", 1


CITATION = """\
@article{melchior2016center,
  author  = {Melchior, Jan and Fischer, Asja and Wiskott, Laurenz},
  title   = {How to Center Deep Boltzmann Machines},
  journal = {Journal of Machine Learning Research},
  volume  = {17},
  number  = {99},
  pages   = {1--61},
  year    = {2016},
  url     = {https://jmlr.org/papers/v17/14-237.html}
}"""


def _cite(context: click.Context, _: click.Parameter, is_asked: bool) -> None:
    """Print what to cite, and end."""
    if is_asked:
        say(f"% Trained and evaluated with cbm {__version__} (cbm-cli).")
        say(CITATION)
        context.exit()


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.version_option(__version__, message="cbm %(version)s (cbm-cli)")
@click.option(
    "--cite",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_cite,
    help="Print the reference of the paper, and the version of cbm.",
)
def main() -> None:
    """Train and compare centered Boltzmann machines from YAML experiment grids."""
    # Python ends at once: it looks for no garbage in all that was imported.
    atexit.register(gc.freeze)
    gc.set_threshold(100_000)  # planning makes many objects, and little garbage
    # Pictures are files, and need no backend, known or not.
    os.environ.pop("MPLBACKEND", None)
    printed: set[str] = set()  # each warning once

    def show_warning(message: Warning | str, *_: object, **__: object) -> None:
        text = str(message)
        if text not in printed:
            printed.add(text)
            note(f"warning: {text}")

    warnings.showwarning = show_warning


# Click looks here for names that are close to a misspelt one.
main.commands = dict.fromkeys(_COMMANDS, main)
