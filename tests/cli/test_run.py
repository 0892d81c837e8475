"""cbm run from end to end, through the real command line."""

import base64
import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import zlib
from pathlib import Path
from threading import Timer
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from cbm_cli import reference as ref
from cbm_cli.datasets.loading import load
from cbm_cli.grid.read import read_grid
from cbm_cli.kernels.sharing import cores
from cbm_cli.results.journal import Journal, JournalWriter, Line
from cbm_cli.trial.learner import Learner

from tests.builders import GRID, cbm, dry, files, holds, numbers, problems_of, summary
from tests.journals import contents_of, lines_of, stores_in, trials_of
from tests.oracles import exactly, log_likelihoods, wide


def run(*options, out="out", code=0):
    """Run the grid in this process; return what is said."""
    return cbm("run", "grid.yaml", "-o", out, "-j", 0, *options, code=code).stderr


def test_the_curve_of_an_exact_trial_is_that_of_algorithm_2(grid):
    text = GRID.replace("[CD-1, PT_4]", "exact").replace("[00, dd^b_s]", "dd^b_s")
    grid(text.replace("updates: 100", "updates: 40"))
    run("--trials", 1)
    ((trial, *_),) = read_grid(Path("grid.yaml")).select()
    (curve,) = contents_of("out", kinds=["curve"]).values()
    assert curve["update"] == curve["epoch"] == [0, 20, 40]
    rows = load("bars-and-stripes", size=2)
    learner = Learner(trial.settings, rows, trial.seed)
    for update, _, found in zip(*curve.values(), strict=True):
        state = learner.start()
        start = wide(state[:3]), wide(state[3:5])
        machine, _ = exactly(
            ref.algorithm_2, *start, rows.train, learner.plan, int(update)
        )
        expected = log_likelihoods(*machine, rows.train).mean()
        assert float(found) == pytest.approx(expected, abs=1e-5)


def test_what_a_library_or_recorder_warns_of_goes_to_stderr(grid):
    code = (
        "import warnings\ndef f(snapshots, context):\n    warnings.warn('odd')\n   "
        " return {}"
    )
    Path("mine.py").write_text(code)
    said = cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--set", "record=mine.py:f")
    assert "warning: odd" in said.stderr.splitlines()
    assert "odd" not in said.stdout


CHDIR = """
import os
{module}
def f(snapshots, context):
    {call}
    return {{'x': snapshots.update}}
"""


@pytest.mark.parametrize(
    ("module", "call"), [("os.chdir('/')", "pass"), ("", "os.chdir('/')")]
)
def test_a_recorder_that_leaves_the_working_folder_moves_no_results(
    grid, module, call, tmp_path
):
    Path("mine.py").write_text(CHDIR.format(module=module, call=call))
    words = "--set", "record={what: mine.py:f, every: 20}"
    run(*words)
    assert Path.cwd() == tmp_path
    assert len(summary("out")) == 8
    assert [8] in numbers(run(*words))
    cbm("verify", "out", "--sample", 2, "-j", 0)


def test_lines_are_written_where_the_run_began_whatever_the_folder_is_now(
    here, monkeypatch
):
    writer = JournalWriter(Journal(Path("new/trials.jsonl")))
    writer.append(Line("run", 0, "finished"))
    monkeypatch.chdir("/")
    writer.flush()
    monkeypatch.chdir(here)
    assert len(Path("new/trials.jsonl").read_bytes().splitlines()) == 1


def test_ctrl_c_keeps_the_state_of_the_trial_that_runs(finished, grid):
    grid(
        GRID.replace("updates: 100", "updates: 10000000").replace(
            "every: 20", "every: 100000"
        )
    )
    Timer(2, os.kill, (os.getpid(), signal.SIGINT)).start()
    run(out="new", code=130)
    assert dry("-o", "new") == [8, 0, 8, 1]


def test_a_second_run_does_nothing_and_more_trials_keep_those_there_are(finished):
    run()  # the manifest names the folder, which is a copy
    stats, lines = (
        {path: path.stat() for path in Path("out").rglob("[!.]*.*")},
        lines_of(),
    )
    assert [8] in numbers(run())
    for path, before in stats.items():
        assert (path.stat().st_mtime_ns, path.stat().st_ino) == (
            before.st_mtime_ns,
            before.st_ino,
        )
    assert [8, 12, 4] in numbers(run("--trials", 3))
    assert len(summary("out")) == 12
    assert lines_of().items() >= lines.items()


