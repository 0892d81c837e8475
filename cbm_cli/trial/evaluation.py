"""The likelihood of a machine on the parts of a data set."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbm_cli.errors import CbmError
from cbm_cli.kernels.partition import log_partition, mean_log_likelihood
from cbm_cli.results import PlainMachine

EXACT_BITS = 30  # states of the smaller side beyond 2^30 are refused
_NANOSECONDS = 0.8  # one factor of the exact partition function, measured (docs/benchmarks.md)


def exact_log_likelihoods(
    W: NDArray, b: NDArray, c: NDArray, parts: Mapping[str, NDArray[np.uint8]], unit: float
) -> tuple[float, list[float]]:
    """log Z over all states of the smaller side, and the mean log-likelihood of each part in nats.

    The machine is plain: W (N, M), b (N,), c (M,), float32; ``unit`` is the value of one level of the
    data. Grey values enter the energy as they are.
    """
    log_z = log_partition(W, b, c)
    return log_z, [mean_log_likelihood(W, b, c, rows, np.float32(unit), log_z) for rows in parts.values()]


def refuse_large(n_visible: int, n_hidden: int, place: str, remedy: str) -> None:
    """Raise CbmError where an exact partition function would sum more than 2^30 states."""
    smaller, larger = sorted((n_visible, n_hidden))
    if smaller > EXACT_BITS:
        seconds = 2.0**smaller * larger * _NANOSECONDS * 1e-9
        raise CbmError(
            f"{place}: an exact likelihood of {n_visible}x{n_hidden} units sums 2^{smaller} states, "
            f"about {_duration(seconds)} each time; {remedy}"
        )


def _duration(seconds: float) -> str:
    for unit, size in (("years", 3.156e7), ("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= size:
            return f"{seconds / size:,.0f} {unit}" if seconds < 1e6 * size else f"{seconds / size:.0e} {unit}"
    return f"{seconds:.0f} seconds"


def evaluate_exactly(
    machine: PlainMachine, rows: NDArray[np.uint8], unit: float, name: str
) -> dict[str, Any]:
    """log Z and log-likelihood of a machine on rows (n, N), as ``cbm evaluate --exact --json`` prints them.

    Raises
    ------
    CbmError
        When the machine is too large, or the rows are of another width; ``name`` says which machine.
    """
    n_visible, n_hidden = machine.W.shape
    if rows.shape[1] != n_visible:
        raise CbmError(f"{name}: has {n_visible} visible units; the data has {rows.shape[1]} columns")
    refuse_large(
        n_visible, n_hidden, name, "annealed importance sampling (AIS) estimates machines of this size"
    )
    W, b, c = (np.ascontiguousarray(array, dtype=np.float32) for array in machine)
    log_z, (mean,) = exact_log_likelihoods(W, b, c, {"rows": rows}, unit)
    likelihood = {"mean": mean, "total": mean * len(rows), "n": len(rows)}
    return {"method": "exact", "log_z": log_z, "log_likelihood": likelihood}
