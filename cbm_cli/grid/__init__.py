"""Grid files: YAML text to validated, frozen experiments."""

from cbm_cli.grid.offsets import Scheme
from cbm_cli.grid.reading import Grid, read_grid
from cbm_cli.grid.samplers import Sampler
from cbm_cli.grid.schema import json_schema
from cbm_cli.grid.settings import Data, Evaluate, Experiment, Model, Settings, SlidingFactor, TableSpec, Trial

__all__ = [
    "Data",
    "Evaluate",
    "Experiment",
    "Grid",
    "Model",
    "Sampler",
    "Scheme",
    "Settings",
    "SlidingFactor",
    "TableSpec",
    "Trial",
    "json_schema",
    "read_grid",
]
