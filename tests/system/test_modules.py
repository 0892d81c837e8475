"""Files in the current folder that are named like modules: none of them is ever
imported.
"""

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.builders import GRID
from tests.processes import ROOT, LoopbackCluster, end_group, start

pytestmark = pytest.mark.slow

SMALL = GRID.replace("[CD-1, PT_4]", "CD-1").replace("[00, dd^b_s]", "[00, dd]")
EVIL = "open(__file__ + '.ran', 'w').close()\nraise SystemExit('imported')\n"
LIST = """
import sys
import multiprocessing.forkserver, multiprocessing.spawn, multiprocessing.pool
import multiprocessing.resource_tracker, multiprocessing.shared_memory
import concurrent.futures.process
{more}
for name in [*sys.modules]:
    if '.' not in name and name.isidentifier() and name != '__main__':
        print(name)
"""

INSTALLED = """
from cbm_cli.cli import main

if __name__ == "__main__":
    main()
"""


@cache
def names(more=""):
    """Modules that helper processes, workers of this computer and of Dask import."""
    script = LIST.format(more=more)
    code = [sys.executable, "-P", "-c", script]
    return subprocess.check_output(code, text=True).split()


@pytest.fixture
def evil(grid, monkeypatch):
    """Files of all these names in the working folder, and the command line as it is
    installed: in a folder of its own.
    """
    grid(SMALL)
    for name in names("import distributed.cli.dask_worker"):
        Path(f"{name}.py").write_text(EVIL)
    Path("bin").mkdir()
    Path("bin/cbm").write_text(INSTALLED)
    assert len([*Path().glob("*.py")]) > 100
    assert all(Path(f"{name}.py").exists() for name in ("signal", "pickle", "select"))


def cbm(*words):
    """Run the installed command line; return what it says."""
    command = [sys.executable, "bin/cbm", *map(str, words)]
    done = subprocess.run(
        command,
        env={**_environment(), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def _environment():
    import os

    left_out = ("PYTHONSAFEPATH", "PYTHONPATH")
    return {name: text for name, text in os.environ.items() if name not in left_out}


def ran():
    return sorted(path.name for path in Path().glob("*.ran"))


def test_no_process_finds_modules_in_the_current_folder(evil):
    cbm("run", "grid.yaml", "--no-code", "-j", 1)
    cbm("evaluate", "results", "--exact", "-j", 2)
    cbm("verify", "results", "--sample", "all", "-j", 2)
    cbm("verify", "results", "--sample", 1, "-j", 0)
    assert not ran()


def test_a_recorder_may_have_the_name_of_a_module(evil):
    code = "def f(snapshots, context):\n    return {'x': snapshots.update}\n"
    Path("signal.py").write_text(code)
    words = "--set", "record={what: signal.py:f, every: 50}"
    assert "failed" not in cbm("run", "grid.yaml", "-j", 2, *words)
    assert not ran()


def test_workers_of_dask_that_start_safely_find_no_modules_there(evil, tmp_path):
    safe = {"PYTHONSAFEPATH": "1"}
    cluster = LoopbackCluster(tmp_path, env=safe)
    try:
        cluster.add("--nthreads", "1", env=safe)
        cbm("run", "grid.yaml", "--scheduler", cluster.address)
    finally:
        cluster.end()
    assert not ran()


def test_python_m_finds_no_modules_of_libraries_in_the_current_folder(grid):
    grid(SMALL)
    for name in ("msgspec", "click", "numba", "pyarrow", "pickle", "multiprocessing"):
        Path(f"{name}.py").write_text(EVIL)
    process = start("cbm_cli.cli", "run", "grid.yaml", "-j", "1", cwd=Path())
    try:
        assert process.wait(300) == 0
    finally:
        end_group(process)
    assert not ran()
