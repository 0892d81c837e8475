"""Grid files: YAML text to validated, frozen experiments."""

from cbm_cli.grid.parts import RECORDERS, Data
from cbm_cli.grid.read import Grid, read_grid
from cbm_cli.grid.schema import json_schema
from cbm_cli.grid.settings import Settings, Trial

__all__ = ["RECORDERS", "Data", "Grid", "Settings", "Trial", "json_schema", "read_grid"]
