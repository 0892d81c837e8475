"""How many threads a trial or an evaluation may use."""

from contextlib import AbstractContextManager, nullcontext
from functools import cache

from cbm_cli.kernels.computer import libraries
from cbm_cli.kernels.sharing import using_cores

__all__ = ["one_thread", "one_thread_for_good", "using_cores"]


def one_thread() -> AbstractContextManager:
    """Return a context in which BLAS uses one thread: sums of the same order
    everywhere, and same bytes.
    """
    return (
        nullcontext()
        if one_thread_for_good.cache_info().currsize
        else libraries().limit(limits=1)
    )


@cache
def one_thread_for_good() -> AbstractContextManager:
    """Let BLAS use one thread in this process from now on, which a trial after the
    other need not ask for.
    """
    return libraries().limit(limits=1).__enter__()
