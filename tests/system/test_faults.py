"""Whatever is killed, stopped, full or taken away: finished trials stay, and the same
command ends alike.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

from tests.builders import GRID, cbm, numbers, run_grid, summary
from tests.faulty_disk import ERRORS, FULL, KILLS, READ_ONLY
from tests.journals import contents_of, finished_in, lines_of, stores_in, trials_of
from tests.processes import (
    ROOT,
    children,
    end_group,
    listening,
    nightly,
    start_cbm,
    until,
)

pytestmark = pytest.mark.slow
SHORT = GRID.replace("[CD-1, PT_4]", "CD-1").replace(
    "[00, dd^b_s]", "[00, dd]"
)  # 4 trials
SLOW = SHORT.replace("updates: 100", "updates: 1000000").replace(
    "every: 20", "every: 500000"
)
SLOW = SLOW.replace("trials: 2", "trials: 4")  # 8 trials of half a second or more
LONG = SHORT.replace("updates: 100", "updates: 3000000").replace(
    "every: 20", "every: 1500000"
)
LONG = LONG.replace("trials: 2", "trials: 1")  # 2 trials of a few seconds


def finished(folder="out"):
    """Run-ids and numbers of finished trials on disk."""
    return [key for store in stores_in(folder) for key in finished_in(store)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Return a function that gives the results of a grid without any fault."""
    new = lambda: tmp_path_factory.mktemp("undisturbed")  # noqa: E731
    return cache(lambda text: trials_of(run_grid(text, folder=new())))


def counted(said):
    """The first two numbers of each line: so many of so many trials."""
    return [line[:2] for line in numbers(said)]


def check_rerun(expected, kept, trials):
    """Run again: nothing that was finished is lost or counted twice, and all bytes are
    as expected.
    """
    before = contents_of("out")
    said = cbm("run", "grid.yaml", "-o", "out", "-j", 0).stderr
    assert [len(kept), trials] in counted(said) or len(kept) in (0, trials)
    assert contents_of("out").items() >= before.items()
    assert trials_of("out") == expected
    assert len(summary("out")) == trials
    assert [*lines_of()] == [
        (row["run_id"], int(row["trial"])) for row in summary("out")
    ]
    assert not [*Path("out").rglob("checkpoints/*/*.npz"), *Path("out").rglob("*.part")]


def started(*options, workers=2):
    return start_cbm("run", "grid.yaml", "-o", "out", "-j", workers, *options)


def workers_of(process):
    """The worker processes: children of the fork server, which is a child of the main
    process.
    """
    return [pid for child in children(process.pid) for pid in children(child)]


def all_gone(pids):
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


# Of Ctrl-C and TERM others are below
ENDS = [(signal.SIGKILL, -signal.SIGKILL), *nightly((signal.SIGTERM, 130))]


@pytest.mark.parametrize(("number", "code"), ENDS)
def test_a_run_that_is_ended_continues_with_the_same_command(
    grid, undisturbed, number, code
):
    grid(SLOW)
    main = started()
    until(finished)
    pids = children(main.pid)
    main.send_signal(number)
    assert main.wait(10) == code
    until(lambda: all_gone(pids), 10)
    kept = finished()
    assert 1 <= len(kept) < 8
    if code == 130:
        check_said(main, kept, 8)
    assert "Traceback" not in main.stderr.read()
    check_rerun(undisturbed(SLOW), kept, 8)


def check_said(main, kept, trials):
    """An ended run says how far it came, and how it goes on."""
    said = main.stderr.read()
    assert "run grid.yaml -o out" in said
    assert [len(kept), trials] in counted(said)
    assert len(summary("out")) == len(kept)
    assert "Traceback" not in said


def test_sigterm_to_all_processes_keeps_the_states_of_running_trials(grid, undisturbed):
    grid(LONG)
    main = started()
    until(
        lambda: sum(seconds_of(pid) > 1 for pid in workers_of(main)) >= 2
    )  # they train
    end_group(main, signal.SIGTERM)
    assert main.wait(10) == 130
    left = 2 - len(kept := finished())
    assert len([*Path("out").rglob("checkpoints/*/*.npz")]) == left > 0
    check_said(main, kept, 2)
    said = cbm("run", "grid.yaml", "-o", "out", "--dry-run").stdout
    assert numbers(said)[0][:4] == [2, len(kept), left, left]
    check_rerun(undisturbed(LONG), kept, 2)


