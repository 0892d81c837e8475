"""Whether data sets are there, and what was loaded."""

from pathlib import Path
from typing import Any

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.datasets.published import locate
from cbm_cli.datasets.sources import PUBLISHED
from cbm_cli.errors import CbmError


def available(data: Any, folder: str | Path = "") -> str:
    """Return why a data set cannot be loaded, as far as the existence of its files tells, or ``""``."""
    if data.path is None:
        try:
            if data.name in PUBLISHED:
                locate(data.name)
            return ""
        except CbmError as error:
            return str(error)
    files = [Path(folder, path).expanduser() for path in (data.path, data.valid, data.test) if path]
    missing = [str(file) for file in files if not file.is_file()]
    return f"{data.title}: no file {' or '.join(missing)}" if missing else ""


def describe(data: Any, dataset: Dataset) -> str:
    """Return a line on what was loaded: ``digits.csv: 1,400 rows x 64 units, 12.3% ones``."""
    share = dataset.train.mean() / dataset.levels
    ones = f"{share:.1%} ones" if dataset.levels == 1 else f"grey values, mean {share:.3f}"
    return f"{data.path or dataset.name}: {len(dataset.train):,} rows x {dataset.width} units, {ones}"
