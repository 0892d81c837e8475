"""Exact, bounded or estimated log-likelihoods of Boltzmann machines, and costs of auto
encoders.

All Boltzmann machines are evaluated in one way, because an RBM is a deep machine
without deep units: its mean-field posterior is exact, and its lower bound is the
log-likelihood itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.kernels import KERNEL_VERSION
from cbm_cli.kernels.auto_encoder import summed_cost
from cbm_cli.kernels.likelihood import mean_log_likelihood
from cbm_cli.kernels.machine import State
from cbm_cli.kernels.memory import Array, Rows
from cbm_cli.kernels.plan import ROUNDS, TOLERANCE, Plan, plain_plan
from cbm_cli.kernels.states import log_partition
from cbm_cli.machines import streams
from cbm_cli.machines.bounds import (
    Values,
    lower_bounds,
    posterior_of,
)
from cbm_cli.machines.certificate import (
    Scored,
    by_all_states,
    log_z_at_least,
    rounding,
)
from cbm_cli.machines.estimates import (
    RUNS,
    TEMPERATURES,
    ShouldStop,
    Stopped,
    ais,
    apart,
    base_rate,
    never,
)
from cbm_cli.machines.limits import (
    LISTED_BITS,
    check_likelihood,
    check_room,
    check_whole,
)
from cbm_cli.machines.models import (
    Flat,
    Layered,
    check_range,
    fits,
    flatten,
    kernel_arrays,
)
from cbm_cli.machines.pseudo import pseudo_log_likelihoods
from cbm_cli.reference import free_energy
from cbm_cli.results.metrics import fewest_effective
from cbm_cli.text import did_you_mean
from cbm_cli.version import __version__

OF_MACHINE = (  # columns of estimates that belong to the machine
    "log_z",
    "log_z_standard_error",
    "effective_sample_size",
    "log_z_at_least",
)
METHODS = ("exact", "ais", "pseudo", "cost", "none")
# Rows of a block: enough for fast products, few enough to stay near the cache
_BLOCK, _ENCODER_BLOCK = 200, 250

Answer = dict[str, Any]  # as cbm evaluate --json prints it


@dataclass(frozen=True)
class Method:
    """How a machine is evaluated, during training or by ``cbm evaluate``."""

    name: str | None = None  # exact, ais, pseudo or none; default: exact, or the cost
    # Of annealing; default: 14,500, twice that for deep machines
    temperatures: int | None = None
    runs: int = RUNS  # of annealing
    rows: int | None = None  # size of a fixed subsample of each part; default: all rows
    seed: int = 1  # 64 bits; same seed, same values
    tolerance: float = TOLERANCE  # of mean field
    rounds: int = ROUNDS
    # Whether exact likelihoods come with their bounds, and AIS with an upper limit
    checked: bool = True

    def __post_init__(self) -> None:
        """Raise CbmError for a name that does not exist, and for numbers that are not
        whole or too small.
        """
        name = self.name or "exact"
        if name not in METHODS:
            hint = did_you_mean(str(name), METHODS)
            raise CbmError(f"method {name!r} is unknown{hint}")
        check_whole("evaluate", 3, temperatures=self.temperatures)
        check_whole("evaluate", 2, runs=self.runs)
        check_whole("evaluate", 1, rows=self.rows)
        check_whole("evaluate", 0, seed=self.seed)

    def steps(self, is_deep: bool) -> int:
        """Temperatures of the annealing."""
        return self.temperatures or TEMPERATURES * (2 if is_deep else 1)

    def facts(self, is_deep: bool) -> dict[str, Any]:
        """How values are made, by the names of the columns that `cbm evaluate` adds."""
        name = self.name or "exact"
        facts: dict[str, Any] = {"rows": self.rows or "all"}
        if name == "ais":
            facts["temperatures"] = self.steps(is_deep)
            facts["runs"] = self.runs
            facts["seed"] = self.seed
        facts["version"] = f"cbm {__version__} kernel {KERNEL_VERSION}"
        return {f"{name}_{fact}": value for fact, value in facts.items()}


class Parts(NamedTuple):
    """The rows that a machine is evaluated on."""

    rows: Mapping[str, Rows]  # (n, n_0) uint8 by part
    unit: float  # value of one level of the rows: 1, or 1/255 for grey values
    # (n_0,) visible biases of the annealing base; all other units of the base are fair
    # coins
    base: Array


def parts_of(
    data: Dataset, method: Method, names: Sequence[str] | None = None
) -> Parts:
    """The parts of a data set, by default all: of each all rows, or a subsample that
    all trials share.
    """
    rows = {}
    for name, part in data.parts.items():
        if names is not None and name not in names:
            continue
        rows[name] = part
        if method.rows is not None and method.rows < len(part):
            order = streams.generator(0, streams.SUBSAMPLE).permutation(len(part))
            rows[name] = part[np.sort(order[: method.rows])]
            rows[name].setflags(write=False)
    mean = data.train.mean(axis=0) / data.levels
    return Parts(rows, unit=1 / data.levels, base=base_rate(mean, len(data.train)))


def no_parts(machine: Flat) -> Parts:
    """The start of annealing for a machine without rows: its own visible biases."""
    with np.errstate(over="ignore"):  # annealing itself refuses such a machine
        biases = machine.b[: machine.sizes[0]].astype(np.float32)
    return Parts({}, 1.0, biases)


def evaluate(
    machine: Layered | Flat,
    parts: Parts,
    method: Method,
    place: str = "evaluate",
    should_stop: ShouldStop = never,
) -> tuple[Answer, dict[str, Answer]]:
    """Evaluate a machine of any kind, layered or flattened, on the rows of each part.

    Returns what belongs to the machine (the method, log Z of the plain energy, for a
    layered machine also of the centered one that its file documents, and their errors),
    and for each part the log-likelihood, its bounds or the cost: mean, total (nats) and
    n. Raises Stopped, or CbmError that names ``place`` for rows of another width, sums
    of too many states, or a method for other kinds of machines.
    """
    n, width = machine.sizes[0], len(parts.base)
    if n != width:
        raise CbmError(f"{place}: has {n} visible units; the data has {width} columns")
    if isinstance(machine, Flat):
        return _evaluated(machine, parts, method, place, should_stop)
    if machine.kind == "auto-encoder":
        return _costs_of(machine, parts, method, place)
    dtype = np.float32 if method.name == "ais" else np.float64
    flat = flatten(machine, dtype, place)
    of_machine, by_part = _evaluated(flat, parts, method, place, should_stop)
    if "log_z" in of_machine:
        of_machine["log_z_energy"] = "plain"
        of_machine["log_z_centered"] = of_machine["log_z"] + machine.offset_energy
    return of_machine, by_part


def _evaluated(
    machine: Flat, parts: Parts, method: Method, place: str, should_stop: ShouldStop
) -> tuple[Answer, dict[str, Answer]]:
    if method.name == "ais":
        return _estimated(machine, parts, method, should_stop)
    if method.name == "pseudo":
        return _pseudo(machine, parts, place, should_stop)
    if method.name not in (None, "exact"):
        raise CbmError(
            f"{place}: the method {method.name} evaluates no Boltzmann machine"
        )
    most = max(map(len, parts.rows.values()), default=1)
    remedy = "use --ais (annealed importance sampling) to estimate it"
    check_likelihood(machine.sizes, rows=most, place=place, remedy=remedy)
    log_z = log_partition(*machine.plain)
    by_part = {}
    for part, rows in parts.rows.items():
        by_part[part] = _given_log_z(
            machine, rows, parts.unit, log_z, method=method, should_stop=should_stop
        )
    return {"method": "exact", "log_z": log_z}, by_part


def columns(method: Method, sizes: Sequence[int], parts: Parts) -> tuple[str, ...]:
    """Names of the values of an evaluation in training, for a machine with these
    layers.
    """
    if method.name == "none":
        return ()
    quantities, of_machine = ["log_likelihood"], []
    if method.name == "pseudo":
        quantities = ["pseudo_likelihood"]
    elif method.name == "cost":
        quantities = ["cost"]
    elif method.name == "ais":
        is_deep = len(sizes) > 2
        bounded = "lower_bound" if is_deep else "log_likelihood"
        quantities = [bounded, f"{bounded}_at_most"]
        of_machine = [*(["mean_field_unsettled"] if is_deep else []), *OF_MACHINE]
    names = [f"{part}_{quantity}" for part in parts.rows for quantity in quantities]
    return (*names, *of_machine)


def values(of_machine: Answer, by_part: Mapping[str, Answer]) -> dict[str, float]:
    """The results of `evaluate` by the names of `columns`."""
    row = {**of_machine, "mean_field_unsettled": 0}
    for part, answer in by_part.items():
        for name, quantity in answer.items():
            if isinstance(quantity, dict):
                row[f"{part}_{name}"] = quantity["mean"]
            else:
                row[name] += quantity  # rows, over all parts
    return row


def _over(mean: float, n: int) -> Answer:
    return {"mean": mean, "total": mean * n, "n": n}


# Estimates


@np.errstate(invalid="ignore")  # of a machine that has diverged
def _estimated(
    machine: Flat, parts: Parts, method: Method, should_stop: ShouldStop
) -> tuple[Answer, dict[str, Answer]]:
    """Log-likelihoods or their bounds, with log Z by annealing, and proved limits of
    both.
    """
    base = np.concatenate([parts.base, np.zeros_like(machine.start)])
    steps = method.steps(machine.is_deep)
    check_room("ais", temperatures=steps, runs=method.runs * sum(machine.W.shape))
    estimate, ends = ais(
        machine.plain,
        base,
        seed=method.seed,
        temperatures=steps,
        runs=method.runs,
        should_stop=should_stop,
    )
    scored, unsettled = dict[str, Scored](), dict[str, int]()
    for part, rows in parts.rows.items():
        if machine.is_deep:
            scores, unsettled[part] = bounds_of(
                machine, rows, parts.unit, method, should_stop
            )
        else:
            scores = exact_scores(machine, rows, parts.unit, should_stop)
        scored[part] = Scored(rows=rows, scores=scores)
    proved = log_z_at_least(machine, ends, list(scored.values()), parts.unit)

    name = "lower_bound" if machine.is_deep else "log_likelihood"
    by_part = dict[str, Answer]()
    for part, (rows, scores) in scored.items():
        most = scores + rounding(machine) - proved
        if parts.unit == 1:
            most = np.minimum(most, 0)  # p(x) of binary rows is at most 1
        by_part[part] = {
            name: _over(float(scores.mean()) - estimate.log_z, len(rows)),
            f"{name}_at_most": _over(float(most.mean()), len(rows)),
        }
        if machine.is_deep:
            by_part[part]["mean_field_unsettled"] = unsettled[part]

    disproved = apart(estimate.interval, (proved, np.inf))
    answer: Answer = {
        "method": "ais",
        "log_z": estimate.log_z,
        "log_z_standard_error": estimate.standard_error,
        "log_z_interval": list(estimate.interval),
        "log_z_at_least": proved,
        "precision": "float32",
        "effective_sample_size": 0.0 if disproved else estimate.effective_sample_size,
        "runs": method.runs,
    }
    if method.checked and min(machine.W.shape) <= LISTED_BITS:
        answer["log_z_at_most"] = by_all_states(machine)[1]
    return answer | {"doubtful": bool(doubt_of(answer))}, by_part


def doubt_of(answer: Answer) -> str:
    """Say why an estimate of log Z cannot be trusted; empty if nothing speaks against
    it.
    """
    if "log_z_interval" not in answer:
        return ""
    interval, least = answer["log_z_interval"], answer["log_z_at_least"]
    most = answer.get("log_z_at_most", np.inf)
    if apart(interval, (least, np.inf)):
        return f"log Z is proved to be at least {least:.2f}, against its estimate"
    if not answer["effective_sample_size"] >= fewest_effective(answer["runs"]):
        return (
            f"only {answer['effective_sample_size']:.1f} effective runs carry the "
            "estimate of log Z"
        )
    if apart(interval, (-np.inf, most)):
        return f"log Z is proved to be at most {most:.2f}, against its estimate"
    return ""


def _pseudo(
    machine: Flat, parts: Parts, place: str, should_stop: ShouldStop
) -> tuple[Answer, dict[str, Answer]]:
    """Pseudo-likelihoods of an RBM, which need no log Z."""
    if machine.is_deep:
        raise CbmError(f"{place}: pseudo-likelihoods are of RBMs only; use --ais")
    W, b, c = machine.plain.wide
    by_part = {}
    for part, rows in parts.rows.items():
        blocks = _blocks(rows, np.float64(parts.unit), should_stop)
        means = np.concatenate([pseudo_log_likelihoods(W, b, c, x) for x in blocks])
        by_part[part] = {"pseudo_likelihood": _over(float(means.mean()), len(rows))}
    return {"method": "pseudo"}, by_part


# Rows given log Z


def _given_log_z(
    machine: Flat,
    rows: Rows,
    unit: float,
    log_z: float,
    method: Method,
    should_stop: ShouldStop,
) -> Answer:
    """The log-likelihood of the rows, by the kernels if the machine is in float32, and
    for a deep machine its lower bound.
    """
    mean = np.nan
    if machine.W.dtype == np.float32 and not machine.is_deep:
        mean = mean_log_likelihood(*machine.plain, rows, np.float32(unit), log_z)
    is_rounded = 0 < mean < np.inf
    if machine.W.dtype != np.float32 or machine.is_deep or is_rounded:
        scores = exact_scores(machine, rows, unit, should_stop) - log_z
        mean = float(np.minimum(scores, 0).mean())
    answer: Answer = {"log_likelihood": _over(mean, len(rows))}
    if machine.is_deep and method.checked and fits(machine.plain, np.float32):
        lower, unsettled = bounds_of(machine, rows, unit, method, should_stop)
        answer["mean_field_unsettled"] = unsettled
        answer["lower_bound"] = _over(float(lower.mean()) - log_z, len(rows))
    return answer


def exact_scores(
    machine: Flat, rows: Rows, unit: float = 1.0, should_stop: ShouldStop = never
) -> Values:
    """log p(v) + log Z = log sum_h exp(-E(v, h)), Eq. (4), of each row (n, n_0): (n,)
    in nats, float64.

    Given its visible units, a deep machine is an RBM of its deep and odd units: the sum
    over hidden states is a partition function too.
    """
    n_visible = machine.sizes[0]
    W, b, c = machine.plain.wide
    W_visible, W_deep = W[:n_visible], W[n_visible:]
    b_visible, b_deep = b[:n_visible], b[n_visible:]
    scores: list[float] = []
    for x in _blocks(rows, np.float64(unit), should_stop):
        if not machine.is_deep:
            scores += (-free_energy(x, W, b, c)).tolist()
            continue
        inputs = x @ np.column_stack([W_visible, b_visible])  # (B, M' + 1)
        for row in inputs:
            scores.append(row[-1] + log_partition(W_deep, b_deep, row[:-1] + c))
    return np.array(scores)


def bounds_of(
    machine: Flat,
    rows: Rows,
    unit: float,
    method: Method,
    should_stop: ShouldStop = never,
) -> tuple[Values, int]:
    """Mean-field bounds (n,) of log p(v) + log Z in nats of rows (n, n_0), and how many
    rows did not settle.

    Mean field is in float32. Whatever means it finds, the bound that they give is
    computed from the weights as they are, so that it is one of this machine too if it
    is in float64. May raise Stopped.
    """
    lower, unsettled, narrow = [], 0, machine.as_type(np.float32)
    for x in _blocks(rows, machine.W.dtype.type(unit), should_stop):
        posterior = posterior_of(
            narrow, x.astype(np.float32), method.tolerance, method.rounds
        )
        lower.append(lower_bounds(machine, x, posterior))
        unsettled += posterior.unsettled
    return np.concatenate(lower), unsettled


def _blocks(
    rows: Rows, unit: np.floating, should_stop: ShouldStop
) -> Iterator[NDArray[np.floating]]:
    for start in range(0, len(rows), _BLOCK):
        if should_stop():
            raise Stopped
        yield rows[start : start + _BLOCK] * unit


# Auto encoders


def _costs_of(
    machine: Layered, parts: Parts, method: Method, place: str
) -> tuple[Answer, dict[str, Answer]]:
    if method.name:
        raise CbmError(
            f"{place}: an auto encoder has no normalised likelihood for "
            f"--{method.name}, only a cost; remove --{method.name}",
        )
    arrays = kernel_arrays(machine)
    check_range((arrays.W, arrays.b, arrays.c), np.float32, place)
    W, b, c, mu, lam = (np.ascontiguousarray(array, np.float32) for array in arrays)
    state = State(W, b, c, mu, lam, rounds=np.zeros(3, np.int64))
    plan = plain_plan(len(b), len(c), 0, 1, unit=np.float32(parts.unit))
    by_part = {}
    for part, rows in parts.rows.items():
        cost = mean_cost(state, machine.sizes, rows, plan)
        by_part[part] = {"cost": _over(cost, len(rows))}
    return {"method": "cost"}, by_part


def mean_cost(
    state: State,
    sizes: Sequence[int],
    rows: Rows,
    plan: Plan,
    should_stop: ShouldStop = never,
) -> float:
    """Mean cost of the rows: cross entropy in nats, summed over units; or Stopped."""
    total = 0.0
    for first in range(0, len(rows), _ENCODER_BLOCK):
        if should_stop():
            raise Stopped
        total += summed_cost(state, sizes, rows[first : first + _ENCODER_BLOCK], plan)
    return total / len(rows)
