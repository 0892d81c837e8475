"""Time an update, log Z and the command line beside their peers and their floor; print a Markdown table.

    pip install -e '.[benchmarks]' && python benchmarks/speed.py

One BLAS thread. Rows of a work are timed in turn, round after round, so that a busy machine slows all of
them; the table gives medians, and ratios to cbm. "bare products" are the matrix products of an update
alone: no sampler that uses BLAS can be faster.
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numba
import numpy as np

from cbm_cli.datasets import Dataset, load
from cbm_cli.grid.settings import Settings
from cbm_cli.kernels.states import log_partition, mean_log_likelihood
from cbm_cli.kernels.state import empty_trail
from cbm_cli.kernels.training import train
from cbm_cli.machines.annealing import ais
from cbm_cli.trial.start import initial_state, make_plan

ROUNDS = 7


def cbm_update(sampler: str, data: Dataset, hidden: int, batch: int) -> Callable[[int], None]:
    """Return a function that makes n updates of dd^b_s with the compiled loop."""
    settings = Settings(
        data={"name": "mnist"} if data.width == 784 else {"name": "bars-and-stripes", "size": 3},
        model={"kind": "rbm", "hidden": hidden},
        offsets="dd^b_s",
        sampler=sampler,
        learning_rate=0.05,
        updates=1,
        batch=batch,
    )
    plan = make_plan(settings, data, 1)
    state = initial_state(settings, data, plan, 1)
    no_trail = empty_trail(data.width, hidden)
    return lambda n: train(state, data.train, plan, no_trail, 0, n)


def numpy_update(data: Dataset, hidden: int, batch: int) -> Callable[[int], None]:
    """Return a function that makes n updates of PCD-1 with the centered gradient in plain NumPy, float32."""
    rng = np.random.default_rng(1)
    n_visible = data.width
    W = rng.normal(0, 0.01, (n_visible, hidden)).astype(np.float32)
    b, c = np.zeros(n_visible, np.float32), np.zeros(hidden, np.float32)
    lam = np.full(hidden, 0.5, np.float32)
    chain = (rng.random((batch, n_visible)) < 0.5).astype(np.float32)

    def sigmoid(a: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-a))

    def update(n: int) -> None:
        nonlocal W, b, c, lam, chain
        for step in range(n):
            first = step * batch % (len(data.train) - batch + 1)
            xd = data.train[first : first + batch].astype(np.float32)
            hd = sigmoid(xd @ W + c)
            h = (rng.random((batch, hidden), np.float32) < sigmoid(chain @ W + c)).astype(np.float32)
            chain = (rng.random((batch, n_visible), np.float32) < sigmoid(h @ W.T + b)).astype(np.float32)
            hm = sigmoid(chain @ W + c)
            mu, lam = xd.mean(0), 0.99 * lam + np.float32(0.01) * hd.mean(0)
            step_W = 0.05 * ((xd - mu).T @ (hd - lam) - (chain - mu).T @ (hm - lam)) / batch
            W = W + step_W
            b = b + 0.05 * (xd.mean(0) - chain.mean(0)) - step_W @ lam
            c = c + 0.05 * (hd.mean(0) - hm.mean(0)) - step_W.T @ mu

    return update


def sklearn_update(data: Dataset, hidden: int, batch: int) -> Callable[[int], None]:
    """Return a function that makes n updates of scikit-learn's BernoulliRBM (PCD-1, plain gradient)."""
    from sklearn.neural_network import BernoulliRBM

    machine = BernoulliRBM(n_components=hidden, learning_rate=0.05, batch_size=batch, random_state=1)
    rows = data.train[:batch].astype(np.float32)

    def update(n: int) -> None:
        for _ in range(n):
            machine.partial_fit(rows)

    return update


@numba.njit
def _products(x, W, h, out, n, k):
    for _ in range(n):
        for _ in range(k):
            np.dot(x, W, h)
            np.dot(h, W.T, out)


@numba.njit
def _gradient_products(x, W, h, out, n):
    for _ in range(n):
        np.dot(x, W, h)
        np.dot(x.T, h, out)
        np.dot(x.T, h, out)


def bare_products(width: int, hidden: int, rows: int, sweeps: int, batch: int) -> Callable[[int], None]:
    """Return a function that makes the products of n updates and nothing else."""
    rng = np.random.default_rng(2)

    def arrays(count: int) -> list[np.ndarray]:
        shapes = (count, width), (width, hidden), (count, hidden)
        return [rng.random(shape).astype(np.float32) / 1000 for shape in shapes]

    chains, batches = arrays(rows), arrays(batch)
    out, gradient = np.empty_like(chains[0]), np.empty_like(chains[1])

    def update(n: int) -> None:
        _products(*chains, out, n, sweeps)
        _gradient_products(*batches, gradient, n)

    return update


def medians(works: dict[str, Callable[[int], None]], n: int) -> dict[str, float]:
    """Return seconds of one of n repetitions, median over rounds in which every work has its turn."""
    for work in works.values():
        work(2)
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            began = time.perf_counter()
            work(n)
            seconds[name].append((time.perf_counter() - began) / n)
    return {name: statistics.median(times) for name, times in seconds.items()}


def show(title: str, reach: str, times: dict[str, float], unit: float, name: str) -> None:
    """Print the lines of one work."""
    ours = times["cbm"]
    for who, seconds in times.items():
        ratio = "" if who == "cbm" else f"{seconds / ours:.2f}"
        target = reach if who == "cbm" else ""
        print(
            f"| {title if who == 'cbm' else ''} | {who} | {seconds * unit:.4g} {name} | {ratio} | {target} |",
            flush=True,
        )


