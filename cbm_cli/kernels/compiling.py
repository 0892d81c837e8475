"""How kernels are compiled, and where the machine code is cached."""

import atexit
import contextlib
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import llvmlite.binding
import numba
import numpy as np
from platformdirs import user_cache_path

from cbm_cli.kernels import source_hash

# LLVM keeps to half of the widest registers of some processors; with all of them sigmoids take a quarter less
# time. This is set before anything is compiled.
if numba.config.CPU_NAME is None and numba.config.CPU_FEATURES is None:
    with contextlib.suppress(RuntimeError):  # the processor is not known
        features = llvmlite.binding.get_host_cpu_features()
        if features.get("avx512f"):
            numba.config.CPU_NAME = llvmlite.binding.get_host_cpu_name()
            numba.config.CPU_FEATURES = f"{features.flatten()},-prefer-256-bit"


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

# Without the runtime Numba cannot allocate, which is the rule in kernels, and does not count references,
# which cost more than the arithmetic of a small machine.
lean = numba.njit(cache=True, nogil=True, error_model="numpy", _nrt=False)
# The same for sums and products whose order is free to change, so that they vectorise.
lean_sum = numba.njit(
    cache=True, nogil=True, error_model="numpy", _nrt=False, fastmath={"reassoc", "contract"}
)
# With the runtime: for what is called by itself and allocates its work arrays.
allocating = numba.njit(cache=True, nogil=True, error_model="numpy")
# For steps of a loop that must vectorise: LLVM sees one loop body, not a call.
inlined = numba.njit(inline="always")


_entries: dict[tuple, Callable] = {}


def specialised(kernel: Callable, *args: object) -> Callable:
    """The kernel compiled for arguments of these types, without the 20 us that looking at them takes."""
    key = kernel, _form(args)
    if key not in _entries:  # Numba takes milliseconds to find what is compiled already
        _entries[key] = kernel.compile(tuple(map(numba.typeof, args)))
    return _entries[key]


def _form(value: object) -> object:
    """What Numba's type of an argument depends on."""
    if isinstance(value, tuple):
        return type(value), tuple(map(_form, value))
    if isinstance(value, np.ndarray):
        flags = value.flags
        return (
            value.dtype.str,
            value.ndim,
            flags.c_contiguous,
            flags.f_contiguous,
            flags.writeable,
            flags.aligned,
        )
    return type(value)
