"""Results for others: `cbm export RESULTS -o study.zip`, and data that have moved."""

import io
import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cbm_cli.results import Results
from cbm_cli.results.journal import unsealed
from tests.builders import cbm, grid_text, numbers, problems_of, run_grid
from tests.golden import outputs
from tests.pictures import page_of


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return outputs.unpack(tmp_path_factory.mktemp("study"))


def members(path):
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def test_a_study_holds_the_page_and_the_tables_of_each_experiment(results, here):
    for path in ("study.zip", "again.zip"):
        cbm("export", results, "bars", "encoder", "-o", path)
    assert Path("study.zip").read_bytes() == Path("again.zip").read_bytes()
    found = members("study.zip")
    assert {name.partition("/")[0] for name in found} == {"report.html", "grid.yaml", "bars", "encoder"}
    assert len(page_of(found["report.html"].decode()).all("section", "experiment")) == 2
    for name in ("bars", "encoder"):
        store = Results(results).store(name)
        summary = pd.read_csv(io.BytesIO(found[f"{name}/summary.csv"]))
        assert summary["run_id"].tolist() == store.summary()["run_id"].tolist()
        shared, own = (
            unsealed(found[f"{name}/manifest.json"]),
            json.loads(Path(store.folder, "manifest.json").read_text()),
        )
        assert shared == {key: value for key, value in own.items() if key != "seal"} | {"grid_folder": ""}
        curves = {path.name for path in (store.folder / "curves").glob("*.csv")}
        assert {one.rpartition("/")[2] for one in found if one.startswith(f"{name}/curves/")} == curves
    Path("grid.yaml").write_bytes(found["grid.yaml"])  # which asks for the same trials
    told = numbers(cbm("run", "grid.yaml", "-o", results, "--dry-run").stdout)
    trials = sum(len(Results(results).store(name).summary()) for name in ("bars", "encoder"))
    assert told[0] == [trials, trials, 0]
    assert not any(name.endswith((".npz", ".jsonl")) for name in found)  # machines stay


def test_the_grid_of_a_study_has_the_experiments_that_trials_start_from(here):
    second = "  second: {start_from: {experiment: toy}, learning_rate: 0.05, trials: 1}\n"
    fields = (
        "data: {name: bars-and-stripes, size: 2}, model: {kind: rbm, hidden: 2}, offsets: 00, sampler: CD-1"
    )
    first = f"defaults: {{{fields}, learning_rate: 0.1, updates: 20, batch: full, trials: 1}}\n"
    Path("grid.yaml").write_text(f"{first}experiments:\n  toy: {{}}\n{second}")
    cbm("run", "grid.yaml", "-o", "out", "-j", 0)
    cbm("export", "out", "second", "-o", "study.zip")
    Path("again.yaml").write_bytes(members("study.zip")["grid.yaml"])
    finished, before, left = numbers(cbm("run", "again.yaml", "-o", "out", "--dry-run").stdout)[0]
    assert (finished, left) == (before, 0)
    assert finished == sum(len(Results(Path("out")).store(name).summary()) for name in ("toy", "second"))


def test_what_cannot_be_shared_is_refused(results, here):
    run = Results(results).store("bars").manifest()["cells"][0]["run_id"]
    for words, output, kind in (
        ((), "x.npz", "value"),
        ((f"{run}:0",), "x.zip", "value"),
        ((f"{run}:0", f"{run}:1"), "x.npz", "conflict"),
        (("nothing",), "x.zip", "unknown"),
        ((), "nowhere/x.zip", "missing"),
    ):
        refused = cbm("export", results, *words, "-o", output, code=2)
        assert problems_of(refused)[0][2] == kind
    Path("empty").mkdir()
    cbm("export", "empty/", "-o", "x.zip", code=3)
    assert not Path("x.zip").exists()


@pytest.fixture(params=["rows.npy"])
def moved(request, here):
    """Results whose grid is gone, and the folder to which its data have moved."""
    name = request.param.replace("ABSOLUTE", str(here / "home/far"))
    for folder in (Path("home", name).parent, Path("there/sub")):
        folder.mkdir(parents=True)
    np.save(Path("home", name), np.random.default_rng(2).integers(0, 2, (40, 6), np.uint8))
    text = grid_text("rbm", data=f"{{path: {name}}}", batch="10", trials="2", evaluate="{method: exact}")
    run_grid(text, folder="home", output=here / "out")
    shutil.move(Path("home", name), "there/sub" if name == "sub/rows.npy" else "there")
    shutil.rmtree("home")


@pytest.mark.parametrize("moved", ["rows.npy", "sub/rows.npy", "ABSOLUTE/rows.npy"], indirect=True)
def test_results_find_their_data_in_a_folder_that_is_named(moved):
    verify = "verify", "out", "--sample", "all", "-j", 0
    cbm(*verify, code=3)
    verdicts = cbm(*verify, "--data", "there", "--json").stdout.splitlines()
    assert {json.loads(line)["verdict"] for line in verdicts} == {"same bytes"}
    assert len(cbm("evaluate", "out", "--data", "there", "--json").stdout.splitlines()) == 2
    refused = cbm("plot", "out", "activity", "-o", "a.png", code=2)
    assert (problems_of(refused)[0][2], "--data" in refused.stderr) == ("missing", True)
    cbm("plot", "out", "activity", "--data", "there", "-o", "a.png")


def test_other_rows_under_the_name_and_folders_that_are_none_are_refused(moved):
    for command, *words in (("evaluate",), ("verify",), ("plot", "curves", "-o", "x.png")):
        found = cbm(command, "out", *words, "--data", "nowhere", code=2)
        assert problems_of(found) == [("--data nowhere", "", "missing")]
    np.save("there/rows.npy", 1 - np.load("there/rows.npy"))
    for words in (("evaluate", "out"), ("plot", "out", "activity", "-o", "x.png")):
        assert problems_of(cbm(*words, "--data", "there", code=2))[0][2] == "changed"
    verify = "verify", "out", "--sample", "all", "-j", 0, "--data", "there", "--json"
    verdicts = cbm(*verify, code=3).stdout.splitlines()
    assert {json.loads(line)["verdict"] for line in verdicts} == {"cannot be rerun"}
