"""How kernels are compiled, and where the machine code is cached."""

import atexit
import contextlib
import hashlib
import os
import pickle
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import llvmlite.binding
import numba
import numpy as np
from numba.core.caching import FunctionCache
from numba.core.registry import cpu_target
from numba.core.serialize import dumps
from platformdirs import user_cache_path

from cbm_cli.kernels import source_hash


@contextlib.contextmanager
def _configured(**values: str) -> Iterator[None]:
    """Change Numba's configuration for a while: it belongs to the functions of users, too."""
    before = {name: getattr(numba.config, name) for name in values}
    for name, value in values.items():
        setattr(numba.config, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(numba.config, name, value)


# LLVM keeps to half of the widest registers of some processors; with all of them sigmoids take a quarter less
# time. Numba has one target in a process, which it makes when it is first asked for: here, if not before.
if numba.config.CPU_NAME is None and numba.config.CPU_FEATURES is None:
    with contextlib.suppress(RuntimeError):  # the processor is not known
        features = llvmlite.binding.get_host_cpu_features()
        if features.get("avx512f"):
            wide = {"CPU_NAME": llvmlite.binding.get_host_cpu_name()}
            with _configured(**wide, CPU_FEATURES=f"{features.flatten()},-prefer-256-bit"):
                cpu_target.target_context.codegen()


def _is_used(folder: Path) -> bool:
    """Whether Numba keeps machine code in ``folder`` when told to: it must be able to write there."""
    try:
        with _configured(CACHE_DIR=str(folder)):
            return Path(numba.njit(cache=True)(_is_used).stats.cache_path).is_relative_to(folder)
    except (OSError, RuntimeError):  # Numba can write neither there nor in its own folders
        return False


def _private_folder() -> Path | None:
    """A folder that lasts as long as this process, and that its worker processes share; None without one."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="cbm-kernels-"))
    except OSError:
        return None
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ[_PLACE] = str(folder)
    return folder if _is_used(folder) else None


# Numba does not notice that a callee in another file has changed: every version of the sources gets a
# folder of its own. Where that cannot be written, Numba would use __pycache__, which may hold machine code
# of other sources.
_PLACE = "CBM_KERNEL_CACHE"  # environment variable: where the folders of machine code are
CACHE = Path(os.environ.get(_PLACE) or user_cache_path("cbm")) / f"kernels-{source_hash()}"
if not _is_used(CACHE):
    CACHE = _private_folder()

_HERE = Path(__file__).parent
_TARGET = numba.__version__, sys.implementation.cache_tag, cpu_target.target_context.codegen().magic_tuple()
_COMPUTER = f"kernels-{hashlib.sha256(repr(_TARGET).encode()).hexdigest()[:12]}"

unsaved: list[str] = []  # why machine code could not be kept


class _CheckedFiles:
    """Machine code of one function: a file per signature, processor and version, behind its SHA-256.

    Numba's own files are not checked, and an index leads to them that two processes may write at once.
    """

    def __init__(self, folder: str, function: str, stamp: tuple) -> None:
        self.folder, self.function, self.stamp = Path(folder), function, stamp

    def _path(self, key: tuple) -> Path:
        name = hashlib.sha256(repr((numba.__version__, self.stamp, key)).encode()).hexdigest()
        return self.folder / f"{self.function}.{name[:16]}.nbc"

    def load(self, key: tuple) -> object:
        """Return the machine code of a key, or None if it must be compiled."""
        content = _sound(self._path(key))
        known, code = pickle.loads(content) if content else (None, None)
        return code if known == key else None

    def save(self, key: tuple, code: object) -> None:
        """Write the machine code of a key, in one step."""
        content, path = dumps((key, code)), self._path(key)
        handle, temporary = tempfile.mkstemp(dir=self.folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(content).digest() + content)
            os.replace(temporary, path)
        except OSError:
            os.unlink(temporary)
            raise


def _sound(path: Path) -> bytes | None:
    """The content behind the checksum of a file; None without the file, or if it is damaged."""
    try:
        whole = path.read_bytes()
    except OSError:
        return None
    return whole[32:] if hashlib.sha256(whole[32:]).digest() == whole[:32] else None


def damaged_files(folder: Path) -> list[Path]:
    """Return the damaged files of machine code below a folder."""
    return [path for path in folder.glob("*/*.nbc") if _sound(path) is None]


class _CheckedCache(FunctionCache):
    """Numba's cache of a function, in checked files; code that cannot be kept is compiled again."""

    def __init__(self, function: Callable) -> None:
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp()
        if CACHE and Path(function.__code__.co_filename).parent == _HERE:  # CACHE is of these very sources:
            stamp, self._cache_path = (), str(CACHE / _COMPUTER)  # copies of them elsewhere need not compile
            os.makedirs(self._cache_path, exist_ok=True)
        self._cache_file = _CheckedFiles(self.cache_path, self._impl.filename_base, stamp)

    @contextlib.contextmanager
    def _guard_against_spurious_io_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:  # the disk is full
            unsaved.append(str(error.strerror))


def _cached(**options: object) -> Callable[[Callable], Callable]:
    """Return Numba's decorator with these options, and with checked files.

    What is not given a function would take from the caller that is compiled first, and its results with it.
    """
    options = {"fastmath": False, "forceinline": False} | options

    def decorate(function: Callable) -> Callable:
        dispatcher = numba.njit(nogil=True, error_model="numpy", **options)(function)
        if CACHE:
            with _configured(CACHE_DIR=str(CACHE)):
                dispatcher._cache = _CheckedCache(function)
        return dispatcher

    return decorate


# Without the runtime Numba cannot allocate, which is the rule in kernels, and does not count references,
# which cost more than the arithmetic of a small machine.
lean = _cached(_nrt=False)
# The same, merged into its caller: to hand over dozens of arrays costs more than a small machine's work.
merged = _cached(_nrt=False, forceinline=True)
# The same, a product and a sum in one rounding where the processor can.
lean_fused = _cached(_nrt=False, fastmath={"contract"})
# The same for sums and products whose order is free to change, so that they vectorise.
lean_sum = _cached(_nrt=False, fastmath={"reassoc", "contract"})
# With the runtime: for what is called by itself and allocates its work arrays.
allocating = _cached()
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
