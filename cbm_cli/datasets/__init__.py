"""Data sets, as read-only rows of bytes: toys generated, published ones and a user's own read from files."""

from cbm_cli.datasets.catalogue import Entry, available, catalogue, describe, load, load_rows, load_source
from cbm_cli.datasets.dataset import DataError, Dataset, Image
from cbm_cli.datasets.fetching import fetch, fetchable
from cbm_cli.datasets.labels import load_labels
from cbm_cli.datasets.sources import SOURCES, DataSource
from cbm_cli.datasets.spec import OF_FILES, DataSpec, written

__all__ = [
    "OF_FILES",
    "SOURCES",
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
    "load",
    "load_labels",
    "load_rows",
    "load_source",
    "written",
]
