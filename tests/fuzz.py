"""Random settings of training, whose updates are compared with those of the reference."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from cbm_cli.kernels.machine import Layout, State, aligned
from cbm_cli.machines.files import sides_of

from tests.oracles import Trainer, flat, learn, make_state, mix, plan, random_state

SIZES = [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 100, 127, 128, 129]
SIZES = [*SIZES, 200, 384, 385, 513]
BATCHES = [1, 2, 3, 7, 8, 9, 16, 17, 50, 111, 112, 113, 224, 225, 300]
FEW = [1, 2, 8, 9, 17]  # rows where one ladder is swept for each of them
WAYS = {  # how RBMs learn, and the rows that they learn from
    "PCD": ({}, BATCHES),
    "CD-1": ({"restart": True}, BATCHES),
    "CD-3": ({"restart": True, "steps": 3}, BATCHES),
    "PT_3": ({"temperatures": 3}, FEW),
    "PT_20": ({"temperatures": 20}, FEW),
    "PT_4-2": ({"temperatures": 4, "steps": 2}, FEW),
    "momentum and decay": ({"momentum": 0.5, "l1": 1e-3, "l2": 1e-2}, BATCHES),
    "grey rows": ({"unit": 1 / 255}, BATCHES),
    "17 chains": ({"rows": 17}, BATCHES),
    "225 chains": ({"rows": 225}, BATCHES),
}
DEEP_SIZES, DEEP_BATCHES = [1, 2, 7, 16, 17, 33, 64, 100, 200, 385], [1, 2, 8, 17, 112, 150]
DEEP_WAYS = {
    "PCD": {},
    "CD-1": {"restart": True},
    "PT_3": {"temperatures": 3},
    "momentum and decay": {"momentum": 0.5, "l2": 1e-2},
}


class Case(NamedTuple):
    words: str
    state: State
    plan: object
    rows: np.ndarray
    tolerance: float  # of parameters and offsets: they are float32


def rbm(rng: np.random.Generator) -> Case:
    n, m = map(int, rng.choice(SIZES, 2))
    way = str(rng.choice([*WAYS]))
    changes, batches = WAYS[way]
    batch, letters = int(rng.choice(batches)), "".join(rng.choice([*"0dmahr"], 2))
    how = {"sliding": (0.3, 0.2), "before": bool(rng.random() < 0.5), "learning_rate": 0.1}
    its = plan(n, m, batch, letters, **how, **changes)
    state = random_state(n, m, its, int(rng.integers(1e6)), scale=1 / np.sqrt(max(n, m)))
    density = rng.choice([0.02, 0.13, 0.5, 0.9, 1.0])
    rows = (rng.random((batch, n)) < density).astype(np.uint8)
    if way == "grey rows":
        rows = rng.integers(0, 256, (batch, n)).astype(np.uint8)
    words = f"{n}x{m}, {batch} rows, {density:.0%} on, {way}, {letters}"
    return Case(words, _aligned(state), its, rows, 5e-4)


def _aligned(state: State) -> State:
    """The state with arrays of float32 as training has them."""
    kinds = {
        name: it for name, it in state._asdict().items() if it is not None and name != "rounds"
    }
    return state._replace(**{name: aligned(array) for name, array in kinds.items()})


def dbm(rng: np.random.Generator, sizes: Sequence[int] = tuple(DEEP_SIZES)) -> Case:
    layers = tuple(map(int, rng.choice(sizes, int(rng.integers(3, 5)))))
    layout, way = Layout(layers), str(rng.choice([*DEEP_WAYS]))
    batch, letters = int(rng.choice(DEEP_BATCHES)), rng.choice([*"0da"], len(layers))
    batch = min(batch, 17) if way == "PT_3" else batch
    mixes = [mix(letter, n) for letter, n in zip(letters, layers, strict=True)]
    sides = sides_of(mixes, mixes, "dbm")
    how = {"tolerance": 1e-7, "rounds": 3000, "spans": layout.spans(), "visible": layers[0]}
    how |= {"learning_rate": 0.05} | DEEP_WAYS[way]
    its = plan(layout.width, layout.height, batch, sides, **how)
    pairs = pairwise(layers)
    W = layout.flat_weights([rng.normal(0, 0.7 / np.sqrt(max(pair)), pair) for pair in pairs])
    biases = (rng.normal(0, 0.5, size) for size in (layout.width, layout.height))
    offsets = tuple(rng.random(size) for size in (layout.width, layout.height))
    state = make_state((W, *biases), offsets, its, rng)
    rows = (rng.random((batch, layers[0])) < rng.choice([0.05, 0.3, 0.8])).astype(np.uint8)
    words = f"{'-'.join(map(str, layers))}, {batch} rows, {way}, {''.join(letters)}"
    return Case(words, _aligned(state), its, rows, 2e-3)


def differences(case: Case, updates: int = 2) -> list[str]:
    """Make updates with the kernels and with the reference; return where they differ.

    If a random number is at its threshold, a hidden state differs, and all that follows.
    """
    trainer = Trainer(case.state, case.plan)
    for update in range(updates):
        trainer.update(case.rows, update)
        learn(case.state, case.rows, case.plan, update, update + 1)
        if case.state.rounds[2]:  # mean field did not converge
            return []
        flips = int((case.state.h != trainer.h).sum())
        found = (flat(*case.state[:3]), *case.state[3:5])
        expected = (flat(*trainer.theta), *trainer.offsets)
        error = max(np.abs(one - other).max() for one, other in zip(found, expected, strict=True))
        if flips > 3 or not (flips or error <= case.tolerance):
            told = f"is off by {error:.1e}; {flips} hidden states differ"
            return [f"{case.words}: update {update} {told}"]
        if flips:
            return []
    return []
