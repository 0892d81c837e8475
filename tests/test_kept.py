"""Kept results say what the results themselves say, and the pages are made of them."""

import gzip
import json
import re
import shutil
import sys
from functools import cache
from itertools import chain
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
from cbm_cli.results.journal import sealed, unsealed
from tests.builders import cbm, problems_of

COURSE = [0, 50, 100, 150], ("train_log_likelihood", "test_log_likelihood")
ROOT = Path(__file__).parents[1]
PAGES, MADE = ROOT / "docs/reproduction", ROOT / "reproduction"
sys.path.insert(0, str(MADE))

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
    store.flush()
    return Results(folder)


def kept_of(made, name, folder):
    """What is kept of an experiment, in a folder where more may be kept."""
    keep.keep(made.store(name), folder)
    return Results(folder)


@pytest.fixture(scope="module")
def eight(tmp_path_factory):
    """Results of table 9 for one data set, and what is kept of them."""
    folder = tmp_path_factory.mktemp("eight")
    made = write(folder / "made", "eight-sets-16", *COURSE)
    return made, kept_of(made, "eight-sets-16", folder / "kept")


def test_tables_9_and_10_are_compared_alike_with_results_and_with_what_is_kept(eight):
    made, kept = (compare(one.all_summaries(), one.store).cells for one in eight)
    assert set(kept["table"]) == {"big-rbm-test", "big-rbm-train"}
    pd.testing.assert_frame_equal(made, kept)


def test_what_is_kept_has_no_machines_and_the_same_bytes_of_the_same_results(eight, tmp_path):
    again = kept_of(eight[0], "eight-sets-16", tmp_path)
    names = ("manifest.json", "trials.jsonl.gz")
    one, two = (
        [(it.folder / "eight-sets-16" / name).read_bytes() for name in names] for it in (eight[1], again)
    )
    assert one == two
    kept = [unsealed(line) for line in gzip.decompress(one[1]).splitlines()]
    assert not {"machine", "best"} & {*chain(*kept)}
    assert {path.name for path in (tmp_path / "eight-sets-16").iterdir()} == {*names}


def test_runs_and_trials_kept_one_after_another_are_kept_as_together(eight, tmp_path):
    name, course = "eight-sets-16", COURSE
    others = write(tmp_path / "others", name, *course, data="adult")
    parts = [write(tmp_path / f"{n}", name, *course, first=n, trials=n + 3) for n in (0, 3, 2)]
    for made in (*parts, others, others):
        kept = kept_of(made, name, tmp_path / "kept")
    whole, first = kept.store(name).summary(), eight[0].store(name).summary()
    own = whole[whole["run_id"].isin(first["run_id"])].reset_index(drop=True)
    pd.testing.assert_frame_equal(own, first)
    assert len(whole) == len(first) + len(others.store(name).summary())
    assert kept.store(name).manifest()["trials"] == planned(name).trials


def test_trials_without_curves_are_not_mixed_with_new_ones(tmp_path):
    name = "moving-average"
    shutil.copytree(MADE / "results" / name, tmp_path / name)
    store = Results(tmp_path).store(name)
    run = store.manifest()["cells"][0]["run_id"]
    some = SimpleNamespace(experiment=name, manifest=store.manifest, journal=store.journal)
    before = store.journal.packed.read_bytes()
    keep.keep(some, tmp_path)  # the same trials again
    assert store.journal.packed.read_bytes() == before
    with pytest.MonkeyPatch.context() as patch:
        records = keep.records_of
        fewer = lambda it: {k: v for k, v in records(it).items() if it is not some or k != (run, 0)}  # noqa: E731
        patch.setattr(keep, "records_of", fewer)
        with pytest.raises(SystemExit):
            keep.keep(some, tmp_path)
    assert store.journal.packed.read_bytes() == before


