"""Matrix products by BLAS: sgemm of float32, called without Numba's runtime."""

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401  the BLAS that `gemm` calls
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cbm_cli.kernels.compiling import merged
from cbm_cli.kernels.memory import Array

_INT = ir.IntType(32)
_LONG = ir.IntType(64)
_BYTE = ir.IntType(8)
_POINTER = _BYTE.as_pointer()

_AS_IS, _TURNED = ord("n"), ord("t")
_ZERO = np.float32(0)


@merged
def product(a: Array, b: Array, out: Array) -> None:
    """out = a b: (R, K) @ (K, M)."""
    rows, columns = len(a), b.shape[1]
    _sgemm(_AS_IS, _AS_IS, m=columns, n=rows, k=len(b), a=b, b=a, beta=_ZERO, c=out)


@merged
def product_nt(a: Array, b: Array, out: Array) -> None:
    """out = a b': (R, K) @ (M, K)'."""
    rows, columns = len(a), len(b)
    k = b.shape[1]
    _sgemm(_TURNED, _AS_IS, m=columns, n=rows, k=k, a=b, b=a, beta=_ZERO, c=out)


@merged
def product_tn(a: Array, b: Array, out: Array, beta: np.float32 = _ZERO) -> None:
    """out = a' b + beta out: (K, R)' @ (K, M)."""
    rows, columns = a.shape[1], b.shape[1]
    _sgemm(_AS_IS, _TURNED, m=columns, n=rows, k=len(b), a=b, b=a, beta=beta, c=out)


@merged
def _sgemm(
    ta: int,
    tb: int,
    m: int,
    n: int,
    k: int,
    a: Array,
    b: Array,
    beta: np.float32,
    c: Array,
) -> None:
    """c = a b + beta c in Fortran's order: columns lie one after the other, so that a
    and b change places.
    """
    gemm(
        ta,
        tb,
        m,
        n,
        k=k,
        a=a,
        lda=_stride(a),
        b=b,
        ldb=_stride(b),
        beta=beta,
        c=c,
        ldc=_stride(c),
    )


@merged
def _stride(a: Array) -> int:
    """Numbers from a row to the next one; rows of a view may be longer than it is
    wide.
    """
    return max(a.strides[0] // 4, a.shape[1], 1)


@intrinsic
def gemm(typingctx, ta, tb, m, n, k, a, lda, b, ldb, beta, c, ldc):
    """c = a b + beta c: Fortran's sgemm, by the function behind np.dot.

    Fortran counts through columns, so that a and b are exchanged and turned.
    """
    long = types.int64
    sizes = long, long, long, long, long
    signature = types.void(*sizes, a, long, b, long, types.float32, c, long)

    def codegen(context, builder, sig, args):
        flags = [builder.trunc(flag, _BYTE) for flag in args[:2]]
        shape = list(args[2:5])
        one = _address(builder, ir.Constant(ir.FloatType(), 1.0))
        beta = _address(builder, args[9])
        first, second, out = (
            _data(context, builder, sig=sig, args=args, position=position)
            for position in (5, 7, 10)
        )
        matrices = [one, first, args[6], second, args[8], beta, out, args[11]]
        kinds = [_BYTE, _BYTE, _BYTE, _LONG, _LONG, _LONG]
        kinds += [_POINTER, _POINTER, _LONG, _POINTER, _LONG]
        kinds += [_POINTER, _POINTER, _LONG]
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_INT, kinds), "numba_xxgemm"
        )
        builder.call(function, [_BYTE(ord("s")), *flags, *shape, *matrices])
        return context.get_dummy_value()

    return signature, codegen


def _address(builder, value):
    """Where a number is, for Fortran takes no numbers."""
    return builder.bitcast(cgutils.alloca_once_value(builder, value), _POINTER)


def _data(context, builder, *, sig, args, position):
    """Where the numbers of an array are."""
    array = context.make_array(sig.args[position])(context, builder, args[position])
    return builder.bitcast(array.data, _POINTER)
