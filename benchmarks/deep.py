"""Time deep machines, natural gradients and recorders beside what they are made of; print a Markdown table.

    pip install -e '.[benchmarks]' && python benchmarks/deep.py

One BLAS thread; works are timed in turn, as in speed.py, and the table gives medians.
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")


from collections.abc import Callable

import numba
import numpy as np
from speed import medians, show

from cbm_cli.datasets import Dataset, load
from cbm_cli.grid.settings import Settings, Trial
from cbm_cli.kernels.state import empty_trail
from cbm_cli.trial.boltzmann import BoltzmannLearner
from cbm_cli.trial.run import run_trial

COMMON = {"data": {"name": "mnist"}, "epochs": 1, "evaluate": {"method": "none"}}


def learner_update(dataset: Dataset, **settings: object) -> tuple[Callable[[int], None], object]:
    """Return a function that makes n updates, and the state that it changes."""
    learner = BoltzmannLearner(Settings(**COMMON | settings), dataset, 1)
    state, trail = learner.start(), empty_trail(0, 0)
    return lambda n: learner.advance(state, trail, 0, n), state


@numba.njit
def _deep_products(v, h1, h2, W1, W2, x, W, both_x, both_h, out, rounds, n):
    for _ in range(n):
        np.dot(v, W1, h1)
        np.dot(h2, W2.T, h1)
        for _ in range(rounds):
            np.dot(h1, W2, h2)
            np.dot(h2, W2.T, h1)
        np.dot(h1, W.T, x)
        np.dot(x, W, h1)
        np.dot(both_x.T, both_h, out)


def deep_products(sizes: tuple[int, int, int], batch: int, rounds: int) -> Callable[[int], None]:
    """Return a function that makes the products of n updates: data phase, one sweep, both gradients."""
    rng, (n, m1, m2) = np.random.default_rng(3), sizes

    def array(*shape: int) -> np.ndarray:
        return rng.random(shape).astype(np.float32) / 1000

    arrays = array(batch, n), array(batch, m1), array(batch, m2), array(n, m1), array(m1, m2)
    flat = array(batch, n + m2), array(n + m2, m1), array(2 * batch, n + m2), array(2 * batch, m1)
    return lambda count: _deep_products(*arrays, *flat, array(n + m2, m1), rounds, count)


def numpy_deep_update(
    sizes: tuple[int, int, int], data: Dataset, batch: int, rounds: int
) -> Callable[[int], None]:
    """Return a function that makes n updates of PCD-1 of a two-layer DBM in plain NumPy, float64."""
    rng, (n, m1, m2) = np.random.default_rng(1), sizes
    W1, W2 = rng.normal(0, 0.01, (n, m1)), rng.normal(0, 0.01, (m1, m2))
    b, c, d = np.zeros(n), np.zeros(m1), np.zeros(m2)
    x, h2 = (rng.random((batch, size)) < 0.5 for size in (n, m2))

    def sigmoid(a: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-a))

    def drawn(p: np.ndarray) -> np.ndarray:
        return (rng.random(p.shape) < p).astype(float)

    def update(count: int) -> None:
        nonlocal W1, W2, b, c, d, x, h2
        for step in range(count):
            v = data.train[step * batch % 5000 :][:batch].astype(float)
            q2 = np.full((batch, m2), 0.5)
            q1 = sigmoid(v @ W1 + q2 @ W2.T + c)
            for _ in range(rounds):
                q2 = sigmoid(q1 @ W2 + d)
                q1 = sigmoid(v @ W1 + q2 @ W2.T + c)
            h1 = drawn(sigmoid(x @ W1 + h2 @ W2.T + c))
            x, h2 = drawn(sigmoid(h1 @ W1.T + b)), drawn(sigmoid(h1 @ W2 + d))
            p1 = sigmoid(x @ W1 + h2 @ W2.T + c)
            W1 = W1 + 0.001 * (v.T @ q1 - x.T @ p1) / batch
            W2 = W2 + 0.001 * (q1.T @ q2 - p1.T @ h2) / batch
            b, c, d = (
                b + 0.001 * (v - x).mean(0), c + 0.001 * (q1 - p1).mean(0), d + 0.001 * (q2 - h2).mean(0)
            )  # fmt: skip

    return update


def deep() -> None:
    """Time an update of a DBM of two hidden layers."""
    rng = np.random.default_rng(0)
    data = Dataset("random", (rng.random((6000, 784)) < 0.13).astype(np.uint8))
    model = {"kind": "dbm", "hidden": (500, 500)}
    ours, state = learner_update(data, model=model, offsets="ddd^b_s", sampler="PCD-1", learning_rate=0.001)
    ours(60)
    state.rounds[:] = 0
    ours(60)
    rounds = round(float(state.rounds[0] / state.rounds[1]))
    works = {
        "cbm": ours,
        "NumPy float64": numpy_deep_update((784, 500, 500), data, 100, rounds),
        "bare products": deep_products((784, 500, 500), 100, rounds),
    }
    title = f"DBM 784-500-500, batch 100, PCD-1, {rounds} rounds of mean field"
    show(title, "<= 1.3 x products", medians(works, 20), 1e3, "ms")


def natural() -> None:
    """Time natural gradients beside the centered one."""
    toy = load("bars-and-stripes", size=2)
    small = {"data": {"name": "bars-and-stripes", "size": 2}, "model": {"kind": "rbm", "hidden": 4}}
    small |= {"offsets": "dd^b", "sampler": "exact", "learning_rate": 0.1, "batch": "full"}
    works = {
        "cbm": learner_update(toy, **small, gradient={"kind": "natural"})[0],
        "centered gradient": learner_update(toy, **small)[0],
    }
    show("natural gradient, exact, 4x4", "<= 100 us", medians(works, 2000), 1e6, "us")
    rng = np.random.default_rng(0)
    data = Dataset("random", (rng.random((6000, 784)) < 0.13).astype(np.uint8))
    big = {
        "model": {"kind": "rbm", "hidden": 16},
        "offsets": "dd^b_s",
        "sampler": "PCD-1",
        "learning_rate": 0.01,
    }
    sampled = {"kind": "natural", "estimate": "samples"}
    works = {
        "cbm": learner_update(data, **big, gradient=sampled)[0],
        "diagonal Fisher": learner_update(data, **big, gradient=sampled | {"fisher": "diagonal"})[0],
        "centered gradient": learner_update(data, **big)[0],
    }
    show("natural gradient by 10 steps of CG on 100 samples, 784x16", "", medians(works, 100), 1e3, "ms")


def recorders() -> None:
    """Time 20,000 updates of a toy with every update recorded, and without."""

    def trial(sampler: str, **changes: object) -> Callable[[int], None]:
        toy = {"data": {"name": "bars-and-stripes", "size": 3}, "model": {"kind": "rbm", "hidden": 4}}
        toy |= {
            "offsets": "dd^b",
            "sampler": sampler,
            "learning_rate": 0.05,
            "updates": 20000,
            "batch": "full",
        }
        settings = Settings(**toy, evaluate={"method": "none", "every": 20000}, **changes)
        data = load("bars-and-stripes", size=3)
        return lambda n: [run_trial(Trial("benchmark", settings, 0, 1), data) for _ in range(n)] and None

    for sampler in ("PT_10", "PCD-1"):
        works = {
            "cbm": trial(sampler, record={"what": "weight_norms+offset_values", "window": "0-20000"}),
            "with offset_error too": trial(
                sampler, record={"what": "weight_norms+offset_values+offset_error", "window": "0-20000"}
            ),
            "nothing recorded": trial(sampler),
        }
        title = f"{sampler} 9x4, 20,000 updates, weight norms and offsets of every one"
        show(title, "<= 1.3 x without", medians(works, 1), 1e3, "ms")


if __name__ == "__main__":
    print("| work | who | time | ratio to cbm | reach |\n|---|---|---|---|---|")
    deep()
    natural()
    recorders()
