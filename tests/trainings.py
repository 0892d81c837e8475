"""Short trainings: settings, ways to step, data, and trials that stop again and
again.
"""

import random

import numpy as np
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.datasets.loading import load
from cbm_cli.execution.agenda import Job
from cbm_cli.grid.settings import Settings
from cbm_cli.results import Outcome, Progress
from cbm_cli.results.states import read_progress

from tests.journals import writing


def coins(units, rows=13):
    rng = np.random.default_rng(5)
    train = (rng.random((rows, units)) < rng.random(units)).astype(np.uint8)
    return Dataset("coins", train, train)


def rbm_settings(**changes):
    """Settings of a short training of an RBM on data that a test brings."""
    base = {
        "data": {"name": "mnist"},
        "model": {"kind": "rbm", "hidden": 3},
    }  # the rows are others
    base |= {"offsets": "dd^b", "sampler": "PCD-1", "learning_rate": 0.1, "updates": 10}
    return Settings(**base | changes)


def finish_in_pieces(run, store, chance, seed):
    """Run a trial that is often stopped and read back from its file; return it and its
    stops.
    """
    dice, stops, result = random.Random(seed), [], None
    while not isinstance(result, Outcome):
        result = run(result, lambda: dice.random() < chance)
        if isinstance(result, Progress):
            stops.append((result.stage, result.update))
            with writing(store.folder) as writer:
                writer.write_progress("run", 0, result, "course")
            result = read_progress(store.state_path("course", "run", 0))
    return result, stops


ROWS = np.random.default_rng(3).integers(0, 2, (40, 6)).astype(np.uint8)
THREE_PARTS = Dataset(
    "three-parts", ROWS[:20].copy(), ROWS[20:30].copy(), ROWS[30:].copy()
)
RBM = {
    "data": {"name": "bars-and-stripes", "size": 2},  # a name; the rows are THREE_PARTS
    "model": {"kind": "rbm", "hidden": 3},
    "offsets": "dd^b_s",
    "sampler": "PCD-1",
    "learning_rate": 0.1,
    "epochs": 5,  # of 4 updates
    "batch": 5,
    "weight_scale": 2.0,  # so that what the chains are at matters to every update
}
DBM = RBM | {"model": {"kind": "dbm", "hidden": [4, 3]}, "offsets": "dad^b_s"}
CODER = {
    "model": {"kind": "auto-encoder", "hidden": [4, 3]},
    "offsets": "drr^b_s",
    "sampler": None,
}
CODER = RBM | CODER
_ANNEALED = {"method": "ais", "every": 8, "temperatures": 30, "runs": 5}
_RECORD = {"what": "weight_norms+offset_values", "every": 3, "window": "15-30"}
TRAININGS = {  # what could end otherwise if it is stopped, continued or moved
    "PCD": RBM,
    "PT": RBM | {"sampler": "PT_3", "offsets": "aa^b", "momentum": 0.5},
    "CD with batches of all rows": RBM | {"sampler": "CD-1", "batch": "full"},
    "second sampler": RBM | {"offsets": "mm^b", "offsets_from": "independent"},
    "stations off the grid": RBM | {"evaluate": {"every": 7}},
    "one long interval": RBM | {"evaluate": {"every": 30}},
    "AIS": RBM | {"evaluate": _ANNEALED},
    "recorders": RBM | {"record": _RECORD},
    "decay": RBM | {"learning_rate": {"start": 0.1, "decay": 0.5, "every": "3 epochs"}},
    "natural": RBM | {"gradient": {"kind": "natural"}, "sampler": "exact"},
    "one part": RBM
    | {"model": {"kind": "rbm", "hidden": 9}, "evaluate": {"parts": "test"}},
    "DBM off the grid": DBM | {"evaluate": {"every": 7}},
    "pre-training": DBM | {"pretraining": {"epochs": 2}},
    "auto encoder": CODER,
    "early stopping": CODER
    | {"early_stopping": {"look_ahead": 2}, "learning_rate": 3},  # at 6
    "divergence": RBM
    | {"learning_rate": {"start": 0.1, "steps": "3e38 from 7 epochs"}},
}

FIXED = {"visible": 0, "hidden": 0.3}

FALLING = (
    {"start": 0.2, "decay": 0.5, "every": "5 updates"},
    [(0, 0.2), (5, 0.1), (10, 0.05)],
)
STEPPED = {"start": 0.2, "steps": "0.02 from 1 epoch + 0.3 from 3 epochs"}
BOTH = {"momentum": 0.8, "weight_decay": {"l1": 0.03, "l2": 0.1}}
# Ways to step, in settings and in the plan of the reference; epochs have 3 batches
STEPS = {
    "momentum and decay": (BOTH, {"momentum": 0.8, "l1": 0.03, "l2": 0.1}),
    "order of the file": ({"shuffle": False}, {"shuffled": False}),
    "decaying rate": tuple({"learning_rate": rate} for rate in FALLING),
    "momentum while rates change": tuple(
        {"momentum": 0.5, "learning_rate": rate}
        for rate in (STEPPED, [(0, 0.2), (3, 0.02), (9, 0.3)])
    ),
}


def toy_jobs(*kinds, **changes):
    """Jobs of trials of these classes, numbered from 0, on bars and stripes."""
    base = {
        "data": {"name": "bars-and-stripes", "size": 2},
        "model": {"kind": "rbm", "hidden": 2},
    }
    base |= {"offsets": "dd^b", "sampler": "CD-1", "learning_rate": 0.1, "updates": 20}
    base["batch"] = "full"
    settings, data = Settings(**base | changes), load("bars-and-stripes", size=2)
    return [
        Job(kind("test", settings, n, 1), "run", data, ())
        for n, kind in enumerate(kinds)
    ]
