"""What compiled code cannot say: vectors of 16 floats.

Loops over short rows are written with explicit vectors, for LLVM guards every short
inner loop by checks for overlap. Places in arrays count numbers through their rows;
arrays are C-contiguous. docs/decisions/0023-products-of-binary-rows.md has a picture of
panel, tile, list and tables.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_INT = ir.IntType(32)
_LONG = ir.IntType(64)
_FLOATS = ir.VectorType(ir.FloatType(), 16)  # LLVM splits it for narrower registers
_ZEROS = ir.Constant(_FLOATS, [0.0] * 16)
_LINE = 64  # bytes: the tile, the tables and the sums begin at lines of the cache


class _Vectors:
    """Writes code that loads, adds and stores vectors, at places of a pointer."""

    def __init__(self, builder):
        self.builder = builder

    def place(self, pointer, at):
        """Where the vector at a place is."""
        address = self.builder.gep(pointer, [at])
        return self.builder.bitcast(address, _FLOATS.as_pointer())

    def load(self, pointer, at, align=4):
        """The 16 numbers from a place on."""
        vector = self.builder.load(self.place(pointer, at))
        vector.align = align
        return vector

    def store(self, vector, pointer, at, align=4):
        """Put 16 numbers to a place."""
        self.builder.store(vector, self.place(pointer, at)).align = align

    def shifted(self, at, count):
        """The place ``count`` numbers after another."""
        return self.builder.add(at, _LONG(count))

    def everywhere(self, number, kind=_FLOATS):
        """A vector with one number in all lanes."""
        nothing = ir.Constant(kind, ir.Undefined)
        single = self.builder.insert_element(nothing, number, _INT(0))
        first_lane = ir.Constant(ir.VectorType(_INT, kind.count), [0] * kind.count)
        return self.builder.shuffle_vector(single, single, first_lane)

    def first_lanes(self, count):
        """Which lanes are among the first ``count``."""
        lanes = ir.Constant(ir.VectorType(_LONG, 16), [*range(16)])
        limit = self.everywhere(count, lanes.type)
        return self.builder.icmp_signed("<", lanes, limit)

    def store_lanes(self, vector, pointer, at, lanes):
        """Put the numbers of some lanes to a place."""
        place = self.place(pointer, at)
        arguments = [_FLOATS, place.type, _INT, lanes.type]
        store = cgutils.get_or_insert_function(
            self.builder.module,
            ir.FunctionType(ir.VoidType(), arguments),
            "llvm.masked.store.v16f32.p0",
        )
        self.builder.call(store, [vector, place, _INT(4), lanes])

    def sum_of_four(self, vectors):
        """(a + b) + (c + d): the order of all sums of rows."""
        a, b, c, d = vectors
        return self.builder.fadd(self.builder.fadd(a, b), self.builder.fadd(c, d))

    def totals(self, count, sums, at, fresh):
        """The sums of a row so far, or zeros where it is fresh, in variables that
        become registers.
        """
        totals = [cgutils.alloca_once(self.builder, _FLOATS) for _ in range(count)]
        for v, total in enumerate(totals):
            before = self.load(sums, self.shifted(at, 16 * v), align=_LINE)
            start = self.builder.select(fresh, _ZEROS, before)
            self.builder.store(start, total)
        return totals

    def add_to(self, total, vector):
        """total += vector."""
        before = self.builder.load(total)
        self.builder.store(self.builder.fadd(before, vector), total)

    def store_row(self, totals, out, place, last):
        """Put the vectors of a row to a place; those that would reach beyond its end
        begin at ``last``.
        """
        for v, total in enumerate(totals):
            at = self.shifted(place, 16 * v)
            is_inside = self.builder.icmp_signed("<", at, last)
            at = self.builder.select(is_inside, at, last)
            self.store(self.builder.load(total), out, at)

    def by_width(self, width, generate):
        """Generate code for panels of 1, 3 and 4 vectors; the width of a panel decides
        which of them runs.
        """
        done = self.builder.append_basic_block()
        switch = self.builder.switch(width, done)
        for count in (1, 3, 4):
            block = self.builder.append_basic_block()
            switch.add_case(_LONG(16 * count), block)
            self.builder.position_at_end(block)
            generate(count)
            self.builder.branch(done)
        self.builder.position_at_end(done)


def _data(context, builder, array_type, array):
    """Where the numbers of an array are."""
    return context.make_array(array_type)(context, builder, array).data


@intrinsic
def sixteen(typingctx, x, at):
    """x[at : at + 16] > 1/2 as the bits of a number."""

    def codegen(context, builder, sig, args):
        x = _data(context, builder, sig.args[0], args[0])
        units = _Vectors(builder).load(x, args[1])
        are_on = builder.fcmp_ordered(">", units, ir.Constant(_FLOATS, [0.5] * 16))
        return builder.bitcast(are_on, ir.IntType(16))

    return types.uint16(x, types.int64), codegen


@intrinsic
def spread_bits(typingctx, word, x, at, count):
    """x[at : at + count] = the first bits of a word; at most 16."""

    def codegen(context, builder, sig, args):
        word, _, at, count = args
        vectors = _Vectors(builder)
        x = _data(context, builder, sig.args[1], args[1])
        bits = builder.bitcast(word, ir.VectorType(ir.IntType(1), 16))
        units = builder.uitofp(bits, _FLOATS)
        vectors.store_lanes(units, x, at, vectors.first_lanes(count))
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
        _, which, first, _, at = args
        lists = _data(context, builder, sig.args[0], args[0])
        on = _data(context, builder, sig.args[3], args[3])
        kind = ir.VectorType(ir.IntType(16), 8)
        row = builder.gep(lists, [builder.shl(which, _LONG(3))])
        units = builder.load(builder.bitcast(row, kind.as_pointer()))
        units.align = 2
        shift = builder.trunc(first, kind.element)
        units = builder.add(units, _Vectors(builder).everywhere(shift, kind))
        place = builder.bitcast(builder.gep(on, [at]), kind.as_pointer())
        builder.store(units, place).align = 2
        return context.get_dummy_value()

    long = types.int64
    return types.void(lists, long, long, on, long), codegen


@intrinsic
def copy_sixteen(typingctx, source, at, target, to):
    """target[to : to + 16] = source[at : at + 16], counted through the rows."""

    def codegen(context, builder, sig, args):
        vectors = _Vectors(builder)
        source = _data(context, builder, sig.args[0], args[0])
        target = _data(context, builder, sig.args[2], args[2])
        vectors.store(vectors.load(source, args[1]), target, args[3])
        return context.get_dummy_value()

    return types.void(source, types.int64, target, types.int64), codegen


@intrinsic
def turn_sixteen(typingctx, W, at, ld, tile, to, width):
    """Transpose 16 by 16 numbers of W, whose rows have ``ld``, to the tile, whose rows
    have ``width``.
    """

    def codegen(context, builder, sig, args):
        _, at, ld, _, to, width = args
        vectors = _Vectors(builder)
        W = _data(context, builder, sig.args[0], args[0])
        tile = _data(context, builder, sig.args[3], args[3])
        starts = [builder.add(at, builder.mul(ld, _LONG(k))) for k in range(16)]
        rows = [vectors.load(W, start) for start in starts]
        # exchange the blocks of d by d numbers on both sides of the diagonal
        for d in (8, 4, 2, 1):
            upper = [lane + 16 - d if lane & d else lane for lane in range(16)]
            lower = [lane + 16 if lane & d else lane + d for lane in range(16)]
            for k in range(16):
                if k & d:
                    continue
                a, b = rows[k], rows[k + d]
                rows[k] = builder.shuffle_vector(a, b, _lanes(upper))
                rows[k + d] = builder.shuffle_vector(a, b, _lanes(lower))
        for k, row in enumerate(rows):
            place = builder.add(to, builder.mul(width, _LONG(k)))
            vectors.store(row, tile, place)
        return context.get_dummy_value()

    long = types.int64
    return types.void(W, long, long, tile, long, long), codegen


def _lanes(numbers):
    """Lanes of two vectors, for a shuffle."""
    return ir.Constant(ir.VectorType(_INT, 16), numbers)


@intrinsic
def multiply_rows(typingctx, x, tile, out):
    """out = x W of up to 16 columns for x (R, K) of zeros and ones; row k of W is
    tile[16 k : 16 k + 16].

    Four rows of x at a time; the last ones are multiplied again if fewer are left.
    """

    def codegen(context, builder, sig, args):
        vectors = _Vectors(builder)
        x = context.make_array(sig.args[0])(context, builder, args[0])
        tile = _data(context, builder, sig.args[1], args[1])
        out = context.make_array(sig.args[2])(context, builder, args[2])
        count, units = cgutils.unpack_tuple(builder, x.shape)
        columns = builder.extract_value(out.shape, 1)
        lanes = vectors.first_lanes(columns)
        last = builder.sub(count, _LONG(1))

        def multiply_four(first):
            rows = []
            for k in range(4):
                row = builder.add(first, _LONG(k))
                is_inside = builder.icmp_signed("<", row, last)
                rows.append(builder.select(is_inside, row, last))
            totals = [cgutils.alloca_once(builder, _FLOATS) for _ in rows]
            for total in totals:
                builder.store(_ZEROS, total)
            with cgutils.for_range(builder, units, intp=_LONG) as loop:
                at = builder.mul(loop.index, _LONG(16))
                weights = vectors.load(tile, at, align=_LINE)
                for row, total in zip(rows, totals, strict=True):
                    place = builder.add(builder.mul(row, units), loop.index)
                    unit = builder.load(builder.gep(x.data, [place]))
                    unit = vectors.everywhere(unit)
                    more = builder.fmul(unit, weights, flags=("contract",))
                    before = builder.load(total)
                    after = builder.fadd(before, more, flags=("contract",))
                    builder.store(after, total)
            for row, total in zip(rows, totals, strict=True):
                place = builder.mul(row, columns)
                vectors.store_lanes(builder.load(total), out.data, place, lanes)

        fours = cgutils.for_range_slice(builder, _LONG(0), count, _LONG(4), intp=_LONG)
        with fours as (first, _):
            multiply_four(first)
        return context.get_dummy_value()

    return types.void(x, tile, out), codegen


@intrinsic
def add_rows(typingctx, width, sums, to, fresh, tile, on, at, fours, out, place, last):
    """out[place:] = sums[to:], or 0 where fresh, + the rows of the tile listed in
    on[at:], in fours.
    """

    def codegen(context, builder, sig, args):
        width, _, to, fresh, _, _, at, fours, _, place, last = args
        vectors = _Vectors(builder)
        sums, tile, on, out = (
            _data(context, builder, sig.args[i], args[i]) for i in (1, 4, 5, 8)
        )

        def add(count):
            totals = vectors.totals(count, sums, to, fresh)
            with cgutils.for_range(builder, fours, intp=_LONG) as loop:
                start = builder.add(at, builder.shl(loop.index, _LONG(2)))
                four = builder.bitcast(builder.gep(on, [start]), _LONG.as_pointer())
                four = builder.load(four)
                four.align = 2
                rows = []
                for k in range(4):
                    unit = builder.lshr(four, _LONG(16 * k))
                    unit = builder.and_(unit, _LONG(65535))
                    rows.append(builder.mul(unit, _LONG(16 * count)))
                for v, total in enumerate(totals):
                    places = [vectors.shifted(row, 16 * v) for row in rows]
                    weights = [vectors.load(tile, row, align=_LINE) for row in places]
                    vectors.add_to(total, vectors.sum_of_four(weights))
            vectors.store_row(totals, out, place, last)

        vectors.by_width(width, add)
        return context.get_dummy_value()

    long = types.int64
    before = long, sums, long, types.boolean
    lists = tile, on, long, long
    return types.void(*before, *lists, out, long, long), codegen


@intrinsic
def add_tile(typingctx, width, sums, fresh, tile, rows):
    """sums = sums, or 0 where fresh, + the first rows of the tile, one after the
    other.
    """

    def codegen(context, builder, sig, args):
        width, _, fresh, _, rows = args
        vectors = _Vectors(builder)
        sums = _data(context, builder, sig.args[1], args[1])
        tile = _data(context, builder, sig.args[3], args[3])

        def add(count):
            totals = vectors.totals(count, sums, _LONG(0), fresh)
            with cgutils.for_range(builder, rows, intp=_LONG) as loop:
                row = builder.mul(loop.index, _LONG(16 * count))
                for v, total in enumerate(totals):
                    at = vectors.shifted(row, 16 * v)
                    vectors.add_to(total, vectors.load(tile, at, align=_LINE))
            for v, total in enumerate(totals):
                vectors.store(builder.load(total), sums, _LONG(16 * v), align=_LINE)

        vectors.by_width(width, add)
        return context.get_dummy_value()

    return types.void(types.int64, sums, types.boolean, tile, types.int64), codegen


@intrinsic
def add_subsets(typingctx, width, tile, at, tables, to):
    """tables[to:] = the sums of the 16 subsets of four rows of the tile."""

    def codegen(context, builder, sig, args):
        width, _, at, _, to = args
        vectors = _Vectors(builder)
        tile = _data(context, builder, sig.args[1], args[1])
        tables = _data(context, builder, sig.args[3], args[3])

        def add(count):
            for v in range(count):
                sums = [_ZEROS]
                for k in range(4):
                    place = vectors.shifted(at, 16 * (count * k + v))
                    row = vectors.load(tile, place, align=_LINE)
                    with_row = [builder.fadd(total, row) for total in sums[1:]]
                    sums += [row, *with_row]
                for k, total in enumerate(sums):
                    place = vectors.shifted(to, 16 * (count * k + v))
                    vectors.store(total, tables, place, align=_LINE)

        vectors.by_width(width, add)
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
        vectors = _Vectors(builder)
        sums, tables, words, out = (
            _data(context, builder, sig.args[i], args[i]) for i in (1, 4, 5, 7)
        )

        def add(count):
            with cgutils.for_range(builder, rows, intp=_LONG) as loop:
                before = builder.mul(loop.index, _LONG(16 * count))
                totals = vectors.totals(count, sums, before, fresh)
                word = builder.gep(words, [builder.add(at, loop.index)])
                word = builder.zext(builder.load(word), _LONG)
                entries = []
                for k in range(4):
                    digit = builder.and_(builder.lshr(word, _LONG(4 * k)), _LONG(15))
                    entry = builder.mul(digit, _LONG(16 * count))
                    entries.append(vectors.shifted(entry, 16 * 16 * count * k))
                for v, total in enumerate(totals):
                    places = [vectors.shifted(entry, 16 * v) for entry in entries]
                    four = [vectors.load(tables, at, align=_LINE) for at in places]
                    vectors.add_to(total, vectors.sum_of_four(four))
                down = builder.mul(loop.index, stride)
                first, end = builder.add(place, down), builder.add(last, down)
                vectors.store_row(totals, out, first, end)

        vectors.by_width(width, add)
        return context.get_dummy_value()

    long = types.int64
    before = long, sums, long, types.boolean
    return types.void(*before, tables, words, long, out, long, long, long), codegen
