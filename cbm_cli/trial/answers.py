"""What ``cbm evaluate`` answers about a machine of any kind: its likelihood, bounds of it, or its cost."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401  the BLAS of np.dot in kernels: loaded before threads are limited
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from cbm_cli.errors import CbmError
from cbm_cli.kernels.partition import log_partition
from cbm_cli.kernels.state import Array, Rows
from cbm_cli.results import Layered, flatten
from cbm_cli.trial.annealing import RUNS, TEMPERATURES, ais, exact_samples, raise_bounds, reverse_ais
from cbm_cli.trial.deep import DeepMachine, DeepMethod, bounds_of, exact_log_likelihoods, refuse_large_deep
from cbm_cli.trial.evaluation import PlainMachine, fixed_rows, mean_log_likelihoods, refuse_large
from cbm_cli.trial.features import ACTIVATIONS, encoded

SAMPLED_BITS = 16  # machines up to this size are sampled exactly, for reverse AIS
_REMEDY = "use --ais (annealed importance sampling) to estimate it"
_ROWS = 1_000  # of an auto encoder at a time

Answer = dict[str, Any]  # as cbm evaluate --json prints it
Parts = Mapping[str, Rows]


@dataclass(frozen=True)
class Method:
    """How ``cbm evaluate`` measures.

    Attributes
    ----------
    name : str or None
        exact, ais or raise; None: exact, of auto encoders the cost.
    temperatures : int or None
        Of annealing; None: 14,500, or twice as many where there are several hidden layers.
    runs : int
        Of annealing.
    uniform_base : bool
        Whether annealing starts at fair coins, and not at the base rate of the data.
    rows : int or None
        Size of a fixed subsample to evaluate; None: all rows.
    seed : int
    """

    name: str | None = None
    temperatures: int | None = None
    runs: int = RUNS
    uniform_base: bool = False
    rows: int | None = None
    seed: int = 1

    def steps(self, machine: Layered) -> int:
        """Temperatures of the annealing of this machine."""
        return self.temperatures or TEMPERATURES * (2 if is_deep(machine) else 1)


def is_deep(machine: Layered) -> bool:
    """Whether it is a Boltzmann machine of several hidden layers; one of a single layer is an RBM."""
    return machine.kind != "auto-encoder" and len(machine.weights) > 1


def evaluate_machine(
    machine: Layered, parts: Parts, unit: float, base: Array, method: Method, name: str
) -> tuple[Answer, dict[str, Answer]]:
    """What holds of the machine itself, such as log Z, and of the rows (n, n_0) of each part.

    Of an RBM the log-likelihood. Of a deep machine, where log Z is exact, the log-likelihood, and by any
    method the mean-field lower bound, with two hidden layers also the tighter one. Of an auto encoder the
    cost. Each is a mapping of the mean, the total and the number of rows, in nats; cbm_cli.trial.deep says
    what the bounds are.

    Parameters
    ----------
    machine : Layered
    parts : dict
        Rows uint8 by the part's name.
    unit : float
        Value of one level of the rows.
    base : (n_0,) float32
        Visible biases of the annealing base; other units start as fair coins.
    method : Method
    name : str
        Of the machine, for errors.

    Raises
    ------
    CbmError
        When the rows are of another width, the machine is too large for an exact sum, or the method is
        not for its kind.
    """
    for rows in parts.values():
        if rows.shape[1] != machine.layers[0]:
            raise CbmError(
                f"{name}: has {machine.layers[0]} visible units; the data has {rows.shape[1]} columns"
            )
    parts = {part: fixed_rows(rows, method.rows) for part, rows in parts.items()}
    with threadpool_limits(1):
        if machine.kind == "auto-encoder":
            return _of_auto_encoder(machine, parts, unit, method, name)
        of_kind = _of_deep if is_deep(machine) else _of_rbm
        return of_kind(machine, parts, unit, base, method, name)


# Restricted Boltzmann machines


def _of_rbm(
    machine: Layered, parts: Parts, unit: float, base: Array, method: Method, name: str
) -> tuple[Answer, dict[str, Answer]]:
    plain = _in_float32(machine)
    if method.name == "raise":
        steps = method.steps(machine)
        bounds = {part: _raised(plain, rows, unit, base, steps, method.seed) for part, rows in parts.items()}
        return {"method": "raise"}, bounds
    if method.name != "ais":
        refuse_large(*machine.layers, name, _REMEDY)
    common = _normalise(machine, plain, base, method)
    means = mean_log_likelihoods(plain, parts, unit, common["log_z"])
    return common, {
        part: {"log_likelihood": _over(mean, len(rows))}
        for (part, rows), mean in zip(parts.items(), means, strict=True)
    }


def _in_float32(machine: Layered) -> PlainMachine:
    W, b, c = (np.ascontiguousarray(array, dtype=np.float32) for array in flatten(machine))
    return W, b, c


def _normalise(machine: Layered, plain: PlainMachine, base: Array, method: Method) -> Answer:
    """log Z, and how far to trust it."""
    if method.name != "ais":
        return {"method": "exact", "log_z": log_partition(*plain)}
    steps = method.steps(machine)
    found = ais(plain, base, method.seed, steps, method.runs)
    answer = {
        "method": "ais",
        "log_z": found.log_z,
        "log_z_standard_error": found.standard_error,
        "log_z_interval": list(found.interval),
        "effective_sample_size": found.effective_sample_size,
        "doubtful": found.doubtful,
    }
    if min(plain[0].shape) <= SAMPLED_BITS:
        samples = exact_samples(plain, method.runs, method.seed)
        back = reverse_ais(plain, base, samples, method.seed, steps)
        answer |= {"reverse_log_z": back.log_z, "reverse_log_z_standard_error": back.standard_error}
    return answer


def _raised(plain: PlainMachine, rows: Rows, unit: float, base: Array, steps: int, seed: int) -> Answer:
    x = (rows * np.float32(unit)).astype(np.float32)
    bounds = raise_bounds(plain, base, x, seed, steps)
    error = float(bounds.std(ddof=1) / np.sqrt(len(bounds))) if len(bounds) > 1 else float("nan")
    likelihood = _over(float(bounds.mean()), len(bounds))
    return {"log_likelihood": likelihood | {"standard_error_over_rows": error}}


def _over(mean: float, n: int) -> Answer:
    return {"mean": mean, "total": mean * n, "n": n}


# Deep Boltzmann machines


def _of_deep(
    machine: Layered, parts: Parts, unit: float, base: Array, method: Method, name: str
) -> tuple[Answer, dict[str, Answer]]:
    if method.name == "raise":
        raise CbmError(
            f"{name}: --raise anneals from rows of data, and would need the states of all even layers of a "
            "deep machine; use --ais, which bounds the likelihood by mean field"
        )
    deep, exact = DeepMachine.of(machine), method.name != "ais"
    for rows in parts.values() if exact else ():
        sizes = deep.n_visible, len(deep.start), len(deep.c), len(rows)
        refuse_large_deep(*sizes, name, "use --ais to estimate log Z and bound it, or fewer --rows")
    base = np.concatenate([base, np.zeros_like(deep.start)])
    common = _normalise(machine, deep.plain, base, method)
    how, answers = DeepMethod(tighter=len(machine.weights) == 2), {}
    for part, rows in parts.items():
        answers[part] = _bounds(how, deep, rows, unit, common["log_z"], method.seed)
        if exact:
            mean = float(exact_log_likelihoods(deep, rows, unit, name).mean())
            answers[part] = {"log_likelihood": _over(mean, len(rows))} | answers[part]
    return common, answers


def _bounds(
    how: DeepMethod, machine: DeepMachine, rows: Rows, unit: float, log_z: float, seed: int
) -> Answer:
    """The bounds with this log Z; the standard error of the tighter one is that of its samples alone."""
    found, n = bounds_of(how, machine, rows, unit, seed), len(rows)
    lower = float(found.lower.mean()) - log_z
    answer = {"lower_bound": _over(lower, n)}
    if how.tighter:
        error = float(np.linalg.norm(found.gain_error)) / n
        answer["tighter_bound"] = _over(lower + float(found.gain.mean()), n) | {"standard_error": error}
    return answer | {"mean_field_unsettled": found.unsettled}


# Auto encoders


def _of_auto_encoder(
    machine: Layered, parts: Parts, unit: float, method: Method, name: str
) -> tuple[Answer, dict[str, Answer]]:
    if method.name:
        raise CbmError(
            f"{name}: an auto encoder has no normalised likelihood for --{method.name} to find; it is judged "
            f"by its cost: leave --{method.name} out"
        )
    if machine.loss == "cross-entropy" and machine.decoder != "sigmoid":
        raise CbmError(f"{name}: its loss, the cross entropy, needs a sigmoid decoder, not {machine.decoder}")
    common = {"method": "cost", "loss": machine.loss}
    return common, {part: {"cost": _cost(machine, rows, unit)} for part, rows in parts.items()}


def _cost(machine: Layered, rows: Rows, unit: float) -> Answer:
    blocks = (rows[start : start + _ROWS] * unit for start in range(0, len(rows), _ROWS))
    return _over(sum(float(costs(machine, x).sum()) for x in blocks) / len(rows), len(rows))


def costs(machine: Layered, x: NDArray) -> NDArray:
    """Loss (n,) of the rows x (n, n_0) of an auto encoder: cross entropy in nats, or squared error."""
    y, decode = encoded(machine, x)[-1], ACTIVATIONS[machine.decoder]
    for W, b in zip(machine.weights[:0:-1], machine.decoder_biases[::-1], strict=True):
        y = decode(y @ W.T + b)  # (n, n_{l+1}) @ (n_{l+1}, n_l)
    activation = y @ machine.weights[0].T + machine.biases[0]
    if machine.loss == "cross-entropy":
        return (np.logaddexp(0, activation) - x * activation).sum(axis=1)
    return ((x - decode(activation)) ** 2).sum(axis=1)
