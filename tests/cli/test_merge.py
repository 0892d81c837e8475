"""Results of two computers are one after their files were put together."""

import shutil
from pathlib import Path

from tests.builders import cbm, dry, run_grid

TOYS = """
experiments:
  toys:
    data: {name: bars-and-stripes, size: 2}
    model: {kind: rbm, hidden: 3}
    offsets: dd^b_s
    sampler: [CD-1, PCD-1]
    learning_rate: 0.1
    updates: 40
    batch: full
    trials: 3
"""


def files_of(folder):
    """Return the text of the tables that others read, without durations."""
    summary = (folder / "toys/summary.csv").read_text("utf-8").splitlines()
    place = summary[0].split(",").index("seconds")
    rows = [line.split(",")[:place] for line in summary]
    curves = sorted((folder / "toys/curves").glob("*.csv"))
    return rows, [path.read_text("utf-8") for path in curves]


def test_merged_results_are_those_of_one_run(here):
    whole = run_grid(TOYS, output="whole")
    first = run_grid(TOYS, "--set", "sampler=CD-1", output="first")
    second = run_grid(TOYS, "--set", "sampler=PCD-1", output="second")

    with (first / "toys/trials.jsonl").open("a") as journal:
        journal.write((second / "toys/trials.jsonl").read_text("utf-8"))
    assert dry("-o", "first") == [6, 6, 0]
    cbm("run", "grid.yaml", "-o", "first", "-j", 0)

    assert files_of(first) == files_of(whole)
    assert cbm("table", "first").stdout == cbm("table", "whole").stdout


def test_merged_machines_in_files_of_their_own_are_found(here):
    large = TOYS.replace("hidden: 3", "hidden: 4000")
    whole = run_grid(large, output="whole")
    first = run_grid(large, "--set", "sampler=CD-1", output="first")
    second = run_grid(large, "--set", "sampler=PCD-1", output="second")
    assert any((second / "toys/machines").iterdir())

    with (first / "toys/trials.jsonl").open("a") as journal:
        journal.write((second / "toys/trials.jsonl").read_text("utf-8"))
    for folder in (second / "toys/machines").iterdir():
        shutil.copytree(folder, first / "toys/machines" / folder.name)
    cbm("run", "grid.yaml", "-o", "first", "-j", 0)

    names = [
        sorted(path.relative_to(folder) for path in Path(folder).rglob("*.npz"))
        for folder in (first / "toys/machines", whole / "toys/machines")
    ]
    assert names[0] == names[1]
    assert "same bytes" in cbm("verify", "first", "--sample", "all", "-j", 0).stdout
