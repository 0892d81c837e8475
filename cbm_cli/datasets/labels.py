"""Labels of rows, for a classifier on a machine's representation of them; training never sees any."""

from collections.abc import Mapping
from os.path import isfile
from pathlib import Path

import numpy as np

from cbm_cli.datasets.dataset import DataError
from cbm_cli.datasets.formats import read_labels
from cbm_cli.datasets.sources import SOURCES, find

_OWN = "name a file of your own with one label per row, as in --labels TRAIN.csv --test-labels TEST.csv"

_Labels = dict[str, tuple[str, np.ndarray]]  # part -> where its labels come from, the labels


def load_labels(
    source: str, rows: Mapping[str, int], files: str | None = None, test: str | None = None
) -> dict[str, np.ndarray]:
    """Return the labels (n,) of the parts of a data set, of any type that distinguishes classes.

    Parameters
    ----------
    source : str
        What `load_source` has loaded; some published data sets come with labels.
    rows : dict
        Number of rows by part; each needs one label.
    files : str, optional
        ``TRAIN,TEST`` or ``FILE``: text or NPY, one label per row, or IDX; a single FILE may have the labels
        of all parts (NPZ or MAT, arrays ``train_labels`` or ``train`` and so on).
    """
    named = " and ".join(filter(None, (files, test))) or source
    found = _own(files, test) if files or test else _published(source)
    missing = [part for part in ("train", "test") if part in rows and part not in found]
    if missing:
        message = f"{named}: has no labels of the {' and '.join(missing)} part; {_OWN}"
        raise DataError(message, None, "missing")
    if "test" in found and "test" not in rows and (files or test):
        raise DataError(
            f"{named}: has labels of a test part, and the data have none; add its rows with --test FILE, "
            "or remove its labels",
            None,
            "conflict",
        )
    for part, (where, labels) in found.items():
        if part in rows and len(labels) != rows[part]:
            raise DataError(
                f"{where}: has {len(labels):,} labels, the {part} part {rows[part]:,} rows; each needs one",
                None,
                "conflict",
            )
    return {part: found[part][1] for part in rows if part in found}


def _own(files: str | None, test: str | None) -> _Labels:
    paths = [] if not files else [files] if isfile(files) else files.split(",")
    if len(paths) + bool(test) > 2:
        raise DataError(
            f"--labels {files}: names {len(paths)} files; write --labels TRAIN --test-labels TEST"
        )
    found: _Labels = {}
    if len(paths) == 1:
        found = {part or "train": (paths[0], labels) for part, labels in read_labels(Path(paths[0])).items()}
    elif paths:
        found = {part: (path, _only(path)) for part, path in zip(("train", "test"), paths, strict=True)}
    if test and "test" in found:
        raise DataError(
            f"--test-labels {test}: {files} has labels of the test part already; remove one of them",
            None,
            "conflict",
        )
    return found | ({"test": (test, _only(test))} if test else {})


def _only(path: str) -> np.ndarray:
    found = read_labels(Path(path))
    if "" not in found:
        raise DataError(f"{path}: holds the labels of several parts; name it alone, as in --labels {path}")
    return found[""]


def _published(source: str) -> _Labels:
    known = SOURCES.get(source.partition(":")[0])
    if known is None or not known.labels:
        having = " and ".join(name for name, one in SOURCES.items() if one.labels)
        message = f"{source}: comes without labels ({having} have them); {_OWN}"
        raise DataError(message, None, "missing")
    folder = next(iter(known.locate().values())).parent
    found: _Labels = {}
    for part, stem in known.labels.items():
        path = find(folder, stem)
        if path is None:
            message = f"{known.name}: {folder} has no {stem}[.gz]; put it beside the others, or {_OWN}"
            raise DataError(message, None, "missing")
        found |= {inner or part: (str(path), labels) for inner, labels in read_labels(path).items()}
    return found
