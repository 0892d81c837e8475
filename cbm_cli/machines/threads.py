"""How many threads the matrix products of one evaluation may use."""

from threadpoolctl import threadpool_limits

from cbm_cli.kernels import intrinsics  # noqa: F401  loads the BLAS of the kernels, so that it is limited too


def one_thread() -> threadpool_limits:
    """Return a context in which BLAS uses one thread, so that sums have the same bytes everywhere."""
    return threadpool_limits(1)
