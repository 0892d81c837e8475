"""How kernels are compiled, and where the machine code is cached."""

import atexit
import shutil
import tempfile
from pathlib import Path

import numba
from platformdirs import user_cache_path

from cbm_cli.kernels import source_hash


def _is_used(folder: Path) -> bool:
    """Whether Numba keeps machine code in ``folder`` when told to: it must be able to write there."""
    numba.config.CACHE_DIR = str(folder)
    try:
        return Path(numba.njit(cache=True)(_is_used).stats.cache_path).is_relative_to(folder)
    except RuntimeError:  # Numba can write neither there nor in its own folders
        return False


def _private_folder() -> Path:
    """A folder that lasts as long as this process."""
    folder = Path(tempfile.mkdtemp(prefix="cbm-kernels-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    numba.config.CACHE_DIR = str(folder)
    return folder


# Numba does not notice that a callee in another file has changed: every version of the sources gets a
# folder of its own. Where that cannot be written, Numba would use __pycache__, which may hold machine code
# of other sources.
CACHE = user_cache_path("cbm") / f"kernels-{source_hash()}"
if not _is_used(CACHE):
    CACHE = _private_folder()

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
