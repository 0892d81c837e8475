"""Rows of a machine as pictures, side by side in one."""

import io
import math
import re
from pathlib import Path

import numpy as np
from matplotlib import image
from numpy.typing import NDArray

from cbm_cli.errors import CbmError
from cbm_cli.results.files import write_atomically

MOST = 2_500  # pictures of a tile
GAP = 0.35  # grey between pictures
SIDE = 600  # pixels that the longer side of a tile has at least


def parse_shape(text: str | None, width: int) -> tuple[int, int]:
    """Height and width of a row of ``width`` values as a picture.

    ``text`` is ``HxW``; without it, a picture is square where it can be, else a line.

    Raises
    ------
    CbmError
        When the text is no shape, or one of another number of pixels.
    """
    if text is None:
        side = math.isqrt(width)
        return (side, side) if side**2 == width else (1, width)
    match = re.fullmatch(r"(\d{1,9})x(\d{1,9})", text)
    if match is None:
        raise CbmError(f"--shape {text}: write HxW, height and width in pixels, such as 28x28")
    height, across = map(int, match.groups())
    if height * across != width:
        raise CbmError(f"--shape {text}: has {height * across} pixels, the machine {width} visible units")
    return height, across


def write_tile(path: Path, rows: NDArray, shape: tuple[int, int], by_columns: bool = False) -> None:
    """Write rows (n, H * W) of values from 0, black, to 1, white, as a PNG: the first 2,500 of them.

    ``by_columns``: a row goes down the columns of its picture.
    """
    height, width = shape
    pictures = rows[:MOST].reshape(-1, width, height).swapaxes(1, 2) if by_columns else rows[:MOST]
    picture = tile(pictures.reshape(-1, height, width))
    enlarged = np.kron(picture, np.ones((max(1, -(-SIDE // max(picture.shape))),) * 2))
    stream = io.BytesIO()
    image.imsave(stream, enlarged, format="png", cmap="gray", vmin=0, vmax=1, metadata={"Software": None})
    write_atomically(path, stream.getvalue())


def tile(pictures: NDArray) -> NDArray[np.float64]:
    """Lay pictures (n, H, W) out line by line about square, a pixel of grey around each."""
    n, height, width = pictures.shape
    across = min(n, max(1, round(math.sqrt(n * (height + 1) / (width + 1)))))
    down = -(-n // across)
    cells = np.full((down * across, height + 1, width + 1), GAP)
    cells[:n, 1:, 1:] = pictures
    lines = cells.reshape(down, across, height + 1, width + 1).swapaxes(1, 2)
    return np.pad(
        lines.reshape(down * (height + 1), across * (width + 1)), ((0, 1), (0, 1)), constant_values=GAP
    )
