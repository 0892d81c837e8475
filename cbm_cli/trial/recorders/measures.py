"""The recorders of the package; docs/recorders.md says what each of them measures, and why so."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from cbm_cli.grid.offsets import LETTERS, Scheme
from cbm_cli.grid.settings import Settings
from cbm_cli.kernels.states import log_partition, mean_log_likelihood
from cbm_cli.machines.gradients import (
    BLOCK,
    ByParameter,
    Wide,
    centered,
    exact_moments,
    free_energy,
    hidden_mean,
    mean_over_rows,
    natural_gradient,
    standard_gradient,
)
from cbm_cli.trial.recorders.snapshots import Context, Recorder, Snapshots, piecewise

Columns = dict[str, Wide]
EXTREME = 0.05  # a unit is extreme that is on, or off, less often than this


def log_likelihood(snapshots: Snapshots, context: Context) -> Columns:
    """Exact mean log-likelihood of the training rows in nats, by the kernels that evaluate the curves."""
    rows, unit = context.data.train, np.float32(context.unit)
    machines = zip(*(np.ascontiguousarray(array) for array in snapshots[1:4]), strict=True)
    values = [mean_log_likelihood(*machine, rows, unit, log_partition(*machine)) for machine in machines]
    return {"log_likelihood": np.array(values, dtype=np.float64)}


def weight_norms(snapshots: Snapshots, context: Context) -> Columns:
    """Frobenius norm of W; mean Euclidean norm of its rows (N) and of its columns (M)."""
    squares = np.multiply(snapshots.W, snapshots.W, dtype=np.float64)
    rows = squares @ np.ones(squares.shape[2])
    columns = np.einsum("tnm->tm", squares)
    return {
        "weight_norm": np.sqrt(rows.sum(axis=1)),
        "weight_row_norm": np.sqrt(rows).mean(axis=1),
        "weight_column_norm": np.sqrt(columns).mean(axis=1),
    }


@piecewise(lambda n, m, rows: n * m)
def bias_norms(snapshots: Snapshots, context: Context) -> Columns:
    """Euclidean norms of b and c, and of the centered biases b + W lam and c + W' mu."""
    W, b, c = snapshots.wide()
    centered_b = b + (W @ snapshots.lam[:, :, None])[:, :, 0]
    centered_c = c + (snapshots.mu[:, None, :] @ W)[:, 0, :]
    biases = {"visible": b, "hidden": c, "centered_visible": centered_b, "centered_hidden": centered_c}
    return {f"{name}_bias_norm": _norm(bias) for name, bias in biases.items()}


def offset_values(snapshots: Snapshots, context: Context) -> Columns:
    """Offsets of the chosen hidden units."""
    return {f"lam_{unit}": snapshots.lam[:, unit].astype(np.float64) for unit in context.units}


def exact_scratch(n: int, m: int, rows: int) -> int:
    """Numbers that an exact gradient of one machine keeps at hand."""
    return min(2 ** min(n, m), BLOCK) * max(n, m) + rows_scratch(n, m, rows)


def rows_scratch(n: int, m: int, rows: int) -> int:
    """Numbers that a mean over the rows of the data keeps at hand."""
    return min(rows, BLOCK) * (n + m) + n * m


def joint_scratch(n: int, m: int, rows: int) -> int:
    """Numbers that a Fisher matrix keeps at hand."""
    return 2 ** (n + m) * (n * m + n + m)


@piecewise(exact_scratch)
def offset_error(snapshots: Snapshots, context: Context) -> Columns:
    """Mean absolute difference of the offsets to the exact ones of the scheme."""
    letters = Scheme.parse(context.settings.offsets).letters
    mu, lam = exact_offsets(letters, *snapshots.wide(), context.data.train, context.unit)
    return {
        "visible_offset_error": np.abs(snapshots.mu - mu).mean(axis=1),
        "hidden_offset_error": np.abs(snapshots.lam - lam).mean(axis=1),
    }


def exact_offsets(
    letters: str, W: Wide, b: Wide, c: Wide, rows: NDArray, unit: float = 1.0
) -> tuple[Wide, Wide]:
    """The offsets mu (..., N) and lam (..., M) that the letters of a scheme stand for, without sampling.

    Data means over all rows (n, N) times ``unit``, hidden ones by E[h | x]; model means over all states.
    Random offsets (letter r) count by their expectation, 1/2.
    """
    data_x = np.broadcast_to(unit * rows.mean(axis=0, dtype=np.float64), b.shape)
    data_h = mean_hidden(W, c, rows, unit)
    model_x, model_h = np.zeros(b.shape), np.zeros(c.shape)
    if needs_model_means(letters):
        _, model_x, model_h = exact_moments(W, b, c)
    return _mixed(letters[0], data_x, model_x), _mixed(letters[1], data_h, model_h)


