"""Whatever is killed, stopped, full or taken away: finished trials stay, and the same command ends alike."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from cbm_cli.results import Store
from tests.builders import GRID, cbm, files, summary, throw_in
from tests.faulty_disk import ERRORS, FLUSH, FULL, KILLS, READ_ONLY
from tests.processes import ROOT, LoopbackCluster, children, end_group, start_cbm, until

pytestmark = pytest.mark.slow
SHORT = GRID.replace("[CD-1, PT_4]", "CD-1").replace("[00, dd^b_s]", "[00, dd]")  # 4 trials
SLOW = SHORT.replace("updates: 100", "updates: 150000").replace("every: 20", "every: 75000")
SLOW = SLOW.replace("trials: 2", "trials: 4")  # 8 trials of a third of a second
LONG = SHORT.replace("updates: 100", "updates: 800000").replace("every: 20", "every: 400000")
LONG = LONG.replace("trials: 2", "trials: 1")  # 2 trials of a few seconds


def results_in(folder):
    """The bytes of all that a run keeps of its trials."""
    found = files(folder, ".csv", ".npz")
    return {name: content for name, content in found.items() if not name.endswith("summary.csv")}


def finished(folder="out"):
    return sorted(Path(folder).rglob("trial-???.csv"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Return a function that gives the results of a grid without any fault."""
    known = {}

    def results(text):
        if text not in known:
            folder = tmp_path_factory.mktemp("undisturbed")
            (folder / "grid.yaml").write_text(text)
            cbm("run", folder / "grid.yaml", "-o", folder / "out", "-j", 0, "--no-table")
            known[text] = results_in(folder / "out")
        return known[text]

    return results


@pytest.fixture
def grid(tmp_path, monkeypatch):
    """Return a function that writes a grid; the working folder is a new one."""
    monkeypatch.chdir(tmp_path)
    return lambda text: Path("grid.yaml").write_text(text)


def check_rerun(expected, kept, trials):
    """Run again: nothing that was finished is lost or counted twice, and all bytes are as expected."""
    before = {path: path.read_bytes() for path in kept}
    said = cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--no-table").stderr
    if kept and len(kept) < trials:
        assert f"{len(kept)} of {trials} trials are done" in said
    assert {path: path.read_bytes() for path in kept} == before
    assert results_in("out") == expected
    assert len(summary("out")) == trials
    assert not list(Path("out").rglob("*.state.npz"))


def workers_of(process):
    """The worker processes: children of the fork server, which is a child of the main process."""
    return [pid for child in children(process.pid) for pid in children(child)]


MAIN = {
    "KILL": (lambda main: main.kill(), -signal.SIGKILL),
    "TERM": (lambda main: main.terminate(), 130),
    "HUP": (lambda main: main.send_signal(signal.SIGHUP), -signal.SIGHUP),
    "QUIT": (lambda main: main.send_signal(signal.SIGQUIT), -signal.SIGQUIT),
    "Ctrl-C": (lambda main: main.send_signal(signal.SIGINT), 130),
    "Ctrl-C twice": (lambda main: [(main.send_signal(signal.SIGINT), time.sleep(0.05)) for _ in "12"], 130),
    "TERM to the group": (lambda main: end_group(main, signal.SIGTERM), 130),
    "Ctrl-C in a terminal": (lambda main: end_group(main, signal.SIGINT), 130),
}


@pytest.mark.parametrize("how", MAIN)
def test_a_run_that_is_ended_goes_on_with_the_same_command(grid, undisturbed, how):
    grid(SLOW)
    main = start_cbm("run", "grid.yaml", "-o", "out", "-j", 2)
    until(finished)
    pids = children(main.pid)
    end, code = MAIN[how]
    end(main)
    ended = main.wait(10)
    assert ended == code or (how == "Ctrl-C twice" and ended == -signal.SIGINT)  # as it was ending
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 10)
    kept = finished()
    assert 1 <= len(kept) < 8
    said = main.stderr.read()
    assert "Traceback" not in said
    if code == 130 and how != "Ctrl-C twice":
        assert "To resume:" in said
    check_rerun(undisturbed(SLOW), kept, 8)


def test_sigterm_to_all_processes_keeps_the_states_of_running_trials(grid, undisturbed):
    grid(LONG)
    main = start_cbm("run", "grid.yaml", "-o", "out", "-j", 2)
    until(lambda: len(workers_of(main)) >= 2)
    time.sleep(0.7)
    end_group(main, signal.SIGTERM)
    assert main.wait(10) == 130
    assert len(list(Path("out").rglob("*.state.npz"))) == 2
    said = cbm("run", "grid.yaml", "-o", "out", "--dry-run", "-j", 0).stdout
    assert "2 of them resume where they were stopped" in said
    check_rerun(undisturbed(LONG), [], 2)


