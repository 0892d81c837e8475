"""Brute force in plain NumPy and Python, float64: what the compiled kernels are held against."""

import itertools

import numpy as np

from cbm_cli.kernels.random import fill_uniform
from cbm_cli.kernels.state import INDEPENDENT, State, empty_trail, no_extras, plain_plan
from cbm_cli.kernels.training import train
from cbm_cli.machines.files import Machine


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


def rbm(W, b, c):
    """A machine of one hidden layer in float32."""
    arrays = (np.ascontiguousarray(array, dtype=np.float32) for array in (W, b, c))
    return Machine(*arrays, np.zeros(0, np.float32), (len(b), len(c)))


def random_state(n, m, plan, seed, scale=1.0):
    """A training state with a random machine, random offsets and random chains."""
    rng = np.random.default_rng(seed + 1)
    W, b, c = random_machine(n, m, seed, scale)
    mu, lam = rng.random(n).astype(np.float32), rng.random(m).astype(np.float32)
    chains = plan.ladders * plan.temperatures
    h, aside_h = ((rng.random((chains, m)) < 0.5).astype(np.float32) for _ in range(2))
    extras = [aside_h if plan.offsets_from == INDEPENDENT else aside_h[:0], *no_extras()[1:]]
    if plan.fast_learning_rate > 0:
        extras[1:4] = (np.zeros(shape, np.float32) for shape in ((n, m), (n,), (m,)))
    return State(W, b, c, mu, lam, h, *extras)


MIXES = {
    "0": (0, 0, 0, 0),
    "d": (1, 0, 0, 0),
    "m": (0, 1, 0, 0),
    "a": (0.5, 0.5, 0, 0),
    "h": (0, 0, 0.5, 0),
    "r": (0, 0, 0, 1),
}


def mix(letter, units):
    """What the offsets of so many units are made of."""
    return np.tile(np.float32(MIXES[letter])[:, None], (1, units))


def plan(n, m, batch, scheme="dd", **changes):
    """A full-batch plan of PCD-1 of n visible and m hidden units, changed as asked."""
    mixes = {"visible_mix": mix(scheme[0], n), "hidden_mix": mix(scheme[1], m)}
    return plain_plan(n, m, 2024, batch, **({"learning_rate": np.float32(0.1)} | mixes | changes))


def learn(state, rows, plan, first, last, trail=None):
    """Train in place, without a trail unless one is given."""
    train(state, rows, plan, trail or empty_trail(*state.W.shape), first, last)


def copied(state):
    return State(*(array.copy() for array in state))


def uniform(seed, update, site, count):
    u = np.empty(count + -count % 4, np.float32)
    fill_uniform(u, np.uint64(seed), update, site, 0)
    return u[:count]
