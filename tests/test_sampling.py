"""Random numbers, units and sweeps: one sweep serves every sampler, and keeps the machine's distribution."""

import numpy as np
import pytest

from cbm_cli.kernels.random import fill_uniform, fill_words
from cbm_cli.machines import streams
from tests.oracles import (
    deviations,
    epoch_order,
    joint,
    plan,
    random_machine,
    sigmoid,
    states,
    sweep,
    unit_means,
    unit_states,
)


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
    [(0, 0, 0, 0), (0xFEDCBA9876543210, 4_000_000_000, 2, 17), (1, 49_999, 1, 123_456), (1, 2**33 + 5, 1, 0)],
)
def test_words_are_those_of_the_plain_philox(seed, update, site, first):
    words = np.empty(4 * 37, np.uint32)
    fill_words(words, np.uint64(seed), update, site, first)
    key = (seed % 2**32, seed >> 32)
    expected = [
        word for i in range(37) for word in philox((first + i, update % 2**32, site, update >> 32), key)
    ]
    assert words.tolist() == expected


def test_uniform_numbers_are_the_high_24_bits_of_the_words():
    words, u = np.empty(400, np.uint32), np.empty(400, np.float32)
    fill_words(words, np.uint64(9), 5, 0, 3)
    fill_uniform(u, np.uint64(9), 5, 0, 3)
    assert (u == (words >> 8) / 2**24).all()
    assert u.min() >= 0
    assert u.max() < 1


def test_every_epoch_has_an_order_of_its_own_that_holds_every_row_once():
    orders = np.array([epoch_order(30, 7, epoch) for epoch in range(200)])
    assert (np.sort(orders, axis=1) == np.arange(30)).all()
    # Row 0 stands at a uniform place: its mean place is 14.5 with standard error sqrt((30^2-1)/12/200).
    places = np.argmin(orders, axis=1)
    assert abs(places.mean() - 14.5) < 4 * np.sqrt((30**2 - 1) / 12 / 200)
    assert (epoch_order(30, 7, 3, shuffled=False) == np.arange(30)).all()


def test_streams_are_philox_generators_of_their_own():
    numbers = [value for name, value in vars(streams).items() if name.isupper()]
    assert len({*numbers}) == len(numbers) > 1
    for seed in (7, 2**63 - 1):
        found = streams.generator(seed, streams.SAMPLES).random(3)
        expected = np.random.Generator(np.random.Philox(key=[seed, 6])).random(3)
        np.testing.assert_array_equal(found, expected)


def test_sigmoid_is_right_to_float32_over_the_whole_range():
    a = np.linspace(-200, 200, 1_000_001).astype(np.float32)
    found = unit_means(a, np.zeros_like(a))
    exact = sigmoid(a.astype(float))
    assert np.abs(found - exact).max() < 1.2e-7  # 2^-23: one unit in the last place at 1
    tail = (a > -86) & (a < 0)
    assert np.abs(found[tail] / exact[tail] - 1).max() < 1e-6
    assert np.isfinite(found).all()


def test_means_have_the_gain_of_their_activations_and_a_scale():
    a, bias = np.float32([-2, 0, 0.5, 3]), np.float32([0.5, -1, 0, 1])
    expected = -0.25 * sigmoid(2 * a.astype(float) + bias)
    np.testing.assert_allclose(unit_means(a, bias, gain=2, scale=-0.25), expected, atol=1e-7)


def test_a_unit_is_on_when_u_is_below_its_probability():
    a, u = np.float32([-2, -2, 0, 0, 3, 3]), np.float32([0.11, 0.13, 0.49, 0.51, 0.94, 0.96])
    assert unit_states(a, u).tolist() == [1, 0, 1, 0, 1, 0]


def draw_pairs(p, count, seed):
    """Pairs (x, h) drawn exactly from a distribution over all joint states."""
    chosen = np.random.default_rng(seed).choice(p.size, size=count, p=p.ravel())
    x, h = np.unravel_index(chosen, p.shape)
    n, m = (int(np.log2(size)) for size in p.shape)
    return states(n)[x].astype(np.float32), states(m)[h].astype(np.float32)


def assert_pairs_have_distribution(x, h, p, where=""):
    """Marginal frequencies of x and h, and <x_i h_j>, within 4.5 standard errors."""
    assert deviations(x, p.sum(axis=1)).max() < 4.5, where
    assert deviations(h, p.sum(axis=0)).max() < 4.5, where
    both = states(x.shape[1]).T @ p @ states(h.shape[1])
    error = np.sqrt(both * (1 - both) / len(x))
    assert (np.abs(x.T.astype(float) @ h / len(x) - both) < 4.5 * error).all(), where


def test_tempered_chains_that_start_at_their_distributions_stay_there():
    ladders, temperatures = 20_000, 4
    machine = random_machine(4, 3, seed=4, scale=1.5)
    by_temperature = [joint(*machine, beta=beta)[0] for beta in np.linspace(0, 1, temperatures)]
    h = np.stack([draw_pairs(p, ladders, seed=t)[1] for t, p in enumerate(by_temperature)], axis=1)
    h = h.reshape(-1, 3)
    its = plan(4, 3, 3 * ladders, ladders=ladders, temperatures=temperatures)
    for update in range(2):
        samples, to_h, x = sweep(machine, h, its, update)
    for t, p in enumerate(by_temperature):
        assert_pairs_have_distribution(x[t::temperatures], h[t::temperatures], p, f"temperature {t}")
    assert (samples[-ladders:] == x[temperatures - 1 :: temperatures]).all()
    np.testing.assert_allclose(to_h, samples @ machine[0], atol=1e-6)
