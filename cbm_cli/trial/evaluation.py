"""The likelihood of a machine on the parts of a data set."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from cbm_cli.kernels.partition import log_partition, mean_log_likelihood


def exact_log_likelihoods(
    W: NDArray, b: NDArray, c: NDArray, parts: Mapping[str, NDArray[np.uint8]], unit: float
) -> tuple[float, list[float]]:
    """log Z over all states of the smaller side, and the mean log-likelihood of each part in nats.

    The machine is plain: W (N, M), b (N,), c (M,), float32; ``unit`` is the value of one level of the
    data. Grey values enter the energy as they are.
    """
    log_z = log_partition(W, b, c)
    return log_z, [mean_log_likelihood(W, b, c, rows, np.float32(unit), log_z) for rows in parts.values()]
