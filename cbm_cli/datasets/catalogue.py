"""Loading data sets, by name or from files, and what is known of each without loading it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from os.path import isfile
from pathlib import Path
from typing import Any

import numpy as np

from cbm_cli.datasets.dataset import PARTS, DataError, Dataset
from cbm_cli.datasets.fetching import Checked, check_files
from cbm_cli.datasets.formats import read_tables
from cbm_cli.datasets.grey import binarised, read_own
from cbm_cli.datasets.sources import SOURCES, DataSource
from cbm_cli.datasets.spec import DataSpec, make_spec
from cbm_cli.datasets.toys import bars_and_stripes, shifting_bar
from cbm_cli.text import count

_TOYS: dict[str | None, Any] = {"bars-and-stripes": bars_and_stripes, "shifting-bar": shifting_bar}


def load(data: DataSpec | str | None = None, /, *, folder: str | Path = "", **options: Any) -> Dataset:
    """Return a data set to train on, given with its options, or by name and fields of `DataSpec`.

    Paths are relative to ``folder``. DataError for options that do not fit, files that are missing or
    damaged, and a training part of one value only.
    """
    spec = data if isinstance(data, DataSpec) else make_spec(**options | ({"name": data} if data else {}))
    dataset = _load(spec, folder, None)
    if dataset.train.min() == dataset.train.max():
        raise DataError(
            f"{spec.path or dataset.name}: all values of the training part are {dataset.train.max()}; "
            "there is nothing to learn from constant data",
            "path" if spec.path else "name",
            "unsuited",
        )
    return dataset


def load_again(data: DataSpec, manifest: Mapping[str, Any]) -> Dataset:
    """Return the data set that trials have used; DataError without its files, or if its rows are others.

    ``manifest`` is that of the trials, with the folder of the grid and the digests of the rows.
    """
    there = "name the folder that holds it by --data"
    try:
        found = load(data, folder=manifest.get("grid_folder", ""))
    except DataError as error:
        told = f"{error}; {there}" if data.path and "missing" in error.kinds else str(error)
        raise DataError(told, error.field, *error.kinds) from None
    if found.digest not in manifest.get("digests", {}).get(data.title, [found.digest]):
        told = f"{data.title}: has other rows than those of its trials; {there}"
        raise DataError(f"{manifest['experiment']}: {told}", "path", "changed")
    return found


def load_source(source: str, width: int | None = None) -> Dataset:
    """Return all parts of the data set that a command line names.

    ``source`` is a data set with its options, as ``mnist`` or ``shifting-bar:size=9,bar=1,flip=true``, or a
    file, as ``rows.csv`` or ``grey.npy:binarise=threshold``. Rows of a LIBSVM
    file are filled up to ``width``.
    """
    name, _, text = (source, "", "") if isfile(source) else source.rpartition(":")
    if isfile(name):
        given = {"path": name}
    else:
        name, _, text = source.partition(":")
        given = {"name": name}
        if name not in SOURCES:
            message = f"--data {source}: no such file or data set; data sets are {', '.join(SOURCES)}"
            raise DataError(message, None, "unknown")
    for item in filter(None, re.split(r",(?=[a-z_]+=)", text)):  # drop=id,class,flip=true has two
        field, equals, value = item.partition("=")
        if not equals or field in given:
            twice = "is given twice" if equals else "cannot be read; write it as in shifting-bar:size=9,bar=1"
            raise DataError(f"--data {source}: {field} {twice}", None, "conflict" if equals else "value")
        given[field] = value
    try:
        spec = make_spec(**given)
    except DataError as error:
        raise DataError(f"--data {source}: {error}", error.field, *error.kinds) from None
    return _load(spec, "", width)


def describe(data: DataSpec, dataset: Dataset) -> str:
    """Return a line on what was loaded: ``digits.csv: 1,400 rows x 64 units, 12.3% ones``."""
    share = dataset.train.mean() / dataset.levels
    ones = f"{share:.1%} ones" if dataset.levels == 1 else f"grey values, mean {share:.3f}"
    others = [f"{part} {count(len(rows), 'row')}" for part, rows in dataset.parts.items() if part != "train"]
    title = f"{data.path}{' flipped' if data.flip else ''}" if data.path else dataset.name
    line = f"{title}: {len(dataset.train):,} rows x {dataset.width} units, {ones}"
    if data.hold_out:
        how = "the last rows of train" if data.rows == "last" else f"drawn from train by seed {data.seed}"
        others = [f"{one}, {how}" if one.startswith("valid") else one for one in others]
    return f"{line} ({', '.join(others)})" if others else line


def _load(spec: DataSpec, folder: str | Path, width: int | None) -> Dataset:
    if spec.path:
        dataset = read_own(spec, folder, width)
    elif spec.name in _TOYS:
        dataset = _TOYS[spec.name](**{option: getattr(spec, option) for option in SOURCES[spec.name].options})
    else:
        dataset = _published(spec)
    if spec.hold_out:
        dataset = _held_out(dataset, spec)
    return flipped(dataset) if spec.flip else dataset


def _published(spec: DataSpec) -> Dataset:
    source = SOURCES[spec.name]
    rows: dict[str, np.ndarray] = {}
    for file, path in source.locate().items():
        try:
            tables = read_tables(path)
            for part in [file.part] if file.part else source.rows:
                table = tables.get(part) or tables.get("")
                if table is None:
                    raise DataError(f"{path}: has no {part} part", None, "missing")
                if not source.grey and (table.values.max() > 1 or table.values.dtype != np.uint8):
                    raise DataError(f"{path}: holds more than zeros and ones")
                rows[part] = table.values
        except DataError as error:
            message = f"{error}; `cbm data fetch {spec.name}` gets it again"
            raise DataError(message, "name", *error.kinds) from None
    rows = _divided(source, rows)
    if source.grey:
        rows = binarised(rows, spec.binarise, spec.threshold, 255)
    levels = 255 if source.grey and spec.binarise == "none" else 1
    parts: dict[str, Any] = {part: np.ascontiguousarray(values) for part, values in rows.items()}
    return Dataset(source.name, **parts, levels=levels, image=source.image)


def _divided(source: DataSource, rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the published parts, cut from a larger one if need be; DataError if their sizes are wrong."""
    if source.divide:
        whole = rows.pop(source.divide)
        if source.shuffle is not None:
            whole = whole[np.random.Generator(np.random.Philox(key=source.shuffle)).permutation(len(whole))]
        cut = [part for part in source.rows if part not in rows]
        ends = np.cumsum([source.rows[part] for part in cut])[:-1]
        rows |= dict(zip(cut, np.split(whole, ends), strict=True))
    for part, number in source.rows.items():
        if rows[part].shape != (number, source.width):
            found, columns = rows[part].shape
            raise DataError(
                f"{source.name}: {part} has {found:,} rows of {columns} here, but {number:,} rows of "
                f"{source.width} as published; see `cbm data list {source.name}`",
                "name",
                "changed",
            )
    return {part: rows[part] for part in PARTS if part in rows}


