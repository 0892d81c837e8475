"""What the last bits of results depend on, besides versions: processor, instructions,
BLAS.
"""

import contextlib
import platform
from functools import cache
from pathlib import Path

import llvmlite.binding
from threadpoolctl import ThreadpoolController

from cbm_cli.kernels import (
    dense,  # noqa: F401  loads the BLAS of the kernels, so that it is found
    target,
)

# instruction sets, the widest first
_VECTORS = ("avx512f", "avx2", "avx", "sve", "neon")


@cache
def libraries() -> ThreadpoolController:
    """Look for the libraries with threads once per process."""
    return ThreadpoolController()


@cache
def computer() -> dict[str, str]:
    """Return the processor, the target of the kernels, BLAS with target and threads,
    and the C library.
    """
    with libraries().limit(limits=1):  # as in a trial
        blas = [
            library for library in libraries().info() if library["user_api"] == "blas"
        ]
    names = {_name_of_blas(library) for library in blas}
    threads = {str(library["num_threads"]) for library in blas}
    return {
        "cpu": _name_of_processor(),
        "kernels": _name_of_target(),
        "blas": ", ".join(sorted(names)),
        "threads": ", ".join(sorted(threads)),
        "libc": " ".join(platform.libc_ver()).strip() or platform.system(),
        "llvm": ".".join(map(str, llvmlite.binding.llvm_version_info)),
    }


def _name_of_blas(library: dict[str, str]) -> str:
    """Name a BLAS with its version, and the processor that it has code for."""
    processor = library.get("architecture")
    return f"{library['internal_api']} {library['version']} for {processor}"


def _name_of_processor() -> str:
    """Name the processor of this computer, as Linux does if it can."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _name_of_target() -> str:
    """Name what kernels are compiled for: as the compiler has it, whatever was asked
    for since.
    """
    processor = target.processor()
    features = processor.features.split(",")
    for vectors in _VECTORS:
        if f"+{vectors}" in features:
            return f"{processor.name} with {vectors}"
    return f"{processor.name} with no wide vectors"


def combined(before: dict[str, str], now: dict[str, str]) -> dict[str, str]:
    """Return the facts of computers that worked on one trial, one after the other."""
    facts = {}
    for name, text in now.items():
        texts = before.get(name, text).split(" + ")
        facts[name] = " + ".join(dict.fromkeys([*texts, text]))
    return facts