def ended(workers, number):
    """Send a signal to one of some processes; false if there is none any more."""
    for pid in workers:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
            return True
    return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_that_is_killed_costs_no_trial(grid, undisturbed, number):
    grid(SLOW)
    main = start_cbm("run", "grid.yaml", "-o", "out", "-j", 2)
    for _ in range(3):
        seen = len(finished())
        until(lambda seen=seen: len(finished()) > seen and ended(workers_of(main), number))
    assert main.wait(60) == 0, main.stderr.read()
    assert results_in("out") == undisturbed(SLOW)
    assert len(summary("out")) == 8


def test_ctrl_c_ends_a_run_with_a_stopped_worker(grid, undisturbed):
    grid(SLOW)
    main = start_cbm("run", "grid.yaml", "-o", "out", "-j", 2)
    until(finished)
    pids = children(main.pid)
    os.kill(workers_of(main)[0], signal.SIGSTOP)
    time.sleep(0.5)
    main.send_signal(signal.SIGINT)
    assert main.wait(10) == 130
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 5)
    check_rerun(undisturbed(SLOW), finished(), 8)


OWN = "\n    record: {what: own.py:f, every: 10}\n"
RECORDERS = {
    "hangs": "while True:\n        pass",
    "sleeps": "import time; time.sleep(1000)",
    "exits": "import sys; sys.exit(0)",
    "takes the worker along": "import os; os._exit(0)",
    "raises another BaseException": "raise GeneratorExit",
}


def with_recorder(how):
    Path("own.py").write_text(f"def f(snapshots, context):\n    {RECORDERS[how]}\n")
    return SHORT.rstrip() + OWN


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("how", ["hangs", "sleeps"])
def test_ctrl_c_ends_a_run_whose_recorder_does_not_return(grid, how, workers):
    grid(with_recorder(how))
    main = start_cbm("run", "grid.yaml", "-o", "out", "-j", workers)
    until(lambda: Path("out/bars/manifest.json").exists())
    time.sleep(1.5)
    main.send_signal(signal.SIGINT)
    assert main.wait(10) == 130
    assert "Interrupted; 0 of 4 trials finished" in main.stderr.read()


@pytest.mark.parametrize(
    ("how", "workers", "words"),
    [
        *[("exits", workers, "SystemExit: 0") for workers in (0, 2)],
        *[("raises another BaseException", workers, "GeneratorExit") for workers in (0, 2)],
        ("takes the worker along", 2, "its worker died, 3 times"),
    ],
)
def test_a_recorder_that_ends_its_process_fails_its_trials(grid, how, workers, words):
    grid(with_recorder(how))
    main = start_cbm("run", "grid.yaml", "-o", "out", "-j", workers)
    said = main.communicate(timeout=40)[1]
    assert main.returncode == 1, said
    assert "4 trials failed" in said
    assert words in said
    assert "Traceback" not in said


def test_a_recorder_that_exits_when_it_is_imported_is_refused(grid):
    grid(with_recorder("exits"))
    Path("own.py").write_text("import sys\nsys.exit(0)\n")
    assert "record: own.py, line 2: SystemExit: 0" in cbm("run", "grid.yaml", "-j", 0, code=2).stderr


# ---- Disks ----


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """The folders of runs with broken disks; see `faulty_disk`."""
    folder = tmp_path_factory.mktemp("disks")
    (folder / "grid.yaml").write_text(SHORT)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.faulty_disk", folder]
    subprocess.run(command, env=environment, check=True, timeout=120)
    return folder


@pytest.mark.parametrize("fault", [*KILLS, *ERRORS, FULL, READ_ONLY])
def test_a_broken_disk_loses_no_finished_trial(broken, undisturbed, tmp_path, monkeypatch, fault):
    monkeypatch.chdir(shutil.copytree(broken / fault, tmp_path / "run"))
    shutil.copy(broken / "grid.yaml", "grid.yaml")
    code, said = int(Path("code").read_text()), Path("said").read_text()
    if fault in KILLS:
        assert code == -signal.SIGKILL
    else:
        assert code == 2
        assert "cannot write" in said
        assert "choose another folder with -o" in said
    assert "Traceback" not in said
    check_rerun(undisturbed(SHORT), finished(), 4)


def small_trials(number, updates):
    """A grid of trials that go into archives."""
    return SHORT.replace("trials: 2", f"trials: {number // 2}").replace("updates: 100", f"updates: {updates}")


def test_a_flush_that_failed_for_two_seconds_costs_the_last_second_before_a_kill(grid):
    grid(small_trials(4000, 2000))
    command = [sys.executable, "-m", "tests.faulty_disk", ".", FLUSH]
    subprocess.run(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True, timeout=120)
    assert int(Path("flush/code").read_text()) == -signal.SIGKILL
    *noted, (_, _, died) = [line.split() for line in Path("flush/finished").read_text().splitlines()]
    early = {(run_id, int(n)) for run_id, n, when in noted if float(when) < float(died) - 2}
    late = [when for *_, when in noted if float(died) - 4 < float(when) < float(died) - 2]
    assert late  # trials that were finished after the failure
    store = Store(Path("flush/out/bars"))
    assert early <= {(run_id, n) for run_id in store.runs() for n in store.finished(run_id)}
    said = Path("flush/said").read_text()
    assert said.count("cannot write: Input/output error") == 1
    assert "The run goes on; finished trials wait in memory until writing works" in said
    assert "writing works again; no finished trial is lost" in said