def _held_out(dataset: Dataset, spec: DataSpec) -> Dataset:
    """Return the data set with some training rows, drawn or the last ones, as validation part."""
    if dataset.valid is not None:
        message = f"{dataset.name}: already has a validation part; remove hold_out"
        raise DataError(message, "hold_out", "conflict")
    n, asked = len(dataset.train), spec.hold_out or 0
    rows = asked if isinstance(asked, int) else max(1, round(asked * n))
    if rows >= n:
        raise DataError(f"{dataset.name}: has {n} rows; hold_out must leave some to train on", "hold_out")
    held = np.arange(n) >= n - rows
    if spec.rows == "random":
        held = np.random.Generator(np.random.Philox(key=spec.seed)).permutation(held)
    return replace(dataset, train=dataset.train[~held], valid=dataset.train[held])


def flipped(dataset: Dataset) -> Dataset:
    """Return the data set with zeros and ones exchanged; the best log-likelihood stays the same."""
    parts: dict[str, Any] = {name: dataset.levels - part for name, part in dataset.parts.items()}
    return replace(dataset, name=f"flipped-{dataset.name}", **parts)


@dataclass(frozen=True)
class Entry:
    """A data set of the catalogue, with its example, and whether its files are here."""

    source: DataSource
    rows: dict[str, int]  # by part
    width: int
    ones: float | None  # share in all parts; None if not known without the files
    state: str  # generated, ok, missing or damaged (a file is not as published)
    files: list[Checked]
    folder: Path | None = None  # of the files; None for a generated or a missing data set
    problem: str | None = None  # why it cannot be used


def catalogue(*wanted: str) -> list[Entry]:
    """Return what is known of the data sets named, or of all; files are compared with their checksums."""
    return [_entry(SOURCES[name]) for name in wanted or SOURCES]


def _entry(source: DataSource) -> Entry:
    if not source.forms:
        dataset = load(**source.example)
        rows = {part: len(values) for part, values in dataset.parts.items()}
        return Entry(source, rows, dataset.width, float(np.mean(dataset.train)), "generated", [])
    known = source, source.rows, source.width, source.ones
    files = check_files(source.name)
    try:
        folder = next(iter(source.locate().values())).parent
    except DataError as error:
        return Entry(*known, "missing", files, None, str(error))
    problem = next((f"{source.name}: {file.path}: {file.verdict}" for file in files if not file.good), None)
    return Entry(*known, "damaged" if problem else "ok", files, folder, problem)
