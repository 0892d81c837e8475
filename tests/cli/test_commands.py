"""The commands and options that a user finds in --help are those of the product, and no
others.
"""

import errno
import json
import os
import re
from pathlib import Path
from unittest.mock import Mock

import click
import pytest
from cbm_cli.cli import main

from tests.builders import GRID, cbm

OPTIONS = {
    "": "--version --cite",
    "data": "",
    "init": "--paper -o",
    "run": (
        "-o -j --trials --set --dry-run --scheduler --available --no-code --fail-fast"
    ),
    "ls": "--json",
    "best": "--metric --select --json",
    "table": "-f --select --choose --by --rows --columns --metric --statistic --test "
    "--alpha "
    "--correction",
    "plot": "-o --size --select --choose --by --metric --panels --x --xlim --ylim "
    "--log --smooth "
    "--statistic --data --layer --title",
    "report": "-o",
    "evaluate": "--exact --ais --pseudo --select --data --temperatures --runs --rows "
    "--seed -j "
    "--again --json",
    "sample": "-n --given --sampler --steps --seed -o",
    "features": "--data --layer -o",
    "export": "-o",
    "verify": "--sample -j --no-code --data --json",
    "data list": "",
    "data fetch": "",
    "schema": "",
}


def commands(group, path=""):
    """Each command by its words, from a group on."""
    yield path, group
    for name in group.list_commands(None) if isinstance(group, click.Group) else ():
        yield from commands(group.get_command(None, name), f"{path} {name}".strip())


def test_there_are_fourteen_commands():
    assert {name for name, _ in commands(main)} == {*OPTIONS}
    assert len({name.partition(" ")[0] for name in OPTIONS if name}) == 14


def test_a_misspelt_command_is_answered_with_the_one_that_was_meant():
    assert "Did you mean 'table'?" in cbm("tabel", code=2).stderr


@pytest.mark.parametrize(("name", "command"), [*commands(main)])
def test_a_command_has_the_options_of_the_product_and_a_help_of_80_columns(
    name, command
):
    text = command.get_help(click.Context(command, info_name=name, terminal_width=78))
    assert max(map(len, text.splitlines())) <= 80
    assert not re.search(r"(?m)^  .*\.\.\.$", text)
    found = [{*one.opts} for one in command.params if isinstance(one, click.Option)]
    expected = OPTIONS[name].split()
    assert [
        option for option in expected if not any(option in names for names in found)
    ] == []
    assert [names for names in found if not names & {*expected}] == []


# What a word names


def test_an_experiment_may_be_named_as_a_version_is(here):
    Path("experiments.yaml").write_text(GRID.replace("bars:", "v1.5:"))
    dry_run = cbm("run", "v1.5", "--trials", 3, "--dry-run").stdout
    assert dry_run == "12 trials: 0 finished before, 12 to run\n"


def test_a_folder_does_not_hide_an_experiment_of_its_name(grid):
    Path("grid.yaml").rename("experiments.yaml")
    Path("bars").mkdir()
    assert "8 to run" in cbm("run", "bars", "--dry-run").stdout


def test_a_grid_that_is_named_without_its_suffix_is_named_in_the_answer(grid):
    for command in ("run", "ls"):
        answer = cbm(command, "grid", code=2).stderr
        assert f"cbm {command} grid.yaml" in answer
    Path("deeper").mkdir()
    Path("deeper/grid.yaml").write_text(GRID)
    answer = cbm("run", "deeper/grid", code=2).stderr
    assert "cbm run deeper/grid.yaml" in answer
    Path("experiments.yaml").write_text(GRID)
    answer = cbm("run", "grid", code=2).stderr
    assert "experiments.yaml: there is no experiment 'grid'" in answer
    assert "cbm run grid.yaml" in answer


def test_a_path_is_a_grid_though_it_has_another_suffix(here):
    assert "Error: grid.txt: cannot be read" in cbm("run", "./grid.txt", code=2).stderr


def test_help_says_what_an_option_takes():
    sample = cbm("verify", "--help").stdout
    assert "--sample N|all" in sample
    assert "drawn at random each time, or all" in " ".join(sample.split())
    assert "nor all" in cbm("verify", "--sample", "ALL", code=2).stderr
    for command, data in (
        ("verify", "DIR"),
        ("features", "NAME|FILE"),
        ("evaluate", "NAME|FILE|DIR"),
        ("plot", "NAME|FILE|DIR"),
    ):
        assert re.search(rf"--data {re.escape(data)} ", cbm(command, "--help").stdout)