def middle_bit(content):
    at = len(content) // 2
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def test_a_damaged_trial_is_named_and_run_again_and_no_other(finished):
    whole, lines, path = trials_of("out"), lines_of(), Path("out/bars/trials.jsonl")
    victim = [*lines][5]
    path.write_bytes(
        path.read_bytes().replace(lines[victim], middle_bit(lines[victim]))
    )
    said = run()
    assert f"{path}: line 6" in said
    assert [7, 8, 1] in numbers(said)
    assert trials_of("out") == whole
    changed = lines_of()
    assert [*changed] == [*lines]
    assert {key for key in lines if changed[key] != lines[key]} <= {
        victim
    }  # by its seconds
    assert "line" not in run()


def test_readers_leave_a_damaged_trial_out_though_the_summary_is_whole(finished):
    (victim, line), path = [*lines_of().items()][5], Path("out/bars/trials.jsonl")
    damaged = path.read_bytes().replace(line, middle_bit(line))
    pages = "plot out curves -o it.png", "report out -o it.html"
    for command in (
        "table out",
        "ls out",
        "ls out bars",
        "best out",
        *pages,
        "evaluate out -j 0",
    ):
        path.write_bytes(damaged)
        said = cbm(*command.split(), code=3 * command.startswith("evaluate"))
        assert said.stderr.count(f"{path}: line") == 1
    left = [
        (row["run_id"], int(row["trial"])) for row in summary("out")
    ]  # written by evaluate
    assert victim not in left
    assert len(left) == 7


def test_tables_that_are_missing_are_written_again(grid):
    run("--set", "record=[weight_norms]")
    before = files("out", ".csv")
    for folder in ("curves", "records"):
        for path in Path("out/bars", folder).iterdir():
            path.unlink()
        run("--set", "record=[weight_norms]")
        assert files("out", ".csv") == before


def test_a_last_line_that_a_kill_has_cut_short_costs_its_trial(finished):
    path = Path("out/bars/trials.jsonl")
    path.write_bytes(path.read_bytes()[:-200])
    shown = cbm("table", "out")
    assert "[n=1/2]" in shown.stdout
    assert shown.stderr == ""  # it may be a line that is being written
    assert [7, 8, 1] in numbers(run())


def test_damage_to_a_machine_in_a_file_of_its_own_costs_its_trial(
    finished, monkeypatch
):
    monkeypatch.setattr("cbm_cli.results.writer.SMALL", 100)
    run(out="large")
    whole, path = contents_of("large"), sorted(Path("large").rglob("trial-001.npz"))[2]
    assert [*whole.values()] == [*contents_of("out").values()]
    for harm in (middle_bit, None):
        path.write_bytes(harm(path.read_bytes())) if harm else path.unlink()
        said = run(out="large")
        assert str(path) in said
        assert [7, 8, 1] in numbers(said)
        assert contents_of("large") == whole


def test_a_trial_whose_parameters_are_not_finite_has_diverged(grid):
    run("--set", "weight_decay={l2: 1e4}")
    for row in summary("out"):
        assert (
            row["diverged"] == "20"
        )  # beyond the range of float32; seen at the first evaluation
        assert row["train_log_likelihood_max"] == "-inf"
        assert row["train_log_likelihood_final"] == ""
    assert "diverged" in cbm("table", "out", "bars").stdout


@pytest.mark.parametrize(
    ("field", "value", "limit"),
    [
        ("learning_rate", "{start: 1e-46}", "1e-45"),
        ("learning_rate", "{start: 0.1, steps: 1e39 from 5 updates}", "3.4e+38"),
        ("weight_decay.l1", "{l1: 1e39}", "3.4e+38"),
        ("weight_scale", "1e-50", "1e-45"),
    ],
)
def test_numbers_that_float32_does_not_hold_are_refused_before_training(
    grid, field, value, limit
):
    change = f"{field.partition('.')[0]}={value}"
    refused = cbm("run", "grid.yaml", "-o", "out", "--set", change, code=2)
    assert {named for _, named in problems_of(refused)} == {f"bars.{field}"}
    assert limit in refused.stderr
    assert not Path("out").exists()


