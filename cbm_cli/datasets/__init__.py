"""Data sets by name, as read-only rows of bytes: toys are generated, the others read from files."""

from cbm_cli.datasets.catalogue import Entry, catalogue, check, flipped, load, names
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.datasets.rows import load_rows

__all__ = ["Dataset", "Entry", "catalogue", "check", "flipped", "load", "load_rows", "names"]
