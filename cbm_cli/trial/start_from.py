"""The state of a trial that starts from a machine file instead of fresh weights."""

from pathlib import Path
from typing import Any

import numpy as np

from cbm_cli.datasets import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.grid.offsets import Scheme
from cbm_cli.grid.settings import Settings
from cbm_cli.results import Layered
from cbm_cli.trial.learner import learner_of


def start_from_machine(settings: Settings, data: Dataset, seed: int, machine: Layered) -> Any:
    """Return the state before the first update of a training that starts from a machine.

    Weights, plain biases and offsets are the machine's, so that it is the same function under every scheme;
    offsets of the letter 0 are 0, and those of a fixed visible layer (``sliding_factor: {visible: 0}``) the
    data mean. Chains, fast weights and all else start afresh.

    Parameters
    ----------
    machine : Layered
        As `read_layered` returns it; `check_machine` says whether it fits.
    """
    letters = Scheme.parse(settings.offsets).letters
    offsets = [o * (letter != "0") for o, letter in zip(machine.offsets, letters, strict=True)]
    if not settings.sliding_factor.visible and letters[0] == "d":
        offsets[0] = data.train.mean(axis=0, dtype=np.float64) / data.levels
    learner = learner_of(settings, data, seed)
    if machine.kind != "auto-encoder":
        return learner.start_from((machine.weights, machine.biases, offsets))
    inner = [o * (letter != "0") for o, letter in zip(machine.decoder_offsets, letters[1:-1], strict=True)]
    arrays = {
        "W": np.concatenate([W.ravel() for W in machine.weights]),
        "b": np.concatenate([machine.biases[0], *machine.decoder_biases]),
        "c": np.concatenate(machine.biases[1:]),
        "mu": np.concatenate(offsets[:-1]),
        "lam": np.concatenate([*inner, offsets[-1]]),
    }
    return learner.start()._replace(**{name: a.astype(np.float32) for name, a in arrays.items()})


def check_machine(settings: Settings, data: Dataset, machine: Layered, path: Path) -> None:
    """Raise CbmError for a machine of another kind, shape or activation than the settings ask for."""
    model = settings.model
    if machine.kind != model.kind:
        raise CbmError(f"{path}: is a machine of kind {machine.kind}; the model is of kind {model.kind}")
    layers = (data.width, *model.hidden_layers(data.width))
    if machine.layers != layers:
        found, expected = ("-".join(map(str, sizes)) for sizes in (machine.layers, layers))
        raise CbmError(f"{path}: has layers of {found} units; the model on {data.name} has {expected}")
    for field in ("encoder", "decoder", "loss") if model.kind == "auto-encoder" else ():
        if getattr(machine, field) != getattr(model, field):
            raise CbmError(
                f"{path}: has {field} {getattr(machine, field)}; the model has {getattr(model, field)}"
            )
