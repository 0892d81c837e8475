"""Binary matrices, packed into words of 16 units and lists of units that are on."""

from typing import Annotated, NamedTuple

import numpy as np

from cbm_cli.kernels.bits import intrinsics as simd
from cbm_cli.kernels.compiling import lean, merged
from cbm_cli.kernels.memory import (
    Array,
    Counts,
    Words,
    aligned_zeros,
    allocate,
)

WIDEST_PANEL = 64  # columns; the others have 16 or 48
PANEL_ROWS = 112  # rows of x whose sums are kept at hand, 28 KB
# units whose rows of W are added up in fours, the last four filled up with zeros
CHUNK = 128
# units up to which all rows of W are gathered from at once, else those of a chunk
_ONE_TILE = 3 * CHUNK
SPARE = 16  # spare places at the end of a list of units

FEW_ROWS, LITTLE_WORK = 8, 2**15  # below these sgemm is faster
# rows times units up to which a loop over them is faster than a call of sgemm
SMALL_WORK = 1024


class Bits(NamedTuple):
    """A binary matrix (R, K), packed, and the work arrays of its products.

    Q words have all K units of a row; a tile has T of them, or all, and L places in its
    list. Without packing there are no words, and a small tile alone.
    """

    # `pack_rows`, `pack_columns`: units 16 q, ..., 16 q + 15 of row r
    words: Annotated[Words, "Q R"]
    # `list_units`: units that are on, or off, counted within their tile, in fours
    on: Annotated[Words, "tiles R L"]
    # `list_units`: groups of four units in the list
    fours: Annotated[Counts, "tiles R"]
    # `load_tile`: T + 1 rows of a panel of W, the last one of zeros; after `hold` all
    # of W in such tiles. In one line of numbers, as are those that follow
    tile: Array
    # `look_up`: sums of the subsets of four units, for four times four units
    tables: Array
    # `gather`, `look_up`: a panel of PANEL_ROWS rows of the product
    sums: Array
    # `gather`: a panel of the sum of all rows of W
    total: Array
    holds_weights: bool  # many products have one W, all of which is in the tiles
    group: int  # rows that decide together how they are added up


def make_bits(
    rows: int, units: int, shared: int = 0, packed: bool = True, group: int = 0
) -> Bits:
    """Allocate work arrays for a binary matrix (rows, units) and its products.

    Many products may have one W, of ``shared`` columns. Without packing there is a
    small tile alone. Each ``group`` of rows, if given, gets the same bytes as it would
    alone.
    """
    if not packed:
        small = 16 * units if rows * units <= SMALL_WORK else 0
        return _allocate_bits(rows, tile=small, group=group)
    words = -(-units // 16)
    tile = 16 * words if units <= _ONE_TILE else CHUNK
    tiles = -(-units // tile)
    panels = 1
    if shared:  # a panel of 48 may be half empty
        panels = tiles * (-(-shared // WIDEST_PANEL) + 1)
    return _allocate_bits(
        rows,
        words=words,
        tiles=tiles,
        places=tile + SPARE,
        tile=(tile + 1) * panels * WIDEST_PANEL,
        tables=4 * 16 * WIDEST_PANEL,
        sums=PANEL_ROWS * WIDEST_PANEL,
        total=WIDEST_PANEL,
        holds_weights=shared > 0,
        group=group,
    )


def _allocate_bits(
    rows: int,
    *,
    words: int = 0,
    tiles: int = 0,
    places: int = SPARE,
    holds_weights: bool = False,
    group: int,
    **sizes: int,
) -> Bits:
    """Allocate a binary matrix; its work arrays of these sizes follow each other."""
    work = aligned_zeros(sum(sizes.values()))  # denormal numbers would be slow
    parts, start = {"tables": work[:0], "sums": work[:0], "total": work[:0]}, 0
    for name, size in sizes.items():
        parts[name] = work[start : start + size]
        start += size
    return allocate(
        Bits,
        Q=words,
        R=rows,
        L=places,
        tiles=tiles,
        holds_weights=holds_weights,
        group=group or max(rows, 1),
        **parts,
    )


def bits_for(
    rows: int, units: int, columns: int, shared: bool = False, group: int = 0
) -> Bits:
    """Allocate what `binary_product` needs for a W (units, columns), ``shared`` by many
    products or not; it may be less.
    """
    packed = worth_packing(group or rows, units, columns)
    held = columns if shared and packed else 0
    return make_bits(rows, units, shared=held, packed=packed, group=group)


@merged
def worth_packing(rows: int, units: int, columns: int) -> bool:
    """Whether a product (rows, units) @ (units, columns) is large enough to beat
    sgemm.
    """
    return rows >= FEW_ROWS and rows * units * columns >= LITTLE_WORK


@lean
def pack_rows(x: Array, bits: Bits) -> None:
    """Pack the rows x (R, K) of zeros and ones."""
    rows, units = x.shape
    full = units // 16
    for r in range(rows):
        for q in range(full):
            bits.words[q, r] = simd.sixteen(x, np.int64(r * units + 16 * q))
        if units % 16:
            word = 0
            for i in range(16 * full, units):
                word |= np.int64(x[r, i] > 0.5) << (i & 15)
            bits.words[full, r] = np.uint16(word)


@lean
def pack_columns(x: Array, last: int, bits: Bits) -> None:
    """Pack the first ``last`` columns of x (K, N) as rows: bits become a matrix (last,
    K).
    """
    for q in range(bits.words.shape[0]):
        word = bits.words[q, :last]
        word[:] = 0
        for k in range(16 * q, min(16 * q + 16, x.shape[0])):
            row, bit = x[k, :last], np.uint16(1 << (k & 15))
            for i in range(word.size):
                word[i] |= np.uint16(row[i] > np.float32(0.5)) * bit


def _units_of(byte: int) -> list[int]:
    """The bits of a byte that are 1, and zeros up to eight numbers."""
    units = [i for i in range(8) if byte >> i & 1]
    return units + [0] * (8 - len(units))


_ON = np.array([_units_of(byte) for byte in range(256)], np.uint16)
_COUNT = np.array([byte.bit_count() for byte in range(256)])


@lean
def list_units(bits: Bits, units: int, off: bool, first: int, last: int) -> None:
    """List the units that are on, or off, in the rows first, ..., last - 1, eight bits
    at a time.

    The row of zeros fills the last fours.
    """
    words, rows = bits.words.shape
    tiles, _, places = bits.on.shape
    tile, chunk = places - SPARE, CHUNK // 16
    for t in range(tiles):
        start_word = t * (tile // 16)
        for r in range(first, last):
            start = at = np.int64((t * rows + r) * places)
            for q in range(start_word, min(words, start_word + tile // 16)):
                word, unit = np.int64(bits.words[q, r]), np.int64(16 * q - t * tile)
                if off:
                    word ^= (1 << min(16, units - 16 * q)) - 1
                low, high = word & 255, word >> 8
                simd.list_eight(_ON, which=low, first=unit, on=bits.on, at=at)
                at += _COUNT[low]
                simd.list_eight(_ON, which=high, first=unit + 8, on=bits.on, at=at)
                at += _COUNT[high]
                if (q + 1) % chunk == 0 or q == words - 1:
                    zeros = np.int64(tile)  # the row after the last one
                    simd.list_eight(
                        _ON, which=np.int64(0), first=zeros, on=bits.on, at=at
                    )
                    at = start + ((at - start + 3) & ~3)
            bits.fours[t, r] = (at - start) // 4
