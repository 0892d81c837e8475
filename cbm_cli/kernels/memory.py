"""Arrays of the kernels: their types, and records of work arrays made by name.

A record is a named tuple whose fields say what they hold, in which shape, and which
function writes them:

    class Rows(NamedTuple):
        x: Annotated[Array, "R N"]  # `load_batch`: the rows of this update
        mean: Annotated[Array, "N"]  # `average`: over the rows

`allocate` makes the arrays from the sizes of the axes. Machine code reads a field of a
record as fast as a variable.
"""

from ctypes import addressof, c_char
from functools import cache
from math import prod
from typing import Any, TypeVar, get_args, get_type_hints

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = NDArray[np.float32]
Wide = NDArray[np.float64]  # where float32 would lose too many digits
Counts = NDArray[np.int64]
Words = NDArray[np.uint16]
Rows = NDArray[np.uint8]  # of data, (n, units)

Record = TypeVar("Record")
Shape = int | tuple[int, ...]

_LINE = 64  # bytes of a line of the cache


def aligned_zeros(shape: Shape, dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Zeros from a multiple of 64 bytes on, so that no vector lies across two lines."""
    sizes = shape if isinstance(shape, tuple) else (shape,)
    size = np.dtype(dtype).itemsize * prod(sizes)
    memory = np.zeros(size + _LINE, np.uint8)
    start = -addressof(c_char.from_buffer(memory)) % _LINE
    return np.ndarray(shape, dtype, memory, start)


def aligned(values: NDArray[Any]) -> Array:
    """An aligned copy of an array, in float32."""
    copy = aligned_zeros(values.shape)
    copy[...] = values
    return copy


def allocate(record: type[Record], **values: Any) -> Record:
    """Make a record; its fields that have a shape and are not passed become zeros.

    The sizes of their axes are passed by name, too:

    >>> from typing import Annotated, NamedTuple
    >>> class Means(NamedTuple):
    ...     x: Annotated[Array, "N"]
    ...     total: Annotated[Wide, "N"]
    ...     rows: int
    >>> allocate(Means, N=2, rows=5)
    Means(x=array([0., 0.], dtype=float32), total=array([0., 0.]), rows=5)
    """
    unused = {**values}
    fields = {}
    for name, axes, dtype in _declared(record):
        if name in values or not axes:
            fields[name] = values[name]
        else:
            shape = tuple(values[axis] for axis in axes)
            fields[name] = aligned_zeros(shape, dtype)
        for used in (name, *axes):
            unused.pop(used, None)
    if unused:
        raise TypeError(f"{record.__name__} has no {', '.join(unused)}")
    return record(**fields)


@cache
def _declared(record: type) -> list[tuple[str, list[str], Any]]:
    """The name, the axes and the kind of numbers of each field."""
    declared = []
    for name, kind in get_type_hints(record, include_extras=True).items():
        axes, dtype = [], None
        if hasattr(kind, "__metadata__"):
            axes = kind.__metadata__[0].split()
            dtype = get_args(get_args(kind.__origin__)[1])[0]
        declared.append((name, axes, dtype))
    return declared
