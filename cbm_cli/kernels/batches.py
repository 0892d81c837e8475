"""The training rows, and the order in which an epoch takes them."""

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli.kernels.bits.intrinsics import spread_bits
from cbm_cli.kernels.compiling import lean, merged
from cbm_cli.kernels.memory import Array, Counts, Rows, Words, allocate
from cbm_cli.kernels.plan import Plan
from cbm_cli.kernels.random import SHUFFLE, fill_words


class Batches(NamedTuple):
    """The rows of the data, and their order in the epoch of the last update."""

    rows: Rows  # (n, visible)
    # (n, visible / 16) binary rows, packed: an eighth of what is read at random
    bits: Words
    order: Annotated[Counts, "n"]  # `order_rows`
    numbers: Annotated[NDArray[np.uint32], "fours"]  # `order_rows`: random words
    epoch: Counts  # `order_rows`: (1,) the epoch of the order; -1 before the first


def make_batches(rows: Rows, unit: float) -> Batches:
    """Pack the rows, if one level of the data is 1, and allocate an order."""
    n, units = rows.shape
    words = -(-units // 16) if unit == 1 else 0
    packed = np.zeros((n, 2 * words), np.uint8)
    if unit == 1:
        packed[:, : -(-units // 8)] = np.packbits(rows, axis=1, bitorder="little")
    return allocate(
        Batches,
        rows=rows,
        bits=packed.view("<u2"),
        epoch=np.full(1, -1),
        n=n,
        fours=n + -n % 4,
    )


@merged
def load_batch(batches: Batches, plan: Plan, update: int, x: Array) -> None:
    """Put the next rows of the data into the first columns of x (B, N)."""
    epoch = update // plan.batches
    if epoch != batches.epoch[0]:
        order_rows(batches, plan, epoch)
    start = (update - epoch * plan.batches) * plan.batch
    for r in range(plan.batch):
        row = batches.order[start + r]
        if plan.unit == 1:
            words = batches.bits[row]
            for q in range((plan.visible + 15) // 16):
                at, left = r * x.shape[1] + 16 * q, plan.visible - 16 * q
                spread_bits(words[q], x, at=np.int64(at), count=np.int64(left))
        else:
            for i in range(plan.visible):
                x[r, i] = plan.unit * batches.rows[row, i]


@lean
def order_rows(batches: Batches, plan: Plan, epoch: int) -> None:
    """Put the rows into the order of an epoch: Fisher-Yates on words that are the
    epoch's.
    """
    order = batches.order
    for row in range(order.size):
        order[row] = row
    if plan.shuffled:
        numbers = batches.numbers
        fill_words(numbers, plan.seed, update=epoch, site=SHUFFLE, first_block=0)
        for row in range(order.size - 1, 0, -1):
            scaled = np.uint64(numbers[row]) * np.uint64(row + 1)
            other = np.int64(scaled >> np.uint64(32))
            order[row], order[other] = order[other], order[row]
    batches.epoch[0] = epoch
