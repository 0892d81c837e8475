"""The likelihood of a machine on the parts of a data set: exact, or estimated by annealing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401  the BLAS of np.dot in kernels: loaded before threads are limited
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from cbm_cli.datasets import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.grid.measuring import Evaluate
from cbm_cli.grid.settings import Settings
from cbm_cli.kernels.partition import log_partition, mean_log_likelihood
from cbm_cli.kernels.state import Array, Rows
from cbm_cli.trial.annealing import (
    RUNS,
    TEMPERATURES,
    ais,
    base_rate,
    exact_samples,
    raise_bounds,
    reverse_ais,
)

SAMPLED_BITS = 16  # machines up to this size are sampled exactly, for reverse AIS
EXACT_BITS = 30  # states of the smaller side beyond 2^30 are refused
_NANOSECONDS = 0.8  # one factor of the exact partition function, measured (docs/benchmarks.md)

PlainMachine = tuple[Array, Array, Array]  # W (N, M), b (N,), c (M,), float32


def refuse_large(n_visible: int, n_hidden: int, place: str, remedy: str, rows: int = 1) -> None:
    """Raise CbmError where exact partition functions, one for each row, would sum more than 2^30 states."""
    smaller, larger = sorted((n_visible, n_hidden))
    if rows << smaller > 1 << EXACT_BITS:
        seconds = rows * 2.0 ** min(smaller, 900) * larger * _NANOSECONDS * 1e-9
        each = f" for each of {rows:,} rows" if rows > 1 else ""
        raise CbmError(
            f"{place}: an exact likelihood of {n_visible}x{n_hidden} units sums 2^{smaller} states{each}, "
            f"about {_duration(seconds)} each time; {remedy}"
        )


def _duration(seconds: float) -> str:
    for unit, size in (("years", 3.156e7), ("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= size:
            return f"{seconds / size:,.0f} {unit}" if seconds < 1e6 * size else f"{seconds / size:.0e} {unit}"
    return f"{seconds:.0f} seconds"


def base_of(data: Dataset, uniform: bool = False) -> Array:
    """Visible biases of the annealing base: the smoothed logit of the training mean, or zeros."""
    if uniform:
        return np.zeros(data.width, np.float32)
    return base_rate(data.train.mean(axis=0, dtype=np.float64) / data.levels, len(data.train))


def base_of_rows(rows: Rows, unit: float, uniform: bool = False) -> Array:
    """The same from rows alone, where there is no training part."""
    return base_of(Dataset("rows", np.ascontiguousarray(rows), levels=round(1 / unit)), uniform)


def mean_log_likelihoods(
    machine: PlainMachine, parts: Mapping[str, Rows], unit: float, log_z: float
) -> list[float]:
    """Mean log-likelihood of each part in nats, given log Z. Grey values enter the energy as they are."""
    return [mean_log_likelihood(*machine, rows, np.float32(unit), log_z) for rows in parts.values()]


def fixed_rows(rows: Rows, count: int | None) -> Rows:
    """A subsample of ``count`` rows that is the same in every trial; all rows where there are no more."""
    if count is None or count >= len(rows):
        return rows
    order = np.random.Generator(np.random.Philox(key=[0, 5])).permutation(len(rows))
    chosen = rows[np.sort(order[:count])]
    chosen.setflags(write=False)
    return chosen


def evaluated_parts(how: Evaluate, data: Dataset) -> dict[str, Rows]:
    """Rows that are evaluated during training, by part."""
    names = [name for name in data.parts if how.parts is None or name in how.parts.split("+")]
    return {name: fixed_rows(data.parts[name], how.rows) for name in names}


def seed_at(seed: int, update: int) -> int:
    """Seed of the annealing at an update of a trial."""
    return int(np.random.SeedSequence([seed, update]).generate_state(1, np.uint64)[0])


@dataclass(frozen=True)
class Evaluator:
    """What is measured at every evaluation of an RBM in training.

    Attributes
    ----------
    method : str
        exact, ais or none.
    parts : dict
        Rows that are evaluated, by part.
    seed : int
        The trial's; annealing at an update has random numbers of its own.
    """

    method: str
    temperatures: int
    runs: int
    parts: dict[str, Rows]
    unit: float
    base: Array
    seed: int

    @classmethod
    def of(cls, settings: Settings, data: Dataset, seed: int) -> "Evaluator":
        """Prepare the evaluations of a trial."""
        how, method = settings.evaluate, settings.evaluation
        parts, base = evaluated_parts(how, data), base_of(data, how.base == "uniform")
        return cls(method, settings.temperatures, how.runs, parts, 1 / data.levels, base, seed)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the values of an evaluation."""
        likelihoods = tuple(f"{part}_log_likelihood" for part in self.parts)
        if self.method == "ais":
            return (*likelihoods, "log_z", "log_z_standard_error", "effective_sample_size")
        return likelihoods if self.method == "exact" else ()

    def __call__(self, machine: PlainMachine, update: int, should_stop: Callable[[], bool]) -> list[float]:
        """The values of ``columns``; Stopped where annealing was asked to stop."""
        if self.method == "none":
            return []
        if self.method == "exact":
            return mean_log_likelihoods(machine, self.parts, self.unit, log_partition(*machine))
        seed = seed_at(self.seed, update)
        found = ais(machine, self.base, seed, self.temperatures, self.runs, should_stop)
        likelihoods = mean_log_likelihoods(machine, self.parts, self.unit, found.log_z)
        return [*likelihoods, found.log_z, found.standard_error, found.effective_sample_size]


