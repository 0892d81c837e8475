"""The distributions hold what they should, and an installed copy works, also below the
tests of the sdist.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from configparser import ConfigParser
from contextlib import suppress
from email import message_from_string
from pathlib import Path

import pytest

from tests.builders import PAPER
from tests.golden import outputs

ROOT = Path(__file__).parents[2]
BUILD = (
    "import sys, setuptools.build_meta as backend; getattr(backend, "
    "sys.argv[1])(sys.argv[2])"
)


def output(*command, cwd=ROOT, **environment):
    """What a command prints; it has to succeed."""
    how = {"cwd": cwd, "env": os.environ | environment, "text": True, "timeout": 600}
    ran = subprocess.run([*map(str, command)], capture_output=True, **how)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The unpacked source distribution of a copy of the clone, and the wheel built from
    it.
    """
    pytest.importorskip("setuptools", minversion="77")  # of the extra dev
    if not (ROOT / ".git").exists():
        pytest.skip("not in a clone")
    folder = tmp_path_factory.mktemp("built")
    listed = output("git", "ls-files", "--cached", "--others", "--exclude-standard")
    for name in listed.splitlines():
        (folder / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # gone at once where something is built
            shutil.copy(ROOT / name, folder / "clone" / name)
    output(sys.executable, "-c", BUILD, "build_sdist", folder, cwd=folder / "clone")
    (source,) = folder.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    (folder / source.name.removesuffix(".tar.gz")).rename(folder / "sdist")
    output(sys.executable, "-c", BUILD, "build_wheel", folder, cwd=folder / "sdist")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder


@pytest.mark.slow
def test_distributions_have_every_file_and_no_other(built):
    clone = {
        str(it.relative_to(built / "clone"))
        for it in built.glob("clone/**/*")
        if it.is_file()
    }
    clone = {
        name for name in clone if not name.startswith("cbm_cli.egg-info/")
    }  # of the build
    assert {"README.md", "tests/conftest.py", ".ci/run"} <= clone
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = [member.name.partition("/")[2] for member in archive if member.isfile()]
    made = {name for name in names if not name.startswith("cbm_cli.egg-info/")}
    assert made == clone | {"PKG-INFO"}
    with zipfile.ZipFile(next(built.glob("*.whl"))) as archive:
        installed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert installed == {name for name in clone if name.startswith("cbm_cli/")}
    data = (
        "py.typed",
        "report/page.html",
        "report/journal.mplstyle",
        "grid/starter.yaml",
    )
    assert {f"cbm_cli/{name}" for name in data} <= installed


@pytest.fixture
def installed(built, tmp_path):
    """Return a function that runs a module in a folder that has no other copy of the
    package.
    """
    site = {
        "PYTHONPATH": str(built / "site"),
        "CBM_KERNEL_CACHE": str(tmp_path / "kernels"),
    }
    return lambda *words: output(sys.executable, "-P", *words, cwd=tmp_path, **site)


@pytest.mark.slow
def test_an_installed_copy_lists_its_grid_and_shows_results(installed, tmp_path):
    """Nothing is trained, since kernels take a minute."""
    installed("-m", "cbm_cli.cli", "init")
    assert "quickstart" in installed("-m", "cbm_cli.cli", "ls", "experiments.yaml")
    found = installed(
        "-m", "cbm_cli.cli", "table", outputs.unpack(tmp_path / "results")
    )
    assert found == (outputs.OUTPUTS / "table.txt").read_text("utf-8")


@pytest.mark.nightly
def test_an_installed_copy_passes_tests_of_the_sdist(installed, built, tmp_path):
    shutil.copytree(built / "sdist" / "tests", tmp_path / "tests")
    files = [f"tests/unit/test_{name}.py" for name in ("statistics", "text", "names")]
    passed = installed(
        "-m", "pytest", "-p", "no:cacheprovider", "-o", "addopts=", *files
    )
    assert int(re.search(r"(\d+) passed", passed)[1]) > 50


@pytest.mark.slow
def test_metadata_name_licence_authors_paper_and_both_commands(built):
    (about,) = (built / "site").glob("*.dist-info")
    metadata = message_from_string((about / "METADATA").read_text("utf-8"))
    fields = {"License-Expression": "BSD-3-Clause", "License-File": "LICENSE"}
    assert (fields | {"Author": "The authors of cbm"}).items() <= dict(
        metadata.items()
    ).items()
    assert "Paper, https://arxiv.org/abs/1311.1354" in metadata.get_all("Project-URL")
    scripts = ConfigParser()
    scripts.read(about / "entry_points.txt")
    both = dict.fromkeys(("cbm", "cbm-cli"), "cbm_cli.cli:main")
    assert dict(scripts["console_scripts"]) == both
    links = re.findall(
        r"\]\(([^)]*)\)", metadata.get_payload() or ""
    )  # from the page of the index
    assert all(link.startswith("https://") for link in links)


def test_the_package_has_the_grid_of_the_clone():
    """After a change of the grid: cp experiments.yaml cbm_cli/grid/paper.yaml"""
    assert PAPER.read_bytes() == (ROOT / "experiments.yaml").read_bytes()
