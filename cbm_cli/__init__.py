"""Train and compare centered binary Boltzmann machines from YAML experiment grids.

The command line is ``cbm``. In Python, ``import cbm_cli as cbm`` gives ``cbm.load``,
``cbm.open_results``, ``cbm.run`` and ``cbm.data``; see docs/python.md.
"""

import sys

if sys.argv[:1] == ["-m"] and "cbm_cli.cli" in sys.orig_argv:
    # `python -m cbm_cli.cli` looks for modules in the working folder, as `cbm` does not
    folder = sys.path.pop(0)
    if __file__.startswith(folder):  # it is the clone
        sys.path.append(folder)

from importlib import import_module
from typing import TYPE_CHECKING

from cbm_cli.version import __version__

if TYPE_CHECKING:
    from cbm_cli.api import data, open_results, run
    from cbm_cli.machine import load

__all__ = ["__version__", "data", "load", "open_results", "run"]


def __getattr__(name: str) -> object:
    """Import the Python interface when it is first used."""
    if name in __all__:
        return getattr(
            import_module("cbm_cli.machine" if name == "load" else "cbm_cli.api"), name
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
