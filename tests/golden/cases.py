"""Settings whose results are kept in ``values.npz``: how to compute, write and compare them."""

from math import prod
from pathlib import Path

import numpy as np
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.grid.settings import Settings, Trial
from cbm_cli.kernels import KERNEL_VERSION
from cbm_cli.results import Outcome
from cbm_cli.trial.loop import run_trial
from numpy.typing import NDArray

FILE = Path(__file__).with_name("values.npz")
SHORT, LONG = 20, 200  # updates
ROUNDING = np.float32(2**-22)  # relative: a few times that of float32
REMEDY = "python -m tests.golden.make writes the files anew"

Values = dict[str, NDArray]  # "case/updates/array" -> float32


def _rows(seed: int, n: int, width: int, on: float = 0.5, levels: int = 1) -> NDArray[np.uint8]:
    """Noisy copies of four patterns whose units are on with probability ``on``."""
    rng = np.random.default_rng(seed)
    patterns = rng.random((4, width)) < on
    noisy = patterns[rng.integers(4, size=n)] ^ (rng.random((n, width)) < 0.1 * min(1, 2 * on))
    if levels == 1:
        return noisy.astype(np.uint8)
    return np.rint(levels * np.abs(noisy - 0.4 * rng.random((n, width)))).astype(np.uint8)


def _dataset(name: str, width: int, *parts: int, on: float = 0.5, levels: int = 1) -> Dataset:
    """Up to three parts of so many rows: train, valid, test."""
    rows = _rows(width + sum(parts), sum(parts), width, on, levels)
    split = [np.ascontiguousarray(part) for part in np.split(rows, np.cumsum(parts)[:-1])]
    return Dataset(name, *split, levels=levels)


_SETS = [
    _dataset("toy", 9, 14),
    _dataset("four", 4, 7),
    _dataset("odd", 13, 25, 8, 6),
    _dataset("grey", 13, 25, 8, 6, levels=255),
    _dataset("long", 70, 45),
    _dataset("wide", 20, 45),
    _dataset("sparse", 90, 45, on=0.04),
    _dataset("dense", 90, 45, on=0.95),
    _dataset("grey-long", 70, 45, 5, levels=255),
]


DATA = {data.name: data for data in _SETS}
_BASE = {
    "data": {"name": "bars-and-stripes", "size": 2},  # required; the cases bring data of their own
    "model": {"kind": "rbm", "hidden": 7},
    "offsets": "dd^b_s",
    "sampler": "PCD-1",
    "learning_rate": 0.1,
    "weight_scale": 0.1,
    "sliding_factor": {"visible": 0.1, "hidden": 0.05},
    "batch": 9,
    "evaluate": {"every": "20 updates"},
}
_TOY = {"model": {"kind": "rbm", "hidden": 4}, "batch": "full"}
_LARGE = {"batch": 20, "evaluate": {"method": "none"}}
_LONG = {"model": {"kind": "rbm", "hidden": 37}, **_LARGE}
_WIDE = {"model": {"kind": "rbm", "hidden": 90}, **_LARGE}
_AIS = {"method": "ais", "every": "20 updates", "temperatures": 60, "runs": 6}
_DEEP_LARGE = {"batch": 20, "learning_rate": 0.02, "evaluate": {**_AIS, "every": "100 updates"}}
_RECORDED = {"every": "7 updates", "window": "3-6"}
_RECORDERS = (
    "log_likelihood+weight_norms+bias_norms+offset_values+offset_error+gradient_norms"
    "+hidden_activity+reconstruction_error+free_energy_gap"
)


def _natural(**changes: object) -> dict:
    return {"learning_rate": 0.02, "gradient": {"kind": "natural", **changes}}


def _dbm(hidden: list[int], offsets: str, **changes: object) -> dict:
    return {"model": {"kind": "dbm", "hidden": hidden}, "offsets": offsets, **changes}


def _encoder(hidden: object, offsets: str, **changes: object) -> dict:
    model = {"kind": "auto-encoder", "hidden": hidden}
    return {"model": model, "offsets": offsets, "sampler": None, **changes}


_MARGINAL = _natural(fisher="marginal", damping=0.05)
_SCALED = _natural(scale_to="centered", damping=0.01)
_ASIDE = {"offsets_from": "independent", "offsets": "mm^b"}
_ANGLES = {"what": "gradient_angles", "every": "10 updates"}
_FIRST = {"epochs": 5, "learning_rate": 0.05}
_EARLY = {"early_stopping": {"look_ahead": 2}, "evaluate": {"every": "1 epoch"}}

