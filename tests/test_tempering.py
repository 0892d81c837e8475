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

# isort: off
from tests.builders import (
    GRID, RBM, THREE, TWO, brute_log_likelihoods, cbm, evaluate_file, layered, machine_file, run_grid,
    summary, visible_rows,
)  # fmt: skip
from tests.oracles import joint, log_z, random_machine, rbm, sigmoid, states

NOTHING = (), 1.0, np.zeros(0, np.float32)


def ladders(betas, chains, seed=3):
    """Ladders whose chains start in equilibrium; their machine, and the biases of its base."""
    machine, base = random_machine(4, 3, seed), np.linspace(-1, 1, 4).astype(np.float32)
    random, h = np.random.default_rng(seed), []
    for beta in betas:
        h.append(states(3)[random.choice(8, chains, p=rung(*machine, base, beta).sum(axis=0))])
    h = np.stack(h, axis=1).astype(np.float32)
    return Ladders(machine, base, np.array(betas), h, seed), machine, base


def layers_of(its):
    """The states of both layers, (ladders, rungs, units)."""
    return (
        layer.states.reshape(-1, len(its.betas), units).astype(float)
        for layer, units in ((its.chains.x, 4), (its.chains.h, 3))
    )


def rung(W, b, c, base, beta):
    """p(x, h) of a rung, (2^N, 2^M)."""
    return joint(beta * W, (1 - beta) * base + beta * b, beta * c)[0]


def test_chains_that_start_in_equilibrium_stay_there():
    betas = [0, 0.3, 0.7, 1]
    its, machine, base = ladders(betas, 4000)
    for _ in range(6):
        its.sweep()
        its.swap()
    x, _ = layers_of(its)
    for k, beta in enumerate(betas):
        expected = 4000 * rung(*machine, base, beta).sum(axis=1)
        found = np.bincount((x[:, k] @ 2 ** np.arange(4)).astype(int), minlength=16)
        assert chi2.sf(((found - expected) ** 2 / expected).sum(), 15) > 1e-4


def test_swaps_have_the_probability_of_the_joint_distribution_and_ratios_those_of_the_visible_one():
    betas = np.array([0, 0.4, 1])
    its, (W, b, c), base = ladders(betas, 50)
    its.sweep()
    x, h = layers_of(its)

    def log_f(beta, x, h):
        return (1 - beta) * x @ base - beta * ref.energy(x, h, W, b, c)

    def log_p(beta, x):
        return -ref.free_energy(x, beta * W, (1 - beta) * base + beta * b, beta * c)

    up, down = its.ratios()
    np.testing.assert_allclose(its.coldest()[1], log_p(1, x[:, 2]), atol=1e-4)
    chance, made = its.swap()
    for k in (0, 1):
        for found, own in ((up, k), (down, k + 1)):
            expected = log_p(betas[k + 1], x[:, own]) - log_p(betas[k], x[:, own])
            np.testing.assert_allclose(found[:, k], expected, atol=1e-4)
        (x0, h0), (x1, h1) = ((x[:, j], h[:, j]) for j in (k, k + 1))
        swapped = log_f(betas[k], x1, h1) + log_f(betas[k + 1], x0, h0)
        kept = log_f(betas[k], x0, h0) + log_f(betas[k + 1], x1, h1)
        np.testing.assert_allclose(chance[:, k], np.minimum(1, np.exp(swapped - kept)), rtol=1e-4)
    assert not made[:, 1].any()
    now, _ = layers_of(its)
    np.testing.assert_array_equal(now[made[:, 0], 0], x[made[:, 0], 1])
    np.testing.assert_array_equal(now[:, 2], x[:, 2])


