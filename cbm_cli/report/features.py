"""Pictures of what a machine has learned: its filters, and how active its hidden units are."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from cbm_cli.report.curves import METADATA, OTHER_COLOURS
from cbm_cli.results.files import write_atomically


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
    for layer, (values, colour) in enumerate(zip(means, _colours(len(means)), strict=True), 1):
        share = (np.arange(len(values)) + 0.5) / len(values)
        axes.plot(share, np.sort(values)[::-1], color=colour, linewidth=1.8, label=f"layer {layer}")
    if balanced:
        axes.set_ylim(-0.02, 1.02)
        for end in balanced:
            axes.axhline(end, color="#777777", linewidth=0.8, linestyle=(0, (2, 2)), zorder=0)
    _label(axes)
    stream = io.BytesIO()
    figure.savefig(stream, dpi=160, format="png", metadata=METADATA[".png"])
    write_atomically(path, stream.getvalue())


def _colours(count: int) -> list[str]:
    return [OTHER_COLOURS[i % len(OTHER_COLOURS)] for i in range(count)]


def _label(axes: Axes) -> None:
    axes.set_xlim(0, 1)
    axes.set_xlabel("share of the layer's units, the most active first", fontsize=10)
    axes.set_ylabel("mean activity", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8.5, color="#777777")
    if len(axes.lines) > 1:
        axes.legend(frameon=False, fontsize=10)