CASES: dict[str, tuple[str, dict]] = {
    # RBMs: samplers and schemes
    "toy-CD-1-00": ("toy", {**_TOY, "sampler": "CD-1", "offsets": "00", "init": "zero"}),
    "toy-PCD-1-dd": ("toy", {**_TOY, "offsets": "dd^b"}),
    "toy-exact-aa-later": ("toy", {**_TOY, "sampler": "exact", "offsets": "aa^l"}),
    "CD-1-dd": ("odd", {"sampler": "CD-1"}),
    "PCD-1-aa": ("odd", {"offsets": "aa^b", "gradient": {"kind": "enhanced"}}),
    "PCD-1-dd-later": ("odd", {"offsets": "dd^l_s"}),
    "PCD-1-0d-full": ("odd", {"offsets": "0d", "batch": "full", "init": "zero"}),
    "PCD-2-mm": ("odd", {"sampler": "PCD-2", "offsets": "mm^b_s"}),
    "PCD-2-rr": ("odd", {"sampler": "PCD-2", "offsets": "rr^b_s"}),
    "PT_4": ("odd", {"sampler": "PT_4"}),
    "PT_3-2-aa": ("odd", {"sampler": "PT_3-2", "offsets": "aa^b_s"}),
    "grey-CD-1-a0": ("grey", {"sampler": "CD-1", "offsets": "a0^b"}),
    "ais-rows": ("odd", {"evaluate": {**_AIS, "rows": 5, "parts": "train+test"}}),
    # RBMs of larger layers, on data of several densities
    "long-PCD-1": ("long", _LONG),
    "long-PT_5": ("long", {**_LONG, "sampler": "PT_5"}),
    "long-grey": ("grey-long", _LONG),
    "wide-PCD-1": ("wide", _WIDE),
    "sparse-PCD-1": ("sparse", _LONG),
    "dense-CD-1-00": ("dense", {**_LONG, "sampler": "CD-1", "offsets": "00"}),
    # RBMs: gradients and sources of means
    "natural-joint": ("four", {**_TOY, **_natural(), "sampler": "exact"}),
    "natural-marginal": ("toy", {**_TOY, **_MARGINAL, "sampler": "CD-1"}),
    "natural-diagonal": ("odd", _natural(fisher="diagonal", damping=0.05)),
    "natural-diagonal-exact": ("toy", {**_TOY, **_natural(fisher="diagonal"), "sampler": "exact"}),
    "natural-scaled": ("toy", {**_TOY, **_SCALED, "learning_rate": 0.1}),
    "scaled": ("odd", {"gradient": {"scale_to": "standard"}}),
    "gradient-exact-offsets-independent": ("odd", {"gradient_from": "exact", **_ASIDE}),
    "offsets-independent-CD-1": ("odd", {"sampler": "CD-1", **_ASIDE, "offsets": "am^l"}),
    "offsets-exact": ("odd", {"offsets_from": "exact", "offsets": "mm^b"}),
    "offsets-random": ("odd", {"offsets_from": "random", "offsets": "dd^b"}),
    "recorders": ("odd", {"record": {"what": _RECORDERS, **_RECORDED}}),
    "recorder-angles": ("toy", {**_TOY, "record": _ANGLES}),
    # Deep machines
    "dbm-ddd": ("odd", _dbm([6, 5], "ddd^b_s")),
    "dbm-aad-CD-1": ("odd", _dbm([6, 5], "aad^b", sampler="CD-1")),
    "dbm-000-PT_3": ("odd", _dbm([6, 5], "000", sampler="PT_3", learning_rate=0.03)),
    "dbm-mmm-later-exact": ("odd", _dbm([6, 3], "mmm^l", sampler="exact")),
    "dbm-3-PCD-2": ("odd", _dbm([6, 5, 4], "daa0^l_s", sampler="PCD-2")),
    "dbm-3-pretraining": ("odd", _dbm([6, 5, 4], "aaaa^b", sampler="CD-1", pretraining=_FIRST)),
    "dbm-grey": ("grey", _dbm([6, 5], "ddd^b_s")),
    "dbm-large": ("long", _dbm([37, 20], "ddd^b_s", **_DEEP_LARGE)),
    # Auto encoders
    "encoder": ("odd", _encoder("half", "dd^b_s")),
    "encoder-d0": ("grey", _encoder(7, "d0", learning_rate=0.02)),
    "encoder-deep-dhr": ("grey", _encoder([7, 3], "dhr^l_s", learning_rate=0.05, weight_scale=0.3)),
    "encoder-long": ("grey-long", _encoder(37, "dd^b_s", batch=20)),
    "encoder-stops-early": ("odd", _encoder(7, "dd^b_s", learning_rate=0.5, **_EARLY)),
}