def test_findings_on_curves_and_records_are_judged_alike(tmp_path):
    angles = ("angle_natural_standard", "angle_natural_centered")
    course = ([0, 100, 200, 10000], ("train_log_likelihood",), angles)
    made = write(tmp_path / "made", "natural-gradient", *course, data="bars-and-stripes")
    kept = kept_of(made, "natural-gradient", tmp_path / "kept")
    before, after = (
        [one.record() for one in check_findings(results.all_summaries(), results.store)]
        for results in (made, kept)
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


@pytest.mark.parametrize(
    ("older", "counts"),
    [
        (slice(1, 2), r"1 in 1 run\b.*\b1: moving-average"),
        (slice(1, None), r"1 in \d+ runs\b.*\b3: [^;]*moving-average"),
    ],
    ids=["one trial", "all but one"],
)
def test_results_of_another_kernel_beside_kept_ones_are_named(eight, tmp_path, older, counts):
    shutil.copytree(eight[1].folder, tmp_path, dirs_exist_ok=True)
    shutil.copytree(MADE / "results/moving-average", tmp_path / "moving-average")
    packed = tmp_path / "moving-average/trials.jsonl.gz"
    lines = [unsealed(line) for line in gzip.decompress(packed.read_bytes()).splitlines()]
    trials = [line for line in lines if "run_id" in line]
    for line in trials[older]:
        line["made"] = "older"
    lines.append({"made": "older", "with": lines[0]["with"] | {"kernel": 1}})
    packed.write_bytes(gzip.compress(b"".join(sealed(line) + b"\n" for line in lines)))
    said = cbm("paper", "compare", tmp_path).stdout
    assert re.search(counts, said)


@pytest.mark.parametrize("statistic", ["max", "final", "max-of-mean"])
def test_tables_are_alike_of_results_and_of_what_is_kept(eight, statistic):
    made, kept = (
        cbm("table", results.folder, "eight-sets-16", "--statistic", statistic, "-f", "json").stdout
        for results in eight
    )
    assert json.loads(kept) == json.loads(made)


def test_the_curve_of_every_trial_is_kept(eight):
    made, kept = (results.store("eight-sets-16") for results in eight)
    for run, number in kept.summary()[["run_id", "trial"]].itertuples(index=False):
        pd.testing.assert_frame_equal(kept.curve(run, number), made.curve(run, number))


@pytest.mark.parametrize(
    ("command", "code", "kind", "hint"),
    [
        ("run GRID eight-sets-16 --available --trials 1 -o RESULTS", 2, "conflict", "gunzip"),
        ("table RESULTS eight-sets", 2, "unknown", "eight-sets-16?"),
        ("plot RESULTS filters -o none.png", 2, "missing", "keeps no machine"),
        ("evaluate RESULTS", 2, "conflict", "gunzip"),
        ("plot KEPT curves standard-methods-bars -o none.png", 3, "incomplete", "keeps no curves"),
        (
            "paper figure RESULTS 5 -o none.png",
            3,
            "incomplete",
            "run experiments.yaml divergence -o results/",
        ),
    ],
)
def test_what_is_not_kept_is_refused_with_what_gives_it(
    eight, request, monkeypatch, tmp_path, command, code, kind, hint
):
    if command.startswith("run"):
        monkeypatch.setenv("CBM_DATA_DIR", str(request.getfixturevalue("real_data_dir")))
    shutil.copytree(eight[1].folder, tmp_path / "kept")
    places = {"RESULTS": tmp_path / "kept", "KEPT": MADE / "results", "GRID": ROOT / "experiments.yaml"}
    refused = cbm(*(places.get(word, word) for word in command.split()), code=code)
    assert kind is None or [found for *_, found in problems_of(refused)] == [kind]
    assert hint in refused.stderr


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
    made = pages.Reproduction(MADE / "results").pages()
    assert {path.name for path in PAGES.glob("*.md")} == {*made}
    for name, text in made.items():
        assert (PAGES / name).read_text("utf-8") == text, f"{name}: run python reproduction/pages.py"
        for linked in re.findall(r"\]\((?!http)([^)#]+)", text):
            assert (PAGES / linked).exists(), f"{name}: {linked}"
