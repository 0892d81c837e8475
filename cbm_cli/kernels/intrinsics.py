"""What compiled code cannot say: vectors of 16 floats, and sgemm without Numba's
runtime.

Loops over short rows are written with explicit vectors, for LLVM guards every short
inner loop by checks for overlap. Places in arrays count numbers through their rows;
arrays are C-contiguous.
"""

import scipy.linalg.cython_blas  # noqa: F401  the BLAS that `gemm` calls
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_INT, _LONG, _POINTER, _BYTE = (
    ir.IntType(32),
    ir.IntType(64),
    ir.IntType(8).as_pointer(),
    ir.IntType(8),
)
_VECTOR = ir.VectorType(
    ir.FloatType(), 16
)  # LLVM splits it where registers are narrower
_ZEROS = ir.Constant(_VECTOR, [0.0] * 16)


@intrinsic
def gemm(typingctx, ta, tb, m, n, k, a, lda, b, ldb, beta, c, ldc):
    """Fortran's sgemm on the arrays' data, by the helper behind np.dot, which needs no
    Numba runtime.
    """
    long = types.int64
    signature = types.void(
        long, long, long, long, long, a, long, b, long, types.float32, c, long
    )

    def codegen(context, builder, sig, args):
        pair = [_POINTER, _POINTER, _LONG]
        kinds = [_BYTE] * 3 + [_LONG] * 3 + pair + [_POINTER, _LONG] + pair
        gemm = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_INT, kinds), "numba_xxgemm"
        )
        one, beta = (
            builder.bitcast(cgutils.alloca_once_value(builder, value), _POINTER)
            for value in (ir.Constant(ir.FloatType(), 1.0), args[9])
        )
        a, b, c = (
            builder.bitcast(_data(context, builder, sig, args, i), _POINTER)
            for i in (5, 7, 10)
        )
        flags = [_BYTE(ord("s")), *(builder.trunc(flag, _BYTE) for flag in args[:2])]
        builder.call(
            gemm, [*flags, *args[2:5], one, a, args[6], b, args[8], beta, c, args[11]]
        )
        return context.get_dummy_value()

    return signature, codegen


def _data(context, builder, sig, args, i):
    return context.make_array(sig.args[i])(context, builder, args[i]).data


def _load(builder, pointer, at, shift=0, align=4):
    place = builder.gep(pointer, [builder.add(at, _LONG(shift))])
    value = builder.load(builder.bitcast(place, _VECTOR.as_pointer()))
    value.align = align
    return value


def _store(builder, value, pointer, at, shift=0, align=4):
    place = builder.gep(pointer, [builder.add(at, _LONG(shift))])
    builder.store(value, builder.bitcast(place, _VECTOR.as_pointer())).align = align


def _everywhere(builder, value, kind):
    single = builder.insert_element(ir.Constant(kind, ir.Undefined), value, _INT(0))
    return builder.shuffle_vector(
        single, single, ir.Constant(ir.VectorType(_INT, kind.count), [0] * kind.count)
    )


def _first_lanes(builder, count):
    lanes = ir.Constant(ir.VectorType(_LONG, 16), [*range(16)])
    return builder.icmp_signed("<", lanes, _everywhere(builder, count, lanes.type))


def _store_lanes(builder, value, place, lanes):
    place = builder.bitcast(place, _VECTOR.as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [_VECTOR, place.type, _INT, lanes.type])
    store = cgutils.get_or_insert_function(
        builder.module, kind, "llvm.masked.store.v16f32.p0"
    )
    builder.call(store, [value, place, _INT(4), lanes])


def _four(builder, vectors):
    a, b, c, d = vectors
    return builder.fadd(builder.fadd(a, b), builder.fadd(c, d))


@intrinsic
def sixteen(typingctx, x, at):
    """x[at : at + 16] > 1/2 as the bits of a number."""

    def codegen(context, builder, sig, args):
        x = _load(builder, _data(context, builder, sig, args, 0), args[1])
        return builder.bitcast(
            builder.fcmp_ordered(">", x, ir.Constant(_VECTOR, [0.5] * 16)),
            ir.IntType(16),
        )

    return types.uint16(x, types.int64), codegen


