"""How many threads a trial or an evaluation may use."""

from contextlib import AbstractContextManager

from cbm_cli.kernels.computer import libraries
from cbm_cli.kernels.sharing import using_cores

__all__ = ["one_thread", "using_cores"]


def one_thread() -> AbstractContextManager:
    """Return a context in which BLAS uses one thread: sums of the same order everywhere, and same bytes."""
    return libraries().limit(limits=1)
