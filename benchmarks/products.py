"""Time products of binary rows beside sgemm; print a Markdown table of time / time of
sgemm.

    python benchmarks/products.py [--rounds 7]

Rows x (R, K) of zeros and ones times W (K, M), packing included, for shares of the
units that are on; x' W, as in a gradient, has x (K, R), packed by columns. "Held" are
products that share one W, which was copied before. One thread; each pair is timed in
turn. speed.py says how to choose another instruction set.
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import numpy as np
from timing import Work, arguments, medians, sgemms, target

from cbm_cli.kernels.bits import binary_product, bits_product, hold, pack_columns
from cbm_cli.kernels.bits.packing import make_bits
from cbm_cli.kernels.compiling import lean

SHARES = 0.02, 0.04, 0.13, 0.25, 0.5, 0.75, 0.96
SHAPES = (  # rows R, units K, columns M
    *(("x W", rows, 784, 500) for rows in (10, 20, 100, 224)),
    *(("x W'", rows, 500, 784) for rows in (20, 100)),
    *(("x W, held", rows, 784, 500) for rows in (20, 100)),
    *(("x W', held", rows, 500, 784) for rows in (20, 100)),
    *(("x W", 100, 784, 16), ("x W'", 100, 16, 784)),
    *(("x W", 100, units, 200) for units in (123, 180, 300)),
    *(("x' W", units, 200, 500) for units in (180, 784)),
)


@lean
def _multiply_rows(x, bits, W, turned, out, n):
    for _ in range(n):
        binary_product(x, bits, W, turned, out)


@lean
def _multiply_columns(x, bits, W, out, n):
    for _ in range(n):
        pack_columns(x, x.shape[1], bits)
        bits_product(bits, W, False, out)


def works(
    product: str, rows: int, units: int, columns: int, share: float
) -> dict[str, Work]:
    """A product by both ways; x has as many rows as the result, or as many columns
    where it is turned.
    """
    product, _, held = product.partition(", ")
    rng, by_columns, turned = (
        np.random.default_rng(0),
        product == "x' W",
        product == "x W'",
    )
    x = (rng.random((units, rows) if by_columns else (rows, units)) < share).astype(
        np.float32
    )
    W = rng.standard_normal(
        (columns, units) if turned else (units, columns), np.float32
    )
    out, bits = (
        np.empty((rows, columns), np.float32),
        make_bits(rows, units, columns if held else 0),
    )
    hold(W, turned, bits)

    def ours(n: int) -> None:
        if by_columns:
            _multiply_columns(x, bits, W, out, n)
        else:
            _multiply_rows(x, bits, W, turned, out, n)

    return {"cbm": ours, "products": sgemms({"x": x, "W": W}, product)}


if __name__ == "__main__":
    rounds = arguments(__doc__).parse_args().rounds
    print(f"{target()}; medians of {rounds} rounds\n")
    print(f"| product | shape | {' | '.join(f'{share:.0%} on' for share in SHARES)} |")
    print("|---" * (2 + len(SHARES)) + "|")
    for product, *shape in SHAPES:
        times = [medians(works(product, *shape, share), rounds) for share in SHARES]
        ratios = " | ".join(f"{time['cbm'] / time['products']:.2f}" for time in times)
        print(f"| {product} | {' x '.join(map(str, shape))} | {ratios} |", flush=True)
