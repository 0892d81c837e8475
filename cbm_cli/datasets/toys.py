"""The two generated benchmarks; Melchior, Fischer & Wiskott, "Benchmark Problems"."""

from math import log

import numpy as np

from cbm_cli.datasets.dataset import Dataset, Image


def bars_and_stripes(size: int) -> Dataset:
    """Return all patterns of D x D pixels with uniform rows, or with uniform columns
    (MacKay 2003).

    ``size`` is D. The 2^D patterns with uniform rows come first, then those with
    uniform columns: 2^(D+1) in all, the two uniform patterns twice. The best model
    gives these 2 / 2^(D+1), every other one half of it.

    Examples
    --------
    >>> bars_and_stripes(2).train.tolist()[:3]
    [[0, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1]]
    """
    states = np.arange(2**size)[:, None]
    lines = ((states >> np.arange(size)) & 1).astype(np.uint8)  # (2^D, D)
    of_rows, of_columns = np.repeat(lines, size, axis=1), np.tile(lines, (1, size))
    patterns = np.concatenate([of_rows, of_columns])
    n = len(patterns)
    bound = ((n - 4) * log(1 / n) + 4 * log(2 / n)) / n
    return Dataset(
        "bars-and-stripes", patterns, upper_bound=bound, image=Image(size, size)
    )


def shifting_bar(size: int, bar: int) -> Dataset:
    """Return the ``size`` patterns in which a bar of ``bar`` pixels starts at each
    pixel and wraps around.

    Examples
    --------
    >>> shifting_bar(3, 1).train.tolist()
    [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    """
    start, pixel = np.ogrid[:size, :size]
    rows = ((pixel - start) % size < bar).astype(np.uint8)
    return Dataset(
        "shifting-bar", rows, upper_bound=log(1 / size), image=Image(1, size)
    )
