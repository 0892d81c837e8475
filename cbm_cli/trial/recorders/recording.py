"""Recorders by name, applied to a stack of snapshots."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cbm_cli.errors import CbmError
from cbm_cli.trial.recorders.measures import RECORDERS
from cbm_cli.trial.recorders.snapshots import Context, Recorder, Snapshots

TAKEN = ("update", "epoch")  # columns that every file of records has


def record(
    names: Sequence[str],
    snapshots: Snapshots,
    context: Context,
    own: Mapping[str, Recorder] | None = None,
) -> dict[str, NDArray[np.float64]]:
    """Return the columns of the named recorders, in the order of the names.

    Parameters
    ----------
    names : sequence of str
        Of `RECORDERS`, or of ``own``.
    snapshots : Snapshots
    context : Context
    own : mapping, optional
        The user's recorders by name, as `compile_recorder` makes them.

    Returns
    -------
    dict
        Column name -> (T,) float64; NaN in all columns for a snapshot that is not finite.

    Raises
    ------
    CbmError
        Where two recorders give columns of the same name, or a user's one fails.
    """
    recorders = {**RECORDERS, **(own or {})}
    finite = _finite(snapshots)
    # A zero machine stands in for a diverged one, so that no recorder has to think of it.
    usable = snapshots if finite.all() else _with_zeros(snapshots, finite)
    columns: dict[str, NDArray[np.float64]] = {}
    for name in names:
        found = recorders[name](usable, context)
        for column in found:
            if column in columns or column in TAKEN:
                raise CbmError(f"record: {name} gives a column {column}, which is there already; rename it")
        columns |= found
    if finite.all():
        return columns
    return {column: np.where(finite, values, np.nan) for column, values in columns.items()}


def _finite(snapshots: Snapshots) -> NDArray[np.bool_]:
    total = len(snapshots.update)
    if all(np.isfinite(array).all() for array in snapshots[1:]):
        return np.ones(total, bool)
    return np.logical_and.reduce([np.isfinite(a.reshape(total, -1)).all(axis=1) for a in snapshots[1:]])


def _with_zeros(snapshots: Snapshots, finite: NDArray[np.bool_]) -> Snapshots:
    arrays = (np.where(finite.reshape(-1, *[1] * (a.ndim - 1)), a, a.dtype.type(0)) for a in snapshots[1:])
    return Snapshots(snapshots.update, *arrays)
