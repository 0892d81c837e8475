"""Machine code that is damaged, cannot be kept, or is written by two processes at once."""

import importlib.util
import os
import resource
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cbm_cli.execution.compiling import _mark
from cbm_cli.kernels import compiling
from tests.builders import numbers, trials_of
from tests.processes import ROOT, start_cbm

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
    """A function that loads a kernel anew, as another process would."""
    monkeypatch.setattr(compiling, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(compiling, "unsaved", [])
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


def code(tmp_path):
    return sorted((tmp_path / "cache").glob("*/*.nbc"))


def python(script, *words, **environment):
    """What a script prints in a process of its own, beside the kernels of the working folder."""
    given = os.environ | {"PYTHONPATH": os.pathsep.join((".", str(ROOT)))} | environment
    ran = subprocess.run([sys.executable, *words, "-c", script], env=given, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split()


def test_machine_code_is_kept_for_each_signature(kernel, tmp_path):
    first = kernel()
    assert [use(first), use(kernel()), use(kernel())] == [False, True, True]
    (path,) = code(tmp_path)
    assert not compiling.damaged_files(tmp_path / "cache")
    first(3)
    (other,) = {*code(tmp_path)} - {path}
    shutil.copy(other, path)  # sound, and for an integer
    assert not use(kernel())


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:20],  # within the checksum
        lambda content: content[:-100],
        lambda content: content[:5000] + bytes([content[5000] ^ 1]) + content[5001:],
        lambda content: bytes([content[0] ^ 128]) + content[1:],  # in the checksum
        lambda content: content + b"\0",
    ],
)
def test_damaged_machine_code_is_found_and_compiled_again(kernel, tmp_path, damage):
    use(kernel())
    (path,) = code(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    assert compiling.damaged_files(tmp_path / "cache") == [path]
    assert [use(kernel()), use(kernel())] == [False, True]
    assert not compiling.damaged_files(tmp_path / "cache")


@pytest.mark.parametrize("change", [{"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}, {}])
def test_every_processor_has_machine_code_of_its_own(kernel, here, change):
    """In processes of their own, for a process compiles for one processor."""
    use(kernel())
    script = "from pathlib import Path\nimport cbm_cli.kernels.compiling as compiling\n"
    script += f"compiling.CACHE = Path({str(here / 'cache')!r})\n"
    script += "from toy_kernels import double; double(1.5); print(sum(double.stats.cache_hits.values()))"
    assert python(script, NUMBA_CACHE_DIR="unused", **change) == ["0" if change else "1"]


def test_a_caller_does_not_change_how_a_kernel_rounds(kernel):
    """With a product and a sum in one rounding, 2^-60 would be left; the caller is compiled first."""
    numbers = 1 + 2.0**-30, 1 + 2.0**-29
    assert kernel("relaxed_excess")(*numbers) == 0
    assert kernel("excess")(*numbers) == 0


def test_two_that_compile_at_once_do_not_disturb_each_other(kernel, tmp_path):
    """Numba's lock lets compilations of the threads alternate, each without what the others write."""
    kernels, problems = [kernel() for _ in range(4)], []

    def compile_both(one, kinds):
        try:
            for kind in kinds:
                assert one(kind(2)) == 4
        except Exception as error:
            problems.append(error)

    orders = (int, float), (float, int), (complex, float), (float, complex)
    threads = [threading.Thread(target=compile_both, args=pair) for pair in zip(kernels, orders, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert len([*(tmp_path / "cache").rglob("*")]) == 1 + 3  # a folder, and a file for each signature
    assert use(kernel())


def test_a_full_disk_costs_compilations_and_no_more(kernel, tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        assert not use(kernel())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert compiling.unsaved
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert [use(kernel()), use(kernel())] == [False, True]


PLACE = "from cbm_cli.kernels import compiling as c; import subprocess, sys; print(c.CACHE, flush=True); "
CHILD = "sys.argv[1:] or subprocess.run([sys.executable, '-c', 'import sys;' + sys.orig_argv[2], 'child'])"


def test_workers_share_the_private_folder_of_a_process_without_a_home(tmp_path, monkeypatch):
    monkeypatch.delenv("CBM_KERNEL_CACHE", raising=False)
    own, of_child = python(PLACE + CHILD, XDG_CACHE_HOME="/dev/null/x", TMPDIR=str(tmp_path))
    assert Path(own).parent == tmp_path
    assert Path(of_child).is_relative_to(own)
    assert not Path(own).exists()  # gone with its process
    (chosen,) = python(PLACE, CBM_KERNEL_CACHE=str(tmp_path / "here"))
    assert Path(chosen).parent == tmp_path / "here"


def test_without_any_folder_nothing_is_kept(here, monkeypatch):
    monkeypatch.delenv("CBM_KERNEL_CACHE", raising=False)
    script = "import tempfile; tempfile.mkdtemp = lambda **_: open('/dev/null/x'); from toy_kernels import *;"
    script += "from cbm_cli.kernels.compiling import CACHE; print(double(2.0), CACHE)"
    Path("toy_kernels.py").write_text(KERNELS)
    assert python(script, XDG_CACHE_HOME="/dev/null/x") == ["4.0", "None"]
    assert not [*here.rglob("*.nb?")]


@pytest.mark.slow
def test_a_run_removes_damaged_machine_code_and_says_so(finished):
    place = finished / "cache" / compiling.CACHE.name
    folder = shutil.copytree(_mark("rbm").parent, place / _mark("rbm").parent.name)
    victims = [next(folder.glob(f"{name}-*.nbc")) for name in ("random.fill_uniform", "units.exponential")]
    for path, length in zip(victims, (0, 100), strict=True):
        path.write_bytes(path.read_bytes()[:length])
    environment = {"CBM_KERNEL_CACHE": str(finished / "cache")}
    run = start_cbm("run", "grid.yaml", "-o", "there", "-j", 2, cwd=finished, env=environment)
    said = run.communicate(timeout=600)[1]
    assert run.returncode == 0, said
    (line,) = [line for line in said.splitlines() if str(place) in line]
    assert len(victims) in numbers(line)[0]
    assert (folder / "compiled-rbm").exists()
    assert not compiling.damaged_files(place)
    assert trials_of("there") == trials_of("out")


def test_a_copy_of_the_package_compiles_only_what_its_own_sources_change(tmp_path):
    script = (
        "import numpy as np; from cbm_cli.kernels import random, compiling\n"
        "random.fill_uniform(np.empty(8, np.float32), np.uint64(1), 1, 1, 0)\n"
        "print(random.__file__, compiling.CACHE.name, sum(random.fill_uniform.stats.cache_hits.values()))"
    )
    places, found = [ROOT, tmp_path / "same", tmp_path / "other"], []
    for place in places[1:]:
        shutil.copytree(ROOT / "cbm_cli", place / "cbm_cli", ignore=shutil.ignore_patterns("__pycache__"))
        os.utime(place / "cbm_cli/kernels/random.py", (1, 1))  # its time does not matter
    with (tmp_path / "other/cbm_cli/kernels/random.py").open("a") as file:
        file.write("# changed\n")
    for place in places:
        cache = {"CBM_KERNEL_CACHE": str(tmp_path / "cache")}
        found.append(python(script, "-P", PYTHONPATH=str(place), **cache))
    files, (own, same, other), hits = zip(*found, strict=True)
    assert [Path(file).parents[2] for file in files] == places
    assert own == same != other
    assert hits == ("0", "1", "0")


def test_numba_is_left_as_the_user_has_configured_it_on_the_widest_processor(monkeypatch):
    """A cached function of the user goes where it went before the kernels were imported."""
    script = (
        "import llvmlite.binding as binding, numba\n"
        "real = binding.get_host_cpu_features\n"
        "class Features(dict):\n"
        "    def flatten(self): return real().flatten()\n"
        "binding.get_host_cpu_features = lambda: Features(real() | {'avx512f': True})\n"
        "names = [name for name in vars(numba.config) if name.isupper()]\n"
        "before = [getattr(numba.config, name) for name in names]\n"
        "import cbm_cli.kernels.training\n"
        "from numba.core.registry import cpu_target\n"
        "print(before == [getattr(numba.config, name) for name in names])\n"
        "print('-prefer-256-bit' in cpu_target.target_context.codegen().magic_tuple()[2])\n"
    )
    for name in [name for name in os.environ if name.startswith("NUMBA_")]:
        monkeypatch.delenv(name)
    assert python(script) == ["True", "True"]
