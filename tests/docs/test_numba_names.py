"""Names of Numba that it does not promise to keep: which one is gone, where a newer Numba lacks one.

Nothing of cbm is imported, because without such a name the kernels may not even load.
"""

import importlib
import re
from functools import reduce
from pathlib import Path

import pytest

KERNELS = Path(__file__).parents[2] / "cbm_cli" / "kernels"
# By file of kernels: where Numba has each name. Objects that the test makes stand before some, see MADE.
NAMES = {
    "compiling.py": """
        numba.core.caching numba.core.caching:FunctionCache numba.core.caching:IndexDataCacheFile
        cache:_impl.filename_base cache:_cache_path cache:_cache_file dispatcher:_cache
        numba.core.registry numba.core.registry:cpu_target.target_context.codegen
        numba.core.cpu:CPUTargetOptions._nrt numba:config.CPU_NAME numba:config.CPU_FEATURES
        numba:config.CACHE_DIR numba:config.DISABLE_JIT""",
    "intrinsics.py": """
        numba.core numba.core:cgutils helpers:xxgemm
        numba.core.cgutils:alloca_once numba.core.cgutils:alloca_once_value numba.core.cgutils:for_range
        numba.core.cgutils:for_range_slice numba.core.cgutils:get_or_insert_function
        numba.core.cgutils:unpack_tuple""",
}
OF_TUPLES = ("._asdict", "._fields", "._replace")  # of every NamedTuple


MADE = {
    "dispatcher": lambda: importlib.import_module("numba").njit(lambda: None),
    "cache": lambda: importlib.import_module("numba.core.caching").FunctionCache(lambda: None),
    "helpers": lambda: type("Helpers", (), importlib.import_module("numba._helperlib").c_helpers),
}


@pytest.mark.parametrize(
    ("file", "place"), [(file, place) for file, places in NAMES.items() for place in places.split()]
)
def test_numba_has_the_private_names_that_kernels_use(file, place):
    where, _, path = place.partition(":")
    root = MADE[where]() if where in MADE else importlib.import_module(where)
    reduce(getattr, path.split(".") if path else (), root)  # an error says what is gone
    name = re.split("[:.]", place)[-1] if path else place
    assert name in (KERNELS / file).read_text("utf-8"), (
        f"{file} no longer uses {name}: drop its line here"
    )


def test_the_list_is_whole():
    """Modules below numba.core, functions of cgutils, and attributes that begin with _."""
    listed = " ".join(NAMES.values()).replace(":", ".")
    for file in KERNELS.glob("*.py"):
        text = file.read_text("utf-8")
        used = re.findall(r"numba\.core[.\w]*|cgutils\.\w+", text)
        if used:
            used += [
                name for name in re.findall(r"\._[a-z]\w+", text) if f"def {name[1:]}(" not in text
            ]
            used = [name for name in used if name not in OF_TUPLES]
        for name in used:
            assert name.removeprefix(".") in listed, f"{file.name} uses {name}: add a line here"
