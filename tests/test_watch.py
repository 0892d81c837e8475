"""``cbm watch``, ``cbm run --plot`` and ``cbm completion``: what a user sees while trials run, and types."""

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.shell_completion import get_completion_class

import cbm_cli
from cbm_cli.cli import main, redraw
from cbm_cli.cli.completion import SCHEMES
from cbm_cli.cli.watch import WIDTH, sparkline
from cbm_cli.datasets.sources import SOURCES
from cbm_cli.execution import make_agenda
from cbm_cli.grid.read import read_grid
from cbm_cli.results import Store
from cbm_cli.results.activity import Watched
from cbm_cli.trial.loop import run_trial
from tests.builders import GRID, cbm, grid_text
from tests.processes import start_cbm, until

MINUTE = 60_000_000_000  # nanoseconds


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.yaml").write_text(GRID)
    cbm("run", "grid.yaml", "-j", 0, "--no-table")
    return tmp_path / "results"


@pytest.fixture
def running(folder, request):
    """Results of 8 trials, as if a run had begun a minute ago: one trial has made 60 of its 100 updates.

    A parameter is how many seconds it has taken, in earlier runs, too.
    """
    for path in (folder / "bars" / "trials").glob("*_dd-b-s_PT-4_*/trial-001.*"):
        path.unlink()
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


def test_a_frame_says_what_is_done_running_and_left(running, folder):
    before = {
        path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()
    }
    lines = cbm("watch", folder, "bars", "--once").stdout.splitlines()
    assert "process 7 on else where has run for 1 min" in lines[0]
    assert "if it still runs, which cannot be seen from this computer" in lines[0]
    share = running.update / 100
    rate = float(re.search(r"([\d.]+) trials per minute", lines[0])[1])
    assert rate == pytest.approx(7 + share, rel=0.1)  # 7 trials and a part of another in about a minute
    left = float(re.search(r"(\d+) s left", lines[0])[1])
    assert left == pytest.approx((1 - share) * 60 / (7 + share), abs=1.5)
    assert "7 of 8 trials, 1 running" in lines[2]
    assert "dd^b_s" in lines[3]  # cells with running trials come first
    assert re.search(
        rf"1/2 .* trial 1: {running.curve[-1][2]:.4f} after {running.curve[-1][0]}, 1 running", lines[3]
    )
    assert [line.split()[2] for line in lines[4:7]] == ["2/2"] * 3
    after = {
        path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()
    }
    assert after == before


@pytest.mark.parametrize(("running", "own"), [(30.0, 1), (60.0, 1), (180.0, 1 / 3)], indirect=["running"])
def test_work_of_earlier_runs_is_not_in_the_rate(running, folder, own):
    text = cbm("watch", folder, "bars", "--once").stdout
    rate = float(re.search(r"([\d.]+) trials per minute", text)[1])
    assert rate == pytest.approx(7 + own * running.update / 100, rel=0.03)


def test_pretraining_is_no_part_of_a_trial(running, folder):
    store, shares = Store(folder / "bars"), []
    (path,) = (folder / "bars" / "trials").glob("*/*.state.npz")
    for update, curve in [(90, []), (0, [[0, 0, -9]]), (50, [[0, 0, -9]])]:
        running.update, running.curve = update, curve
        store.write_progress(path.parent.name, 1, running)
        shares += [cell.shares for cell in Watched(store).look(0).cells if cell.running]
    assert shares == [0, 0, 0.5]


def test_finished_and_abandoned_results_say_so(running, folder, monkeypatch):
    (folder / ".cbm-lock").unlink()
    assert "no run is writing here" in cbm("watch", folder).stdout
    cbm("run", "grid.yaml", "-j", 0, "--no-table")
    assert "all trials are finished" in cbm("watch").stdout
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal: ends by itself
    assert "8 of 8 trials" in cbm("watch").stdout


def test_a_run_that_was_killed_is_not_shown_as_running(folder):
    text = GRID.replace("updates: 100", "updates: 1e9").replace("every: 20", "every: 1e8")
    Path("long.yaml").write_text(text)
    main = start_cbm("run", "long.yaml", "-o", "out put", "-j", 0, cwd=folder.parent)
    until(lambda: Path("out put/bars/manifest.json").exists())
    name = f"process {main.pid} on {socket.gethostname()}"
    assert f"{name} has run for" in cbm("watch", "out put").stdout
    main.kill()
    main.wait()
    said = cbm("watch", "out put").stdout.splitlines()[0]
    assert said.startswith(f"{name} ended without finishing; resume with: ")
    assert said.endswith("run long.yaml -o 'out put' -j 0")
    assert "trials per minute" not in said


def test_diverged_and_failed_trials_are_counted(tmp_path):
    with open("toy.yaml", "w") as grid:
        grid.write(
            grid_text(
                "rbm", batch="full", learning_rate="1e30", weight_decay="1", evaluate="{every: 1 epoch}"
            )
        )
    cbm("run", "toy.yaml", "-o", "toy", "--trials", 2, "-j", 0, "--no-table")
    (run,) = (tmp_path / "toy" / "toy" / "trials").iterdir()
    (run / "trial-007.error.txt").write_text("it failed")
    lines = cbm("watch", "toy").stdout.splitlines()
    assert "2 of 2 trials, 2 diverged, 1 failed" in lines[2]


