"""``cbm watch`` and ``cbm completion``: what a user sees while trials run, and types."""

import os
import re
import socket
import time
from pathlib import Path

import numpy as np
import pytest
from click.shell_completion import get_completion_class

from cbm_cli.cli import main
from cbm_cli.cli.watch import WIDTH, sparkline
from cbm_cli.datasets.sources import SOURCES
from cbm_cli.execution import make_agenda
from cbm_cli.grid.read import read_grid
from cbm_cli.results import Store
from cbm_cli.results.activity import Watched
from cbm_cli.trial.loop import run_trial
from tests.builders import GRID, cbm, grid_text, numbers, problems_of
from tests.processes import start_cbm, until

MINUTE = 60_000_000_000  # nanoseconds


@pytest.fixture(autouse=True)
def folder(finished):
    return Path("out").rename(finished / "results")


@pytest.fixture
def running(folder, request):
    """Results of 8 trials, as if a run had begun a minute ago: one trial has made 60 of its 100 updates.

    A parameter is how many seconds it has taken, in earlier runs, too.
    """
    for path in (folder / "bars" / "trials").glob("*_dd-b-s_PT-4_*/trial-001.*"):
        path.unlink()
    for path in (folder / "bars").rglob("trial-*"):
        os.utime(path)  # of this run
    experiments = read_grid(folder.parent / "grid.yaml").select()
    (job,) = make_agenda(experiments, folder, adopt=False).jobs
    progress = None
    while progress is None or progress.update < 60:
        calls = iter((False, True))
        progress = run_trial(job.trial, job.data, progress, should_pause=lambda calls=calls: next(calls))
    progress.seconds = getattr(request, "param", progress.seconds)
    job.stores[0].write_progress(*job.key, progress)
    (folder / ".cbm-lock").write_text("process 7 on else where")
    os.utime(folder / ".cbm-lock", ns=(time.time_ns() - MINUTE,) * 2)
    return progress


def rate(text):
    return float(re.search(r"([\d.]+) trials per minute", text)[1])


def contents(folder):
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()
    }


def test_a_frame_says_what_is_done_running_and_left(running, folder):
    before = contents(folder)
    first, _, bar, *cells = cbm("watch", folder, "bars", "--once").stdout.splitlines()
    assert "process 7 on else where" in first
    share = running.update / 100
    assert rate(first) == pytest.approx(
        7 + share, rel=0.1
    )  # 7 trials and a part of another in about a minute
    left = float(re.search(r"(\d+) s left", first)[1])
    assert left == pytest.approx((1 - share) * 60 / (7 + share), abs=1.5)
    assert numbers(bar)[0] == [7, 8, 1]
    assert "dd^b_s" in cells[0]  # cells with running trials come first
    value, update = f"{running.curve[-1][2]:.4f}", int(running.curve[-1][0])
    assert value in cells[0]
    assert "1/2" in cells[0]
    assert [1, update, 1] == numbers(cells[0])[0][-3:]
    assert [line.split()[2] for line in cells[1:4]] == ["2/2"] * 3
    assert contents(folder) == before


@pytest.mark.parametrize(("running", "own"), [(30.0, 1), (60.0, 1), (180.0, 1 / 3)], indirect=["running"])
def test_work_of_earlier_runs_is_not_in_the_rate(running, folder, own):
    text = cbm("watch", folder, "bars", "--once").stdout
    assert rate(text) == pytest.approx(7 + own * running.update / 100, rel=0.03)


def test_pretraining_is_no_part_of_a_trial(running, folder):
    store, shares = Store(folder / "bars"), []
    (path,) = (folder / "bars" / "trials").glob("*/*.state.npz")
    for update, curve in [(90, []), (0, [[0, 0, -9]]), (50, [[0, 0, -9]])]:
        running.update, running.curve = update, curve
        store.write_progress(path.parent.name, 1, running)
        shares += [cell.shares for cell in Watched(store).look(0).cells if cell.running]
    assert shares == [0, 0, 0.5]


def test_finished_and_abandoned_results_say_so(running, folder, monkeypatch):
    def states():
        first, _, bar, *_ = cbm("watch").stdout.splitlines()
        return first, numbers(bar)[0]

    held = states()
    (folder / ".cbm-lock").unlink()
    free = states()
    cbm("run", "grid.yaml", "-j", 0, "--no-table")
    done = states()
    assert len({first for first, _ in (held, free, done)}) == 3
    assert [counts for _, counts in (held, free, done)] == [[7, 8, 1], [7, 8], [8, 8]]
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal: ends by itself
    assert "8 of 8" in cbm("watch").stdout


