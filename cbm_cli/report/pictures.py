"""Pictures of what a machine has learned: samples, filters, and the activity of its hidden units."""

import io
import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import image
from matplotlib.figure import Figure
from numpy.typing import NDArray

from cbm_cli.errors import CbmError
from cbm_cli.report.style import METADATA, OTHER_COLOURS, own_style, plain_axes
from cbm_cli.results.writing import write_atomically

MOST = 2_500  # pictures of a tile
GAP = 0.35  # grey between pictures
SIDE = 600  # pixels: the longer side of a tile has at least so many


def parse_shape(text: str | None, width: int) -> tuple[int, int]:
    """Return height and width of a row of ``width`` values as a picture.

    ``text`` is ``HxW``; without it, a picture is square where it can be, else a line.
    """
    if text is None:
        side = math.isqrt(width)
        return (side, side) if side**2 == width else (1, width)
    match = re.fullmatch(r"(\d{1,9})x(\d{1,9})", text)
    if match is None:
        raise CbmError(f"--shape {text}: write HxW, height and width in pixels, such as 28x28")
    height, across = map(int, match.groups())
    if height * across != width:
        said = f"--shape {text}: has {height * across} pixels, the machine {width} visible units"
        raise CbmError(said, "unsuited")
    return height, across


@own_style()
def write_tile(path: Path, rows: NDArray, shape: tuple[int, int], by_columns: bool = False) -> None:
    """Write rows (n, H * W) of values from 0, black, to 1, white, as a PNG: the first 2,500 of them.

    ``by_columns``: a row goes down the columns of its picture.
    """
    height, width = shape
    pictures = rows[:MOST].reshape(-1, width, height).swapaxes(1, 2) if by_columns else rows[:MOST]
    picture = tile(pictures.reshape(-1, height, width))
    enlarged = np.kron(picture, np.ones((max(1, -(-SIDE // max(picture.shape))),) * 2))
    stream = io.BytesIO()
    image.imsave(stream, enlarged, format="png", cmap="gray", vmin=0, vmax=1, metadata=METADATA[".png"])
    write_atomically(path, stream.getvalue())


def tile(pictures: NDArray) -> NDArray[np.float64]:
    """Arrange pictures (n, H, W) line by line in about a square, with one pixel of grey around each."""
    n, height, width = pictures.shape
    across = min(n, max(1, round(math.sqrt(n * (height + 1) / (width + 1)))))
    down = -(-n // across)
    cells = np.full((down * across, height + 1, width + 1), GAP)
    cells[:n, 1:, 1:] = pictures
    lines = cells.reshape(down, across, height + 1, width + 1).swapaxes(1, 2)
    return np.pad(lines.reshape(down * (height + 1), -1), ((0, 1), (0, 1)), constant_values=GAP)


def write_filter_tile(path: Path, rows: NDArray, shape: tuple[int, int], by_columns: bool = False) -> None:
    """Draw filters (n, H * W) as a PNG, white where a unit is excited and black where it is inhibited.

    Each filter is normalised by itself, as in the paper's Fig. 15. Filters of height 1 are no pictures: they
    are stacked without gaps.
    """
    values = normalised(rows)
    if shape[0] == 1:
        values, shape = values.reshape(1, -1), values.shape
    write_tile(path, values, shape, by_columns)


def normalised(rows: NDArray) -> NDArray:
    """Divide each row (n, N) by its largest absolute value and move it to [0, 1]: zero becomes one half."""
    largest = np.abs(rows).max(axis=1, keepdims=True)
    return 0.5 + 0.5 * np.divide(rows, largest, out=np.zeros_like(rows), where=largest > 0)


@own_style()
def write_activity_curves(path: Path, means: Sequence[NDArray], balanced: tuple[float, float] | None) -> None:
    """Draw the mean activity of each layer's units, in decreasing order, as a PNG (the paper's Fig. 16).

    ``balanced``: ends of the range in which a probability is balanced; None where activities are none.
    """
    figure = Figure(figsize=(5.4, 3.4), layout="constrained")
    axes = figure.subplots()
    for i, values in enumerate(means):
        colour, edges = OTHER_COLOURS[i % len(OTHER_COLOURS)], np.linspace(0, 1, len(values) + 1)
        heights, label = np.sort(values)[::-1], f"layer {i + 1}"
        axes.stairs(heights, edges, baseline=None, color=colour, linewidth=1.8, label=label)
    if balanced:
        axes.set_ylim(-0.02, 1.02)
        for end in balanced:
            axes.axhline(end, color="#777777", linewidth=0.8, linestyle=(0, (2, 2)), zorder=0)
    axes.set_xlim(0, 1)
    axes.set_xlabel("share of the layer's units, the most active first", fontsize=10)
    axes.set_ylabel("mean activity", fontsize=10)
    plain_axes(axes)
    if len(means) > 1:
        axes.legend(frameon=False, fontsize=10)
    stream = io.BytesIO()
    figure.savefig(stream, dpi=160, format="png", metadata=METADATA[".png"])
    write_atomically(path, stream.getvalue())
