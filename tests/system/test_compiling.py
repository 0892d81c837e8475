"""Machine code: where it is kept, and for what it is compiled again."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cbm_cli.kernels import compiling, source_hash

from tests.processes import ROOT

KERNELS = """
from cbm_cli.kernels.compiling import lean, lean_sum

@lean
def double(x):
    return 2 * x

@lean
def excess(x, y):
    return x * x - y

@lean_sum
def relaxed_excess(x, y):
    return excess(x, y)
"""


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """A function that loads a kernel again, as another process would."""
    monkeypatch.setattr(compiling, "CACHE", tmp_path / "cache")
    path = tmp_path / "toy_kernels.py"
    path.write_text(KERNELS)

    def fresh(name="double"):
        spec = importlib.util.spec_from_file_location("toy_kernels", path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "toy_kernels", module)
        spec.loader.exec_module(module)
        return getattr(module, name)

    return fresh


def use(kernel):
    """Whether the machine code for a float was found, and that it computes the right
    number.
    """
    assert kernel(1.5) == 3.0
    return sum(kernel.stats.cache_hits.values()) == 1


def python(script, **environment):
    """What a script prints in a process of its own."""
    given = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    return subprocess.check_output(
        [sys.executable, "-c", script], env=given, text=True
    ).split()


def test_machine_code_is_kept_for_each_signature(kernel):
    first = kernel()
    assert [use(first), use(kernel()), use(kernel())] == [False, True, True]
    first(3)
    assert use(kernel())


def test_a_caller_does_not_change_how_a_kernel_rounds(kernel):
    """With a product and a sum in one rounding, 2^-60 would be left; the caller is
    compiled first.
    """
    numbers = 1 + 2.0**-30, 1 + 2.0**-29
    assert kernel("relaxed_excess")(*numbers) == 0
    assert kernel("excess")(*numbers) == 0


PLACE = "import subprocess, sys; from cbm_cli.kernels import compiling\n"
PLACE += "print(compiling.CACHE, flush=True)\n"
CHILD = (
    "sys.argv[1:] or subprocess.run([sys.executable, '-c', sys.orig_argv[2], 'child'])"
)


def test_workers_share_the_private_folder_of_a_process_without_a_home(
    tmp_path, monkeypatch
):
    monkeypatch.delenv("CBM_KERNEL_CACHE", raising=False)
    own, of_child = python(
        PLACE + CHILD, XDG_CACHE_HOME="/dev/null/x", TMPDIR=str(tmp_path)
    )
    assert Path(own).parents[1] == tmp_path
    assert Path(of_child).is_relative_to(own)
    assert not Path(own).parent.exists()  # gone with its process
    (chosen,) = python(PLACE, CBM_KERNEL_CACHE=str(tmp_path / "here"))
    assert Path(chosen).parent == tmp_path / "here"


def test_every_version_of_the_sources_has_a_folder_of_its_own_wherever_they_lie(
    tmp_path,
):
    assert compiling.CACHE.name == f"kernels-{source_hash()}"
    hash_of, sources = source_hash.__wrapped__, tmp_path / "here"
    (sources / "inner").mkdir(parents=True)
    for name in ("inner/start.py", "errors.py"):
        before = hash_of(sources)
        (sources / name).write_text("x = 1\n")
        created = hash_of(sources)
        (sources / name).write_text("x = 2\n")
        assert len({before, created, hash_of(sources)}) == 3
    assert hash_of(sources) == hash_of(shutil.copytree(sources, tmp_path / "there"))


def test_kernels_are_compiled_even_if_numba_is_disabled():
    """Without compilation they would not even load."""
    script = "import numpy as np; from cbm_cli.kernels.random import fill_words\n"
    script += "u = np.zeros(4, np.uint32); fill_words(u, np.uint64(1), 1, 1, 0)\n"
    script += "print(u.any(), fill_words.signatures != [])"
    assert python(script, NUMBA_DISABLE_JIT="1") == ["True", "True"]


WIDEST = """
import llvmlite.binding as binding, numba
real = binding.get_host_cpu_features
class Features(dict):
    def flatten(self): return real().flatten()
binding.get_host_cpu_features = lambda: Features(real() | {'avx512f': True})
names = [name for name in vars(numba.config) if name.isupper()]
before = [getattr(numba.config, name) for name in names]
import cbm_cli.kernels.training
from numba.core.registry import cpu_target
print(before == [getattr(numba.config, name) for name in names])
print('-prefer-256-bit' in cpu_target.target_context.codegen().magic_tuple()[2])
"""


def test_numba_is_left_as_the_user_has_configured_it_on_the_widest_processor(
    monkeypatch,
):
    """A cached function of the user goes where it went before the kernels were
    imported.
    """
    for name in [name for name in os.environ if name.startswith("NUMBA_")]:
        monkeypatch.delenv(name)
    assert python(WIDEST) == ["True", "True"]
