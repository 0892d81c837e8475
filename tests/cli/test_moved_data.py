"""Results whose data have moved: readers find them in a folder that is named with
--data.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.builders import cbm, grid_text, problems_of, run_grid


@pytest.fixture
def moved(request, here):
    """Results whose grid is gone, and whose data have moved to the folder there."""
    name = getattr(request, "param", "rows.npy").replace(
        "ABSOLUTE", str(here / "home/far")
    )
    for folder in (Path("home", name).parent, Path("there/sub")):
        folder.mkdir(parents=True)
    np.save(
        Path("home", name), np.random.default_rng(2).integers(0, 2, (40, 6), np.uint8)
    )
    data = {"data": f"{{path: {name}}}", "batch": "10", "evaluate": "{method: exact}"}
    run_grid(grid_text("rbm", trials="2", **data), folder="home", output=here / "out")
    shutil.move(Path("home", name), "there/sub" if name == "sub/rows.npy" else "there")
    shutil.rmtree("home")


@pytest.mark.parametrize("moved", ["sub/rows.npy", "ABSOLUTE/rows.npy"], indirect=True)
def test_results_find_their_data_in_a_folder_that_is_named(moved):
    verify = "verify", "out", "--sample", "all", "-j", 0
    cbm(*verify, code=3)
    verdicts = cbm(*verify, "--data", "there", "--json").stdout.splitlines()
    assert {json.loads(line)["verdict"] for line in verdicts} == {"same bytes"}
    assert (
        len(cbm("evaluate", "out", "--data", "there", "--json").stdout.splitlines())
        == 2
    )
    assert "--data" in cbm("plot", "out", "activity", "-o", "a.png", code=2).stderr
    cbm("plot", "out", "activity", "--data", "there", "-o", "a.png")


def test_other_rows_under_the_name_and_folders_that_are_none_are_refused(moved):
    for command, *words in (
        ("evaluate",),
        ("verify",),
        ("plot", "curves", "-o", "x.png"),
    ):
        found = cbm(command, "out", *words, "--data", "nowhere", code=2)
        assert problems_of(found) == [("--data nowhere", "")]
    np.save("there/rows.npy", 1 - np.load("there/rows.npy"))
    for words in (("evaluate", "out"), ("plot", "out", "activity", "-o", "x.png")):
        assert "other rows" in cbm(*words, "--data", "there", code=2).stderr
    verify = "verify", "out", "--sample", "all", "-j", 0, "--data", "there", "--json"
    verdicts = cbm(*verify, code=3).stdout.splitlines()
    assert {json.loads(line)["verdict"] for line in verdicts} == {"cannot be run again"}
