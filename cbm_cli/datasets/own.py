"""A user's own data, from files of any form that `formats` reads."""

from pathlib import Path

import numpy as np

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.datasets.formats import Table, read, table_of, widened
from cbm_cli.datasets.grey import binarised, check_threshold
from cbm_cli.errors import CbmError


def title_of(path: str) -> str:
    """Return what a data set is called that is read from a file: its name without folder and endings."""
    return Path(path.removesuffix(".gz")).stem


def own(
    files: dict[str, Path],
    name: str,
    *,
    drop_last: bool = False,
    binarise: str = "refuse",
    threshold: float = 0.5,
    width: int | None = None,
) -> Dataset:
    """Return a data set read from files.

    Parameters
    ----------
    files : dict of str to pathlib.Path
        The file of each part; that of ``train`` may hold other parts too (NPZ, MAT).
    drop_last : bool
        Leave the last column out: in AMAT files it is a label.
    binarise : {'refuse', 'threshold', 'sample', 'none'}
        What becomes of values between off and on: numbers from 0 to 1, or, where a part has any above 1,
        whole numbers from 0 to 255. See `cbm_cli.datasets.grey.binarised`; ``refuse``: an error.
    width : int, optional
        Columns that are expected; LIBSVM files may have fewer.

    Raises
    ------
    CbmError
        Files that are missing, damaged or of no known form; parts that differ in width; values that are
        no shares.
    """
    check_threshold(name, threshold)
    tables = _tables(files)
    if drop_last:
        tables = {part: _without_last(where, table) for part, (where, table) in tables.items()}
    tables = _of_one_width(tables, width or 0)
    binary = all(table.values.dtype == np.uint8 and table.values.max() <= 1 for _, table in tables.values())
    parts = {part: table.values for part, (_, table) in tables.items()}
    if not binary:
        if binarise == "refuse":
            raise CbmError(_first_grey(tables))
        parts = binarised(_grey(tables), binarise, threshold)
    image = tables["train"][1].image
    return Dataset(name, **parts, levels=255 if binarise == "none" and not binary else 1, image=image)


_Tables = dict[str, tuple[str, Table]]  # part -> where its rows come from, the rows


def _tables(files: dict[str, Path]) -> _Tables:
    tables: _Tables = {}
    for part, path in files.items():
        found = read(path)
        if part not in found and "" not in found:
            raise CbmError(f"{path}: has no {part} part; it has {', '.join(found)}")
        named = {part: found[""]} if "" in found else found if part == "train" else {part: found[part]}
        for name, table in named.items():
            if name in tables:
                raise CbmError(
                    f"{path}: the {name} part is in {tables[name][0]} already; leave one of them out"
                )
            tables[name] = (f"{path} ({name})" if len(named) > 1 else str(path), table)
    return tables


def _without_last(where: str, table: Table) -> tuple[str, Table]:
    if table.sparse:
        raise CbmError(f"{where}: LIBSVM keeps labels apart from the columns; leave drop_last out")
    if table.values.shape[1] < 2:
        raise CbmError(f"{where}: has a single column; drop_last leaves nothing")
    return where, table_of(where, table.values[:, :-1])


def _of_one_width(tables: _Tables, width: int) -> _Tables:
    widest = max(width, *(table.values.shape[1] for _, table in tables.values()))
    tables = {part: (where, widened(table, widest)) for part, (where, table) in tables.items()}
    first, train = tables["train"]
    for where, table in tables.values():
        if table.values.shape[1] != train.values.shape[1]:
            raise CbmError(
                f"{where}: has {table.values.shape[1]} columns, {first} has {train.values.shape[1]}; "
                "all parts of a data set need the same"
            )
    return tables


def _grey(tables: _Tables) -> dict[str, np.ndarray]:
    """Return values as bytes of which 255 is on, or, where no part has any above 1, as floats up to 1."""
    top = max(table.values.max() for _, table in tables.values())
    for where, table in tables.values():
        odd = table.values < 0
        if top > 1:
            odd |= (table.values > 255) | (table.values % 1 != 0)
        if odd.any():
            raise CbmError(f"{_place(where, table, odd)}; grey values are 0 to 1, or whole numbers 0 to 255")
    kind = np.uint8 if top > 1 else np.float64
    return {part: table.values.astype(kind, copy=False) for part, (_, table) in tables.items()}


def _first_grey(tables: _Tables) -> str:
    flaws = ((where, table, (table.values != 0) & (table.values != 1)) for where, table in tables.values())
    place = next(_place(where, table, odd) for where, table, odd in flaws if odd.any())
    return f"{place}; expected 0 or 1 (binarise: threshold, sample or none says what becomes of grey values)"


def _place(where: str, table: Table, odd: np.ndarray) -> str:
    row, column = np.argwhere(odd)[0]
    return f"{where}: row {row + 1}, column {column + 1} is {table.values[row, column]:g}"
