"""The distributions hold what they should, and an installed copy works in an empty folder."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from configparser import ConfigParser
from email import message_from_string
from pathlib import Path

import pytest

import cbm_cli
from cbm_cli.cli.common import program
from cbm_cli.grid.read import read_grid
from tests.builders import cbm

ROOT = Path(__file__).parents[1]
BUILD = "import sys, setuptools.build_meta as backend; getattr(backend, sys.argv[1])(sys.argv[2])"


def tracked():
    """Files of the clone, new ones too."""
    if not (ROOT / ".git").exists():
        pytest.skip("not in a clone")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return {name for name in listed if (ROOT / name).is_file()}


def build(kind, folder, into):
    """Build a distribution of a folder, without a network; return its path."""
    into.mkdir()
    ran = subprocess.run(
        [sys.executable, "-c", BUILD, kind, into], cwd=folder, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    (made,) = into.iterdir()
    return made


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The source distribution of the clone, and the wheel that is built from it."""
    pytest.importorskip("setuptools", minversion="77")  # of the extra dev
    folder = tmp_path_factory.mktemp("built")
    clone = folder / "clone"
    for name in tracked():
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_bytes((ROOT / name).read_bytes())
    source = build("build_sdist", clone, folder / "sdist")
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    return source, build("build_wheel", folder / source.name.removesuffix(".tar.gz"), folder / "wheel")