def test_an_error_of_the_system_without_a_number_keeps_its_words(grid, monkeypatch):
    def fail(*_):
        raise OSError("the tape is torn")

    monkeypatch.setattr("cbm_cli.grid.read.read_grid", fail)
    answer = cbm("run", "grid.yaml", code=2).stderr
    assert answer.startswith("Error: system: the tape is torn;")


def test_too_many_open_files_are_answered_with_the_command_that_allows_more(
    grid, monkeypatch
):
    error = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    monkeypatch.setattr("cbm_cli.grid.read.read_grid", Mock(side_effect=error))
    answer = cbm("run", "grid.yaml", code=2).stderr
    assert answer.startswith("Error: cbm: Too many open files; ")
    assert "ulimit -n" in answer


# What a reader of a grid may miss


def test_a_default_that_is_left_out_is_said_before_a_run(here):
    defaults = "{evaluate: {method: pseudo, every: 5}, table: {scale: total}}"
    text = GRID.replace("{trials: 2, seed: 5}", defaults)
    text = text.replace("{method: exact, every: 20}", "{every: 4}")
    text = text.replace("{scale: total}", "{scale: total, rows: sampler}")
    Path("grid.yaml").write_text(text)
    notes = cbm("run", "grid.yaml", "--dry-run").stderr
    expected = "replaces the whole field of defaults, also method: pseudo"
    assert f"grid.yaml:12: bars.evaluate: {expected}\n" in notes
    assert "bars.table" not in notes  # which has all that the defaults give
    Path("grid.yaml").write_text(text.replace("{every: 4}", "exact"))
    notes = cbm("run", "grid.yaml", "--dry-run").stderr
    assert "bars.evaluate: replaces the whole field of defaults, also every: 5" in notes


def test_what_a_condition_or_an_option_leaves_out_is_said_too(here):
    when = "when: [{if: {sampler: CD-1}, set: {evaluate: {every: 10}}}]"
    text = GRID.replace("exact, every: 20", "pseudo, every: 20, parts: train")
    text = text.replace("    batch: full", f"    batch: full\n    {when}")
    Path("grid.yaml").write_text(text)
    notes = cbm("run", "grid.yaml", "--dry-run").stderr
    expected = "bars.evaluate: replaces the whole field of the experiment, also"
    assert f"{expected} method: pseudo, parts: train\n" in notes
    words = "--set", "evaluate={method: exact, every: 5}"
    notes = cbm("run", "grid.yaml", "--dry-run", *words).stderr
    expected = (
        "--set evaluate: bars.evaluate: replaces the whole field of the grid, also"
    )
    assert f"{expected} parts: train\n" in notes
    words = "--set", "evaluate.every=5"
    assert "of the grid" not in cbm("run", "grid.yaml", "--dry-run", *words).stderr


def test_modules_of_a_recorder_that_may_change_are_named(grid):
    Path("own.py").write_text(
        "import re\nimport numpy as np\n\n"
        "def f(snapshots, context):\n"
        "    import jinja2\n"
        "    return {'own': snapshots.update * 1.0}\n"
    )
    grid(GRID.replace("batch: full", "batch: full\n    record: own.py:f"))
    notes = cbm("run", "grid.yaml", "--dry-run").stderr
    assert "own.py:f: imports jinja2; trials are not run again" in notes


# What results are called


def test_a_folder_in_front_of_a_run_is_that_of_all_names(finished):
    run_id = json.loads(cbm("ls", "out", "bars", "--json").stdout)[0]["run_id"]
    names = f"out/{run_id}:0", f"{run_id}:1"
    answers = cbm("evaluate", *names, "--exact", "--json").stdout
    machines = [json.loads(line)["model"] for line in answers.splitlines()]
    assert machines == [f"out/{run_id}:0", f"out/{run_id}:1"]


def test_an_experiment_is_complete_when_all_its_trials_are_finished(finished):
    (line,) = cbm("ls", "out").stdout.splitlines()[1:]
    assert line.split()[3:7] == ["8", "of", "8", "complete"]
    cbm("run", "grid.yaml", "-o", "out", "--trials", 3, "-j", 0)
    (record,) = json.loads(cbm("ls", "out", "--json").stdout)
    assert (record["finished"], record["planned"]) == (12, 12)
