"""Which cells commands show: --select."""

import csv
import io
import json

import numpy as np
import pandas as pd
import pytest

import cbm_cli as cbm_api
from cbm_cli.errors import CbmError
from cbm_cli.results.selection import select_cells
from tests.builders import cbm, problems_of

SWEEP = """
experiments:
  sweep:
    data: {path: rows.npz}
    model: {kind: rbm, hidden: 3}
    offsets: [00, dd^b_s]
    sampler: PCD-1
    learning_rate: [0.01, 0.1, 0.3]
    updates: 60
    batch: 10
    trials: 3
    evaluate: {method: exact, every: 20}
"""


def make_rows(folder):
    rng = np.random.default_rng(1)
    rows = rng.random((90, 8)) < rng.choice([0.1, 0.9], size=(3, 8))[rng.integers(3, size=90)]
    np.savez(folder / "rows.npz", train=rows[:50], valid=rows[50:70], test=rows[70:])


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    make_rows(folder)
    slow = SWEEP.partition("sweep:\n")[2].replace("[0.01, 0.1, 0.3]", "0.01")
    (folder / "grid.yaml").write_text(f"{SWEEP}  slow:\n{slow}")
    cbm("run", folder / "grid.yaml", "sweep", "slow", "-o", folder / "results", "-j", 0, "--no-table")
    return folder / "results"


def records(results, *options):
    return [*csv.DictReader(io.StringIO(cbm("table", results, *options, "-f", "csv").stdout))]


def test_a_table_of_selected_cells_has_their_numbers_and_no_others(results):
    rows, every = records(results, "sweep", "--select", "learning_rate=1e-1"), records(results, "sweep")
    assert [row["mean"] for row in rows] == [row["mean"] for row in every if row["learning_rate"] == "0.1"]
    both = records(results, "sweep", "--select", "learning_rate=0.1,0.3", "--select", "offsets=00")
    assert [(row["learning_rate"], row["offsets"]) for row in both] == [("0.1", "00"), ("0.3", "00")]


def test_experiments_without_a_selected_cell_are_left_out(results):
    printed = json.loads(cbm("table", results, "--select", "learning_rate=0.3", "-f", "json").stdout)
    assert {cell["learning_rate"] for cell in printed["cells"]} == {0.3}  # one table, of sweep


def test_commands_read_the_same_cells(results, tmp_path):
    option = ("--select", "learning_rate=0.01")
    found = json.loads(cbm("best", results, "sweep", *option, "--json").stdout.splitlines()[0])
    frame = pd.read_csv(results / "sweep" / "summary.csv").query("learning_rate == 0.01")
    assert found["value"] == pytest.approx(frame["valid_log_likelihood_max"].max())
    cbm("report", results, *option, "-o", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert 'name="learning_rate"' not in page  # one value is nothing to filter by
    assert "6 of 6" in page
    evaluated = cbm("evaluate", results, "sweep", *option, "--json").stdout.splitlines()
    assert len(evaluated) == 6
    assert pd.read_csv(results / "sweep" / "summary.csv")["test_log_likelihood_exact"].notna().sum() == 6
    table = cbm_api.open_results(results).table("sweep", select={"learning_rate": [0.01, 0.3]})
    assert {*table["learning_rate"]} == {0.01, 0.3}
    assert cbm_api.open_results(results).table("sweep", select={"offsets": "00"})["mean"].size == 3


COMMANDS = ("table", "best", "evaluate", "report", "plot curves")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("choice", "kind", "named"),
    [
        ("learnin_rate=0.1", "unknown", "learning_rate"),
        ("nonsense=1", "unknown", "what varies: learning_rate, offsets"),
        ("batch=10", "unsuited", "what varies: learning_rate, offsets"),
        ("learning_rate=0.2", "unknown", "0.01, 0.1, 0.3"),
        ("learning_rate", "value", "SETTING=VALUE"),
    ],
)
def test_what_cannot_be_selected_is_refused_with_what_varies(results, command, choice, kind, named):
    first, *rest = command.split()
    output = {"plot": ("-o", "x.png"), "report": ("-o", "x.html")}.get(first, ())
    found = cbm(first, results, *rest, "sweep", "--select", choice, *output, code=2)
    ((place, _, told),) = problems_of(found)
    assert (place.partition("=")[0], told) == (f"--select {choice.partition('=')[0]}", kind)
    assert all(word in found.stderr for word in named.split(", ")[-1:])


def test_values_are_told_apart_by_their_whole_text():
    cells = [{"run_id": n, "hidden": value} for n, value in enumerate([[500, 500], [500], "007", 7])]
    for value, places in ("[500, 500]", [0]), ("[500]", [1]), ("007", [2]), ("7", [3]), ("7.0", [3]):
        (kept,) = select_cells([{"cells": cells}], [("hidden", value)])
        assert [cell["run_id"] for cell in kept["cells"]] == places
    with pytest.raises(CbmError):
        select_cells([{"cells": cells}], [("hidden", "50")])
