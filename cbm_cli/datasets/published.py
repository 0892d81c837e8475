"""Published data sets from their files, and the two that stand in for what is not to be had."""

from pathlib import Path

import numpy as np

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.datasets.formats import Table, read
from cbm_cli.datasets.places import VARIABLE, find, folders
from cbm_cli.datasets.sources import PUBLISHED, STAND_INS
from cbm_cli.errors import CbmError

SHUFFLE_KEY = 1
"""Key of the Philox generator that divides the rows of ``web-reshuffled``."""


def locate(name: str, data_dir: str | Path | None = None) -> dict[str, Path]:
    """Return the file of each part from the first folder that has all of one form; CbmError without one."""
    published = PUBLISHED[name]
    tried = folders(name, data_dir, published.folder)
    for folder in tried:
        for form in published.forms:
            found = {part: find(folder, file.stem) for part, file in form.items()}
            if all(found.values()):
                return found
    raise CbmError(_missing(name, tried))


def published(name: str, data_dir: str | Path | None = None) -> Dataset:
    """Return a published binary data set in its published parts.

    Raises
    ------
    CbmError
        Files are missing, damaged, or hold another number of rows or columns than was published.
    """
    return _dataset(name, _rows(name, locate(name, data_dir)))


def rcv1_valid(data_dir: str | Path | None = None) -> Dataset:
    """Return the published validation part of rcv1, split 8,000 / 1,000 / 1,000 by position."""
    rows = _rows("rcv1-valid", locate("rcv1-valid", data_dir))["valid"]
    return _dataset("rcv1-valid", {"train": rows[:8000], "valid": rows[8000:9000], "test": rows[9000:]})


def web_reshuffled(data_dir: str | Path | None = None) -> Dataset:
    """Return web with its training and validation rows divided anew.

    The rows are shuffled by ``Generator(Philox(key=1)).permutation``; the first 14,000 are for training.
    """
    rows = _rows("web-reshuffled", locate("web-reshuffled", data_dir))
    mixed = rows["trainvalid"]
    mixed = mixed[np.random.Generator(np.random.Philox(key=SHUFFLE_KEY)).permutation(len(mixed))]
    return _dataset("web-reshuffled", {"train": mixed[:14000], "valid": mixed[14000:], "test": rows["test"]})


def _rows(name: str, files: dict[str, Path]) -> dict[str, np.ndarray]:
    """Return the zeros and ones of each part; one file may hold several."""
    tables = {path: read(path) for path in dict.fromkeys(files.values())}
    return {part: _binary(name, path, _part_of(path, tables[path], part)) for part, path in files.items()}


def _part_of(path: Path, tables: dict[str, Table], part: str) -> Table:
    if part not in tables and "" not in tables:
        raise CbmError(f"{path}: has no {part} part; get the file again")
    return tables.get(part) or tables[""]


def _binary(name: str, path: Path, table: Table) -> np.ndarray:
    if table.values.max() > 1 or table.values.dtype != np.uint8:
        raise CbmError(f"{path}: holds more than zeros and ones; `cbm data fetch {name}` gets it again")
    return table.values


def _dataset(name: str, parts: dict[str, np.ndarray]) -> Dataset:
    for part, shape in PUBLISHED[name].shapes.items():
        if parts[part].shape != shape:
            raise CbmError(
                f"{name}: {part} has {_size(parts[part].shape)} here, but {_size(shape)} as published; "
                f"`cbm data verify {name}` names the file that is wrong"
            )
    parts = {part: np.ascontiguousarray(rows) for part, rows in parts.items()}
    return Dataset(name, **parts, image=PUBLISHED[name].image)


def _size(shape: tuple[int, ...]) -> str:
    return f"{shape[0]:,} rows of {shape[1]}"


def _missing(name: str, tried: list[Path]) -> str:
    stems = dict.fromkeys(file.stem for file in PUBLISHED[name].forms[0].values())
    begun = next((folder for folder in tried if any(find(folder, stem) for stem in stems)), None)
    lacking = [stem for stem in stems if not (begun and find(begun, stem))]
    words = ", ".join(stem if stem.endswith((".mat", ".npz")) else f"{stem}[.gz]" for stem in lacking)
    if begun:
        text = f"{name}: {begun} has no {words}; `cbm data fetch {name}` gets it, or put it there."
    else:
        text = f"{name}: found no {words} in any of\n" + "".join(f"  {place}\n" for place in tried)
        text += (
            f"`cbm data fetch {name}` gets it; or put it into one of these, or name its folder in {VARIABLE}."
        )
    if name in STAND_INS:
        text += f"\n{STAND_INS[name]} stands in for it: {PUBLISHED[STAND_INS[name]].remark}"
    return text
