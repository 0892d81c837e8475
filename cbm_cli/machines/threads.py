"""How many threads the matrix products of one evaluation may use."""

from contextlib import AbstractContextManager

from cbm_cli.kernels.computer import libraries


def one_thread() -> AbstractContextManager:
    """Return a context in which BLAS uses one thread: sums of the same order everywhere, and same bytes."""
    return libraries().limit(limits=1)
