"""The processor that kernels are compiled for: a target of Numba of cbm's own.

Numba makes one target in a process, for the first function that is compiled. If cbm
used that one, the last digits of its results would depend on who compiled first, and
functions of users would be compiled for a processor that cbm has chosen.
"""

from contextlib import suppress
from functools import cached_property
from typing import NamedTuple

import llvmlite.binding
import numba
from numba.core import codegen, cpu, registry, target_extension
from numba.core.compiler_lock import global_compiler_lock

NAME = "cbm"  # of the target among those of Numba


class Processor(NamedTuple):
    """A processor as LLVM knows it."""

    name: str
    features: str  # instruction sets, as in "+avx,-avx512f"


def chosen_processor() -> Processor:
    """Return the processor to compile for: what the environment asks for, or this one.

    LLVM keeps to half of the widest registers of some processors; with all of them
    sigmoids take a quarter less time.
    """
    name, features = numba.config.CPU_NAME, numba.config.CPU_FEATURES
    is_free = name is None and features is None
    if name is None:
        name = llvmlite.binding.get_host_cpu_name()
    if features is None:
        features = codegen.get_host_cpu_features()
    if is_free and _has_widest_registers():
        features += ",-prefer-256-bit"
    return Processor(name, features)


def _has_widest_registers() -> bool:
    """Whether this processor is known, and has registers of 512 bits."""
    with suppress(RuntimeError):
        return bool(llvmlite.binding.get_host_cpu_features().get("avx512f"))
    return False


class _Codegen(codegen.JITCPUCodegen):
    """Numba's generator of machine code, for the chosen processor."""

    def __init__(self, module_name: str) -> None:
        self._processor = chosen_processor()
        super().__init__(module_name)

    def _get_host_cpu_name(self) -> str:
        return self._processor.name

    def _get_host_cpu_features(self) -> str:
        return self._processor.features


class _Context(cpu.CPUContext):
    """Numba's context of lowering, with cbm's generator."""

    @global_compiler_lock
    def init(self) -> None:
        super().init()
        self._internal_codegen = _Codegen("cbm.exec")


class _Descriptor(registry.CPUTarget):
    """Numba's descriptor of a target, with cbm's context."""

    @cached_property
    def _toplevel_target_context(self) -> _Context:
        return _Context(self.typing_context, self._target_name)


class _Target(target_extension.CPU):
    """A kind of CPU, so that all that Numba knows of CPUs applies."""


class Dispatcher(registry.CPUDispatcher):
    """A function that is compiled for cbm's target."""

    targetdescr = _Descriptor(NAME)


def _jit(*arguments: object, **options: object) -> object:
    """Compile what Numba brings itself, as `np.searchsorted`, for the same target."""
    return numba.jit(*arguments, **(options | {"_target": NAME}))


target_extension.target_registry[NAME] = _Target
target_extension.dispatcher_registry[_Target] = Dispatcher
target_extension.jit_registry[_Target] = _jit


def processor() -> Processor:
    """Return the processor that kernels are compiled for, as the compiler has it."""
    generator = Dispatcher.targetdescr.target_context.codegen()
    _, name, features = generator.magic_tuple()
    return Processor(name, features)
