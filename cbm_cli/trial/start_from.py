"""The state of a trial that starts from a machine file instead of fresh weights."""

from pathlib import Path

import numpy as np

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError
from cbm_cli.grid.names import Scheme
from cbm_cli.grid.settings import Settings
from cbm_cli.kernels.machine import State
from cbm_cli.machines.files import Layered
from cbm_cli.trial.start import make_plan, state_of


def start_from_machine(settings: Settings, data: Dataset, seed: int, machine: Layered) -> State:
    """Return the state before the first update of a training that starts from a machine.

    Weights, plain biases and offsets are those of the machine, so that it is the same function under every
    scheme; offsets of the letter 0 are 0, and offsets of a fixed visible layer (``sliding_factor: {visible:
    0}``) the data mean. Chains, fast weights and everything else start anew. Call `check_machine` first.
    """
    letters = Scheme.parse(settings.offsets).letters
    offsets = [o * (letter != "0") for o, letter in zip(machine.offsets, letters, strict=True)]
    if not settings.sliding_factor.visible and letters[0] == "d":
        offsets[0] = data.train.mean(axis=0, dtype=np.float64) / data.levels
    inner = [o * (letter != "0") for o, letter in zip(machine.decoder_offsets, letters[1:-1], strict=False)]
    machine = machine._replace(offsets=tuple(offsets), decoder_offsets=tuple(inner))
    return state_of(machine, make_plan(settings, data, seed), seed)


def check_machine(settings: Settings, data: Dataset, machine: Layered, path: Path) -> None:
    """Raise CbmError for a machine of another kind, shape or activation than in the settings."""
    model = settings.model
    if machine.kind != model.kind:
        told = f"{path}: is a machine of kind {machine.kind}; the model is of kind {model.kind}"
        raise CbmError(told, "unsuited")
    layers = (data.width, *model.hidden_layers(data.width))
    if machine.sizes != layers:
        found, expected = ("-".join(map(str, sizes)) for sizes in (machine.sizes, layers))
        told = f"{path}: has layers of {found} units; the model on {data.name} has {expected}"
        raise CbmError(told, "unsuited")
    for field in ("encoder", "decoder", "loss") if model.kind == "auto-encoder" else ():
        if getattr(machine, field) != getattr(model, field):
            told = f"{path}: has {field} {getattr(machine, field)}; the model has {getattr(model, field)}"
            raise CbmError(told, "unsuited")
