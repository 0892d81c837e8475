"""How many threads the matrix products of one evaluation may use."""

from contextlib import AbstractContextManager
from functools import cache

from threadpoolctl import ThreadpoolController

from cbm_cli.kernels import intrinsics  # noqa: F401  loads the BLAS of the kernels, so that it is limited too


def one_thread() -> AbstractContextManager:
    """Return a context in which BLAS uses one thread: sums of the same order everywhere, and same bytes."""
    return _controller().limit(limits=1)


@cache
def _controller() -> ThreadpoolController:
    """Look for the libraries once per process; a look takes 50 ms."""
    return ThreadpoolController()
