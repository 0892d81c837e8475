"""Matrix products: dense ones by BLAS, and those with binary rows, which need no
multiplication.

A unit is 0 or 1, so that x W is a sum of rows of W. Two ways to add them up are faster
than sgemm:

gather: for every row of x, add the rows of W at the units that are on. The cost grows
with their number. table: for every four rows of W, list the 16 sums of their subsets; a
row of x then takes one look-up and one
    addition for every four units. The cost does not depend on how many units are on.

Both work on a *panel* of up to 64 columns of W at a time, and on a tile of its rows
that fits into the first-level cache. Shapes and the number of units that are on decide
which way is taken, never timing: the same work gives the same bytes everywhere.
docs/benchmarks.md has the measurements behind the constants.
"""

from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbm_cli.kernels import intrinsics as simd
from cbm_cli.kernels.compiling import lean, merged
from cbm_cli.kernels.machine import Array, aligned

# Dense products

_AS_IS, _TURNED = ord("n"), ord("t")
_ZERO = np.float32(0)


@merged
def product(a: Array, b: Array, out: Array) -> None:
    """out = a b: (R, K) @ (K, M)."""
    simd.gemm(
        _AS_IS,
        _AS_IS,
        b.shape[1],
        len(a),
        len(b),
        b,
        _row(b),
        a,
        _row(a),
        _ZERO,
        out,
        _row(out),
    )


@merged
def product_nt(a: Array, b: Array, out: Array) -> None:
    """out = a b': (R, K) @ (M, K)'."""
    simd.gemm(
        _TURNED,
        _AS_IS,
        len(b),
        len(a),
        b.shape[1],
        b,
        _row(b),
        a,
        _row(a),
        _ZERO,
        out,
        _row(out),
    )


@merged
def product_tn(a: Array, b: Array, out: Array, beta: np.float32 = _ZERO) -> None:
    """out = a' b + beta out: (K, R)' @ (K, M)."""
    simd.gemm(
        _AS_IS,
        _TURNED,
        b.shape[1],
        a.shape[1],
        len(b),
        b,
        _row(b),
        a,
        _row(a),
        beta,
        out,
        _row(out),
    )


