"""Packed products: x W where x is binary, so that nothing is multiplied.

A unit is 0 or 1, and x W is a sum of rows of W. `packing` turns rows of x into words of
16 units and lists of the units that are on; `products` adds up rows of W in one of
three ways; `intrinsics` has the vectors that Numba cannot write. The page
docs/decisions/0023-products-of-binary-rows.md has a picture.

Five functions are used from outside:

- `bits_for` allocates the packed matrix and its work arrays;
- `binary_product` packs rows and multiplies them, or calls BLAS where that is faster;
- `product_of_rows` is the same for rows that may be grey;
- `pack_columns` and `bits_product` multiply x' by something, as gradients do;
- `hold` copies a W once, for many products.
"""

from cbm_cli.kernels.bits.packing import Bits, bits_for, pack_columns, worth_packing
from cbm_cli.kernels.bits.products import (
    binary_product,
    bits_product,
    hold,
    product_of_rows,
)

__all__ = [
    "Bits",
    "binary_product",
    "bits_for",
    "bits_product",
    "hold",
    "pack_columns",
    "product_of_rows",
    "worth_packing",
]
