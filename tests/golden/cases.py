"""Settings whose results are kept in ``values.npz``: how to compute, write and compare
them.
"""

from pathlib import Path

import numpy as np
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.grid.settings import RECORDERS, Settings, Trial
from cbm_cli.kernels import KERNEL_VERSION
from cbm_cli.trial.loop import run_trial
from numpy.typing import NDArray

FILE = Path(__file__).with_name("values.npz")
UPDATES = 100
ROUNDING = np.float32(2**-22)  # relative: a few times that of float32
REMEDY = "python -m tests.golden.make writes the files anew"

Values = dict[str, NDArray]  # "case/array" -> float32


def _dataset(name: str, width: int, *parts: int, levels: int = 1) -> Dataset:
    """Up to three parts of so many rows, noisy copies of four patterns: train, valid,
    test.
    """
    rng, n = np.random.default_rng(width + sum(parts)), sum(parts)
    patterns = rng.random((4, width)) < 0.5
    rows = patterns[rng.integers(4, size=n)] ^ (rng.random((n, width)) < 0.1)
    if levels > 1:
        rows = np.rint(levels * np.abs(rows - 0.4 * rng.random((n, width))))
    split = np.split(rows.astype(np.uint8), np.cumsum(parts)[:-1])
    return Dataset(name, *map(np.ascontiguousarray, split), levels=levels)