@dataclass(frozen=True)
class Method:
    """How ``cbm evaluate`` measures: exact, ais or raise, and the options of the last two."""

    name: str = "exact"
    temperatures: int = TEMPERATURES
    runs: int = RUNS
    uniform_base: bool = False
    rows: int | None = None
    seed: int = 1


def evaluate_machine(
    machine: tuple[NDArray, NDArray, NDArray], rows: Rows, unit: float, base: Array, method: Method, name: str
) -> dict[str, Any]:
    """The likelihood of rows (n, N) under a plain machine, as ``cbm evaluate --json`` prints it.

    Raises
    ------
    CbmError
        When the rows are of another width, or the machine is too large for an exact sum; ``name`` says
        which machine.
    """
    n_visible, n_hidden = machine[0].shape
    if rows.shape[1] != n_visible:
        raise CbmError(f"{name}: has {n_visible} visible units; the data has {rows.shape[1]} columns")
    if method.name == "exact":
        refuse_large(n_visible, n_hidden, name, "use --ais (annealed importance sampling) to estimate it")
    W, b, c = (np.ascontiguousarray(array, dtype=np.float32) for array in machine)
    chosen = fixed_rows(rows, method.rows)
    with threadpool_limits(1):
        return _METHODS[method.name]((W, b, c), chosen, unit, base, method)


def _exact(machine: PlainMachine, rows: Rows, unit: float, base: Array, method: Method) -> dict[str, Any]:
    log_z = log_partition(*machine)
    return {"method": "exact", "log_z": log_z} | _likelihood(machine, rows, unit, log_z)


def _ais(machine: PlainMachine, rows: Rows, unit: float, base: Array, method: Method) -> dict[str, Any]:
    found = ais(machine, base, method.seed, method.temperatures, method.runs)
    answer = {
        "method": "ais",
        "log_z": found.log_z,
        "log_z_standard_error": found.standard_error,
        "log_z_interval": list(found.interval),
        "effective_sample_size": found.effective_sample_size,
        "doubtful": found.doubtful,
    }
    if min(machine[0].shape) <= SAMPLED_BITS:
        samples = exact_samples(machine, method.runs, method.seed)
        back = reverse_ais(machine, base, samples, method.seed, method.temperatures)
        answer |= {"reverse_log_z": back.log_z, "reverse_log_z_standard_error": back.standard_error}
    return answer | _likelihood(machine, rows, unit, found.log_z)


def _raise(machine: PlainMachine, rows: Rows, unit: float, base: Array, method: Method) -> dict[str, Any]:
    x = (rows * np.float32(unit)).astype(np.float32)
    bounds = raise_bounds(machine, base, x, method.seed, method.temperatures)
    error = float(bounds.std(ddof=1) / np.sqrt(len(bounds))) if len(bounds) > 1 else float("nan")
    likelihood = {"mean": float(bounds.mean()), "total": float(bounds.sum()), "n": len(bounds)}
    return {"method": "raise", "log_likelihood": likelihood | {"standard_error_over_rows": error}}


_METHODS = {"exact": _exact, "ais": _ais, "raise": _raise}


def _likelihood(machine: PlainMachine, rows: Rows, unit: float, log_z: float) -> dict[str, Any]:
    (mean,) = mean_log_likelihoods(machine, {"rows": rows}, unit, log_z)
    return {"log_likelihood": {"mean": mean, "total": mean * len(rows), "n": len(rows)}}
