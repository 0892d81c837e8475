"""Results on another computer: their data are in a folder that is named by --data."""

import json
import shutil

import numpy as np
import pytest

from tests.builders import cbm, problems_of, run_grid

GRID = """
experiments:
  toy:
    data: {path: PATH}
    model: {kind: rbm, hidden: 3}
    offsets: 00
    sampler: PCD-1
    learning_rate: 0.1
    updates: 20
    batch: 10
    trials: 2
    evaluate: {method: exact, every: 10}
"""


@pytest.fixture(params=["rows.npy"])
def moved(request, tmp_path):
    """Results whose grid is gone, and the folder to which its data have moved."""
    rows = np.random.default_rng(2).integers(0, 2, (40, 6), np.uint8)
    here, there = tmp_path / "here", tmp_path / "there"
    name = request.param.replace("ABSOLUTE", str(here / "far"))
    for folder in ((here / name).parent, there / "sub"):
        folder.mkdir(parents=True)
    np.save(here / name, rows)
    run_grid(GRID.replace("PATH", name), folder=here, output=tmp_path / "out")
    shutil.rmtree(here)
    np.save(there / "sub" / "rows.npy" if request.param == "sub/rows.npy" else there / "rows.npy", rows)
    return tmp_path / "out", there


@pytest.mark.parametrize("moved", ["rows.npy", "sub/rows.npy", "ABSOLUTE/rows.npy"], indirect=True)
def test_results_find_their_data_in_a_folder_that_is_named(moved, tmp_path):
    out, there = moved
    cbm("verify", out, "--sample", "all", "-j", 0, code=3)
    verdicts = cbm("verify", out, "--sample", "all", "-j", 0, "--data", there, "--json").stdout.splitlines()
    assert {json.loads(line)["verdict"] for line in verdicts} == {"same bytes"}
    assert len(cbm("evaluate", out, "--data", there, "--json").stdout.splitlines()) == 2
    assert problems_of(cbm("plot", out, "activity", "-o", tmp_path / "a.png", code=2))[0][2] == "missing"
    cbm("plot", out, "activity", "--data", there, "-o", tmp_path / "a.png")


def test_other_rows_under_the_name_and_folders_that_are_none_are_refused(moved):
    out, there = moved
    for command, *words in (("evaluate",), ("verify",), ("plot", "curves", "-o", "x.png")):
        found = cbm(command, out, *words, "--data", there / "nowhere", code=2)
        assert problems_of(found) == [(f"--data {there / 'nowhere'}", "", "missing")]
    for path in there.rglob("*.npy"):
        np.save(path, 1 - np.load(path))
    assert problems_of(cbm("evaluate", out, "--data", there, code=2))[0][2] == "changed"
    verdicts = cbm(
        "verify", out, "--sample", "all", "-j", 0, "--data", there, "--json", code=3
    ).stdout.splitlines()
    assert {json.loads(line)["verdict"] for line in verdicts} == {"cannot be rerun"}
