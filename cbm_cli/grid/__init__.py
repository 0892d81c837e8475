"""Grid files: YAML text to validated, frozen experiments."""

from cbm_cli.grid.data import Data
from cbm_cli.grid.names import Sampler, Scheme
from cbm_cli.grid.parts import (
    RECORDERS,
    EarlyStopping,
    Evaluate,
    Gradient,
    LearningRate,
    MeanField,
    Model,
    Pretraining,
    Record,
    SlidingFactor,
    StartFrom,
    WeightDecay,
)
from cbm_cli.grid.read import Grid, read_grid
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
