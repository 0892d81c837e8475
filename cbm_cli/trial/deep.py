"""The likelihood of deep Boltzmann machines: exact, or bounded from below by mean field.

A deep machine comes flattened: an RBM whose visible side is the even layers side by side, the visible one
first, and whose hidden side is the odd layers. Below, *deep* units are the even ones that are not visible.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr, expit

from cbm_cli.kernels.mean_field import conjugate_gap, mean_field
from cbm_cli.kernels.partition import log_partition
from cbm_cli.kernels.state import Array, Rows
from cbm_cli.results import Layered, flatten
from cbm_cli.trial.annealing import RUNS, TEMPERATURES, Estimate, Stopped, ais
from cbm_cli.trial.evaluation import refuse_large

_ROWS = 200  # a block: enough for fast products, few enough not to wait long for the slowest row

Values = NDArray[np.float64]


class DeepMachine(NamedTuple):
    """A flattened deep machine without offsets, E(x, h) = -x'b - c'h - x'W h, and where mean field starts.

    Attributes
    ----------
    W, b, c : (N', M'), (N',), (M',)
        float32, C-contiguous; zero where layers are not neighbours.
    start : (E,)
        First means of the E = N' - n_0 deep units, float32: their offsets.
    """

    W: Array
    b: Array
    c: Array
    start: Array

    @classmethod
    def of(cls, machine: Layered) -> "DeepMachine":
        """A machine of two hidden layers or more, flattened; mean field starts at its offsets."""
        arrays = *flatten(machine), np.concatenate(machine.offsets[2::2])
        return cls(*(np.ascontiguousarray(array, dtype=np.float32) for array in arrays))

    @property
    def n_visible(self) -> int:
        """n_0, the number of visible units."""
        return len(self.b) - len(self.start)

    @property
    def plain(self) -> tuple[Array, Array, Array]:
        """W, b, c: the RBM that it is."""
        return self.W, self.b, self.c


class Posterior(NamedTuple):
    """Factorial approximation of p(deep, odd | visible): means (n, E) and (n, M') of n rows.

    ``unsettled`` is the number of rows that one more round would still change by the tolerance.
    """

    deep: Array
    odd: Array
    unsettled: int


class Bounds(NamedTuple):
    """Of log p(v) + log Z of n rows.

    Attributes
    ----------
    lower : (n,)
        The mean-field bound, in nats.
    gain, gain_error : (n,)
        What the tighter bound adds to it, at least 0, and the standard error of that; zeros where it was
        not asked for.
    unsettled : int
        Rows whose mean field did not converge.
    """

    lower: Values
    gain: Values
    gain_error: Values
    unsettled: int


@dataclass(frozen=True)
class DeepMethod:
    """How deep machines are evaluated.

    Attributes
    ----------
    name : str
        exact, ais (log Z by annealing, and bounds) or none.
    tighter : bool
        Whether the bound with the last layer summed out is estimated too; for two hidden layers.
    temperatures, runs : int
        Of annealing; twice the temperatures of an RBM.
    tolerance, rounds : float, int
        Of mean field: the change of a mean at which it has converged, and the most rounds.
    samples : int
        A row, for the tighter bound; at least 2.
    """

    name: Literal["exact", "ais", "none"] = "exact"
    tighter: bool = False
    temperatures: int = 2 * TEMPERATURES
    runs: int = RUNS
    tolerance: float = 1e-4
    rounds: int = 100
    samples: int = 10

    def columns(self, parts: Mapping[str, Rows]) -> tuple[str, ...]:
        """Names of the values of an evaluation."""
        if self.name == "none":
            return ()
        if self.name == "exact":
            return tuple(f"{part}_log_likelihood" for part in parts)
        bounds = ("lower_bound", "tighter_bound") if self.tighter else ("lower_bound",)
        of_parts = (f"{part}_{bound}" for part in parts for bound in bounds)
        return (*of_parts, "mean_field_unsettled", "log_z", "log_z_standard_error", "effective_sample_size")


def evaluate_deep(
    method: DeepMethod,
    machine: DeepMachine,
    parts: Mapping[str, Rows],
    unit: float,
    base: Array,
    seed: int,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[float]:
    """The values of ``method.columns(parts)``: means over the rows of each part, in nats.

    Parameters
    ----------
    method : DeepMethod
    machine : DeepMachine
    parts : dict
        Rows (n, n_0) uint8 by the part's name.
    unit : float
        Value of one level of the rows: 1, or 1/255 for grey values.
    base : (n_0,) float32
        Biases of the visible units of the annealing base; its deep units are fair coins.
    seed : int
        64 bits; same seed, same values.

    Raises
    ------
    CbmError
        Where an exact likelihood would sum too many states.
    Stopped
    """
    if method.name == "none":
        return []
    if method.name == "exact":
        exact = exact_log_likelihoods
        return [float(exact(machine, rows, unit, should_stop=should_stop).mean()) for rows in parts.values()]
    found = annealed(method, machine, base, seed, should_stop)
    values, unsettled = [], 0
    for rows in parts.values():
        bounds = bounds_of(method, machine, rows, unit, seed, should_stop)
        lower = float(bounds.lower.mean()) - found.log_z
        values += [lower, lower + float(bounds.gain.mean())] if method.tighter else [lower]
        unsettled += bounds.unsettled
    return [*values, unsettled, found.log_z, found.standard_error, found.effective_sample_size]


def annealed(
    method: DeepMethod,
    machine: DeepMachine,
    base: Array,
    seed: int,
    should_stop: Callable[[], bool] = lambda: False,
) -> Estimate:
    """log Z by annealed importance sampling with the odd layers summed out; arguments of evaluate_deep."""
    base = np.concatenate([base, np.zeros_like(machine.start)])
    return ais(machine.plain, base, seed, method.temperatures, method.runs, should_stop)


def refuse_large_deep(
    n_visible: int, n_deep: int, n_odd: int, rows: int, place: str, remedy: str = "use method: ais"
) -> None:
    """Raise CbmError where the exact likelihood of ``rows`` rows would sum more than 2^30 states."""
    refuse_large(n_visible + n_deep, n_odd, place, remedy)
    refuse_large(n_deep, n_odd, place, remedy, rows)


def exact_log_likelihoods(
    machine: DeepMachine,
    rows: Rows,
    unit: float = 1.0,
    place: str = "evaluate",
    should_stop: Callable[[], bool] = lambda: False,
) -> Values:
    """log p(v) of each row (n, n_0) in nats: log of the sum over all hidden states, less log Z.

    What is left of a machine whose visible units are given is an RBM of its deep and odd units, so that
    the sum over hidden states is a partition function too.

    Raises
    ------
    CbmError
        Where more than 2^30 states would be summed; ``place`` says where the method was chosen.
    Stopped
    """
    n_visible = machine.n_visible
    refuse_large_deep(n_visible, len(machine.start), len(machine.c), len(rows), place)
    W, b, c = (array.astype(np.float64) for array in machine.plain)
    found = []
    for x in _blocks(rows, unit, should_stop):
        scores = x.astype(np.float64) @ np.column_stack([W[:n_visible], b[:n_visible]])  # (B, M' + 1)
        found += [row[-1] + log_partition(W[n_visible:], b[n_visible:], row[:-1] + c) for row in scores]
    return np.array(found) - log_partition(W, b, c)


def _blocks(rows: Rows, unit: float, should_stop: Callable[[], bool]) -> Iterator[Array]:
    for start in range(0, len(rows), _ROWS):
        if should_stop():
            raise Stopped
        yield rows[start : start + _ROWS] * np.float32(unit)


def posterior_of(machine: DeepMachine, x: Array, tolerance: float, rounds: int) -> Posterior:
    """The mean-field posterior of the rows x (n, n_0) float32, from the machine's start."""
    n_visible, tolerance = machine.n_visible, np.float32(tolerance)
    W, b, c = machine.W[n_visible:], machine.b[n_visible:], machine.c
    from_visible = x @ machine.W[:n_visible]  # (n, n_0) @ (n_0, M')
    deep, odd = np.tile(machine.start, (len(x), 1)), np.empty_like(from_visible)
    work = np.empty_like(deep), np.empty_like(odd)
    made = mean_field(W, b, c, from_visible, deep, odd, *work, tolerance, rounds)
    if made <= rounds:
        return Posterior(deep, odd, 0)
    next_deep = expit(odd @ W.T + b)
    next_odd = expit(from_visible + next_deep @ W + c)
    change = np.maximum(np.abs(next_deep - deep).max(axis=1), np.abs(next_odd - odd).max(axis=1))
    return Posterior(deep, odd, int((change >= tolerance).sum()))


def bounds_of(
    method: DeepMethod,
    machine: DeepMachine,
    rows: Rows,
    unit: float,
    seed: int,
    should_stop: Callable[[], bool] = lambda: False,
) -> Bounds:
    """Lower bounds of log p(v) + log Z of the rows (n, n_0), block by block; arguments of evaluate_deep."""
    random = np.random.Generator(np.random.Philox(key=[seed, 7]))
    parts = []
    for x in _blocks(rows, unit, should_stop):
        posterior = posterior_of(machine, x, method.tolerance, method.rounds)
        gain = np.zeros(len(x)), np.zeros(len(x))
        if method.tighter:
            gain = tightening(machine, posterior, method.samples, random)
        parts.append(Bounds(lower_bounds(machine, x, posterior), *gain, posterior.unsettled))
    lower, gain, error, unsettled = zip(*parts, strict=True)
    return Bounds(np.concatenate(lower), np.concatenate(gain), np.concatenate(error), sum(unsettled))


def lower_bounds(machine: DeepMachine, x: Array, posterior: Posterior) -> Values:
    """Variational bounds (n,) of log p(v) + log Z: minus the expected energy plus the posterior's entropy.

    Salakhutdinov & Hinton 2009. The energy is linear in every unit, so that its expectation under
    a factorial posterior is the energy of the means.
    """
    W, b, c = (array.astype(np.float64) for array in machine.plain)
    even, odd = np.hstack([x, posterior.deep]).astype(np.float64), posterior.odd.astype(np.float64)
    minus_energy = even @ b + ((even @ W + c) * odd).sum(axis=1)
    return minus_energy + entropy(posterior.deep) + entropy(odd)


def entropy(means: NDArray) -> Values:
    """Entropy in nats of independent binary units, summed over each row of their means (n, units)."""
    means = means.astype(np.float64)
    return (entr(means) + entr(1 - means)).sum(axis=1)


def tightening(
    machine: DeepMachine, posterior: Posterior, samples: int, random: np.random.Generator
) -> tuple[Values, Values]:
    """What summing the deep layers out adds to the mean-field bound of each row: mean and standard error.

    The posterior q of the odd layers alone bounds log p(v) too, by E_q[log sum_deep exp(-E)] + H(q), which
    is tight if p(odd | v) is factorial, whatever p(deep | odd) is. With two hidden layers the last one is
    what is summed out. The bound exceeds the mean-field one by E_q[KL(q(deep) || p(deep | odd))]: the
    expectation over the odd units is estimated by samples, each of which adds something non-negative.

    Returns
    -------
    gain, error : (n,), (n,)
        In nats.
    """
    W, b = machine.W[machine.n_visible :], machine.b[machine.n_visible :]
    gains = np.empty((samples, len(posterior.odd)))
    for gain in gains:
        odd = (random.random(posterior.odd.shape, np.float32) < posterior.odd).astype(np.float32)
        conjugate_gap(odd @ W.T, b, posterior.deep, gain)  # (n, M') @ (M', E)
    gains -= entropy(posterior.deep)
    return gains.mean(axis=0), gains.std(axis=0, ddof=1) / np.sqrt(samples)
