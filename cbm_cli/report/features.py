"""Pictures of what a machine has learned: its filters, and how active its hidden units are."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from cbm_cli.report.curves import METADATA, OTHER_COLOURS
from cbm_cli.report.tiles import write_tile
from cbm_cli.results.files import write_atomically


def write_filter_tile(path: Path, rows: NDArray, shape: tuple[int, int], by_columns: bool = False) -> None:
    """Draw filters (n, H * W) as a PNG, white where a unit is excited and black where it is inhibited.

    Each is normalised by itself, as in the paper's Fig. 15. Filters that are no pictures, of height 1, lie
    line under line without gaps.
    """
    values = normalised(rows)
    if shape[0] == 1:
        values, shape = values.reshape(1, -1), values.shape
    write_tile(path, values, shape, by_columns)


def normalised(rows: NDArray) -> NDArray:
    """Each row (n, N) divided by its largest absolute value and moved to [0, 1]: zero becomes one half."""
    largest = np.abs(rows).max(axis=1, keepdims=True)
    return 0.5 + 0.5 * np.divide(rows, largest, out=np.zeros_like(rows), where=largest > 0)


def write_activity_curves(path: Path, means: Sequence[NDArray], balanced: tuple[float, float] | None) -> None:
    """Draw the decreasingly ordered mean activity of each layer's units as a PNG (the paper's Fig. 16).

    Parameters
    ----------
    path : Path
    means : sequence of (n_l,)
        Mean activity of each unit, layer by layer.
    balanced : (float, float), optional
        Ends of the range in which a probability is balanced; activities are no probabilities without.
    """
    figure = Figure(figsize=(5.4, 3.4), layout="constrained")
    axes = figure.subplots()
    for i, values in enumerate(means):
        look = {"color": OTHER_COLOURS[i % len(OTHER_COLOURS)], "linewidth": 1.8, "label": f"layer {i + 1}"}
        axes.stairs(np.sort(values)[::-1], np.linspace(0, 1, len(values) + 1), baseline=None, **look)
    if balanced:
        axes.set_ylim(-0.02, 1.02)
        for end in balanced:
            axes.axhline(end, color="#777777", linewidth=0.8, linestyle=(0, (2, 2)), zorder=0)
    _label(axes)
    if len(means) > 1:
        axes.legend(frameon=False, fontsize=10)
    stream = io.BytesIO()
    figure.savefig(stream, dpi=160, format="png", metadata=METADATA[".png"])
    write_atomically(path, stream.getvalue())


def _label(axes: Axes) -> None:
    axes.set_xlim(0, 1)
    axes.set_xlabel("share of the layer's units, the most active first", fontsize=10)
    axes.set_ylabel("mean activity", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8.5, color="#777777")
