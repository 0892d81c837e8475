"""Data sets, as read-only rows of bytes: toys generated, published ones and a user's own read from files."""

from cbm_cli.datasets.catalogue import Entry, catalogue, check, flipped, load, names
from cbm_cli.datasets.dataset import Dataset, Image
from cbm_cli.datasets.fetching import Checked, check_files, fetch, fetchable
from cbm_cli.datasets.labels import load_labels
from cbm_cli.datasets.own import title_of
from cbm_cli.datasets.rows import load_rows, load_source
from cbm_cli.datasets.sources import PUBLISHED, Published

__all__ = [
    "PUBLISHED",
    "Checked",
    "Dataset",
    "Entry",
    "Image",
    "Published",
    "catalogue",
    "check",
    "check_files",
    "fetch",
    "fetchable",
    "flipped",
    "load",
    "load_labels",
    "load_rows",
    "load_source",
    "names",
    "title_of",
]
