"""Data sets, as read-only rows of bytes: toys generated, published ones and a user's own read from files."""

from cbm_cli.datasets.catalogue import (
    Entry,
    available,
    catalogue,
    describe,
    flipped,
    load,
    load_rows,
    load_source,
    names,
)
from cbm_cli.datasets.dataset import DataError, Dataset, Image
from cbm_cli.datasets.fetching import Checked, fetch, fetchable
from cbm_cli.datasets.labels import load_labels
from cbm_cli.datasets.sources import SOURCES, DataSource
from cbm_cli.datasets.spec import OF_FILES, DataSpec, written

__all__ = [
    "OF_FILES",
    "SOURCES",
    "Checked",
    "DataError",
    "DataSource",
    "DataSpec",
    "Dataset",
    "Entry",
    "Image",
    "available",
    "catalogue",
    "describe",
    "fetch",
    "fetchable",
    "flipped",
    "load",
    "load_labels",
    "load_rows",
    "load_source",
    "names",
    "written",
]
