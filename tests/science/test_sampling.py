"""Random numbers, units, and sweeps, which keep the machine's distribution."""

import numpy as np
import pytest
from cbm_cli.kernels.random import fill_uniform, fill_words
from numpy.testing import assert_allclose

from tests import oracles
from tests.oracles import deviations, epoch_order, joint, sigmoid, states, unit_means


def philox(counter, key):
    """Philox4x32-10 as the paper of Salmon et al. 2011 states it, in plain Python."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 % 2**32, (p0 >> 32) ^ c3 ^ k1, p0 % 2**32
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return [c0, c1, c2, c3]


def test_the_plain_philox_gives_the_published_answers():
    assert philox((0, 0, 0, 0), (0, 0)) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    ones = 0xFFFFFFFF
    assert philox((ones,) * 4, (ones, ones)) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
    assert philox(pi, (0xA4093822, 0x299F31D0)) == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


@pytest.mark.parametrize(
    ("seed", "update", "site", "first"),
    [(0xFEDCBA9876543210, 4_000_000_000, 2, 17), (1, 49_999, 1, 123_456), (1, 2**33 + 5, 1, 0)],
)
def test_words_are_those_of_the_plain_philox_and_uniform_numbers_their_high_24_bits(
    seed, update, site, first
):
    words, u = np.empty(4 * 37, np.uint32), np.empty(4 * 37, np.float32)
    for fill, array in ((fill_words, words), (fill_uniform, u)):
        fill(array, np.uint64(seed), update, site, first)
    key = (seed % 2**32, seed >> 32)
    expected = [philox((first + i, update % 2**32, site, update >> 32), key) for i in range(37)]
    assert words.tolist() == [word for four in expected for word in four]
    assert (u == (words >> 8) / 2**24).all()


def test_every_epoch_has_an_order_of_its_own_that_holds_every_row_once():
    orders = np.array([epoch_order(30, 7, epoch) for epoch in range(200)])
    assert (np.sort(orders, axis=1) == np.arange(30)).all()
    places = np.argmin(orders, axis=1)  # of row 0, which is uniform
    assert abs(places.mean() - 14.5) < 4 * np.sqrt((30**2 - 1) / 12 / 200)
    assert (epoch_order(30, 7, 3, shuffled=False) == np.arange(30)).all()


def test_sigmoid_is_right_to_float32_over_the_whole_range():
    a = np.linspace(-200, 200, 1_000_001).astype(np.float32)
    found = unit_means(a, np.zeros_like(a))
    exact = sigmoid(a.astype(float))
    assert np.abs(found - exact).max() < 1.2e-7  # 2^-23: one unit in the last place at 1
    tail = (a > -86) & (a < 0)
    assert np.abs(found[tail] / exact[tail] - 1).max() < 1e-6
    assert np.isfinite(found).all()


def test_means_have_a_gain_and_a_scale_and_a_unit_is_on_when_u_is_below_its_probability():
    a, bias = np.float32([-2, 0, 0.5, 3]), np.float32([0.5, -1, 0, 1])
    expected = sigmoid(2 * a.astype(float) + bias)
    assert_allclose(unit_means(a, bias, gain=2), expected, atol=1e-7)
    a, u = np.float32([-2, -2, 0, 0, 3, 3]), np.float32([0.11, 0.13, 0.49, 0.51, 0.94, 0.96])
    assert oracles.unit_states(a, u).tolist() == [1, 0, 1, 0, 1, 0]


def test_tempered_chains_that_start_at_their_distributions_stay_there():
    ladders, temperatures, random = 20_000, 4, np.random.default_rng(1)
    machine = oracles.random_machine(4, 3, seed=4, scale=1.5)
    joints = [joint(*machine, beta=beta)[0] for beta in np.linspace(0, 1, temperatures)]
    drawn = [states(3)[random.choice(8, ladders, p=p.sum(axis=0))] for p in joints]
    h = np.stack(drawn, axis=1).astype(np.float32).reshape(-1, 3)
    its = oracles.plan((4, 3), 3 * ladders, temperatures=temperatures)
    for update in range(2):
        samples, to_h, x = oracles.sweep(machine, h, its, update)
    for t, p in enumerate(joints):  # frequencies, and <x_i h_j>, within 4.5 standard errors
        own_x, own_h = x[t::temperatures], h[t::temperatures]
        assert deviations(own_x, p.sum(axis=1)).max() < 4.5, t
        assert deviations(own_h, p.sum(axis=0)).max() < 4.5, t
        both = states(4).T @ p @ states(3)
        error = np.sqrt(both * (1 - both) / ladders)
        assert (np.abs(own_x.T.astype(float) @ own_h / ladders - both) < 4.5 * error).all(), t
    assert (samples[-ladders:] == x[temperatures - 1 :: temperatures]).all()
    assert_allclose(to_h, samples @ machine[0], atol=1e-6)
