"""Units and sweeps: the distribution is the machine's, and one sweep serves every sampler."""

import numpy as np
import pytest

from cbm_cli.kernels.random import SAMPLER
from cbm_cli.kernels.state import State
from cbm_cli.kernels.sweep import draw_samples, make_ladder, make_negative, swap_neighbours, weigh_all_states
from cbm_cli.kernels.training import train
from cbm_cli.kernels.units import mean_of_units, sample_units
from tests.oracles import copied, joint, no_fast, plan, random_machine, random_state, sigmoid, states, uniform


def test_sigmoid_is_right_to_float32_over_the_whole_range():
    a = np.linspace(-200, 200, 1_000_001).astype(np.float32)
    found = np.empty_like(a)
    mean_of_units(a[None], np.zeros_like(a), found[None])
    exact = sigmoid(a.astype(float))
    assert np.abs(found - exact).max() < 1.2e-7  # 2^-23: one unit in the last place at 1
    tail = (a > -86) & (a < 0)
    assert np.abs(found[tail] / exact[tail] - 1).max() < 1e-6
    assert np.isfinite(found).all()


def test_a_unit_is_on_when_u_is_below_its_probability():
    a, u = np.float32([-2, -2, 0, 0, 3, 3]), np.float32([0.11, 0.13, 0.49, 0.51, 0.94, 0.96])
    out, ones = np.empty(6, np.float32), np.ones(6, np.float32)
    sample_units(a[None], ones, 0 * ones, u, 0, out[None])
    assert out.tolist() == [1, 0, 1, 0, 1, 0]


def draw_states(p, count, seed):
    """Rows drawn exactly from a distribution over all states."""
    n = int(np.log2(len(p)))
    return states(n)[np.random.default_rng(seed).choice(len(p), size=count, p=p)]


def deviations(x, p):
    """Frequency of every state against its probability, in standard errors."""
    n = x.shape[1]
    index = (x @ 2.0 ** np.arange(n)[::-1]).astype(int)
    frequency = np.bincount(index, minlength=len(p)) / len(x)
    return np.abs(frequency - p) / np.sqrt(p * (1 - p) / len(x))


@pytest.mark.parametrize("steps", [1, 3])
def test_gibbs_chains_that_start_at_p_stay_at_p(steps):
    chains = 40_000
    W, b, c = random_machine(4, 3, seed=1)
    p = joint(W, b, c)[0].sum(axis=1)
    its = plan(chains, steps=steps)
    state = State(
        W, b, c, b * 0, c * 0, draw_states(p, chains, seed=2).astype(np.float32), *no_fast(4, 3, its)
    )
    ladder, samples = make_ladder(state, its), np.empty((chains, 4), np.float32)
    for update in range(4):
        draw_samples(state, ladder, its, update, samples)
    assert deviations(samples, p).max() < 4.5  # standard errors; 16 states


def test_tempered_chains_that_start_at_their_distributions_stay_there():
    ladders, temperatures = 20_000, 4
    W, b, c = random_machine(4, 3, seed=4, scale=1.5)
    by_temperature = [joint(W, b, c, beta=beta)[0].sum(axis=1) for beta in np.linspace(0, 1, temperatures)]
    x = np.stack([draw_states(p, ladders, seed=t) for t, p in enumerate(by_temperature)], axis=1)
    its = plan(3 * ladders, ladders=ladders, temperatures=temperatures)
    state = State(W, b, c, b * 0, c * 0, x.reshape(-1, 4).astype(np.float32), *no_fast(4, 3, its))
    ladder, samples = make_ladder(state, its), np.empty((3 * ladders, 4), np.float32)
    for update in range(2):
        draw_samples(state, ladder, its, update, samples)
    for t, p in enumerate(by_temperature):
        assert deviations(state.x[t::temperatures], p).max() < 4.5, f"temperature {t}"
    assert (samples[-ladders:] == state.x[temperatures - 1 :: temperatures]).all()


