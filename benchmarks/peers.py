"""The same works in NumPy and PyTorch, written once for both, and scikit-learn's where
it has them.

Peers of centered machines are centered as dd^b_s; those of deep machines and auto
encoders are not, and do a little less. Every product is made as often as by cbm: chains
carry hidden states.
"""

from collections.abc import Callable
from importlib.util import find_spec
from itertools import count, pairwise
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from timing import Work

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.machines.estimates import Plain, log_z_of_base, schedule

RATE, BATCH = 0.01, 100


class Library(NamedTuple):
    """What NumPy and PyTorch call by different names."""

    own: ModuleType
    array: Callable[[np.ndarray], Any]
    add_product: Callable[[Any, Any, Any], Any]  # c + a b
    sigmoid: Callable[[Any], Any]
    softplus: Callable[[Any], Any]
    draw: Callable[[Any], Any]  # zeros and ones, one with probability p


def libraries(dtype: str = "float32") -> dict[str, Library]:
    """NumPy and, where it is installed, PyTorch on one thread, by the names of their
    rows.
    """
    np.seterr(over="ignore")  # in exp(-a), where the sigmoid is 0
    rng = np.random.default_rng(1)
    found = {
        f"NumPy {dtype}": Library(
            np,
            lambda a: a.astype(dtype),
            lambda c, a, b: c + a @ b,
            lambda a: 1 / (1 + np.exp(-a)),
            lambda a: np.logaddexp(0, a),
            lambda p: (rng.random(p.shape, np.float32) < p).astype(dtype),
        )
    }
    if find_spec("torch"):
        import torch

        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
        functions = (
            torch.addmm,
            torch.sigmoid,
            torch.nn.functional.softplus,
            torch.bernoulli,
        )
        found[f"torch {dtype}"] = Library(
            torch, lambda a: torch.from_numpy(a.astype(dtype)), *functions
        )
    return found


def both(
    work: Callable[..., Work], *arguments: Any, dtype: str = "float32"
) -> dict[str, Work]:
    """A work in both libraries."""
    return {name: work(lib, *arguments) for name, lib in libraries(dtype).items()}


def batches(lib: Library, rows: np.ndarray, batch: int) -> Callable[[], Any]:
    """A function that returns one batch after the other."""
    starts = (k * batch % (len(rows) - batch + 1) for k in count())
    return lambda: lib.array(rows[(start := next(starts)) : start + batch])


def weights(lib: Library, *shape: int) -> Any:
    """Small random numbers."""
    return lib.array(0.01 * np.random.default_rng(1).standard_normal(shape))


def training(
    lib: Library, data: Dataset, m: int, sampler: str = "PCD-1", batch: int = BATCH
) -> Work:
    """Updates of an RBM with m hidden units by CD-1, PCD-1, or PT_T with one ladder."""
    n, T = (
        data.width,
        int(sampler.removeprefix("PT_")) if sampler.startswith("PT_") else 1,
    )
    W, b, c, lam = (
        weights(lib, n, m),
        weights(lib, n),
        weights(lib, m),
        lib.array(np.full(m, 0.5)),
    )
    h = lib.draw(lib.array(np.full((T if T > 1 else batch, m), 0.5)))
    beta, share = lib.array(np.linspace(0, 1, T)), RATE / batch
    next_batch = batches(lib, data.train, batch)

    def work(times: int) -> None:
        nonlocal W, b, c, lam, h
        for _ in range(times):
            x_d = next_batch()
            h_d = lib.sigmoid(lib.add_product(c, x_d, W))
            if T > 1:
                x, h_m, h = tempered(lib, (W, b, c), beta, h, batch)
            else:
                x = lib.draw(
                    lib.sigmoid(
                        lib.add_product(
                            b, lib.draw(h_d) if sampler == "CD-1" else h, W.T
                        )
                    )
                )
                h_m = lib.sigmoid(lib.add_product(c, x, W))
                h = lib.draw(h_m)
            mu, lam = x_d.mean(0), 0.99 * lam + 0.01 * h_d.mean(0)
            step = lib.add_product(
                (mu - x).T @ (share * (h_m - lam)), (x_d - mu).T, share * (h_d - lam)
            )
            W += step
            b += RATE * (mu - x.mean(0)) - step @ lam
            c += RATE * (h_d.mean(0) - h_m.mean(0)) - mu @ step

    return work


