"""Time an update of an auto encoder beside its bare products and its peers; print a Markdown table.

    pip install -e '.[benchmarks]' && python benchmarks/auto_encoder.py

One BLAS thread. As in speed.py, works are timed in turn, and the table gives medians. PyTorch is timed where
it is installed. scikit-learn's MLPRegressor has untied weights and squared errors: a little more work.
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise

import numba
import numpy as np
from speed import medians, show

from cbm_cli.datasets import Dataset
from cbm_cli.grid.settings import Settings
from cbm_cli.kernels.state import empty_trail
from cbm_cli.trial.auto_encoder import AutoEncoderLearner, mean_cost

BATCH, RATE = 100, 0.1


def cbm_learner(data: Dataset, hidden: tuple[int, ...]) -> AutoEncoderLearner:
    """Return a learner of dd^b_s, sigmoid units and cross entropy."""
    settings = Settings(
        data={"name": "mnist"},
        model={"kind": "auto-encoder", "hidden": hidden if len(hidden) > 1 else hidden[0]},
        offsets=f"d{'d' * len(hidden)}^b_s",
        learning_rate=RATE,
        epochs=1,
        batch=BATCH,
    )
    return AutoEncoderLearner(settings, data, 1)


def cbm_update(data: Dataset, hidden: tuple[int, ...]) -> Callable[[int], None]:
    """Return a function that makes n updates with the compiled loop."""
    learner = cbm_learner(data, hidden)
    state, trail = learner.start(), empty_trail(0, 0)
    return lambda n: learner.advance(state, trail, 0, n)


@numba.njit
def _products(x, W, h, out, n, times):
    for _ in range(n):
        for _ in range(times[0]):
            np.dot(x, W, h)
        for _ in range(times[1]):
            np.dot(h, W.T, out)


@numba.njit
def _gradient_products(x, h, out, n):
    for _ in range(n):
        np.dot(x.T, h, out)


def bare_products(width: int, hidden: tuple[int, ...]) -> Callable[[int], None]:
    """Return a function that makes the products of n updates and nothing else."""
    rng = np.random.default_rng(2)
    works = []
    for layer, shape in enumerate(pairwise((width, *hidden))):
        n, m = shape
        x, W, h = ((rng.random(s) / 1000).astype(np.float32) for s in ((2 * BATCH, n), shape, (2 * BATCH, m)))
        times = (2, 1 if layer == 0 else 2)  # nothing is propagated back to the data
        works.append((x, W, h, np.empty((BATCH, n), np.float32), np.empty(shape, np.float32), times))

    def update(count: int) -> None:
        for x, W, h, out, gradient, times in works:
            _products(x[:BATCH], W, h[:BATCH], out, count, times)
            _gradient_products(x, h, gradient, count)

    return update


def torch_update(data: Dataset, hidden: tuple[int, ...]) -> Callable[[int], None]:
    """Return a function that makes n updates without centering in PyTorch, gradients by autograd."""
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits, linear

    torch.set_num_threads(1)
    torch.manual_seed(1)
    shapes = [*pairwise((data.width, *hidden))]
    weights = [(torch.randn(m, n) * 0.01).requires_grad_() for n, m in shapes]
    encoder = [torch.zeros(m, requires_grad=True) for _, m in shapes]
    decoder = [torch.zeros(n, requires_grad=True) for n, _ in shapes]
    optimiser = torch.optim.SGD([*weights, *encoder, *decoder], lr=RATE)
    rows = torch.from_numpy(data.train.copy())

    def update(count: int) -> None:
        for step in range(count):
            first = step * BATCH % (len(rows) - BATCH + 1)
            x = rows[first : first + BATCH].float()
            y = x
            for W, c in zip(weights, encoder, strict=True):
                y = torch.sigmoid(linear(y, W, c))
            for layer in range(len(shapes) - 1, -1, -1):
                y = linear(
                    torch.sigmoid(y) if layer < len(shapes) - 1 else y, weights[layer].T, decoder[layer]
                )
            loss = binary_cross_entropy_with_logits(y, x, reduction="sum") / BATCH
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    return update


def sklearn_update(data: Dataset, hidden: tuple[int, ...]) -> Callable[[int], None]:
    """Return a function that makes n updates of an MLPRegressor from the data to itself."""
    from sklearn.neural_network import MLPRegressor

    layers = (*hidden, *hidden[-2::-1])
    machine = MLPRegressor(
        hidden_layer_sizes=layers, activation="logistic", solver="sgd", batch_size=BATCH, random_state=1
    )
    rows = data.train[:BATCH].astype(np.float32)

    def update(count: int) -> None:
        for _ in range(count):
            machine.partial_fit(rows, rows)

    return update


def updates(data: Dataset) -> None:
    """Time updates of one hidden layer and of two."""
    for hidden, reach in (((392,), "<= 1.3 x products"), ((250, 50), "")):
        works = {"cbm": cbm_update(data, hidden)}
        if find_spec("torch"):
            works["PyTorch"] = torch_update(data, hidden)
        if find_spec("sklearn"):
            works["scikit-learn"] = sklearn_update(data, hidden)
        works["bare products"] = bare_products(data.width, hidden)
        name = "-".join(map(str, (data.width, *hidden)))
        show(f"auto encoder {name}, batch {BATCH}", reach, medians(works, 20), 1e3, "ms")


def costs(data: Dataset) -> None:
    """Time the cost of all rows beside its two products."""
    learner = cbm_learner(data, (392,))
    state = learner.start()
    x, W = data.train[:1000].astype(np.float32), state.W.reshape(data.width, 392)
    h, out = np.empty((1000, 392), np.float32), np.empty((1000, data.width), np.float32)

    def ours(n: int) -> None:
        for _ in range(n):
            mean_cost(state, data.train, learner.plan)

    works = {
        "cbm": ours,
        "bare products": lambda n: _products(x, W, h, out, n * len(data.train) // 1000, (1, 1)),
    }
    show(f"cost of {len(data.train):,} rows, 784-392", "", medians(works, 1), 1, "s")


if __name__ == "__main__":
    rows = (np.random.default_rng(0).random((6000, 784)) < 0.13).astype(np.uint8)
    random_data = Dataset("random", rows)
    print("| work | who | time | ratio to cbm | reach |\n|---|---|---|---|---|")
    updates(random_data)
    costs(random_data)
