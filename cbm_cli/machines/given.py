"""Samples of some visible units given the others.

Given some units of x, a Boltzmann machine is a smaller one: what they add to the activations of h becomes a
part of its biases. Samples of it are therefore drawn as those of any machine, by Gibbs sampling or tempering.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbm_cli.errors import CbmError
from cbm_cli.grid.names import Sampler
from cbm_cli.machines import streams
from cbm_cli.machines.files import Flat
from cbm_cli.machines.samples import Samples, draw, enough_memory, room_for
from cbm_cli.text import count as counted


def conditional(machine: Flat, row: NDArray) -> Flat:
    """Return the machine of the units that are not given in a row (n_0,) of zeros, ones and NaN."""
    (W, b, c), given = machine.plain, ~np.isnan(row)
    free = np.concatenate([~given, np.ones(len(W) - len(row), bool)])
    heard = row[given].astype(np.float64) @ W[: len(row)][given]
    sizes = int((~given).sum()), *machine.sizes[1:]
    return Flat(np.ascontiguousarray(W[free]), b[free], (c + heard).astype(c.dtype), machine.start, sizes)


def check_given(given: NDArray, width: int, place: str) -> None:
    """Raise CbmError unless each row (n, width) gives some units as 0 or 1, and leaves some as NaN."""
    if given.ndim != 2 or given.shape[1] != width or not len(given):
        shape = " x ".join(map(str, given.shape))
        told = f"{place}: rows of {width} entries are needed, one for each visible unit, not {shape}"
        raise CbmError(told)
    held, wrong = ~np.isnan(given), ~(np.isnan(given) | (given == 0) | (given == 1))
    for row, column in np.argwhere(wrong)[:1]:
        value, where = given[row, column], f"row {row + 1}, column {column + 1}"
        remedy = "give 0 or 1, or leave the entry empty, and it is sampled"
        raise CbmError(f"{place}: {where} is {value:g}; {remedy}")
    for row in np.flatnonzero(held.all(axis=1))[:1]:
        message = f"{place}: row {row + 1} gives all entries; leave those empty that are to be sampled"
        raise CbmError(message)
    for row in np.flatnonzero(~held.any(axis=1))[:1]:
        message = f"{place}: row {row + 1} gives no entry; leave the row out, or sample without given rows"
        raise CbmError(message)


def draw_given(
    machine: Flat, sampler: Sampler, count: int | None, given: NDArray, place: str, **how: Any
) -> Samples:
    """Draw samples that complete rows ``given`` (R, n_0) of zeros, ones and NaN; CbmError for others.

    Sample i of ``count`` (default: R) completes row i % R; its ``means`` are the given values where there are
    some. Each row has ``chains`` of its own; ``how`` holds what `draw` takes.
    """
    rows = len(given)
    check_given(given, machine.sizes[0], place)
    count = count or rows
    if count < rows:
        few = f"{counted(count, 'sample')} of {counted(rows, 'row')}: ask for one of each row or more"
        raise CbmError(f"{place}: {few}")
    with enough_memory(count, how["chains"]):
        whole = room_for(count, machine)
    seed, start = how.pop("seed"), how.pop("start", None)
    for r, row in enumerate(given):
        free = np.isnan(row)
        its = draw(
            conditional(machine, row),
            sampler,
            len(range(r, count, rows)),
            seed=streams.seed_of(seed, streams.GIVEN, r),
            start=start and (np.ascontiguousarray(start[0][:, free]), start[1]),
            **how,
        )
        pairs: Any = zip(whole[:2], its[:2], strict=True)
        for found, part in pairs:
            found[r::rows] = np.where(free, 0, row)
            found[r::rows, free] = part
        whole.hidden[r::rows] = its.hidden
    return whole