@intrinsic
def spread_bits(typingctx, word, x, at, count):
    """x[at : at + count] = the first bits of a word; at most 16."""

    def codegen(context, builder, sig, args):
        units = builder.uitofp(
            builder.bitcast(args[0], ir.VectorType(ir.IntType(1), 16)), _VECTOR
        )
        place = builder.gep(_data(context, builder, sig, args, 1), [args[2]])
        _store_lanes(builder, units, place, _first_lanes(builder, args[3]))
        return context.get_dummy_value()

    return types.void(types.uint16, x, types.int64, types.int64), codegen


@intrinsic
def ones(typingctx, word):
    """Number of bits of a word that are 1."""

    def codegen(context, builder, sig, args):
        return builder.zext(builder.ctpop(args[0]), _LONG)

    return types.int64(types.uint16), codegen


@intrinsic
def list_eight(typingctx, lists, which, first, on, at):
    """on[at : at + 8] = lists[which] + first, numbers of 16 bits."""

    def codegen(context, builder, sig, args):
        lists, on = (_data(context, builder, sig, args, i) for i in (0, 3))
        kind = ir.VectorType(ir.IntType(16), 8)
        known = builder.load(
            builder.bitcast(
                builder.gep(lists, [builder.shl(args[1], _LONG(3))]), kind.as_pointer()
            )
        )
        known.align = 2
        more = _everywhere(builder, builder.trunc(args[2], kind.element), kind)
        place = builder.bitcast(builder.gep(on, [args[4]]), kind.as_pointer())
        builder.store(builder.add(known, more), place).align = 2
        return context.get_dummy_value()

    long = types.int64
    return types.void(lists, long, long, on, long), codegen


@intrinsic
def copy_sixteen(typingctx, source, at, target, to):
    """target[to : to + 16] = source[at : at + 16], counted through the rows."""

    def codegen(context, builder, sig, args):
        value = _load(builder, _data(context, builder, sig, args, 0), args[1])
        _store(builder, value, _data(context, builder, sig, args, 2), args[3])
        return context.get_dummy_value()

    return types.void(source, types.int64, target, types.int64), codegen


@intrinsic
def turn_sixteen(typingctx, W, at, ld, tile, to, width):
    """Transpose 16 by 16 numbers of W, whose rows have ``ld``, to the tile, whose rows
    have ``width``.
    """

    def codegen(context, builder, sig, args):
        W, tile = (_data(context, builder, sig, args, i) for i in (0, 3))
        rows = [
            _load(builder, W, builder.add(args[1], builder.mul(args[2], _LONG(k))))
            for k in range(16)
        ]
        for d in (
            8,
            4,
            2,
            1,
        ):  # exchange the blocks of d by d numbers beside the diagonal
            upper = [lane + 16 - d if lane & d else lane for lane in range(16)]
            lower = [lane + 16 if lane & d else lane + d for lane in range(16)]
            for k in (k for k in range(16) if not k & d):
                a, b = rows[k], rows[k + d]
                for row, lanes in ((k, upper), (k + d, lower)):
                    mask = ir.Constant(ir.VectorType(_INT, 16), lanes)
                    rows[row] = builder.shuffle_vector(a, b, mask)
        for k, row in enumerate(rows):
            _store(
                builder, row, tile, builder.add(args[4], builder.mul(args[5], _LONG(k)))
            )
        return context.get_dummy_value()

    long = types.int64
    return types.void(W, long, long, tile, long, long), codegen


