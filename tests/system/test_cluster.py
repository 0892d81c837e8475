"""Trials on Dask clusters of real processes: who is used, who is refused, and what
losses cost.
"""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from threading import Timer

import pytest
from cbm_cli.errors import CbmError
from cbm_cli.execution import work
from cbm_cli.execution.work import Failure
from cbm_cli.grid.settings import Trial
from cbm_cli.results import Outcome, Progress
from dask import config
from distributed import Client

from tests.builders import PACKAGE, cbm
from tests.journals import trials_of
from tests.processes import ROOT, LoopbackCluster, nightly, until
from tests.system.test_execution import Deadly, Hasty, Raising, curves, kinds, run
from tests.trainings import toy_jobs

pytestmark = pytest.mark.slow


class Telling(Trial):
    """A trial that fails and tells where it ran, once trials have begun at four
    places.
    """

    @property
    def seed(self):
        place = f"{os.getpid()} {threading.get_ident()}"
        Path("begun", place).touch()
        until(lambda: len([*Path("begun").iterdir()]) >= 4, 120)
        raise CbmError(place)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A cluster with two workers that stays as it is; it gives a packet up after the
    second lost worker.

    Its scheduler is without cbm.
    """
    folder = tmp_path_factory.mktemp("dask")
    env = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1"}
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
        self.results, self.said = {}, []
        self.stream = run(jobs, say=self.said.append, scheduler=address)

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
    found = {number: one.curve.tobytes() for number, one in results.items()}
    assert found == curves(run(jobs))


def test_a_scheduler_and_workers_started_by_hand_give_the_same_bytes(finished, shared):
    cbm("run", "grid.yaml", "-o", "there", "--scheduler", shared.address)
    assert trials_of("there") == trials_of("out")


def test_a_trial_that_kills_its_workers_fails_alone(shared):
    results = Run(
        shared.address, toy_jobs(Trial, Deadly, Raising, *[Trial] * 20)
    ).finish()
    kinds = [type(result) for _, result in sorted(results.items())]
    assert kinds == [Outcome, Failure, Failure] + [Outcome] * 20
    assert "2 workers died" in results[1].message
    assert "2 times" in results[1].message
    assert results[2].message == "RuntimeError: no seed today"


def test_stopped_workers_of_a_cluster_return_their_progress(shared):
    stopping, results, jobs = (
        threading.Event(),
        [],
        toy_jobs(Trial, Trial, updates=10**9),
    )
    Timer(6, stopping.set).start()
    with pytest.raises(KeyboardInterrupt):
        results.extend(run(jobs, scheduler=shared.address, stopping=stopping))
    assert kinds(results) == [Progress, Progress]


OTHER = "kernels/step.py", "# other\n", "kernel version"
BROKEN = "__init__.py", "raise ModuleNotFoundError('no cbm')\n", "no cbm"


@pytest.mark.parametrize(("file", "more", "told"), [OTHER, *nightly(BROKEN)])
def test_a_worker_with_another_cbm_ends_the_run_and_is_named(
    dask, here, file, more, told
):
    shutil.copytree(
        PACKAGE, here / "cbm_cli", ignore=shutil.ignore_patterns("__pycache__")
    )
    with (here / "cbm_cli" / file).open("a") as stream:
        stream.write(more)
    for path in (ROOT, here):  # one of two workers is another
        dask.add("--nthreads", "1", "--no-nanny", path=path)
    with Client(dask.address) as client:
        client.wait_for_workers(2)
    its = Run(dask.address, toy_jobs(*[Trial] * 20))
    with pytest.raises(CbmError) as caught:
        its.finish()
    assert its.results == {}  # no trial has begun
    assert "worker tcp://127.0.0.1:" in str(caught.value)
    assert told in str(caught.value)
    assert work.environment() in str(caught.value)


def test_all_threads_of_workers_that_join_late_are_used(dask, here):
    (begun := dask.place.parent / "begun").mkdir()
    its = Run(dask.address, toy_jobs(*[Telling] * 24))
    add = lambda: dask.add("--nthreads", "2", "--no-nanny")  # noqa: E731
    late = [later(lambda: its.said, add), later(lambda: any(begun.iterdir()), add)]
    places = Counter(failure.message for failure in its.finish().values())
    [one.join() for one in late]
    assert {int(place.split()[0]) for place in places} == {
        one.pid for one in dask.workers
    }
    assert (len(places), places.total()) == (4, 24)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "nonsense://x"])
def test_a_scheduler_that_is_not_there_is_reported_in_one_line(grid, address):
    with config.set({"distributed.comm.timeouts.connect": "1s"}):
        refused = cbm("run", "grid.yaml", "--scheduler", address, code=2)
    (line,) = [
        line
        for line in refused.stderr.splitlines()
        if f"--scheduler {address}: " in line
    ]
    assert "tcp://HOST:PORT" in line
    assert "Traceback" not in refused.stderr


@pytest.mark.nightly
def test_the_trials_of_a_worker_that_leaves_go_elsewhere(dask, hasty):
    first = dask.add("--nthreads", "1", "--no-nanny")
    its = Run(dask.address, hasty)
    later(lambda: its.results, lambda: (first.terminate(), dask.add("--nthreads", "1")))
    same_curves(its.finish(), hasty)


@pytest.fixture
def hasty():
    """Jobs of which the first one ends soon."""
    jobs = toy_jobs(*[Trial] * 3, updates=150_000)
    trials = [Hasty("test", one.trial.settings, n, 1) for n, one in enumerate(jobs)]
    return [replace(one, trial=trial) for one, trial in zip(jobs, trials, strict=True)]


@pytest.mark.nightly
def test_a_scheduler_that_comes_back_does_not_end_the_run(dask, hasty):
    dask.add("--nthreads", "1")
    its = Run(dask.address, hasty)

    def again():
        dask.scheduler.kill()
        dask.scheduler.wait()
        time.sleep(0.5)
        dask.scheduler = dask.start_scheduler(dask.address.rpartition(":")[2])
        dask.add("--nthreads", "1")

    later(lambda: its.results, again)
    same_curves(its.finish(), hasty)


def test_a_run_waits_for_workers_and_ends_when_its_scheduler_is_lost(dask, hasty):
    with config.set({"distributed.comm.timeouts.connect": "2s"}):
        its = Run(dask.address, hasty)
        later(lambda: its.said, lambda: dask.add("--nthreads", "1", "--no-nanny"))
        later(lambda: its.results, lambda: dask.scheduler.kill())
        told = f"--scheduler {dask.address}: no Dask scheduler answers"
        with pytest.raises(CbmError, match=told):
            its.finish()
    assert f"{dask.address} has no worker" in its.said[0]


@pytest.mark.nightly
def test_the_documented_batch_script_gives_the_same_bytes(finished, monkeypatch, clone):
    page = (clone / "docs/how-to/cluster.md").read_text("utf-8")
    script, *_ = page.partition("```sh\n")[2].partition("```")
    assert "HOST=$(hostname)" in script
    Path("bin").mkdir()
    twice = '#!/bin/bash\nshift\n"$@" &\n"$@" &\ntrap "kill $(jobs -p)" TERM\nwait\n'
    Path("bin/srun").write_text(twice)
    Path("bin/srun").chmod(0o755)
    Path("grid.yaml").rename("experiments.yaml")
    places = "bin", str(Path(sys.executable).parent), os.environ["PATH"]
    monkeypatch.setenv("PATH", os.pathsep.join(places))
    numbers = {
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_NTASKS": "2",
        "PYTHONPATH": str(ROOT),
    }
    command = ["bash", "-c", script.replace("HOST=$(hostname)", "HOST=127.0.0.1")]
    how = {
        "env": os.environ | numbers,
        "capture_output": True,
        "text": True,
        "timeout": 300,
    }
    done = subprocess.run(command, **how)
    assert done.returncode == 0, done.stderr
    assert trials_of("results") == trials_of("out")
    assert "worker tls://127.0.0.1" not in done.stderr  # all are used
    assert not [*Path().glob(".cbm-tls-*")]


def test_dask_that_is_missing_and_options_of_this_computer_are_reported(
    grid, monkeypatch
):
    scheduler = "run", "grid.yaml", "--scheduler", "tcp://localhost:1"
    both = cbm(*scheduler, "-j", 2, code=2)
    assert "-j" in both.stderr
    monkeypatch.setattr("cbm_cli.cli.run.find_spec", {"distributed": None}.get)
    assert "pip install distributed" in cbm(*scheduler, code=2).stderr


def test_tls_files_that_are_missing_are_named(grid):
    named = dict.fromkeys(("ca-file", "client.cert", "client.key"), "gone.pem")
    with config.set(
        {f"distributed.comm.tls.{name}": path for name, path in named.items()}
    ):
        refused = cbm("run", "grid.yaml", "--scheduler", "tls://127.0.0.1:1", code=2)
    assert "--scheduler tls://127.0.0.1:1: " in refused.stderr
    assert "No such file" in refused.stderr
