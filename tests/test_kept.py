"""Kept results say what the results themselves say, and the pages are made of them."""

import gzip
import hashlib
import json
import re
import shutil
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from cbm_cli.grid.read import read_grid
from cbm_cli.grid.settings import Trial
from cbm_cli.paper.comparison import compare
from cbm_cli.paper.findings import check_findings
from cbm_cli.results import Outcome, Results, Store, run_id
from tests.builders import cbm, problems_of
from tests.processes import nightly

COURSE = [0, 50, 100, 150], ("train_log_likelihood", "test_log_likelihood")
ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs/reproduction"
sys.path.insert(0, str(PAGES))

import keep  # noqa: E402
import pages  # noqa: E402


@cache
def planned(name):
    return read_grid(ROOT / "experiments.yaml").experiments[name]


def write(folder, name, updates, curve, recorded=(), trials=6, data="dna", first=0):
    """Write results of one of the paper's experiments with random curves and records."""
    experiment, store = planned(name), Store(folder / name)
    ids = [run_id(cell, 1, f"{name} {cell.data.title}") for cell in experiment.cells]
    (folder / name).mkdir(parents=True)
    store.write_manifest(experiment, ids, {}, None)
    for one, cell in zip(ids, experiment.cells, strict=True):
        for number in range(first, trials if cell.data.title == data else first):
            rng = np.random.default_rng([number, *one.encode()])
            values = -100 + rng.random((len(updates), len(curve))).cumsum(axis=0) / 3
            outcome = Outcome(
                ("update", "epoch", *curve),
                np.column_stack([updates, updates, values]),
                {"kind": np.array("rbm"), "weights_0": np.zeros((2, 2))},
                None,
                1.0,
                {"train": 8, "test": 8},
                recorded=("update", *recorded) if recorded else (),
                records=np.column_stack([updates, *rng.random((2, len(updates)))]) if recorded else None,
            )
            store.write(one, Trial(name, cell, number, 1), outcome)
    return Results(folder)


@pytest.fixture(scope="module")
def eight(tmp_path_factory):
    """Results of table 9 for one data set, and what is kept of them."""
    folder = tmp_path_factory.mktemp("eight")
    made = write(folder / "made", "eight-sets-16", *COURSE)
    keep.keep(made, ["eight-sets-16"], folder / "kept")
    return made, Results(folder / "kept")


def cells(results):
    return compare(results.all_summaries(), results.reader).cells


def test_tables_9_and_10_are_compared_alike_with_results_and_with_what_is_kept(eight):
    made, kept = map(cells, eight)
    assert set(kept["table"]) == {"big-rbm-test", "big-rbm-train"}
    pd.testing.assert_frame_equal(made, kept)


def test_the_kept_mean_curve_has_the_obtained_maximum(eight):
    course = pd.read_csv(eight[1].folder / "eight-sets-16-curves.csv.gz")
    later = course[course["update"] > 0].set_index("run_id")
    for cell in cells(eight[1]).to_dict("records"):
        column = f"{cell['split']}_log_likelihood"
        own = later.loc[cell["run_id"]]
        best = own[column].argmax()
        assert own[column].iloc[best] == pytest.approx(cell["obtained_mean"], abs=1e-4)
        assert own[f"{column}_std"].iloc[best] == pytest.approx(cell["obtained_std"], abs=1e-4)
        assert own["trials"].iloc[best] == 6


def test_the_same_results_give_the_same_bytes(eight, tmp_path):
    keep.keep(eight[0], ["eight-sets-16"], tmp_path)
    for path in eight[1].folder.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_runs_kept_before_stay_and_those_run_again_are_replaced(eight, tmp_path):
    others, kept = write(tmp_path / "others", "eight-sets-16", *COURSE, data="adult"), tmp_path / "kept"
    for results in (eight[0], others, others, eight[0]):
        keep.keep(results, ["eight-sets-16"], kept)
    first = pd.read_csv(eight[1].folder / "eight-sets-16.csv.gz", dtype=str)
    whole = pd.read_csv(kept / "eight-sets-16.csv.gz", dtype=str)
    runs = [*first["run_id"], *others.store("eight-sets-16").summary()["run_id"]]
    assert sorted(whole["run_id"]) == sorted(runs)
    of_first = whole[whole["run_id"].isin(first["run_id"])].reset_index(drop=True)
    pd.testing.assert_frame_equal(of_first, first)