@intrinsic
def multiply_rows(typingctx, x, tile, out):
    """out = x W of up to 16 columns for x (R, K) of zeros and ones; row k of W is
    tile[16 k : 16 k + 16].

    Four rows of x at a time; the last ones are made again if fewer are left.
    """

    def codegen(context, builder, sig, args):
        x, out = (
            context.make_array(sig.args[i])(context, builder, args[i]) for i in (0, 2)
        )
        tile = _data(context, builder, sig, args, 1)
        (count, units), columns = (
            cgutils.unpack_tuple(builder, x.shape),
            builder.extract_value(out.shape, 1),
        )
        lanes, last = _first_lanes(builder, columns), builder.sub(count, _LONG(1))
        with cgutils.for_range_slice(
            builder, _LONG(0), count, _LONG(4), intp=_LONG
        ) as (first, _):
            rows = [builder.add(first, _LONG(k)) for k in range(4)]
            rows = [
                builder.select(builder.icmp_signed("<", row, last), row, last)
                for row in rows
            ]
            totals = [cgutils.alloca_once(builder, _VECTOR) for _ in rows]
            for total in totals:
                builder.store(_ZEROS, total)
            with cgutils.for_range(builder, units, intp=_LONG) as loop:
                weights = _load(
                    builder, tile, builder.mul(loop.index, _LONG(16)), 0, 64
                )
                for row, total in zip(rows, totals, strict=True):
                    at = builder.add(builder.mul(row, units), loop.index)
                    unit = _everywhere(
                        builder, builder.load(builder.gep(x.data, [at])), _VECTOR
                    )
                    more = builder.fmul(unit, weights, flags=("contract",))
                    builder.store(
                        builder.fadd(builder.load(total), more, flags=("contract",)),
                        total,
                    )
            for row, total in zip(rows, totals, strict=True):
                place = builder.gep(out.data, [builder.mul(row, columns)])
                _store_lanes(builder, builder.load(total), place, lanes)
        return context.get_dummy_value()

    return types.void(x, tile, out), codegen


def _by_width(builder, width, generate):
    """Generate code for panels of 1, 3 and 4 vectors; the width of a panel decides
    which of them runs.
    """
    done = builder.append_basic_block()
    switch = builder.switch(width, done)
    for vectors in (1, 3, 4):
        block = builder.append_basic_block()
        switch.add_case(_LONG(16 * vectors), block)
        builder.position_at_end(block)
        generate(vectors)
        builder.branch(done)
    builder.position_at_end(done)


def _totals(builder, vectors, sums, to, fresh):
    """The sums of a row so far, or zeros where it is fresh, in variables that become
    registers.
    """
    totals = [cgutils.alloca_once(builder, _VECTOR) for _ in range(vectors)]
    for v, total in enumerate(totals):
        builder.store(
            builder.select(fresh, _ZEROS, _load(builder, sums, to, 16 * v, 64)), total
        )
    return totals


def _columns(builder, vectors, place, last):
    """Places of the vectors of a row; those that would reach beyond its end begin at
    ``last``.
    """
    places = [builder.add(place, _LONG(16 * v)) for v in range(vectors)]
    return [
        builder.select(builder.icmp_signed("<", place, last), place, last)
        for place in places
    ]


@intrinsic
def add_rows(typingctx, width, sums, to, fresh, tile, on, at, fours, out, place, last):
    """out[place:] = sums[to:], or 0 where fresh, + the rows of the tile listed in
    on[at:], in fours.
    """

    def codegen(context, builder, sig, args):
        width, _, to, fresh, _, _, at, fours, _, *places = args
        sums, tile, on, out = (
            _data(context, builder, sig, args, i) for i in (1, 4, 5, 8)
        )

        def add(vectors):
            totals = _totals(builder, vectors, sums, to, fresh)
            with cgutils.for_range(builder, fours, intp=_LONG) as loop:
                four = builder.gep(
                    on, [builder.add(at, builder.shl(loop.index, _LONG(2)))]
                )
                four = builder.load(builder.bitcast(four, _LONG.as_pointer()))
                four.align = 2
                units = [
                    builder.and_(builder.lshr(four, _LONG(16 * k)), _LONG(65535))
                    for k in range(4)
                ]
                rows = [builder.mul(unit, _LONG(16 * vectors)) for unit in units]
                for v, total in enumerate(totals):
                    more = _four(
                        builder, [_load(builder, tile, row, 16 * v, 64) for row in rows]
                    )
                    builder.store(builder.fadd(builder.load(total), more), total)
            for total, column in zip(
                totals, _columns(builder, vectors, *places), strict=True
            ):
                _store(builder, builder.load(total), out, column)

        _by_width(builder, width, add)
        return context.get_dummy_value()

    long = types.int64
    return types.void(
        long, sums, long, types.boolean, tile, on, long, long, out, long, long
    ), codegen