@pytest.mark.parametrize("number", [signal.SIGINT, *nightly(signal.SIGTERM)])
def test_a_signal_to_all_processes_while_workers_start_ends_a_run_as_later(
    grid, undisturbed, number
):
    grid(LONG)
    main = started()
    until(lambda: workers_of(main))
    end_group(main, number)
    assert main.wait(15) == 130
    check_said(main, finished(), 2)
    check_rerun(undisturbed(LONG), finished(), 2)


def seconds_of(pid):
    """Seconds of processor time of a process."""
    with suppress(OSError):
        used = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return sum(map(int, used)) / os.sysconf("SC_CLK_TCK")
    return 0.0


def test_a_worker_that_is_killed_costs_no_trial(grid, undisturbed):
    grid(SLOW)
    main = started()
    until(finished)
    os.kill(workers_of(main)[0], signal.SIGKILL)
    code, said = main.wait(60), main.stderr.read()
    assert code == 0, said
    assert "a worker process died" in said
    assert trials_of("out") == undisturbed(SLOW)
    assert len(summary("out")) == 8


def test_ctrl_c_ends_a_run_with_a_stopped_worker(grid, undisturbed):
    grid(SLOW)
    main = started()
    until(finished)
    pids = children(main.pid)
    os.kill(workers_of(main)[0], signal.SIGSTOP)
    assert not listening([main.pid, *pids])  # nobody can connect
    main.send_signal(signal.SIGINT)
    assert main.wait(10) == 130
    until(lambda: all_gone(pids), 5)
    check_said(main, kept := finished(), 8)
    check_rerun(undisturbed(SLOW), kept, 8)


def with_recorder(statement):
    own = (
        f"def f(snapshots, context):\n    open('began', 'w').close()\n    {statement}\n"
    )
    Path("own.py").write_text(own)
    return SHORT.rstrip() + "\n    record: {what: own.py:f, every: 10}\n"


@pytest.mark.parametrize("workers", [0, *nightly(1)])
def test_ctrl_c_ends_a_run_whose_recorder_does_not_return(grid, workers):
    grid(with_recorder("while True: pass"))
    main = started(workers=workers)
    until(Path("began").exists)
    main.send_signal(signal.SIGINT)
    assert main.wait(10) == 130
    assert [0, 4] in counted(main.stderr.read())


EXIT = "import sys; sys.exit(0)", "SystemExit: 0"
OF_WORKERS = nightly((*EXIT, 2), ("import os; os._exit(0)", "3 times", 2))


@pytest.mark.parametrize(("statement", "reason", "workers"), [(*EXIT, 0), *OF_WORKERS])
def test_a_recorder_that_ends_its_process_fails_its_trials(
    grid, statement, reason, workers
):
    grid(with_recorder(statement))
    said = cbm("run", "grid.yaml", "-o", "out", "-j", workers, code=1).stderr
    assert 4 in [line[0] for line in numbers(said) if line]
    assert reason in said
    assert "Traceback" not in said
    assert [json.loads(line)["state"] for line in lines_of().values()] == ["failed"] * 4


def break_disk(folder, *faults):
    """Run the grid in a folder with broken disks; see `faulty_disk`."""
    command = [sys.executable, "-m", "tests.faulty_disk", folder, *faults]
    subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True, timeout=600
    )
    return folder


SOME = ("fsync-2", "replace-3", "fsync-EDQUOT", "replace-EPERM", FULL, READ_ONLY)
OTHERS = tuple(fault for fault in (*KILLS, *ERRORS) if fault not in SOME)


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """Return a function that gives the folders of runs with these faults."""

    @cache
    def run(faults):
        folder = tmp_path_factory.mktemp("disks")
        (folder / "grid.yaml").write_text(SHORT)
        return break_disk(folder, *faults)

    return run


@pytest.mark.parametrize("fault", [*SOME, *nightly(*OTHERS)])
def test_a_broken_disk_loses_no_finished_trial(
    broken, undisturbed, tmp_path, monkeypatch, fault
):
    folder = broken(SOME if fault in SOME else OTHERS)
    monkeypatch.chdir(shutil.copytree(folder / fault, tmp_path / "run"))
    shutil.copy(folder / "grid.yaml", "grid.yaml")
    code, said = int(Path("code").read_text()), Path("said").read_text()
    assert code == (-signal.SIGKILL if fault in KILLS else 2)
    is_placed = re.search(r"\bout[/:]", said)
    assert fault in KILLS or (is_placed and "-o" in said)  # where, and what to do
    assert "Traceback" not in said
    check_rerun(undisturbed(SHORT), finished(), 4)
