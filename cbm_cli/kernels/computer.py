"""What the last bits of results depend on, besides versions: processor, instructions,
BLAS.
"""

import contextlib
import platform
from functools import cache
from pathlib import Path

import llvmlite.binding
import numba
from threadpoolctl import ThreadpoolController

from cbm_cli.kernels import (
    compiling,  # noqa: F401  decides for which processor kernels are compiled
    intrinsics,  # noqa: F401  loads the BLAS of the kernels, so that it is found
)

_VECTORS = (
    "avx512f",
    "avx2",
    "avx",
    "sve",
    "neon",
)  # instruction sets, the widest first


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
    facts = {
        "blas": [
            f"{one['internal_api']} {one['version']} for {one.get('architecture')}"
            for one in blas
        ],
        "threads": [str(one["num_threads"]) for one in blas],
    }
    processor = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
        processor = (
            next(line for line in lines if line.startswith("model name"))
            .partition(":")[2]
            .strip()
        )
    target, features = numba.config.CPU_NAME, numba.config.CPU_FEATURES
    with contextlib.suppress(RuntimeError):  # the processor is not known
        target = target or llvmlite.binding.get_host_cpu_name()
        features = (
            llvmlite.binding.get_host_cpu_features().flatten()
            if features is None
            else features
        )
    found = (features or "").split(",")
    widest = next(
        (vectors for vectors in _VECTORS if f"+{vectors}" in found), "no wide vectors"
    )
    return {
        "cpu": processor,
        "kernels": f"{target or platform.machine()} with {widest}",
        **{name: ", ".join(sorted({*texts})) for name, texts in facts.items()},
        "libc": " ".join(platform.libc_ver()).strip() or platform.system(),
        "llvm": ".".join(map(str, llvmlite.binding.llvm_version_info)),
    }


def combined(one: dict[str, str], other: dict[str, str]) -> dict[str, str]:
    """Return the facts of computers that worked on one trial, one after the other."""
    both = {
        name: dict.fromkeys((*one.get(name, text).split(" + "), text))
        for name, text in other.items()
    }
    return {name: " + ".join(texts) for name, texts in both.items()}