def tempered(
    lib: Library, machine: tuple, beta: Any, h: Any, rows: int
) -> tuple[Any, Any, Any]:
    """Samples x (rows, N) of the coldest chain, their hidden means, and the hidden
    states of all chains.
    """
    (W, b, c), T, samples = machine, len(beta), []
    for sweep in range(rows):
        x = lib.draw(lib.sigmoid(beta[:, None] * lib.add_product(b, h, W.T)))
        to_h = lib.add_product(c, x, W)
        h = lib.draw(lib.sigmoid(beta[:, None] * to_h))
        energy = -(x @ b) - (h * to_h).sum(1)
        k, order = lib.own.arange(sweep % 2, T - 1, 2), lib.own.arange(T)
        gain = (beta[k] - beta[k + 1]) * (energy[k] - energy[k + 1])
        k = k[lib.draw(lib.own.exp(gain.clip(max=0))) == 1]
        order[k], order[k + 1] = k + 1, k
        h = h[order]
        samples.append((x[order[-1]], to_h[order[-1]]))
    x, to_h = (lib.own.stack(part) for part in zip(*samples, strict=True))
    return x, lib.sigmoid(to_h), h


def deep_training(lib: Library, data: Dataset, m1: int, m2: int, rounds: int) -> Work:
    """Updates of a DBM with two hidden layers by PCD-1."""
    W1, W2 = weights(lib, data.width, m1), weights(lib, m1, m2)
    b, c, d = (weights(lib, size) for size in (data.width, m1, m2))
    start, next_batch = (
        lib.array(np.full((BATCH, m2), 0.5)),
        batches(lib, data.train, BATCH),
    )
    h1, share = lib.draw(lib.array(np.full((BATCH, m1), 0.5))), RATE / BATCH

    def work(times: int) -> None:
        nonlocal W1, W2, b, c, d, h1
        for _ in range(times):
            v = next_batch()
            heard = lib.add_product(c, v, W1)
            q1 = lib.sigmoid(lib.add_product(heard, start, W2.T))
            for _ in range(rounds):
                q2 = lib.sigmoid(lib.add_product(d, q1, W2))
                q1 = lib.sigmoid(lib.add_product(heard, q2, W2.T))
            x = lib.draw(lib.sigmoid(lib.add_product(b, h1, W1.T)))
            h2 = lib.draw(lib.sigmoid(lib.add_product(d, h1, W2)))
            p1 = lib.sigmoid(lib.add_product(lib.add_product(c, x, W1), h2, W2.T))
            h1 = lib.draw(p1)
            W1 += lib.add_product(x.T @ (-share * p1), v.T, share * q1)
            W2 += lib.add_product(p1.T @ (-share * h2), q1.T, share * q2)
            b += RATE * (v.mean(0) - x.mean(0))
            c += RATE * (q1.mean(0) - p1.mean(0))
            d += RATE * (q2.mean(0) - h2.mean(0))

    return work


def natural(lib: Library, data: Dataset, m: int) -> Work:
    """Updates of a tiny RBM, an exponential family in (x h, x, h), by its exact natural
    gradient.
    """
    n, rows = data.width, lib.array(data.train)
    states = (np.arange(2 ** (n + m))[:, None] >> np.arange(n + m)) & 1

    def statistics(x: Any, h: Any) -> Any:
        products = (x[:, :, None] * h[:, None, :]).reshape(len(x), n * m)
        return lib.own.concatenate([products, x, h], 1)

    theta, every = (
        weights(lib, n * m + n + m),
        statistics(*map(lib.array, (states[:, :n], states[:, n:]))),
    )

    def work(times: int) -> None:
        nonlocal theta
        for _ in range(times):
            h = lib.sigmoid(
                lib.add_product(theta[-m:], rows, theta[: n * m].reshape(n, m))
            )
            p = lib.own.exp(every @ theta)
            p = p / p.sum()
            mean = p @ every
            fisher = every.T @ (p[:, None] * every) - mean[:, None] * mean
            theta += 1e-6 * lib.own.linalg.solve(
                fisher, statistics(rows, h).mean(0) - mean
            )

    return work


