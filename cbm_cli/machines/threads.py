"""How many threads the matrix products of one evaluation may use."""

from threadpoolctl import threadpool_limits

from cbm_cli.kernels import intrinsics  # noqa: F401  loads the BLAS of the kernels, so that it is limited too


def one_thread() -> threadpool_limits:
    """A context in which BLAS uses one thread: sums of the same order everywhere, and same bytes."""
    return threadpool_limits(1)