def mean_hidden(W: Wide, c: Wide, rows: NDArray, unit: float = 1.0) -> Wide:
    """<h>_d (..., M): the mean of E[h | x] over rows (n, N) times ``unit``."""
    return mean_over_rows(lambda x: hidden_mean(W, c, x).sum(axis=-2), rows, unit)


def needs_model_means(letters: str) -> bool:
    """Whether the offsets of a scheme rest on the model's means."""
    return any(LETTERS[letter][1] for letter in letters)


def _mixed(letter: str, data_mean: Wide, model_mean: Wide) -> Wide:
    data, model, half, noise = LETTERS[letter]
    return data * data_mean + model * model_mean + (half + noise) / 2


@piecewise(joint_scratch)
def gradient_angles(snapshots: Snapshots, context: Context) -> Columns:
    """Angles in degrees of the exact natural to the exact standard and centered gradients."""
    standard, along_offsets = _exact_gradients(snapshots, context)
    natural = natural_gradient(*snapshots.wide(), standard, *fisher_of(context.settings))
    return {
        "angle_natural_standard": _angle(natural, standard),
        "angle_natural_centered": _angle(natural, along_offsets),
    }


@piecewise(exact_scratch)
def gradient_norms(snapshots: Snapshots, context: Context) -> Columns:
    """Euclidean norms of the exact standard and centered gradients."""
    standard, along_offsets = _exact_gradients(snapshots, context)
    return {
        "standard_gradient_norm": _norm(standard.flat()),
        "centered_gradient_norm": _norm(along_offsets.flat()),
    }


def fisher_of(settings: Settings) -> tuple[str, float]:
    """Which Fisher matrix recorders take, and its damping: a natural training's own, else the joint, 0."""
    gradient = settings.gradient
    return (gradient.fisher, gradient.added_damping) if gradient.kind == "natural" else ("joint", 0.0)


def _exact_gradients(snapshots: Snapshots, context: Context) -> tuple[ByParameter, ByParameter]:
    """The standard gradient and the centered one; without offsets the latter takes the exact data means."""
    machine, rows, unit = snapshots.wide(), context.data.train, context.unit
    standard = standard_gradient(*machine, rows, unit)
    mu, lam = snapshots.mu.astype(np.float64), snapshots.lam.astype(np.float64)
    bare = ~(mu.any(axis=1) | lam.any(axis=1))
    if bare.any():
        data_x, data_h = exact_offsets("dd", *machine, rows, unit)
        mu, lam = np.where(bare[:, None], data_x, mu), np.where(bare[:, None], data_h, lam)
    return standard, centered(standard, mu, lam)


def _angle(one: ByParameter, other: ByParameter) -> Wide:
    """Angle in degrees between two updates of all parameters (T,); NaN where one of them is zero."""
    u, v = one.flat(), other.flat()
    with np.errstate(invalid="ignore", divide="ignore"):
        cosine = (u * v).sum(axis=1) / (_norm(u) * _norm(v))
    return np.degrees(np.arccos(np.clip(cosine, -1, 1)))


def _norm(vectors: Wide) -> Wide:
    return np.sqrt((vectors * vectors).sum(axis=1))


@piecewise(rows_scratch)
def hidden_activity(snapshots: Snapshots, context: Context) -> Columns:
    """Mean of the units' activities over the training rows, and the share of units outside [0.05, 0.95]."""
    W, _, c = snapshots.wide()
    activity = mean_hidden(W, c, context.data.train, context.unit)  # (T, M)
    extreme = (activity < EXTREME) | (activity > 1 - EXTREME)
    return {"hidden_activity_mean": activity.mean(axis=1), "hidden_activity_extreme": extreme.mean(axis=1)}


@piecewise(rows_scratch)
def reconstruction_error(snapshots: Snapshots, context: Context) -> Columns:
    """Mean over training rows and units of (x_i - p(x_i = 1 | h = E[h | x]))^2."""
    W, b, c = snapshots.wide()

    def squares(x: Wide) -> Wide:
        back = expit(hidden_mean(W, c, x) @ W.swapaxes(1, 2) + b[:, None, :])  # (T, R, N)
        return np.square(x - back).sum(axis=(1, 2))

    error = mean_over_rows(squares, context.data.train, context.unit) / context.data.width
    return {"reconstruction_error": error}


@piecewise(rows_scratch)
def free_energy_gap(snapshots: Snapshots, context: Context) -> Columns:
    """Mean free energy of the validation rows minus that of the training rows, in nats."""
    machine = snapshots.wide()
    valid, train = (
        mean_over_rows(lambda x: free_energy(*machine, x).sum(axis=1), rows, context.unit)
        for rows in (context.data.valid, context.data.train)
    )
    return {"free_energy_gap": valid - train}


RECORDERS: dict[str, Recorder] = {
    recorder.__name__: recorder
    for recorder in (
        log_likelihood,
        weight_norms,
        bias_norms,
        offset_values,
        offset_error,
        gradient_angles,
        gradient_norms,
        hidden_activity,
        reconstruction_error,
        free_energy_gap,
    )
}
