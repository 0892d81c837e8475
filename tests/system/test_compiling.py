"""Machine code: where it is kept, and for what it is compiled again."""

import importlib.util
import os
import platform
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


def test_machine_code_of_another_signature_is_not_run(kernel, tmp_path):
    """As after two processes that compiled at once, and named their files alike."""
    kernel()(1.5)
    kernel()(3)
    of_float, of_int = sorted((tmp_path / "cache").rglob("*double*.nbc"))
    shutil.copy(of_int, of_float)
    assert kernel()(1.5) == 3.0
    assert kernel()(3) == 6


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


def test_installations_without_sources_keep_the_code_of_versions_apart(tmp_path):
    hash_of, compiled = source_hash.__wrapped__, tmp_path / "kernels"
    compiled.mkdir()
    hashes = [hash_of(compiled)]
    for content in (b"first", b"second"):
        (compiled / "step.pyc").write_bytes(content)
        hashes.append(hash_of(compiled))
    assert len({*hashes}) == 3


def test_versions_have_folders_of_their_own_even_without_any_file(
    tmp_path, monkeypatch
):
    before = source_hash.__wrapped__(tmp_path)
    monkeypatch.setattr("cbm_cli.kernels.__version__", "9.9")
    assert source_hash.__wrapped__(tmp_path) != before


WIDEST = """
import llvmlite.binding as binding, numba
real = binding.get_host_cpu_features
class Features(dict):
    def flatten(self): return real().flatten()
binding.get_host_cpu_features = lambda: Features(real() | {'avx512f': True})
names = [name for name in vars(numba.config) if name.isupper()]
before = [getattr(numba.config, name) for name in names]
FIRST
import cbm_cli.kernels.training
from cbm_cli.kernels import target
from cbm_cli.kernels.computer import computer
from cbm_cli.kernels.states import softplus
LAST
from numba.core.registry import cpu_target
print(before == [getattr(numba.config, name) for name in names])
print('-prefer-256-bit' in target.processor().features)
print('-prefer-256-bit' in cpu_target.target_context.codegen().magic_tuple()[2])
softplus(1.0)
own = softplus.targetctx.codegen()
print(own is target.Dispatcher.targetdescr.target_context.codegen())
numba.config.CPU_NAME = "x86-64-v2"
print("x86-64-v2" not in computer()["kernels"])
"""
USE = "numba.njit(lambda x: x + 1)(1)"


@pytest.mark.parametrize(("first", "last"), [(USE, ""), ("", USE), ("", "")])
def test_kernels_and_functions_of_the_user_have_targets_of_their_own(
    monkeypatch, first, last
):
    """Whichever is compiled first; and the configuration of Numba stays, so that a
    cached function of the user goes where it went before the kernels were imported.
    """
    for name in [name for name in os.environ if name.startswith("NUMBA_")]:
        monkeypatch.delenv(name)
    script = WIDEST.replace("FIRST", first).replace("LAST", last)
    assert python(script) == ["True", "True", "False", "True", "True"]


LIKELIHOOD = """
FIRST
import numpy as np
from cbm_cli.kernels.computer import computer
from cbm_cli.kernels.likelihood import mean_log_likelihood
random = np.random.default_rng(0)
arrays = [random.normal(size=size).astype("f4") for size in ((50, 30), 50, 30)]
rows = (random.random((300, 50)) < 0.5).astype("u1")
print(mean_log_likelihood(*arrays, rows, np.float32(1), 17.0).hex())
print(computer()["kernels"].replace(" ", "-"))
"""


def test_a_function_that_was_compiled_before_changes_no_number_and_no_record():
    expected = python(LIKELIHOOD.replace("FIRST", ""))
    assert python(LIKELIHOOD.replace("FIRST", f"import numba; {USE}")) == expected


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names its processor")
def test_the_record_names_the_processor_that_the_environment_asks_for():
    narrow = {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": "+avx2"}
    record = python(LIKELIHOOD.replace("FIRST", ""), **narrow)[1]
    assert record == "x86-64-v3-with-avx2"
