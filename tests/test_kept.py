"""Kept results say what the results themselves say, and the pages are made of them."""

import gzip
import json
import re
import shutil
import sys
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from cbm_cli.paper.comparison import compare
from cbm_cli.paper.findings import check_findings
from cbm_cli.results import Results
from cbm_cli.results.journal import sealed, unsealed
from tests.builders import cbm
from tests.test_findings import GRID, made

COURSE = "eight-sets-16", [0, 50, 100, 150], ("train_log_likelihood", "test_log_likelihood")
ROOT = Path(__file__).parents[1]
PAGES, MADE = ROOT / "docs/reproduction", ROOT / "reproduction"
sys.path.insert(0, str(MADE))

import keep  # noqa: E402
import pages  # noqa: E402


def write(folder, name, updates, curve, recorded=(), data="dna", **options):
    """Write results of one of the paper's experiments with random curves and records; for one data set."""

    def course(cell, trial):
        rng = np.random.default_rng([trial, *json.dumps(cell).encode()])
        rising = {column: -100 + rng.random(len(updates)).cumsum() / 3 for column in curve}
        return {"update": updates} | rising | {column: rng.random(len(updates)) for column in recorded}

    return Results(made(folder, name, course, chosen=lambda cell: cell["data"] == data, **options))


def kept_of(made, name, folder):
    """What is kept of an experiment, in a folder where more may be kept."""
    keep.keep(made.store(name), folder)
    return Results(folder)


@pytest.fixture(scope="module")
def eight(tmp_path_factory):
    """Results of table 9 for one data set, and what is kept of them."""
    folder = tmp_path_factory.mktemp("eight")
    made = write(folder / "made", *COURSE)
    return made, kept_of(made, "eight-sets-16", folder / "kept")


def test_what_is_kept_has_no_machines_and_the_same_bytes_of_the_same_results(eight, tmp_path):
    again = kept_of(eight[0], COURSE[0], tmp_path)
    one, two = (
        {path.name: path.read_bytes() for path in (it.folder / COURSE[0]).iterdir()}
        for it in (eight[1], again)
    )
    assert one == two
    assert {*one} == {"manifest.json", "trials.jsonl.gz"}
    kept = [unsealed(line) for line in gzip.decompress(one["trials.jsonl.gz"]).splitlines()]
    assert not {"machine", "best"} & {*chain(*kept)}


def test_runs_and_trials_kept_one_after_another_are_kept_as_together(eight, tmp_path):
    name = COURSE[0]
    others = write(tmp_path / "others", *COURSE, data="adult")
    parts = [write(tmp_path / f"{n}", *COURSE, first=n, trials=n + 3) for n in (0, 3, 2)]
    for one in (*parts, others, others):
        kept = kept_of(one, name, tmp_path / "kept")
    whole, first = kept.store(name).summary(), eight[0].store(name).summary()
    own = whole[whole["run_id"].isin(first["run_id"])].reset_index(drop=True)
    pd.testing.assert_frame_equal(own, first)
    assert len(whole) == len(first) + len(others.store(name).summary())
    assert kept.store(name).manifest()["trials"] == GRID[name].trials


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
    course = "natural-gradient", [0, 100, 200, 10000], ("train_log_likelihood",), angles
    made = write(tmp_path / "made", *course, data="bars-and-stripes")
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
    said = "eight-sets-16, 4 of 32 cells"
    assert made.parts(["eight-sets-16"]) == said
    for row, more in ((slice(None), "100 of 5,000 epochs"), (0, "some at 100 of 5,000 epochs")):
        made.trials["eight-sets-16"].loc[row, "epochs"] = 100 if more[0] == "1" else 5000
        assert made.parts(["eight-sets-16"]) == f"{said}, {more}"


@pytest.mark.parametrize(
    ("older", "counts"),
    [
        (slice(1, 2), r"1 in 1 run\b.*\b1: moving-average"),
        (slice(1, None), r"1 in \d+ runs\b.*\b3: [^;]*moving-average"),
    ],
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


def test_results_and_what_is_kept_have_the_same_tables_comparison_and_curves(eight):
    for statistic in ("max", "final", "max-of-mean"):
        command = COURSE[0], "--statistic", statistic, "-f", "json"
        made, kept = (cbm("table", results.folder, *command).stdout for results in eight)
        assert kept == made
    made, kept = (compare(one.all_summaries(), one.store).cells for one in eight)
    assert set(kept["table"]) == {"big-rbm-test", "big-rbm-train"}
    pd.testing.assert_frame_equal(made, kept)
    made, kept = (results.store(COURSE[0]) for results in eight)
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
        ("paper figure RESULTS 5 -o none.png", 3, "incomplete", "yaml divergence -o results/"),
        ("paper figure OWN 5 -o none.png", 3, "incomplete", "yaml divergence -o OWN"),
    ],
)
def test_what_is_not_kept_is_refused_with_what_gives_it(
    eight, request, monkeypatch, tmp_path, command, code, kind, hint
):
    if command.startswith("run"):
        monkeypatch.setenv("CBM_DATA_DIR", str(request.getfixturevalue("real_data_dir")))
    shutil.copytree(eight[1].folder, tmp_path / "kept")
    places = {"RESULTS": tmp_path / "kept", "KEPT": MADE / "results", "GRID": ROOT / "experiments.yaml"}
    places["OWN"] = eight[0].folder
    refused = cbm(*(places.get(word, word) for word in command.split()), code=code)
    assert refused.error.kinds == (kind,)
    assert hint.replace("OWN", str(eight[0].folder)) in refused.stderr


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
