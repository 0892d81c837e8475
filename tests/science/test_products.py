"""Products of binary matrices: the numbers of float64, added in an order that shapes
decide.
"""

import itertools
import os
import platform
import subprocess
import sys

import numpy as np
import pytest
from cbm_cli.kernels.bits import bits_product, hold, pack_columns, products
from cbm_cli.kernels.bits.packing import make_bits, pack_rows
from numpy.testing import assert_allclose, assert_array_equal

DENSITIES = (0, 0.01, 0.13, 0.5, 0.9, 1)


def binary(rows, units, density, seed=2):
    return (np.random.default_rng(seed).random((rows, units)) < density).astype(
        np.float32
    )


def exactly(x, W):
    return x.astype(float) @ W.astype(float)


@pytest.mark.parametrize("density", DENSITIES)
def test_products_of_binary_columns_are_those_of_float64(density):
    """As x'h in gradients; or of only the first columns of x."""
    for rows, units, columns in itertools.product(
        (16, 17, 200), (9, 65, 200), (4, 17, 129)
    ):
        x, whole = binary(rows, units, density), np.random.default_rng(1)
        h = whole.integers(-100, 101, (rows, columns)).astype(
            np.float32
        )  # sums are not rounded
        for last in (units, units // 2):
            bits, out = (
                make_bits(last, rows),
                np.full((units, columns), np.nan, np.float32),
            )
            for array in (1 - x, x):  # what was there before does not matter
                pack_columns(array, last, bits)
            bits_product(bits, h, False, out[:last])
            assert_array_equal(out[:last], exactly(x[:, :last].T, h))
            assert np.isnan(out[last:]).all()


def four_by_four(terms):
    """Add (a + b) + (c + d) of each four terms to the sum, one after the other."""
    total = np.zeros_like(terms[0])
    for k in range(0, len(terms), 4):
        a, b, c, d = (
            terms[k + i] if k + i < len(terms) else 0 * total for i in range(4)
        )
        total = total + ((a + b) + (c + d))
    return total


def gathered(row, W):
    """Rows of W at the units that are on, in fours, tile by tile."""
    terms = [np.zeros_like(W[0])] * 4
    for start in range(0, len(row), 128):
        tile = [W[i] for i in range(start, min(start + 128, len(row))) if row[i]]
        terms += tile + [np.zeros_like(W[0])] * (-len(tile) % 4)
    return four_by_four(terms)


def complemented(row, W):
    """All rows of W, one after the other, less those at the units that are off."""
    return sum(W, np.zeros_like(W[0])) - gathered(1 - row, W)


def looked_up(row, W):
    """Sums of the subsets of four rows of W, in fours."""
    terms = []
    for start in range(0, len(row) + -len(row) % 16, 4):
        units = range(start, min(start + 4, len(row)))
        terms.append(sum((row[i] * W[i] for i in units), np.zeros_like(W[0])))
    return four_by_four(terms)


def spoiled(bits):
    """The same bits with nonsense in the work arrays."""
    bits.on[:], bits.fours[:] = 200, 50
    for array in (bits.tile, bits.tables, bits.sums, bits.total):
        array[:] = np.nan
    return bits


@pytest.mark.parametrize(
    "densities", [(0.02, 0.5, 0.98), (0.98, 0.98, 0.02), (0.5, 0.5, 0.98)]
)
def test_a_group_of_rows_gets_the_bytes_that_it_gets_alone(densities):
    """Whichever way its neighbours take: they share tables and tiles if it is the
    same.
    """
    groups = [
        binary(rows, 300, share)
        for rows, share in zip((50, 50, 21), densities, strict=True)
    ]
    W = np.random.default_rng(1).standard_normal((300, 130)).astype(np.float32)
    outs = []
    for x in (np.concatenate(groups), *groups):
        bits = spoiled(make_bits(len(x), 300, group=50))
        pack_rows(x, bits)
        outs.append(np.full((len(x), 130), np.nan, np.float32))
        bits_product(bits, W, False, outs[-1])
    assert outs[0].tobytes() == np.concatenate(outs[1:]).tobytes()


WAYS = looked_up, gathered, complemented
SHAPES = [
    *itertools.product((9, 113), (33, 129, 200, 300), (16, 17, 64, 80, 81, 150)),
    *itertools.product((1, 225), (1, 15, 17, 65, 385, 500), (1, 65, 200)),
    *[(100, 784, 100), (20, 784, 64), (16, 9, 4)],
]


@pytest.mark.parametrize("turned", [False, True])
def test_products_of_binary_rows_add_in_an_order_that_shapes_and_units_alone_decide(
    turned,
):
    """To the last bit, so that the result names the way that was taken; and those of
    float64.
    """
    rng, met = np.random.default_rng(4), set()
    for (rows, units, columns), density in itertools.product(SHAPES, DENSITIES):
        x = binary(rows, units, density)
        W = rng.standard_normal((units, columns)).astype(np.float32)
        given, outs = (
            W.T.copy() if turned else W,
            np.full((3, rows, columns), np.nan, np.float32),
        )
        for out, shared in zip(outs[:2], (0, columns), strict=True):
            bits = make_bits(rows, units, shared)
            hold(given, turned, spoiled(bits))
            for array in (1 - x, x):
                pack_rows(array, bits)
            bits_product(
                bits, np.full_like(given, np.nan) if shared else given, turned, out
            )
        assert outs[0].tobytes() == outs[1].tobytes()
        way = WAYS[products.way_of(bits, given, turned, 0, out)]
        some = [0, rows // 7, rows - 1]
        expected = np.stack([way(row, W) for row in x[some]])
        assert_array_equal(
            outs[0, some], expected, f"{rows}x{units}x{columns}, {way.__name__}"
        )
        met.add(
            (
                way,
                "narrow"
                if columns == 16
                else "wide"
                if columns in (17, 64)
                else "both",
            )
        )
        products.binary_product(
            x, spoiled(make_bits(rows, units)), given, turned, outs[2]
        )
        for out in (outs[0], outs[2]):  # which may be sgemm
            assert_allclose(out, exactly(x, W), atol=1e-4)
    assert len(met) == 9  # all ways, in panels of all kinds


@pytest.mark.skipif(
    platform.machine() != "x86_64", reason="for AVX2 instead of AVX-512"
)
def test_the_order_of_additions_is_the_same_on_processors_with_shorter_vectors():
    environment = {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": ""}
    chosen = "binary_rows_add or binary_columns"  # dense ones are those of BLAS
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", chosen]
    command = [sys.executable, *words]
    result = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout
