"""Data sets that all worker processes of a computer read from one file."""

import mmap
import os
import pickle
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cbm_cli.datasets.dataset import Dataset

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
    pickled : bytes
        Everything but the rows.
    places : list of slice
        Where the rows of each part are in the file.
    """

    path: Path
    digest: str
    pickled: bytes
    places: list[slice]

    def opened(self) -> Dataset:
        """Return the data set; its rows are read-only, and processes share their
        memory.
        """
        with self.path.open("rb") as stream:
            memory = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        _folders.add(self.path.parent)
        rows = map(memoryview(memory).__getitem__, self.places)
        data: Dataset = pickle.loads(self.pickled, buffers=rows)
        data.__dict__["digest"] = self.digest  # without reading all rows for it
        return data


def shared(data: Dataset) -> Dataset | SharedDataset:
    """Return what to send to workers: the data set in a file, for all of them.

    Where no file can be written each worker gets a copy.
    """
    folder = None
    try:
        folder = Path(tempfile.mkdtemp(prefix="cbm-rows-"))
        return _written(data, folder / "rows")
    except OSError:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
        return data


def _written(data: Dataset, path: Path) -> SharedDataset:
    rows: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(data, protocol=5, buffer_callback=rows.append)
    places = []
    with path.open("xb") as stream:
        for part in rows:
            start = stream.seek(-stream.tell() % _LINE, os.SEEK_CUR)
            stream.write(part.raw())
            places.append(slice(start, stream.tell()))
    return SharedDataset(path=path, digest=data.digest, pickled=pickled, places=places)


def remove(data: SharedDataset) -> None:
    """Remove the file of a shared data set; who has opened it can still read it."""
    shutil.rmtree(data.path.parent, ignore_errors=True)


def remove_opened() -> None:
    """Remove the files of all data sets that this process has opened.

    A worker does so whose coordinator was killed.
    """
    for folder in _folders:
        shutil.rmtree(folder, ignore_errors=True)
