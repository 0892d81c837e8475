"""A user's mistake gives one message that names the place and the remedy; exit code 2."""

import os
from pathlib import Path

import pytest
from cbm_cli.datasets.loading import load
from cbm_cli.grid.read import read_grid
from cbm_cli.trial.checks import check

from tests.builders import GRID, cbm, holds, problems_of

pytestmark = pytest.mark.usefixtures("grid")


def with_line(text, line):
    return text.replace("batch: full", f"batch: full\n    {line}") if line else text


LARGE = GRID.replace("name: bars-and-stripes, size: 2", "name: shifting-bar, size: 20, bar: 2")
LARGE = LARGE.replace("hidden: 3", "hidden: 17").replace("method: exact", "method: none")
HUGE = LARGE.replace("size: 20", "size: 40").replace("17", "40").replace("none", "exact")
MARGINAL = "gradient: {kind: natural, fisher: marginal}"


def shown(metric):
    return GRID.replace("scale: total", f"metric: {metric}")


@pytest.mark.parametrize(
    ("text", "line", "told", "named"),
    [
        (GRID.replace("batch: full", "batch: 9"), "", "11 batch", "9 8"),
        (shown("train_loglikelihood"), "", "13 table.metric", "train_log_likelihood"),
        (shown("test_log_likelihood"), "", "13 table.metric", "train_log_likelihood"),
        (shown("weight_norm"), "", "13 table.metric", "train_log_likelihood"),
        (HUGE, "", "12 evaluate", "2^40 40x40 2^30 ais"),
        (LARGE, "gradient: natural", "12 gradient", "2^37 20x17 2^16 fisher: diagonal"),
        (LARGE, MARGINAL.replace("}", ", damping: 1}"), "12 gradient", "2^37"),
        (LARGE, "offsets_from: exact", "12 offsets_from", "2^17 20x17 2^16"),
        (LARGE, "gradient_from: exact", "12 gradient_from", "2^17 20x17 2^16"),
        (LARGE, "record: free_energy_gap", "12 record", "free_energy_gap"),
        (GRID, MARGINAL, "12 gradient", "2^4 15 19 0.01"),
    ],
)
def test_what_a_machine_cannot_have_is_refused_once_with_the_way_out(text, line, told, named):
    place, field = told.split()
    Path("grid.yaml").write_text(with_line(text, line))
    refused = cbm("run", "grid.yaml", "-j", 0, code=2)
    assert problems_of(refused) == [(place, f"bars.{field}")]  # of all four cells
    assert all(word in refused.stderr for word in named.split())
    assert not Path("results").exists()


DIAGONAL = "gradient: {kind: natural, fisher: diagonal}"


@pytest.mark.parametrize("text", [GRID.replace("full", "8"), with_line(LARGE, DIAGONAL)])
def test_a_batch_of_all_rows_and_the_way_out_for_large_machines_are_allowed(text):
    cells = read_grid("grid.yaml", text=text).experiments["bars"].cells
    assert [check(cell, load(cell.data)) for cell in cells] == [None] * 4


@pytest.mark.skipif(os.name != "posix", reason="needs a folder that nobody can write")
def test_results_that_cannot_be_written_are_refused():
    out = "/proc/results" if os.geteuid() == 0 else "out"
    if out == "out":
        Path(out).mkdir(mode=0o500)
    assert holds(cbm("run", "grid.yaml", "-o", out, "-j", 0, code=2).stderr, f"{out}|-o")
