"""What a recorder is given, and how a long stack of snapshots is worked off."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli.datasets import Dataset
from cbm_cli.grid.settings import Settings

SCRATCH = 2**17  # numbers that a piece of a stack keeps at hand: a megabyte, near the cache


class Snapshots(NamedTuple):
    """T machines of one training, each as it is before an update.

    Attributes
    ----------
    update : (T,) int64
        Numbers of the updates.
    W, b, c : (T, N, M), (T, N), (T, M)
        The plain machine, whatever the offsets: E(x, h) = -x'b - c'h - x'W h; float32.
    mu, lam : (T, N), (T, M)
        Visible and hidden offsets with which the step of that update is made.
    """

    update: NDArray[np.int64]
    W: NDArray
    b: NDArray
    c: NDArray
    mu: NDArray
    lam: NDArray

    def wide(self) -> tuple[NDArray[np.float64], ...]:
        """W, b, c in float64."""
        return tuple(array.astype(np.float64) for array in self[1:4])


@dataclass(frozen=True)
class Context:
    """What a recorder may look at beside the snapshots.

    Attributes
    ----------
    data : Dataset
    settings : Settings
    units : tuple of int
        Hidden units, counted from 0, whose offsets ``offset_values`` shows.
    seed : int
        The trial's, for recorders that draw random numbers.
    """

    data: Dataset
    settings: Settings
    units: tuple[int, ...]
    seed: int

    @property
    def unit(self) -> float:
        """Value of one level of the data: 1, or 1/255 for grey values."""
        return 1 / self.data.levels


Recorder = Callable[[Snapshots, Context], dict[str, NDArray[np.float64]]]
"""Column name -> (T,) values."""


def piecewise(scratch: Callable[[int, int, int], int]) -> Callable[[Recorder], Recorder]:
    """Let a recorder see a stack piece by piece, so that its memory does not grow with the stack.

    ``scratch(N, M, rows)`` is about how many numbers it needs at once for one snapshot.
    """

    def decorate(recorder: Recorder) -> Recorder:
        @wraps(recorder)
        def whole(snapshots: Snapshots, context: Context) -> dict[str, NDArray[np.float64]]:
            size = max(1, SCRATCH // scratch(*snapshots.W.shape[1:], len(context.data.train)))
            starts = range(0, max(1, len(snapshots.update)), size)
            pieces = [Snapshots(*(array[start : start + size] for array in snapshots)) for start in starts]
            found = [recorder(piece, context) for piece in pieces]
            return {column: np.concatenate([part[column] for part in found]) for column in found[0]}

        return whole

    return decorate
