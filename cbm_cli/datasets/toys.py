"""The two generated benchmarks; Melchior, Fischer & Wiskott, "Benchmark Problems"."""

from math import log

import numpy as np

from cbm_cli.datasets.dataset import Dataset, Image
from cbm_cli.errors import CbmError

MAX_SIDE = 10
MAX_PIXELS = 4096


def bars_and_stripes(size: int) -> Dataset:
    """Return all patterns of D x D pixels whose rows, or whose columns, are uniform (MacKay 2003).

    The 2^D patterns of rows come first, then those of columns: 2^(D+1) rows in all, the two uniform
    patterns among them twice. The best model gives these 2 / 2^(D+1) and every other one half of that.

    Parameters
    ----------
    size : int
        D, the side of the square, 1 to 10.
    """
    if not 1 <= size <= MAX_SIDE:
        raise CbmError(
            f"bars-and-stripes: size {size} is out of range; it is the side of the square, 1 to {MAX_SIDE} "
            f"(side {MAX_SIDE} has {2 ** (MAX_SIDE + 1)} rows already)"
        )
    bits = ((np.arange(2**size)[:, None] >> np.arange(size)) & 1).astype(np.uint8)  # (2^D, D)
    rows = np.concatenate([np.repeat(bits, size, axis=1), np.tile(bits, (1, size))])
    n = len(rows)
    bound = ((n - 4) * log(1 / n) + 4 * log(2 / n)) / n
    return Dataset("bars-and-stripes", rows, upper_bound=bound, image=Image(size, size))


def shifting_bar(size: int, bar: int) -> Dataset:
    """Return the N patterns in which a bar of B pixels starts at pixel 0, ..., N - 1 and wraps around.

    Parameters
    ----------
    size : int
        N, the number of pixels, 2 to 4096.
    bar : int
        B, the number of pixels that are on, 0 < B < N.
    """
    if not 2 <= size <= MAX_PIXELS:
        raise CbmError(
            f"shifting-bar: size {size} is out of range; it is the number of pixels, 2 to {MAX_PIXELS}"
        )
    if not 0 < bar < size:
        raise CbmError(
            f"shifting-bar: bar {bar} does not fit; it is the number of pixels on, 1 to {size - 1}"
        )
    start, pixel = np.ogrid[:size, :size]
    rows = ((pixel - start) % size < bar).astype(np.uint8)
    return Dataset("shifting-bar", rows, upper_bound=log(1 / size))
