"""What several test files share."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.builders import GRID, cbm

# Else every process that a test starts compiles the package again, a third of its start
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


MARKERS = """
slow: real processes, signals and full disks; a few seconds each
nightly: long faults, of which others like them stand for these by day; left out without -m
"""
ROOT = Path(__file__).resolve().parents[1]


def pytest_configure(config):
    """Know the marks where the tests are copied next to an installed package, too."""
    for marker in MARKERS.strip().splitlines():
        config.addinivalue_line("markers", marker)
    config.option.markexpr = config.option.markexpr or "not nightly"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Begin each of four shares with tests of real processes, which wait; none comes
    last.
    """
    slow = [item for item in items if item.get_closest_marker("slow")]
    others = [item for item in items if not item.get_closest_marker("slow")]
    items[:] = [
        item
        for share in range(4)
        for some in (slow, others)
        for item in some[share * len(some) // 4 : (share + 1) * len(some) // 4]
    ]


@pytest.fixture(scope="session")
def clone() -> Path:
    """Return the folder of the repository."""
    if not (ROOT / "mkdocs.yml").exists():
        pytest.skip("a test of the repository, which is not there next to these tests")
    return ROOT


@pytest.fixture(scope="session")
def real_data_dir() -> Path:
    """Return the folder of real data files: CBM_DATA_DIR, or shared/data next to the
    clone.
    """
    beside = ROOT.parent / "shared" / "data"
    folder = Path(os.environ.get("CBM_DATA_DIR") or beside).expanduser()
    if not any(
        any(place.glob("train-images-idx3-ubyte*"))
        for place in (folder, folder / "mnist")
    ):
        pytest.skip(
            f"no MNIST files in {folder}; name their folder in CBM_DATA_DIR to run "
            "this test"
        )
    return folder


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Path:
    """Return the folder of grid.yaml and of its results in out, which no test
    changes.
    """
    folder = tmp_path_factory.mktemp("trained")
    (folder / "grid.yaml").write_text(GRID)
    cbm("run", folder / "grid.yaml", "-o", folder / "out", "-j", 0)
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """Return the working folder, a new one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def grid(here):
    """Return a function that writes another grid.yaml; the working folder is a new one,
    and has one.
    """
    Path("grid.yaml").write_text(GRID)
    return Path("grid.yaml").write_text


@pytest.fixture
def finished(trained, here) -> Path:
    """Return the working folder, a new one: with grid.yaml, and its finished results in
    out.
    """
    return shutil.copytree(trained, here, dirs_exist_ok=True)
