"""Products with binary rows: sums of rows of W, added up in one of three ways.

*tables*: for every four rows of W, list the 16 sums of their subsets; a row of x then
takes one look-up and one addition for every four units. The cost does not depend on how
many units are on.

*units on*: for every row of x, gather the rows of W at the units that are on, and add
them. The cost grows with their number.

*units off*: gather those at the units that are off, and subtract them from the sum of
all rows.

All work on a *panel* of up to 64 columns of W at a time, and on a *tile* of its rows
that fits into the first-level cache. Shapes and the number of units that are on decide
which way is taken, never timing: the same work gives the same bytes everywhere.
docs/benchmarks.md has the measurements behind the constants.
"""

from typing import NamedTuple

import numpy as np

from cbm_cli.kernels.bits import intrinsics as simd
from cbm_cli.kernels.bits.packing import (
    CHUNK,
    PANEL_ROWS,
    SMALL_WORK,
    SPARE,
    Bits,
    list_units,
    pack_rows,
    worth_packing,
)
from cbm_cli.kernels.compiling import lean, merged
from cbm_cli.kernels.dense import product, product_nt
from cbm_cli.kernels.memory import Array

# Ways
TABLES, UNITS_ON, UNITS_OFF = range(3)


class Costs(NamedTuple):
    """Cycles that a panel takes."""

    row: float  # for a row in a chunk
    unit: float  # for a unit that is listed
    word: float  # for a row in a word, by tables
    tables: float  # for the four tables of a word


_WIDE = Costs(row=40.0, unit=2.5, word=12.0, tables=300.0)  # of 48 or 64 columns
_NARROW = Costs(row=35.0, unit=1.2, word=6.0, tables=80.0)  # of 16
_LIST_WORD = 6.0  # cycles to list the units of a word


class Part(NamedTuple):
    """Rows first, ..., last - 1 of a panel of a product: of its columns j, ..., j +
    width - 1.
    """

    first: int
    last: int
    j: int
    width: int


# Products


@merged
def binary_product(x: Array, bits: Bits, W: Array, turned: bool, out: Array) -> None:
    """out = x W, or x W' where ``turned``, for rows x (R, K) of zeros and ones; they
    are packed into bits.
    """
    rows, units = x.shape
    if worth_packing(min(bits.group, rows), units, out.shape[1]):
        pack_rows(x, bits)
        bits_product(bits, W, turned, out)
    elif not turned:
        product(x, W, out)
    elif out.shape[1] <= 16 and x.size <= SMALL_WORK:
        for k in range(units):
            for i in range(out.shape[1]):
                bits.tile[16 * k + i] = W[i, k]
        simd.multiply_rows(x, bits.tile, out)
    else:
        product_nt(x, W, out)


@merged
def product_of_rows(x: Array, bits: Bits, W: Array, binary: bool, out: Array) -> None:
    """out = x W for rows x (R, K) of the data or of a layer, by `binary_product` where
    they are binary.
    """
    if binary:
        binary_product(x, bits, W, turned=False, out=out)
    else:
        product(x, W, out)


@lean
def bits_product(bits: Bits, W: Array, turned: bool, out: Array) -> None:
    """out = x W, or x W' where ``turned``; x (R, K) as packed, out (R, M)."""
    rows, first = out.shape[0], 0
    while first < rows:  # groups that take the same way are added up together
        way = way_of(bits, W, turned, first=first, out=out)
        last = first + bits.group
        while last < rows and way_of(bits, W, turned, first=last, out=out) == way:
            last += bits.group
        last = min(rows, last)
        add_up_rows(bits, W, turned, way=way, start=first, stop=last, out=out)
        first = last