def test_neighbours_swap_by_the_metropolis_rule():
    beta, energy = np.float32([0, 0.5, 1]), np.float32([-1, -3, -4])
    x = np.float32([[0], [1], [2]])
    # Pair (0, 1): gain (0 - 0.5) (-1 + 3) = -1, accepted below exp(-1) = 0.368.
    swap_neighbours(x, energy, beta, 3, 0, np.float32([0.36, 0, 0]), 0)
    assert x.ravel().tolist() == [1, 0, 2]
    swap_neighbours(x, energy, beta, 3, 0, np.float32([0.38, 0, 0]), 0)
    assert x.ravel().tolist() == [1, 0, 2]
    # Pair (1, 2) has the odd parity: gain (0.5 - 1) (-3 + 4) = -0.5, accepted below 0.607.
    swap_neighbours(x, energy, beta, 3, 1, np.float32([0, 0.6, 0]), 0)
    assert x.ravel().tolist() == [1, 2, 0]
    # A colder chain with the higher energy always swaps.
    swap_neighbours(x, np.float32([-4, -3, -1]), beta, 3, 1, np.float32([0, 1, 0]), 0)
    assert x.ravel().tolist() == [1, 0, 2]


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4)])
def test_all_states_carry_the_weight_of_their_probability(shape):
    n, m = shape
    machine = random_machine(n, m, seed=7)
    its = plan(4, exact=True)
    state = random_state(n, m, its, seed=7)
    negative = make_negative(np.empty((2 ** min(n, m), n), np.float32), m, its)
    weigh_all_states(state, negative)
    p, _ = joint(*machine)
    weighted = negative.x * negative.weight[:, None]
    assert negative.weight.sum() == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(weighted.sum(axis=0), p.sum(axis=1) @ states(n), atol=2e-6)
    np.testing.assert_allclose(weighted.T @ negative.h, states(n).T @ p @ states(m), atol=2e-6)


def plain_sweeps(state, its, update, batch):
    """draw_samples in plain Python, with the same random numbers: a readable reference."""
    W, b, c, _, _, x = (array.astype(float) for array in state[:6])
    if its.restart:
        x = batch.astype(float)
    chains, (n, m) = len(x), W.shape
    beta = np.tile(np.linspace(0, 1, its.temperatures), its.ladders)[:, None] if its.temperatures > 1 else 1.0
    numbers = its.steps * chains * (n + m) + chains
    numbers += -numbers % 4
    rounds, samples = its.batch // its.ladders, []
    u_all = uniform(int(its.seed), update, SAMPLER, rounds * numbers).reshape(rounds, numbers)
    for r, u in enumerate(u_all):
        at = 0
        for _ in range(its.steps):
            h = (u[at : at + chains * m].reshape(chains, m) < sigmoid(beta * (x @ W + c))).astype(float)
            at += chains * m
            x = (u[at : at + chains * n].reshape(chains, n) < sigmoid(beta * (h @ W.T + b))).astype(float)
            at += chains * n
        energy = -(x * (h @ W.T + b)).sum(axis=1) - h @ c
        for first in range(0, chains if its.temperatures > 1 else 0, its.temperatures):
            for k in range(first + (update * rounds + r) % 2, first + its.temperatures - 1, 2):
                gain = (beta[k, 0] - beta[k + 1, 0]) * (energy[k] - energy[k + 1])
                if u[at + k] < min(1, np.exp(gain)):
                    x[[k, k + 1]] = x[[k + 1, k]]
        samples.append(x[its.temperatures - 1 :: its.temperatures].copy())
    return np.concatenate(samples), x


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"steps": 3},
        {"restart": True},
        {"ladders": 1, "temperatures": 10},
        {"ladders": 4, "temperatures": 3, "steps": 2},
    ],
    ids=["PCD-1", "PCD-3", "CD-1", "PT_10", "PT_3-2 with 4 ladders"],
)
def test_every_sampler_takes_the_steps_of_the_plain_reference(changes):
    its = plan(8, **changes)
    state = random_state(6, 3, its, seed=20)
    batch = states(6)[:8].astype(np.float32)
    ladder, samples = make_ladder(state, its), np.empty((8, 6), np.float32)
    for update in range(25):
        expected, chains = plain_sweeps(state, its, update, batch)
        if its.restart:
            state.x[:] = batch
        draw_samples(state, ladder, its, update, samples)
        assert (samples == expected).all()
        assert (state.x == chains).all()


def test_cd_restarts_its_chains_at_the_batch():
    rows = states(5)[:6].astype(np.uint8)
    its = plan(6, restart=True, learning_rate=np.float32(0))
    state = random_state(5, 3, its, seed=3, scale=0.5)
    other = copied(state)
    other.x[:] = 1 - other.x
    for it in (state, other):
        train(it, rows, its, 0, 5)
    assert (state.x == other.x).all()
