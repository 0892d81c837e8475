"""Machine code: where it is kept, and for what it is compiled again."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cbm_cli.kernels import compiling

from tests.builders import PACKAGE
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
    """Whether the machine code for a float was found, and that it computes the right number."""
    assert kernel(1.5) == 3.0
    return sum(kernel.stats.cache_hits.values()) == 1


def python(script, *words, **environment):
    """What a script prints in a process of its own, with the kernels of the working folder."""
    given = os.environ | {"PYTHONPATH": os.pathsep.join((".", str(ROOT)))} | environment
    command = [sys.executable, *words, "-c", script]
    return subprocess.check_output(command, env=given, text=True).split()


def test_machine_code_is_kept_for_each_signature(kernel):
    first = kernel()
    assert [use(first), use(kernel()), use(kernel())] == [False, True, True]
    first(3)
    assert use(kernel())


@pytest.mark.parametrize("change", [{"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}, {}])
def test_every_processor_has_machine_code_of_its_own(kernel, here, change):
    """In processes of their own, for a process compiles for one processor."""
    use(kernel())
    script = "from pathlib import Path\nimport cbm_cli.kernels.compiling as compiling\n"
    script += f"compiling.CACHE = Path({str(here / 'cache')!r})\n"
    script += "from toy_kernels import double; double(1.5)\n"
    script += "print(sum(double.stats.cache_hits.values()))"
    assert python(script, NUMBA_CACHE_DIR="unused", **change) == ["0" if change else "1"]


def test_a_caller_does_not_change_how_a_kernel_rounds(kernel):
    """With a product and a sum in one rounding, 2^-60 would be left; the caller is compiled
    first.
    """
    numbers = 1 + 2.0**-30, 1 + 2.0**-29
    assert kernel("relaxed_excess")(*numbers) == 0
    assert kernel("excess")(*numbers) == 0


PLACE = "import subprocess, sys; from cbm_cli.kernels import compiling\n"
PLACE += "print(compiling.CACHE, flush=True)\n"
CHILD = "sys.argv[1:] or subprocess.run([sys.executable, '-c', sys.orig_argv[2], 'child'])"


def test_workers_share_the_private_folder_of_a_process_without_a_home(tmp_path, monkeypatch):
    monkeypatch.delenv("CBM_KERNEL_CACHE", raising=False)
    own, of_child = python(PLACE + CHILD, XDG_CACHE_HOME="/dev/null/x", TMPDIR=str(tmp_path))
    assert Path(own).parents[1] == tmp_path
    assert Path(of_child).is_relative_to(own)
    assert not Path(own).parent.exists()  # gone with its process
    (chosen,) = python(PLACE, CBM_KERNEL_CACHE=str(tmp_path / "here"))
    assert Path(chosen).parent == tmp_path / "here"


def test_every_version_of_the_sources_has_a_folder_of_its_own(tmp_path):
    script = "from cbm_cli.kernels import compiling as c; print(c.__file__, c.CACHE.name)"
    found = []
    for place in ("same", "other"):
        shutil.copytree(PACKAGE, tmp_path / place / "cbm_cli")
    with (tmp_path / "other/cbm_cli/kernels/random.py").open("a") as file:
        file.write("# changed\n")
    for place in (PACKAGE.parent, tmp_path / "same", tmp_path / "other"):
        file, name = python(script, "-P", PYTHONPATH=str(place))
        assert Path(file).is_relative_to(place)
        found.append(name)
    assert found[0] == found[1] != found[2]


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


def test_numba_is_left_as_the_user_has_configured_it_on_the_widest_processor(monkeypatch):
    """A cached function of the user goes where it went before the kernels were imported."""
    for name in [name for name in os.environ if name.startswith("NUMBA_")]:
        monkeypatch.delenv(name)
    assert python(WIDEST) == ["True", "True"]