@pytest.mark.parametrize("name", ["eight-sets-16", *nightly("standard-methods-mnist", "dbm-eight-sets")])
def test_trials_of_a_run_kept_one_after_another_are_kept_as_together(tmp_path, name):
    measured = "lower_bound" if name == "dbm-eight-sets" else "log_likelihood"
    course = [0, 50, 100, 150], (f"train_{measured}", f"test_{measured}")
    data = "mnist" if name == "standard-methods-mnist" else "dna"
    several = [(0, 1), (1, 4), (3, 6)] if name == "dbm-eight-sets" else [(0, 1), (1, 6)]
    *parts, whole = (
        write(tmp_path / f"{begin}-{end}", name, *course, trials=end, data=data, first=begin)
        for begin, end in [*several, (0, 6)]
    )
    for results in parts:
        keep.keep(results, [name], tmp_path / "parts")
    keep.keep(whole, [name], tmp_path / "whole")
    for table in (f"{name}.csv.gz", f"{name}-curves.csv.gz"):
        parts, together = (pd.read_csv(tmp_path / kept / table) for kept in ("parts", "whole"))
        keys = [key for key in ("run_id", "trial", "update") if key in parts]
        parts, together = (one.sort_values(keys, ignore_index=True) for one in (parts, together))
        pd.testing.assert_frame_equal(parts, together, check_exact=False, rtol=0, atol=2e-4)
    if name != "dbm-eight-sets":  # whose curves of single trials can be replaced
        some = write(tmp_path / "2-8", name, *course, trials=8, data=data, first=2)
        with pytest.raises(SystemExit):
            keep.keep(some, [name], tmp_path / "parts")


def test_a_run_of_fewer_trials_keeps_how_many_were_asked_for_before(tmp_path):
    manifest = {"description": "", "table": {}, "upper_bounds": {}}
    for trials in (1, 10, 2):
        keep.describe("dbm-eight-sets", manifest | {"trials": trials}, tmp_path / "manifests.json")
    assert json.loads((tmp_path / "manifests.json").read_text())["dbm-eight-sets"]["trials"] == 10


def test_the_best_of_a_mean_is_not_guessed_from_mean_curves(eight, tmp_path):
    keep.keep(eight[0], ["eight-sets-16"], tmp_path / "kept")
    before = (tmp_path / "kept" / "eight-sets-16.csv.gz").read_bytes()
    later = write(tmp_path / "later", "eight-sets-16", *COURSE, trials=8, first=6)
    with pytest.raises(SystemExit):
        keep.keep(later, ["eight-sets-16"], tmp_path / "kept")
    assert (tmp_path / "kept" / "eight-sets-16.csv.gz").read_bytes() == before


def test_findings_on_curves_and_records_are_judged_alike(tmp_path):
    angles = ("angle_natural_standard", "angle_natural_centered")
    course = ([0, 100, 200, 10000], ("train_log_likelihood",), angles)
    made = write(tmp_path / "made", "natural-gradient", *course, data="bars-and-stripes")
    keep.keep(made, ["natural-gradient"], tmp_path / "kept")
    (before, after) = (
        [one.record() for one in check_findings(results)] for results in (made, Results(tmp_path / "kept"))
    )
    assert before == after
    judged = {one["name"]: one for one in after}
    assert {judged[name]["compared"] for name in ("closer-to-natural", "natural-is-fast")} == {1, 2}


def test_pages_say_which_part_of_an_experiment_was_run(eight):
    made = pages.Reproduction(eight[1].folder)
    assert made.parts(["eight-sets-16"]) == "eight-sets-16, 4 of 32 cells"
    made.trials["eight-sets-16"]["epochs"] = 100
    assert made.parts(["eight-sets-16"]) == "eight-sets-16, 4 of 32 cells, 100 of 5,000 epochs"
    made.trials["eight-sets-16"].loc[0, "epochs"] = 5000
    assert made.parts(["eight-sets-16"]) == "eight-sets-16, 4 of 32 cells, some at 100 of 5,000 epochs"


def test_a_number_of_curves_that_was_not_kept_is_not_run(tmp_path):
    course = [0, 10000], ("train_log_likelihood",)
    keep.keep(
        write(tmp_path / "made", "natural-gradient", *course, data="bars-and-stripes"),
        ["natural-gradient"],
        tmp_path,
    )
    judged = {one.finding["name"]: one.verdict for one in check_findings(Results(tmp_path))}
    assert judged["closer-to-natural"] == "not run"
    assert judged["centered-reaches-the-bound"] != "not run"


@pytest.mark.parametrize(
    ("trials", "counts"),
    [(1, r"1 in 1 run\b.*\b1: moving-average"), (-1, r"1 in \d+ runs\b.*\b3: [^;]*moving-average")],
    ids=["one trial", "all but one"],
)
def test_results_of_another_kernel_beside_kept_ones_are_named(eight, tmp_path, trials, counts):
    shutil.copytree(eight[1].folder, tmp_path, dirs_exist_ok=True)
    older = tmp_path / "moving-average.csv.gz"
    head, first, rest = gzip.decompress((PAGES / "results" / older.name).read_bytes()).split(b"\n", 2)
    rest = rest.replace(b",3,2.4.6,", b",1,2.4.6,", trials)
    older.write_bytes(gzip.compress(b"\n".join([head, first, rest]), mtime=0))
    with (tmp_path / "SHA256SUMS").open("a") as file:
        file.write(f"{hashlib.sha256(older.read_bytes()).hexdigest()}  {older.name}\n")
    said = cbm("compare", tmp_path).stdout
    assert re.search(counts, said)