def metadata(wheel):
    """The metadata of a wheel, as the index reads them."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_string(archive.read(name).decode())


@pytest.mark.slow
def test_the_source_distribution_has_every_file_of_the_clone_and_no_other(built):
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames() if archive.getmember(name).isfile()}
    assert tracked() - names == set()
    made = {name for name in names - tracked() if not name.startswith("cbm_cli.egg-info/")}
    assert made == {"PKG-INFO"}


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_package_and_no_other(built):
    with zipfile.ZipFile(built[1]) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == {name for name in tracked() if name.startswith("cbm_cli/")}
    assert {"cbm_cli/py.typed", "cbm_cli/report/page.js", "cbm_cli/grid/starter.yaml"} <= names


@pytest.mark.slow
def test_an_installed_copy_writes_a_grid_and_runs_it_in_an_empty_folder(built, tmp_path):
    site, home = tmp_path / "site", tmp_path / "home"
    home.mkdir()
    with zipfile.ZipFile(built[1]) as archive:
        archive.extractall(site)

    def run(*arguments):
        command = [sys.executable, "-P", *arguments]
        environment = os.environ | {"PYTHONPATH": str(site), "CBM_KERNEL_CACHE": str(tmp_path / "kernels")}
        ran = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, timeout=1200)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    assert run("-c", "import cbm_cli; print(cbm_cli.__file__)").startswith(str(site))
    run("-m", "cbm_cli.cli", "init")
    table = run("-m", "cbm_cli.cli", "run", "--trials", "2", "--set", "updates=200", "-j", "0")
    heads, *rows = [
        line.split("  ") for line in table.splitlines() if re.match(r" (Algorithm|\w+-\d|PT_)", line)
    ]
    assert [head.strip() for head in heads if head.strip()][1:] == [
        "00, zero",
        "00, inverse-sigmoid",
        "dd^b_s, inverse-sigmoid",
        "aa^b, inverse-sigmoid",
    ]
    assert [row[0].strip() for row in rows] == ["CD-1-0.1", "PCD-1-0.1", "PT_10-0.1"]
    assert all(len(re.findall(r"-28\.\d\d ± 0\.\d\d", "  ".join(row))) == 4 for row in rows)


@pytest.mark.slow
def test_metadata_name_licence_authors_paper_and_both_commands(built):
    about = metadata(built[1])
    assert about["License-Expression"] == "BSD-3-Clause"
    assert about["License-File"] == "LICENSE"
    assert about["Author"] == "The authors of cbm"
    assert "Paper, https://arxiv.org/abs/1311.1354" in about.get_all("Project-URL")
    pythons = [c.rpartition(" ")[2] for c in about.get_all("Classifier") if ":: Python :: 3." in c]
    assert pythons == ["3.11", "3.12", "3.13", "3.14"]
    assert "Typing :: Typed" in about.get_all("Classifier")
    with zipfile.ZipFile(built[1]) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
        scripts = ConfigParser()
        scripts.read_string(archive.read(name).decode())
    assert dict(scripts["console_scripts"]) == {"cbm": "cbm_cli.cli:main", "cbm-cli": "cbm_cli.cli:main"}


@pytest.mark.slow
def test_links_of_the_index_page_lead_somewhere_from_there(built):
    links = re.findall(r"\]\(([^)]*)\)", metadata(built[1]).get_payload())
    assert links
    assert all(link.startswith("https://") for link in links)


def test_the_copy_of_the_paper_s_grid_is_the_grid_of_the_clone():
    """After a change: cp experiments.yaml cbm_cli/paper/."""
    copy = Path(cbm_cli.__file__).parent / "paper" / "experiments.yaml"
    assert copy.read_bytes() == (ROOT / "experiments.yaml").read_bytes()


def test_the_starter_s_quickstart_is_that_of_the_clone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = cbm("init")
    assert "wrote experiments.yaml\nNext:" in ran.stderr
    assert ran.stdout == ""
    started, whole = read_grid(Path("experiments.yaml")), read_grid(ROOT / "experiments.yaml")
    assert started.default == whole.default == ("quickstart",)
    assert started.experiments["quickstart"] == whole.experiments["quickstart"]
    assert started.experiments["quickstart"].trials == 25


def test_the_next_experiment_of_the_starter_can_be_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cbm("init")
    text = Path("experiments.yaml").read_text("utf-8")
    head, _, last = text.partition("  # my-first:")
    assert last
    uncommented = head + ("  # my-first:" + last).replace("\n  # ", "\n  ").replace(
        "  # my-first", "  my-first"
    )
    Path("experiments.yaml").write_text(uncommented, "utf-8")
    assert "my-first: 4 cells, 40 trials" in cbm("run", "--list").stdout


def test_init_paper_writes_the_paper_s_grid(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "run paper.yaml --list" in cbm("init", "--paper", "-o", "paper.yaml").stderr
    assert Path("paper.yaml").read_bytes() == (ROOT / "experiments.yaml").read_bytes()


def test_init_replaces_a_file_only_when_told_to(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mine = Path("experiments.yaml")
    mine.write_text("mine")
    assert "experiments.yaml: is there already; replace it with --force" in cbm("init", code=2).stderr
    assert mine.read_text() == "mine"
    cbm("init", "--force")
    assert "quickstart" in mine.read_text("utf-8")
    mine.unlink()
    mine.symlink_to("gone")  # a link whose file is missing is also somebody's
    assert "is there already" in cbm("init", code=2).stderr
    assert mine.is_symlink()


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_init_leaves_a_folder_of_that_name_alone(tmp_path, monkeypatch, force):
    monkeypatch.chdir(tmp_path)
    Path("experiments.yaml").mkdir()
    assert "-o experiments.yaml: is a folder; name a file in it" in cbm("init", *force, code=2).stderr
    assert "experiments.yaml: is a folder" in cbm("run", code=2).stderr
    assert list(Path("experiments.yaml").iterdir()) == []


def test_init_says_where_it_cannot_write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.access", lambda *_: False)  # a folder that is read-only, to root too
    assert "-o experiments.yaml: cannot write there; choose another place" in cbm("init", code=2).stderr
    assert "there is no folder" in cbm("init", "-o", "gone/grid.yaml", code=2).stderr
    assert ".yaml" in cbm("init", "-o", "grid.txt", code=2).stderr
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_grid_that_was_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("experiments.yaml").write_text("mine")

    def fail(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    assert "No space left on device" in cbm("init", "--force", code=2).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["experiments.yaml"]
    assert Path("experiments.yaml").read_text() == "mine"


@pytest.mark.parametrize("grid", [(), ("mine.yaml",), ("mine.yaml", "quickstart")])
def test_run_without_a_grid_names_what_writes_one(tmp_path, monkeypatch, grid):
    monkeypatch.chdir(tmp_path)
    said = cbm("run", *grid, code=2).stderr
    assert f"{(*grid, 'experiments.yaml')[0]}: there is no such file; `{program()} init` writes" in said


def test_the_second_command_speaks_of_the_first(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "bin" / "cbm-cli")])
    assert program() == str(tmp_path / "bin" / "cbm")


def test_the_build_has_what_the_metadata_need():
    """`license_expression` is known to setuptools since version 77."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"]
    assert needed == ["setuptools >= 77"]
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    assert needed[0] in setup["options.extras_require"]["dev"]
