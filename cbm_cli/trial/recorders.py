"""Recorders: quantities measured along a training, chosen by name in the grid.

A recorder is a function of a stack of snapshots and a context. ``docs/recorders.md``
describes what each one measures. Shapes are for T snapshots of a machine of N visible
and M hidden units.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, wraps

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.grid.settings import Settings
from cbm_cli.kernels.likelihood import mean_log_likelihood
from cbm_cli.kernels.machine import Trail, empty_trail
from cbm_cli.kernels.states import log_partition
from cbm_cli.machines import limits
from cbm_cli.machines.gradients import (
    BLOCK,
    ByParameter,
    Wide,
    centered,
    exact_moments,
    mean_over_rows,
    natural_gradient,
    standard_gradient,
)
from cbm_cli.machines.pseudo import pseudo_log_likelihoods
from cbm_cli.reference import free_energy, hidden_mean, offset_target
from cbm_cli.results import Progress
from cbm_cli.trial.start import updates_of

EXTREME = 0.05  # an extreme unit is on, or off, less often
SCRATCH = 2**17  # numbers in memory for a piece of a stack: a megabyte, near the cache
GROUP_BYTES = 32_000_000  # of the snapshots that are recorded together


@dataclass(frozen=True)
class Context:
    """The context that a recorder may read besides the snapshots."""

    data: Dataset
    settings: Settings
    seed: int  # of the trial, for recorders that draw random numbers

    @property
    def unit(self) -> float:
        """Value of one level of the data: 1, or 1/255 for grey values."""
        return 1 / self.data.levels


Columns = dict[str, Wide]  # name -> (T,) values
Recorder = Callable[[Trail, Context], Columns]


def in_pieces(recorder: Recorder) -> Recorder:
    """Decorate a recorder to process pieces of the stack, so that its memory does not
    grow with the stack.
    """

    @wraps(recorder)
    def in_turn(snapshots: Trail, context: Context) -> Columns:
        _, n, m = snapshots.W.shape
        # Rows or states that are in memory at a time
        most = min(max(len(context.data.train), 2 ** min(n, m)), BLOCK)
        size = max(1, SCRATCH // (most * (n + m) + n * m))
        pieces = []
        for start in range(0, len(snapshots.update), size):
            arrays = (array[start : start + size] for array in snapshots)
            pieces.append(recorder(Trail._make(arrays), context))
        return {
            column: np.concatenate([piece[column] for piece in pieces])
            for column in pieces[0]
        }

    return in_turn


# Recorders, in the order of RECORDERS


def log_likelihood(snapshots: Trail, context: Context) -> Columns:
    """Exact mean log-likelihood of the training rows in nats, by the kernels that
    evaluate the curves.
    """
    rows, unit = context.data.train, np.float32(context.unit)
    values = []
    for W, b, c in zip(snapshots.W, snapshots.b, snapshots.c, strict=True):
        log_z = log_partition(W, b, c)
        values.append(mean_log_likelihood(W, b, c, rows, unit, log_z))
    return {"log_likelihood": np.array(values)}


def weight_norms(snapshots: Trail, context: Context) -> Columns:
    """Frobenius norm of W; mean Euclidean norms of its N rows and of its M columns."""
    squares = snapshots.W.astype(np.float64)
    squares *= squares
    count, n, m = squares.shape
    if n * m <= 100:  # few numbers are summed fastest as a product
        sums = squares.reshape(count, n * m) @ _members(n, m)
    else:
        sums = np.hstack([squares.sum(axis=2), squares.sum(axis=1)])
    norms = np.sqrt(sums)
    return {
        "weight_norm": np.sqrt(sums[:, :n] @ np.ones(n)),
        "weight_row_norm": norms[:, :n] @ np.full(n, 1 / n),
        "weight_column_norm": norms[:, n:] @ np.full(m, 1 / m),
    }


@cache
def _members(n: int, m: int) -> Wide:
    """Which weights (N M,) belong to a row or a column of W (N + M,): 1, else 0."""
    rows, columns = np.divmod(np.arange(n * m)[:, None], m)
    return np.hstack([rows == range(n), columns == range(m)]).astype(np.float64)


@in_pieces
def bias_norms(snapshots: Trail, context: Context) -> Columns:
    """Euclidean norms of b and c, and of the centered machine's biases b + W lam and c
    + W' mu.
    """
    W, b, c = wide(snapshots)
    centered_b = b + (W @ snapshots.lam[:, :, None])[:, :, 0]
    centered_c = c + (snapshots.mu[:, None, :] @ W)[:, 0, :]
    biases = {
        "visible": b,
        "hidden": c,
        "centered_visible": centered_b,
        "centered_hidden": centered_c,
    }
    return {f"{name}_bias_norm": _norm(bias) for name, bias in biases.items()}


def offset_values(snapshots: Trail, context: Context) -> Columns:
    """Offset of the first hidden unit."""
    return {"lam_0": snapshots.lam[:, 0].astype(np.float64)}


@in_pieces
def offset_error(snapshots: Trail, context: Context) -> Columns:
    """Mean absolute difference between the offsets and the exact ones of the scheme.

    Data means are over all training rows, model means over all states.
    """
    rows = context.settings.scheme.rows
    W, b, c = wide(snapshots)
    data = _data_means(W, c, context)
    model = data  # not used, unless the scheme needs a model
    if context.settings.scheme.needs_model:
        moments = exact_moments(W, b, c)
        model = moments.b, moments.c
    columns = {}
    sides = ("visible", snapshots.mu), ("hidden", snapshots.lam)
    for k, (side, offsets) in enumerate(sides):
        # 1/2 is the expectation of noise
        exact = offset_target(rows[k].shares, data[k], model[k], 1 / 2)
        columns[f"{side}_offset_error"] = np.abs(offsets - exact).mean(axis=1)
    return columns


@in_pieces
def gradient_angles(snapshots: Trail, context: Context) -> Columns:
    """Angles in degrees of the exact natural gradient to the exact standard and
    centered ones.
    """
    standard, along_offsets = _exact_gradients(snapshots, context)
    W, b, c = wide(snapshots)
    fisher, damping = _fisher_of(context.settings)
    natural = natural_gradient(W, b, c, standard, fisher=fisher, damping=damping)
    return {
        "angle_natural_standard": _angle(natural, standard),
        "angle_natural_centered": _angle(natural, along_offsets),
    }


@in_pieces
def gradient_norms(snapshots: Trail, context: Context) -> Columns:
    """Euclidean norms of the exact standard and centered gradients."""
    standard, along_offsets = _exact_gradients(snapshots, context)
    return {
        "standard_gradient_norm": _norm(standard.flat()),
        "centered_gradient_norm": _norm(along_offsets.flat()),
    }


@in_pieces
def hidden_activity(snapshots: Trail, context: Context) -> Columns:
    """Mean of the hidden units' activities over the training rows, and the share
    outside [0.05, 0.95].
    """
    W, _, c = wide(snapshots)
    _, activity = _data_means(W, c, context)
    extreme = (activity < EXTREME) | (activity > 1 - EXTREME)
    return {
        "hidden_activity_mean": activity.mean(axis=1),
        "hidden_activity_extreme": extreme.mean(axis=1),
    }


@in_pieces
def reconstruction_error(snapshots: Trail, context: Context) -> Columns:
    """Mean over training rows and units of (x_i - p(x_i = 1 | h = E[h | x]))^2."""
    W, b, c = wide(snapshots)

    def squares(x: Wide) -> Wide:
        h = hidden_mean(x, W, c)
        back = expit(h @ W.swapaxes(1, 2) + b[:, None, :])  # (T, R, N)
        return np.square(x - back).sum(axis=(1, 2))

    errors = mean_over_rows(squares, context.data.train, context.unit)
    return {"reconstruction_error": errors / context.data.width}


@in_pieces
def free_energy_gap(snapshots: Trail, context: Context) -> Columns:
    """Mean free energy of the validation rows minus that of the training rows, in
    nats.
    """
    W, b, c = wide(snapshots)

    def energies(x: Wide) -> Wide:
        return free_energy(x, W, b, c).sum(axis=1)

    parts = context.data.parts
    train = mean_over_rows(energies, parts["train"], context.unit)
    valid = mean_over_rows(energies, parts["valid"], context.unit)
    return {"free_energy_gap": valid - train}


def pseudo_likelihood(snapshots: Trail, context: Context) -> Columns:
    """Mean over training rows of sum_i log p(x_i | all other units of x), in nats."""
    rows, means = context.data.train, []
    for W, b, c in zip(*wide(snapshots), strict=True):
        means.append(pseudo_log_likelihoods(W, b, c, rows, context.unit).mean())
    return {"pseudo_likelihood": np.array(means)}


_FUNCTIONS: dict[str, Recorder] = {
    function.__name__: function
    for function in (
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
        pseudo_likelihood,
    )
}


def wide(snapshots: Trail) -> tuple[Wide, Wide, Wide]:
    """W (T, N, M), b (T, N) and c (T, M) in float64."""
    machine = snapshots.W, snapshots.b, snapshots.c
    W, b, c = (array.astype(np.float64) for array in machine)
    return W, b, c


def _data_means(W: Wide, c: Wide, context: Context) -> tuple[Wide, Wide]:
    """<x>_d (N,) and <h>_d (T, M), over all training rows."""
    rows, unit = context.data.train, context.unit

    def sums(x: Wide) -> Wide:
        return hidden_mean(x, W, c).sum(axis=1)

    x_mean = unit * rows.mean(axis=0, dtype=np.float64)
    return x_mean, mean_over_rows(sums, rows, unit)


def _exact_gradients(
    snapshots: Trail, context: Context
) -> tuple[ByParameter, ByParameter]:
    """The standard and the centered gradient; offsets that are all zero are replaced by
    the data means.
    """
    W, b, c = wide(snapshots)
    mu, lam = snapshots.mu.astype(np.float64), snapshots.lam.astype(np.float64)
    standard = standard_gradient(W, b, c, context.data.train, context.unit)
    bare = ~(mu.any(axis=1, keepdims=True) | lam.any(axis=1, keepdims=True))
    if bare.any():
        x_mean, h_mean = _data_means(W, c, context)
        mu, lam = np.where(bare, x_mean, mu), np.where(bare, h_mean, lam)
    return standard, centered(standard, mu, lam)


def _fisher_of(settings: Settings) -> tuple[str, float]:
    """Fisher matrix of recorders and its damping, from a natural training; else joint
    and 0.
    """
    gradient = settings.gradient
    if gradient.kind != "natural":
        return "joint", 0.0
    return gradient.fisher, gradient.damping


def _angle(first: ByParameter, second: ByParameter) -> Wide:
    """Angle in degrees between two updates of all parameters (T,); NaN if one of them
    is zero.
    """
    u, v = first.flat(), second.flat()
    with np.errstate(invalid="ignore", divide="ignore"):
        cosine = (u * v).sum(axis=1) / (_norm(u) * _norm(v))
    return np.degrees(np.arccos(np.clip(cosine, -1, 1)))


def _norm(vectors: Wide) -> Wide:
    return np.sqrt((vectors * vectors).sum(axis=1))


# Before training, and along the way


def check_recorders(settings: Settings, data: Dataset) -> None:
    """Raise CbmError for recorders of an RBM that do not suit its size, its scheme or
    the data set.

    The user's own recorders are not checked.
    """
    names, n = settings.record.names, data.width
    m = settings.model.hidden_layers(n)[0]
    if "free_energy_gap" in names and data.valid is None:
        message = "free_energy_gap needs a validation part; this data set has none"
        raise CbmError(message, field="record")
    fisher, damping = _fisher_of(settings)
    if "gradient_angles" in names and fisher != "diagonal":
        remedy = "remove gradient_angles"
        limits.check_fisher("record", fisher, damping, n=n, m=m, remedy=remedy)
    summing = {"log_likelihood", "gradient_norms", "gradient_angles"}
    if settings.scheme.needs_model:
        summing.add("offset_error")
    for name in names:
        if name in summing:
            limits.check_smaller_side(
                "record", name, n=n, m=m, limit=limits.SUM_BITS, remedy="remove it"
            )


def record(
    names: Sequence[str],
    snapshots: Trail,
    context: Context,
    own: Mapping[str, Recorder] | None = None,
    flaws: dict[str, str] | None = None,
    expected: Collection[str] | None = None,
) -> Columns:
    """Return the columns (T,) of the named recorders, in the order of the names.

    ``own`` holds the user's recorders by name, see `compile_recorder`. All columns are
    NaN for a snapshot that is not finite. A recorder of the user that fails, that
    returns a column of another one's name, or one that is not among those of earlier
    snapshots (``expected``), gives no columns: ``flaws`` gets the reason, and it is not
    called again.
    """
    own = own or {}
    flaws = {} if flaws is None else flaws
    recorders = {**_FUNCTIONS, **own}
    snapshots, finite = _zeroed(snapshots)
    columns: Columns = {}
    for name in names:
        if name in flaws:
            continue
        try:
            measured = recorders[name](snapshots, context)
            for column in measured:
                if column in columns:
                    flaw = "exists already; rename it"
                elif expected is not None and column not in expected:
                    flaw = "it did not return before"
                else:
                    continue
                message = f"{name} returns a column {column}, which {flaw}"
                raise CbmError(message, field="record")
        except CbmError as error:
            if name not in own or isinstance(error.__cause__, SystemExit):
                raise
            flaws[name] = str(error)
        else:
            columns |= measured
    return {
        column: np.where(finite, values, np.nan) for column, values in columns.items()
    }


def _zeroed(snapshots: Trail) -> tuple[Trail, NDArray[np.bool_]]:
    """The snapshots with zeros in place of a machine that has diverged, so that no
    recorder has to handle it; and which of them are finite, (T,).
    """
    finite = np.ones(len(snapshots.update), bool)
    for array in snapshots[1:]:
        finite &= np.isfinite(array).all(axis=tuple(range(1, array.ndim)))
    if finite.all():
        return snapshots, finite
    zeroed = Trail._make(array.copy() for array in snapshots)
    for array in zeroed[1:]:
        array[~finite] = 0
    return zeroed, finite


class Recording:
    """The records of one trial.

    Snapshots become records in groups of a fixed size, counted from the start of the
    trial. This is fast, and gives the same bytes wherever the trial was stopped.
    """

    def __init__(
        self,
        settings: Settings,
        data: Dataset,
        seed: int,
        own: Mapping[str, Recorder],
        last: int,
    ) -> None:
        self.names, self.own = settings.record.names, own
        self.context = Context(data, settings, seed)
        self.marks = _marks(settings, data, last)
        n, m = self.shape = data.width, settings.model.hidden_layers(data.width)[0]
        self.group = max(1, min(1000, GROUP_BYTES // (4 * (n + 1) * (m + 1))))
        # Of a group; empty without anything to record
        self.buffer = empty_trail(n, m, range(self.group if len(self.marks) else 0))

    def trail(self, now: Progress, last: int) -> tuple[Trail, int]:
        """Return an empty trail for the updates before ``last``, and the end of the
        stretch.

        The stretch ends early where a group is complete.
        """
        if not len(self.marks):
            return self.buffer, last
        waiting = _waiting(now)
        start, stop = np.searchsorted(self.marks, (now.update, last))
        if stop - start > self.group - waiting:
            stop = start + self.group - waiting
            last = int(self.marks[stop])
        updates = self.marks[start:stop]
        if self.own:  # may keep or change the arrays that they get
            n, m = self.shape
            return empty_trail(n, m, updates.tolist()), last
        after = (array[waiting:] for array in self.buffer[1:])  # the pending snapshots
        return Trail(updates, *after), last

    def keep(self, now: Progress, trail: Trail) -> None:
        """Add snapshots to the pending ones, and record complete groups."""
        if not len(trail.update):
            return
        snapshots = trail._asdict()
        if _waiting(now):
            for name, array in now.pending.items():
                snapshots[name] = np.concatenate([array, snapshots[name]])
        now.pending = snapshots
        if _waiting(now) >= self.group:
            self._record(now)

    def finish(self, now: Progress) -> None:
        """Record the final machine if training reached the last update, and all pending
        snapshots.
        """
        if len(self.marks) and self.marks[-1] == now.update:
            # Copies, since a recorder of the user may change its arrays.
            end = (array[None].copy() for array in now.state.machine)
            self.keep(now, Trail(np.array([now.update]), *end))
        if _waiting(now):
            self._record(now)
        now.pending = {}

    def _record(self, now: Progress) -> None:
        """Turn the pending snapshots into records."""
        group = Trail(**now.pending)
        earlier = now.recorded if now.records else None
        columns = record(
            self.names,
            group,
            self.context,
            own=self.own,
            flaws=now.flaws,
            expected=earlier,
        )
        if earlier is None:
            now.recorded = tuple(columns)
        empty = np.full(len(group.update), np.nan)
        values = [columns.get(column, empty) for column in now.recorded]
        now.records.append(np.column_stack([group.update, *values]))
        now.pending = {}


def _waiting(now: Progress) -> int:
    """How many snapshots are not recorded yet."""
    return len(now.pending["update"]) if now.pending else 0


def _marks(settings: Settings, data: Dataset, last: int) -> NDArray[np.int64]:
    """Updates to record, in order: at regular intervals, in windows, and the last
    one.
    """
    how = settings.record
    if not how.names:
        return np.empty(0, np.int64)
    every = updates_of(how.every or settings.every, settings, data)
    updates = [np.arange(0, last + 1, every), np.array([last])]
    for start, stop in how.windows:
        updates.append(np.arange(start, min(stop, last) + 1))
    return np.unique(np.concatenate(updates)).astype(np.int64)