@lean
def way_of(bits: Bits, W: Array, turned: bool, first: int, out: Array) -> int:
    """How the group from row ``first`` is added up: the way that takes the fewest
    cycles.
    """
    words, columns = bits.words.shape[0], out.shape[1]
    units = W.shape[1] if turned else W.shape[0]
    rows, on = min(bits.group, out.shape[0] - first), 0
    for q in range(words):
        for word in bits.words[q, first : first + rows]:
            on += simd.ones(word)
    off = rows * units - on
    listed = min(on, off)
    vectors = (columns + 15) // 16
    panels, costs = (vectors / 4.0, _WIDE) if vectors > 1 else (1.0, _NARROW)
    chunks = -(-16 * words // CHUNK)
    gather = panels * (costs.row * chunks * rows + costs.unit * listed)
    blocks = -(-rows // PANEL_ROWS)
    tables = panels * words * (costs.word * rows + costs.tables * blocks)
    if _LIST_WORD * words * rows + gather >= tables:
        return TABLES
    return UNITS_OFF if off < on else UNITS_ON


@lean
def add_up_rows(
    bits: Bits, W: Array, turned: bool, way: int, start: int, stop: int, out: Array
) -> None:
    """`bits_product` of the rows start, ..., stop - 1 by one way, in blocks of about
    one size.
    """
    columns, rows, j, off = out.shape[1], stop - start, 0, way == UNITS_OFF
    if way != TABLES:
        units = W.shape[1] if turned else W.shape[0]
        list_units(bits, units, off, first=start, last=stop)
    blocks = -(-rows // PANEL_ROWS)
    block = -(-rows // blocks)
    while j < columns:
        width = width_of_panel(columns - j)
        for first in range(start, stop, block):
            part = Part(first, min(stop, first + block), j, width)
            if way == TABLES:
                look_up(bits, W, turned, part, out)
            else:
                is_new = first == start
                gather(bits, W, turned, part, off=off, is_new=is_new, out=out)
            if off or columns < 16:  # else the last sums are in out, not in bits.sums
                copy_sums(bits, part, off, out)
        j += width


@lean
def width_of_panel(columns: int) -> int:
    """Columns of the next panel where so many are left: panels of 48 keep the last one
    from being narrow.
    """
    vectors = (columns + 15) // 16
    if vectors == 1:
        return 16
    return 48 if vectors % 4 else 64


@lean
def gather(
    bits: Bits,
    W: Array,
    turned: bool,
    part: Part,
    off: bool,
    is_new: bool,
    out: Array,
) -> None:
    """Add up the rows of W at the listed units, and all if ``off``; a new panel is not
    in a tile yet.
    """
    first, last, j, width = part
    tiles, rows, places = bits.on.shape
    columns, size = out.shape[1], np.int64(width)
    count, direct = np.int64(places - SPARE), columns >= 16 and not off
    for t in range(tiles):
        place = place_of_tile(
            bits,
            W,
            turned,
            start=t * count,
            count=count,
            part=part,
            load=is_new or tiles > 1,
        )
        tile = bits.tile[place:]
        if off and is_new:
            simd.add_tile(size, bits.total, fresh=t == 0, tile=tile, rows=count)
        for r in range(first, last):
            to = np.int64((r - first) * width)
            listed = np.int64((t * rows + r) * places)
            fours = bits.fours[t, r]
            if direct and t == tiles - 1:
                simd.add_rows(
                    size,
                    bits.sums,
                    to,
                    fresh=t == 0,
                    tile=tile,
                    on=bits.on,
                    at=listed,
                    fours=fours,
                    out=out,
                    place=np.int64(r * columns + j),
                    last=np.int64(r * columns + columns - 16),
                )
            else:
                simd.add_rows(
                    size,
                    bits.sums,
                    to,
                    fresh=t == 0,
                    tile=tile,
                    on=bits.on,
                    at=listed,
                    fours=fours,
                    out=bits.sums,
                    place=to,
                    last=to + size,
                )


@lean
def look_up(bits: Bits, W: Array, turned: bool, part: Part, out: Array) -> None:
    """Add up the sums of subsets that the words name."""
    first, last, j, width = part
    words, rows = bits.words.shape
    columns, size, count = out.shape[1], np.int64(width), np.int64(last - first)
    for q in range(words):
        place = place_of_tile(
            bits, W, turned, start=16 * q, count=16, part=part, load=True
        )
        tile = bits.tile[place:]
        for k in range(4):
            four, table = np.int64(4 * k * width), np.int64(16 * k * width)
            simd.add_subsets(size, tile, at=four, tables=bits.tables, to=table)
        word = np.int64(q * rows + first)
        if columns >= 16 and q == words - 1:
            simd.add_entries(
                size,
                bits.sums,
                count,
                fresh=q == 0,
                tables=bits.tables,
                words=bits.words,
                at=word,
                out=out,
                place=np.int64(first * columns + j),
                last=np.int64(first * columns + columns - 16),
                stride=np.int64(columns),
            )
        else:
            simd.add_entries(
                size,
                bits.sums,
                count,
                fresh=q == 0,
                tables=bits.tables,
                words=bits.words,
                at=word,
                out=bits.sums,
                place=np.int64(0),
                last=size,
                stride=size,
            )


@lean
def copy_sums(bits: Bits, part: Part, off: bool, out: Array) -> None:
    """Copy the sums, or what they are less than all if they are of what is ``off``, to
    out.
    """
    first, last, j, width = part
    columns = out.shape[1]
    for r in range(first, last):
        for v in range(0, width, 16):
            row = out[r, max(0, min(j + v, columns - 16)) :]
            start = (r - first) * width + v
            for i in range(min(16, columns)):
                total = bits.sums[start + i]
                row[i] = bits.total[v + i] - total if off else total


# Tiles


@lean
def hold(W: Array, turned: bool, bits: Bits) -> None:
    """Copy W, or W' where ``turned``, to the tiles if many products share it: the next
    products are those with it.
    """
    if not bits.holds_weights:
        return
    units = W.shape[1] if turned else W.shape[0]
    columns = W.shape[0] if turned else W.shape[1]
    tile, j = bits.on.shape[2] - SPARE, 0
    while j < columns:
        width = width_of_panel(columns - j)
        for start in range(0, units, tile):
            place = place_in_held(bits, start, j, width)
            load_tile(
                W,
                turned,
                start=start,
                count=tile,
                j=j,
                width=width,
                tile=bits.tile[place:],
            )
        j += width


@merged
def place_in_held(bits: Bits, start: int, j: int, width: int) -> int:
    """Where bits.tile has row ``start`` of the panel at column j of a W that it
    holds.
    """
    tiles, tile = bits.on.shape[0], bits.on.shape[2] - SPARE
    return j * tiles * (tile + 1) + (start + start // tile) * width


@merged
def place_of_tile(
    bits: Bits, W: Array, turned: bool, start: int, count: int, part: Part, load: bool
) -> int:
    """Where bits.tile has ``count`` rows of the panel from ``start``; they are loaded
    if need be.
    """
    if bits.holds_weights:
        return place_in_held(bits, start, part.j, part.width)
    if load:
        load_tile(
            W,
            turned,
            start=start,
            count=count,
            j=part.j,
            width=part.width,
            tile=bits.tile,
        )
    return 0


@lean
def load_tile(
    W: Array, turned: bool, start: int, count: int, j: int, width: int, tile: Array
) -> None:
    """Copy ``count`` rows of W (or W') from ``start``, columns j, ..., to the tile, and
    a row of zeros.

    Vectors that would reach beyond the last column begin earlier, and repeat columns of
    the one before.
    """
    units = W.shape[1] if turned else W.shape[0]
    columns = W.shape[0] if turned else W.shape[1]
    stop = min(units, start + count)
    if columns < 16 or (turned and units < 16):
        for k in range(start, stop):
            for i in range(width):
                column = min(j + i - i % 16, max(0, columns - 16)) + i % 16
                weight = np.float32(0)
                if column < columns:
                    weight = W[column, k] if turned else W[k, column]
                tile[(k - start) * width + i] = weight
    elif turned:
        for v in range(0, width, 16):
            i = min(j + v, columns - 16)
            for k in range(start, stop, 16):
                # a last block begins earlier, and its rows move up
                surplus, to = max(0, k + 16 - units), (k - start) * width + v
                simd.turn_sixteen(
                    W,
                    at=np.int64(i * units + k - surplus),
                    ld=np.int64(units),
                    tile=tile,
                    to=np.int64(to),
                    width=np.int64(width),
                )
                for u in range(16 - surplus if surplus else 0):
                    below, above = to + (u + surplus) * width, to + u * width
                    simd.copy_sixteen(tile, np.int64(below), tile, np.int64(above))
    else:
        for k in range(start, stop):
            for v in range(0, width, 16):
                at = k * columns + min(j + v, columns - 16)
                to = (k - start) * width + v
                simd.copy_sixteen(W, np.int64(at), tile, np.int64(to))
    tile[(stop - start) * width : (count + 1) * width] = 0
