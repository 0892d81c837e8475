"""The likelihood of a machine on the parts of a data set: exact, or estimated by annealing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from cbm_cli.datasets import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.grid.measuring import Evaluate
from cbm_cli.grid.settings import Settings
from cbm_cli.kernels.partition import log_partition, mean_log_likelihood
from cbm_cli.kernels.state import Array, Rows
from cbm_cli.trial.annealing import ais, base_rate

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
