"""Random numbers, units, and sweeps, which keep the machine's distribution."""

import numpy as np
import pytest
from cbm_cli.kernels.random import fill_uniform, fill_words
from numpy.testing import assert_allclose

from tests import oracles
from tests.oracles import deviations, epoch_order, joint, sigmoid, states, unit_means


def words(seed, update, site, first, blocks=1):
    array, u = np.empty(4 * blocks, np.uint32), np.empty(4 * blocks, np.float32)
    fill_words(array, np.uint64(seed), update, site, first)
    fill_uniform(u, np.uint64(seed), update, site, first)
    assert (u == (array >> 8) / 2**24).all()  # the high 24 bits
    return array.tolist()


ONES, PI = 0xFFFFFFFF, (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)


@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([ONES] * 4, [ONES] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            PI,
            (0xA4093822, 0x299F31D0),
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_random_words_are_those_of_philox_as_published(counter, key, answer):
    """Philox4x32-10, Salmon et al. 2011; each further four words are those of the next
    counter.
    """
    first, low, site, high = counter
    given = (
        key[0] | key[1] << 32,
        np.int64(low | high << 32 if high < ONES else -1),
        site,
    )
    assert words(*given, first) == answer
    alone = [words(*given, first + k) for k in range(-19, 18)]
    assert words(*given, first - 19, 37) == [word for four in alone for word in four]


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
    assert (
        np.abs(found - exact).max() < 1.2e-7
    )  # 2^-23: one unit in the last place at 1
    tail = (a > -86) & (a < 0)
    assert np.abs(found[tail] / exact[tail] - 1).max() < 1e-6
    assert np.isfinite(found).all()


def test_tempered_chains_that_start_at_their_distributions_stay_there():
    ladders, temperatures, random = 20_000, 4, np.random.default_rng(1)
    machine = oracles.random_machine(4, 3, seed=4, scale=1.5)
    joints = [joint(*machine, beta=beta)[0] for beta in np.linspace(0, 1, temperatures)]
    drawn = [states(3)[random.choice(8, ladders, p=p.sum(axis=0))] for p in joints]
    h = np.stack(drawn, axis=1).astype(np.float32).reshape(-1, 3)
    its = oracles.plan((4, 3), 3 * ladders, temperatures=temperatures)
    for update in range(2):
        samples, to_h, x = oracles.sweep(machine, h, its, update)
    for t, p in enumerate(
        joints
    ):  # frequencies, and <x_i h_j>, within 4.5 standard errors
        own_x, own_h = x[t::temperatures], h[t::temperatures]
        assert deviations(own_x, p.sum(axis=1)).max() < 4.5, t
        assert deviations(own_h, p.sum(axis=0)).max() < 4.5, t
        both = states(4).T @ p @ states(3)
        error = np.sqrt(both * (1 - both) / ladders)
        assert (
            np.abs(own_x.T.astype(float) @ own_h / ladders - both) < 4.5 * error
        ).all(), t
    assert (samples[-ladders:] == x[temperatures - 1 :: temperatures]).all()
    assert_allclose(to_h, samples @ machine[0], atol=1e-6)