def test_many_cells_fit_and_errors_name_what_there_is(folder, monkeypatch):
    monkeypatch.setattr("cbm_cli.cli.watch._PLAIN", (0, 1000))
    assert "and 1 cell more" in cbm("watch").stdout
    assert "did you mean bars" in cbm("watch", folder, "bar", code=2).stderr
    assert "there is no such folder" in cbm("watch", "nowhere", code=2).stderr


@pytest.mark.parametrize(("height", "width"), [(24, 80), (20, 40)])
def test_a_frame_fits_the_terminal_and_keeps_the_values(running, folder, monkeypatch, height, width):
    text = GRID.partition("experiments:\n")[2].replace("PT_4]", "PT_4, PT_5, PT_6, PT_7, PT_8, PT_9]")
    (folder.parent / "more.yaml").write_text("experiments:\n" + text.replace("  bars", "  more-of-them"))
    cbm("run", "more.yaml", "-j", 0, "--no-table", "--set", "trials=1")
    monkeypatch.setattr("cbm_cli.cli.watch._PLAIN", (height, width))
    lines = cbm("watch", "results").stdout.splitlines()
    assert len(lines) < height
    assert max(map(len, lines)) <= width
    assert re.search(r"left|no run is writing here", " ".join(lines))
    cells = [line for line in lines if re.match(r"  .*[▁█]", line)]
    assert len(cells) >= 6
    assert all(re.search(r"-\d+\.\d{4}", line) for line in cells)
    assert any("cells more" in line for line in lines)


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


# cbm run --plot


def test_a_run_draws_its_curves(folder, monkeypatch):
    found = cbm("run", "grid.yaml", "-j", 0, "--no-table", "--plot", "curves.png")
    with open("curves.png", "rb") as picture:
        assert picture.read(8) == b"\x89PNG\r\n\x1a\n"
    assert "wrote curves.png" in found.stderr
    assert not [name for name in os.listdir() if "part" in name]


def test_a_run_is_redrawn_and_never_fails_for_a_drawing(monkeypatch):
    drawn = []

    def draw(results, experiment, path):
        drawn.append(path.name)
        raise ZeroDivisionError("no ink")

    monkeypatch.setattr("cbm_cli.report.plot_curves", draw)
    monkeypatch.setattr(redraw, "EVERY", 0.01)
    found = cbm("run", "grid.yaml", "-j", 0, "-o", "other", "--no-table", "--plot", "c.png")
    assert len(drawn) > 1
    assert "--plot c.png: ZeroDivisionError: no ink" in found.stderr


def test_several_experiments_have_several_pictures(tmp_path):
    text = GRID + GRID.partition("experiments:")[2].replace("  bars:", "  others:")
    (tmp_path / "two.yaml").write_text(text)
    cbm("run", "two.yaml", "-j", 0, "--no-table", "--plot", "c.svg")
    assert {"c-bars.svg", "c-others.svg"} <= {*os.listdir()}


@pytest.mark.parametrize(("path", "words"), [("c.gif", r"c\.gif.*\.png"), ("no/c.png", "no folder .*/no;")])
def test_a_picture_that_cannot_be_written_is_refused_before_the_run(path, words):
    assert re.search(words, cbm("run", "grid.yaml", "--plot", path, code=2).stderr)


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
def test_words_are_completed(words, expected, monkeypatch):
    monkeypatch.setenv("_CBM_COMPLETE", "bash_complete")
    *before, begun = words.split(" ")
    shell = get_completion_class("bash")(main, {}, "cbm", "_CBM_COMPLETE")
    items = shell.get_completions(before, begun)
    assert [item.value for item in items if item.type == "plain"] == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_those_of_the_shell(shell):
    script = cbm("completion", shell).stdout
    assert f"_CBM_COMPLETE={shell}_complete" in script
    if shell == "bash":
        told = subprocess.run(
            ["bash", "-c", f"{script}\ncomplete -p cbm"], capture_output=True, text=True, check=True
        )
        assert "_cbm_completion cbm" in told.stdout


@pytest.mark.parametrize(
    ("line", "replies"),
    [
        ("cbm run grid.yaml --set offsets=aa", ["aa^b", "aa^b_s"]),  # bash itself keeps what is before the =
        ("cbm run grid.yaml --set offsets=", None),
        ("cbm run grid.yaml b", ["bars"]),
        ("cbm wat", ["watch"]),
    ],
)
def test_bash_completes_values_behind_an_equals_sign(tmp_path, line, replies):
    start = "from cbm_cli.cli import main; main(prog_name='cbm')"
    (tmp_path / "cbm").write_text(f'#!/bin/sh\nexec {sys.executable} -c "{start}" "$@"\n')
    (tmp_path / "cbm").chmod(0o755)
    lines = [
        "compopt() { :; }",  # bash has it only where someone types
        cbm("completion", "bash").stdout,
        f"COMP_LINE='{line}'; COMP_POINT={len(line)}; _cbm_completion cbm",
        """printf '%s\\n' "${COMPREPLY[@]}" """,
    ]
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(Path(cbm_cli.__file__).parents[1])}
    told = subprocess.run(
        ["bash", "-c", "\n".join(lines)], capture_output=True, text=True, check=True, env=os.environ | path
    )
    assert told.stdout.split() == (replies or [*SCHEMES])
