"""MNIST from its four published files, of which the two of images are read."""

from pathlib import Path

import numpy as np

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.datasets.idx import read_images
from cbm_cli.datasets.places import VARIABLE, find, folders
from cbm_cli.errors import CbmError

_FILES = {"train": "train-images-idx3-ubyte", "test": "t10k-images-idx3-ubyte"}
BINARISE = ("threshold", "sample", "none")
SHAPES = {"train": (60000, 784), "test": (10000, 784)}
"""(rows, width) of the published files."""
SAMPLE_KEY = 1
"""Key of the Philox generator that ``binarise: sample`` draws from."""


def mnist(binarise: str = "threshold", threshold: float = 0.5, data_dir: str | Path | None = None) -> Dataset:
    """Return MNIST, 60,000 training and 10,000 test images of 28 x 28 pixels.

    Parameters
    ----------
    binarise : {'threshold', 'sample', 'none'}
        ``threshold``: a pixel v is on where v / 255 > threshold. ``sample``: on with probability v / 255,
        drawn once for all, the same in every process. ``none``: grey values stay (``levels`` = 255).
    threshold : float
        0 <= threshold < 1.
    data_dir : path, optional
        Folder to look in before ``CBM_DATA_DIR`` and the user's cache.
    """
    if binarise not in BINARISE:
        raise CbmError(f"mnist: binarise {binarise!r} is unknown; write {', '.join(BINARISE)}")
    if not 0 <= threshold < 1:
        raise CbmError(f"mnist: threshold {threshold} is out of range; it is 0 or more and below 1")
    files = image_files(data_dir)
    grey = {part: read_images(file) for part, file in files.items()}
    if grey["train"].shape[1] != grey["test"].shape[1]:
        raise CbmError(f"mnist: the images of {files['train']} and {files['test']} differ in size")
    rng = np.random.Generator(np.random.Philox(key=SAMPLE_KEY))
    parts = {part: _binarise(pixels, binarise, threshold, rng) for part, pixels in grey.items()}
    return Dataset("mnist", **parts, levels=255 if binarise == "none" else 1)


def image_files(data_dir: str | Path | None = None) -> dict[str, Path]:
    """Return the image files of the first folder that has the training images; CbmError without one."""
    tried = folders("mnist", data_dir)
    folder = next((folder for folder in tried if find(folder, _FILES["train"])), None)
    if folder is None:
        raise CbmError(
            f"mnist: found no {_FILES['train']}[.gz] in any of\n"
            + "".join(f"  {place}\n" for place in tried)
            + f"Put it and {_FILES['test']}[.gz] into one of these, or name their folder in {VARIABLE}."
        )
    files = {part: find(folder, stem) for part, stem in _FILES.items()}
    if files["test"] is None:
        raise CbmError(f"mnist: {folder} has the training images but no {_FILES['test']}[.gz]; put it there")
    return files


def _binarise(pixels: np.ndarray, binarise: str, threshold: float, rng: np.random.Generator) -> np.ndarray:
    if binarise == "none":
        return pixels
    if binarise == "sample":  # a number of 0 ... 254 is below v with probability v / 255 exactly
        return (rng.integers(0, 255, pixels.shape, np.uint8) < pixels).view(np.uint8)
    lowest_on = np.count_nonzero(np.arange(256) / 255 <= threshold)
    return (pixels >= lowest_on).view(np.uint8)
