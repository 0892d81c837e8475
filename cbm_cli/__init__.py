"""Train and compare centered binary Boltzmann machines from YAML experiment grids.

The command line is ``cbm``. In Python, ``import cbm_cli as cbm`` gives ``cbm.load``, ``cbm.from_sklearn``,
``cbm.open_results``, ``cbm.run`` and ``cbm.data``; see docs/python.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from cbm_cli.version import __version__

if TYPE_CHECKING:
    from cbm_cli.notebook import TrainedMachine, data, from_sklearn, load, open_results, run

__all__ = ["TrainedMachine", "__version__", "data", "from_sklearn", "load", "open_results", "run"]


def __getattr__(name: str) -> object:
    """Import the Python interface when it is first used."""
    if name in __all__:
        return getattr(import_module("cbm_cli.notebook"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
