"""What was asked for: the manifest of an experiment, in which settings that all cells share stand once."""

import json
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.kernels import KERNEL_VERSION
from cbm_cli.results.journal import sealed, unsealed
from cbm_cli.results.writing import write_if_changed
from cbm_cli.version import __version__

if TYPE_CHECKING:
    from cbm_cli.grid.settings import Experiment

FORMAT = 3  # of all files of results; others are refused
DIFFER: list = []  # stands in the place of a value in which cells differ


def write_manifest(
    path: Path,
    experiment: "Experiment",
    run_ids: Sequence[str],
    data: Sequence[tuple[str, Dataset]],
    commit: str | None,
    folder: Path,
) -> None:
    """Write the resolved grid and its folder, the versions and the computer.

    ``data`` are the titles and the data sets of the cells.
    """
    from cbm_cli.kernels.computer import computer

    columns, own_columns = common([cell.row() for cell in experiment.cells])
    dumped = [cell.model_dump(mode="json", exclude_defaults=True) for cell in experiment.cells]
    settings, own_settings = common(dumped)
    manifest = {
        "format": FORMAT,
        "experiment": experiment.name,
        "description": experiment.description,
        "trials": experiment.trials,
        "seed": experiment.seed,
        "table": experiment.table.model_dump(mode="json"),
        "cells": [
            {"run_id": name, "columns": own, "settings": more}
            for name, own, more in zip(run_ids, own_columns, own_settings, strict=True)
        ],
        "columns": columns,  # of all cells, as tables show them
        "settings": settings,  # what rebuilds the cells
        **_about_data(data),
        "versions": {name: version_of(name) for name in ("numpy", "numba", "scipy")}
        | {"cbm": __version__, "kernel": KERNEL_VERSION},
        "grid_folder": str(folder.resolve()),
        "grid_commit": commit,  # of the repository that the grid is in
        "machine": {"system": platform.platform(), "python": platform.python_version()} | computer(),
    }
    write_if_changed(path, sealed(manifest, indent=1))


def _about_data(data: Sequence[tuple[str, Dataset]]) -> dict[str, dict[str, Any]]:
    """Return bounds and digests by title; sizes of one set share a title, which then has no bound."""
    sets: dict[str, list[Dataset]] = {}
    for title, one in data:
        sets.setdefault(title, []).append(one)
    bounds = {title: {one.upper_bound for one in ones} for title, ones in sets.items()}
    return {
        "upper_bounds": {title: bound for title, (bound, *more) in bounds.items() if bound and not more},
        "digests": {title: sorted({one.digest for one in ones}) for title, ones in sets.items()},
    }


def read_manifest(path: Path) -> dict[str, Any]:
    """Return a manifest with the ``columns`` and the ``settings`` of each cell in full; CbmError if damaged.

    ``cells`` holds the columns and the run-id of each.
    """
    if not path.exists():
        raise CbmError(f"{path}: missing; was {path.parent} written by cbm run?", "missing")
    content = path.read_bytes()
    check_format(path, content)
    try:
        manifest = unsealed(content)
        cells, columns, settings = (manifest[name] for name in ("cells", "columns", "settings"))
        if not all(name == Path(name).name and name.strip(".") for name in (c["run_id"] for c in cells)):
            raise ValueError  # a name that leads out of the folder
        if any(cell["columns"].keys() - columns for cell in cells):
            raise ValueError
        manifest["settings"] = [_whole(settings, cell["settings"]) for cell in cells]
        manifest["cells"] = [{"run_id": cell["run_id"]} | _whole(columns, cell["columns"]) for cell in cells]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CbmError(
            f"{path}: damaged; cbm run writes it again and keeps finished trials", "unreadable"
        ) from None
    return manifest


def check_format(path: Path, content: bytes) -> None:
    """Raise CbmError for a manifest of another format, but not for a damaged one."""
    with suppress(ValueError, KeyError, TypeError):
        found = json.loads(content)
        told = "written by an earlier version; run again, into another folder"
        if found["format"] > FORMAT:
            told = f"written by a newer cbm ({found['versions']['cbm']}); update this one"
        if found["format"] != FORMAT:
            raise CbmError(f"{path}: {told}", "unreadable")


def common(cells: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return what all cells share, `DIFFER` for the rest, and what each has of the rest."""
    names = dict.fromkeys(name for cell in cells for name in cell)
    same = {name for name in names if all(name in cell and cell[name] == cells[0][name] for cell in cells)}
    own = [{name: value for name, value in cell.items() if name not in same} for cell in cells]
    return {name: cells[0][name] if name in same else DIFFER for name in names}, own


def _whole(shared: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Undo `common` for a cell, in the order of what is shared."""
    return {name: own.get(name, value) for name, value in shared.items() if value != DIFFER or name in own}


@cache
def version_of(package: str) -> str:
    """Return the version of an installed package."""
    from importlib.metadata import version

    return version(package)