@pytest.mark.parametrize("statistic", ["max", "final", "max-of-mean"])
def test_tables_are_alike_of_results_and_of_what_is_kept(eight, statistic):
    made, kept = (
        cbm("table", results.folder, "eight-sets-16", "--statistic", statistic, "-f", "json").stdout
        for results in eight
    )
    assert len(json.loads(kept)["cells"]) == 4
    cells = [cell for cell in json.loads(made)["cells"] if cell["n"]]  # unlike kept ones, also of other data
    assert json.loads(kept)["cells"] == cells


EFFECTIVE = ("effective_sample_size",)


@pytest.mark.parametrize(
    ("effective", "told"),
    [([(), ()], 1), ([EFFECTIVE, EFFECTIVE], 0), ([(), EFFECTIVE], 1)],
    ids=["no", "yes", "half"],
)
def test_of_long_experiments_the_curve_of_every_trial_is_kept(tmp_path, effective, told):
    made = []
    for number, known in enumerate(effective):
        course = [0, 14, 28], ("train_lower_bound", "test_lower_bound", *known)
        folder = tmp_path / f"made-{number}"
        made.append(write(folder, "dbm-eight-sets", *course, trials=number + 1, first=number))
        keep.keep(made[-1], ["dbm-eight-sets"], tmp_path / "kept")
    kept = Results(tmp_path / "kept").reader("dbm-eight-sets")
    for run, number in kept.summary()[["run_id", "trial"]].itertuples(index=False):
        whole = made[number].curve("dbm-eight-sets", run, number).astype({"epoch": float})
        pd.testing.assert_frame_equal(kept.curve(run, number), whole, rtol=0, atol=5e-5)
    picture = tmp_path / "curves.svg"
    cbm("plot", tmp_path / "kept", "curves", "dbm-eight-sets", "--x", "gradient-steps", "-o", picture)
    said = {*re.findall(r"AIS: effective runs ([a-z ]*)not kept", picture.read_text())}
    assert len(said) == told
    assert said <= {"of some trials "} if len({*effective}) == 2 else said <= {""}


@pytest.mark.parametrize(
    ("command", "code", "kind", "hint"),
    [
        ("ls RESULTS", 2, "unsuited", "cbm compare, table, plot"),
        ("report RESULTS -o none.html", 2, "unsuited", "cbm compare, table, plot"),
        ("table RESULTS eight-sets", 2, "unknown", "eight-sets-16?"),
        ("plot RESULTS curves -o none.png", 3, "incomplete", "6 trials"),
        ("plot RESULTS filters -o none.png", 3, "incomplete", "cbm run experiments.yaml eight-sets-16"),
        ("plot RESULTS norms -o none.png", 3, "incomplete", ""),
        ("figure 5 RESULTS -o none.png", 3, "incomplete", "run experiments.yaml divergence -o results/"),
    ],
)
def test_what_is_not_kept_is_refused_with_what_gives_it(eight, command, code, kind, hint):
    words = [eight[1].folder if word == "RESULTS" else word for word in command.split()]
    refused = cbm(*words, code=code)
    assert [found for *_, found in problems_of(refused)] == [kind]
    assert hint in refused.stderr


def test_a_kept_description_that_was_edited_or_is_missing_is_refused(eight, tmp_path):
    shutil.copytree(eight[1].folder, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "manifests.json"
    path.write_text(path.read_text().replace("Exact", "Inexact"))
    edited = cbm("table", tmp_path, code=2)
    path.unlink()
    for refused in (edited, cbm("table", tmp_path, code=2)):
        assert problems_of(refused) == [(str(path), "", "changed")]


def test_the_site_lists_every_page():
    sys.path.insert(0, str(ROOT / "docs"))
    import hooks

    config = SimpleNamespace(
        docs_dir=ROOT / "docs", nav=[{"Reproduction": ["reproduction/index.md", "scale.md"]}]
    )
    hooks.on_config(config)
    first, *listed, _ = config.nav[0]["Reproduction"]
    assert {first, *listed} == {f"reproduction/{path.name}" for path in PAGES.glob("*.md")}
    assert listed.index("reproduction/table-8.md") < listed.index("reproduction/figure-3.md") < len(listed)


def test_the_committed_pages_are_what_the_script_makes():
    made = pages.Reproduction(PAGES / "results").pages()
    assert {path.name for path in PAGES.glob("*.md")} == {*made}
    for name, text in made.items():
        assert (PAGES / name).read_text("utf-8") == text, f"{name}: run python docs/reproduction/pages.py"
        for linked in re.findall(r"\]\((?!http)([^)#]+)", text):
            assert (PAGES / linked).exists(), f"{name}: {linked}"
