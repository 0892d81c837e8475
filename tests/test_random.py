"""Random numbers are Philox4x32-10, a pure function of (seed, update, site, index)."""

import numpy as np
import pytest

from cbm_cli.kernels.random import fill_uniform, fill_words
from cbm_cli.machines import streams
from tests.oracles import epoch_order


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
    [(0, 0, 0, 0), (0xFEDCBA9876543210, 4_000_000_000, 2, 17), (1, 49_999, 1, 123_456)],
)
def test_words_are_those_of_the_plain_philox(seed, update, site, first):
    words = np.empty(4 * 37, np.uint32)
    fill_words(words, np.uint64(seed), update, site, first)
    key = (seed % 2**32, seed >> 32)
    expected = [word for i in range(37) for word in philox((first + i, update, site, 0), key)]
    assert words.tolist() == expected


def test_uniform_numbers_are_the_high_24_bits_of_the_words():
    words, u = np.empty(400, np.uint32), np.empty(400, np.float32)
    fill_words(words, np.uint64(9), 5, 0, 3)
    fill_uniform(u, np.uint64(9), 5, 0, 3)
    assert (u == (words >> 8) / 2**24).all()
    assert u.min() >= 0
    assert u.max() < 1


def test_a_block_does_not_depend_on_how_many_are_made_at_a_time():
    whole, part = np.empty(400, np.float32), np.empty(40, np.float32)
    fill_uniform(whole, np.uint64(9), 5, 0, 0)
    fill_uniform(part, np.uint64(9), 5, 0, 50)
    assert (whole[200:240] == part).all()


def test_every_epoch_has_an_order_of_its_own_that_holds_every_row_once():
    orders = np.array([epoch_order(30, 7, epoch) for epoch in range(200)])
    assert (np.sort(orders, axis=1) == np.arange(30)).all()
    # Row 0 stands at a uniform place: its mean place is 14.5 with standard error sqrt((30^2-1)/12/200).
    places = np.argmin(orders, axis=1)
    assert abs(places.mean() - 14.5) < 4 * np.sqrt((30**2 - 1) / 12 / 200)
    assert (epoch_order(30, 7, 3, shuffled=False) == np.arange(30)).all()


def test_streams_are_philox_generators_of_their_own():
    numbers = [value for name, value in vars(streams).items() if name.isupper()]
    assert sorted(numbers) == list(range(1, 10))
    for seed in (7, 2**63 - 1):
        found = streams.generator(seed, streams.SAMPLES).random(3)
        expected = np.random.Generator(np.random.Philox(key=[seed, 6])).random(3)
        np.testing.assert_array_equal(found, expected)