@merged
def _row(a: Array) -> int:
    """Numbers from a row to the next one; rows of a view may be longer than it is
    wide.
    """
    return max(a.strides[0] // 4, a.shape[1], 1)


# Binary matrices

_WIDEST = 64  # columns of a panel: 16, 48 or 64
# units whose rows of W are added up in fours, the last four filled up with rows of
# zeros
_CHUNK = 128
_WHOLE = (
    3 * _CHUNK
)  # units up to which all rows of W are gathered from at once, else those of a chunk
_SPARE = 16  # spare places at the end of a list of units
_BLOCK = 112  # rows of x whose sums are kept at hand, 28 KB
FEW_ROWS, LITTLE_WORK = 8, 2**15  # below these sgemm is faster
_SMALL_WORK = (
    1024  # rows times units up to which a loop over them is faster than a call of sgemm
)
# Cycles to list a word; and, in a wide or narrow panel, for a row in a chunk, a unit
# that is on, a row in a word, and the four tables of a word.
_LIST_WORD, _WIDE, _NARROW = 6.0, (40.0, 2.5, 12.0, 300.0), (35.0, 1.2, 6.0, 80.0)


class Bits(NamedTuple):
    """A binary matrix (R, K), packed, and work arrays of its products."""

    words: NDArray[np.uint16]  # (K / 16, R): units 16 q, ..., 16 q + 15 of row r
    on: NDArray[
        np.uint16
    ]  # (tiles, R, T + _SPARE): units that are on, counted within a tile of T, in fours
    fours: NDArray[np.int64]  # (tiles, R): groups of four units in the list
    # T + 1 rows of a panel of W, the last one of zeros, or all of W in such tiles; flat
    tile: Array
    # sums of the subsets of four units, for four times four units; flat, as those that
    # follow
    tables: Array
    sums: Array  # a panel of _BLOCK rows of the product
    total: Array  # a panel of the sum of all rows of W
    shared: (
        bool  # whether many products share W, all of which `hold` copies to the tiles
    )
    group: int  # rows that decide together which way is taken


def make_bits(
    rows: int, units: int, shared: int = 0, packed: bool = True, group: int = 0
) -> Bits:
    """Allocate work arrays for a binary matrix (rows, units) and its products.

    Many products may share one W, of ``shared`` columns. Without packing there is a
    small tile alone. Each ``group`` of rows, if given, gets the same bytes as it would
    alone.
    """
    words = -(-units // 16)
    tile = 16 * words if units <= _WHOLE else _CHUNK
    tiles = -(-units // tile) if packed else 0
    held = (
        tiles * (-(-shared // _WIDEST) + 1) if shared else 1
    )  # a panel of 48 may be half empty
    sizes = [n * _WIDEST for n in ((tile + 1) * held, 4 * 16, _BLOCK, 1)]
    if not packed:
        words, sizes = 0, [16 * units if rows * units <= _SMALL_WORK else 0, 0, 0, 0]
    work, ends = (
        aligned(np.zeros(sum(sizes), "f4")),
        list(accumulate(sizes)),
    )  # denormal numbers are slow
    parts = [work[end - size : end] for size, end in zip(sizes, ends, strict=True)]
    on, fours = (
        np.zeros((tiles, rows, tile + _SPARE), np.uint16),
        np.zeros((tiles, rows), np.int64),
    )
    return Bits(
        np.zeros((words, rows), np.uint16),
        on,
        fours,
        *parts,
        shared > 0,
        group or max(rows, 1),
    )


def bits_for(
    rows: int, units: int, columns: int, shared: bool = False, group: int = 0
) -> Bits:
    """Allocate what `binary_product` needs for a W (units, columns), ``shared`` or not;
    it may be less.
    """
    packed = worth_packing(group or rows, units, columns)
    return make_bits(rows, units, columns if shared and packed else 0, packed, group)


@lean
def pack_rows(x: Array, bits: Bits) -> None:
    """Pack the rows x (R, K) of zeros and ones."""
    rows, units = x.shape
    for r in range(rows):
        for q in range(units // 16):
            bits.words[q, r] = simd.sixteen(x, np.int64(r * units + 16 * q))
        if units % 16:
            word = 0
            for i in range(units - units % 16, units):
                word |= np.int64(x[r, i] > 0.5) << (i & 15)
            bits.words[units // 16, r] = np.uint16(word)


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


_ON = np.array(
    [
        [i for i in range(8) if byte >> i & 1] + [0] * (8 - byte.bit_count())
        for byte in range(256)
    ],
    np.uint16,
)
_COUNT = np.array([byte.bit_count() for byte in range(256)])


@lean
def _list_units(bits: Bits, units: int, off: bool, first: int, last: int) -> None:
    """List the units that are on, or off, in the rows first, ..., last - 1, eight bits
    at a time.

    The row of zeros fills the last fours.
    """
    (words, rows), (tiles, _, stride), mask = (
        bits.words.shape,
        bits.on.shape,
        _CHUNK // 16 - 1,
    )
    tile = stride - _SPARE
    for t in range(tiles):
        for r in range(first, last):
            start = at = np.int64((t * rows + r) * stride)
            for q in range(t * (tile // 16), min(words, (t + 1) * (tile // 16))):
                word, unit = np.int64(bits.words[q, r]), np.int64(16 * q - t * tile)
                if off:
                    word ^= (1 << min(16, units - 16 * q)) - 1
                simd.list_eight(_ON, word & 255, unit, bits.on, at)
                at += _COUNT[word & 255]
                simd.list_eight(_ON, word >> 8, unit + 8, bits.on, at)
                at += _COUNT[word >> 8]
                if q & mask == mask or q == words - 1:
                    simd.list_eight(_ON, np.int64(0), np.int64(tile), bits.on, at)
                    at = start + ((at - start + 3) & ~3)
            bits.fours[t, r] = (at - start) // 4


@merged
def worth_packing(rows: int, units: int, columns: int) -> bool:
    """Whether a product (rows, units) @ (units, columns) is large enough to beat
    sgemm.
    """
    return rows >= FEW_ROWS and rows * units * columns >= LITTLE_WORK


@merged
def binary_product(x: Array, bits: Bits, W: Array, turned: bool, out: Array) -> None:
    """out = x W, or x W' where ``turned``, for rows x (R, K) of zeros and ones; they
    are packed into bits.
    """
    if worth_packing(min(bits.group, x.shape[0]), x.shape[1], out.shape[1]):
        pack_rows(x, bits)
        bits_product(bits, W, turned, out)
    elif not turned:
        product(x, W, out)
    elif out.shape[1] <= 16 and x.size <= _SMALL_WORK:
        for k in range(x.shape[1]):
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
        binary_product(x, bits, W, False, out)
    else:
        product(x, W, out)


@lean
def hold(W: Array, turned: bool, bits: Bits) -> None:
    """Copy W, or W' where ``turned``, to the tiles if it is shared: the next products
    are those with it.
    """
    units, columns = (W.shape[1], W.shape[0]) if turned else W.shape
    tile, j = bits.on.shape[2] - _SPARE, 0
    while bits.shared and j < columns:
        width = width_of_panel(columns - j)
        for start in range(0, units, tile):
            _load_tile(
                W,
                turned,
                start,
                tile,
                j,
                width,
                bits.tile[_held(bits, start, j, width) :],
            )
        j += width


@merged
def _held(bits: Bits, start: int, j: int, width: int) -> int:
    """Where bits.tile has row ``start`` of the panel at column j of a shared W."""
    tiles, tile = bits.on.shape[0], bits.on.shape[2] - _SPARE
    return j * tiles * (tile + 1) + (start + start // tile) * width


@lean
def bits_product(bits: Bits, W: Array, turned: bool, out: Array) -> None:
    """out = x W, or x W' where ``turned``; x (R, K) as packed, out (R, M)."""
    rows, first = out.shape[0], 0
    while first < rows:  # groups that take the same way are added up together
        way, last = _way(bits, W, turned, first, out), first + bits.group
        while last < rows and _way(bits, W, turned, last, out) == way:
            last += bits.group
        _add_up(bits, W, turned, way, first, min(rows, last), out)
        first = last


@lean
def _way(bits: Bits, W: Array, turned: bool, first: int, out: Array) -> int:
    """How the group from row ``first`` is added up: 0 by tables, 1 by gathering, 2 by
    what is off.
    """
    units, columns = W.shape[1] if turned else W.shape[0], out.shape[1]
    rows, on = min(bits.group, out.shape[0] - first), 0
    for q in range(bits.words.shape[0]):
        for word in bits.words[q, first : first + rows]:
            on += simd.ones(word)
    off = (
        2 * on > rows * units
    )  # the complement: the sum of all rows less those of the units that are off
    words, blocks, vectors = (
        bits.words.shape[0],
        -(-rows // _BLOCK),
        (columns + 15) // 16,
    )
    panels, (row, unit, look, build) = (
        (vectors / 4.0, _WIDE) if vectors > 1 else (1.0, _NARROW)
    )
    gather = panels * (
        row * -(-16 * words // _CHUNK) * rows
        + unit * (rows * units - on if off else on)
    )
    if _LIST_WORD * words * rows + gather >= panels * words * (
        look * rows + build * blocks
    ):
        return 0
    return 2 if off else 1


class Part(NamedTuple):
    """Rows first, ..., last - 1 of a panel of a product: of its columns j, ..., j +
    width - 1.
    """

    first: int
    last: int
    j: int
    width: int


@lean
def _add_up(
    bits: Bits, W: Array, turned: bool, way: int, start: int, stop: int, out: Array
) -> None:
    """`bits_product` of the rows start, ..., stop - 1 by one way, in blocks of about
    one size.
    """
    columns, j, gather, off = out.shape[1], 0, way > 0, way > 1
    if gather:
        _list_units(bits, W.shape[1] if turned else W.shape[0], off, start, stop)
    block = -(-(stop - start) // -(-(stop - start) // _BLOCK))
    while j < columns:
        width = width_of_panel(columns - j)
        for first in range(start, stop, block):
            part = Part(first, min(stop, first + block), j, width)
            if gather:
                _gather(bits, W, turned, part, off, first == start, out)
            else:
                _look_up(bits, W, turned, part, out)
            if off or columns < 16:  # else the last sums are in out, not in bits.sums
                _unload(bits, part, off, out)
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
def _gather(
    bits: Bits, W: Array, turned: bool, part: Part, off: bool, new: bool, out: Array
) -> None:
    """Add up the rows of W at the listed units, and all if ``off``; a ``new`` panel is
    not in a tile yet.
    """
    (first, last, j, width), (tiles, rows, stride), columns = (
        part,
        bits.on.shape,
        out.shape[1],
    )
    size = np.int64(width)
    count, direct = np.int64(stride - _SPARE), columns >= 16 and not off
    for t in range(tiles):
        tile = bits.tile[
            _place(bits, W, turned, t * count, count, part, new or tiles > 1) :
        ]
        if off and new:
            simd.add_tile(size, bits.total, t == 0, tile, count)
        for r in range(first, last):
            to, on, fours = (
                np.int64((r - first) * width),
                np.int64((t * rows + r) * stride),
                bits.fours[t, r],
            )
            if direct and t == tiles - 1:
                at, end = (
                    np.int64(r * columns + j),
                    np.int64(r * columns + columns - 16),
                )
                simd.add_rows(
                    size, bits.sums, to, t == 0, tile, bits.on, on, fours, out, at, end
                )
            else:
                simd.add_rows(
                    size,
                    bits.sums,
                    to,
                    t == 0,
                    tile,
                    bits.on,
                    on,
                    fours,
                    bits.sums,
                    to,
                    to + size,
                )


@merged
def _place(
    bits: Bits, W: Array, turned: bool, start: int, count: int, part: Part, load: bool
) -> int:
    """Where bits.tile has ``count`` rows of the panel from ``start``; they are loaded
    if need be.
    """
    if bits.shared:
        return _held(bits, start, part.j, part.width)
    if load:
        _load_tile(W, turned, start, count, part.j, part.width, bits.tile)
    return 0


@lean
def _look_up(bits: Bits, W: Array, turned: bool, part: Part, out: Array) -> None:
    """Add up the sums of subsets that the words name."""
    (first, last, j, width), (words, rows), columns = (
        part,
        bits.words.shape,
        out.shape[1],
    )
    size, count = np.int64(width), np.int64(last - first)
    at, end = np.int64(first * columns + j), np.int64(first * columns + columns - 16)
    for q in range(words):
        tile = bits.tile[_place(bits, W, turned, 16 * q, 16, part, True) :]
        for k in range(4):
            simd.add_subsets(
                size,
                tile,
                np.int64(4 * k * width),
                bits.tables,
                np.int64(16 * k * width),
            )
        given = (
            size,
            bits.sums,
            count,
            q == 0,
            bits.tables,
            bits.words,
            np.int64(q * rows + first),
        )
        if columns >= 16 and q == words - 1:
            simd.add_entries(*given, out, at, end, np.int64(columns))
        else:
            simd.add_entries(*given, bits.sums, np.int64(0), size, size)


@lean
def _load_tile(
    W: Array, turned: bool, start: int, count: int, j: int, width: int, tile: Array
) -> None:
    """Copy ``count`` rows of W (or W') from ``start``, columns j, ..., to the tile, and
    a row of zeros.

    Vectors that would reach beyond the last column begin earlier, and repeat columns of
    the one before.
    """
    units, columns = (W.shape[1], W.shape[0]) if turned else W.shape
    stop = min(units, start + count)
    if columns < 16 or (turned and units < 16):
        for k in range(start, stop):
            for i in range(width):
                column = min(j + i - i % 16, max(0, columns - 16)) + i % 16
                value = np.float32(0)
                if column < columns:
                    value = W[column, k] if turned else W[k, column]
                tile[(k - start) * width + i] = value
    elif turned:
        for v in range(0, width, 16):
            i = min(j + v, columns - 16)
            for k in range(start, stop, 16):
                surplus, to = max(0, k + 16 - units), (k - start) * width + v
                at = np.int64(
                    i * units + k - surplus
                )  # a last block begins earlier, and its rows move up
                simd.turn_sixteen(
                    W, at, np.int64(units), tile, np.int64(to), np.int64(width)
                )
                for u in range(16 - surplus if surplus else 0):
                    simd.copy_sixteen(
                        tile,
                        np.int64(to + (u + surplus) * width),
                        tile,
                        np.int64(to + u * width),
                    )
    else:
        for k in range(start, stop):
            for v in range(0, width, 16):
                at = k * columns + min(j + v, columns - 16)
                simd.copy_sixteen(
                    W, np.int64(at), tile, np.int64((k - start) * width + v)
                )
    tile[(stop - start) * width : (count + 1) * width] = 0


@lean
def _unload(bits: Bits, part: Part, off: bool, out: Array) -> None:
    """Copy the sums, or what they are less than all if they are of what is ``off``, to
    out.
    """
    (first, last, j, width), columns = part, out.shape[1]
    for r in range(first, last):
        for v in range(0, width, 16):
            row = out[r, max(0, min(j + v, columns - 16)) :]
            for i in range(min(16, columns)):
                total = bits.sums[(r - first) * width + v + i]
                row[i] = bits.total[v + i] - total if off else total
