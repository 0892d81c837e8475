"""How many threads the matrix products of one evaluation may use."""

import scipy.linalg.cython_blas  # noqa: F401  the BLAS of np.dot in kernels: loaded before it is limited
from threadpoolctl import threadpool_limits


def one_thread() -> threadpool_limits:
    """A context in which BLAS uses one thread: sums of the same order everywhere, and same bytes."""
    return threadpool_limits(1)