def run_case(name: str, updates: int, nudge: int | None = None) -> Outcome:
    """Run a case; with ``nudge``, a seed, from weights that differ by about their rounding."""
    data, changes = CASES[name]
    trial = Trial("golden", Settings(**{**_BASE, **changes, "updates": updates}), 0, 1)
    start = run_trial(trial, DATA[data], should_pause=lambda: True)
    if nudge is not None:
        rng = np.random.default_rng(nudge)
        for W in start.state.W if isinstance(start.state.W, tuple) else (start.state.W,):
            W *= 1 + ROUNDING * rng.uniform(-1, 1, W.shape).astype(np.float32)
    return run_trial(trial, DATA[data], start)


def values_of(name: str, updates: int, outcome: Outcome) -> Values:
    """Curve, machines and records of an outcome, as they are kept."""
    counted = np.array(["mean_field" in column for column in outcome.columns])
    arrays = {"curve": outcome.curve[:, ~counted], "rounds": outcome.curve[:, counted]}
    arrays |= {"machine": outcome.machine, "pretrained": outcome.pretrained}
    arrays["best"] = outcome.best_machine or {}
    arrays["converged"] = np.float32(outcome.converged or np.nan)
    if outcome.records is not None:
        arrays["records"] = outcome.records
    values: Values = {}
    for group, held in arrays.items():
        parts = held if isinstance(held, dict) else {"": held}
        for part, array in parts.items():
            if np.asarray(array).dtype.kind == "f":
                key = f"{name}/{updates}/{group}{'-' * bool(part)}{part}"
                values[key] = np.asarray(array, np.float32)
    return values


# If every update rounds otherwise, values move by up to 1e-6 (1 + |value|) in 20 updates and 2e-5
# in 200. AVX2 for AVX-512 passes; a learning rate 0.2% too large does not.
TOLERANCE = {SHORT: 1e-5, LONG: 1e-4}
ROUNDS = 1.5  # of mean field, a batch
TRIES = 16  # nudged runs


def departure(found: Values, expected: Values, updates: int) -> str | None:
    """An array that departs from its golden value; None where all agree."""
    if found.keys() != expected.keys():
        return f"arrays {sorted(found.keys() ^ expected.keys())}"
    for name, value in expected.items():
        if found[name].shape != value.shape:
            return f"{name}: shape {found[name].shape}, not {value.shape}"
        limit = ROUNDS if name.endswith("/rounds") else TOLERANCE[updates]
        if not np.allclose(found[name], value, rtol=limit, atol=limit, equal_nan=True):
            return f"{name}: by {np.nanmax(np.abs(found[name] - value)):.2g}"
    return None


def departure_of_runs(expected: Values, name: str, updates: int) -> str | None:
    """How a case departs from its golden values; None if its run agrees, or a nudged one.

    A unit whose probability is within rounding of its random number may fall to the other side. In
    one of the nudged runs it falls back.
    """
    first = None
    for nudge in (None, *range(TRIES)):
        found = values_of(name, updates, run_case(name, updates, nudge))
        departed = departure(found, expected, updates)
        if departed is None:
            return None
        first = first or departed
    return first


def write(values: Values) -> None:
    """Write the file of golden values."""
    shapes = [" ".join(map(str, array.shape)) for array in values.values()]
    np.savez_compressed(
        FILE,
        kernel_version=np.array(KERNEL_VERSION),
        names=np.array([*values]),
        shapes=np.array(shapes),
        numbers=np.concatenate([array.ravel() for array in values.values()]),
    )


def read() -> Values:
    """Read golden values; ValueError for those of another kernel version."""
    with np.load(FILE, allow_pickle=False) as file:
        version, numbers = int(file["kernel_version"]), file["numbers"]
        shapes = [[*map(int, text.split())] for text in file["shapes"].tolist()]
        names = file["names"].tolist()
    if version != KERNEL_VERSION:
        raise ValueError(f"{FILE}: is of KERNEL_VERSION {version}, not {KERNEL_VERSION}; {REMEDY}")
    parts = np.split(numbers, np.cumsum([prod(shape) for shape in shapes])[:-1])
    return {name: a.reshape(shape) for name, a, shape in zip(names, parts, shapes, strict=True)}
