"""Records of work arrays, and where their arrays begin."""

from typing import Annotated, NamedTuple

import numpy as np
import pytest
from cbm_cli.kernels.memory import Array, Counts, Wide, aligned, aligned_zeros, allocate
from cbm_cli.reference import states
from numpy.testing import assert_array_equal


class Work(NamedTuple):
    """A record with fields of all kinds."""

    x: Annotated[Array, "R N"]
    total: Annotated[Wide, "N"]
    order: Annotated[Counts, "R"]
    rows: Array
    size: int


def test_fields_that_are_not_passed_are_zeros_of_their_shape_and_kind():
    rows = np.ones(3, np.float32)
    work = allocate(Work, R=5, N=3, rows=rows, size=7)
    assert (work.x.shape, work.x.dtype) == ((5, 3), np.float32)
    assert (work.total.shape, work.total.dtype) == ((3,), np.float64)
    assert (work.order.shape, work.order.dtype) == ((5,), np.int64)
    assert work.rows is rows
    assert work.size == 7
    assert not work.x.any()
    given = allocate(Work, x=np.ones((1, 1)), R=5, N=3, rows=rows, size=7)
    assert given.x.shape == (1, 1)


def test_a_name_that_is_no_field_and_no_axis_is_refused():
    with pytest.raises(TypeError, match="Work has no colour, M"):
        allocate(Work, R=5, N=3, rows=np.ones(3), size=7, colour=1, M=2)


@pytest.mark.parametrize("missing", ["R", "N", "size"])
def test_a_size_or_a_field_that_is_missing_is_named(missing):
    values = {"R": 5, "N": 3, "rows": np.ones(3), "size": 7}
    values.pop(missing)
    with pytest.raises(KeyError, match=missing):
        allocate(Work, **values)


@pytest.mark.parametrize("shape", [(), 1, 63, (3, 5), (0, 4)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint16])
def test_arrays_begin_at_lines_of_the_cache(shape, dtype):
    for _ in range(5):
        array = aligned_zeros(shape, dtype)
        assert array.ctypes.data % 64 == 0
        assert array.dtype == dtype
        assert array.flags.c_contiguous
    assert aligned(np.arange(5)).tolist() == [0, 1, 2, 3, 4]


def test_states_are_listed_in_parts_as_they_are_together():
    together = states(5, np.float32)
    parts = [states(5, np.float32, first, first + 8) for first in (0, 8, 16, 24)]
    assert_array_equal(np.concatenate(parts), together)
    numbers = together @ 2.0 ** np.arange(5)
    assert numbers.tolist() == [*range(32)]
