"""Random settings of training, whose updates are compared with those of the
reference.
"""

import numpy as np

from tests.oracles import Trainer, departure, learn, plan, random_state

SIZES = [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65]
SIZES += [100, 127, 128, 129, 200, 384, 385, 513]
BATCHES = [1, 2, 3, 7, 8, 9, 16, 17, 50, 111, 112, 113, 224, 225, 300]


def difference(rng: np.random.Generator, deep: bool = False, largest: int = 600) -> str:
    """Make updates with the kernels and with the reference; say if they differ.

    Machines have layers of up to so many units; float32 is off by up to 4e-5 in the
    largest. If a random number is at its threshold, a unit differs, and all that
    follows; not so with the next random numbers.
    """
    sizes = [size for size in SIZES if size <= largest]
    layers = tuple(map(int, rng.choice(sizes, int(rng.integers(3, 6)) if deep else 2)))
    batch, how = int(rng.choice(BATCHES)), {"steps": int(rng.choice([1, 1, 2, 3]))}
    if sum(layers[::2]) < 9 and rng.random() < 0.5:
        how["exact"] = True
    elif rng.random() < 0.3:  # one ladder is swept for each row
        batch, how["temperatures"] = min(batch, 17), int(rng.choice([3, 20]))
    else:
        how |= rng.choice([{}, {"restart": True}, {"rows": 17}, {"rows": 225}])
    how |= rng.choice([{}, {}, {"momentum": 0.5, "l1": 1e-3, "l2": 1e-2}])
    how |= {
        "before": bool(rng.random() < 0.5),
        "unit": float(rng.choice([1.0, 1.0, 1 / 255])),
    }
    scheme = "".join(rng.choice([*"0dmahr"], len(layers)))
    number, scale = int(rng.integers(1e6)), 0.7 / np.sqrt(max(layers))
    uniform = rng.random((batch, layers[0]))
    density = rng.choice([0.02, 0.13, 0.5, 0.9, 1.0])
    levels = rng.integers(1, round(1 / how["unit"]) + 1, uniform.shape)
    rows = ((uniform < density) * levels).astype(np.uint8)
    for seed in range(3):
        training = plan(layers, batch, scheme, sliding=(0.3, 0.2), **how)
        training = training._replace(seed=np.uint64(seed))
        state = random_state(layers, training, number, scale)
        trainer = Trainer(state, training)
        for update in range(3):
            trainer.update(rows, update)
            learn(state, rows, training, update, update + 1)
            flips, error = departure(state, trainer)
            if flips or not error < 1e-4:
                break
        else:
            return ""
    return (
        f"{layers}, {batch} rows, {density:.0%} on, {scheme}, {how}: update {update} is "
        f"off by {error:.1e}; {flips} hidden states differ"
    )
