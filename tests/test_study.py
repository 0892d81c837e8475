"""`cbm export RESULTS -o study.zip`: a study to share."""

import io
import json
import zipfile

import pandas as pd
import pytest

from cbm_cli.results import Results
from tests.builders import cbm, problems_of
from tests.golden import outputs
from tests.pictures import page_of


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return outputs.unpack(tmp_path_factory.mktemp("study"))


def members(path):
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def test_a_study_holds_the_page_and_the_tables_of_each_experiment(results, tmp_path):
    cbm("export", results, "bars", "encoder", "-o", tmp_path / "study.zip")
    found = members(tmp_path / "study.zip")
    assert {name.partition("/")[0] for name in found} == {"report.html", "bars", "encoder"}
    assert len(page_of(found["report.html"].decode()).all("section", "experiment")) == 2
    for name in ("bars", "encoder"):
        store = Results(results).store(name)
        summary = pd.read_csv(io.BytesIO(found[f"{name}/summary.csv"]))
        assert summary["run_id"].tolist() == store.summary()["run_id"].tolist()
        assert len(json.loads(found[f"{name}/manifest.json"])["cells"]) == len(store.manifest()["cells"])
        curves = {path.name for path in (store.folder / "curves").glob("*.csv")}
        assert {one.rpartition("/")[2] for one in found if one.startswith(f"{name}/curves/")} == curves
    assert not any(name.endswith((".npz", ".jsonl")) for name in found)  # machines stay


def test_the_same_results_make_the_same_bytes_but_for_the_page(results, tmp_path):
    for name in ("a.zip", "b.zip"):
        cbm("export", results, "bars", "-o", tmp_path / name)
    assert members(tmp_path / "a.zip") == members(tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_what_cannot_be_shared_is_refused(results, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    run = Results(results).store("bars").manifest()["cells"][0]["run_id"]
    for words, output, kind in (
        ((results,), "x.npz", "value"),
        ((results, f"{run}:0"), "x.zip", "value"),
        ((results, f"{run}:0", f"{run}:1"), "x.npz", "conflict"),
        ((results, "nothing"), "x.zip", "unknown"),
        ((results,), "nowhere/x.zip", "missing"),
    ):
        refused = cbm("export", *words, "-o", output, code=2)
        assert problems_of(refused)[0][2] == kind
    cbm("export", "empty/", "-o", "x.zip", code=3)
    assert not (tmp_path / "x.zip").exists()