def test_a_run_that_was_killed_is_not_shown_as_running(folder):
    text = GRID.replace("updates: 100", "updates: 1e9").replace("every: 20", "every: 1e8")
    Path("long.yaml").write_text(text)
    main = start_cbm("run", "long.yaml", "-o", "out put", "-j", 0, cwd=folder.parent)
    until(lambda: Path("out put/bars/manifest.json").exists())
    name, command = f"process {main.pid} on {socket.gethostname()}", "run long.yaml -o 'out put' -j 0"
    running = cbm("watch", "out put").stdout.splitlines()[0]
    main.kill()
    main.wait()
    killed = cbm("watch", "out put").stdout.splitlines()[0]
    assert running.startswith(f"{name} ")
    assert killed.startswith(f"{name} ")
    assert killed.endswith(command)  # how to go on
    assert command not in running
    assert "trials per minute" not in killed


def test_diverged_and_failed_trials_are_counted(tmp_path):
    fields = {"learning_rate": "1e30", "weight_decay": "1", "evaluate": "{every: 1 epoch}"}
    Path("toy.yaml").write_text(grid_text("rbm", batch="full", **fields))
    cbm("run", "toy.yaml", "-o", "toy", "--trials", 2, "-j", 0, "--no-table")
    (run,) = (tmp_path / "toy" / "toy" / "trials").iterdir()
    (run / "trial-007.error.txt").write_text("it failed")
    line = cbm("watch", "toy").stdout.splitlines()[2]
    assert numbers(line)[0] == [2, 2, 2, 1]
    assert line.index("2 diverged") < line.index("1 failed")


def test_many_cells_fit_and_errors_name_what_there_is(folder, monkeypatch):
    monkeypatch.setattr("cbm_cli.cli.watch._PLAIN", (0, 1000))
    assert [1] in numbers(cbm("watch").stdout)  # one cell more
    refused = cbm("watch", folder, "bar", code=2)
    assert problems_of(refused) == [(str(folder), "", "unknown")]
    assert "bars" in refused.stderr.rpartition(": ")[2]


@pytest.mark.parametrize(("height", "width"), [(24, 80), (20, 40)])
def test_a_frame_fits_the_terminal_and_keeps_the_values(running, folder, monkeypatch, height, width):
    text = GRID.partition("experiments:\n")[2].replace("PT_4]", "PT_4, PT_5, PT_6, PT_7, PT_8, PT_9]")
    Path("more.yaml").write_text("experiments:\n" + text.replace("  bars", "  more-of-them"))
    cbm("run", "more.yaml", "-j", 0, "--no-table", "--set", "trials=1", "--set", "updates=20")
    monkeypatch.setattr("cbm_cli.cli.watch._PLAIN", (height, width))
    lines = cbm("watch", "results").stdout.splitlines()
    assert len(lines) < height
    assert max(map(len, lines)) <= width
    cells = [line for line in lines if re.match(r"  .*[▁█]", line)]
    assert len(cells) >= 6
    assert all(re.search(r"-\d+\.\d{4}", line) for line in cells)
    assert any(re.search(r"\d+ cells more", line) for line in lines)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ([], ""),
        ([1.0], "▄"),
        ([2.0, 2.0], "▄▄"),
        (range(8), "▁▂▃▄▅▆▇█"),
        ([0, np.nan, 7, -np.inf], "▁x█x"),
        ([0] * WIDTH + [1] * WIDTH, "▁" * (WIDTH // 2) + "█" * (WIDTH // 2)),
    ],
)
def test_a_sparkline_spans_from_the_lowest_to_the_highest_value(values, line):
    assert sparkline(values) == line


# Completion


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("wat", ["watch"]),
        ("run grid.yaml b", ["bars"]),
        ("run grid.yaml --set data.f", ["data.flip="]),
        ("run grid.yaml --set offsets=aa", ["offsets=aa^b", "offsets=aa^b_s"]),
        ("run grid.yaml --set sampler=PT", ["sampler=PT_10", "sampler=PT_20"]),
        ("table results b", ["bars"]),
        ("table results --metric train", ["train_log_likelihood"]),
        ("plot c", ["curves", "critical-difference"]),
        ("plot results curves b", ["bars"]),
        ("plot res", ["res"]),  # a folder, which the shell completes
        ("plot curves --select off", ["offsets=00", "offsets=dd^b_s"]),
        ("best b", ["bars"]),
        ("watch results b", ["bars"]),
        ("evaluate m.npz --data mni", ["mnist"]),
        ("data info mn", ["mnist"]),
        ("data fetch ", [*SOURCES]),
        ("run missing.yaml b", []),
        ("table nowhere --metric x", []),
    ],
)
def test_words_are_completed(words, expected):
    *before, begun = words.split(" ")
    shell = get_completion_class("bash")(main, {}, "cbm", "_CBM_COMPLETE")
    items = shell.get_completions(before, begun)
    assert [item.value for item in items] == expected
    assert {item.type for item in items} <= {"plain" if expected != ["res"] else "dir"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_those_of_the_shell(shell):
    assert f"_CBM_COMPLETE={shell}_complete" in cbm("completion", shell).stdout
