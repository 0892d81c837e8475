"""What becomes of grey values: units are binary, or probabilities in steps of 1/255."""

import numpy as np

from cbm_cli.errors import CbmError

BINARISE = ("threshold", "sample", "none", "refuse")
SAMPLE_KEY = 1
"""Key of the Philox generator that ``binarise: sample`` draws from."""


def check_threshold(title: str, threshold: float) -> None:
    """Raise CbmError unless the threshold is one that separates grey values."""
    if not 0 <= threshold < 1:
        raise CbmError(f"{title}: threshold {threshold} is out of range; it is 0 or more and below 1")


def binarised(parts: dict[str, np.ndarray], binarise: str, threshold: float) -> dict[str, np.ndarray]:
    """Return the grey values of all parts as uint8.

    Parameters
    ----------
    parts : dict of str to numpy.ndarray
        uint8, of which 255 is on; or floats from 0 to 1.
    binarise : {'threshold', 'sample', 'none'}
        ``threshold``: on where the value (of 255: v / 255) > threshold. ``sample``: on with that
        probability, drawn once for all, the same in every process. ``none``: in steps of 1/255.
    """
    rng = np.random.Generator(np.random.Philox(key=SAMPLE_KEY))
    return {part: _binarised(grey, binarise, threshold, rng) for part, grey in parts.items()}


def _binarised(grey: np.ndarray, binarise: str, threshold: float, rng: np.random.Generator) -> np.ndarray:
    in_bytes = grey.dtype == np.uint8
    if binarise == "none":
        return grey if in_bytes else np.rint(grey * 255).astype(np.uint8)
    if binarise == "sample":  # a number of 0 ... 254 is below v with probability v / 255 exactly
        draws = rng.integers(0, 255, grey.shape, np.uint8) if in_bytes else rng.random(grey.shape)
        return (draws < grey).view(np.uint8)
    if in_bytes:
        lowest_on = np.count_nonzero(np.arange(256) / 255 <= threshold)
        return (grey >= lowest_on).view(np.uint8)
    return (grey > threshold).view(np.uint8)
