"""Names of Numba that it does not promise to keep: which one is gone, where a newer Numba lacks one.

Nothing of cbm is imported, because without such a name the kernels may not even load.
"""

import importlib
import inspect
import re
from pathlib import Path

import numba
import pytest

KERNELS = Path(__file__).parents[1] / "cbm_cli" / "kernels"
CODE = "the checked files of machine code"

# file of kernels, name as it is written there, what for, and how to find it in Numba
NAMES = [
    ("compiling.py", "numba.core.caching", CODE, "numba.core.caching"),
    ("compiling.py", "FunctionCache", CODE, "numba.core.caching:FunctionCache"),
    ("compiling.py", "_impl", CODE, "cache:_impl"),
    ("compiling.py", "locator.get_source_stamp", CODE, "cache:_impl.locator.get_source_stamp"),
    ("compiling.py", "_impl.filename_base", CODE, "cache:_impl.filename_base"),
    ("compiling.py", "cache_path", CODE, "cache:cache_path"),
    ("compiling.py", "_cache_file", CODE, "cache:_cache_file"),
    ("compiling.py", "_guard_against_spurious_io_errors", CODE, "cache:_guard_against_spurious_io_errors"),
    ("compiling.py", "dispatcher._cache", CODE, "dispatcher:_cache"),
    ("compiling.py", "stats.cache_path", "finding the folder of machine code", "dispatcher:stats.cache_path"),
    ("compiling.py", "numba.core.serialize", CODE, "numba.core.serialize:dumps"),
    ("compiling.py", "numba.core.registry", "full registers", "numba.core.registry"),
    ("compiling.py", "cpu_target", "full registers", "numba.core.registry:cpu_target.target_context.codegen"),
    ("compiling.py", "_nrt", "kernels without a runtime", "numba.core.cpu:CPUTargetOptions._nrt"),
    ("compiling.py", "CPU_NAME", "full registers", "numba:config.CPU_NAME"),
    ("compiling.py", "CPU_FEATURES", "full registers", "numba:config.CPU_FEATURES"),
    ("compiling.py", "CACHE_DIR", "the folder of machine code", "numba:config.CACHE_DIR"),
    ("intrinsics.py", "numba.core", "explicit vectors", "numba.core:cgutils"),
    ("intrinsics.py", "numba_xxgemm", "matrix products", "helpers:xxgemm"),
    *(
        ("intrinsics.py", f"cgutils.{name}", "explicit vectors", f"numba.core.cgutils:{name}")
        for name in ("alloca_once", "alloca_once_value", "for_range", "for_range_slice")
    ),
    (
        "intrinsics.py",
        "cgutils.get_or_insert_function",
        "calls of BLAS and of LLVM",
        "numba.core.cgutils:get_or_insert_function",
    ),
    ("intrinsics.py", "cgutils.unpack_tuple", "shapes of arrays", "numba.core.cgutils:unpack_tuple"),
]


def empty():
    """A function to compile."""


def root(place):
    """The module of a place in Numba, or an object that is made for the test."""
    if place == "dispatcher":
        return numba.njit(empty)
    if place == "cache":
        return importlib.import_module("numba.core.caching").FunctionCache(empty)
    if place == "helpers":
        return type("Helpers", (), importlib.import_module("numba._helperlib").c_helpers)
    return importlib.import_module(place)


def lacking(name, file, purpose, place):
    """What to say where Numba lacks a name; nothing where it has it."""
    where, _, path = place.partition(":")
    try:
        found = root(where)
        for part in path.split(".") if path else ():
            found = getattr(found, part)
    except (AttributeError, ImportError):
        return f"Numba {numba.__version__} lacks {name}, used in cbm_cli/kernels/{file} for {purpose}"
    return ""


@pytest.mark.parametrize(("file", "name", "purpose", "place"), NAMES, ids=[place for *_, place in NAMES])
def test_numba_has_the_private_names_that_kernels_use(file, name, purpose, place):
    said = lacking(name, file, purpose, place)
    assert not said, said
    assert name in (KERNELS / file).read_text("utf-8"), f"{file} no longer uses {name}: drop its line here"


def test_numba_s_cache_reads_and_writes_through_what_kernels_replace():
    """`_cache_file` and the guard are replaced: it is of no use that they exist if nothing asks them."""
    cache = importlib.import_module("numba.core.caching").FunctionCache
    text = "".join(inspect.getsource(one) for one in cache.__mro__ if one.__module__.startswith("numba"))
    for used in (
        "self._cache_file.load(",
        "self._cache_file.save(",
        "self._guard_against_spurious_io_errors()",
    ):
        assert used in text, (
            f"Numba {numba.__version__} lacks {used}, which cbm_cli/kernels/compiling.py replaces"
        )


def test_the_list_is_whole():
    """Modules below numba.core, functions of cgutils, and attributes that begin with _."""
    listed = "\n".join(name for _, name, *_ in NAMES)
    for file in KERNELS.glob("*.py"):
        text = file.read_text("utf-8")
        used = re.findall(r"numba\.core[.\w]*|cgutils\.\w+", text)
        if used:
            used += [name for name in re.findall(r"\._[a-z]\w+", text) if f"def {name[1:]}(" not in text]
        for name in used:
            assert name.removeprefix(".") in listed, f"{file.name} uses {name}: add a line here"


@pytest.mark.parametrize(
    ("place", "name"),
    [("cache:_impl.gone", "_impl.gone"), ("numba.gone", "numba.gone"), ("helpers:gone", "gone")],
)
def test_a_missing_name_is_named_with_its_file_and_purpose(place, name):
    assert lacking(name, "compiling.py", CODE, place) == (
        f"Numba {numba.__version__} lacks {name}, used in cbm_cli/kernels/compiling.py for {CODE}"
    )