def test_batches_and_epochs_count_as_they_should_and_evaluation_can_be_left_out(grid):
    every = "evaluate={method: exact, every: 2 epochs}"
    run("--set", "batch=3", "--set", "updates=21", "--set", every)
    curve = next(iter(contents_of("out", kinds=["curve"]).values()))
    # 2 batches of 3 of 8 rows
    assert (curve["update"][:3], curve["epoch"][:3]) == ([0, 4, 8], [0, 2, 4])
    assert (curve["update"][-1], curve["epoch"][-1]) == (21, 10.5)
    said = run("--set", "evaluate={method: none}", out="none")
    assert [*next(iter(contents_of("none", kinds=["curve"]).values()))] == [
        "update",
        "epoch",
    ]
    assert holds(said, "no table: nothing was evaluated")
    assert "Next:" not in said  # there is nothing that these commands would show


def test_names_of_experiments_alone_are_those_of_the_default_grid(grid):
    Path("grid.yaml").rename("experiments.yaml")
    assert cbm("run", "bars", "--dry-run").stdout == cbm("run", "--dry-run").stdout
    assert " bars?" in cbm("run", "bar", "--dry-run", code=2).stderr


def test_results_are_stored_as_documented(finished):
    manifest = json.loads(Path("out/bars/manifest.json").read_text())
    assert manifest["trials"] == 2
    assert [cell["settings"]["offsets"] for cell in manifest["cells"]] == [
        "00",
        "00",
        "dd^b_s",
        "dd^b_s",
    ]
    key, line = [*lines_of().items()][-1]
    record, rows = json.loads(line), summary("out")
    assert (
        record["seal"]
        == hashlib.sha256(line.rpartition(b',"seal"')[0]).hexdigest()[:16]
    )
    content = zlib.decompress(base64.b64decode(record["machine"]))
    with np.load(io.BytesIO(content), allow_pickle=False) as machine:
        shapes = {name: machine[name].shape for name in machine.files}
    sizes = {"biases_0": (4,), "biases_1": (3,), "offsets_0": (4,), "offsets_1": (3,)}
    assert shapes == {"kind": (), "weights_0": (4, 3)} | sizes
    exported = pd.read_csv(f"out/bars/curves/{key[0]}.csv").query("trial == 1")
    assert exported.drop(columns="trial").to_dict("list") == record["curve"]
    values = record["curve"]["train_log_likelihood"][
        1:
    ]  # the start is not part of training
    for end, value in (("max", max(values)), ("final", values[-1])):
        assert float(rows[-1][f"train_log_likelihood_{end}"]) == pytest.approx(
            value, rel=1e-14
        )
    assert rows[-1]["seed"] == str(record["seed"])


def test_names_that_look_like_numbers_stay_names(grid):
    Path("rows.csv").write_text(
        "".join(f"{n & 1},{n >> 1 & 1},{n >> 2 & 1}\n" for n in range(8))
    )
    names = ["nan", "007", "1e5"]
    text = (
        "defaults: {trials: 1, sampler: CD-1, offsets: 00, learning_rate: 0.1, "
        "updates: 20, "
    )
    text += "batch: full, model: {kind: rbm, hidden: 2}}\nexperiments:\n"
    for name in names:
        text += f'  "{name}": {{data: {{path: rows.csv, name: "{name}"}}}}\n'
    again = (
        'again: {data: {path: rows.csv, name: "007"}, start_from: {experiment: "007"}}'
    )
    grid(f"{text}  {again}\n")
    run()
    rows = {store.experiment: store.summary().iloc[0] for store in stores_in("out")}
    for name in names:
        assert [rows[name][it] for it in ("experiment", "data", "data_name")] == [
            name
        ] * 3
    assert rows["again"]["start_from_experiment"] == "007"
    shown = cbm("table", "out", "--rows", "data", "--columns", "offsets").stdout
    assert {*names} <= {*shown.split()}