def test_bennett_finds_the_ratio_of_two_normal_distributions():
    random, shift = np.random.default_rng(1), 1.5
    x, y = random.standard_normal((2, 40_000))
    # f_0 = exp(-x^2 / 2), f_1 = 5 exp(-(x - shift)^2 / 2)
    ratio = lambda x: np.log(5) - (x - shift) ** 2 / 2 + x**2 / 2  # noqa: E731
    found = bennett(ratio(x), ratio(y + shift))
    assert found == pytest.approx(np.log(5), abs=0.03)
    up, down = np.array([-50.0, 0, 1]), np.array([0.0, 2, 9])  # their mean is far from the root
    found = bennett(up, down)
    assert sigmoid(up - found).sum() == pytest.approx(sigmoid(found - down).sum(), rel=1e-6)
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
def test_machines_of_any_depth_have_the_exact_likelihood(here, layers):
    np.savez("m.npz", **machine_file(layered(layers, 3), "rbm" if len(layers) == 2 else "dbm"))
    np.save("rows.npy", visible_rows(layers))
    how = "--tempering", "--temperatures", 500, "--json", "--seed"
    answer, same, other = (evaluate_file(*how, seed) for seed in (1, 1, 2))
    assert answer == same != other
    counted = 20 * len(answer["rungs"]) * answer["sweeps"]  # of single chains; a fourth searches for rungs,
    assert counted == pytest.approx(0.75 * 0.75 * 500 * 100, rel=0.1)  # and a fourth of the rest is left out
    exact = evaluate_file("--exact", "--json")
    assert abs(answer["log_z"] - exact["log_z"]) < 4.5 * answer["log_z_standard_error"]
    assert not answer["doubtful"]
    assert answer["log_z_at_least"] <= exact["log_z"]
    assert "rungs" in evaluate_file("--tempering", "--temperatures", 200)
    machine = cbm_package.load("m.npz")  # without data
    found = machine.log_partition("tempering", temperatures=1000)
    assert found == pytest.approx(machine.log_partition(), abs=0.1)
    if layers == RBM:
        found = machine.log_likelihood(visible_rows(layers), "tempering", temperatures=1000)
        exact = brute_log_likelihoods(layered(layers, 3), layers)
        np.testing.assert_allclose(found, exact, atol=0.1)


def test_a_state_that_half_of_the_ladders_do_not_find_makes_it_doubtful():
    n, m, w = 12, 10, 4.0  # two modes, all on and all off, of which the second is heavier
    machine = rbm(np.full((n, m), w), np.full(n, -w * m / 2 + 0.2), np.full(m, -w * n / 2))
    parts = Parts({"train": np.ones((5, n), np.uint8)}, 1.0, np.full(n, -6, np.float32))
    found, _ = evaluate(machine, parts, Method("tempering", temperatures=30, runs=20, checked=False))
    assert found["doubtful"]
    assert found["effective_sample_size"] == 0


@pytest.mark.parametrize(
    "changes", [{}, {"acceptance": (0.5, 0.09)}, {"differs": "halves"}, {"standard_error": 0.31}]
)
def test_doubts(changes):
    facts = {"log_z": 9.0, "standard_error": 0.1, "betas": (0, 0.5, 1), "sweeps": 9, "acceptance": (0.5, 0.4)}
    facts |= {"by_start": (9.0, 9.0), "by_time": (9.0, 9.0), "differs": "", "ends": np.zeros((1, 3))}
    found = Tempered(**facts | changes)
    assert found.doubtful == bool(changes)
    assert found.disproved_by(10.5)
    assert not found.disproved_by(9.2)


def test_training_and_results_take_it(here):
    grid = GRID.replace("method: exact, every: 20", "method: tempering, every: 50, temperatures: 100")
    run_grid(grid.replace("[CD-1, PT_4]", "CD-1").replace("[00, dd^b_s]", "dd^b_s"))
    row = summary("results")[0]
    assert float(row["effective_sample_size_final"]) == 100
    assert float(row["log_z_at_least_final"]) <= float(row["log_z_final"]) + 0.1
    command = "evaluate", "results", "--json", "-j", 0
    lines = cbm(*command, "--tempering", "--temperatures", 100).stdout.splitlines()
    exact = cbm(*command, "--exact").stdout.splitlines()
    for one, other in zip(map(json.loads, lines), map(json.loads, exact), strict=True):
        error = one["tempering_log_z_standard_error"]
        assert abs(one["tempering_log_z"] - other["exact_log_z"]) < 5 * error + 0.02
    assert "tempering" in cbm("table", "results", "--metric", "train_log_likelihood_tempering").stdout
