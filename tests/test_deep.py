"""Deep machines against sums over all states of their layers, written out layer by layer."""

import numpy as np
import pytest

from cbm_cli.kernels.mean_field import mean_field
from tests.oracles import random_machine, sigmoid


def field_of(W, b, c, n_visible, x, start, tolerance=1e-6, rounds=500):
    """Means of the deeper even and of the odd units for the rows x, and the rounds made."""
    W_deep, b_deep = W[n_visible:], b[n_visible:]
    even = np.tile(start.astype(np.float32), (len(x), 1))
    odd = np.full((len(x), len(c)), np.nan, np.float32)
    from_visible = x.astype(np.float32) @ W[:n_visible]
    work = np.empty_like(even), np.empty_like(odd)
    made = mean_field(W_deep, b_deep, c, from_visible, even, odd, *work, np.float32(tolerance), rounds)
    return even, odd, made


@pytest.mark.parametrize(("even_units", "odd_units", "scale"), [(5, 6, 1.0), (40, 70, 0.1), (1, 1, 3.0)])
def test_mean_field_ends_at_a_fixed_point(even_units, odd_units, scale):
    W, b, c = random_machine(4 + even_units, odd_units, seed=3, scale=scale)
    x = (np.random.default_rng(1).random((9, 4)) < 0.5).astype(float)
    even, odd, made = field_of(W, b, c, 4, x, np.full(even_units, 0.5))
    assert 1 < made <= 500
    np.testing.assert_allclose(even, sigmoid(odd @ W[4:].T + b[4:]), atol=5e-6)
    np.testing.assert_allclose(odd, sigmoid(x @ W[:4] + even @ W[4:] + c), atol=5e-6)


def test_rounds_count_until_no_mean_changes_by_the_tolerance():
    W, b, c = random_machine(9, 6, seed=5)
    x, start = np.eye(4), np.full(5, 0.3)
    even, odd = np.tile(start, (4, 1)), sigmoid(x @ W[:4] + start @ W[4:] + c)
    expected, change = 0, 1.0
    while change >= 1e-3:
        before = np.hstack([even, odd])
        even = sigmoid(odd @ W[4:].T + b[4:])
        odd = sigmoid(x @ W[:4] + even @ W[4:] + c)
        change = np.abs(np.hstack([even, odd]) - before).max()
        expected += 1
    found_even, found_odd, made = field_of(W, b, c, 4, x, start, 1e-3)
    assert made == expected > 2
    np.testing.assert_allclose(found_even, even, atol=1e-5)
    np.testing.assert_allclose(found_odd, odd, atol=1e-5)
    assert field_of(W, b, c, 4, x, start, 1e-3, expected - 1)[2] == expected  # one more than allowed


def test_without_rounds_the_odd_units_answer_to_the_start():
    W, b, c = random_machine(9, 6, seed=5)
    even, odd, made = field_of(W, b, c, 4, np.eye(4), np.full(5, 0.3), rounds=0)
    assert made == 1
    np.testing.assert_allclose(odd, sigmoid(W[:4] + 0.3 * W[4:].sum(axis=0) + c), atol=1e-6)
    assert (even == np.float32(0.3)).all()