_SETS = (
    _dataset("toy", 9, 14),
    _dataset("odd", 13, 25, 8, 6),
    _dataset("grey", 13, 25, 8, 6, levels=255),
    _dataset("long", 70, 45),
    _dataset("grey-long", 70, 45, 5, levels=255),
)
DATA = {data.name: data for data in _SETS}
_BASE = {
    "data": {
        "name": "bars-and-stripes",
        "size": 2,
    },  # required; the cases bring data of their own
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
_LONG = {
    "model": {"kind": "rbm", "hidden": 37},
    "batch": 20,
    "evaluate": {"method": "none"},
}
_AIS = {"method": "ais", "every": "100 updates", "temperatures": 60, "runs": 6}
_RECORDED = "+".join(name for name in RECORDERS if name != "gradient_angles")
_NATURAL, _SLOW = {"kind": "natural", "damping": 0.05}, {"learning_rate": 0.02}
_AIS_20 = {"evaluate": _AIS, "batch": 20}
_DEEP = {"offsets": "daa^l_s", **_SLOW}
_DBM = {"model": {"kind": "dbm", "hidden": [6, 5]}, **_DEEP}
_ENCODER = {"model": {"kind": "auto-encoder", "hidden": [7, 3]}, "offsets": "dhr^l_s"}
_ENCODER |= {"sampler": None}
_EARLY = {"early_stopping": {"look_ahead": 2}, "evaluate": {"every": "1 epoch"}}

CASES: dict[
    str, tuple[str, dict]
] = {  # of every kind of machine, sampler, gradient and start
    "CD-1-00": ("toy", {**_TOY, "sampler": "CD-1", "offsets": "00", "init": "zero"}),
    "exact-aa-later": ("toy", {**_TOY, "sampler": "exact", "offsets": "aa^l"}),
    "PCD-2-rr": ("odd", {"sampler": "PCD-2", "offsets": "rr^b_s"}),
    "PT_3-2-am": ("odd", {"sampler": "PT_3-2", "offsets": "am^b_s"}),
    "grey-ais": ("grey", {"evaluate": {**_AIS, "rows": 5, "parts": "train+test"}}),
    "long-PCD-1": ("long", _LONG),
    "long-grey-PT_5": ("grey-long", {**_LONG, "sampler": "PT_5"}),
    "natural-marginal": (
        "toy",
        {**_TOY, "gradient": {**_NATURAL, "fisher": "marginal"}},
    ),
    "natural-diagonal": (
        "odd",
        {"gradient": {**_NATURAL, "fisher": "diagonal"}, **_SLOW},
    ),
    "scaled": ("odd", {"gradient": {"scale_to": "standard"}}),
    "offsets-independent": ("odd", {"offsets_from": "independent", "offsets": "mm^b"}),
    "recorders": ("odd", {"record": {"what": _RECORDED, "every": 7, "window": "3-6"}}),
    "dbm-CD-1": ("grey", {**_DBM, "sampler": "CD-1", "offsets": "aad^b"}),
    "dbm-pretraining": (
        "odd",
        {**_DBM, "pretraining": {"epochs": 5, "learning_rate": 0.05}},
    ),
    "dbm-large": (
        "long",
        {"model": {"kind": "dbm", "hidden": [37, 20]}, **_DEEP, **_AIS_20},
    ),
    "encoder-deep": ("grey", {**_ENCODER, "weight_scale": 0.3}),
    "encoder-stops-early": ("odd", {**_ENCODER, "learning_rate": 0.5, **_EARLY}),
}


def run_case(name: str, nudge: int | None = None) -> Values:
    """What is kept of a run; with ``nudge``, a seed, from weights that differ by their
    rounding.
    """
    data, changes = CASES[name]
    trial = Trial("golden", Settings(**{**_BASE, **changes, "updates": UPDATES}), 0, 1)
    start = run_trial(trial, DATA[data], should_pause=lambda: True)
    if nudge is not None:
        noise = np.random.default_rng(nudge).uniform(-1, 1, start.state.W.shape)
        start.state.W[:] *= 1 + ROUNDING * noise.astype(np.float32)
    outcome = run_trial(trial, DATA[data], start)
    counted = np.array(["mean_field" in column for column in outcome.columns])
    held = {"curve": outcome.curve[:, ~counted], "rounds": outcome.curve[:, counted]}
    held |= {
        "converged": np.float32(outcome.converged or np.nan),
        "records": outcome.records,
    }
    for group in ("machine", "pretrained", "best_machine"):
        arrays = getattr(outcome, group) or {}
        held |= {f"{group}-{part}": array for part, array in arrays.items()}
    found = {f"{name}/{part}": np.asarray(array) for part, array in held.items()}
    return {
        part: it.astype(np.float32)
        for part, it in found.items()
        if it.dtype.kind == "f"
    }


# If every update rounds otherwise, values move by up to 1e-5 (1 + |value|). AVX2 for
# AVX-512 passes; a learning rate 0.2% too large does not.
TOLERANCE = 5e-5
ROUNDS = 1.5  # of mean field, a batch
TRIES = 16  # nudged runs


def departure(found: Values, expected: Values) -> str | None:
    """An array that departs from its golden value; None where all agree."""
    if found.keys() != expected.keys():
        return f"arrays {sorted(found.keys() ^ expected.keys())}"
    for name, value in expected.items():
        limit = ROUNDS if name.endswith("/rounds") else TOLERANCE
        if not np.allclose(found[name], value, rtol=limit, atol=limit, equal_nan=True):
            return f"{name}: by {np.nanmax(np.abs(found[name] - value)):.2g}"
    return None


def departure_of_runs(name: str, expected: Values) -> str | None:
    """How a case departs from its golden values; None if its run agrees, or a nudged
    one.

    A unit whose probability is within rounding of its random number may fall to the
    other side. In one of the nudged runs it falls back.
    """
    departed = [departure(run_case(name), expected)]
    while departed[-1] and len(departed) <= TRIES:
        departed.append(departure(run_case(name, len(departed)), expected))
    return departed[0] if departed[-1] else None


def write(values: Values) -> None:
    """Write the file of golden values."""
    np.savez_compressed(FILE, kernel_version=KERNEL_VERSION, **values)


def read() -> Values:
    """Read golden values; ValueError for those of another kernel version."""
    with np.load(FILE) as file:
        values = dict(file)
    if (version := values.pop("kernel_version")) != KERNEL_VERSION:
        raise ValueError(
            f"{FILE}: is of KERNEL_VERSION {version}, not {KERNEL_VERSION}; {REMEDY}"
        )
    return values
