"""cbm evaluate over a folder in which some trials have diverged or are damaged."""

import json
from pathlib import Path

import pytest

from tests.builders import GRID, cbm, summary

DIVERGING = GRID.replace("learning_rate: 0.1", "learning_rate: 0.1\n    weight_decay: [0, 1e30]")


@pytest.fixture
def grid(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("grid.yaml").write_text(DIVERGING.replace("[CD-1, PT_4]", "CD-1"))
    cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--no-table")
    return tmp_path


def evaluated():
    """Whether each trial has the new column, by whether it has diverged."""
    found = {"": [], "else": []}
    for row in summary("out"):
        found["" if row["diverged"] == "" else "else"].append(row["train_log_likelihood_exact"] != "")
    return found[""], found["else"]


def test_diverged_trials_are_named_and_the_others_evaluated(grid):
    result = cbm("evaluate", "out", "--exact")
    assert evaluated() == ([True] * 4, [False] * 4)
    for number in range(2):
        assert result.stderr.count(f"trial {number} of bars-and-stripes_rbm-3") == 2
    assert result.stderr.count("has diverged") == 4
    assert len(result.stdout.splitlines()) == 2 + 2  # cells
    lines = cbm("evaluate", "out", "--exact", "--json").stdout.splitlines()
    assert len([json.loads(line) for line in lines]) == 4


@pytest.mark.parametrize(
    ("suffix", "damage"),
    [
        (".npz", lambda content: content[:200]),
        (".npz", lambda content: b""),
        (".csv", lambda content: content[:-9]),
    ],
)
def test_damaged_trials_are_named_and_the_exit_code_says_so(grid, suffix, damage):
    cells = {row["run_id"] for row in summary("out") if row["diverged"] == ""}
    victim = Path("out/bars/trials", min(cells), f"trial-001{suffix}")
    victim.write_bytes(damage(victim.read_bytes()))
    result = cbm("evaluate", "out", "--exact", code=3)
    assert f"trial 1 of {min(cells)} is left out" in result.stderr
    assert str(victim) in result.stderr
    assert sum(evaluated()[0]) == 3
    cbm("evaluate", "out", "--exact", "--json", code=3)


def test_a_method_that_does_not_fit_is_still_refused_at_once(grid):
    result = cbm("evaluate", "out", "--ais", "--temperatures", 2, code=2)
    assert "temperatures" in result.stderr
    assert Path("out/bars/summary.csv").exists()
