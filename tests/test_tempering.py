"""Tempering: its chains have the distributions of their rungs, its estimates the error that they tell."""

import json

import numpy as np
import pytest
from scipy.stats import chi2

import cbm_cli as cbm_package
from cbm_cli import reference as ref
from cbm_cli.machines.estimates import base_rate
from cbm_cli.machines.likelihood import Method, Parts, evaluate
from cbm_cli.machines.tempering import Ladders, Tempered, bennett, temper
from tests.builders import (
    GRID,
    RBM,
    THREE,
    TWO,
    brute_log_likelihoods,
    cbm,
    evaluate_file,
    layered,
    machine_file,
    summary,
)
from tests.oracles import joint, log_z, random_machine, rbm, states

NOTHING = (), 1.0, np.zeros(0, np.float32)


def ladders(betas, chains, seed=3, machine=None):
    """Ladders whose chains start in equilibrium; their machine, and the biases of its base."""
    W, b, c = machine or random_machine(4, 3, seed)
    base = np.linspace(-1, 1, 4).astype(np.float32)
    random, h = np.random.default_rng(seed), []
    for beta in betas:
        p = rung(W, b, c, base, beta)[0].sum(axis=0)
        h.append(states(3)[random.choice(8, chains, p=p)])
    return (
        Ladders((W, b, c), base, np.array(betas), np.stack(h, axis=1).astype(np.float32), seed),
        (W, b, c),
        base,
    )


def rung(W, b, c, base, beta):
    """p(x, h) of a rung, (2^N, 2^M), and its log Z."""
    return joint(beta * W, (1 - beta) * base + beta * b, beta * c)


def test_chains_that_start_in_equilibrium_stay_there():
    betas = [0, 0.3, 0.7, 1]
    its, machine, base = ladders(betas, 4000)
    for _ in range(6):
        its.sweep()
        its.swap()
    x = its.chains.x.states.reshape(4000, 4, 4)
    for k, beta in enumerate(betas):
        p = rung(*machine, base, beta)[0].sum(axis=1)
        found = np.bincount((x[:, k] @ 2 ** np.arange(4)).astype(int), minlength=16)
        statistic = ((found - 4000 * p) ** 2 / (4000 * p)).sum()
        assert chi2.sf(statistic, 15) > 1e-4


def test_swaps_have_the_probability_of_the_joint_distribution():
    betas = np.array([0, 0.4, 1])
    its, (W, b, c), base = ladders(betas, 50)
    its.sweep()
    x = its.chains.x.states.reshape(50, 3, 4).astype(float)
    h = its.chains.h.states.reshape(50, 3, 3).astype(float)

    def log_f(beta, x, h):
        return (1 - beta) * x @ base - beta * ref.energy(x, h, W, b, c)

    for k in (0, 1):
        pair = [(x[:, j], h[:, j]) for j in (k, k + 1)]
        swapped = log_f(betas[k], *pair[1]) + log_f(betas[k + 1], *pair[0])
        kept = log_f(betas[k], *pair[0]) + log_f(betas[k + 1], *pair[1])
        expected = np.minimum(1, np.exp(swapped - kept))
        if k == 0:
            chance, made = its.swap()
        np.testing.assert_allclose(chance[:, k], expected, rtol=1e-4)
    assert not made[:, 1].any()
    now = its.chains.x.states.reshape(50, 3, 4)
    np.testing.assert_array_equal(now[made[:, 0], 0], x[made[:, 0], 1])
    np.testing.assert_array_equal(now[:, 2], x[:, 2])


def test_ratios_are_those_of_states_with_h_summed_out():
    betas = np.array([0, 0.4, 1])
    its, (W, b, c), base = ladders(betas, 20)
    its.sweep()
    x = its.chains.x.states.reshape(20, 3, 4).astype(float)

    def log_f(beta, x):
        return -ref.free_energy(x, beta * W, (1 - beta) * base + beta * b, beta * c)

    up, down = its.ratios()
    for k in (0, 1):
        for found, own in ((up, k), (down, k + 1)):
            expected = log_f(betas[k + 1], x[:, own]) - log_f(betas[k], x[:, own])
            np.testing.assert_allclose(found[:, k], expected, atol=1e-4)
    np.testing.assert_allclose(its.coldest()[1], log_f(1, x[:, 2]), atol=1e-4)


def test_bennett_finds_the_ratio_of_two_normal_distributions():
    random, shift = np.random.default_rng(1), 1.5
    x, y = random.standard_normal((2, 40_000))
    # f_0 = exp(-x^2 / 2), f_1 = 5 exp(-(x - shift)^2 / 2)
    ratio = lambda x: np.log(5) - (x - shift) ** 2 / 2 + x**2 / 2  # noqa: E731
    found = bennett(ratio(x), ratio(y + shift))
    assert found == pytest.approx(np.log(5), abs=0.03)
    assert bennett(np.full(9, 2.5), np.full(9, 2.5)) == pytest.approx(2.5)


