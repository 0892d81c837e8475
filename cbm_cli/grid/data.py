"""The data of a cell: a set by name, or files of one's own."""

from cbm_cli.datasets.spec import OF_FILES, DataSpec
from cbm_cli.grid.values import Frozen

__all__ = ["OF_FILES", "Data"]


class Data(DataSpec, Frozen):
    """A data set by name, or one read from files, with the options that go with it.

    Paths stay as the grid has them, relative to the grid's folder.
    """