def test_files_of_others_in_every_folder_cost_no_trial_of_a_run_that_is_killed_three_times(grid):
    grid(small_trials(1200, 4000))
    Path("out").mkdir()
    thrown, kills, code = {*throw_in("out/bars")}, [], None
    main = start_cbm("run", "grid.yaml", "-o", "out", "-j", 2, "--no-table")
    store = Store(Path("out/bars"))
    while code is None:
        time.sleep(1)
        thrown |= {*throw_in("out/bars")}
        done = sum(map(len, map(store.finished, store.runs())))
        code = main.poll()
        if code is None and len(kills) < 3 and done > 250 * (len(kills) + 1):
            end_group(main)
            main.wait()
            kills.append(done)
            main = start_cbm("run", "grid.yaml", "-o", "out", "-j", 2, "--no-table")
    said = main.stderr.read()
    assert code == 0, said
    assert len(kills) == 3
    assert int(re.search(r"([\d,]+) of 1,200 trials are done", said)[1].replace(",", "")) >= kills[-1]
    rows = {(row["run_id"], row["trial"]) for row in summary("out")}
    assert len(rows) == len(summary("out")) == 1200
    assert len(thrown) >= 40
    assert all(path.read_bytes() == b"PK\x03\x04 not yours" for path in thrown)
    assert "All 1,200 trials are done" in cbm("run", "grid.yaml", "-o", "out", "--no-table").stderr
    assert "0 folders" in cbm("prune", "out", "grid.yaml").stderr


def test_folders_that_are_removed_during_a_run_are_made_again(grid, undisturbed):
    grid(SLOW)
    main = start_cbm("run", "grid.yaml", "-o", "out", "-j", 2)
    until(finished)
    shutil.rmtree("out", ignore_errors=True)
    said = main.communicate(timeout=60)[1]
    assert main.returncode in (0, 2)
    assert "Traceback" not in said
    cbm("run", "grid.yaml", "-o", "out", "-j", 0, "--no-table")
    expected = undisturbed(SLOW)
    assert results_in("out").items() <= expected.items()
    # where shorter trainings end is written before the trial: it may be gone
    assert expected.keys() - results_in("out").keys() <= {name for name in expected if "/ends/" in name}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_named(grid):
    grid(SHORT)
    Path("out").mkdir(mode=0o500)
    assert "out/bars" in cbm("run", "grid.yaml", "-o", "out", "-j", 0, code=2).stderr


# ---- Clusters ----


@pytest.fixture
def dask(tmp_path):
    (tmp_path / "dask").mkdir()
    cluster = LoopbackCluster(tmp_path / "dask")
    yield cluster
    cluster.end()


def test_ctrl_c_ends_a_run_on_a_cluster_with_a_stopped_worker(grid, undisturbed, dask):
    grid(SLOW)
    stopped = dask.add("--nthreads", "1", "--no-nanny")
    dask.add("--nthreads", "1", "--no-nanny")
    main = start_cbm("run", "grid.yaml", "-o", "out", "--scheduler", dask.address)
    until(finished)
    stopped.send_signal(signal.SIGSTOP)
    time.sleep(0.5)
    main.send_signal(signal.SIGINT)
    assert main.wait(10) == 130
    assert "Traceback" not in main.stderr.read()
    check_rerun(undisturbed(SLOW), finished(), 8)


def test_a_scheduler_that_ends_or_stops_costs_no_trial(grid, undisturbed, dask):
    grid(SLOW)
    dask.add("--nthreads", "1")
    main = start_cbm("run", "grid.yaml", "-o", "out", "--scheduler", dask.address, "--wait", 6)
    until(finished)
    dask.scheduler.send_signal(signal.SIGSTOP)
    time.sleep(3)
    dask.scheduler.send_signal(signal.SIGCONT)
    seen = len(finished())
    until(lambda: len(finished()) > seen)
    dask.scheduler.kill()
    said = main.communicate(timeout=30)[1]
    assert main.returncode == 2, said
    assert "no Dask scheduler answered in 6 s" in said
    assert "the same command runs the others" in said
    assert "Traceback" not in said
    check_rerun(undisturbed(SLOW), finished(), 8)


def test_two_runs_share_a_cluster_of_workers_that_are_killed(grid, undisturbed, dask):
    grid(SLOW)
    victim = dask.add("--nthreads", "1", "--no-nanny")
    dask.add("--nthreads", "2")
    runs = {name: start_cbm("run", "grid.yaml", "-o", name, "--scheduler", dask.address) for name in "ab"}
    until(lambda: finished("a") and finished("b"))
    end_group(victim)
    for name, main in runs.items():
        said = main.communicate(timeout=60)[1]
        assert main.returncode == 0, said
        assert results_in(name) == undisturbed(SLOW)
        assert len(summary(name)) == 8