@intrinsic
def add_tile(typingctx, width, sums, fresh, tile, count):
    """sums = sums, or 0 where fresh, + the first rows of the tile, one after the
    other.
    """

    def codegen(context, builder, sig, args):
        width, _, fresh, _, count = args
        sums, tile = (_data(context, builder, sig, args, i) for i in (1, 3))

        def add(vectors):
            totals = _totals(builder, vectors, sums, _LONG(0), fresh)
            with cgutils.for_range(builder, count, intp=_LONG) as loop:
                at = builder.mul(loop.index, _LONG(16 * vectors))
                for v, total in enumerate(totals):
                    row = _load(builder, tile, at, 16 * v, 64)
                    builder.store(builder.fadd(builder.load(total), row), total)
            for v, total in enumerate(totals):
                _store(builder, builder.load(total), sums, _LONG(0), 16 * v, 64)

        _by_width(builder, width, add)
        return context.get_dummy_value()

    return types.void(types.int64, sums, types.boolean, tile, types.int64), codegen


@intrinsic
def add_subsets(typingctx, width, tile, at, tables, to):
    """tables[to:] = the sums of the 16 subsets of four rows of the tile."""

    def codegen(context, builder, sig, args):
        tile, tables = (_data(context, builder, sig, args, i) for i in (1, 3))

        def add(vectors):
            for v in range(vectors):
                sums = [_ZEROS]
                for k in range(4):
                    row = _load(builder, tile, args[2], 16 * (vectors * k + v), 64)
                    sums += [row, *(builder.fadd(total, row) for total in sums[1:])]
                for k, total in enumerate(sums):
                    _store(builder, total, tables, args[4], 16 * (vectors * k + v), 64)

        _by_width(builder, args[0], add)
        return context.get_dummy_value()

    return types.void(types.int64, tile, types.int64, tables, types.int64), codegen


@intrinsic
def add_entries(
    typingctx, width, sums, rows, fresh, tables, words, at, out, place, last, stride
):
    """out[place:] = sums, or 0 where fresh, + the entries of four tables that the
    digits of a word name.

    The digits are 0 to 15. The next rows have the next sums and words[at], and lie
    ``stride`` further in out.
    """

    def codegen(context, builder, sig, args):
        width, _, rows, fresh, _, _, at, _, place, last, stride = args
        sums, tables, words, out = (
            _data(context, builder, sig, args, i) for i in (1, 4, 5, 7)
        )

        def add(vectors):
            with cgutils.for_range(builder, rows, intp=_LONG) as loop:
                totals = _totals(
                    builder,
                    vectors,
                    sums,
                    builder.mul(loop.index, _LONG(16 * vectors)),
                    fresh,
                )
                word = builder.zext(
                    builder.load(builder.gep(words, [builder.add(at, loop.index)])),
                    _LONG,
                )
                digits = [
                    builder.and_(builder.lshr(word, _LONG(4 * k)), _LONG(15))
                    for k in range(4)
                ]
                entries = [builder.mul(digit, _LONG(16 * vectors)) for digit in digits]
                for v, total in enumerate(totals):
                    shifts = [16 * (16 * vectors * k + v) for k in range(4)]
                    more = [
                        _load(builder, tables, *entry, 64)
                        for entry in zip(entries, shifts, strict=True)
                    ]
                    builder.store(
                        builder.fadd(builder.load(total), _four(builder, more)), total
                    )
                down = builder.mul(loop.index, stride)
                columns = _columns(
                    builder, vectors, builder.add(place, down), builder.add(last, down)
                )
                for total, column in zip(totals, columns, strict=True):
                    _store(builder, builder.load(total), out, column)

        _by_width(builder, width, add)
        return context.get_dummy_value()

    long = types.int64
    given = long, sums, long, types.boolean, tables, words, long, out, long, long, long
    return types.void(*given), codegen
