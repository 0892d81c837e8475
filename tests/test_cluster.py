"""Trials on Dask clusters of real processes: who is used, who is refused, and what losses cost."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from threading import Event, Timer

import pytest
from dask import config

from cbm_cli.errors import CbmError
from cbm_cli.execution import Failure, cluster, worker
from cbm_cli.execution.cluster import on_cluster
from cbm_cli.execution.engines import in_process
from cbm_cli.execution.observe import Observer
from cbm_cli.grid.settings import Trial
from cbm_cli.results import Outcome
from tests.builders import cbm, problems_of, toy_jobs, trials_of
from tests.processes import ROOT, LoopbackCluster, nightly, until
from tests.test_execution import Deadly, Hasty, Hearing, Raising

pytestmark = pytest.mark.slow


class Telling(Trial):
    """A trial that fails and tells where it ran, once trials have begun at four places."""

    @property
    def seed(self):
        place = f"{os.getpid()} {threading.get_ident()}"
        Path("begun", place).touch()
        until(lambda: len([*Path("begun").iterdir()]) >= 4, 120)
        raise CbmError(place)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A cluster with two workers that stays as it is; it gives a packet up after the second lost worker.

    Its scheduler is without cbm.
    """
    folder, env = tmp_path_factory.mktemp("dask"), {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1"}
    (none := folder / "none" / "cbm_cli").mkdir(parents=True)
    (none / "__init__.py").write_text("raise ModuleNotFoundError('no cbm')")
    with_workers = LoopbackCluster(folder, env=env, path=none.parent)
    for _ in range(2):
        with_workers.add("--nthreads", "1")
    yield with_workers
    with_workers.end()


@pytest.fixture
def dask(tmp_path):
    """A cluster without workers."""
    alone = LoopbackCluster(tmp_path)
    yield alone
    alone.end()


class Run:
    """A run on a cluster: the results by trial, and what was said."""

    def __init__(self, address, jobs):
        self.observer, self.results = Hearing(), {}
        self.said = self.observer.said
        self.stream = on_cluster(jobs, self.observer, Event(), address)

    def finish(self):
        for job, result in self.stream:
            self.results[job.trial.number] = result
        return self.results


def later(condition, act):
    """Do something in another thread once a condition holds; return the thread."""
    timer = Timer(0, lambda: until(condition) and act())
    timer.start()
    return timer


def same_curves(results, jobs):
    expected = {job.trial.number: outcome for job, outcome in in_process(jobs, Observer(), Event())}
    assert {n: one.curve.tobytes() for n, one in results.items()} == {
        n: one.curve.tobytes() for n, one in expected.items()
    }


def test_a_scheduler_and_workers_started_by_hand_give_the_same_bytes(finished, shared):
    cbm("run", "grid.yaml", "-o", "there", "--scheduler", shared.address)
    assert trials_of("there") == trials_of("out")


def test_a_trial_that_kills_its_workers_fails_alone(shared):
    results = Run(shared.address, toy_jobs(Trial, Deadly, Raising, *[Trial] * 20)).finish()
    kinds = [type(result) for _, result in sorted(results.items())]
    assert kinds == [Outcome, Failure, Failure] + [Outcome] * 20
    assert "2 workers died, 2 times" in results[1].message
    assert results[2].message == "RuntimeError: no seed today"


class Touching(Trial):
    """A trial that leaves a file when it begins."""

    @property
    def seed(self):
        Path(os.environ["BEGUN"], str(self.number)).touch()
        return super().seed


def test_workers_go_on_with_short_trials_while_the_coordinator_is_busy(dask, tmp_path):
    """It is busy from the first result on: until then two trials, each a packet, have been sent."""
    dask.add("--nthreads", "1", "--no-nanny", env={"BEGUN": str(tmp_path)})
    next(Run(dask.address, toy_jobs(*[Touching] * 4)).stream)
    until(lambda: {path.name for path in tmp_path.glob("[0-9]")} >= {"0", "1"})


FOREIGN = [  # other kernels, an older package, none
    ("kernels/step.py", "\ndef ", "\n# other\ndef "),
    ("execution/worker.py", "def environment", "def not_there"),
    ("__init__.py", '"""', 'raise ModuleNotFoundError(\'no cbm\')\n"""'),
]


@pytest.mark.parametrize("changes", [FOREIGN[:1], *nightly(FOREIGN)], ids=len)
def test_other_versions_are_refused_by_name_and_all_threads_of_late_workers_are_used(dask, here, changes):
    (begun := dask.place.parent / "begun").mkdir()
    for file, old, new in changes:
        place = here / Path(file).stem / "cbm_cli"
        shutil.copytree(ROOT / "cbm_cli", place, ignore=shutil.ignore_patterns("__pycache__"))
        before, found, after = (place / file).read_text().partition(old)
        assert found
        (place / file).write_text(before + new + after)
        dask.add("--nthreads", "1", "--no-nanny", path=place.parent)
    run = Run(dask.address, toy_jobs(*[Telling] * 24))
    add = lambda: dask.add("--nthreads", "2", "--no-nanny")  # noqa: E731
    late = [later(lambda: len(run.said) >= len(changes), add), later(lambda: any(begun.iterdir()), add)]
    places = Counter(failure.message for failure in run.finish().values())
    [one.join() for one in late]
    assert {int(place.split()[0]) for place in places} == {one.pid for one in dask.workers[-2:]}
    assert (len(places), places.total()) == (4, 24)
    said = "\n".join(run.said)
    assert said.count("worker tcp://127.0.0.1:") == len(changes)
    assert f"kernel version {worker.KERNEL_VERSION}, " in said
    assert ("ModuleNotFoundError: no cbm" in said) == (len(changes) > 1)
    assert worker.environment() in said


@pytest.mark.parametrize(
    ("address", "kind", "hint"),
    [("tcp://127.0.0.1:9", "system", "1 s"), ("nonsense://x", "value", "tcp://HOST:PORT")],
)
def test_a_scheduler_that_is_not_there_is_told_in_one_line(grid, monkeypatch, address, kind, hint):
    monkeypatch.setattr(cluster, "_CONNECTING", 1.0)
    refused = cbm("run", "grid.yaml", "--scheduler", address, code=2)
    assert problems_of(refused) == [(f"--scheduler {address}", "", kind)]
    (line,) = [line for line in refused.stderr.splitlines() if address in line]
    assert hint in line
    assert "Traceback" not in refused.stderr
    monkeypatch.setenv("CBM_DEBUG", "1")
    assert "Traceback" in cbm("run", "grid.yaml", "--scheduler", address, code=2).stderr


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGSTOP])
def test_the_trials_of_a_worker_that_leaves_go_elsewhere(tmp_path, hasty, number):
    """The scheduler gives a worker up that does not answer for its ``worker-ttl``."""
    dask = LoopbackCluster(tmp_path, env={"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "2s"})
    first = dask.add("--nthreads", "1", "--no-nanny")
    run = Run(dask.address, hasty)
    later(lambda: run.results, lambda: (first.send_signal(number), dask.add("--nthreads", "1")))
    try:
        same_curves(run.finish(), hasty)
    finally:
        dask.end()


@pytest.fixture
def hasty():
    """Jobs of which the first one ends soon."""
    jobs = toy_jobs(*[Trial] * 3, updates=150_000)
    return [replace(one, trial=Hasty("test", one.trial.settings, n, 1)) for n, one in enumerate(jobs)]


@pytest.mark.nightly
def test_a_scheduler_that_comes_back_does_not_end_the_run(dask, hasty):
    dask.add("--nthreads", "1")
    run = Run(dask.address, hasty)

    def again():
        dask.scheduler.kill()
        dask.scheduler.wait()
        time.sleep(0.5)
        dask.scheduler = dask.start_scheduler(dask.address.rpartition(":")[2])
        dask.add("--nthreads", "1")

    later(lambda: run.results, again)
    same_curves(run.finish(), hasty)


def test_a_run_waits_for_workers_and_ends_when_its_scheduler_is_lost(dask, hasty, monkeypatch):
    run = Run(dask.address, hasty)
    later(lambda: run.said, lambda: dask.add("--nthreads", "1", "--no-nanny"))
    later(lambda: run.results, lambda: dask.scheduler.kill())
    monkeypatch.setattr(cluster, "_LONGEST_LOSS", 1.0)
    with pytest.raises(CbmError, match="1 s") as caught:
        run.finish()
    assert problems_of(caught.value) == [(f"--scheduler {dask.address}", "", "system")]
    assert dask.address in run.said[0]


@pytest.mark.nightly
def test_the_documented_batch_script_gives_the_same_bytes(finished, monkeypatch):
    script = (ROOT / "docs" / "clusters.md").read_text().partition("```sh\n")[2].partition("```")[0]
    assert "HOST=$(hostname)" in script
    Path("bin").mkdir()
    Path("bin/srun").write_text('#!/bin/bash\nshift\n"$@" &\n"$@" &\ntrap "kill $(jobs -p)" TERM\nwait\n')
    Path("bin/srun").chmod(0o755)
    Path("grid.yaml").rename("experiments.yaml")
    monkeypatch.setenv("PATH", os.pathsep.join(["bin", str(Path(sys.executable).parent), os.environ["PATH"]]))
    numbers = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_NTASKS": "2", "PYTHONPATH": str(ROOT)}
    command = ["bash", "-c", script.replace("HOST=$(hostname)", "HOST=127.0.0.1")]
    done = subprocess.run(command, env=os.environ | numbers, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert trials_of("results") == trials_of("out")
    assert "worker tls://127.0.0.1" not in done.stderr  # all are used
    assert not [*Path().glob(".cbm-tls-*")]


def test_dask_that_is_missing_and_options_of_this_computer_are_told(grid, monkeypatch):
    scheduler = "run", "grid.yaml", "--scheduler", "tcp://localhost:1"
    both = cbm(*scheduler, "-j", 2, code=2)
    assert (both.error.kinds, "-j" in both.stderr) == (("conflict",), True)
    monkeypatch.setattr("cbm_cli.cli.run.find_spec", {"distributed": None}.get)
    assert "pip install 'cbm-cli[cluster]'" in cbm(*scheduler, code=2).stderr


def test_tls_files_that_are_missing_are_named(grid):
    named = dict.fromkeys(("ca-file", "client.cert", "client.key"), "gone.pem")
    with config.set({f"distributed.comm.tls.{name}": path for name, path in named.items()}):
        refused = cbm("run", "grid.yaml", "--scheduler", "tls://127.0.0.1:1", code=2)
    assert problems_of(refused) == [("--scheduler tls://127.0.0.1:1", "", "missing")]
