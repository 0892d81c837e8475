"""The exact likelihood against sums over all states of both sides."""

import numpy as np
import pytest

from cbm_cli import reference as ref
from tests.oracles import log_likelihoods, log_z, mean_log_p, random_machine, states, wide


@pytest.mark.parametrize("shape", [(9, 4), (4, 9), (1, 1), (6, 6), (7, 1), (40, 12), (13, 30)])
@pytest.mark.parametrize("scale", [0.01, 1.0, 5.0])
def test_log_z_by_gray_code_is_the_sum_over_all_states(shape, scale):
    machine = random_machine(*shape, seed=3, scale=scale)
    assert log_z(machine) == pytest.approx(ref.log_partition(*wide(machine)), rel=1e-12, abs=1e-10)


@pytest.mark.parametrize("scale", [60.0, 1e3, 1e6])
def test_log_z_of_a_diverged_machine_does_not_overflow(scale):
    machine = random_machine(9, 4, seed=3, scale=scale)
    assert log_z(machine) == pytest.approx(ref.log_partition(*wide(machine)), rel=1e-12)


def test_log_z_of_a_machine_without_weights_is_known():
    zeros = np.zeros((50, 12), np.float32), np.zeros(50, np.float32), np.zeros(12, np.float32)
    assert log_z(zeros) == pytest.approx(62 * np.log(2), rel=1e-14)


@pytest.mark.parametrize("shape", [(6, 4), (4, 6)])
def test_log_likelihood_is_that_of_the_sum_over_all_states(shape):
    machine = random_machine(*shape, seed=5)
    rows = states(shape[0])[::3].astype(np.uint8)
    expected = log_likelihoods(*machine, rows).mean()
    assert mean_log_p(machine, rows) == pytest.approx(expected, abs=2e-6)


def test_all_states_together_have_probability_one():
    machine = random_machine(8, 5, seed=6)
    one_by_one = [mean_log_p(machine, row[None]) for row in states(8).astype(np.uint8)]
    assert np.exp(one_by_one).sum() == pytest.approx(1, abs=1e-5)


def test_many_rows_and_many_units_are_summed_in_pieces_without_loss():
    machine = random_machine(20, 1200, seed=8, scale=0.3)
    rows = (np.random.default_rng(1).random((700, 20)) < 0.4).astype(np.uint8)
    expected = -ref.free_energy(rows, *wide(machine)).mean()
    assert mean_log_p(machine, rows, log_z=0.0) == pytest.approx(expected, rel=1e-6)


def test_grey_values_enter_the_energy_as_they_are():
    machine = random_machine(6, 4, seed=9)
    grey = np.random.default_rng(2).integers(0, 256, (10, 6)).astype(np.uint8)
    expected = -ref.free_energy(grey / 255, *wide(machine)).mean()
    assert mean_log_p(machine, grey, 1 / 255, log_z=0.0) == pytest.approx(expected, abs=2e-6)
