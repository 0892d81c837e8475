"""The exact likelihood against sums over all states of both sides."""

import numpy as np
import pytest

from cbm_cli.kernels.states import log_partition, mean_log_likelihood
from tests.oracles import joint, log_likelihoods, random_machine, states


def brute_log_z(W, b, c):
    """log Z over the states of the smaller side, float64, in one piece."""
    W, b, c = (np.asarray(a, dtype=float) for a in (W, b, c))
    if W.shape[1] > W.shape[0]:
        W, b, c = W.T, c, b
    H = states(len(c))
    values = H @ c + np.logaddexp(0, H @ W.T + b).sum(axis=1)
    return values.max() + np.log(np.exp(values - values.max()).sum())


@pytest.mark.parametrize("shape", [(9, 4), (4, 9), (1, 1), (6, 6), (7, 1), (40, 12), (13, 30)])
@pytest.mark.parametrize("scale", [0.01, 1.0, 5.0])
def test_log_z_by_gray_code_is_the_sum_over_all_states(shape, scale):
    machine = random_machine(*shape, seed=3, scale=scale)
    assert log_partition(*machine) == pytest.approx(brute_log_z(*machine), rel=1e-12, abs=1e-10)


@pytest.mark.parametrize("scale", [60.0, 1e3, 1e6])
def test_log_z_of_a_diverged_machine_does_not_overflow(scale):
    machine = random_machine(9, 4, seed=3, scale=scale)
    assert log_partition(*machine) == pytest.approx(brute_log_z(*machine), rel=1e-12)


def test_log_z_of_a_machine_without_weights_is_known():
    zeros = np.zeros((50, 12), np.float32), np.zeros(50, np.float32), np.zeros(12, np.float32)
    assert log_partition(*zeros) == pytest.approx(62 * np.log(2), rel=1e-14)


def test_the_oracle_of_the_smaller_side_is_the_sum_over_both():
    machine = random_machine(5, 4, seed=11)
    assert brute_log_z(*machine) == pytest.approx(joint(*machine)[1], rel=1e-13)


@pytest.mark.parametrize("shape", [(6, 4), (4, 6)])
def test_log_likelihood_is_that_of_the_sum_over_all_states(shape):
    machine = random_machine(*shape, seed=5)
    rows = states(shape[0])[::3].astype(np.uint8)
    expected = log_likelihoods(*machine, rows).mean()
    found = mean_log_likelihood(*machine, rows, np.float32(1), log_partition(*machine))
    assert found == pytest.approx(expected, abs=2e-6)


def test_all_states_together_have_probability_one():
    machine = random_machine(8, 5, seed=6)
    log_z = log_partition(*machine)
    one_by_one = [
        mean_log_likelihood(*machine, row[None], np.float32(1), log_z) for row in states(8).astype(np.uint8)
    ]
    assert np.exp(one_by_one).sum() == pytest.approx(1, abs=1e-5)


def test_many_rows_and_many_units_are_summed_in_pieces_without_loss():
    W, b, c = random_machine(20, 1200, seed=8, scale=0.3)
    rows = (np.random.default_rng(1).random((700, 20)) < 0.4).astype(np.uint8)
    x = rows.astype(float)
    expected = (x @ b + np.logaddexp(0, x @ W.astype(float) + c).sum(axis=1)).mean()
    assert mean_log_likelihood(W, b, c, rows, np.float32(1), 0.0) == pytest.approx(expected, rel=1e-6)


def test_grey_values_enter_the_energy_as_they_are():
    W, b, c = random_machine(6, 4, seed=9)
    grey = np.random.default_rng(2).integers(0, 256, (10, 6)).astype(np.uint8)
    x = grey / 255
    expected = (x @ b + np.logaddexp(0, x @ W.astype(float) + c).sum(axis=1)).mean()
    assert mean_log_likelihood(W, b, c, grey, np.float32(1 / 255), 0.0) == pytest.approx(expected, abs=2e-6)
