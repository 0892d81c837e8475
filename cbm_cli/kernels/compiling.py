"""How kernels are compiled, and where the machine code is cached."""

import atexit
import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core.caching import FunctionCache, IndexDataCacheFile
from platformdirs import user_cache_path

from cbm_cli.kernels import source_hash, target


@contextlib.contextmanager
def _configured(**values: object) -> Iterator[None]:
    """Change Numba's configuration for a while: it belongs to the functions of users,
    too.
    """
    before = {name: getattr(numba.config, name) for name in values}
    for name, value in values.items():
        setattr(numba.config, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(numba.config, name, value)


# environment variable: where the folders of machine code are
_PLACE = "CBM_KERNEL_CACHE"


def _folder() -> Path:
    """The folder of machine code: in the user's cache, or else as long as this process
    and its workers.

    Numba does not notice that a callee in another file has changed: every version of
    the sources has a folder of its own.
    """
    place, name = USUAL_PLACE, f"kernels-{source_hash()}"
    try:
        (place / name).mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=place / name).close()
    except OSError:
        place = Path(tempfile.mkdtemp(prefix=_PRIVATE))
        atexit.register(shutil.rmtree, place, ignore_errors=True)
        os.environ[_PLACE] = str(place)
    return place / name


_PRIVATE = "cbm-kernels-"  # how folders begin that end with their process
USUAL_PLACE = Path(os.environ.get(_PLACE) or user_cache_path("cbm"))
CACHE = _folder()


def is_private() -> bool:
    """Whether machine code ends with this process, as its usual place cannot be
    written.
    """
    return CACHE.parent.name.startswith(_PRIVATE)


def _cached(**options: object) -> Callable[[Callable], Callable]:
    """Return Numba's decorator with these options, and with its cache in our folder.

    A function would take a missing option from the caller that is compiled first, and
    give other results.
    """
    options = {"fastmath": False, "forceinline": False} | options
    options |= {"nogil": True, "error_model": "numpy", "_target": target.NAME}

    def decorate(function: Callable) -> Callable:
        with _configured(CACHE_DIR=str(CACHE), DISABLE_JIT=False):
            dispatcher = numba.njit(**options)(function)
            dispatcher._cache = _Cache(function)
        return dispatcher

    return decorate


class _Cache(FunctionCache):
    """Numba's cache; the folder knows the kernels' sources, so that their place and
    time do not matter.
    """

    def __init__(self, function: Callable) -> None:
        super().__init__(function)
        if Path(function.__code__.co_filename).is_relative_to(Path(__file__).parent):
            self._cache_path = str(CACHE)
            self._cache_file = IndexDataCacheFile(
                self._cache_path, self._impl.filename_base, ()
            )

    def load_overload(self, sig: object, target_context: object) -> Any:
        """Load machine code; None for that of another signature.

        Processes that compile at the same time may give two signatures one file.
        """
        code = super().load_overload(sig, target_context)
        if code is None or code.signature.args != sig:
            return None
        return code


# Without the runtime Numba cannot allocate, which is the rule in kernels, and does not
# count references, which cost more than the arithmetic of a small machine.
lean = _cached(_nrt=False)
# The same, merged into its caller: to hand over dozens of arrays costs more than a
# small machine's work.
merged = _cached(_nrt=False, forceinline=True)
# The same, a product and a sum in one rounding where the processor can.
lean_fused = _cached(_nrt=False, fastmath={"contract"})
# The same for sums and products whose order is free to change, so that they vectorise.
lean_sum = _cached(_nrt=False, fastmath={"reassoc", "contract"})
# With the runtime: for what is called by itself and allocates its work arrays.
allocating = _cached()
# For steps of a loop that must vectorise: LLVM sees one loop body, not a call.
inlined = _cached(inline="always")


_entries: dict[tuple, Callable] = {}


def specialised(kernel: Callable, *args: object) -> Callable:
    """The kernel compiled for arguments of these types, without the 20 us that looking
    at them takes.
    """
    key = kernel, _form(args)
    if key not in _entries:  # Numba takes milliseconds to find what is compiled already
        _entries[key] = kernel.compile(tuple(map(numba.typeof, args)))
    return _entries[key]


def _form(argument: object) -> object:
    """What Numba's type of an argument depends on."""
    if isinstance(argument, np.ndarray):
        return argument.dtype.num, argument.ndim, argument.flags.num
    if isinstance(argument, tuple):
        return type(argument), *map(_form, argument)
    return type(argument)
