"""Brute force in plain NumPy and Python, float64: what the compiled kernels are held against."""

import itertools

import numpy as np

from cbm_cli.kernels.random import fill_uniform
from cbm_cli.kernels.state import Mix, Plan, State


def sigmoid(a):
    return 1 / (1 + np.exp(-np.asarray(a, dtype=float)))


def states(n):
    """All 2^n binary states, one a row."""
    return np.array(list(itertools.product((0.0, 1.0), repeat=n)))


def joint(W, b, c, mu=0.0, lam=0.0, beta=1.0):
    """p(x, h) of the centered machine at an inverse temperature: array (2^N, 2^M), and log Z."""
    X, H = states(len(b)) - mu, states(len(c)) - lam
    energy = -(X @ b)[:, None] - (H @ c)[None, :] - X @ W @ H.T
    weight = np.exp(-beta * energy + beta * energy.min())
    log_z = np.log(weight.sum()) - beta * energy.min()
    return weight / weight.sum(), log_z


def log_likelihoods(W, b, c, rows):
    """log p(x) of every row, by summing all states of both sides."""
    p, _ = joint(W, b, c)
    index = {tuple(x): i for i, x in enumerate(states(len(b)))}
    return np.log(p.sum(axis=1)[[index[tuple(row)] for row in np.asarray(rows, dtype=float)]])


def random_machine(n, m, seed, scale=1.0):
    """A plain machine in float32."""
    rng = np.random.default_rng(seed)
    return tuple((scale * rng.standard_normal(shape)).astype(np.float32) for shape in ((n, m), (n,), (m,)))


def random_state(n, m, plan, seed, scale=1.0):
    """A training state with a random machine, random offsets and random chains."""
    rng = np.random.default_rng(seed + 1)
    W, b, c = random_machine(n, m, seed, scale)
    mu, lam = rng.random(n).astype(np.float32), rng.random(m).astype(np.float32)
    x = (rng.random((plan.ladders * plan.temperatures, n)) < 0.5).astype(np.float32)
    return State(W, b, c, mu, lam, x, *no_fast(n, m, plan))


def no_fast(n, m, plan):
    """Fast weights before the first update: zero, or of no size."""
    shapes = ((n, m), (n,), (m,)) if plan.fast_learning_rate > 0 else ((0, 0), (0,), (0,))
    return tuple(np.zeros(shape, np.float32) for shape in shapes)


MIXES = {
    "0": (0, 0, 0, 0),
    "d": (1, 0, 0, 0),
    "m": (0, 1, 0, 0),
    "a": (0.5, 0.5, 0, 0),
    "h": (0, 0, 0.5, 0),
    "r": (0, 0, 0, 1),
}


def mix(letter):
    return Mix(*map(np.float32, MIXES[letter]))


def plan(batch, **changes):
    """A full-batch plan of PCD-1 with the scheme dd^b, changed as asked."""
    one = np.float32(1)
    base = Plan(
        seed=np.uint64(2024),
        learning_rate=np.float32(0.1),
        sliding_visible=one,
        sliding_hidden=one,
        visible_mix=mix("d"),
        hidden_mix=mix("d"),
        offsets_before=True,
        batch=batch,
        batches=1,
        shuffled=False,
        unit=one,
        ladders=batch,
        temperatures=1,
        steps=1,
        restart=False,
        exact=False,
        fast_learning_rate=np.float32(0),
        fast_decay=np.float32(0.95),
    )
    return base._replace(**changes)


def copied(state):
    return State(*(array.copy() for array in state))


def uniform(seed, update, site, count):
    u = np.empty(count + -count % 4, np.float32)
    fill_uniform(u, np.uint64(seed), update, site, 0)
    return u[:count]