def test_errors_are_as_large_as_they_are_said_to_be():
    scores = []
    for seed in range(20):
        machine = random_machine(9, 5, seed, 1.5)
        base = base_rate(np.random.default_rng(seed).random(9), 20)
        found = temper(machine, base, NOTHING, seed, 30_000)
        assert not found.doubtful
        scores.append((found.log_z - log_z(machine)) / found.standard_error)
    assert abs(np.mean(scores)) < 4.5 / np.sqrt(20)
    assert 0.5 < np.std(scores) < 2


@pytest.mark.parametrize("layers", [RBM, TWO, THREE])
def test_machines_of_any_depth_have_the_exact_likelihood(layers):
    machine = layered(layers, 3)
    np.savez("m.npz", **machine_file(machine, "rbm" if len(layers) == 2 else "dbm"))
    np.save("rows.npy", states(layers[0]).astype(np.uint8))
    answer = evaluate_file("--tempering", "--temperatures", 2000, "--json")
    exact = evaluate_file("--exact", "--json")
    assert abs(answer["log_z"] - exact["log_z"]) < 4.5 * answer["log_z_standard_error"]
    assert not answer["doubtful"]
    assert answer["log_z_at_least"] <= exact["log_z"]
    assert "rungs" in evaluate_file("--tempering", "--temperatures", 200)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_state_that_half_of_the_ladders_do_not_find_makes_it_doubtful():
    n, m, w = 12, 10, 4.0  # two modes, all on and all off, of which the second is heavier
    machine = rbm(np.full((n, m), w), np.full(n, -w * m / 2 + 0.2), np.full(m, -w * n / 2))
    rows = np.ones((5, n), np.uint8)
    parts = Parts({"train": rows}, 1.0, np.full(n, -6, np.float32))
    found, _ = evaluate(machine, parts, Method("tempering", temperatures=30, runs=20, checked=False))
    assert found["doubtful"]
    assert found["effective_sample_size"] == 0


@pytest.mark.parametrize(
    ("changes", "doubtful"),
    [
        ({}, False),
        ({"acceptance": (0.5, 0.09)}, True),
        ({"differs": "halves"}, True),
        ({"standard_error": 0.31}, True),
    ],
)
def test_doubts(changes, doubtful):
    facts = {"log_z": 9.0, "standard_error": 0.1, "betas": (0, 0.5, 1), "sweeps": 9, "acceptance": (0.5, 0.4)}
    facts |= {"by_start": (9.0, 9.0), "by_time": (9.0, 9.0), "differs": "", "ends": np.zeros((1, 3))}
    found = Tempered(**facts | changes)
    assert found.doubtful == doubtful
    assert found.disproved_by(10.5)
    assert not found.disproved_by(9.2)


def test_a_seed_decides_all_bytes():
    machine, base = random_machine(8, 4, 2), np.zeros(8, np.float32)
    first, again, other = (temper(machine, base, NOTHING, seed, 10_000) for seed in (1, 1, 2))
    assert (first.log_z, first.betas, first.acceptance) == (again.log_z, again.betas, again.acceptance)
    assert first.log_z != other.log_z


def test_training_and_results_take_it():
    grid = GRID.replace("method: exact, every: 20", "method: tempering, every: 50, temperatures: 100")
    with open("grid.yaml", "w") as file:
        file.write(grid.replace("[CD-1, PT_4]", "CD-1").replace("[00, dd^b_s]", "dd^b_s"))
    cbm("run", "grid.yaml", "-o", "out", "-j", 0)
    row = summary("out")[0]
    assert float(row["effective_sample_size_final"]) == 100
    assert float(row["log_z_at_least_final"]) <= float(row["log_z_final"]) + 0.1
    lines = cbm(
        "evaluate", "out", "--tempering", "--temperatures", 100, "--json", "-j", 0
    ).stdout.splitlines()
    exact = cbm("evaluate", "out", "--exact", "--json", "-j", 0).stdout.splitlines()
    for one, other in zip(map(json.loads, lines), map(json.loads, exact), strict=True):
        error = one["tempering_log_z_standard_error"]
        assert abs(one["tempering_log_z"] - other["exact_log_z"]) < 5 * error + 0.02
    table = cbm("table", "out", "bars", "--metric", "train_log_likelihood_tempering").stdout
    assert "tempering" in table


def test_python_takes_it_without_data():
    np.savez("m.npz", **machine_file(layered(RBM, 3), "rbm"))
    machine = cbm_package.load("m.npz")
    found = machine.log_partition("tempering", temperatures=1000)
    assert found == pytest.approx(machine.log_partition(), abs=0.1)
    exact = brute_log_likelihoods(layered(RBM, 3), RBM)
    np.testing.assert_allclose(
        machine.log_likelihood(states(4), "tempering", temperatures=1000), exact, atol=0.1
    )