def test_failed_trials_are_reported_with_a_command_for_details_and_run_again(
    grid, monkeypatch
):
    with monkeypatch.context() as broken:
        broken.setattr("cbm_cli.execution.work.run_trial", lambda *_, **__: 1 / 0)
        fast = run("--fail-fast", out="fast", code=1)
        assert (fast.count("ZeroDivisionError"), [1] in numbers(fast)) == (1, True)
        said = run(code=1)
        assert [8] in numbers(said)
        assert len(re.findall(r"trial [01]: ZeroDivisionError", said)) == 8
        assert not re.search("cbm (plot|table)", said)  # of nothing
        (shown,) = re.findall(r"cbm (ls out \S+)", said)
        assert cbm(*shown.split()).stdout.count("ZeroDivisionError: ") == 2
    run("--set", "sampler=CD-1", "--set", "offsets=00", "--trials", 1)
    states = [json.loads(line)["state"] for line in lines_of().values()]
    assert (states.count("finished"), states.count("failed")) == (1, 7)
    assert (
        "ZeroDivisionError" in cbm(*shown.split()).stdout
    )  # of the trial nobody asks for now


def test_an_unforeseen_error_is_one_line_that_shows_how_to_see_where(grid, monkeypatch):
    error = ValueError("of nobody")
    monkeypatch.setattr("cbm_cli.cli.run._run_and_show", Mock(side_effect=error))
    for debugging in ("0", "1"):
        monkeypatch.setenv("CBM_DEBUG", debugging)
        said = run(code=1)
        assert holds(said.splitlines()[-1], "of nobody|CBM_DEBUG")
        assert ("Traceback" in said) == (debugging == "1")


@pytest.mark.parametrize(
    ("limit", "left"), [("max 100000\n", 8), ("250000 100000\n", 3)]
)
def test_a_run_has_a_worker_for_each_core_that_its_container_has(
    monkeypatch, tmp_path, limit, left
):
    monkeypatch.setattr("cbm_cli.kernels.sharing._LIMIT", tmp_path / "cpu.max")
    monkeypatch.setattr(
        os, "sched_getaffinity", lambda process: set(range(8)), raising=False
    )
    assert cores() == 8
    (tmp_path / "cpu.max").write_text(limit)
    assert cores() == left


def test_output_that_is_full_or_closed_ends_a_command_without_a_traceback(grid):
    def said(where, words):
        command = f'"{sys.executable}" -m cbm_cli.cli {words} {where}'
        ended = subprocess.run(command, shell=True, capture_output=True, text=True)
        return ended.returncode, ended.stderr.splitlines()

    code, lines = said(">&-", "run grid.yaml -o out -j 0")  # no stdout at all
    assert (code, len(lines_of())) == (0, 8)
    assert not any("Error" in line for line in lines)
    assert said("| head -0", "table out")[1] == []
    if Path("/dev/full").exists():
        assert said("2> /dev/full", "run grid.yaml -o more -j 0") == (0, [])
        assert len(lines_of("more/bars")) == 8
        for words in (
            "table out",
            "ls out --json",
            "run grid.yaml -o out -j 0",
            "--help",
        ):
            code, lines = said("> /dev/full", words)
            told = f"Error: the output cannot be written: {os.strerror(28)}"
            assert (code, lines[-1]) == (1, told)
            assert "Traceback (most recent call last):" not in lines


def test_what_lists_and_reads_does_not_import_what_computes(finished):
    heavy = ["numba", "pandas", "numpy", "pydantic", "scipy.stats", "rich"]
    for command, needed in (
        ("--help", set()),
        ("ls grid.yaml", {"pydantic"}),
        (
            "table out",
            {"numpy", "pandas", "pydantic"},
        ),  # the settings know which columns are texts
    ):
        code = (
            "import sys; from cbm_cli.cli import main; main(sys.argv[1:], "
            "standalone_mode=False)"
        )
        code += f"\nprint(*(name for name in {heavy} if name in sys.modules))"
        shown = subprocess.check_output(
            [sys.executable, "-c", code, *command.split()], text=True
        )
        assert {*shown.splitlines()[-1].split()} == needed, shown
