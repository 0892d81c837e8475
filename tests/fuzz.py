"""Random settings of training, whose updates are compared with those of the reference."""

from typing import NamedTuple

import numpy as np
from cbm_cli.kernels.machine import State

from tests.oracles import Trainer, flat, learn, plan, random_state

SIZES = [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 100, 127, 128, 129]
SIZES = [*SIZES, 200, 384, 385, 513]
BATCHES = [1, 2, 3, 7, 8, 9, 16, 17, 50, 111, 112, 113, 224, 225, 300]


class Case(NamedTuple):
    """A training, and the tolerance of its float32 parameters and offsets."""

    words: str
    state: State
    plan: object
    rows: np.ndarray
    tolerance: float


def random_case(rng: np.random.Generator, deep: bool = False, largest: int = 600) -> Case:
    """Return an RBM or a deep machine of layers of up to so many units, and how it learns."""
    sizes = [size for size in SIZES if size <= largest]
    layers = tuple(map(int, rng.choice(sizes, int(rng.integers(3, 6)) if deep else 2)))
    tempered, batch = rng.random() < 0.3, int(rng.choice(BATCHES))
    how = {"steps": int(rng.choice([1, 1, 2, 3]))}
    if tempered:  # one ladder is swept for each row
        batch, how["temperatures"] = min(batch, 17), int(rng.choice([3, 20]))
    else:
        how |= rng.choice([{}, {"restart": True}, {"rows": 17}, {"rows": 225}])
    how |= rng.choice([{}, {}, {"momentum": 0.5, "l1": 1e-3, "l2": 1e-2}])
    letters, unit = "".join(rng.choice([*"0dmahr"], len(layers))), rng.choice([1.0, 1.0, 1 / 255])
    density, before = rng.choice([0.02, 0.13, 0.5, 0.9, 1.0]), bool(rng.random() < 0.5)
    given = {"before": before, "sliding": (0.3, 0.2), "learning_rate": 0.05 if deep else 0.1}
    its = plan(layers, batch, letters, unit=float(unit), **given, **how)
    state = random_state(layers, its, int(rng.integers(1e6)), 0.7 / np.sqrt(max(layers)))
    rows = rng.random((batch, layers[0])) < density
    if unit < 1:
        rows = rows * rng.integers(0, 256, rows.shape)
    words = f"{layers}, {batch} rows of {unit:.3f}, {density:.0%} on, {letters}, {how}"
    return Case(words, state, its, rows.astype(np.uint8), 2e-3 if deep else 5e-4)


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
