"""Grid files: YAML text to validated, frozen experiments."""

from cbm_cli.grid.data import Data
from cbm_cli.grid.learning import (
    EarlyStopping,
    Gradient,
    LearningRate,
    MeanField,
    Pretraining,
    SlidingFactor,
    StartFrom,
    WeightDecay,
)
from cbm_cli.grid.machine import Model
from cbm_cli.grid.measuring import RECORDERS, Evaluate, Record
from cbm_cli.grid.offsets import Scheme
from cbm_cli.grid.reading import Grid, read_grid
from cbm_cli.grid.samplers import Sampler
from cbm_cli.grid.schema import json_schema
from cbm_cli.grid.settings import Experiment, Settings, TableSpec, Trial

__all__ = [
    "RECORDERS",
    "Data",
    "EarlyStopping",
    "Evaluate",
    "Experiment",
    "Gradient",
    "Grid",
    "LearningRate",
    "MeanField",
    "Model",
    "Pretraining",
    "Record",
    "Sampler",
    "Scheme",
    "Settings",
    "SlidingFactor",
    "StartFrom",
    "TableSpec",
    "Trial",
    "WeightDecay",
    "json_schema",
    "read_grid",
]