def encoding(lib: Library, data: Dataset, m: int) -> Work:
    """Updates of an auto encoder with tied weights, sigmoid units and the cross
    entropy.
    """
    W, b, c = weights(lib, data.width, m), weights(lib, data.width), weights(lib, m)
    next_batch = batches(lib, data.train, BATCH)

    def work(times: int) -> None:
        nonlocal W, b, c
        for _ in range(times):
            x = next_batch()
            y = lib.sigmoid(lib.add_product(c, x, W))
            delta_z = -RATE / BATCH * (lib.sigmoid(lib.add_product(b, y, W.T)) - x)
            delta_y = (delta_z @ W) * y * (1 - y)
            W += lib.add_product(delta_z.T @ y, x.T, delta_y)
            b += delta_z.sum(0)
            c += delta_y.sum(0)

    return work


def annealing(
    lib: Library, machine: Plain, base: np.ndarray, temperatures: int, runs: int
) -> Work:
    """Estimates of log Z by AIS."""
    W, b, c, base_b = map(lib.array, (*machine, base))
    betas = [float(beta) for beta in schedule(temperatures)]

    def estimate() -> float:
        x = lib.draw(lib.sigmoid(lib.array(np.tile(base, (runs, 1)))))
        to_h, log_weight = lib.add_product(c, x, W), 0
        for here, there in pairwise(betas):
            h = lib.draw(lib.sigmoid(here * to_h))
            x = lib.draw(
                lib.sigmoid((1 - here) * base_b + here * lib.add_product(b, h, W.T))
            )
            to_h = lib.add_product(c, x, W)
            log_weight += (there - here) * (x @ (b - base_b))
            log_weight += (lib.softplus(there * to_h) - lib.softplus(here * to_h)).sum(
                1
            )
        return float(np.logaddexp.reduce(log_weight) - np.log(runs)) + log_z_of_base(
            base, len(c)
        )

    return lambda n: [estimate() for _ in range(n)]


def likelihood(
    lib: Library, machine: Plain, rows: np.ndarray, block: int = 6000
) -> Work:
    """Mean log-likelihoods of the rows plus log Z."""
    W, b, c = map(lib.array, machine)

    def mean() -> float:
        blocks = (lib.array(rows[i : i + block]) for i in range(0, len(rows), block))
        scores = [
            (x @ b).sum() + lib.softplus(lib.add_product(c, x, W)).sum() for x in blocks
        ]
        return float(sum(scores)) / len(rows)

    return lambda n: [mean() for _ in range(n)]


def log_partition(lib: Library, machine: Plain, block: int = 4096) -> Work:
    """log Z over all states of the hidden units."""
    W, b, c = map(lib.array, machine)
    bits = np.arange(len(c))

    def log_z() -> float:
        starts = range(0, 2 ** len(c), block)
        blocks = (
            lib.array((np.arange(k, k + block)[:, None] >> bits) & 1) for k in starts
        )
        values = [
            h @ c + lib.softplus(lib.add_product(b, h, W.T)).sum(1) for h in blocks
        ]
        return float(np.logaddexp.reduce(lib.own.concatenate(values)))

    return lambda n: [log_z() for _ in range(n)]


def of_scikit_learn(
    data: Dataset, m: int, batch: int = BATCH, encodes: bool = False
) -> dict[str, Work]:
    """BernoulliRBM (PCD-1, plain gradient), or MLPRegressor (untied weights, squared
    errors).
    """
    if not find_spec("sklearn"):
        return {}
    from sklearn.neural_network import BernoulliRBM, MLPRegressor

    rows = data.train[:batch].astype(np.float32)
    if encodes:
        machine = MLPRegressor(
            hidden_layer_sizes=(m,),
            activation="logistic",
            solver="sgd",
            batch_size=batch,
        )
        return {
            "scikit-learn": lambda n: [
                machine.partial_fit(rows, rows) for _ in range(n)
            ]
        }
    machine = BernoulliRBM(m, learning_rate=RATE, batch_size=batch, random_state=1)
    return {"scikit-learn": lambda n: [machine.partial_fit(rows) for _ in range(n)]}
