"""Data sets that all worker processes of a computer read from one file."""

import mmap
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cbm_cli.datasets.dataset import Dataset

LARGE = 1 << 20  # bytes of rows that are worth a file
_LINE = 64  # bytes of a line of the processor's cache, at which parts begin
_folders: set[Path] = set()  # of files that this process has opened


@dataclass(frozen=True)
class SharedDataset:
    """A data set whose rows are in a file.

    Attributes
    ----------
    path : Path
        The file, in a folder of its own.
    digest : str
        `Dataset.digest`.
    frame : Dataset
        Everything but the rows.
    places : dict
        By name of a part, where it starts and its shape.
    """

    path: Path
    digest: str
    frame: Dataset
    places: dict[str, tuple[int, tuple[int, int]]]

    def opened(self) -> Dataset:
        """Return the data set; its rows are read-only, and processes share their
        memory.
        """
        with self.path.open("rb") as stream:
            memory = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        _folders.add(self.path.parent)
        parts: dict[str, Any] = {}
        for name, (start, shape) in self.places.items():
            size = shape[0] * shape[1]
            rows = np.frombuffer(memory, np.uint8, count=size, offset=start)
            parts[name] = rows.reshape(shape)
        data = replace(self.frame, **parts)
        data.__dict__["digest"] = self.digest  # without reading all rows for it
        return data


def shared(data: Dataset) -> Dataset | SharedDataset:
    """Return what to send to workers: a large data set is in a file, for all of them.

    Where no file can be written each worker gets a copy.
    """
    if sum(rows.nbytes for rows in data.parts.values()) < LARGE:
        return data
    folder = None
    try:
        folder = Path(tempfile.mkdtemp(prefix="cbm-rows-"))
        return _written(data, folder / "rows")
    except OSError:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
        return data


def _written(data: Dataset, path: Path) -> SharedDataset:
    places = {}
    with path.open("xb") as stream:
        for name, rows in data.parts.items():
            start = stream.tell() + -stream.tell() % _LINE
            stream.seek(start)
            stream.write(rows.data)
            places[name] = start, rows.shape
    frame = replace(data, train=data.train[:0], valid=None, test=None)
    return SharedDataset(path=path, digest=data.digest, frame=frame, places=places)


def remove(data: SharedDataset) -> None:
    """Remove the file of a shared data set; who has opened it can still read it."""
    shutil.rmtree(data.path.parent, ignore_errors=True)


def remove_opened() -> None:
    """Remove the files of all data sets that this process has opened.

    A worker does so whose coordinator was killed.
    """
    for folder in _folders:
        shutil.rmtree(folder, ignore_errors=True)
