"""Time products of binary rows beside sgemm; print a Markdown table of time / time of sgemm.

    python benchmarks/products.py [--rounds 7]

Rows x (R, K) of zeros and ones times W (K, M), packing included, for shares of the units that are on; as
gradients x' h, with x packed by columns; one thread, each pair timed in turn. What can be expected is in
docs/benchmarks.md; speed.py says how to choose another instruction set.
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import numpy as np
from timing import LEFT_TURNED, PLAIN, RIGHT_TURNED, Work, arguments, medians, sgemms, target

from cbm_cli.kernels.compiling import lean
from cbm_cli.kernels.products import binary_product, bits_product, make_bits, pack_columns

SHARES = 0.02, 0.04, 0.13, 0.25, 0.5, 0.75, 0.96
TITLES = {PLAIN: "x W", RIGHT_TURNED: "x W'", LEFT_TURNED: "x' h"}
SHAPES = (  # rows R, units K, columns M
    *((PLAIN, rows, 784, 500) for rows in (10, 20, 100, 224)),
    *((RIGHT_TURNED, rows, 500, 784) for rows in (20, 100)),
    *((PLAIN, 100, 784, 16), (RIGHT_TURNED, 100, 16, 784)),
    *((PLAIN, 100, units, 200) for units in (123, 180, 300)),
    *((LEFT_TURNED, units, 200, 500) for units in (180, 784)),
)


@lean
def _multiply(x, bits, W, turned, out, n):
    for _ in range(n):
        binary_product(x, bits, W, turned, out)


@lean
def _gather(x, bits, h, out, n):
    for _ in range(n):
        pack_columns(x, x.shape[1], bits)
        bits_product(bits, h, False, out)


def works(which: int, rows: int, units: int, columns: int, share: float) -> dict[str, Work]:
    """A product by both ways; x has as many rows as the result, or as many columns where it is turned."""
    rng = np.random.default_rng(0)
    x = (rng.random((units, rows) if which == LEFT_TURNED else (rows, units)) < share).astype(np.float32)
    W = rng.standard_normal((columns, units) if which == RIGHT_TURNED else (units, columns), np.float32)
    out, bits = np.empty((rows, columns), np.float32), make_bits(rows, units)
    if which == LEFT_TURNED:
        ours = lambda n: _gather(x, bits, W, out, n)  # noqa: E731
    else:
        ours = lambda n: _multiply(x, bits, W, which == RIGHT_TURNED, out, n)  # noqa: E731
    return {"cbm": ours, "products": sgemms([(which, x, W, np.empty_like(out))])}


if __name__ == "__main__":
    rounds = arguments(__doc__).parse_args().rounds
    print(f"{target()}; medians of {rounds} rounds\n")
    print(f"| product | shape | {' | '.join(f'{share:.0%} on' for share in SHARES)} |")
    print("|---" * (2 + len(SHARES)) + "|")
    for which, rows, *shape in SHAPES:
        times = [medians(works(which, rows, *shape, share), rounds) for share in SHARES]
        ratios = " | ".join(f"{time['cbm'] / time['products']:.2f}" for time in times)
        print(f"| {TITLES[which]} | {' x '.join(map(str, (rows, *shape)))} | {ratios} |", flush=True)
