"""How kernels are compiled, and where the machine code is cached."""

import numba
from platformdirs import user_cache_path

from cbm_cli.kernels import kernel_hash

# Numba does not notice that a callee in another file has changed: every version of the sources
# gets a folder of its own.
CACHE = user_cache_path("cbm") / f"kernels-{kernel_hash()}"
numba.config.CACHE_DIR = str(CACHE)

compiled = numba.njit(cache=True, nogil=True, error_model="numpy")
# For everything inside an update. Without the runtime Numba cannot allocate, which is the rule there,
# and does not count references, which cost more than the arithmetic of a small machine.
lean = numba.njit(cache=True, nogil=True, error_model="numpy", _nrt=False)
# The same for sums and products whose order is free to change, so that they vectorise.
lean_sum = numba.njit(
    cache=True, nogil=True, error_model="numpy", _nrt=False, fastmath={"reassoc", "contract"}
)
# For steps of a loop that must vectorise: LLVM sees one loop body, not a call.
inlined = numba.njit(inline="always")