def updates() -> None:
    """Time updates of toys and of MNIST-sized machines."""
    toy = load("bars-and-stripes", size=3)
    rng = np.random.default_rng(0)
    big = Dataset("random", (rng.random((6000, 784)) < 0.13).astype(np.uint8))
    floor = bare_products(9, 4, 10, 16, 16)
    show(
        "PT_10, 9x4, 16 rows, one ladder",
        "<= 40 us",
        medians({"cbm": cbm_update("PT_10", toy, 4, 16), "bare products": floor}, 2000),
        1e6,
        "us",
    )
    for sampler in ("CD-1", "PCD-1"):
        works = {
            "cbm": cbm_update(sampler, toy, 4, 16),
            "NumPy (PCD-1)": numpy_update(toy, 4, 16),
            "scikit-learn": sklearn_update(toy, 4, 16),
            "bare products": bare_products(9, 4, 16, 1, 16),
        }
        show(f"{sampler}, 9x4, 16 rows", "<= 4 us", medians(works, 1000), 1e6, "us")
    for hidden, n, reach in ((16, 100, "<= 0.6 ms"), (500, 20, "<= 1.2 x products")):
        works = {
            "cbm": cbm_update("PCD-1", big, hidden, 100),
            "NumPy": numpy_update(big, hidden, 100),
            "scikit-learn": sklearn_update(big, hidden, 100),
            "bare products": bare_products(784, hidden, 100, 1, 100),
        }
        show(f"PCD-1, 784x{hidden}, batch 100", reach, medians(works, n), 1e3, "ms")


def likelihoods() -> None:
    """Time log Z of 784x16 and the log-likelihood of 60,000 rows."""
    rng = np.random.default_rng(0)
    W = rng.normal(0, 0.3, (784, 16)).astype(np.float32)
    b, c = rng.normal(-2, 1, 784).astype(np.float32), rng.normal(0, 1, 16).astype(np.float32)

    def plain(n: int) -> None:
        W64 = W.astype(np.float64)
        for _ in range(n):
            values = []
            for start in range(0, 2**16, 4096):
                states = ((np.arange(start, start + 4096)[:, None] >> np.arange(16)) & 1).astype(np.float64)
                values.append(states @ c + np.logaddexp(0, states @ W64.T + b).sum(axis=1))
            np.logaddexp.reduce(np.concatenate(values))

    def ours(n: int) -> None:
        for _ in range(n):
            log_partition(W, b, c)

    show("log Z, 784x16", "<= 0.2 s", medians({"cbm": ours, "NumPy float64": plain}, 1), 1, "s")
    rows = (rng.random((60000, 784)) < 0.13).astype(np.uint8)

    def likelihood(n: int) -> None:
        for _ in range(n):
            mean_log_likelihood(W, b, c, rows, np.float32(1), 0.0)

    show("log-likelihood of 60,000 rows, 784x16, given log Z", "", medians({"cbm": likelihood}, 1), 1, "s")


def big_machines() -> None:
    """Time PT_20, AIS and the log-likelihood of a 784x500 machine beside their matrix products."""
    rng = np.random.default_rng(0)
    big = Dataset("random", (rng.random((6000, 784)) < 0.13).astype(np.uint8))
    works = {
        "cbm": cbm_update("PT_20", big, 500, 100),
        "bare products": bare_products(784, 500, 20, 100, 100),
    }
    show("PT_20, 784x500, batch 100, one ladder", "<= 1.25 x products", medians(works, 3), 1e3, "ms")

    W = rng.normal(0, 0.05, (784, 500)).astype(np.float32)
    b, c = rng.normal(-2, 1, 784).astype(np.float32), rng.normal(0, 1, 500).astype(np.float32)
    base = np.zeros(784, np.float32)
    x, h = rng.random((100, 784)).astype(np.float32), rng.random((100, 500)).astype(np.float32)
    out_x, out_h = np.empty_like(x), np.empty_like(h)

    def annealing(n: int) -> None:
        for _ in range(n):
            ais((W, b, c), base, 1, temperatures=1000, runs=100)

    def products(n: int) -> None:
        for _ in range(1000 * n):
            np.dot(x, W, out_h)
            np.dot(h, W.T, out_x)

    works = {"cbm": annealing, "bare products": products}
    show("AIS, 784x500, 100 runs, 1,000 temperatures", "<= 1.4 x products", medians(works, 1), 1, "s")

    rows = (rng.random((60000, 784)) < 0.13).astype(np.uint8)
    wide, activation = rows[:6000].astype(np.float32), np.empty((6000, 500), np.float32)

    def likelihood(n: int) -> None:
        for _ in range(n):
            mean_log_likelihood(W, b, c, rows, np.float32(1), 0.0)

    def product(n: int) -> None:
        for _ in range(10 * n):
            np.dot(wide, W, activation)

    works = {"cbm": likelihood, "bare product": product}
    title = "log-likelihood of 60,000 rows, 784x500, given log Z"
    show(title, "<= 1.3 x product", medians(works, 1), 1, "s")


def commands() -> None:
    """Time ``cbm --help`` as a whole process, beside an empty Python."""

    def process(*command: str) -> Callable[[int], None]:
        return lambda n: [subprocess.run(command, capture_output=True, check=True) for _ in range(n)] and None

    works = {
        "cbm": process(sys.executable, "-m", "cbm_cli.cli", "--help"),
        "python -c pass": process(sys.executable, "-c", "pass"),
    }
    show("cbm --help", "<= 0.3 s", medians(works, 1), 1, "s")


if __name__ == "__main__":
    print("| work | who | time | ratio to cbm | reach |\n|---|---|---|---|---|")
    updates()
    likelihoods()
    big_machines()
    commands()
