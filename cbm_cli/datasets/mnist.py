"""MNIST from its four published files, of which the two of images are read."""

from pathlib import Path

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.datasets.grey import BINARISE, binarised, check_threshold
from cbm_cli.datasets.idx import read_images
from cbm_cli.datasets.published import locate
from cbm_cli.datasets.sources import PUBLISHED
from cbm_cli.errors import CbmError

_WAYS = tuple(way for way in BINARISE if way != "refuse")


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
    if binarise not in _WAYS:
        raise CbmError(f"mnist: binarise {binarise!r} is unknown; write {', '.join(_WAYS)}")
    check_threshold("mnist", threshold)
    files = locate("mnist", data_dir)
    grey = {part: read_images(file) for part, file in files.items()}
    if grey["train"].shape[1] != grey["test"].shape[1]:
        raise CbmError(f"mnist: the images of {files['train']} and {files['test']} differ in size")
    image = PUBLISHED["mnist"].image
    levels = 255 if binarise == "none" else 1
    image = image if grey["train"].shape[1] == image.height * image.width else None
    return Dataset("mnist", **binarised(grey, binarise, threshold), levels=levels, image=image)
